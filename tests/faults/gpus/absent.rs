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
    jobledger_testkit::eventually("the reason in the log", || with.log().contains("\"gpu\""));
    assert_eq!(with.log().matches("\"gpu\"").count(), 1, "{}", with.log());
    assert!(!with.log().contains("helper"), "{}", with.log());
    if !strace::is_there() {
        return;
    }
    let named =
        ["openat", "read", "getdents64", "newfstatat", "fstat", "statx", "readlinkat", "faccessat2", "close"];
    // strace may attach to some threads only; then it reports fewer calls, never more.
    let of_files = |exporter: &Exporter| {
        let count =
            |calls: Vec<strace::Call>| calls.iter().filter(|call| named.contains(&&*call.name)).count();
        (0..3).map(|_| count(scraped_calls(exporter))).max().unwrap_or_default()
    };
    let (most, least) = (of_files(&with), of_files(&without));
    assert!(most <= least + 12, "{most} system calls, {least} without the collector");
}

/// Row 18: jobs are exported whole or not at all, and the node's series always.
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
        let exported = per_job(&now);
        assert!(
            exported.iter().all(|(id, series)| all.get(id) == Some(series)),
            "{limit}: {exported:?} of {all:?}"
        );
        let labels = [("collector", "gpu"), ("reason", "jobs")];
        let dropped = now.value("jobledger_exporter_series_dropped_total", &labels);
        assert_eq!(exported.len() < 8, dropped.is_some(), "{limit}: {dropped:?}");
        cut += usize::from(exported.len() < 8);
    }
    assert!(cut > 0, "some limit cuts");
}
