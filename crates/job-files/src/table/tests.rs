use job_report::metric::ALL;
use proptest::prelude::*;

use super::*;
use crate::sample::{self, NODE, SECONDS, START};

fn column(table: &Table<'_>, name_of: &str) -> usize {
    table.metrics.iter().position(|metric| name(metric) == name_of).unwrap()
}

fn cells(table: &Table<'_>, block: usize, name_of: &str) -> Vec<Option<f64>> {
    let column = column(table, name_of);
    (0..table.times.len()).map(|row| table.blocks[block].value(column, row)).collect()
}

#[test]
fn a_name_says_the_unit_and_whether_it_is_of_a_second() {
    assert_eq!(
        (name(&metric::CPU_SECONDS), unit(&metric::CPU_SECONDS)),
        ("cpu_seconds_per_second".to_owned(), "seconds_per_second".to_owned())
    );
    assert_eq!(
        (name(&metric::OOM_KILLS), unit(&metric::OOM_KILLS)),
        ("oom_kills_per_second".to_owned(), "count_per_second".to_owned())
    );
    assert_eq!(
        (name(&metric::MEMORY_USED_BYTES), unit(&metric::MEMORY_USED_BYTES)),
        ("memory_used_bytes".to_owned(), "bytes".to_owned())
    );
    assert_eq!((name(&metric::THREADS), unit(&metric::THREADS)), ("threads".to_owned(), "count".to_owned()));
    let names: BTreeSet<_> = ALL.iter().map(|metric| name(metric)).collect();
    assert_eq!(names.len(), ALL.len());
}

#[test]
fn rows_are_of_the_ends_of_bins() {
    let job = sample::job();
    let table = Table::new(&job, By::Node).unwrap();
    let times: Vec<_> = table.times.iter().map(|time| rfc3339(*time).unwrap()).collect();
    assert_eq!(
        times,
        [
            "2023-11-14T22:14:20.000Z",
            "2023-11-14T22:15:20.000Z",
            "2023-11-14T22:16:20.000Z",
            "2023-11-14T22:17:20.000Z",
            "2023-11-14T22:17:50.000Z",
        ]
    );
    assert_eq!(rfc3339(1), Some("1970-01-01T00:00:00.001Z".to_owned()));
    assert_eq!(rfc3339(253_402_300_799_999), Some("9999-12-31T23:59:59.999Z".to_owned()));
    assert_eq!((rfc3339(253_402_300_800_000), rfc3339(i64::MAX), rfc3339(-1)), (None, None, None));
}

#[test]
fn by_node_gpus_are_added_up() {
    let job = sample::job();
    let table = Table::new(&job, By::Node).unwrap();
    let names: Vec<_> = table.metrics.iter().map(|metric| name(metric)).collect();
    assert_eq!(
        names,
        [
            "cpu_seconds_per_second",
            "cpu_user_seconds_per_second",
            "cpu_system_seconds_per_second",
            "memory_peak_bytes",
            "memory_used_bytes",
            "energy_package_joules_per_second",
            "gpu_busy_seconds_per_second",
            "gpu_idle_seconds_per_second",
        ]
    );
    let nodes: Vec<_> = table.blocks.iter().map(|block| block.names().to_vec()).collect();
    assert_eq!(nodes, [["b01"], [NODE]]);
    // 30 in 60 seconds, 60 in 60, 120 in 60, none, 30 in 30.
    assert_eq!(cells(&table, 0, "cpu_seconds_per_second"), [0.5, 1.0, 2.0, 0.0, 1.0].map(Some));
    // The first GPU is always busy; the second for 30 of 60 seconds, twice.
    assert_eq!(cells(&table, 0, "gpu_busy_seconds_per_second"), [1.0, 1.0, 1.5, 1.5, 1.0].map(Some));
    assert_eq!(cells(&table, 1, "memory_used_bytes"), [Some(4e9), None, None, Some(4.1e9), Some(1e9 / 3.0)]);
    assert_eq!(cells(&table, 1, "energy_package_joules_per_second"), [None; 5], "not measured there");
    assert!(!table.blocks[1].has(column(&table, "energy_package_joules_per_second")));
}

#[test]
fn by_gpu_there_is_nothing_of_nodes() {
    let job = sample::job();
    let table = Table::new(&job, By::Gpu).unwrap();
    assert_eq!(table.metrics, [&metric::GPU_BUSY_SECONDS, &metric::GPU_IDLE_SECONDS]);
    let gpus: Vec<_> = table.blocks.iter().map(|block| block.names().to_vec()).collect();
    assert_eq!(gpus, [["b01", "0"], ["b01", "1"], [NODE, "0"]]);
    assert_eq!(cells(&table, 1, "gpu_busy_seconds_per_second"), [0.0, 0.0, 0.5, 0.5, 0.0].map(Some));
    assert_eq!(cells(&table, 2, "gpu_busy_seconds_per_second"), [0.25; 5].map(Some));
}

#[test]
fn by_job_nodes_are_added_up_and_peaks_are_not() {
    let job = sample::job();
    let table = Table::new(&job, By::Job).unwrap();
    assert_eq!((table.blocks.len(), table.blocks[0].node()), (1, None));
    assert_eq!(cells(&table, 0, "cpu_seconds_per_second"), [1.5, 2.0, 3.0, 1.0, 2.0].map(Some));
    assert_eq!(cells(&table, 0, "gpu_busy_seconds_per_second"), [1.25, 1.25, 1.75, 1.75, 1.25].map(Some));
    // Of the nodes that were seen.
    assert_eq!(cells(&table, 0, "memory_used_bytes")[..4], [5e9, 2e9, 3e9, 7.1e9].map(Some));
    assert_eq!(cells(&table, 0, "memory_peak_bytes"), [4e9, 2.1e9, 3.1e9, 4.2e9, 4.2e9].map(Some));
}

#[test]
fn a_curve_of_the_whole_job_is_not_added_to_those_of_its_nodes() {
    let mut job = sample::job();
    let curves = job.curves.as_mut().unwrap();
    curves.curves.push(Curve {
        metric: &metric::CPU_SECONDS,
        node: None,
        gpu: None,
        part: None,
        values: vec![7.0; 5],
    });
    assert_eq!(cells(&Table::new(&job, By::Job).unwrap(), 0, "cpu_seconds_per_second"), [Some(7.0); 5]);
    let by_node = Table::new(&job, By::Node).unwrap();
    assert_eq!(cells(&by_node, 0, "cpu_seconds_per_second")[0], Some(0.5));
    job.curves = None;
    assert!(Table::new(&job, By::Job).is_none());
}

#[test]
fn by_step_and_task_there_are_rows_of_their_time() {
    let job = sample::with_steps();
    let table = Table::new(&job, By::Step).unwrap();
    assert_eq!(table.metrics, [&metric::CPU_SECONDS, &metric::MEMORY_USED_BYTES]);
    let rows: Vec<_> =
        table.blocks.iter().map(|block| (block.names().to_vec(), block.rows.clone())).collect();
    assert_eq!(rows, [(vec!["b01", "batch"], 0..5), (vec!["b01", "0"], 1..4), (vec![NODE, "0"], 1..4)]);
    // It began 30 seconds into the second bin.
    let used = [None, Some(0.25), Some(1.5), Some(0.5), None];
    assert_eq!(cells(&table, 1, "cpu_seconds_per_second"), used);
    let table = Table::new(&job, By::Task).unwrap();
    let tasks: Vec<_> = table.blocks.iter().map(|block| block.names().to_vec()).collect();
    assert_eq!(tasks, [["b01", "0", "0"], ["b01", "0", "1"], [NODE, "0", "2"]]);
    // Steps are in what is known of nodes already.
    assert_eq!(Table::new(&job, By::Node).unwrap().blocks.len(), 2);
    assert!(Table::new(&sample::job(), By::Step).unwrap().blocks.is_empty());
}

#[test]
fn gpus_without_an_index_of_their_own_have_their_uuid() {
    let mut job = sample::job();
    let node = &mut job.nodes[0];
    assert_eq!(gpu_name(node, 1), "1");
    node.gpus[1].index = "0".to_owned();
    assert_eq!((gpu_name(node, 0), gpu_name(node, 1)), ("GPU-0", "GPU-1"));
    node.gpus[1].index = String::new();
    assert_eq!((gpu_name(node, 0), gpu_name(node, 1), gpu_name(node, 2)), ("0", "GPU-1", ""));
}

#[test]
fn what_is_not_finite_or_too_short_is_a_gap() {
    let mut job = sample::job();
    let curves = job.curves.as_mut().unwrap();
    curves.curves.retain(|curve| curve.metric == &metric::MEMORY_USED_BYTES);
    curves.curves[0].values = vec![f64::INFINITY, 1.0];
    let table = Table::new(&job, By::Node).unwrap();
    assert_eq!(cells(&table, 0, "memory_used_bytes"), [None, Some(1.0), None, None, None]);
}

proptest! {
    #[test]
    fn a_counters_column_times_its_bins_is_its_total(
        counted in proptest::collection::vec(proptest::collection::vec(0.0..1e6f64, 5), 1..4),
    ) {
        let mut job = sample::job();
        let mut curves = Curves::new(START, START + SECONDS, 60.0);
        let mut total = 0.0;
        job.nodes.resize_with(counted.len(), Node::default);
        for (node, increments) in counted.iter().enumerate() {
            let mut value = 0.0;
            let points: Vec<_> = curves.ends().zip(increments).map(|(end, more)| { value += more; (end, value) }).collect();
            total += value;
            curves.add((&metric::IO_READ_BYTES, Some(node), None), &points, Some((START + SECONDS, value)));
        }
        job.curves = Some(curves);
        for by in [By::Node, By::Job] {
            let table = Table::new(&job, by).unwrap();
            let mut sum = 0.0;
            for block in &table.blocks {
                let mut from = milliseconds(START);
                for (row, until) in table.times.iter().enumerate() {
                    sum += block.value(0, row).unwrap() * (until - from) as f64 / 1000.0;
                    from = *until;
                }
            }
            prop_assert!((sum - total).abs() <= 1e-9 * total.max(1.0), "{by:?}: {sum} of {total}");
        }
    }
}
