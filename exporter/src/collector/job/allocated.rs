//! What jobs had of a resource over time: their CPUs, or their memory's limit, times their time on this node.
//!
//! It is accumulated interval by interval on the clock of accounts, which nobody sets: each interval counts with the
//! amount that was read at its begin. SLURM gives a job its CPUs and memory at its start and sets them some moments later, and
//! an exporter may start later still. So the first interval counts from the job's start, with the amount read first.

use std::collections::BTreeMap;

use clocks::Boottime;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use slurm_jobs::{Job, JobRunId};

use crate::collector::durable::{Before, Unreadable};

/// What one job had.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Account {
    /// The amount at the first reading, and the start of the job as it was known when they were last counted.
    first: f64,
    start: Boottime,
    /// The amount at the last reading, and until when it is counted.
    amount: f64,
    until: Boottime,
    /// Amount times seconds from the start until then.
    booked: f64,
    /// The most that was ever exported, or could have been.
    most: f64,
}

impl Account {
    fn new(amount: f64, start: Boottime) -> Self {
        Self { first: amount, start, amount, until: start, booked: 0.0, most: 0.0 }
    }

    /// Counts until `at`. What was counted is not counted again, nor taken back.
    fn advance(&mut self, job: &Job, at: Boottime) -> f64 {
        self.correct(job.started.boottime);
        self.booked += self.amount * at.since(self.until).as_secs_f64();
        self.until = self.until.max(at);
        self.most = self.most.max(self.booked);
        self.most
    }

    /// A start may be found to be another one, once. What it adds or takes had the amount read first.
    fn correct(&mut self, start: Boottime) {
        let (earlier, later) = (self.start.since(start), start.since(self.start));
        self.booked += self.first * (earlier.as_secs_f64() - later.as_secs_f64());
        self.start = start;
    }
}

/// The allocation of every job that is still exported. Kept beside the last readings: two threads read a job, and the
/// one that reads first may come in second.
#[derive(Debug, Default)]
pub(in crate::collector::job) struct Allocated(Mutex<BTreeMap<JobRunId, Box<Account>>>);

impl Allocated {
    fn accounts(&self) -> MutexGuard<'_, BTreeMap<JobRunId, Box<Account>>> {
        // A panic while it was held was caught and counted; an account is never left half-written.
        self.0.lock()
    }

    /// Whether a job's amount was ever read.
    pub(in crate::collector::job) fn knows(&self, run: JobRunId) -> bool {
        self.accounts().contains_key(&run)
    }

    /// A job was read; `amount` is `None` when it is not known what it may use.
    pub(in crate::collector::job) fn read(&self, job: &Job, amount: Option<u64>, at: Boottime) {
        #[expect(clippy::cast_precision_loss, reason = "no machine has 2^53 CPUs or bytes")]
        let amount = amount.map(|amount| amount as f64);
        let mut accounts = self.accounts();
        if let Some(amount) = amount {
            accounts.entry(job.run).or_insert_with(|| Box::new(Account::new(amount, job.started.boottime)));
        }
        let Some(account) = accounts.get_mut(&job.run) else { return };
        account.advance(job, at);
        if let Some(amount) = amount {
            account.amount = amount;
        }
    }

    /// Amount times seconds until the job's end, or until it was read last.
    pub(in crate::collector::job) fn seconds(&self, job: &Job) -> Option<f64> {
        let mut accounts = self.accounts();
        let account = accounts.get_mut(&job.run)?;
        Some(job.ended.map_or(account.most, |ended| account.advance(job, ended.boottime)))
    }

    /// The accounts, to be saved.
    pub(in crate::collector::job) fn save(&self) -> Vec<u8> {
        durable_state::encode(&*self.accounts())
    }

    /// Takes over the accounts of an exporter before this one: what jobs had until then remains theirs.
    pub(in crate::collector::job) fn restore(&self, saved: &[u8], before: &Before) -> Result<(), Unreadable> {
        let mut accounts: BTreeMap<JobRunId, Box<Account>> = durable_state::decode(saved)?;
        accounts.retain(|run, _| before.knows(*run));
        *self.accounts() = accounts;
        Ok(())
    }

    /// The job is not exported any more.
    pub(in crate::collector::job) fn forget(&self, run: JobRunId) {
        self.accounts().remove(&run);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slurm_jobs::testing::moment;

    use super::*;
    use crate::collector::testing::{Machine, job};

    /// A job that started at 1000.
    fn started() -> Job {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        job(7, machine.v2("job_7"), &[])
    }

    fn after_boot(seconds: f64) -> Boottime {
        moment(seconds).boottime
    }

    #[test]
    fn what_is_read_first_counts_from_the_start_and_then_until_something_else_is() {
        let (had, job) = (Allocated::default(), started());
        let read = |cpus, at| {
            had.read(&job, cpus, after_boot(at));
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
            assert_eq!(had.seconds(&Job { ended: Some(moment(1060.0)), ..job.clone() }), Some(420.0));
        }
    }

    #[test]
    fn a_start_that_is_corrected_counts_as_it_is_and_takes_nothing_back() {
        let (had, first) = (Allocated::default(), started());
        had.read(&first, Some(2), after_boot(1100.0));
        had.read(&first, Some(3), after_boot(1110.0));
        assert_eq!(had.seconds(&first), Some(220.0));
        let earlier = Job { started: moment(900.0), ..first.clone() };
        had.read(&earlier, Some(3), after_boot(1120.0));
        assert_eq!(had.seconds(&earlier), Some(2.0 * 210.0 + 3.0 * 10.0));
        let later = Job { started: moment(950.0), ..first };
        had.read(&later, Some(3), after_boot(1121.0));
        assert_eq!(had.seconds(&later), Some(450.0), "it would be 353");
        let ended = |at| Job { ended: Some(moment(at)), ..later.clone() };
        assert_eq!(had.seconds(&ended(1122.0)), Some(450.0));
        assert_eq!(had.seconds(&ended(1220.0)), Some(2.0 * 160.0 + 3.0 * 110.0));
    }

    /// A reading may come in after a later one.
    #[test]
    fn no_time_is_counted_twice_or_taken_back() {
        let (had, job) = (Allocated::default(), started());
        for (at, seconds) in [(1010.0, 20.0), (1005.0, 20.0), (900.0, 20.0), (1011.0, 22.0)] {
            had.read(&job, Some(2), after_boot(at));
            assert_eq!(had.seconds(&job), Some(seconds));
        }
        had.forget(job.run);
        assert_eq!((had.knows(job.run), had.seconds(&job)), (false, None));
    }

    /// Steps of +1 day and -10 days of the wall clock: they are in what is shown, and in no account.
    #[test]
    fn how_the_start_and_the_end_are_shown_is_not_counted() {
        let had = Allocated::default();
        let mut job = started();
        for (second, step) in [(1001.0, 0.0), (1002.0, 86_400.0), (1003.0, -864_000.0)] {
            job.started.unix = 1000.0 + step;
            had.read(&job, Some(2), after_boot(second));
            assert_eq!(had.seconds(&job), Some(2.0 * (second - 1000.0)));
        }
        let end = job.started.at(after_boot(1000.0) + Duration::from_secs(10));
        assert!(end.unix >= job.started.unix);
        assert_eq!(had.seconds(&Job { ended: Some(end), ..job }), Some(20.0));
    }

    #[test]
    fn another_run_begins_anew() {
        let (had, first) = (Allocated::default(), started());
        had.read(&first, Some(2), after_boot(1100.0));
        let second = Job { run: JobRunId(8), started: moment(1200.0), ..first };
        assert_eq!((had.knows(second.run), had.seconds(&second)), (false, None));
        had.read(&second, Some(8), after_boot(1201.0));
        assert_eq!(had.seconds(&second), Some(8.0));
    }
}
