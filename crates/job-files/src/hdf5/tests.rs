//! Files are read back by the library's own reader here, and by HDF5's and SLURM's in tests/report.

use std::io;
use std::time::Instant;

use hdf5_pure::{AttrValue, Datatype, File};
use job_report::metric::{self, Metric};
use job_report::{Curve, Curves, Gpu, Job, Node, Report, Thresholds};
use proptest::prelude::*;

use super::{About, Error, Layout, write};
use crate::sample;

const MIB: f64 = 1024.0 * 1024.0;

fn node(name: &str, gpus: usize) -> Node {
    let gpu = |index: usize| Gpu {
        index: index.to_string(),
        uuid: format!("GPU-{name}-{index}"),
        ..Gpu::default()
    };
    let gpus = (0..gpus).map(gpu).collect();
    Node {
        name: name.to_owned(),
        start: 1000.0,
        end: Some(1150.0),
        seen_until: 1150.0,
        gpus,
        ..Node::default()
    }
}

/// Bins end at 1060, 1120 and 1150.
fn job(nodes: Vec<Node>, curves: Vec<Curve>) -> Job {
    Job {
        id: 7,
        cluster: None,
        identity: job_report::Identity::default(),
        run: 1,
        runs: 1,
        ended: None,
        time_limit: None,
        nodes_allocated: None,
        queued_seconds: None,
        nodes,
        curves: Some(Curves { curves, ..Curves::new(1000.0, 1150.0, 60.0) }),
        grams_per_joule: None,
        restarts: None,
        evidence: job_report::Evidence::default(),
    }
}

fn curve(metric: &'static Metric, node: Option<usize>, gpu: Option<usize>, values: &[f64]) -> Curve {
    Curve { metric, node, gpu, part: None, values: values.to_vec() }
}

fn written(job: Job, layout: Layout) -> Result<Vec<u8>, Error> {
    let report = Report::new(job, &Thresholds::shipped().unwrap(), Vec::new());
    let mut bytes = Vec::new();
    write(report, &About { source: None, generated: 2000.5 }, layout, &mut bytes)?;
    Ok(bytes)
}

fn read(job: Job, layout: Layout) -> File {
    File::from_bytes(written(job, layout).unwrap()).unwrap()
}

/// NaN as None, to be compared.
fn numbers(file: &File, path: &str) -> Vec<Option<f64>> {
    let values = file.dataset(path).unwrap().read_f64().unwrap();
    values.into_iter().map(|value| Some(value).filter(|value| !value.is_nan())).collect()
}

/// A member of a table, as what it is.
fn member(file: &File, path: &str, name: &str) -> Vec<f64> {
    let dataset = file.dataset(path).unwrap();
    let Datatype::Compound { size, members } = dataset.datatype().unwrap() else {
        panic!("{path} is no table")
    };
    let member = members.iter().find(|member| member.name == name).unwrap();
    let at = usize::try_from(member.byte_offset).unwrap();
    let raw = dataset.read_raw().unwrap();
    let cells = raw.chunks(size as usize).map(|record| <[u8; 8]>::try_from(&record[at..at + 8]).unwrap());
    match member.datatype {
        Datatype::FixedPoint { .. } => cells.map(|cell| u64::from_le_bytes(cell) as f64).collect(),
        _ => cells.map(f64::from_le_bytes).collect(),
    }
}

fn texts(file: &File, name: &str) -> Vec<String> {
    file.root().attrs().unwrap()[name].as_strings().unwrap().to_vec()
}

#[test]
fn rows_are_nodes_and_gpus_and_gaps_are_nan() {
    let gap = f64::NAN;
    let mut nodes = vec![node("a", 2), node("b", 0), node("c", 1)];
    nodes[2].values.set(&metric::CPU_SECONDS, 60.0);
    nodes[0].gpus[1].values.set(&metric::GPU_ENERGY_JOULES, 5.0);
    let file = read(
        job(
            nodes,
            vec![
                curve(&metric::CPU_SECONDS, Some(0), None, &[1.0, gap, 2.0]),
                curve(&metric::CPU_SECONDS, Some(2), None, &[0.5, gap, f64::INFINITY]),
                curve(&metric::GPU_ENERGY_JOULES, Some(2), Some(0), &[3.0, 4.0, 5.0]),
                curve(&metric::GPU_ENERGY_JOULES, Some(0), Some(1), &[7.0]),
                // Neither a node nor a GPU of the job.
                curve(&metric::GPU_ENERGY_JOULES, Some(1), Some(0), &[9.0, 9.0, 9.0]),
                curve(&metric::CPU_SECONDS, Some(3), None, &[0.0, gap, 0.0]),
                // Of the job alone.
                curve(&metric::PROCESSES, None, None, &[8.0, 8.0, 9.0]),
            ],
        ),
        Layout::Jobledger,
    );
    assert_eq!(numbers(&file, "time"), [Some(1060.0), Some(1120.0), Some(1150.0)]);
    assert_eq!(file.dataset("node/cpu_seconds").unwrap().shape().unwrap(), [3, 3]);
    let row = |a: f64, b: f64| vec![Some(a), None, Some(b)];
    assert_eq!(
        numbers(&file, "node/cpu_seconds"),
        [row(1.0, 2.0), vec![None; 3], vec![Some(0.5), None, None]].concat()
    );
    assert_eq!(numbers(&file, "job/cpu_seconds"), [Some(1.5), None, Some(2.0)]);
    assert_eq!(file.dataset("gpu/gpu_energy_joules").unwrap().shape().unwrap(), [3, 3]);
    let gpus = numbers(&file, "gpu/gpu_energy_joules");
    assert_eq!(
        gpus,
        [vec![None; 3], vec![Some(7.0), None, None], vec![Some(3.0), Some(4.0), Some(5.0)]].concat()
    );
    assert_eq!(numbers(&file, "job/processes"), [Some(8.0), Some(8.0), Some(9.0)]);
    assert!(file.dataset("node/processes").is_err());
    assert_eq!(numbers(&file, "totals/node/cpu_seconds"), [None, None, Some(60.0)]);
    assert_eq!(numbers(&file, "totals/gpu/gpu_energy_joules"), [None, Some(5.0), None]);
    assert_eq!(member(&file, "gpus", "node"), [0.0, 0.0, 2.0]);
    assert_eq!(file.dataset("nodes").unwrap().read_string().unwrap(), ["a", "b", "c"]);
}

#[test]
fn units_are_those_of_the_values() {
    let of = |metric| curve(metric, Some(0), None, &[1.0; 3]);
    let mut a = node("a", 0);
    a.values.set(&metric::ENERGY_JOULES, 1.0);
    let metrics =
        [&metric::ENERGY_JOULES, &metric::PAGE_FAULTS_MAJOR, &metric::PROCESSES, &metric::MEMORY_ANON_BYTES];
    let file = read(job(vec![a], metrics.map(of).to_vec()), Layout::Jobledger);
    for (path, unit) in [
        ("node/energy_joules", "joules per second"),
        ("job/energy_joules", "joules per second"),
        ("totals/node/energy_joules", "joules"),
        ("node/page_faults_major", "1 per second"),
        ("node/processes", "1"),
        ("node/memory_anon_bytes", "bytes"),
    ] {
        assert_eq!(file.dataset(path).unwrap().attrs().unwrap()["unit"].as_str(), Some(unit), "{path}");
    }
    let attributes = file.dataset("node/page_faults_major").unwrap().attrs().unwrap();
    assert_eq!(attributes["series"].as_str(), Some("jobledger_job_page_faults_total{type=\"major\"}"));
}

#[test]
fn what_is_not_known_is_not_there() {
    let mut unknown = job(vec![node("a", 0)], Vec::new());
    unknown.curves = None;
    unknown.nodes[0].end = None;
    let file = read(unknown, Layout::Jobledger);
    let attributes = file.root().attrs().unwrap();
    for name in
        ["user", "cluster", "source", "slurm_state", "exit_code", "end", "step_seconds", "time_limit_seconds"]
    {
        assert!(!attributes.contains_key(name), "{name}");
    }
    assert_eq!(attributes["jobid"], AttrValue::U64(7));
    assert_eq!(attributes["state"].as_str(), Some("not_seen"));
    assert_eq!(attributes["generated"], AttrValue::F64(2000.5));
    assert!(file.dataset("time").is_err());
    assert_eq!(numbers(&file, "quality/end"), [None]);
    assert_eq!(numbers(&file, "quality/seen_until"), [Some(1150.0)]);
    assert_eq!(file.dataset("advice").unwrap().shape().unwrap(), [0]);
}

#[test]
fn members_of_slurm_are_computed_as_slurm_does() {
    let gap = f64::NAN;
    let mut a = node("a", 2);
    a.values.set(&metric::CPUS, 16.0);
    let of = |metric, gpu, values: [f64; 3]| curve(metric, Some(0), gpu, &values);
    let file = read(
        job(
            vec![a],
            vec![
                of(&metric::CPU_SECONDS, None, [1.5, gap, 2.0]),
                of(&metric::CYCLES, None, [3e9, 6e9, 0.0]),
                of(&metric::COUNTED_CPU_SECONDS, None, [1.5, 2.0, 0.0]),
                of(&metric::MEMORY_ANON_BYTES, None, [2048.0, 4096.0, 4096.0]),
                of(&metric::MEMORY_SHMEM_BYTES, None, [1024.0, gap, 512.0]),
                of(&metric::PAGE_FAULTS_MAJOR, None, [0.5, gap, 1.0]),
                of(&metric::IO_READ_BYTES, None, [MIB, 2.0 * MIB, 4.0 * MIB]),
                of(&metric::IO_WRITTEN_BYTES, None, [MIB; 3]),
                of(&metric::SYSCALL_WRITTEN_BYTES, None, [3.0 * MIB; 3]),
                of(&metric::GPU_MEMORY_USED_BYTES, Some(0), [3.0 * MIB, 3.0 * MIB, gap]),
                of(&metric::GPU_MEMORY_USED_BYTES, Some(1), [4.0 * MIB; 3]),
                of(&metric::GPU_BUSY_SECONDS, Some(0), [0.25, 0.4, gap]),
                of(&metric::GPU_IDLE_SECONDS, Some(0), [0.75, 0.1, gap]),
                // Never busy: there is no counter of it.
                of(&metric::GPU_IDLE_SECONDS, Some(1), [1.0; 3]),
                of(&metric::ENERGY_JOULES, None, [99.4, 99.6, gap]),
                of(&metric::GPU_ENERGY_JOULES, Some(1), [55.0, 65.0, 75.0]),
                of(&metric::LUSTRE_READ_BYTES, None, [MIB; 3]),
                of(&metric::NFS_READ_BYTES, None, [2.0 * MIB; 3]),
                of(&metric::NETWORK_RECEIVED_BYTES, None, [MIB; 3]),
                of(&metric::INFINIBAND_RECEIVED_BYTES, None, [4.0 * MIB; 3]),
            ],
        ),
        Layout::Slurm,
    );
    for (path, expected) in [
        ("Tasks/0:ElapsedTime", [60.0, 120.0, 150.0]),
        ("Tasks/0:EpochTime", [1060.0, 1120.0, 1150.0]),
        ("Tasks/0:CPUFrequency", [2e6, 3e6, 0.0]),
        ("Tasks/0:CPUTime", [90.0, 0.0, 60.0]),
        ("Tasks/0:CPUUtilization", [150.0, 0.0, 200.0]),
        ("Tasks/0:GPUMemMB", [7.0, 7.0, 0.0]),
        ("Tasks/0:GPUUtilization", [25.0, 80.0, 0.0]),
        ("Tasks/0:RSS", [3.0, 0.0, 5.0]),
        ("Tasks/0:VMSize", [0.0; 3]),
        // A total does not change in a gap.
        ("Tasks/0:Pages", [30.0, 30.0, 60.0]),
        ("Tasks/0:ReadMB", [60.0, 120.0, 120.0]),
        // System calls where they are counted.
        ("Tasks/0:WriteMB", [180.0, 180.0, 90.0]),
        ("Energy:Power", [99.0, 100.0, 0.0]),
        ("Energy:GPU0Power", [0.0; 3]),
        ("Energy:GPU1Power", [55.0, 65.0, 75.0]),
        ("Filesystem:Reads", [0.0; 3]),
        ("Filesystem:ReadMB", [180.0, 360.0, 450.0]),
        ("Filesystem:WriteMB", [0.0; 3]),
        ("Network:InMB", [240.0, 480.0, 600.0]),
        ("Network:OutMB", [0.0; 3]),
    ] {
        let (table, name) = path.split_once(':').unwrap();
        assert_eq!(member(&file, &format!("Steps/batch/Nodes/a/{table}"), name), expected, "{path}");
    }
    let absent = texts(&file, "jobledger:absent");
    let expected = [
        "Energy/GPU0Power: 3 of 3 samples",
        "Energy/Power: 1 of 3 samples",
        "Filesystem/Reads: 3 of 3 samples",
        "Filesystem/WriteMB: 3 of 3 samples",
        "Filesystem/Writes: 3 of 3 samples",
        "Network/OutMB: 3 of 3 samples",
        "Network/PacketsIn: 3 of 3 samples",
        "Network/PacketsOut: 3 of 3 samples",
        "Tasks/CPUFrequency: 1 of 3 samples",
        "Tasks/CPUTime: 1 of 3 samples",
        "Tasks/CPUUtilization: 1 of 3 samples",
        "Tasks/GPUMemMB: 1 of 3 samples",
        "Tasks/Pages: 1 of 3 samples",
        "Tasks/RSS: 1 of 3 samples",
        "Tasks/VMSize: 3 of 3 samples",
    ];
    assert_eq!(absent, expected);
    let measured = texts(&file, "jobledger:measured");
    for line in ["Tasks/ReadMB: io_read_bytes", "Filesystem/ReadMB: lustre_read_bytes, nfs_read_bytes"] {
        assert!(measured.iter().any(|found| found == line), "{line}: {measured:?}");
    }
    let attributes = file.group("Steps/batch/Nodes/a").unwrap().attrs().unwrap();
    assert_eq!(attributes["CPUs per Task"], AttrValue::I32Array(vec![16]));
    assert_eq!(attributes["Start Time"].as_strings().unwrap(), ["Thu Jan  1 00:16:40 1970"]);
    assert_eq!(
        file.group("Steps/batch").unwrap().attrs().unwrap()["Number of Nodes"],
        AttrValue::I32Array(vec![1])
    );
}

#[test]
fn tables_that_nobody_measured_are_not_there() {
    let of = |metric| curve(metric, Some(0), Some(0), &[1.0; 3]);
    let file = read(job(vec![node("a", 1)], vec![of(&metric::GPU_ENERGY_JOULES)]), Layout::Slurm);
    let path = |table: &str| format!("Steps/batch/Nodes/a/{table}");
    assert_eq!(member(&file, &path("Energy"), "GPU0Power"), [1.0; 3]);
    assert_eq!(member(&file, &path("Tasks/0"), "CPUTime"), [0.0; 3]);
    assert!(file.dataset(&path("Network")).is_err() && file.dataset(&path("Filesystem")).is_err());
    assert!(texts(&file, "jobledger:absent").contains(&"CPUs per Task: 1 of 1 steps on nodes".to_owned()));

    let file = read(job(vec![node("a", 1)], vec![of(&metric::GPU_BUSY_SECONDS)]), Layout::Slurm);
    assert!(file.dataset(&path("Energy")).is_err());
}

#[test]
fn steps_and_tasks_have_rows_of_their_own() {
    let file = read(sample::with_steps(), Layout::Jobledger);
    assert_eq!(member(&file, "parts", "node"), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(file.dataset("part/cpu_seconds").unwrap().shape().unwrap(), [6, 5]);
    let row = |values: [Option<f64>; 5]| values.to_vec();
    let cells = numbers(&file, "part/cpu_seconds");
    assert_eq!(cells[..5], row([None; 5]));
    assert_eq!(cells[5..10], row([None, Some(0.25), Some(1.5), Some(0.5), None]));
    assert_eq!(
        numbers(&file, "totals/part/cpu_seconds"),
        [None, Some(135.0), Some(100.0), Some(35.0), Some(150.0), Some(147.0)]
    );
    let none = read(sample::job(), Layout::Jobledger);
    assert!(none.dataset("parts").is_err() && none.dataset("part/cpu_seconds").is_err());
}

#[test]
fn slurms_layout_has_the_steps_and_tasks_that_are_known() {
    let mut job = sample::with_steps();
    job.nodes[1].name = "b02".to_owned();
    job.nodes[0].parts[1].values.set(&metric::CPUS, 4.0);
    let file = read(job, Layout::Slurm);
    assert_eq!(file.group("Steps").unwrap().groups().unwrap(), ["batch", "0"]);
    let step = "Steps/0/Nodes/b01";
    assert_eq!(file.group(&format!("{step}/Tasks")).unwrap().datasets().unwrap(), ["0", "1"]);
    assert_eq!(member(&file, &format!("{step}/Tasks/0"), "CPUTime"), [10.0, 90.0, 0.0]);
    // A step's time begins with its first bin.
    assert_eq!(member(&file, &format!("{step}/Tasks/0"), "ElapsedTime"), [60.0, 120.0, 180.0]);
    assert_eq!(member(&file, "Steps/0/Nodes/b02/Tasks/2", "CPUTime"), [29.0, 59.0, 59.0]);
    assert_eq!(member(&file, "Steps/batch/Nodes/b01/Tasks/0", "RSS"), [0.0; 5]);
    let attributes = file.group(step).unwrap().attrs().unwrap();
    assert_eq!(attributes["Number of Tasks"], AttrValue::I32Array(vec![2]));
    assert_eq!(attributes["CPUs per Task"], AttrValue::I32Array(vec![2]));
    assert_eq!(attributes["Start Time"].as_strings().unwrap(), ["Tue Nov 14 22:14:20 2023"]);
    assert_eq!(file.root().attrs().unwrap()["Number of Steps"], AttrValue::I32Array(vec![2]));
    // What is known of whole nodes is in each step, while that ran.
    assert_eq!(member(&file, "Steps/batch/Nodes/b01/Energy", "ElapsedTime").len(), 5);
    assert_eq!(member(&file, "Steps/0/Nodes/b02/Energy", "Power"), [100.0; 3]);
}

#[test]
fn slurms_layout_takes_tasks_without_their_steps() {
    let mut job = sample::with_steps();
    job.nodes.truncate(1);
    job.nodes[0].parts.retain(|part| part.task.is_some());
    // Those of the parts that are left have other indices.
    let curves = job.curves.as_mut().unwrap();
    curves.of_parts.retain(|curve| curve.node == Some(0) && curve.part >= Some(2));
    curves.of_parts.iter_mut().for_each(|curve| curve.part = curve.part.map(|part| part - 2));
    let file = read(job, Layout::Slurm);
    assert_eq!(file.group("Steps/0/Nodes/b01/Tasks").unwrap().datasets().unwrap(), ["0", "1"]);
    assert_eq!(member(&file, "Steps/0/Nodes/b01/Tasks/1", "CPUTime").iter().sum::<f64>(), 35.0);
}

#[test]
fn slurms_layout_needs_samples() {
    let mut none = job(vec![node("a", 0)], Vec::new());
    none.curves = None;
    for job in [none, job(Vec::new(), Vec::new())] {
        assert!(matches!(written(job, Layout::Slurm), Err(Error::NoSamples)));
    }
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for layout in [Layout::Jobledger, Layout::Slurm] {
        let report =
            Report::new(job(vec![node("a", 0)], Vec::new()), &Thresholds::shipped().unwrap(), Vec::new());
        match write(report, &About::default(), layout, Full) {
            Err(Error::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_record_that_nobody_could_read_is_refused() {
    // Numbers and the other texts of the table take 19 bytes.
    for (length, good) in [(65_516, true), (65_517, false)] {
        let mut a = node("a", 1);
        a.gpus[0].uuid = "x".repeat(length);
        let found = written(job(vec![a], Vec::new()), Layout::Jobledger);
        match found {
            Ok(_) => assert!(good),
            Err(error) => assert!(!good && error.to_string().contains("a record of gpus"), "{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_names_can_be_read_back(names in proptest::collection::vec("(?s).{0,70}", 0..12), user in "(?s).*") {
        let nodes: Vec<Node> = names.iter().map(|name| node(name, 1)).collect();
        let curves = (0..nodes.len()).map(|node| curve(&metric::CPU_SECONDS, Some(node), None, &[node as f64; 3])).collect();
        let mut job = job(nodes, curves);
        job.identity.user = user.clone();
        let file = read(job.clone(), Layout::Jobledger);
        let clean: Vec<String> = names.iter().map(|name| name.replace('\0', "\u{fffd}")).collect();
        prop_assert_eq!(file.dataset("nodes").unwrap().read_string().unwrap(), clean);
        let attributes = file.root().attrs().unwrap();
        let found = attributes.get("user").and_then(|user| user.as_str()).unwrap_or_default();
        prop_assert_eq!(found, user.replace('\0', "\u{fffd}"));
        if names.is_empty() {
            return Ok(());
        }
        let file = read(job, Layout::Slurm);
        let folders = file.group("Steps/batch/Nodes").unwrap().groups().unwrap();
        prop_assert_eq!(folders.len(), names.len());
        let mut seen: Vec<f64> = folders.iter().map(|folder| {
            member(&file, &format!("Steps/batch/Nodes/{folder}/Tasks/0"), "CPUUtilization")[0]
        }).collect();
        seen.sort_by(f64::total_cmp);
        prop_assert_eq!(seen, (0..names.len()).map(|node| node as f64 * 100.0).collect::<Vec<_>>());
    }
}

/// `cargo test --release -p job-files -- --ignored --nocapture large`: 64 nodes, a day, 40 metrics, a value each minute.
#[test]
#[ignore = "says how long it takes"]
fn a_large_job() {
    const MINUTES: usize = 1440;
    let nodes: Vec<Node> = (0..64).map(|index| node(&format!("n{index}"), 0)).collect();
    let metrics: Vec<&'static Metric> =
        metric::ALL.iter().copied().filter(|metric| metric.level == metric::Level::Node).take(40).collect();
    // Values whose digits all differ, as those of counters do.
    let mut state = 1_u64;
    let mut value = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 44) as f64 * 1.37
    };
    let mut curves = Curves::new(0.0, 86_400.0, 60.0);
    for (metric, node) in metrics.iter().flat_map(|metric| (0..64).map(move |node| (*metric, node))) {
        curves.curves.push(curve(
            metric,
            Some(node),
            None,
            &(0..MINUTES).map(|_| value()).collect::<Vec<_>>(),
        ));
    }
    let mut job = job(nodes, Vec::new());
    job.curves = Some(curves);
    for layout in [Layout::Slurm, Layout::Jobledger] {
        let began = Instant::now();
        let bytes = written(job.clone(), layout).unwrap();
        println!("{layout:?}: {:.1} MB in {:.2} s", bytes.len() as f64 / 1e6, began.elapsed().as_secs_f64());
    }
}
