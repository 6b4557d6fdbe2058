//! CPU time that jobs had: their CPUs times their time on this node.
//!
//! SLURM gives a job its CPUs at its start and sets its cpuset some moments later, and an exporter may start later
//! still. So the first value read counts from the job's start, and each value until another is read.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use slurm_jobs::{Job, JobRunId};

use crate::collector::durable::{Before, Unreadable};

/// What one job had.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Account {
    /// CPUs at the first reading. Its start is not kept: it may be corrected.
    first: f64,
    /// CPUs at the last reading, and since when they are other than before, seconds since the epoch.
    cpus: f64,
    since: f64,
    /// Until then: CPU seconds beyond those that `first` gives, or less.
    beyond: f64,
    /// The most that was ever exported, or could have been.
    most: f64,
}

impl Account {
    fn new(cpus: f64) -> Self {
        Self { first: cpus, cpus, since: 0.0, beyond: 0.0, most: 0.0 }
    }

    fn beyond(&self, at: f64) -> f64 {
        self.beyond + (self.cpus - self.first) * (at - self.since)
    }

    fn change(&mut self, cpus: f64, at: f64) {
        (self.beyond, self.cpus, self.since) = (self.beyond(at), cpus, at);
    }

    /// CPU seconds from a start until `at`. A clock that is set back, or a start that is found to be later, takes nothing back.
    fn until(&mut self, started: f64, at: f64) -> f64 {
        self.most = self.most.max(self.first * (at - started) + self.beyond(at));
        self.most
    }
}

/// The allocation of every job that is still exported. Kept beside the last readings: two threads read a job, and the
/// one that reads first may come in second.
#[derive(Debug, Default)]
pub(super) struct Allocated(Mutex<HashMap<JobRunId, Account>>);

impl Allocated {
    fn accounts(&self) -> MutexGuard<'_, HashMap<JobRunId, Account>> {
        // A panic while it was held was caught and counted; an account is never left half-written.
        self.0.lock()
    }

    /// Whether a job's CPUs were ever read.
    pub(super) fn knows(&self, run: JobRunId) -> bool {
        self.accounts().contains_key(&run)
    }

    /// A job was read; `cpus` is `None` when it is not known which it may use.
    pub(super) fn read(&self, job: &Job, cpus: Option<u64>, at: f64) {
        #[expect(clippy::cast_precision_loss, reason = "no machine has 2^53 CPUs")]
        let cpus = cpus.map(|cpus| cpus as f64);
        let mut accounts = self.accounts();
        if let Some(cpus) = cpus {
            let account = accounts.entry(job.run).or_insert_with(|| Account::new(cpus));
            if account.cpus != cpus {
                account.change(cpus, at);
            }
        }
        if let Some(account) = accounts.get_mut(&job.run) {
            account.until(job.started, at);
        }
    }

    /// CPU seconds until the job's end, or until it was read last.
    pub(super) fn seconds(&self, job: &Job) -> Option<f64> {
        let mut accounts = self.accounts();
        let account = accounts.get_mut(&job.run)?;
        Some(job.ended.map_or(account.most, |ended| account.until(job.started, ended)))
    }

    /// The accounts, to be saved.
    pub(super) fn save(&self) -> Vec<u8> {
        durable_state::encode(&*self.accounts())
    }

    /// Takes over the accounts of an exporter before this one: what jobs had until then remains theirs.
    pub(super) fn restore(&self, saved: &[u8], before: &Before) -> Result<(), Unreadable> {
        let mut accounts: HashMap<JobRunId, Account> = durable_state::decode(saved)?;
        accounts.retain(|run, _| before.knows(*run));
        *self.accounts() = accounts;
        Ok(())
    }

    /// The job is not exported any more.
    pub(super) fn forget(&self, run: JobRunId) {
        self.accounts().remove(&run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, job};

    /// A job that started at 1000.
    fn started() -> Job {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        job(7, machine.v2("job_7"), &[])
    }

    #[test]
    fn what_is_read_first_counts_from_the_start_and_then_until_something_else_is() {
        let (had, job) = (Allocated::default(), started());
        let read = |cpus, at| {
            had.read(&job, cpus, at);
            had.seconds(&job)
        };
        assert_eq!(read(None, 1001.0), None, "not bound yet");
        assert_eq!(read(Some(4), 1002.5), Some(10.0));
        assert_eq!(read(Some(4), 1010.0), Some(40.0));
        assert_eq!(read(Some(16), 1020.0), Some(80.0), "it has more from now on");
        assert_eq!(read(Some(16), 1030.0), Some(240.0));
        assert_eq!(read(None, 1031.0), Some(256.0), "what is not known changes nothing");
        assert_eq!(read(Some(1), 1040.0), Some(400.0));
        assert_eq!(read(Some(1), 1050.0), Some(410.0));
        assert_eq!(had.seconds(&job), Some(410.0), "until it was read");
        for _ in 0..2 {
            assert_eq!(had.seconds(&Job { ended: Some(1060.0), ..job.clone() }), Some(420.0));
        }
    }

    #[test]
    fn a_start_that_is_corrected_counts_as_it_is_and_takes_nothing_back() {
        let (had, first) = (Allocated::default(), started());
        had.read(&first, Some(2), 1100.0);
        had.read(&first, Some(3), 1110.0);
        assert_eq!(had.seconds(&first), Some(220.0));
        let earlier = Job { started: 900.0, ..first.clone() };
        had.read(&earlier, Some(3), 1120.0);
        assert_eq!(had.seconds(&earlier), Some(2.0 * 210.0 + 3.0 * 10.0));
        let later = Job { started: 950.0, ..first };
        had.read(&later, Some(3), 1121.0);
        assert_eq!(had.seconds(&later), Some(450.0), "it would be 353");
        let ended = |at| Job { ended: Some(at), ..later.clone() };
        assert_eq!(had.seconds(&ended(1122.0)), Some(450.0));
        assert_eq!(had.seconds(&ended(1220.0)), Some(2.0 * 160.0 + 3.0 * 110.0));
    }

    #[test]
    fn a_clock_that_is_set_back_takes_nothing_back() {
        let (had, job) = (Allocated::default(), started());
        for (at, seconds) in [(1010.0, 20.0), (900.0, 20.0), (1011.0, 22.0)] {
            had.read(&job, Some(2), at);
            assert_eq!(had.seconds(&job), Some(seconds));
        }
        had.forget(job.run);
        assert_eq!((had.knows(job.run), had.seconds(&job)), (false, None));
    }

    #[test]
    fn another_run_begins_anew() {
        let (had, first) = (Allocated::default(), started());
        had.read(&first, Some(2), 1100.0);
        let second = Job { run: JobRunId(8), started: 1200.0, ..first };
        assert_eq!((had.knows(second.run), had.seconds(&second)), (false, None));
        had.read(&second, Some(8), 1201.0);
        assert_eq!(had.seconds(&second), Some(8.0));
    }
}
