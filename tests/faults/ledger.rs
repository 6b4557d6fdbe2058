//! What no job can be charged with is told as such. Row 30; the property test has the random histories.

use crate::support::*;

const SCOPE_STAT: &str = "cgroup/system.slice/slurmstepd.scope/cpu.stat";

#[test]
fn jobs_and_the_unattributed_make_up_the_node() {
    let node = Node::with_jobs([10, 20]);
    node.0.write(format!("{SCOPE}/system/cpu.stat"), cpu_stat(0));
    node.0.write(SCOPE_STAT, cpu_stat(30));
    let exporter = node.start(&["--jobs.retention=1h"]);
    let round = |wanted: f64| {
        let now = scrape(&exporter);
        let jobs: f64 = now.named("jobledger_job_cpu_seconds_total").map(|s| s.value).sum();
        let value = |name| now.value(name, &[]).unwrap();
        let residual = value("jobledger_node_slurm_cpu_unattributed_seconds_total");
        let total = value("jobledger_node_slurm_cpu_seconds_total");
        assert!((jobs + residual - total).abs() < 1e-6, "{jobs} + {residual} != {total}");
        assert!((residual - wanted).abs() < 1e-6, "{residual} unattributed instead of {wanted}");
    };
    round(0.0);
    // 5 s of a job and 2 s that nobody explains; both with a fifth of that in the kernel.
    node.0.write(format!("{}/cpu.stat", job(10)), cpu_stat(15)).write(SCOPE_STAT, cpu_stat(37));
    round(2.4);
    // SLURM's own daemon is a known part of it.
    node.0.write(format!("{SCOPE}/system/cpu.stat"), cpu_stat(3)).write(SCOPE_STAT, cpu_stat(40));
    round(6.0);
    // A job ends, and what it spent last shows only in the sum: with one that vanished, that is its own.
    node.remove_job(20);
    node.0.write(SCOPE_STAT, cpu_stat(41));
    round(6.0);
    // A node without any job is nobody's.
    node.remove_job(10);
    round(6.0);
    node.0.write(SCOPE_STAT, cpu_stat(51));
    round(18.0);
}
