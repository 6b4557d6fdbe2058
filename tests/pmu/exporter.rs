//! The exporter itself: jobs that it finds by their control groups, counted, scraped.

use std::process::Command;

use jobledger_testkit::cgroups::Site;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::Step;
use jobledger_testkit::wait::QUIET;
use jobledger_testkit::{eventually, http, tools};

use crate::machine::{Job, Pmu};

const EXECUTED: u64 = 300_000_000;

fn start(site: &Site, flags: &[&str]) -> Exporter {
    let cgroupfs = format!("--path.cgroupfs={}", site.cgroupfs().display());
    let usual = [&cgroupfs, "--jobs.metadata-dir=/nonexistent", "--jobs.retention=1h", "--collector.perf"];
    let all = usual.into_iter().chain(flags.iter().copied());
    let exporter = Exporter::start(&std::env::var("JOBLEDGER_EXPORTER").unwrap(), &all.collect::<Vec<_>>());
    eventually("the counters of CPUs are open", || {
        scrape(&exporter).value("jobledger_node_counters_method_info", &[("method", "bpf")]) == Some(1.0)
    });
    exporter
}

fn scrape(exporter: &Exporter) -> Exposition {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &header, QUIET).unwrap();
    parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{e}"))
}

/// As SLURM's jobs on v1 that are not bound to CPUs of their own.
#[test]
fn the_exporter_counts_jobs_of_v1_that_share_a_cpu() {
    if Pmu::find().is_none() {
        return;
    }
    let (site, records) = (Site::v1().unwrap(), Scratch::new("records"));
    let exporter = start(&site, &[]);
    let burn = tools::tool("burn");
    let program = [burn.to_str().unwrap(), "--sleep-ms=10000", &format!("--instructions={}", 4 * EXECUTED)];
    // What the CPU did for both would be twice as much.
    let steps = [7, 8].map(|job| Step::new(job, records.path(), &program).start(&site));
    eventually("both jobs are counted by their cgroups", || {
        let now = scrape(&exporter);
        let counted = |job| now.value("jobledger_job_counters_info", &[("jobid", job), ("mode", "cgroup")]);
        [counted("7"), counted("8")] == [Some(1.0); 2]
    });
    let _spent = steps.map(|step| step.finish());
    let now = scrape(&exporter);
    for job in ["7", "8"] {
        let of = |name: &str| now.value(&format!("jobledger_job_{name}"), &[("jobid", job)]);
        let (instructions, executed) = (of("instructions_total").unwrap(), 4.0 * EXECUTED as f64);
        println!("  executed {executed}, counted {instructions}");
        assert!((executed..1.02 * executed).contains(&instructions), "{instructions}");
        assert!(of("counters_coverage_ratio").unwrap() > 0.95);
    }
}

#[test]
fn the_exporter_counts_what_jobs_executed() {
    if Pmu::find().is_none() {
        return;
    }
    let (groups, records) = (Job::new(1), Scratch::new("records"));
    let exporter = start(&groups.site, &[]);
    let burn = tools::tool("burn");
    // As with slurmstepd, the exporter sees a job before its first task begins. Else a task that shares the one CPU with it executes first.
    let program = [burn.to_str().unwrap(), "--sleep-ms=100", &format!("--instructions={EXECUTED}")];
    for job in [7, 8] {
        let _spent = Step::new(job, records.path(), &program).start(&groups.site).finish();
    }
    let now = scrape(&exporter);
    for job in ["7", "8"] {
        let of = |name: &str| now.value(&format!("jobledger_job_{name}"), &[("jobid", job)]);
        let (instructions, executed) = (of("instructions_total").unwrap(), EXECUTED as f64);
        println!("  executed {executed}, counted {instructions}");
        assert!((executed..1.02 * executed).contains(&instructions), "{instructions}");
        let (cycles, covered) = (of("cycles_total").unwrap(), of("counters_coverage_ratio").unwrap());
        assert!(cycles >= EXECUTED as f64 && covered > 0.95, "{cycles} {covered}");
    }
    let flops = now.value("jobledger_node_counters_absent_info", &[("what", "FLOPs")]);
    assert_eq!(flops, Some(1.0), "this core has no event for them");
}

/// Two steps at once, one of them with two tasks. They are seen while slurmstepd makes their directories.
#[test]
fn the_exporter_counts_steps_and_tasks_and_they_are_the_job() {
    if Pmu::find().is_none() {
        return;
    }
    let (groups, records) = (Job::new(1), Scratch::new("records"));
    let exporter = start(&groups.site, &["--jobs.steps", "--jobs.tasks"]);
    let burn = tools::tool("burn");
    let program = [burn.to_str().unwrap(), &format!("--instructions={EXECUTED}")];
    let step = |name: &str, tasks| {
        let step = Step { step: name.to_owned(), tasks, ..Step::new(7, records.path(), &program) };
        step.start(&groups.site)
    };
    let running = [step("0", 2), step("1", 1)];
    for step in running {
        let _spent = step.finish();
    }
    let now = scrape(&exporter);
    let of = |name: &str, labels: &[(&str, &str)]| {
        let labels: Vec<_> = std::iter::once(("jobid", "7")).chain(labels.iter().copied()).collect();
        now.value(&format!("jobledger_{name}_instructions_total"), &labels).unwrap_or(0.0)
    };
    let executed = EXECUTED as f64;
    let (first, second) = (of("step", &[("step", "0")]), of("step", &[("step", "1")]));
    let tasks = [("0", "0"), ("0", "1"), ("1", "0")]
        .map(|(step, task)| of("task", &[("step", step), ("task", task)]));
    let job = of("job", &[]);
    println!("  executed {executed} by each task, counted {tasks:?}, steps {first} and {second}, job {job}");
    // The exporter has the one CPU by turns with the tasks, of 4 ms each: they may have had some before it saw them.
    for task in tasks {
        assert!((0.9 * executed..1.02 * executed).contains(&task), "{task}");
    }
    // A step has its slurmstepd beside its tasks, and the job what was executed before its steps were seen.
    assert!(first >= tasks[0] + tasks[1] && second >= tasks[2]);
    assert!(first + second <= job && job < 1.02 * 3.0 * executed, "{first} + {second}, {job}");
}

/// Branches, cycles and instructions of loops that are known, counted as a job's and compared.
#[test]
fn known_work_is_what_the_exporter_counts() {
    if Pmu::find().is_none() {
        return;
    }
    let mut command = Command::new(std::env::var("JOBLEDGER_EXPORTER").unwrap());
    command.args([
        "perf",
        "--validate",
        "--although-busy",
        "--time=50ms",
        "--output=",
        "--format=json",
        "--cpus=0",
    ]);
    let output = command.output().unwrap();
    let (text, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    println!("{text}{error}");
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["verdict"], "pass");
    assert!(output.status.success());
}
