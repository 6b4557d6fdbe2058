//! Nodes without a GPU pay nothing, and the limit of series holds for GPUs too.

use jobledger_testkit::strace;

use super::*;

fn scraped_calls(exporter: &Exporter) -> Vec<strace::Call> {
    (0..8).for_each(|_| drop(scrape(exporter)));
    strace::during(exporter.pid(), || drop(scrape(exporter)), strace::Call::opens_content)
}

#[test]
fn without_gpus_there_is_no_thread_no_helper_and_hardly_a_system_call() {
    let node = Node::with_jobs([1, 2]);
    let with = node.start(&[]);
    let without = node.start(&["--no-collector.gpu"]);
    let now = scrape(&with);
    assert_eq!(success(&now, "gpu"), Some(0.0));
    assert!(
        now.named("jobledger_exporter_collector_available")
            .any(|s| s.label("collector") == Some("gpu") && s.value == 0.0)
    );
    assert!(!threads(&with).iter().any(|name| name.starts_with("gpu-")), "{:?}", threads(&with));
    let children = |exporter: &Exporter| {
        let pid = exporter.pid();
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap()
    };
    assert_eq!(children(&with), "");
    assert_eq!(with.log().matches("\"gpu\"").count(), 1, "{}", with.log());
    assert!(!with.log().contains("helper"), "{}", with.log());
    if !strace::is_there() {
        return;
    }
    let of_files = |exporter: &Exporter| {
        let calls = scraped_calls(exporter);
        let named = [
            "openat",
            "read",
            "getdents64",
            "newfstatat",
            "fstat",
            "statx",
            "readlinkat",
            "faccessat2",
            "close",
        ];
        calls.iter().filter(|call| named.contains(&&*call.name)).count()
    };
    // A scrape on a machine that is out of CPU may look for something anew, or be told of by halves.
    let pairs = [(); 3].map(|()| (of_files(&with), of_files(&without)));
    assert!(
        pairs.iter().any(|(most, least)| *most <= least + 12),
        "system calls with and without the collector: {pairs:?}"
    );
}

/// Row 18: jobs are told whole or not at all, and what is the node's is told.
#[test]
fn the_limit_of_series_holds_with_gpus() {
    let gpus = Gpus::with(FakeNvml::new(EIGHT), 1..=24);
    (0..8).for_each(|gpu| gpus.give(gpu, gpu + 1));
    let per_job = |now: &Exposition| {
        let mut series: BTreeMap<u32, usize> = BTreeMap::new();
        for sample in now.samples().filter(|s| s.name.starts_with("jobledger_job_gpu")) {
            *series.entry(sample.label("jobid").unwrap().parse().unwrap()).or_default() += 1;
        }
        series
    };
    let of_all = |now: &Exposition| {
        let jobs = per_job(now);
        all_up(now) && (1..=8).all(|id| jobs.get(&id).is_some_and(|series| *series > 5))
    };
    let all = per_job(&eventually(&gpus.start(&["--metric.max-series=0"]), "jobs", of_all));
    let mut cut = 0;
    for limit in [700, 760, 800, 900] {
        let exporter = gpus.start(&[&format!("--metric.max-series={limit}")]);
        let now = eventually(&exporter, "GPUs", |now| {
            all_up(now) && of_gpu(now, "jobledger_gpu_jobs", 0) == Some(1.0)
        });
        let now = if now.samples().count() > 0 { read_anew(&exporter) } else { now };
        let told = per_job(&now);
        assert!(told.iter().all(|(id, series)| all.get(id) == Some(series)), "{limit}: {told:?} of {all:?}");
        let labels = [("collector", "gpu"), ("reason", "jobs")];
        let dropped = now.value("jobledger_exporter_series_dropped_total", &labels);
        assert_eq!(told.len() < 8, dropped.is_some(), "{limit}: {dropped:?}");
        cut += usize::from(told.len() < 8);
    }
    assert!(cut > 0, "some limit cuts");
}
