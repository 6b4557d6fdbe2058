//! Flags of the simulated node.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, value_parser};

use super::{flag, one, switch};
use crate::demo::Options;

pub(super) fn flags() -> Vec<Arg> {
    let real = ["path.procfs", "path.sysfs", "path.cgroupfs", "path.dev", "jobs.metadata-dir"];
    vec![
        switch("demo")
            .conflicts_with_all(real)
            .help("Run over a simulated node on which jobs come and go; every number is made up"),
        flag("demo.seed")
            .requires("demo")
            .value_name("N")
            .default_value("1")
            .value_parser(value_parser!(u64))
            .help("Which node is simulated: the same number gives the same jobs, another one others"),
        flag("demo.speed")
            .requires("demo")
            .value_name("FACTOR")
            .default_value("1")
            .value_parser(parse_speed)
            .help("How many times as fast jobs come, work and go, 0.1 to 100; what they spend in a second stays the same"),
        flag("demo.directory")
            .requires("demo")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .help("Where the simulated node's files are made, some 25 MB; without it /dev/shm, else the system's temporary directory"),
    ]
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=100.0).contains(&speed) { Ok(speed) } else { Err("not from 0.1 to 100".to_owned()) }
}

pub(super) fn parse(matches: &ArgMatches) -> Result<Option<Options>, clap::Error> {
    if !matches.get_flag("demo") {
        return Ok(None);
    }
    Ok(Some(Options {
        seed: one(matches, "demo.seed")?,
        speed: one(matches, "demo.speed")?,
        directory: matches.get_one::<PathBuf>("demo.directory").cloned(),
    }))
}
