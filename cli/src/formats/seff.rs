//! In the words of seff (SLURM's contribs/seff/seff, 2.1), which scripts look for. What is not known has no line.

use job_report::show::time;
use job_report::{Job, Node, Report, State, metric};

use super::words;
use crate::job_id::shown;

/// The lines.
pub fn render(report: &Report) -> String {
    let (job, numbers) = (&report.job, &report.numbers);
    let who = &job.identity;
    let mut lines = vec![format!("Job ID: {}", job.id)];
    if !who.array_job_id.is_empty() && !who.array_task_id.is_empty() {
        lines.push(format!("Array Job ID: {}", shown(job.id, &job.identity)));
    }
    lines.extend(job.cluster.as_ref().map(|cluster| format!("Cluster: {cluster}")));
    let user = if who.user.is_empty() { &who.uid } else { &who.user };
    // seff's own line ends here if the group has no name on its host. The exporter does not have it.
    lines.push(format!("User/Group: {user}/"));
    let code = job.ended.as_ref().and_then(|ended| ended.exit_code);
    let code = code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
    lines.push(format!("State: {}{code}", words::slurm_state(job)));
    lines.extend(cores(job, numbers.cpus));
    if let Some(used) = job.total(&metric::CPU_SECONDS) {
        lines.push(format!("CPU Utilized: {}", time(used)));
        let held = job.total(&metric::CPU_ALLOCATED_SECONDS);
        lines.extend(numbers.cpu_efficiency.zip(held).map(|(part, held)| {
            format!("CPU Efficiency: {:.2}% of {} core-walltime", part * 100.0, time(held))
        }));
    }
    lines.push(format!("Job Wall-clock time: {}", time(numbers.elapsed_seconds)));
    lines.extend(memory(job));
    if job.state() == State::Running {
        lines.push("WARNING: Efficiency statistics may be misleading for RUNNING jobs.".to_owned());
    }
    lines.extend(
        words::reasons(report).map(|reasons| format!("WARNING: Totals may not be exact: {reasons}.")),
    );
    lines.into_iter().map(|line| line + "\n").collect()
}

fn cores(job: &Job, cpus: Option<f64>) -> Vec<String> {
    let nodes = job.nodes.len();
    let Some(cpus) = cpus else { return vec![format!("Nodes: {nodes}")] };
    if cpus <= 1.0 {
        return vec![format!("Cores: {cpus}")];
    }
    let each = (cpus / u32::try_from(nodes.max(1)).map_or(f64::INFINITY, f64::from)).floor();
    vec![format!("Nodes: {nodes}"), format!("Cores per node: {each}")]
}

/// The sum of the nodes' peaks, of the sum of their limits.
fn memory(job: &Job) -> Vec<String> {
    let peaks: Vec<f64> = job.nodes.iter().filter_map(Node::memory_peak).collect();
    if peaks.is_empty() {
        return Vec::new();
    }
    let used: f64 = peaks.iter().sum();
    let mut lines = vec![format!("Memory Utilized: {}", size(used))];
    let limits: Vec<f64> =
        job.nodes.iter().filter_map(|node| node.values.get(&metric::MEMORY_LIMIT_BYTES)).collect();
    let limit: f64 = limits.iter().sum();
    // A part of a whole is known only where each node knows both.
    if limits.len() == job.nodes.len() && peaks.len() == job.nodes.len() && limit > 0.0 {
        let alike = limits.iter().all(|each| Some(each) == limits.first());
        let each = limits.first().filter(|_| alike).map(|each| format!(" ({}/node)", size(*each)));
        let (part, each) = (100.0 * used / limit, each.unwrap_or_default());
        lines.push(format!("Memory Efficiency: {part:.2}% of {}{each}", size(limit)));
    }
    lines
}

/// Two digits after the point, powers of 1024, nothing below `KB` (kbytes2str in seff).
fn size(bytes: f64) -> String {
    if bytes <= 0.0 {
        return "0.00 MB".to_owned();
    }
    let (mut value, mut unit) = (bytes / 1024.0, "KB");
    for next in ["MB", "GB", "TB", "PB", "EB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.2} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_seff() {
        let gib = 1024f64.powi(3);
        assert_eq!(
            [size(0.0), size(10.0), size(1536.0), size(7.7 * gib), size(1024.0 * gib)],
            ["0.00 MB", "0.01 KB", "1.50 KB", "7.70 GB", "1.00 TB"]
        );
    }
}
