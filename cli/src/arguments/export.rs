//! Files for other programs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::job_id::JobId;

/// `jobledger export`
#[derive(Debug, Args)]
pub struct Export {
    /// The job, in the forms of report [default: that of --recording]
    #[arg(value_name = "JOB", required_unless_present = "recording")]
    pub job: Option<JobId>,
    /// From these files of record instead of a server
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub recording: Vec<PathBuf>,
    /// The file, whose name says its format: .csv, .parquet, .json, .h5; the directory of the archive with --layout=clustercockpit
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// How the data is laid out: wide or long (.csv, .parquet; wide if not set), slurm (.h5, as SLURM's profile plugin), clustercockpit, supremm (.json)
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<ExportLayout>,
    /// What a row of .csv and .parquet is of
    #[arg(long, value_name = "WHAT", default_value = "node")]
    pub by: ExportBy,
    /// Which metrics, by the names of their columns, * stands for any text [default: all]
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// Seconds between two values [default: 60, of a recording as it was recorded]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub step: Option<u32>,
    /// Which run of a requeued job, from 1 [default: the last]
    #[arg(long, value_name = "N")]
    pub run: Option<usize>,
    /// Replaces names of users, accounts, jobs and nodes by tokens that follow from the key in this file, 16 bytes or more
    #[arg(long, value_name = "KEYFILE")]
    pub anonymize: Option<PathBuf>,
    /// The subcluster in ClusterCockpit's archive
    #[arg(long, value_name = "NAME")]
    pub subcluster: Option<String>,
    /// Whether others could have jobs on the nodes, for ClusterCockpit: 0 anybody, 1 nobody, 2 the same user
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub exclusive: Option<u8>,
    /// Writes for ClusterCockpit what its format demands and is not known as 0, with a tag that says so
    #[arg(long)]
    pub force: bool,
    /// The number of the cluster in XDMoD, for SUPReMM
    #[arg(long, value_name = "N")]
    pub resource_id: Option<u64>,
}

/// How a file is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportLayout {
    /// A column for each metric
    Wide,
    /// A row for each value
    Long,
    /// As SLURM's acct_gather_profile/hdf5, for sh5util
    Slurm,
    /// ClusterCockpit's job archive
    Clustercockpit,
    /// The summary that XDMoD reads
    Supremm,
}

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportBy {
    /// A node
    Node,
    /// A GPU
    Gpu,
    /// The job
    Job,
    /// A step on a node, where the exporter publishes steps
    Step,
    /// A task of a step, where the exporter publishes tasks
    Task,
}
