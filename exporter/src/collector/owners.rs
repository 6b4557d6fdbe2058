//! What owners of jobs (users, accounts, partitions, QOS) used on this node, in counters that outlive the jobs.
//!
//! Reads no file. At the end of each collection [`Summary::take_in`] takes the jobs' samples of all collectors, and adds
//! what grew since the last collection to the owner that the job has now. What was added is never moved. So at each
//! page the owners have what the jobs were exported with, to the last digit. Any kernel, no privilege.

mod ledger;

use std::collections::HashMap;
use std::sync::Arc;

use exposition::{Family, Profile, Section};
use gpu_devices::Quantity;
use ledger::{Growth, Ledger, Saved};
use parking_lot::Mutex;
use slurm_jobs::table::JobLabel;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, NodeSnapshot, Users};

use crate::collector::devices::energy::metrics::JOB_ENERGY;
use crate::collector::devices::gpu::rows;
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::job::cpu::CPU_SECONDS;
use crate::collector::job::{cpuset, memory};
use crate::collector::{Built, Collector, Entry, SourceError, Summary};

const LABELS: &[&str] = &["user", "account", "partition", "qos"];
const LABELS_AND_DOMAIN: &[&str] = &["user", "account", "partition", "qos", "domain"];

static CPU: Family = Family::counter("jobledger_owner_cpu_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("CPU time of the owner's jobs on this node, those too that are over");
static HELD: Family = Family::counter("jobledger_owner_allocated_cpu_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("CPUs that the owner's jobs might use times their time on this node");
static UNUSED: Family =
    Family::counter("jobledger_owner_unused_cpu_seconds_total").profile(Profile::Lean).labels(LABELS).help(
        "CPU time that the owner's jobs had and did not use: the most by which \
     the allocated time of each exceeded its CPU time so far",
    );
static GPU_HELD: Family = Family::counter("jobledger_owner_gpu_allocated_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Time for which the owner's jobs had GPUs, summed over GPUs");
static GPU_BUSY: Family = Family::counter("jobledger_owner_gpu_busy_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Time in which kernels of the owner's jobs ran, summed over GPUs");
static GPU_IDLE: Family = Family::counter("jobledger_owner_gpu_idle_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Time for which the owner's jobs had GPUs and ran no kernel, as far as that was seen");
static MEMORY: Family = Family::counter("jobledger_owner_memory_allocated_byte_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Memory limit of the owner's jobs times their time on this node, in bytes times seconds");
static ENERGY: Family =
    Family::counter("jobledger_owner_energy_joules_total").profile(Profile::Lean).labels(LABELS_AND_DOMAIN).help(
        "Energy charged to the owner's jobs; the domains are disjoint and may be added up, gpu is that of GPUs",
    );
static ENDED: Family = Family::counter("jobledger_owner_jobs_ended_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Jobs of the owner that ended on this node, a requeued one each time");

/// One total of each owner.
struct Row {
    owners: &'static Family,
    /// Digits after the point that the total has: the finest of the jobs' values.
    places: u32,
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
        Self { owners, places, jobs: None, domain: None, by_directory: false, merged: None }
    }

    const fn of(self, jobs: fn() -> &'static Family) -> Self {
        Self { jobs: Some(jobs), ..self }
    }
}

const CPU_ROW: usize = 0;
const HELD_ROW: usize = 1;
const UNUSED_ROW: usize = 2;
const ENDED_ROW: usize = 3;

static ROWS: [Row; 10] = [
    Row { by_directory: true, merged: Some("mode"), ..Row::new(&CPU, 6).of(|| &CPU_SECONDS.job) },
    Row::new(&HELD, 6).of(|| &cpuset::ALLOCATED),
    Row::new(&UNUSED, 6),
    Row::new(&ENDED, 0),
    Row::new(&GPU_HELD, 9).of(|| &rows::ALLOCATED),
    Row::new(&GPU_BUSY, 9).of(|| &Quantity::BUSY.counter.job),
    Row::new(&GPU_IDLE, 9).of(|| &rows::IDLE),
    Row::new(&MEMORY, 0).of(|| &memory::ALLOCATED),
    Row { domain: Some(Domain::Kept), ..Row::new(&ENERGY, 6).of(|| &JOB_ENERGY) },
    Row { domain: Some(Domain::Is("gpu")), ..Row::new(&ENERGY, 6).of(|| &Quantity::ENERGY.counter.job) },
];

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "owners",
    summary: "What users and accounts used on the node, in counters that outlive their jobs",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&CPU, &HELD, &UNUSED, &GPU_HELD, &GPU_BUSY, &GPU_IDLE, &MEMORY, &ENERGY, &ENDED],
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
}

impl Default for OwnerOptions {
    fn default() -> Self {
        Self { labels: vec![JobLabel::User, JobLabel::Account], limit: 500 }
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
    /// The jobs' families of [`ROWS`].
    families: Vec<Option<&'static Family>>,
    ledger: Mutex<Ledger>,
}

impl Owners {
    fn new(options: OwnerOptions, users: Arc<Users>) -> Self {
        let names: Vec<&'static str> = options.labels.iter().map(|label| name(*label)).collect();
        Self {
            ledger: Mutex::new(Ledger::new(names.len(), options.limit)),
            labels: options.labels,
            names,
            users,
            families: ROWS.iter().map(|row| row.jobs.map(|jobs| jobs())).collect(),
        }
    }

    /// Whose a job is, as far as it is known now.
    fn owner_of(&self, job: &Job) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let metadata = &job.metadata;
        let of = |label: &JobLabel| match label {
            JobLabel::User => {
                let name = job.uid.and_then(|uid| self.users.name(uid)).map(|name| name.to_string());
                let uid = || job.uid.map(|uid| uid.to_string());
                name.or_else(|| metadata.user.clone()).or_else(uid).unwrap_or_default()
            }
            JobLabel::Account => text(&metadata.account),
            JobLabel::Partition => text(&metadata.partition),
            JobLabel::Qos => text(&metadata.qos),
        };
        self.labels.iter().map(of).collect()
    }

    /// Takes the jobs' values of a section.
    fn take(&self, ledger: &mut Ledger, section: &Section, jobs: &HashMap<Name<'_>, &Job>) {
        let mut key = String::new();
        // The job of each subject, found when the first family needs it.
        let mut subjects: Option<Vec<Option<&Job>>> = None;
        for (family, samples) in section.families() {
            let is_of = |of: &Option<&'static Family>| of.is_some_and(|of| std::ptr::eq(of, family));
            let Some((at, row)) =
                self.families.iter().position(is_of).and_then(|at| Some((at, ROWS.get(at)?)))
            else {
                continue;
            };
            let subjects = subjects.get_or_insert_with(|| {
                let name = |labels| jobs.get(&Name::of(labels)).copied();
                section.subjects().map(|(labels, _)| name(labels)).collect()
            });
            for sample in samples {
                let Some(job) = sample.subject().and_then(|at| *subjects.get(at)?) else { continue };
                let mut domain = match row.domain {
                    Some(Domain::Is(domain)) => domain,
                    _ => "",
                };
                key.clear();
                for (label, value) in sample.own_labels().filter(|(label, _)| row.merged != Some(label)) {
                    if label == "domain" && matches!(row.domain, Some(Domain::Kept)) {
                        domain = value;
                    }
                    key.push_str(value);
                    key.push('\u{1f}');
                }
                let run = if row.by_directory { job.first_run } else { job.run };
                ledger.saw(run, at, &key, domain, sample.value().in_parts(row.places));
            }
        }
    }

    /// Adds what a job's values grew by to its owner.
    fn charge(&self, ledger: &mut Ledger, job: &Job, snapshot: &NodeSnapshot) {
        let began = job.followed_from(snapshot);
        let owner = ledger.owner(&self.owner_of(job));
        let grown = |ledger: &Ledger, run, by_directory: bool| -> Vec<Growth> {
            let of = |at: usize| ROWS.get(at).is_some_and(|row| row.by_directory == by_directory);
            ledger.growths(run).filter(|growth| of(growth.row)).collect()
        };
        let mut growths = grown(ledger, job.first_run, true);
        growths.extend(grown(ledger, job.run, false));
        ledger.settle(job.first_run);
        ledger.settle(job.run);
        let of = |row| {
            let mut all = growths.iter().filter(|growth| growth.row == row).map(|growth| growth.amount);
            all.next().map(|first| all.fold(first, u128::saturating_add))
        };
        let (used, held) = (of(CPU_ROW), of(HELD_ROW));
        for growth in &growths {
            ledger.add(owner, growth.row, &growth.domain, growth.amount, began);
        }
        if let Some(unused) = ledger.unused(job.run, job.first_run, used, held) {
            ledger.add(owner, UNUSED_ROW, "", unused, began);
        }
        let ended = ledger.ended(job.run, job.first_run, !job.is_running());
        ledger.add(owner, ENDED_ROW, "", ended, began);
    }

    fn emit(&self, ledger: &Ledger, out: &mut Section) {
        out.expect((ENTRY.families)());
        for owner in ledger.owners() {
            let labels = || self.names.iter().copied().zip(owner.labels.iter().map(String::as_str));
            let mut latest = None;
            for total in owner.totals() {
                let Some(row) = ROWS.get(total.row) else { continue };
                // Most of them began together.
                let subject = match latest {
                    Some((began, subject)) if began == total.began => subject,
                    _ => out.subject_since(labels(), total.began),
                };
                latest = Some((total.began, subject));
                let value = exposition::Value::of_parts(total.amount, row.places);
                let domain = [("domain", total.domain.as_str())];
                let own = if row.domain.is_some() { domain.as_slice() } else { &[] };
                out.push(row.owners, subject, own, value);
            }
        }
    }
}

/// What distinguishes the jobs of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Name<'a> {
    id: Option<&'a str>,
    node: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn of(labels: impl Iterator<Item = (&'static str, &'a str)>) -> Self {
        labels.fold(Self::default(), |name, (key, value)| match key {
            "jobid" => Self { id: Some(value), ..name },
            "slurm_node" => Self { node: Some(value), ..name },
            _ => name,
        })
    }
}

impl Summary for Owners {
    fn take_in(&self, snapshot: &NodeSnapshot, sections: &[(usize, Arc<Section>)]) {
        let jobs: HashMap<Name<'_>, &Job> =
            snapshot.jobs.iter().map(|job| (Name::of(job.labels()), &**job)).collect();
        let mut ledger = self.ledger.lock();
        for (_, section) in sections {
            self.take(&mut ledger, section, &jobs);
        }
        for job in &snapshot.jobs {
            self.charge(&mut ledger, job, snapshot);
        }
    }

    fn summarize(&self, snapshot: &NodeSnapshot, sections: &[(usize, Arc<Section>)], out: &mut Section) {
        self.take_in(snapshot, sections);
        let mut ledger = self.ledger.lock();
        ledger.end_collection();
        self.emit(&ledger, out);
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
