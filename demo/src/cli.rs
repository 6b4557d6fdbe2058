//! The flags: those of the simulation, and the exporter's own without those that locate a real node's files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error, value_parser};
use jobledger_exporter::cli::{self, Config};

use crate::simulation::Options;

const ABOUT: &str = "Runs the Jobledger exporter on a simulated node with simulated jobs; no number is real";

const AFTER_HELP: &str = "The other flags are those of jobledger-exporter. Every flag has an environment equivalent: JOBLEDGER_ and its name in \
capitals with _ for . and -, such as JOBLEDGER_DEMO_SEED; a flag on the command line wins.";

/// Flags that locate the files of a real node.
const REAL_NODE_FLAGS: [&str; 5] =
    ["path.procfs", "path.sysfs", "path.cgroupfs", "path.dev", "jobs.metadata-dir"];

fn flags() -> Vec<Arg> {
    let flag = |name: &'static str, variable: &'static str| {
        Arg::new(name).long(name).env(variable).hide_env(true).help_heading("Demo")
    };
    vec![
        flag("demo.seed", "JOBLEDGER_DEMO_SEED")
            .value_name("N")
            .default_value("1")
            .value_parser(value_parser!(u64))
            .help("Seed of the simulation: the same seed gives the same jobs"),
        flag("demo.speed", "JOBLEDGER_DEMO_SPEED")
            .value_name("FACTOR")
            .default_value("1")
            .value_parser(parse_speed)
            .help("How many times faster jobs start and end, 0.1 to 100; what they use per second does not change"),
        flag("demo.directory", "JOBLEDGER_DEMO_DIRECTORY")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .help("Where the simulated node's files are created, about 25 MB [default: /dev/shm, else the temporary directory]"),
    ]
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=100.0).contains(&speed) { Ok(speed) } else { Err("not from 0.1 to 100".to_owned()) }
}

fn command() -> Command {
    let command = cli::run_command("jobledger-demo").about(ABOUT).after_help(AFTER_HELP).args(flags());
    REAL_NODE_FLAGS.into_iter().fold(command, |command, name| command.mut_arg(name, |flag| flag.hide(true)))
}

fn options(matches: &ArgMatches) -> Result<Options, Error> {
    let missing = || Error::raw(ErrorKind::MissingRequiredArgument, "a flag of the demo has no value\n");
    Ok(Options {
        seed: matches.get_one("demo.seed").copied().ok_or_else(missing)?,
        speed: matches.get_one("demo.speed").copied().ok_or_else(missing)?,
        directory: matches.get_one::<PathBuf>("demo.directory").cloned(),
    })
}

/// Parses a command line (the program's name first) and the environment.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Config, Options), Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    let given = |name: &str| matches.value_source(name) != Some(ValueSource::DefaultValue);
    if let Some(name) = REAL_NODE_FLAGS.into_iter().find(|name| given(name)) {
        let text = format!("--{name} locates a real node's files; this node is simulated");
        return Err(command.error(ErrorKind::ArgumentConflict, text));
    }
    Ok((cli::config(&matches)?, options(&matches)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arguments: &[&str]) -> Result<(Config, Options), Error> {
        parse(std::iter::once("jobledger-demo").chain(arguments.iter().copied()).map(Into::into))
    }

    #[test]
    fn claps_own_checks_pass() {
        command().debug_assert();
    }

    #[test]
    fn flags_of_a_real_node_and_impossible_speeds_are_refused() {
        for bad in [
            "--demo.speed=0",
            "--demo.speed=fast",
            "--path.procfs=/proc",
            "--jobs.metadata-dir=/x",
            "--demo",
            "gpu",
        ] {
            assert!(run(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_of_the_simulation_and_of_the_exporter_arrive() {
        let (config, options) = run(&["--demo.seed=7", "--demo.speed=2.5", "--jobs.steps"]).unwrap();
        assert_eq!(options, Options { seed: 7, speed: 2.5, directory: None });
        assert!(config.levels.steps);
    }
}
