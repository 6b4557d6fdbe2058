//! What the run of jobs costs between scrapes, and the search for SLURM's directory.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cgroups::DescriptorBudget;
use jobledger_testkit::cgroups::{Site, make_group};
use jobledger_testkit::crowd::Crowd;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::footprint::cpu_ns;
use slurm_jobs::scope;

use crate::config;
use crate::stats::{cost, median};

const JOBS: u32 = 400;
const PER_SECOND: u32 = 50;

/// CPU time of the exporter per job from its first directory to its last, without any scrape.
pub(crate) fn whole_run() {
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    let flags = [format!("--path.cgroupfs={}", site.cgroupfs().display()), "--log.level=error".to_owned()];
    let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags);
    let _ = exporter.metrics();
    sleep(Duration::from_secs(6));
    let (before, begun) = (cpu_ns(exporter.pid()), Instant::now());
    for number in 0..JOBS {
        sleep(
            (begun + Duration::from_secs(1) / PER_SECOND * number).saturating_duration_since(Instant::now()),
        );
        let job = site.job_dir(&format!("job_{}", 300_000 + number), 0);
        let step = job.join("step_0");
        let groups = [job, step.clone(), step.join("slurm"), step.join("user"), step.join("user/task_0")];
        groups.iter().for_each(|group| make_group(group));
        groups.iter().rev().for_each(|group| fs::remove_dir(group).unwrap());
    }
    sleep(Duration::from_millis(500));
    let usec = (cpu_ns(exporter.pid()) - before) as f64 / 1e3;
    println!("\n## Between scrapes\n");
    println!(
        "A job with one step, from the first directory made to the last removed, {PER_SECOND} jobs a second: \
         {:.0} µs of CPU time per job, {:.2} % of a core.",
        usec / f64::from(JOBS),
        usec / begun.elapsed().as_secs_f64() / 1e4
    );
}

/// The search for SLURM's directories on a node with many other cgroups.
pub(crate) fn search() {
    let crowd = Crowd::real().expect("a cgroup2 mount");
    let roots = config(&crowd.flags()).roots;
    let budget = DescriptorBudget::new(0);
    let find =
        || median(&mut (0..50).map(|_| cost(|| drop(scope::find(&roots, &budget)))).collect::<Vec<_>>());
    let few = find();
    crowd.add_other_groups(1000);
    let many = find();
    println!(
        "\nThe search for SLURM's directory, at the start and when one appears: {few:.0} µs, with 1000 other cgroups \
         {many:.0} µs."
    );
}
