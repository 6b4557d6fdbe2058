//! CPU time and throttling of jobs, and the node's CPU ledger of SLURM.
//!
//! v2: `cpu.stat` (Documentation/admin-guide/cgroup-v2.rst; `usage_usec` without the cpu controller since 4.15).
//! v1: `cpuacct.usage`, exact, split by `cpuacct.stat`, sampled (Documentation/admin-guide/cgroup-v1/cpuacct.rst);
//! `cpu.stat` for throttling. A job's time has its slurmstepd in it; sacct counts the
//! tasks alone. Needs no privilege.

use std::collections::HashMap;
use std::sync::Arc;

use attribution::{Exported, Reading, ScopeLedger};
use cgroups::cpu::CpuStat;
use cgroups::{Controller, Version, View};
use exposition::{Family, PerCgroup, Profile, Section, SubjectId, Value};
use kernel_files::Buffer;
use parking_lot::Mutex;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use slurm_jobs::{Disposition, Job, JobRunId, NodeSnapshot, RemovedCgroup, SlurmCgroup};

use crate::collector::durable::{Before, Unreadable};
use crate::collector::per_cgroup::{CgroupSource, Emit, Group, Readings, build};
use crate::collector::{Entry, SourceError};

pub(in crate::collector) static CPU_SECONDS: PerCgroup = Family::counter("jobledger_job_cpu_seconds_total")
    .profile(Profile::Lean)
    .labels(&["mode"])
    .help(
        "CPU time by mode, slurmstepd included; mode unsplit is time that only \
         the sum over the node shows, spent between the last reading and the end",
    )
    .per_cgroup("jobledger_step_cpu_seconds_total", "jobledger_task_cpu_seconds_total");
static THROTTLED: PerCgroup = Family::counter("jobledger_job_cpu_throttled_seconds_total")
    .help("Time in which a CPU bandwidth limit held tasks back, summed over CPUs")
    .per_cgroup("jobledger_step_cpu_throttled_seconds_total", "jobledger_task_cpu_throttled_seconds_total");
static NODE_CPU: Family =
    Family::counter("jobledger_node_slurm_cpu_seconds_total").profile(Profile::Lean).help(
        "CPU time in SLURM's cgroups since this exporter started, that of \
     jobs then running included: the sum over jobs plus the unattributed",
    );
static NODE_UNATTRIBUTED: Family =
    Family::counter("jobledger_node_slurm_cpu_unattributed_seconds_total").profile(Profile::Lean).help(
        "CPU time in SLURM's cgroups that no job can be charged with, \
         such as slurmstepd starting and cleaning up",
    );

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "cpu",
    summary: "CPU time and throttling of jobs, and the CPU time of SLURM that no job can be charged with",
    default_on: true,
    cost: None,
    capabilities: CapabilitySet::empty(),
    families: || {
        let mut rows: Vec<&'static Family> = Vec::new();
        for family in [&CPU_SECONDS, &THROTTLED] {
            rows.extend([&family.job, &family.step, &family.task]);
        }
        rows.extend([&NODE_CPU, &NODE_UNATTRIBUTED]);
        rows
    },
    build: |_| build(Cpu::default()),
};

/// All CPU time of a cgroup, microseconds; `None` when it cannot be read (any more).
pub(in crate::collector) fn cpu_time(view: &View<'_>, buffer: &mut Buffer) -> Option<u64> {
    cgroups::cpu::read(view, buffer).ok()?.usage_usec
}

/// Whether a job that runs has lost the directory that counted its CPU time: on v1 SLURM removes that of freezer, whose removal is the
/// job's end, after it (slurmstepd.c, proctrack_g_destroy comes last).
fn counts_no_more(job: &Job) -> bool {
    let v1 = job.is_running() && job.cgroup.version() == Version::V1;
    v1 && job.cgroup.dir(Controller::Cpuacct).is_some_and(|dir| !dir.has("cgroup.procs"))
}

/// A job's CPU time: the last reading, and what was found to be used after it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct CpuReading {
    stat: CpuStat,
    late_usec: u64,
    /// The first run in the directory that was read.
    first_run: Option<JobRunId>,
    /// v1: the directory that counted, and what directories before it did: a step that ends may remove the job's
    /// directory, and the next step makes it again.
    directory: Option<u64>,
    carried: CpuStat,
}

impl CpuReading {
    /// Makes a fresh reading the one after `last`.
    fn follow(&mut self, job: &Job, last: Option<&Self>) {
        self.first_run = Some(job.first_run);
        if job.cgroup.version() == Version::V1 {
            self.carry_on(job, last.unwrap_or(&Self::default()));
        }
    }

    /// Adds what was counted in directories of this job that are gone. They are identified by inode and not by a
    /// count that fell: two threads read, and the one that reads first may come in second.
    fn carry_on(&mut self, job: &Job, last: &Self) {
        self.directory =
            job.cgroup.dir(Controller::Cpuacct).and_then(|dir| dir.stat().ok()).map(|stat| stat.inode);
        if self.stat.usage_usec.is_none() || self.directory.is_none() {
            *self = Self { first_run: self.first_run, ..*last };
            return;
        }
        let anew = last.directory.is_some() && last.directory != self.directory;
        self.carried = if anew { last.stat } else { last.carried };
        let add = |now: &mut Option<u64>, before: Option<u64>| {
            *now = now.map(|now| now.saturating_add(before.unwrap_or(0)));
        };
        add(&mut self.stat.usage_usec, self.carried.usage_usec);
        add(&mut self.stat.user_usec, self.carried.user_usec);
        add(&mut self.stat.system_usec, self.carried.system_usec);
        self.stat.keep_from_falling(&last.stat);
    }
}

impl CpuReading {
    fn total(&self) -> u64 {
        self.stat.usage_usec.unwrap_or(0).saturating_add(self.late_usec)
    }
}

/// A number that no kernel should give must not end in a panic.
fn sum(usec: impl IntoIterator<Item = u64>) -> u64 {
    usec.into_iter().fold(0, u64::saturating_add)
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct CpuAccounts {
    ledger: ScopeLedger,
    /// Last reading of every scope, by the inode of its directory; one that is gone keeps its last.
    scopes: HashMap<u64, u64>,
    /// By the first job run in a directory. A job may be read again while a scrape is made, and a directory left
    /// behind is read without being exported.
    exported: Exported<u64>,
    /// Of job runs that are not retained any more: all that they spent, and the part of it that is unattributed.
    gone_usec: u64,
    unseen_usec: u64,
    /// What superseded runs spent, by the first run in their directory, until a run after them is read: its reading has it.
    #[serde(skip)]
    superseded: HashMap<JobRunId, u64>,
    /// Sum over the scopes before the job directories were listed for the last scrape: whatever is in it was spent by runs
    /// that are known, so that nothing of it is taken for unexplained. An old one only proves less.
    before: Option<u64>,
    /// The same before runs ended last. A scrape has not read all runs since.
    #[serde(skip)]
    before_end: Option<u64>,
    /// Whether a run ended since the ledger was read last: the next one is not charged with its time.
    #[serde(skip)]
    unobserved: bool,
    /// SLURM's own processes beside the jobs (`system` of v2): a known part of the residual.
    own: HashMap<u64, u64>,
    own_base: Option<u64>,
}

/// The source.
#[derive(Debug, Default)]
pub struct Cpu {
    accounts: Mutex<CpuAccounts>,
}

impl Cpu {
    fn accounts(&self) -> parking_lot::MutexGuard<'_, CpuAccounts> {
        self.accounts.lock()
    }
}

impl CpuAccounts {
    /// Sum over the scopes; a scope that is gone counts with its last reading.
    fn read_scopes(&mut self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) -> Option<u64> {
        for scope in scopes {
            if let Ok(CpuStat { usage_usec: Some(usage), .. }) =
                cgroups::cpu::read(&scope.cgroup.view(), buffer)
            {
                self.scopes.insert(inode(scope), usage);
            }
        }
        (!self.scopes.is_empty()).then(|| sum(self.scopes.values().copied()))
    }

    fn read_own(&mut self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) -> u64 {
        for scope in scopes {
            if let Some(view) = scope.cgroup.view().below(format_args!("system"))
                && let Ok(CpuStat { usage_usec: Some(usage), .. }) = cgroups::cpu::read(&view, buffer)
            {
                self.own.insert(inode(scope), usage);
            }
        }
        sum(self.own.values().copied())
    }

    /// Emits the sums of the node, if SLURM's roots could be read.
    fn emit_jobs(
        &mut self,
        snapshot: &NodeSnapshot,
        readings: &Readings<CpuReading>,
        buffer: &mut Buffer,
        out: &mut Section,
    ) -> Option<()> {
        let own = self.read_own(&snapshot.scopes, buffer);
        let own_since = own.saturating_sub(*self.own_base.get_or_insert(own));
        let before = self.before?;
        let after = self.read_scopes(&snapshot.scopes, buffer)?;
        let jobs = self.jobs_usec(readings);
        // What a job that is just ending used since its last reading is no overhead: its end separates that.
        let mut there = snapshot.jobs.iter().chain(&snapshot.pending);
        if !readings.is_incomplete() && !there.any(|job| counts_no_more(job)) {
            self.observe(Reading { before, jobs: sum([jobs, own]), after });
        }
        let residual = sum([self.ledger.residual(), own_since, self.unseen_usec]);
        let total = sum([self.exported.total(), residual]);
        // Jobs that ran when the exporter started brought what they had spent, so the total did not begin at 0.
        out.push(&NODE_CPU, SubjectId::NODE, &[], Value::micro(total));
        let since_start = out.node_since(Some(snapshot.following_since));
        out.push(&NODE_UNATTRIBUTED, since_start, &[], Value::micro(residual));
        Some(())
    }

    fn jobs_usec(&mut self, readings: &Readings<CpuReading>) -> u64 {
        self.superseded.retain(|first, _| !readings.any(|reading| reading.first_run == Some(*first)));
        sum(self.superseded.values().copied().chain([readings.sum(), self.gone_usec]))
    }

    fn observe(&mut self, reading: Reading) {
        self.ledger.observe(reading);
        self.unobserved = false;
    }
}

/// Of the directory that is open: on v1 a root that is made anew has the identity of the one before it, and counts from 0.
fn inode(scope: &SlurmCgroup) -> u64 {
    scope.cgroup.dirs().next().and_then(|dir| dir.stat().ok()).map_or(scope.inode, |stat| stat.inode)
}

impl CgroupSource for Cpu {
    type Reading = CpuReading;

    fn read(&self, Group { view, .. }: &Group<'_>, buffer: &mut Buffer) -> Result<CpuReading, SourceError> {
        Ok(CpuReading { stat: cgroups::cpu::read(view, buffer)?, ..CpuReading::default() })
    }

    fn complete(
        &self,
        job: &Job,
        last: Option<&CpuReading>,
        fresh: &mut CpuReading,
        _buffer: &mut Buffer,
    ) -> Result<(), SourceError> {
        fresh.follow(job, last);
        Ok(())
    }

    fn amount(reading: &CpuReading) -> u64 {
        reading.total()
    }

    fn shown(&self, reading: &CpuReading) {
        if let Some(run) = reading.first_run {
            self.accounts().exported.show(run, reading.total());
        }
    }

    fn emit(&self, reading: &CpuReading, out: &mut Emit<'_>) {
        let stat = &reading.stat;
        out.push(&CPU_SECONDS, &[("mode", "user")], stat.user_usec.map(Value::micro));
        out.push(&CPU_SECONDS, &[("mode", "system")], stat.system_usec.map(Value::micro));
        let late = (reading.late_usec > 0).then(|| Value::micro(reading.late_usec));
        out.push(&CPU_SECONDS, &[("mode", "unsplit")], late);
        out.push(&THROTTLED, &[], stat.throttled_usec.map(Value::micro));
    }

    fn before_walk(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        let mut accounts = self.accounts();
        accounts.before = accounts.read_scopes(scopes, buffer);
    }

    fn before_end(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        let mut accounts = self.accounts();
        accounts.before_end = accounts.read_scopes(scopes, buffer);
    }

    fn begin(&self, snapshot: &NodeSnapshot, buffer: &mut Buffer) -> Result<(), SourceError> {
        let mut accounts = self.accounts();
        if accounts.before.is_none() {
            accounts.before = accounts.read_scopes(&snapshot.scopes, buffer);
        }
        Ok(())
    }

    fn finish(
        &self,
        snapshot: &NodeSnapshot,
        readings: &mut Readings<CpuReading>,
        buffer: &mut Buffer,
        out: &mut Section,
    ) -> Result<(), SourceError> {
        self.accounts().emit_jobs(snapshot, readings, buffer, out);
        // One of several may be without for a moment, while SLURM makes its directories.
        let running = || snapshot.jobs.iter().filter(|job| job.is_running());
        if running().next().is_some() && !running().any(|job| job.cgroup.view().has(Controller::Cpuacct)) {
            let needs = "the cpuacct controller in SLURM's cgroups: JobAcctGatherType=jobacct_gather/cgroup in slurm.conf";
            return Err(SourceError::Unsupported { needs: needs.to_owned() });
        }
        Ok(())
    }

    fn vanished(&self, gone: &RemovedCgroup<'_>, readings: &mut Readings<CpuReading>, buffer: &mut Buffer) {
        let mut accounts = self.accounts();
        let mut proven = !std::mem::replace(&mut accounts.unobserved, true) && gone.alone;
        // Proving the late time would cost a reading of all others: it is left in the residual.
        let Some(others) = gone.others else { return };
        let Some(before) = accounts.before_end else { return };
        // What no reading explains is this job's alone only if every other one that runs was read (see counts_no_more).
        // What a directory left behind had used without ever being read is in the residual already.
        for other in others {
            if !other.is_running() && readings.job(other.run).is_none() {
                continue;
            }
            match cgroups::cpu::read(&other.cgroup.view(), buffer) {
                Ok(stat) if stat.usage_usec.is_some() => {
                    let mut fresh = CpuReading { stat, ..CpuReading::default() };
                    fresh.follow(other, readings.job(other.run).as_deref());
                    readings.insert(other.run, None, fresh);
                }
                _ => proven &= !other.is_running() || other.run == gone.job.run,
            }
        }
        let own = accounts.read_own(gone.scopes, buffer);
        let Some(after) = accounts.read_scopes(gone.scopes, buffer) else { return };
        let mut round = Reading { before, jobs: sum([accounts.jobs_usec(readings), own]), after };
        if proven {
            let late = accounts.ledger.late_time(round);
            let unread = CpuReading { first_run: Some(gone.job.first_run), ..CpuReading::default() };
            let last = readings.job(gone.job.run).as_deref().copied().unwrap_or(unread);
            let late_usec = sum([last.late_usec, late]);
            readings.insert(gone.job.run, None, CpuReading { late_usec, ..last });
            round.jobs = sum([round.jobs, late]);
        }
        accounts.observe(round);
    }

    fn save(&self) -> Vec<u8> {
        durable_state::encode(&*self.accounts())
    }

    fn restore(&self, saved: &[u8], _before: &Before) -> Result<(), Unreadable> {
        // Jobs may have come and gone meanwhile.
        *self.accounts() = CpuAccounts { unobserved: true, ..durable_state::decode(saved)? };
        Ok(())
    }

    fn forget(&self, _run: JobRunId, last: Option<&CpuReading>, disposition: Disposition) {
        let Some(last) = last else { return };
        let mut accounts = self.accounts();
        // It is exported as before until the next job run in its directory is.
        if disposition == Disposition::Superseded {
            if let Some(first) = last.first_run {
                accounts.superseded.insert(first, last.total());
            }
            return;
        }
        // Its whole CPU time remains in the sum over the jobs. Without this it would be unexplained, and be charged
        // to the next job that ends.
        accounts.gone_usec = sum([accounts.gone_usec, last.total()]);
        let unseen = match last.first_run {
            Some(run) => accounts.exported.drop_run(run, last.total()),
            None => last.total(),
        };
        // CPU time in a directory from before this exporter counts nowhere.
        if disposition != Disposition::Foreign {
            accounts.unseen_usec = sum([accounts.unseen_usec, unseen]);
        }
    }
}

#[cfg(test)]
mod tests;
