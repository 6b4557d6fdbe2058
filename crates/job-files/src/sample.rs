//! A job for tests: two nodes, three GPUs, divided ones, gaps, and names that try to be something else.

use job_report::{Curves, Ended, Gpu, Hardware, Identity, Job, Metric, Node, Origin, Part, metric};

/// When it starts: 2023-11-14T22:13:20Z.
pub(crate) const START: f64 = 1_700_000_000.0;
/// How long it runs: four bins of a minute, and half of one.
pub(crate) const SECONDS: f64 = 270.0;
/// A name that a spreadsheet takes for a formula.
pub(crate) const USER: &str = "=cmd|' /C calc'!A0";
/// A name with what separates fields, rows and directories.
pub(crate) const NODE: &str = "-b\"02\",\r\n../\u{202e}ä";
/// A name that would be markup.
pub(crate) const NAME: &str = "<script>alert(1)</script>\u{0}\u{1b}[31m";

/// The job.
pub(crate) fn job() -> Job {
    let mut nodes = vec![node("b01", &["GPU-0", "GPU-1"]), node(NODE, &["GPU-2"])];
    let mut curves = Curves::new(START, START + SECONDS, 60.0);
    // What a counter has counted at the ends of the bins, and at the job's end.
    let counters: [(&'static Metric, usize, Option<usize>, [f64; 5]); 13] = [
        (&metric::CPU_SECONDS, 0, None, [30.0, 90.0, 210.0, 210.0, 240.0]),
        (&metric::CPU_SECONDS, 1, None, [60.0, 120.0, 180.0, 240.0, 270.0]),
        (&metric::CPU_USER_SECONDS, 0, None, [24.0, 72.0, 168.0, 168.0, 192.0]),
        (&metric::CPU_USER_SECONDS, 1, None, [48.0, 96.0, 144.0, 192.0, 216.0]),
        (&metric::CPU_SYSTEM_SECONDS, 0, None, [6.0, 18.0, 42.0, 42.0, 48.0]),
        (&metric::CPU_SYSTEM_SECONDS, 1, None, [12.0, 24.0, 36.0, 48.0, 54.0]),
        (&metric::ENERGY_PACKAGE_JOULES, 0, None, [6000.0, 12e3, 18e3, 24e3, 27e3]),
        (&metric::GPU_BUSY_SECONDS, 0, Some(0), [60.0, 120.0, 180.0, 240.0, 270.0]),
        (&metric::GPU_BUSY_SECONDS, 0, Some(1), [0.0, 0.0, 30.0, 60.0, 60.0]),
        (&metric::GPU_BUSY_SECONDS, 1, Some(0), [15.0, 30.0, 45.0, 60.0, 67.5]),
        (&metric::GPU_IDLE_SECONDS, 0, Some(0), [0.0; 5]),
        (&metric::GPU_IDLE_SECONDS, 0, Some(1), [60.0, 120.0, 150.0, 180.0, 210.0]),
        (&metric::GPU_IDLE_SECONDS, 1, Some(0), [45.0, 90.0, 135.0, 180.0, 202.5]),
    ];
    for (metric, at, gpu, counted) in counters {
        let last = counted.last().copied().unwrap_or_default();
        let points: Vec<_> = curves.ends().zip(counted).collect();
        curves.add((metric, Some(at), gpu), &points, Some((START + SECONDS, last)));
        let Some(node) = nodes.get_mut(at) else { continue };
        match gpu {
            None => node.values.set(metric, last),
            Some(gpu) => {
                if let Some(gpu) = node.gpus.get_mut(gpu) {
                    gpu.values.set(metric, last);
                }
            }
        }
    }
    // The second node was not seen at two moments.
    let gauges: [(&'static Metric, usize, [f64; 5]); 4] = [
        (&metric::MEMORY_USED_BYTES, 0, [1e9, 2e9, 3e9, 3e9, 2.5e9]),
        (&metric::MEMORY_USED_BYTES, 1, [4e9, f64::NAN, f64::NAN, 4.1e9, 1e9 / 3.0]),
        (&metric::MEMORY_PEAK_BYTES, 0, [1.1e9, 2.1e9, 3.1e9, 3.1e9, 3.1e9]),
        (&metric::MEMORY_PEAK_BYTES, 1, [4e9, f64::NAN, f64::NAN, 4.2e9, 4.2e9]),
    ];
    for (metric, node, values) in gauges {
        let points: Vec<_> = curves.ends().zip(values).filter(|(_, value)| !value.is_nan()).collect();
        curves.add((metric, Some(node), None), &points, None);
    }
    Job {
        id: 12345,
        cluster: Some("alpha".to_owned()),
        identity: Identity {
            user: USER.to_owned(),
            uid: "1001".to_owned(),
            account: "@physics".to_owned(),
            partition: "gpu".to_owned(),
            name: NAME.to_owned(),
            array_job_id: "12300".to_owned(),
            array_task_id: "45".to_owned(),
            ..Identity::default()
        },
        run: 1,
        runs: 1,
        ended: Some(Ended {
            state: "COMPLETED".to_owned(),
            origin: Origin::Accounting,
            exit_code: Some(0),
            signal: None,
        }),
        time_limit: Some(3600.0),
        nodes_allocated: Some(2),
        queued_seconds: Some(42.0),
        nodes,
        curves: Some(curves),
        grams_per_joule: None,
        restarts: None,
        evidence: job_report::Evidence::default(),
    }
}

/// The same with steps: the batch script on the first node, and a step on both, which ran from 1:30 to 4:00 with two tasks and one.
pub(crate) fn with_steps() -> Job {
    let mut job = job();
    let part = |step: &str, task: Option<&str>| Part {
        step: step.to_owned(),
        task: task.map(str::to_owned),
        ..Part::default()
    };
    let (step, task) = (part("0", None), |task| part("0", Some(task)));
    let parts = [vec![part("batch", None), step.clone(), task("0"), task("1")], vec![step, task("2")]];
    for (node, parts) in job.nodes.iter_mut().zip(parts) {
        node.parts = parts;
    }
    let begin = START + 90.0;
    // What each has counted at 2, 3 and 4 minutes.
    let counted: [(usize, usize, [f64; 3]); 5] = [
        (0, 1, [15.0, 105.0, 135.0]),
        (0, 2, [10.0, 100.0, 100.0]),
        (0, 3, [5.0, 5.0, 35.0]),
        (1, 0, [30.0, 90.0, 150.0]),
        (1, 1, [29.0, 88.0, 147.0]),
    ];
    let Some(curves) = &mut job.curves else { return job };
    for node in [0, 1] {
        let power: Vec<_> = curves.ends().map(|end| (end, 100.0 * (end - START))).collect();
        curves.add((&metric::ENERGY_JOULES, Some(node), None), &power, None);
    }
    for (node, part, values) in counted {
        let points: Vec<_> = curves.ends().skip(1).zip(values).collect();
        let last = points.last().copied();
        curves.add_part((&metric::CPU_SECONDS, node, part), begin, &points, last);
        let part = job.nodes.get_mut(node).and_then(|node| node.parts.get_mut(part));
        part.into_iter()
            .zip(last)
            .for_each(|(part, (_, total))| part.values.set(&metric::CPU_SECONDS, total));
    }
    let always: Vec<_> = curves.ends().map(|end| (end, 5e6)).collect();
    curves.add_part((&metric::MEMORY_USED_BYTES, 0, 0), START, &always, None);
    job
}

fn node(name: &str, gpus: &[&str]) -> Node {
    let mut node = Node {
        name: name.to_owned(),
        start: START,
        end: Some(START + SECONDS),
        seen_until: START + SECONDS,
        hardware: Hardware { cpus: Some(16.0), cores: Some(8.0), memory_bytes: Some(64e9), gpus: Some(4.0) },
        coverage: Some(0.9),
        boards: vec![Gpu { index: "2".to_owned(), uuid: "GPU-board".to_owned(), ..Gpu::default() }],
        ..Node::default()
    };
    for (metric, value) in [
        (&metric::CPUS, 4.0),
        (&metric::CPU_ALLOCATED_SECONDS, 4.0 * SECONDS),
        (&metric::MEMORY_LIMIT_BYTES, 8e9),
        (&metric::MEMORY_PEAK_BYTES, 4.2e9),
    ] {
        node.values.set(metric, value);
    }
    for (index, uuid) in gpus.iter().enumerate() {
        let mut gpu = Gpu { index: index.to_string(), uuid: (*uuid).to_owned(), ..Gpu::default() };
        gpu.values.set(&metric::GPU_ALLOCATED_SECONDS, SECONDS);
        node.gpus.push(gpu);
    }
    node
}
