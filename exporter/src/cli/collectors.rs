//! The switches of the collectors, and the flags of some of them.

use std::collections::HashMap;

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, ArgMatches};
use exposition::Profile;
use parking_lot::Mutex;

use super::{counters, energy, flag, gpu, memory_traffic, owners, perf, switch};
use crate::collector::{Entry, REGISTRY, Selected};

/// The collector of owners.
const OWNERS: &str = "owners";

pub(super) fn flags() -> Vec<Arg> {
    let mut flags = vec![
        switch("collector.disable-defaults").help("Run only the collectors that are switched on by name"),
    ];
    for entry in REGISTRY {
        let default = if entry.default_on { "enabled" } else { "disabled" };
        let cost = entry.cost.map(|cost| format!(". {cost}")).unwrap_or_default();
        let (on, off) = names(entry);
        flags.push(
            flag(on)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(BoolishValueParser::new())
                .hide_possible_values(true)
                .value_name("BOOL")
                .help(format!("{} (default: {default}){cost}", entry.summary)),
        );
        flags.push(
            Arg::new(off)
                .long(off)
                .action(ArgAction::SetTrue)
                .conflicts_with(on)
                .hide(true)
                .help("Switch it off"),
        );
        if entry.name == "energy" {
            flags.extend(energy::flags());
        }
        if entry.name == "gpu" {
            flags.extend(gpu::flags());
        }
        if entry.name == "perf" {
            flags.extend(perf::flags());
        }
        if entry.name == "counters" {
            flags.push(counters::lock_file());
        }
        if entry.name == "node_validation" {
            flags.push(perf::results_file());
        }
        if entry.name == "memory_traffic" {
            flags.extend(memory_traffic::flags());
        }
        if entry.name == OWNERS {
            flags.extend(owners::flags());
        }
    }
    flags
}

/// `collector.<name>` and `no-collector.<name>`; made once per process, since clap keeps names for good.
fn names(entry: &Entry) -> (&'static str, &'static str) {
    static NAMES: Mutex<Option<HashMap<&'static str, (&'static str, &'static str)>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    *names.get_or_insert_default().entry(entry.name).or_insert_with(|| {
        let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        (leak(format!("collector.{}", entry.name)), leak(format!("no-collector.{}", entry.name)))
    })
}

/// The collectors that run, those that do not, and which families are exported.
pub(super) struct Collectors {
    pub(super) enabled: Vec<&'static Entry>,
    pub(super) disabled: Vec<&'static Entry>,
    pub(super) selected: Selected,
}

/// Without labels the collector of owners does not run, and by default none does of which the profile has no family.
pub(super) fn parse(matches: &ArgMatches, has_owners: bool, profile: Profile) -> Collectors {
    let defaults = !matches.get_flag("collector.disable-defaults");
    let asked = |entry: &Entry| matches.get_one::<bool>(names(entry).0).copied();
    let selected = Selected::new(profile, REGISTRY.iter().filter(|entry| asked(entry) == Some(true)));
    let (enabled, disabled) = REGISTRY.iter().partition(|entry| {
        (has_owners || entry.name != OWNERS)
            && !matches.get_flag(names(entry).1)
            && asked(entry).unwrap_or(defaults && entry.default_on)
            && selected.has_any_of(entry)
    });
    Collectors { enabled, disabled, selected }
}
