//! What numbers of usage lack, and why.

use std::collections::{BTreeMap, BTreeSet};

use super::Node;

/// What is said of the numbers.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) anew: BTreeMap<Node, usize>,
    pub(super) unseen: BTreeSet<Node>,
    pub(super) old_jobs: BTreeSet<Node>,
    pub(super) late: BTreeSet<Node>,
    pub(super) gone: BTreeSet<Node>,
    pub(super) lost: BTreeSet<Node>,
    pub(super) without_owners: BTreeMap<Node, f64>,
    pub(super) without_energy: BTreeMap<Node, f64>,
}

impl Told {
    /// A line for each thing that the numbers lack.
    pub(super) fn notes(&self, silent: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: usize, (one, many): (&str, &str), rest: &str| {
            let who = if count == 1 { format!("1 node {one}") } else { format!("{count} nodes {many}") };
            notes.extend((count > 0).then(|| format!("{who} {rest}")));
        };
        let hours = |of: &BTreeMap<Node, f64>| format!("{:.1} node-hours", of.values().sum::<f64>());
        let times: usize = self.anew.values().sum();
        note(
            self.anew.len(),
            ("began", "began"),
            &format!(
                "to count anew, {times} times in all: what was used from the last scrape to the end of the exporter is missing"
            ),
        );
        note(
            self.unseen.len(),
            ("counted", "counted"),
            "before the first scrape: what was counted until then is left out",
        );
        note(
            self.old_jobs.len(),
            ("is new and had", "are new and had"),
            "jobs that began before --since: the part of their CPU time that was used until then is an estimate",
        );
        note(self.late.len(), ("was", "were"), "first scraped after --since");
        note(self.gone.len(), ("was", "were"), "last scraped before --until");
        note(
            self.without_owners.len(),
            ("has", "have"),
            &format!(
                "no counters of owners, for {}: --collector.owners is off there",
                hours(&self.without_owners)
            ),
        );
        note(
            self.without_energy.len(),
            ("has", "have"),
            &format!("no counters of energy, for {}", hours(&self.without_energy)),
        );
        note(
            self.lost.len(),
            ("has", "have"),
            "counters of owners that ended or fell while others went on: --owner.labels or collectors were changed",
        );
        note(silent, ("does not", "do not"), "say since when the counters go on: left out");
        notes
    }
}
