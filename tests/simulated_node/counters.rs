//! `--collector.perf` on the simulated node: multiplexed counters count what the jobs do, and no count goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, Sample, parse};
use jobledger_testkit::scratch::Scratch;

use crate::BINARY;

const PATIENCE: Duration = jobledger_testkit::wait::LONGEST;

/// The counters of a job.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    cycles: f64,
    instructions: f64,
    flops: f64,
    loads: f64,
    counted: f64,
    used: f64,
}

fn job_of(sample: &Sample) -> u32 {
    sample.label("jobid").unwrap().parse().unwrap()
}

fn known(exposition: &Exposition) -> BTreeMap<u32, Known> {
    let mut jobs: BTreeMap<u32, Known> = BTreeMap::new();
    let mut take = |name: &str, of: fn(&mut Known) -> &mut f64| {
        for sample in exposition.named(&format!("jobledger_job_{name}_total")) {
            *of(jobs.entry(job_of(sample)).or_default()) += sample.value;
        }
    };
    take("cycles", |known| &mut known.cycles);
    take("instructions", |known| &mut known.instructions);
    take("flops", |known| &mut known.flops);
    take("memory_load_bytes", |known| &mut known.loads);
    take("counted_cpu_seconds", |known| &mut known.counted);
    take("cpu_seconds", |known| &mut known.used);
    jobs
}

fn check(before: &BTreeMap<u32, Known>, now: &BTreeMap<u32, Known>) {
    for (id, now) in now {
        let was = before.get(id).copied().unwrap_or_default();
        // A requeued job starts from zero.
        if now.used >= was.used {
            assert!(
                now.cycles >= was.cycles && now.flops >= was.flops && now.counted >= was.counted,
                "{id}: {now:?} after {was:?}"
            );
            // Counters are read after CPU time, on a busy machine much later, so compare with the next scrape's CPU time.
            assert!(was.counted <= now.used + 0.2, "{id}: counted for longer than it ran: {was:?}, {now:?}");
        }
        if now.counted > 0.5 {
            // Estimated from a third of the time, and equal to the CPUs' frequency.
            let frequency = now.cycles / now.counted;
            assert!((3.3e9..3.5e9).contains(&frequency), "{id}: {frequency}");
            let per_cycle = now.instructions / now.cycles;
            assert!((0.5..2.2).contains(&per_cycle), "{id}: {per_cycle}");
        }
    }
}

#[test]
fn multiplexed_counters_show_the_differences_between_jobs() {
    let scratch = Scratch::new("demo-counters");
    let directory = format!("--demo.directory={}", scratch.path().display());
    let flags = [&directory, "--collector.perf", "--demo.speed=4", "--scrape.timeout=5m"];
    let exporter = Exporter::start(BINARY, &flags);
    let (mut before, mut missing) =
        (BTreeMap::new(), BTreeSet::from(["cfd-solver", "workflow", "an ended job"]));
    let begun = Instant::now();
    while !missing.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "never seen: {missing:?}");
        let exposition = parse(exporter.metrics().as_bytes(), Format::Text).unwrap();
        assert_eq!(
            exposition.value(
                "jobledger_node_counters_info",
                &[("microarchitecture", "Emerald Rapids"), ("flops", "retired")]
            ),
            Some(1.0)
        );
        let dropped = exposition.named("jobledger_exporter_counters_intervals_dropped_total");
        assert_eq!(dropped.map(|sample| sample.value).sum::<f64>(), 0.0);
        for sample in exposition.named("jobledger_job_counters_running_ratio") {
            let expected = if sample.label("group") == Some("software") { 1.0 } else { 1.0 / 3.0 };
            assert!((sample.value - expected).abs() < 0.02 || sample.value == 0.0, "{sample:?}");
        }
        let now = known(&exposition);
        check(&before, &now);
        for sample in exposition.named("jobledger_job_info") {
            let Some(known) = now.get(&job_of(sample)).filter(|known| known.counted > 0.5) else { continue };
            let per_byte = known.flops / known.loads;
            match sample.label("name") {
                Some("cfd-solver") => {
                    assert!((0.3..0.5).contains(&per_byte), "bound by memory: {known:?}");
                    missing.remove("cfd-solver");
                }
                Some("workflow") => {
                    assert!(per_byte > 20.0, "bound by arithmetic: {known:?}");
                    missing.remove("workflow");
                }
                _ => {}
            }
        }
        let over: BTreeSet<u32> = exposition.named("jobledger_job_end_time_seconds").map(job_of).collect();
        if over.iter().any(|id| now.get(id).is_some_and(|known| known.cycles > 1e8)) {
            missing.remove("an ended job");
        }
        before = now;
        thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(exporter.terminate(), Some(0));
}
