//! What runs within a job.

use std::ffi::OsString;

use clap::Args;

/// The node on which this runs.
#[derive(Debug, Args)]
pub struct OfNode {
    /// The page of the node's exporter; also record.exporter in the configuration [default: http://127.0.0.1:9810/metrics]
    #[arg(long, value_name = "URL")]
    pub exporter: Option<String>,
    /// Reads the job's own cgroup, as where no exporter answers
    #[arg(long, conflicts_with = "exporter")]
    pub own_cgroup: bool,
    /// The job's number on the node [default: the job that this runs in]
    #[arg(long, value_name = "NUMBER")]
    pub job: Option<u64>,
}

/// `jobledger record`
#[derive(Debug, Args)]
pub struct Record {
    /// Seconds between two readings, which are at multiples of it
    #[arg(short, long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,
    /// The file, to which is added; %j is the job and %N the node
    #[arg(short, long, value_name = "FILE", default_value = "jobledger-%j-%N.om")]
    pub output: String,
    /// All series of the node, too
    #[arg(long)]
    pub whole_node: bool,
    /// Its node.
    #[command(flatten)]
    pub node: OfNode,
    /// Records until this command ends, and ends with its exit status [default: until the job ends, or a signal]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
