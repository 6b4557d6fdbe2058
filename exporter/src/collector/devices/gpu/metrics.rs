//! The samples of the GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exposition::{Family, Section, SubjectId, Value};
use gpu_binding::Bound;
use gpu_devices::{Fact, Quantity, SamplerState, Unit, Vendor};
use slurm_jobs::{Job, NodeSnapshot};

use super::accounts::{Accounts, UnitNow, is_fresh};
use super::rows::{
    AGE, ALLOCATED, DOWN, GPU_INFO, GPU_UP, HOLDERS, IDLE, JOB_GPUS, JOB_INFO, MEMORY, MEMORY_LIMIT,
    MEMORY_PEAK, MEMORY_SIZE, MEMORY_USED, PROCESS_BUSY, PROCESS_MEMORY, PROCESSES, STATE, TOOK, UTILIZATION,
    VACANT, WATCHED,
};
use crate::collector::{SourceError, Tally};

type Labels<'a> = [(&'static str, &'a str); 2];

/// `gpu` and `uuid`.
struct Name {
    gpu: String,
    uuid: Arc<str>,
}

impl Name {
    fn of(unit: &Unit) -> Self {
        Self { gpu: number(unit.index), uuid: unit.uuid.clone() }
    }

    fn labels(&self) -> Labels<'_> {
        [("gpu", &self.gpu), ("uuid", &self.uuid)]
    }
}

fn number(number: Option<u32>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// An amount of a quantity in its family's unit.
fn push(
    family: &'static Family,
    quantity: &Quantity,
    to: SubjectId,
    labels: Labels<'_>,
    own: &[(&'static str, &str)],
    amount: u64,
    out: &mut Section,
) {
    let labels: Vec<(&'static str, &str)> =
        labels.into_iter().chain(quantity.labels.iter().copied()).chain(own.iter().copied()).collect();
    let amount = amount.saturating_mul(quantity.counter.times);
    out.push(family, to, &labels, Value::parts(amount, quantity.counter.per_unit));
}

impl Accounts {
    pub(super) fn emit(
        &mut self,
        snapshot: &NodeSnapshot,
        sampler_states: &BTreeMap<Vendor, (SamplerState, Duration)>,
        out: &mut Section,
    ) -> Result<(), SourceError> {
        // Knowledge of jobs and GPUs comes bit by bit.
        out.expect(self.families.iter().copied());
        out.note_restarts(self.ledger.take_restarts());
        let units: Vec<Arc<str>> = self.units_of_jobs().map(|now| now.unit().uuid.clone()).collect();
        let since_start = out.node_since(Some(snapshot.following_since));
        for job in snapshot.jobs.iter().filter(|job| self.bound.contains_key(&job.run)) {
            units.iter().for_each(|uuid| self.ledger.export(job.run, uuid));
        }
        let mut tally = Tally::default();
        for (vendor, (sampler_state, took)) in sampler_states {
            let known = self.vendors.get(vendor);
            emit_driver(*vendor, sampler_state, *took, known.and_then(|known| known.read), out);
            tally.note(match sampler_state {
                SamplerState::Failed(error) => Err(error.clone()),
                SamplerState::Hanging => Err(SourceError::TimedOut),
                SamplerState::Starting | SamplerState::Running | SamplerState::Released => Ok(()),
            });
            // The first reading is here a moment before the sampler says that it runs.
            let fresh = matches!(sampler_state, SamplerState::Starting | SamplerState::Running)
                && is_fresh(known.and_then(|known| known.read), self.options.period);
            for unit in known.into_iter().flat_map(|known| &known.units) {
                self.emit_unit(unit, fresh, since_start, out);
            }
            for unit in known.into_iter().flat_map(|known| &known.gone) {
                self.emit_counts(unit.unit(), since_start, out);
            }
            if let Some(known) = known.filter(|_| fresh) {
                push_facts(&known.facts, &[], out);
                known.failed.iter().for_each(|error| {
                    tally.note::<()>(Err(error.clone()));
                });
            }
        }
        for job in &snapshot.jobs {
            if let Some(bound) = self.bound.get(&job.run) {
                self.emit_job(job, bound, snapshot, out);
            }
        }
        self.problems.iter().for_each(|problem| {
            tally.note::<()>(Err(problem.clone()));
        });
        tally.result()
    }

    fn emit_unit(&self, now: &UnitNow, fresh: bool, since_start: SubjectId, out: &mut Section) {
        let (unit, name) = (now.unit(), Name::of(now.unit()));
        let labels = name.labels();
        emit_info(unit, labels, out);
        out.push(&GPU_UP, SubjectId::NODE, &labels, u64::from(fresh && now.sample.down.is_none()));
        if let Some(reason) = now.sample.down {
            out.push(&DOWN, SubjectId::NODE, &[labels[0], labels[1], ("reason", reason)], 1);
        }
        if !unit.divided {
            out.push(&HOLDERS, SubjectId::NODE, &labels, self.ledger.holders(&unit.uuid) as u64);
        }
        self.emit_counts(unit, since_start, out);
        if let Some((watched, vacant)) = self.ledger.watched(&unit.uuid).filter(|_| !unit.divided) {
            out.push(&WATCHED, since_start, &labels, Value::seconds(watched));
            out.push(&VACANT, since_start, &labels, Value::seconds(vacant));
        }
        if fresh && now.sample.down.is_none() {
            if let Some(memory) = now.sample.memory {
                out.push(&MEMORY_SIZE, SubjectId::NODE, &labels, memory.total);
                let states =
                    [("used", Some(memory.used)), ("free", Some(memory.free)), ("reserved", memory.reserved)];
                for (state, bytes) in states {
                    if let Some(bytes) = bytes {
                        out.push(&MEMORY, SubjectId::NODE, &[labels[0], labels[1], ("state", state)], bytes);
                    }
                }
            }
            push_facts(&now.sample.facts, &labels, out);
        }
    }

    /// What is counted of a unit: the sum over jobs, and what no job is charged with.
    fn emit_counts(&self, unit: &Unit, since_start: SubjectId, out: &mut Section) {
        let name = Name::of(unit);
        for (quantity, account) in self.ledger.accounts(&unit.uuid) {
            let (rows, labels) = (quantity.counter, name.labels());
            push(&rows.gpu, quantity, since_start, labels, &[], account.exported_total(), out);
            push(&rows.unattributed, quantity, since_start, labels, &[], account.residual(), out);
        }
    }

    fn emit_job(&self, job: &Job, bound: &Bound, snapshot: &NodeSnapshot, out: &mut Section) {
        let subject = out.subject_since(job.labels(), job.followed_from(snapshot));
        if job.is_running() {
            let source = [("source", bound.source.as_str())];
            out.push(&JOB_GPUS, subject, &source, bound.units.len() as u64);
        }
        let instant = Instant::now();
        for (uuid, allocated) in self.ledger.allocated(job.run, instant) {
            let Some(now) = self.units_of_jobs().find(|now| now.unit().uuid == uuid) else { continue };
            let name = Name::of(now.unit());
            let labels = name.labels();
            let shared = self.shared.contains(&(job.run, uuid.clone()));
            emit_job_info(now.unit(), bound, shared, labels, subject, out);
            out.push(&ALLOCATED, subject, &labels, Value::seconds(allocated));
            if let Some(usage) = self.ledger.usage(job.run, &uuid) {
                out.push(&IDLE, subject, &labels, Value::seconds(usage.idle));
                let last =
                    usage.last.filter(|(_, at)| job.is_running() && is_fresh(Some(*at), self.options.period));
                if let Some((thousandths, _)) = last {
                    out.push(&UTILIZATION, subject, &labels, f64::from(thousandths) / 1000.0);
                }
            }
            if let Some(peak) = self.peaks.get(&(job.run, uuid.clone())) {
                out.push(&MEMORY_PEAK, subject, &labels, *peak);
            }
            // A job that ends between two scrapes has a part of it that it used, too.
            if let Some(memory) = now.sample.memory {
                out.push(&MEMORY_LIMIT, subject, &labels, memory.total);
            }
            let vendor = self.vendors.get(&now.unit().vendor);
            let fresh = is_fresh(vendor.and_then(|vendor| vendor.read), self.options.period)
                && now.sample.down.is_none();
            if job.is_running() && fresh && bound.units.contains(&uuid) {
                self.emit_job_now(job, now, labels, subject, out);
            }
        }
        // Energy of a divided GPU is charged where it is measured, and the jobs on its parts did not hold the whole.
        for now in self.units_of_jobs() {
            let name = Name::of(now.unit());
            for (quantity, account) in self.ledger.accounts(&now.unit().uuid) {
                let split = [Quantity::BUSY, Quantity::ENERGY].contains(&quantity);
                for (method, amount) in account.of(job.run) {
                    let own = [("method", method.as_str())];
                    let own = if split { own.as_slice() } else { &[] };
                    push(&quantity.counter.job, quantity, subject, name.labels(), own, amount, out);
                }
            }
        }
    }

    fn emit_job_now(
        &self,
        job: &Job,
        now: &UnitNow,
        labels: Labels<'_>,
        subject: SubjectId,
        out: &mut Section,
    ) {
        if let Some(used) = self.memory_of(job.run, now) {
            out.push(&MEMORY_USED, subject, &labels, used);
        }
        let Some(own) = now.of(job.run) else { return };
        out.push(&PROCESSES, subject, &labels, own.clone().count() as u64);
        for process in own.filter(|_| self.options.processes) {
            let pid = process.pid.to_string();
            let labels = [labels[0], labels[1], ("pid", &*pid)];
            if let Some(memory) = process.memory {
                out.push(&PROCESS_MEMORY, subject, &labels, memory);
            }
            if let Some(busy) = process.busy_ns {
                out.push(&PROCESS_BUSY, subject, &labels, Value::nano(busy));
            }
        }
    }
}

fn emit_driver(
    vendor: Vendor,
    sampler_state: &SamplerState,
    took: Duration,
    read: Option<Instant>,
    out: &mut Section,
) {
    let vendor = ("vendor", vendor.as_str());
    for state in SamplerState::WORDS {
        let is = u64::from(state == sampler_state.as_str());
        out.push(&STATE, SubjectId::NODE, &[vendor, ("state", state)], is);
    }
    if let Some(read) = read {
        out.push(&AGE, SubjectId::NODE, &[vendor], read.elapsed().as_secs_f64());
        out.push(&TOOK, SubjectId::NODE, &[vendor], took.as_secs_f64());
    }
}

fn emit_info(unit: &Unit, labels: Labels<'_>, out: &mut Section) {
    let minor = number(unit.minor);
    let part = unit.part.as_ref();
    let gpu_instance = number(part.map(|part| part.gpu_instance));
    let compute_instance = number(part.map(|part| part.compute_instance));
    let labels = [
        labels[0],
        labels[1],
        ("vendor", unit.vendor.as_str()),
        ("model", &*unit.model),
        ("minor", &minor),
        ("pci_bus_id", unit.pci.as_deref().unwrap_or_default()),
        ("divided", if unit.divided { "true" } else { "false" }),
        ("parent", part.map_or("", |part| &part.parent)),
        ("gpu_instance", &gpu_instance),
        ("compute_instance", &compute_instance),
        ("profile", part.map_or("", |part| &part.profile)),
    ];
    out.push(&GPU_INFO, SubjectId::NODE, &labels, 1);
}

fn emit_job_info(
    unit: &Unit,
    bound: &Bound,
    shared: bool,
    labels: Labels<'_>,
    subject: SubjectId,
    out: &mut Section,
) {
    let minor = number(unit.minor);
    let part = unit.part.as_ref();
    let labels = [
        labels[0],
        labels[1],
        ("vendor", unit.vendor.as_str()),
        ("model", &*unit.model),
        ("profile", part.map_or("", |part| &part.profile)),
        ("parent", part.map_or("", |part| &part.parent)),
        ("minor", &minor),
        ("source", bound.source.as_str()),
        ("shared", if shared { "true" } else { "false" }),
    ];
    out.push(&JOB_INFO, subject, &labels, 1);
}

fn push_facts(facts: &[Fact], unit: &[(&'static str, &str)], out: &mut Section) {
    for fact in facts {
        let own = fact.labels.iter().map(|(key, value)| (*key, &**value));
        let labels: Vec<(&'static str, &str)> = unit.iter().copied().chain(own).collect();
        out.push(fact.family, SubjectId::NODE, &labels, fact.value);
    }
}
