//! What owners of jobs (users, accounts, partitions, QOS) used on this node, in counters that outlive the jobs.
//!
//! Reads no file. At the end of each collection [`Summary::take_in`] takes the jobs' samples of all collectors, and adds
//! what grew since the last collection to the owner that the job has now. What was added is never moved. So at each
//! page the owners have what the jobs were exported with, to the last digit. Any kernel, no privilege.

mod co2;
mod ledger;
mod places;
mod rows;

use std::fmt::Write;
use std::sync::Arc;

pub use co2::{Co2Factor, NoFactor};
use exposition::{Family, SampleRef, Section, Value};
use ledger::{Ledger, SEPARATOR, Saved};
use parking_lot::Mutex;
use places::Places;
use rows::{
    CHARGED, CO2_NODE, CO2_ROW, CO2_UNATTRIBUTED, CPU_ROW, Domain, ENDED_ROW, ENERGY, FAMILIES, GPU,
    HELD_NODE, HELD_ROW, MICRO, ROWS, Row, UNATTRIBUTED_ENERGY, UNUSED_ROW,
};
use slurm_jobs::table::JobLabel;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, NodeSnapshot, Users};

use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::{Built, Collector, Entry, SourceError, Summary};

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "owners",
    summary: "What users and accounts used on the node, in counters that outlive their jobs",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || FAMILIES.to_vec(),
    build: |context| {
        let owners = Arc::new(Owners::new(context.options.get(), context.users.clone()));
        Built { summary: Some(owners.clone()), ..Built::with_accounts(Summarized, owners) }
    },
};

/// Which owners are distinguished.
#[derive(Debug, Clone)]
pub struct OwnerOptions {
    /// Labels of the series; at least one.
    pub labels: Vec<JobLabel>,
    /// Most owners; what others use is added up as `other`.
    pub limit: usize,
    /// Grams of CO2 for each kilowatt hour. Without it CO2 is not counted.
    pub co2: Option<Co2Factor>,
}

impl Default for OwnerOptions {
    fn default() -> Self {
        Self { labels: vec![JobLabel::User, JobLabel::Account, JobLabel::Partition], limit: 500, co2: None }
    }
}

fn name(label: JobLabel) -> &'static str {
    match label {
        JobLabel::User => "user",
        JobLabel::Account => "account",
        JobLabel::Partition => "partition",
        JobLabel::Qos => "qos",
    }
}

/// Its samples are made at the end of the collection.
struct Summarized;

impl Collector for Summarized {
    fn collect(&mut self, _snapshot: &NodeSnapshot, _out: &mut Section) -> Result<(), SourceError> {
        Ok(())
    }
}

struct Owners {
    labels: Vec<JobLabel>,
    names: Vec<&'static str>,
    users: Arc<Users>,
    co2: Option<Co2Factor>,
    /// The jobs' families of [`ROWS`].
    families: Vec<Option<&'static Family>>,
    pass: Mutex<Pass>,
    ledger: Mutex<Ledger>,
}

/// What a pass over the samples writes in. It is kept, so that a node with the same jobs as before allocates nothing.
#[derive(Debug, Default)]
struct Pass {
    places: Places,
    key: String,
}

impl Owners {
    fn new(options: OwnerOptions, users: Arc<Users>) -> Self {
        let names: Vec<&'static str> = options.labels.iter().map(|label| name(*label)).collect();
        Self {
            ledger: Mutex::new(Ledger::new(names.len(), options.limit)),
            pass: Mutex::default(),
            labels: options.labels,
            names,
            users,
            co2: options.co2,
            families: ROWS.iter().map(|row| row.jobs.map(|jobs| jobs())).collect(),
        }
    }

    /// Writes a label of who has a job, as far as it is known now.
    fn label(&self, job: &Job, label: JobLabel, out: &mut String) {
        let metadata = &job.metadata;
        let named = match label {
            JobLabel::User => {
                if let Some(name) = job.uid.and_then(|uid| self.users.name(uid)) {
                    out.push_str(&name);
                    return;
                }
                if let (Some(uid), None) = (job.uid, &metadata.user) {
                    // To a text nothing fails.
                    let _ = write!(out, "{uid}");
                }
                &metadata.user
            }
            JobLabel::Account => &metadata.account,
            JobLabel::Partition => &metadata.partition,
            JobLabel::Qos => &metadata.qos,
        };
        out.push_str(named.as_deref().unwrap_or_default());
    }

    /// Takes the jobs' values of a section, and what the node has beyond them.
    fn take(&self, ledger: &mut Ledger, pass: &mut Pass, section: &Section, jobs: &[Arc<Job>]) {
        let mut entered = false;
        for (family, samples) in section.families() {
            let is = |of: &Option<&'static Family>| of.is_some_and(|of| std::ptr::eq(of, family));
            if let Some((at, row)) =
                self.families.iter().position(is).and_then(|at| Some((at, ROWS.get(at)?)))
            {
                // Most sections have nothing for owners.
                if !std::mem::replace(&mut entered, true) {
                    pass.places.enter(section, jobs);
                }
                samples.for_each(|sample| saw(ledger, pass, (at, row), &sample, jobs));
            } else if UNATTRIBUTED_ENERGY.iter().any(|of| std::ptr::eq(of(), family)) {
                samples.for_each(|sample| self.rest(ledger, pass, family, &sample));
            }
        }
    }

    /// Takes energy that no job can be charged with.
    fn rest(&self, ledger: &mut Ledger, pass: &mut Pass, family: &Family, sample: &SampleRef<'_>) {
        pass.key.clear();
        let labels = sample.labels().filter(|(label, _)| *label != GPU).map(|(_, value)| value);
        for text in std::iter::once(family.name).chain(labels) {
            pass.key.push_str(text);
            pass.key.push(SEPARATOR);
        }
        let grown = ledger.grown(&pass.key, sample.value().in_parts(MICRO));
        ledger.add_rest(self.co2.map_or(0, |factor| factor.parts(grown)));
    }

    /// Adds what a job's values grew by to its owner.
    fn charge(&self, ledger: &mut Ledger, pass: &mut Pass, job: &Job, snapshot: &NodeSnapshot) {
        let began = job.followed_from(snapshot);
        pass.key.clear();
        for label in &self.labels {
            self.label(job, *label, &mut pass.key);
            pass.key.push(SEPARATOR);
        }
        let text = |label: &JobLabel| {
            let mut text = String::new();
            self.label(job, *label, &mut text);
            text
        };
        let owner = ledger.owner(&pass.key, || self.labels.iter().map(text).collect());
        let mut grown = Grown::default();
        ledger.charge(job.first_run, owner, began, |row, amount| grown.note(row, amount));
        if job.run != job.first_run {
            ledger.charge(job.run, owner, began, |row, amount| grown.note(row, amount));
        }
        if let Some((factor, energy)) = self.co2.zip(grown.energy) {
            ledger.add(owner, CO2_ROW, "", factor.parts(energy), began);
        }
        if let Some(unused) = ledger.unused(job.run, job.first_run, grown.used, grown.held) {
            ledger.add(owner, UNUSED_ROW, "", unused, began);
        }
        let ended = ledger.ended(job.run, job.first_run, !job.is_running());
        ledger.add(owner, ENDED_ROW, "", ended, began);
    }

    fn emit(&self, ledger: &Ledger, snapshot: &NodeSnapshot, out: &mut Section) {
        out.expect(FAMILIES);
        let (mut co2, mut held) = (0_u128, 0_u128);
        for owner in ledger.owners() {
            let labels = || self.names.iter().copied().zip(owner.labels.iter().map(String::as_str));
            let mut latest = None;
            for total in owner.totals() {
                let Some(row) = ROWS.get(total.row) else { continue };
                let shown = row.shown(total.amount);
                match total.row {
                    CO2_ROW => co2 = co2.saturating_add(shown),
                    HELD_ROW => held = held.saturating_add(shown),
                    _ => {}
                }
                if total.row == CO2_ROW && self.co2.is_none() {
                    continue;
                }
                // Most of them began together.
                let subject = match latest {
                    Some((began, subject)) if began == total.began => subject,
                    _ => out.subject_since(labels(), total.began),
                };
                latest = Some((total.began, subject));
                let domain = [("domain", total.domain.as_str())];
                let own = if row.domain.is_some() { domain.as_slice() } else { &[] };
                out.push(row.owners, subject, own, row.value(shown));
            }
            let energy = owner.totals().filter(|total| is_energy(total.row));
            let charged = energy.map(|total| (total.amount, total.began)).reduce(|one, other| {
                (one.0.saturating_add(other.0), one.1.zip(other.1).map(|(one, other)| one.min(other)))
            });
            if let Some((joules, began)) = charged {
                let subject = out.subject_since(labels(), began);
                out.push(&CHARGED, subject, &[], Value::of_parts(joules, MICRO));
            }
        }
        let node = out.node_since(Some(snapshot.following_since));
        if let Some(row) = ROWS.get(HELD_ROW) {
            out.push(&HELD_NODE, node, &[], row.value(held));
        }
        if let Some(row) = ROWS.get(CO2_ROW).filter(|_| self.co2.is_some()) {
            let rest = row.shown(ledger.rest());
            out.push(&CO2_NODE, node, &[], row.value(co2.saturating_add(rest)));
            out.push(&CO2_UNATTRIBUTED, node, &[], row.value(rest));
        }
    }
}

/// Takes a value of a job.
fn saw(
    ledger: &mut Ledger,
    pass: &mut Pass,
    (at, row): (usize, &Row),
    sample: &SampleRef<'_>,
    jobs: &[Arc<Job>],
) {
    let place = sample.subject().and_then(|subject| pass.places.of(subject));
    let Some(job) = place.and_then(|place| jobs.get(place)) else { return };
    let mut domain = match row.domain {
        Some(Domain::Is(domain)) => domain,
        _ => "",
    };
    pass.key.clear();
    for (label, value) in sample.own_labels().filter(|(label, _)| row.merged != Some(label)) {
        if label == "domain" && matches!(row.domain, Some(Domain::Kept)) {
            domain = value;
        }
        pass.key.push_str(value);
        pass.key.push(SEPARATOR);
    }
    let run = if row.by_directory { job.first_run } else { job.run };
    ledger.saw(run, at, &pass.key, domain, sample.value().in_parts(row.places));
}

/// Whether a row is energy of some domain.
fn is_energy(row: usize) -> bool {
    ROWS.get(row).is_some_and(|row| std::ptr::eq(row.owners, &ENERGY))
}

/// What a job grew by in a collection, as far as something is derived from it; `None` for what was not read.
#[derive(Debug, Default)]
struct Grown {
    /// CPU time used and had, nanoseconds.
    used: Option<u128>,
    held: Option<u128>,
    /// In all domains, microjoules.
    energy: Option<u128>,
}

impl Grown {
    fn note(&mut self, row: usize, amount: u128) {
        let add = |sum: &mut Option<u128>, amount| *sum = Some(sum.unwrap_or(0).saturating_add(amount));
        match row {
            CPU_ROW => add(&mut self.used, amount.saturating_mul(1000)),
            HELD_ROW => add(&mut self.held, amount),
            _ if is_energy(row) => add(&mut self.energy, amount),
            _ => {}
        }
    }
}

impl Summary for Owners {
    fn take_in(&self, snapshot: &NodeSnapshot, sections: &[(usize, Arc<Section>)]) {
        let (mut pass, mut ledger) = (self.pass.lock(), self.ledger.lock());
        pass.places.note(&snapshot.jobs);
        for (_, section) in sections {
            self.take(&mut ledger, &mut pass, section, &snapshot.jobs);
        }
        for job in &snapshot.jobs {
            self.charge(&mut ledger, &mut pass, job, snapshot);
        }
    }

    fn summarize(&self, snapshot: &NodeSnapshot, sections: &[(usize, Arc<Section>)], out: &mut Section) {
        self.take_in(snapshot, sections);
        let mut ledger = self.ledger.lock();
        ledger.end_collection();
        self.emit(&ledger, snapshot, out);
    }
}

impl JobObserver for Owners {
    fn job_started(&self, job: &Job) {
        self.ledger.lock().follows(job.run, job.first_run);
    }

    fn job_removed(&self, run: JobRunId, disposition: Disposition) {
        self.ledger.lock().removed(run, disposition == Disposition::Superseded);
    }
}

impl Durable for Owners {
    fn save(&self) -> Option<Vec<u8>> {
        Some(self.ledger.lock().save(&self.names))
    }

    fn generation(&self) -> u64 {
        self.ledger.lock().collections()
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved: Saved = durable_state::decode(section)?;
        self.ledger.lock().restore(saved, &self.names, |run| before.knows(run));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
