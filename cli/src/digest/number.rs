//! The numbers of a job that policies may have bounds for, and their mails may show.

use job_report::show::{digits, percent, time};
use job_report::{Job, Node, Report, Thresholds, gpus_never_used, metric};
use serde::Deserialize;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// How a number is shown.
#[derive(Debug, Clone, Copy)]
enum Show {
    Digits,
    Percent,
    Minutes,
}

macro_rules! numbers {
    ($($name:ident $text:literal $show:ident $head:literal $help:literal $of:expr;)*) => {
        /// A number of a job.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
        pub enum Number {
            $(#[doc = $help] #[serde(rename = $text)] $name,)*
        }

        impl Number {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in a file of policies.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The head of its column in a mail.
            pub fn head(self) -> &'static str {
                match self { $(Self::$name => $head,)* }
            }

            /// What it is.
            pub fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)* }
            }

            fn kind(self) -> Show {
                match self { $(Self::$name => Show::$show,)* }
            }

            /// That of a job; `None` where it is not known or makes no sense.
            pub fn of(self, report: &Report, thresholds: &Thresholds) -> Option<f64> {
                let of: fn(&Report, &Thresholds) -> Option<f64> = match self { $(Self::$name => $of,)* };
                of(report, thresholds)
            }
        }
    };
}

numbers! {
    RunMinutes "run_minutes" Minutes "ran" "Minutes from start to end"
        |report, _| Some(report.numbers.elapsed_seconds / 60.0);
    LimitMinutes "limit_minutes" Minutes "limit" "Minutes of its time limit"
        |report, _| report.job.time_limit.map(|limit| limit / 60.0);
    TimeUse "time_use" Percent "of limit" "Part of the time limit that it took"
        |report, _| report.numbers.time_use;
    Nodes "nodes" Digits "nodes" "Nodes"
        |report, _| Some(nodes(&report.job));
    NodesIdle "nodes_idle" Digits "idle nodes" "Nodes on which it used less than a hundredth of a CPU"
        |report, _| nodes_idle(&report.job);
    NodesNeeded "nodes_needed" Digits "needs nodes" "Nodes that have its cores and GPUs, and 1.25 times the most memory that it had"
        |report, _| nodes_needed(&report.job);
    Cores "cores" Digits "cores" "Cores"
        |report, _| report.numbers.cores;
    CoresPerNode "cores_per_node" Digits "cores/node" "Cores per node"
        |report, _| Some(report.numbers.cores? / nodes(&report.job));
    NodeCoresHeld "node_cores_held" Percent "of cores" "Part of its nodes' cores that it had"
        |report, _| Some(report.numbers.cores? / total(&report.job, |node| node.hardware.cores)?);
    CoresUsed "cores_used" Digits "cores used" "Cores that it kept busy on average"
        |report, _| report.numbers.cores_used;
    CpuUse "cpu_use" Percent "CPU use" "CPU time of the core time that it had"
        |report, _| report.numbers.cpu_use;
    MemoryGib "memory_gib" Digits "GiB" "GiB of memory that it might use on a node, the smallest of its nodes"
        |report, _| report.numbers.memory_limit_bytes.map(|bytes| bytes / GIB);
    MemoryPeakGib "memory_peak_gib" Digits "GiB used" "GiB of memory that it used on a node at its peak, the highest of its nodes"
        |report, _| report.numbers.memory_peak_bytes.map(|bytes| bytes / GIB);
    MemoryUse "memory_use" Percent "memory use" "That of the memory that it might use, on the node where it was most"
        |report, _| report.numbers.memory_use;
    MemoryShare "memory_share" Digits "of share" "Memory per core that it might use, of the node's memory per core; above 1 other cores have less. The smallest of its nodes"
        |report, _| report.job.nodes.iter().map(memory_share).reduce(|a, b| Some(a?.min(b?)))?;
    NodeMemoryUsed "node_memory_used" Percent "of memory" "Part of a node's memory that it used at its peak, the highest of its nodes"
        |report, _| report.job.most(|node| Some(node.memory_peak()? / node.hardware.memory_bytes.filter(|all| *all > 0.0)?));
    Gpus "gpus" Digits "GPUs" "GPUs, or parts of divided ones"
        |report, _| report.numbers.gpus;
    GpusNeverUsed "gpus_never_used" Digits "never used" "GPUs that it never used, as the advice gpu_never_used says it; none only if they were seen for nine tenths of their time"
        |report, thresholds| never_used(report, thresholds);
    GpuUse "gpu_use" Percent "GPU use" "Part of the time in which its GPUs were busy, if they were seen for nine tenths of it"
        |report, thresholds| report.numbers.gpu_use.filter(|_| thresholds.gpus_were_seen(&report.numbers));
    GpuMemoryUse "gpu_memory_use" Percent "GPU memory" "The most GPU memory that it used on a GPU, of what that has"
        |report, _| report.numbers.gpu_memory_use;
    GpuMemoryPeakGib "gpu_memory_peak_gib" Digits "GPU GiB" "The same in GiB"
        |report, _| report.job.gpus().filter_map(|(_, gpu)| gpu.values.get(&metric::GPU_MEMORY_PEAK_BYTES)).reduce(f64::max).map(|bytes| bytes / GIB);
    NodeGpusHeld "node_gpus_held" Percent "of GPUs" "Part of its nodes' GPUs that it had"
        |report, _| Some(gpus(report)? / total(&report.job, |node| node.hardware.gpus)?);
    CoresPerGpu "cores_per_gpu" Digits "cores/GPU" "Cores per GPU"
        |report, _| Some(report.numbers.cores? / gpus(report)?);
    MemoryPerGpuGib "memory_per_gpu_gib" Digits "GiB/GPU" "GiB of memory per GPU that it might use"
        |report, _| Some(total(&report.job, |node| node.values.get(&metric::MEMORY_LIMIT_BYTES))? / GIB / gpus(report)?);
    MemoryPeakPerGpuGib "memory_peak_per_gpu_gib" Digits "GiB used/GPU" "GiB of memory per GPU that it used at its peaks"
        |report, _| Some(total(&report.job, Node::memory_peak)? / GIB / gpus(report)?);
}

impl Number {
    /// Whether it may make sense of a job: one that is known to have no GPU has no use of them.
    pub(super) fn makes_sense(self, report: &Report) -> bool {
        let is_of_gpus = matches!(
            self,
            Self::GpusNeverUsed
                | Self::GpuUse
                | Self::GpuMemoryUse
                | Self::GpuMemoryPeakGib
                | Self::NodeGpusHeld
                | Self::CoresPerGpu
                | Self::MemoryPerGpuGib
                | Self::MemoryPeakPerGpuGib
        );
        !is_of_gpus || report.numbers.gpus != Some(0.0)
    }

    /// A value as a mail shows it.
    pub fn show(self, value: f64) -> String {
        match self.kind() {
            Show::Digits => digits(value),
            Show::Percent => percent(value),
            Show::Minutes => time(value * 60.0),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of nodes or GPUs")]
pub(super) fn count(things: usize) -> f64 {
    things as f64
}

fn nodes(job: &Job) -> f64 {
    count(job.nodes.len())
}

fn gpus(report: &Report) -> Option<f64> {
    report.numbers.gpus.filter(|gpus| *gpus > 0.0)
}

fn never_used(report: &Report, thresholds: &Thresholds) -> Option<f64> {
    gpus(report)?;
    let unused = gpus_never_used(&report.job, thresholds).len();
    (unused > 0 || thresholds.gpus_were_seen(&report.numbers)).then(|| count(unused))
}

/// Over all nodes; `None` if one does not know it.
fn total(job: &Job, of: impl Fn(&Node) -> Option<f64>) -> Option<f64> {
    job.nodes.iter().map(of).sum::<Option<f64>>().filter(|sum| *sum > 0.0)
}

fn nodes_idle(job: &Job) -> Option<f64> {
    let used: Vec<f64> = job.nodes.iter().map(Node::cpus_used).collect::<Option<_>>()?;
    Some(count(used.iter().filter(|cpus| **cpus < 0.01).count()))
}

fn memory_share(node: &Node) -> Option<f64> {
    let (memory, cores) = (node.values.get(&metric::MEMORY_LIMIT_BYTES)?, node.cores()?);
    let share = node.hardware.memory_bytes? * cores / node.hardware.cores?;
    (share > 0.0).then_some(memory / share)
}

/// Of nodes that differ the smallest count.
fn nodes_needed(job: &Job) -> Option<f64> {
    let least = |of: fn(&Node) -> Option<f64>| {
        job.nodes.iter().map(of).reduce(|a, b| Some(a?.min(b?)))?.filter(|least| *least > 0.0)
    };
    let nodes = |needed: f64, on_a_node: f64| (needed / on_a_node).ceil();
    let cores = nodes(total(job, Node::cores)?, least(|node| node.hardware.cores)?);
    let memory = nodes(total(job, Node::memory_peak)? * 1.25, least(|node| node.hardware.memory_bytes)?);
    let gpus = match count(job.gpus().count()) {
        0.0 => 1.0,
        gpus => nodes(gpus, least(|node| node.hardware.gpus)?),
    };
    Some(cores.max(memory).max(gpus).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn of(number: Number) -> Option<f64> {
        number.of(&testing::report(testing::job()), &testing::THRESHOLDS)
    }

    #[test]
    fn numbers_of_a_job_are_those_of_its_report() {
        let shown = |number: Number| of(number).map(|value| number.show(value)).unwrap_or_default();
        let all: Vec<String> =
            Number::ALL.iter().map(|number| format!("{} {}", number.name(), shown(*number))).collect();
        let expected = [
            "run_minutes 18:41:56",
            "limit_minutes 4-00:00:00",
            "time_use 19 %",
            "nodes 2",
            "nodes_idle 0",
            "nodes_needed 1",
            "cores 48",
            "cores_per_node 24",
            "node_cores_held 50 %",
            "cores_used 4.73",
            "cpu_use 9.9 %",
            "memory_gib 128",
            "memory_peak_gib 12.9",
            "memory_use 10 %",
            "memory_share 0.5",
            "node_memory_used 2.5 %",
            "gpus 4",
            "gpus_never_used 1",
            "gpu_use 49 %",
            "gpu_memory_use 66 %",
            "gpu_memory_peak_gib 26.5",
            "node_gpus_held 50 %",
            "cores_per_gpu 12",
            "memory_per_gpu_gib 64",
            "memory_peak_per_gpu_gib 6.43",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_page_has_all_numbers() {
        let page = include_str!("../../../docs/digest.md").to_lowercase();
        for number in Number::ALL {
            let row = format!("\n| `{}` | {} |\n", number.name(), number.help().to_lowercase());
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn what_a_node_does_not_say_is_not_known() {
        let mut job = testing::job();
        for node in &mut job.nodes {
            node.hardware = job_report::Hardware::default();
        }
        let report = testing::report(job);
        for number in [Number::NodesNeeded, Number::MemoryShare, Number::CoresPerGpu, Number::NodeGpusHeld] {
            assert_eq!(number.of(&report, &testing::THRESHOLDS), None, "{}", number.name());
        }
    }

    #[test]
    fn a_job_with_most_memory_of_its_nodes_needs_them() {
        let mut job = testing::job();
        for node in &mut job.nodes {
            node.values.set(&metric::MEMORY_PEAK_BYTES, 300.0 * GIB);
        }
        assert_eq!(Number::NodesNeeded.of(&testing::report(job), &testing::THRESHOLDS), Some(2.0));
    }
}
