//! What was held and used.

use clap::{Args, ValueEnum};

use super::Whose;

/// `jobledger usage`
#[derive(Debug, Args)]
pub struct Usage {
    /// What is added up
    #[arg(short, long, value_name = "WHAT", default_value = "user")]
    pub by: UsageBy,
    /// Whose.
    #[command(flatten)]
    pub whose: Whose,
    /// How it is shown
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub format: UsageFormat,
}

/// What usage is added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    /// Users
    User,
    /// Accounts
    Account,
    /// Partitions
    Partition,
    /// Nodes, with what no job can be charged with
    Node,
}

/// How usage is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageFormat {
    /// A table with a total
    Table,
    /// CSV (RFC 4180)
    Csv,
    /// JSON
    Json,
}
