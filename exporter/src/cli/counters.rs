//! Ownership of the hardware counters: the lock that is watched, and the orders of `jobledger-exporter counters`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};

use super::gpu::socket;
use super::{flag, one, set_path};
use crate::control::{CounterOrder, Order};

/// An absolute path of a file, or nothing.
fn parse_lock_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let names_a_file = path.is_absolute() && path.file_name().is_some() && !text.ends_with('/');
    if text.is_empty() || names_a_file { Ok(path) } else { Err("not the absolute path of a file".to_owned()) }
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    let limit = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let accepted = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);
    if accepted.contains(&limit) { Ok(limit) } else { Err("not from 1s to 30d".to_owned()) }
}

pub(super) fn lock_file() -> Arg {
    flag("counters.lock-file")
        .value_name("PATH")
        .default_value("/var/run/likwid.lock")
        .value_parser(parse_lock_file)
        .help("LIKWID's lock: while this file is another user's than the exporter's own or root, no hardware counter is held here; it is never made or changed. Empty: none is watched")
}

/// The lock to watch, if one is.
pub(super) fn parse(matches: &ArgMatches) -> Result<Option<PathBuf>, clap::Error> {
    set_path(matches, "counters.lock-file")
}

/// `jobledger-exporter counters yield|resume|status`.
pub(super) fn command() -> Command {
    Command::new("counters")
        .about("Have the running exporter release the hardware counters for a profiler, take them up again, or report who has them")
        .arg(Arg::new("order").required(true).value_parser(PossibleValuesParser::new(["yield", "resume", "status"])))
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("DURATION")
                .value_parser(parse_limit)
                .help("With yield: take them up again by itself after so long, 1s to 30d; without it only resume or a restart of the exporter does"),
        )
        .arg(socket().help("Where the running exporter takes orders"))
}

pub(super) fn order(matches: &ArgMatches) -> Result<(PathBuf, Order), clap::Error> {
    let limit = matches.get_one::<Duration>("for").copied();
    let order = match one::<String>(matches, "order")?.as_str() {
        "yield" => CounterOrder::Yield(limit),
        _ if limit.is_some() => {
            let kind = clap::error::ErrorKind::ArgumentConflict;
            return Err(clap::Error::raw(kind, "--for goes with yield alone\n"));
        }
        "resume" => CounterOrder::Resume,
        _ => CounterOrder::Status,
    };
    Ok((one(matches, "control.socket")?, Order::Counters(order)))
}
