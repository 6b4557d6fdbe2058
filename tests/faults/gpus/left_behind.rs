//! Directories that SLURM left behind before the exporter started. Row 39.

use super::*;

/// Like the kernel's device program, the prolog's file is still there.
#[test]
fn a_directory_without_a_process_shares_no_gpu() {
    let gpus = Gpus::new("gpus 1\n");
    gpus.node.0.remove("run/gpustat/0").remove("run/gpustat/1");
    gpus.node.0.write("run/mapping/0", "1\n2\n");
    gpus.node.0.write(format!("{}/cgroup.events", job(2)), "populated 0\nfrozen 0\n");
    let mapping = format!("--collector.gpu.job-mapping-dir={}", gpus.node.0.path("run/mapping").display());
    let exporter = gpus.start(&[&mapping]);
    eventually(&exporter, "a job's GPU", |now| now.named("jobledger_job_gpu_info").count() > 0);
    let now = read_anew(&exporter);
    assert_eq!(of_gpu(&now, "jobledger_gpu_jobs", 0), Some(1.0));
    let jobs: Vec<_> =
        now.named("jobledger_job_gpu_info").map(|s| (s.label("jobid"), s.label("shared"))).collect();
    assert_eq!(jobs, [(Some("1"), Some("false"))]);
}
