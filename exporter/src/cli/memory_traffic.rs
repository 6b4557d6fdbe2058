//! Flags of the collector `memory_traffic`.

use clap::{Arg, ArgMatches};

use super::switch;

const RESCTRL: &str = "collector.memory-traffic.resctrl";

pub(super) fn flags() -> Vec<Arg> {
    vec![switch(RESCTRL).alias("collector.memory_traffic.resctrl").help(
        "Charge jobs with what resctrl measures of each of them, on shared nodes too: makes a monitoring group (RMID) for every job below the control group that it is in, and removes it at the job's end. Needs resctrl mounted, and root or CAP_SETUID and CAP_SETGID at the start (docs/memory-traffic.md)",
    )]
}

/// Whether jobs are monitored by resctrl.
pub(super) fn parse(matches: &ArgMatches) -> bool {
    matches.get_flag(RESCTRL)
}
