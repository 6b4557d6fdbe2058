//! What the tests of the backends share.

use std::sync::Arc;

use exposition::Family;
use jobledger_testkit::machine::Machine;
use kernel_files::Roots;

use crate::{Quantity, Sample, UnitSample};

pub(crate) fn roots(machine: &Machine) -> Arc<Roots> {
    let at = |dir: &str| machine.path(dir);
    Arc::new(Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev")))
}

pub(crate) fn unit<'s>(sample: &'s Sample, uuid: &str) -> &'s UnitSample {
    sample.units.iter().find(|unit| unit.unit.uuid.as_ref() == uuid).unwrap()
}

pub(crate) fn count(unit: &UnitSample, quantity: &'static Quantity) -> Option<u64> {
    unit.counts.iter().find(|(q, _)| *q == quantity).map(|(_, value)| *value)
}

/// The value of a fact by the values of its labels.
pub(crate) fn fact(unit: &UnitSample, family: &'static Family, labels: &[&str]) -> Option<f64> {
    let is = |fact: &&crate::Fact| {
        std::ptr::eq(fact.family, family)
            && fact.labels.iter().map(|(_, value)| value.as_ref()).eq(labels.iter().copied())
    };
    let found: Vec<_> = unit.facts.iter().filter(is).collect();
    assert!(found.len() <= 1, "{} is there twice", family.name);
    found.first().map(|fact| fact.value.to_f64())
}

/// Every fact has the labels of its family, and no two are of the same series.
pub(crate) fn check(sample: &Sample) {
    for unit in &sample.units {
        let mut seen = Vec::new();
        for fact in &unit.facts {
            let keys: Vec<_> = fact.labels.iter().map(|(key, _)| *key).collect();
            assert_eq!(fact.family.labels[2..], keys, "{}", fact.family.name);
            let series = (fact.family.name, fact.labels.clone());
            assert!(!seen.contains(&series), "{series:?}");
            seen.push(series);
        }
    }
}
