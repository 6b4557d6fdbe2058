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
    slots: f64,
    memory_slots: f64,
    retiring: f64,
    scalar: f64,
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
    take("pipeline_slots", |known| &mut known.slots);
    take("counted_cpu_seconds", |known| &mut known.counted);
    take("cpu_seconds", |known| &mut known.used);
    let mut part = |name: &str, label: (&str, &str), of: fn(&mut Known) -> &mut f64| {
        for sample in exposition.named(&format!("jobledger_job_{name}_total")) {
            if sample.label(label.0) == Some(label.1) {
                *of(jobs.entry(job_of(sample)).or_default()) += sample.value;
            }
        }
    };
    part("pipeline_slots", ("category", "backend_memory"), |known| &mut known.memory_slots);
    part("pipeline_slots", ("category", "retiring"), |known| &mut known.retiring);
    part("flops", ("width", "scalar"), |known| &mut known.scalar);
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
            let slots = now.slots / now.cycles;
            assert!(
                (5.99..6.01).contains(&slots),
                "{id}: categories add up to the slots of its cycles: {slots}"
            );
        }
    }
}

#[test]
fn multiplexed_counters_show_the_differences_between_jobs() {
    differences_between_jobs("full", 1.0 / 3.0);
}

/// The plan that is the default takes no turns, and says the same of jobs.
#[test]
fn the_essential_counters_show_the_differences_between_jobs() {
    differences_between_jobs("essential", 1.0);
}

fn differences_between_jobs(plan: &str, running: f64) {
    let scratch = Scratch::new(&format!("demo-counters-{plan}"));
    let directory = format!("--demo.directory={}", scratch.path().display());
    let plan = format!("--collector.perf.plan={plan}");
    let flags = [&directory, "--collector.perf", &plan, "--demo.speed=4", "--scrape.timeout=5m"];
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
            let expected = if sample.label("group") == Some("software") { 1.0 } else { running };
            assert!((sample.value - expected).abs() < 0.02 || sample.value == 0.0, "{sample:?}");
        }
        let now = known(&exposition);
        check(&before, &now);
        for sample in exposition.named("jobledger_job_info") {
            let Some(known) = now.get(&job_of(sample)).filter(|known| known.counted > 0.5) else { continue };
            let per_byte = known.flops / known.loads;
            let (memory, done) = (known.memory_slots / known.slots, known.retiring / known.slots);
            let vectors = 1.0 - known.scalar / known.flops;
            let is = |value: f64, truth: f64| (value - truth).abs() < 0.01;
            match sample.label("name") {
                Some("cfd-solver") => {
                    assert!((0.3..0.5).contains(&per_byte), "bound by memory: {known:?}");
                    assert!(is(memory, 0.61) && is(done, 0.18), "waits for memory: {known:?}");
                    assert!(is(vectors, 0.8), "{known:?}");
                    missing.remove("cfd-solver");
                }
                Some("workflow") => {
                    assert!(per_byte > 20.0, "bound by arithmetic: {known:?}");
                    assert!(is(memory, 0.12) && is(done, 0.43), "does what it can: {known:?}");
                    assert!(is(vectors, 0.95), "{known:?}");
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
