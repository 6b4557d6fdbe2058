use job_report::{Metric, Part};

use super::*;
use crate::testing;

fn document(job: job_report::Job) -> Document {
    let options = Options { zone: TimeZone::UTC, link: None };
    Document::new(&testing::report(job), &Thresholds::shipped().unwrap(), &options)
}

fn titles(document: &Document) -> Vec<&str> {
    document.sections.iter().map(|section| section.title).collect()
}

fn drawings(document: &Document) -> Vec<&Drawing> {
    let blocks = document.sections.iter().flat_map(|section| &section.blocks);
    blocks
        .filter_map(|block| if let Block::Drawing(drawing) = block { Some(drawing) } else { None })
        .collect()
}

fn tables(document: &Document) -> Vec<&Table> {
    let blocks = document.sections.iter().flat_map(|section| &section.blocks);
    blocks.filter_map(|block| if let Block::Table(table) = block { Some(table) } else { None }).collect()
}

fn is_heat_map(drawing: &Drawing) -> bool {
    drawing.description.contains(", each ")
}

fn row<'a>(table: &'a Table, name: &str) -> Vec<&'a str> {
    let row = table.rows.iter().chain(&table.total).find(|row| row[0].as_deref() == Some(name));
    row.unwrap_or_else(|| panic!("{name} in {table:?}"))
        .iter()
        .map(|cell| cell.as_deref().unwrap_or("-"))
        .collect()
}

#[test]
fn what_was_not_measured_has_no_section_and_is_said() {
    let bare = document(testing::bare());
    assert_eq!(titles(&bare), ["Nodes and GPUs", "Data quality", "Numbers and what they are"]);
    let Block::Lines(lines) = &bare.sections[1].blocks[0] else { panic!("{bare:?}") };
    assert!(
        lines.last().is_some_and(|line| {
            line.starts_with("Not measured, or nothing of it seen: curves (the job was too short")
                && line.ends_with("Energy, Hardware counters.")
        }),
        "{lines:?}"
    );
    assert_eq!(
        bare.verdict,
        (None, "Nothing to change (GPUs, CPU use, memory limit and time limit unknown).".to_owned())
    );
}

#[test]
fn a_large_job_has_all_sections_and_a_row_for_each_node_and_gpu() {
    let large = document(testing::large(3, 2));
    assert_eq!(
        titles(&large),
        [
            "Used of what it had",
            "Advice",
            "Over time",
            "Nodes and GPUs over time",
            "Nodes and GPUs",
            "Energy",
            "Hardware counters",
            "Data quality",
            "Numbers and what they are"
        ]
    );
    let drawn = drawings(&large);
    assert_eq!((drawn.len(), drawn.iter().filter(|drawing| is_heat_map(drawing)).count()), (16, 3));
    assert!(drawn.iter().all(|drawing| !drawing.svg.contains("no data") || is_heat_map(drawing)));
    let rows: Vec<usize> = tables(&large).iter().map(|table| table.rows.len()).take(2).collect();
    assert_eq!(rows, [3, 6]);
    for table in tables(&large) {
        assert!(table.rows.iter().chain(&table.total).all(|row| row.len() == table.heads.len()), "{table:?}");
    }
    // Of a single node there is a curve, of a single GPU as well.
    assert!(drawings(&document(testing::large(1, 1))).iter().all(|drawing| !is_heat_map(drawing)));
}

#[test]
fn numbers_are_those_of_the_job() {
    let known = document(testing::job());
    let tables = tables(&known);
    assert_eq!(
        row(tables[0], "node1"),
        ["node1", "24", "10 %", "12.9 GiB", "7.9 GiB", "128 GiB", "2", "65 %", "3 GiB", "1 GiB"]
    );
    assert_eq!(
        row(tables[0], "all"),
        ["all", "48", "", "12.9 GiB", "7.9 GiB", "256 GiB", "4", "", "6 GiB", "2 GiB"]
    );
    assert_eq!(row(tables[1], "node2"), ["node2", "0", "NVIDIA A100-SXM4-40GB", "0 %", "26.5 GiB", "40 GiB"]);
    assert_eq!(row(tables[2], "Cores used")[1], "4.73");
    assert_eq!(row(tables[2], "GPU time idle")[1], "1-13:50:48");
    assert_eq!(row(tables[3], "CPU time used")[1..4], ["3-16:30:15", "1-18:48:55", "1-21:41:20"]);
    assert_eq!(known.summary, "aturing / math · della · Fri 04 Mar 2022");
    assert!(known.facts.contains(&("Elapsed", "18:41:56 of 4-00:00:00".to_owned())), "{:?}", known.facts);
}

#[test]
fn energy_and_counters_add_up() {
    let mut job = testing::large(1, 0);
    job.curves = None;
    for node in &mut job.nodes {
        for (metric, value) in [
            (&metric::ENERGY_JOULES, 3.6e6),
            (&metric::ENERGY_PACKAGE_JOULES, 1.8e6),
            (&metric::ENERGY_DRAM_JOULES, 0.36e6),
            (&metric::ENERGY_OVERHEAD_JOULES, 0.72e6),
            (&metric::FLOPS, 8.64e14),
            (&metric::MEMORY_TRAFFIC_BYTES, 4.32e14),
            (&metric::INSTRUCTIONS, 3e12),
            (&metric::CYCLES, 2e12),
        ] {
            node.values.set(metric, value);
        }
    }
    let document = document(job);
    let tables = tables(&document);
    let of = |caption: &str| *tables.iter().find(|table| table.caption.starts_with(caption)).unwrap();
    assert_eq!(row(of("Energy"), "CPU packages"), ["CPU packages", "500 Wh", "50 %", "20.8 W"]);
    assert_eq!(row(of("Energy"), "others")[1..3], ["200 Wh", "20 %"]);
    assert_eq!(row(of("Energy"), "all"), ["all", "1 kWh", "100 %", "41.7 W"]);
    let counters = of("Hardware counters");
    assert_eq!(row(counters, "… for each second")[1], "10 GFLOP/s");
    assert_eq!(row(counters, "… for each byte of memory traffic")[1], "2 FLOP");
    assert_eq!(row(counters, "… for each cycle of a core")[1], "432");
    assert_eq!(row(counters, "… for each cycle")[1], "1.5");
}

#[test]
fn curves_are_those_of_the_job() {
    let mut job = testing::large(2, 1);
    let curves = job.curves.as_mut().unwrap();
    for curve in &mut curves.curves {
        let level = match curve.metric.key {
            "cpu_seconds" => 16.0,
            "memory_anon_bytes" => 64.0 * 1024.0 * 1024.0 * 1024.0,
            "gpu_busy_seconds" => 0.25,
            "gpu_idle_seconds" => 0.75,
            "waited_io_seconds" if curve.node == Some(1) => 0.5,
            _ => 0.0,
        };
        curve.values.fill(level);
    }
    let document = document(job);
    let described: Vec<&str> =
        drawings(&document).iter().map(|drawing| drawing.description.as_str()).collect();
    for expected in [
        "CPUs used: 32 to 32, mean 32; 128 held.",
        "Memory: anonymous 128 GiB to 128 GiB, mean 128 GiB; shared, tmpfs 0 B to 0 B, mean 0 B; page cache, kernel 0 B to 0 B, mean 0 B; limit 512 GiB.",
        "CPUs used of those held, each node: 2 rows, means from 25 % on node001 to 25 % on node002.",
        "GPU busy, each GPU: 2 rows, means from 25 % on node001 0 to 25 % on node002 0.",
    ] {
        assert!(described.contains(&expected), "{expected}\n{described:#?}");
    }
    let has = |text: &str| described.iter().any(|description| description.contains(text));
    assert!(has("busy 0.5 to 0.5, mean 0.5") && has("for storage 50 % to 50 %, mean 50 %"), "{described:#?}");
}

#[test]
fn what_was_not_seen_for_a_while_is_a_gap() {
    let mut job = testing::large(1, 0);
    for curve in &mut job.curves.as_mut().unwrap().curves {
        let part = match curve.metric.key {
            "memory_used_bytes" => 3.0,
            "memory_anon_bytes" | "memory_shmem_bytes" => 1.0,
            "energy_joules" => 100.0,
            _ => continue,
        };
        curve.values.fill(part);
        if ["memory_used_bytes", "energy_joules"].contains(&curve.metric.key) {
            curve.values[..100].fill(f64::NAN);
        }
    }
    let document = document(job);
    let drawings = drawings(&document);
    let of = |title: &str| drawings.iter().find(|drawing| drawing.description.starts_with(title)).unwrap();
    // Were it 0 where it is not known, the mean would be less.
    assert!(
        of("Memory").description.contains("page cache, kernel 1 B to 1 B, mean 1 B"),
        "{:?}",
        of("Memory")
    );
}

#[test]
fn steps_of_all_nodes_are_added_up_and_the_last_row_is_the_job() {
    let mut job = testing::job();
    let part = |step: &str, task: Option<&str>, seconds: f64, peak: f64| {
        let mut part = Part { step: step.to_owned(), task: task.map(str::to_owned), ..Part::default() };
        part.values.set(&metric::CPU_SECONDS, seconds);
        part.values.set(&metric::MEMORY_PEAK_BYTES, peak);
        part
    };
    job.nodes[0].parts =
        vec![part("batch", None, 20.0, 1e6), part("0", None, 3600.0, 4e9), part("0", Some("0"), 3590.0, 4e9)];
    job.nodes[1].parts = vec![part("0", None, 1800.0, 2e9)];
    let counted: [(&Metric, f64); 5] = [
        (&metric::INSTRUCTIONS, 3e12),
        (&metric::CYCLES, 2e12),
        (&metric::FLOPS, 4.8e12),
        (&metric::COUNTED_CPU_SECONDS, 1200.0),
        (&metric::MEMORY_LOAD_BYTES, 1024f64.powi(4)),
    ];
    for node in &mut job.nodes {
        let step = node.parts.iter_mut().find(|part| part.step == "0" && part.task.is_none()).unwrap();
        counted.iter().for_each(|(metric, value)| step.values.set(metric, *value));
    }
    let document = document(job.clone());
    let steps = tables(&document).into_iter().find(|table| table.caption.starts_with("Steps")).unwrap();
    assert_eq!(row(steps, "batch")[1..4], ["1", "-", "00:00:20"]);
    assert_eq!(row(steps, "0")[1..], ["2", "1", "01:30:00", "3.73 GiB", "1.5", "4 GFLOP/s", "2 TiB"]);
    assert_eq!(row(steps, "batch")[5..], ["-", "-", "-"], "not counted");
    assert_eq!(row(steps, "all")[3], "3-16:30:15");
    // Those with the most CPU time are shown.
    job.nodes[1].parts = (0..40).map(|step| part(&step.to_string(), None, f64::from(step), 1e6)).collect();
    let document = self::document(job);
    let steps = tables(&document).into_iter().find(|table| table.caption.starts_with("Steps")).unwrap();
    assert_eq!(steps.rows.len(), 30);
    assert_eq!(
        [&steps.rows[0][0], &steps.rows[1][0], &steps.rows[2][0]].map(|name| name.as_deref().unwrap()),
        ["batch", "0", "12"]
    );
}
