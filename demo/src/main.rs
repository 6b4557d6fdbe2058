//! Runs the exporter on a simulated node, so that dashboards, alerts and scrapes can be tried without SLURM and without
//! privileges. docs/demo.md describes what it shows.
//!
//! The simulation ([`world`]) uses no files and no drivers. [`tree`] writes it to ordinary files in the kernel's formats, in a
//! private directory: once a second, when a job starts or ends, and before a collector reads. The thread in [`simulation`]
//! does that. That module also provides what is not read from files: GPUs ([`gpu`]) and CPU counters ([`cpu_counters`]). The
//! exporter runs as on any node, with its roots in that directory and a [`barrier`] around its collectors.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

mod barrier;
mod cli;
mod counters;
mod cpu_counters;
mod devices;
mod directory;
mod files;
mod gpu;
mod group;
mod hardware;
mod job;
mod layout;
mod machine;
mod memory;
mod nfs;
mod power;
mod process;
mod profile;
mod random;
mod simulation;
#[cfg(test)]
mod tests;
mod tree;
mod workloads;
mod world;

use std::process::ExitCode;

use jobledger_exporter::app::{self, Failure, Node, Output};
use jobledger_exporter::cli::Config;

use crate::simulation::{Options, Simulation};

fn main() -> ExitCode {
    let (config, options) = match cli::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(app::refuse(&error)),
    };
    app::log_to_stderr(&config);
    app::end(run(config, &options))
}

fn run(config: Config, options: &Options) -> Result<u8, Failure> {
    let output = Output::open(&config)?;
    // Before privileges are dropped: the simulation's thread must go on writing afterwards.
    let simulation = Simulation::start(options).map_err(Failure::other)?;
    let config = simulation.configure(config);
    let opened = simulation.open(&config)?;
    // The simulated node is private to the user who started it, root too.
    app::drop_privileges(&config, None)?;
    let node =
        Node::start_with(&config, opened, |built| simulation.barrier.guard(built)).map_err(Failure::other)?;
    output.run(node, &config)
}
