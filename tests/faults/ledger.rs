//! Unattributed CPU time is exported. Row 30; the property test has random histories.

use crate::support::*;

const SCOPE_STAT: &str = "cgroup/system.slice/slurmstepd.scope/cpu.stat";

#[test]
fn jobs_and_unattributed_add_up_to_the_node() {
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
    // 5 s of a job and 2 s of no job, both with a fifth of that in the kernel.
    node.0.write(format!("{}/cpu.stat", job(10)), cpu_stat(15)).write(SCOPE_STAT, cpu_stat(37));
    round(2.4);
    // A part of it belongs to SLURM's own daemon.
    node.0.write(format!("{SCOPE}/system/cpu.stat"), cpu_stat(3)).write(SCOPE_STAT, cpu_stat(40));
    round(6.0);
    // A job ends, and its last CPU time is only in the sum. If no other job vanished, it is the job's.
    node.remove_job(20);
    node.0.write(SCOPE_STAT, cpu_stat(41));
    round(6.0);
    // Without any job everything is unattributed.
    node.remove_job(10);
    round(6.0);
    node.0.write(SCOPE_STAT, cpu_stat(51));
    round(18.0);
}
