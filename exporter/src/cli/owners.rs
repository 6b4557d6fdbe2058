//! Which owners have counters.

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Arg, ArgAction, ArgMatches};

use super::{flag, job_label, one};
use crate::collector::owners::OwnerOptions;

const NONE: &str = "none";

pub(super) fn flags() -> [Arg; 2] {
    [
        flag("owner.labels")
            .value_name("LABEL")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .default_value("user,account")
            .value_parser(PossibleValuesParser::new(["user", "account", "partition", "qos", NONE]))
            .help("Labels of the counters of owners, jobledger_owner_*: each combination is an owner. none switches them off"),
        flag("owner.limit")
            .value_name("N")
            .default_value("500")
            .value_parser(RangedU64ValueParser::<usize>::new().range(1..=100_000))
            .help("Most owners on this node. What further ones use is added up under an owner whose labels are all other; an owner keeps its series for as long as the exporter counts"),
    ]
}

/// `None` if they are switched off.
pub(super) fn parse(matches: &ArgMatches) -> Result<Option<OwnerOptions>, clap::Error> {
    let names: Vec<&String> = matches.get_many("owner.labels").into_iter().flatten().collect();
    if names.iter().any(|name| *name == NONE) {
        return Ok(None);
    }
    let mut labels = Vec::new();
    for label in names.into_iter().map(|name| job_label(name)) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    Ok(Some(OwnerOptions { labels, limit: one(matches, "owner.limit")? }))
}
