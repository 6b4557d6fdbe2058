//! The table of nodes: all of them, or the worst ones and what the others have.

use job_report::metric;
use job_report::show::{bytes, digits, percent};
use job_report::{Job, Node};

/// A column: its head, its width, and its cell.
pub(super) type Column = (&'static str, usize, fn(&Node) -> Option<String>);

const COLUMNS: [Column; 7] = [
    ("CPUs", 6, |node| node.values.get(&metric::CPUS).map(digits)),
    ("used", 7, |node| node.cpu_use().map(percent)),
    ("mem peak", 10, |node| node.memory_peak().map(bytes)),
    ("GPUs", 6, |node| Some(node.gpus.len()).filter(|gpus| *gpus > 0).map(|gpus| gpus.to_string())),
    ("busy", 7, |node| busy(node).map(percent)),
    ("read", 10, |node| node.values.get(&metric::IO_READ_BYTES).map(bytes)),
    ("written", 10, |node| node.values.get(&metric::IO_WRITTEN_BYTES).map(bytes)),
];

pub(super) fn busy(node: &Node) -> Option<f64> {
    let known: Vec<f64> = node.gpus.iter().filter_map(|gpu| gpu.utilization()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// How much of a node was not used: what the rows of many nodes are sorted by.
fn waste(node: &Node) -> f64 {
    1.0 - busy(node).or_else(|| node.cpu_use()).unwrap_or(1.0)
}

/// The columns in which a node has a cell: others say nothing.
pub(super) fn columns(job: &Job) -> Vec<&'static Column> {
    COLUMNS.iter().filter(|(_, _, cell)| job.nodes.iter().any(|node| cell(node).is_some())).collect()
}

/// At most so many nodes, the worst ones first if there are more, and a sentence on the others.
pub(super) fn rows(job: &Job, most: usize) -> (Vec<&Node>, Option<String>) {
    let mut shown: Vec<&Node> = job.nodes.iter().collect();
    if shown.len() <= most {
        return (shown, None);
    }
    shown.sort_by(|a, b| waste(b).total_cmp(&waste(a)));
    let others = shown.split_off(most);
    let span = |of: &dyn Fn(&Node) -> Option<f64>, show: &dyn Fn(f64) -> String| {
        let known: Vec<f64> = others.iter().filter_map(|node| of(node)).collect();
        let least = known.iter().copied().reduce(f64::min)?;
        let most = known.iter().copied().reduce(f64::max)?;
        Some(if show(least) == show(most) {
            show(least)
        } else {
            format!("{} to {}", show(least), show(most))
        })
    };
    let parts = [
        span(&Node::cpu_use, &percent).map(|span| format!("CPU {span}")),
        span(&Node::memory_peak, &bytes).map(|span| format!("memory {span}")),
        span(&busy, &percent).map(|span| format!("GPU {span}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (shown, Some(format!("{} more nodes: {}", others.len(), parts.join(", "))))
}
