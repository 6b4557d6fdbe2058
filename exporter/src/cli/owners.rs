//! Which owners have counters.

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use super::{flag, job_label, one};
use crate::collector::owners::{Co2Factor, OwnerOptions};

const NONE: &str = "none";

pub(super) fn flags() -> [Arg; 3] {
    [
        flag("owner.labels")
            .value_name("LABEL")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .default_value("user,account,partition")
            .value_parser(PossibleValuesParser::new(["user", "account", "partition", "qos", NONE]))
            .help("Labels of the counters of owners, jobledger_owner_*: each combination is an owner. none switches them off"),
        flag("owner.limit")
            .value_name("N")
            .default_value("500")
            .value_parser(RangedU64ValueParser::<usize>::new().range(1..=100_000))
            .help("Most owners on this node. What further ones use is added up under an owner whose labels are all other; an owner keeps its series for as long as the exporter counts"),
        flag("owner.co2-grams-per-kwh")
            .value_name("GRAMS")
            .value_parser(value_parser!(Co2Factor))
            .help("Grams of CO2 equivalent for each kilowatt hour of this site: a positive decimal. With it jobledger_owner_co2_grams_total counts what jobs' energy emits. Another value holds from the restart on"),
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
    Ok(Some(OwnerOptions {
        labels,
        limit: one(matches, "owner.limit")?,
        co2: matches.get_one("owner.co2-grams-per-kwh").copied(),
    }))
}
