//! What owners of jobs (users, accounts, partitions, QOS) used on this node, in counters that outlive the jobs.
//!
//! Reads no file. At the end of each collection [`Summary::take_in`] takes the jobs' samples of all collectors, and adds
//! what grew since the last collection to the owner that the job has now. What was added is never moved. So at each
//! page the owners have what the jobs were exported with, to the last digit. Any kernel, no privilege.

mod co2;
mod ledger;
mod places;

use std::fmt::Write;
use std::sync::Arc;

pub use co2::{Co2Factor, NoFactor};
use exposition::{Family, SampleRef, Section, Value};
use gpu_devices::Quantity;
use ledger::{Ledger, SEPARATOR, Saved};
use parking_lot::Mutex;
use places::Places;
use slurm_jobs::table::JobLabel;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, NodeSnapshot, Users};

use crate::collector::devices::energy::metrics::{JOB_ENERGY, UNATTRIBUTED};
use crate::collector::devices::gpu::rows;
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::job::cpu::CPU_SECONDS;
use crate::collector::job::{cpuset, memory};
use crate::collector::{Built, Collector, Entry, SourceError, Summary};

const LABELS: &[&str] = &["user", "account", "partition", "qos"];
const LABELS_AND_DOMAIN: &[&str] = &["user", "account", "partition", "qos", "domain"];

static CPU: Family = Family::counter("jobledger_owner_cpu_seconds_total")
    .labels(LABELS)
    .help("CPU time of the owner's jobs on this node, those too that are over");
static HELD: Family = Family::counter("jobledger_owner_allocated_cpu_seconds_total")
    .labels(LABELS)
    .help("CPUs that the owner's jobs might use times their time on this node");
static UNUSED: Family = Family::counter("jobledger_owner_unused_cpu_seconds_total").labels(LABELS).help(
    "CPU time that the owner's jobs had and did not use: the most by which \
     the allocated time of each exceeded its CPU time so far",
);
static GPU_HELD: Family = Family::counter("jobledger_owner_gpu_allocated_seconds_total")
    .labels(LABELS)
    .help("Time for which the owner's jobs had GPUs, summed over GPUs");
static GPU_BUSY: Family = Family::counter("jobledger_owner_gpu_busy_seconds_total")
    .labels(LABELS)
    .help("Time in which kernels of the owner's jobs ran, summed over GPUs");
static GPU_IDLE: Family = Family::counter("jobledger_owner_gpu_idle_seconds_total")
    .labels(LABELS)
    .help("Time for which the owner's jobs had GPUs and ran no kernel, as far as that was seen");
static MEMORY: Family = Family::counter("jobledger_owner_memory_allocated_byte_seconds_total")
    .labels(LABELS)
    .help("Memory limit of the owner's jobs times their time on this node, in bytes times seconds");
static ENERGY: Family =
    Family::counter("jobledger_owner_energy_joules_total").labels(LABELS_AND_DOMAIN).help(
        "Energy charged to the owner's jobs; the domains are disjoint and may be added up, gpu is that of GPUs",
    );
static CO2: Family = Family::counter("jobledger_owner_co2_grams_total")
    .labels(LABELS)
    .help("CO2 equivalent of the energy charged to the owner's jobs, each joule by the factor of its time; only with --owner.co2-grams-per-kwh");
static CO2_UNATTRIBUTED: Family = Family::counter("jobledger_node_co2_unattributed_grams_total")
    .help("CO2 equivalent of the energy of CPUs, memory and GPUs that no job can be charged with");
static CO2_NODE: Family = Family::counter("jobledger_node_co2_grams_total")
    .help("CO2 equivalent of the energy that is attributed: the sum over owners plus the unattributed");
static ENDED: Family = Family::counter("jobledger_owner_jobs_ended_total")
    .labels(LABELS)
    .help("Jobs of the owner that ended on this node, a requeued one each time");

/// One total of each owner.
struct Row {
    owners: &'static Family,
    /// Digits after the point that the total has: the finest of the jobs' values.
    places: u32,
    /// Parts that are added up in the last digit.
    parts: u128,
    /// The jobs' family that it is the sum of; `None` for what is derived.
    jobs: Option<fn() -> &'static Family>,
    /// What the label `domain` is, if it has one.
    domain: Option<Domain>,
    /// Whether runs in one directory go on with the same count.
    by_directory: bool,
    /// A label over which a job's samples are added up first: time may pass from one value to the other.
    merged: Option<&'static str>,
}

enum Domain {
    /// The job's own.
    Kept,
    Is(&'static str),
}

impl Row {
    const fn new(owners: &'static Family, places: u32) -> Self {
        Self { owners, places, parts: 1, jobs: None, domain: None, by_directory: false, merged: None }
    }

    const fn of(self, jobs: fn() -> &'static Family) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    /// What is shown for so many parts.
    fn shown(&self, amount: u128) -> u128 {
        amount / self.parts
    }

    fn value(&self, shown: u128) -> Value {
        Value::of_parts(shown, self.places)
    }
}

/// Digits of joules.
const MICRO: u32 = 6;

const CPU_ROW: usize = 0;
const HELD_ROW: usize = 1;
const UNUSED_ROW: usize = 2;
const ENDED_ROW: usize = 3;
const CO2_ROW: usize = 4;

static ROWS: [Row; 11] = [
    Row { by_directory: true, merged: Some("mode"), ..Row::new(&CPU, 6).of(|| &CPU_SECONDS.job) },
    Row::new(&HELD, 9).of(|| &cpuset::ALLOCATED),
    Row::new(&UNUSED, 9),
    Row::new(&ENDED, 0),
    Row { parts: co2::PARTS_IN_NANOGRAM, ..Row::new(&CO2, 9) },
    Row::new(&GPU_HELD, 9).of(|| &rows::ALLOCATED),
    Row::new(&GPU_BUSY, 9).of(|| &Quantity::BUSY.counter.job),
    Row::new(&GPU_IDLE, 9).of(|| &rows::IDLE),
    Row::new(&MEMORY, 0).of(|| &memory::ALLOCATED),
    Row { domain: Some(Domain::Kept), ..Row::new(&ENERGY, MICRO).of(|| &JOB_ENERGY) },
    Row { domain: Some(Domain::Is("gpu")), ..Row::new(&ENERGY, MICRO).of(|| &Quantity::ENERGY.counter.job) },
];

/// What no job can be charged with of the energy that owners are.
static UNATTRIBUTED_ENERGY: [fn() -> &'static Family; 2] =
    [|| &UNATTRIBUTED, || &Quantity::ENERGY.counter.unattributed];

static FAMILIES: [&Family; 12] = [
    &CPU,
    &HELD,
    &UNUSED,
    &GPU_HELD,
    &GPU_BUSY,
    &GPU_IDLE,
    &MEMORY,
    &ENERGY,
    &CO2,
    &ENDED,
    &CO2_NODE,
    &CO2_UNATTRIBUTED,
];

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
        Built {
            collector: Box::new(Summarized),
            observer: Some(owners.clone()),
            source: None,
            durable: Some(owners.clone()),
            summary: Some(owners),
        }
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
        Self { labels: vec![JobLabel::User, JobLabel::Account], limit: 500, co2: None }
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
        let labels = sample.labels().map(|(_, value)| value);
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
        let mut co2 = 0_u128;
        for owner in ledger.owners() {
            let labels = || self.names.iter().copied().zip(owner.labels.iter().map(String::as_str));
            let mut latest = None;
            for total in owner.totals() {
                let Some(row) = ROWS.get(total.row) else { continue };
                let shown = row.shown(total.amount);
                if total.row == CO2_ROW {
                    co2 = co2.saturating_add(shown);
                    if self.co2.is_none() {
                        continue;
                    }
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
        }
        if let Some(row) = ROWS.get(CO2_ROW).filter(|_| self.co2.is_some()) {
            let (rest, node) = (row.shown(ledger.rest()), out.node_since(Some(snapshot.following_since)));
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
            _ if ROWS.get(row).is_some_and(|row| std::ptr::eq(row.owners, &ENERGY)) => {
                add(&mut self.energy, amount);
            }
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
