//! What jobs had of a resource over time: their CPUs, or their memory's limit, times their time on this node.
//!
//! It is accumulated interval by interval on the clock of accounts, which nobody sets: each interval counts with the
//! amount that was read at its begin. SLURM gives a job its CPUs and memory at its start and sets them some moments later, and
//! an exporter may start later still. So the first interval counts from the job's start, with the amount read first.
//! All of it is in whole nanoseconds, so that sums over jobs agree to the last digit.

use std::collections::BTreeMap;
use std::time::Duration;

use clocks::Boottime;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use slurm_jobs::{Job, JobRunId};

use crate::collector::durable::{Before, Unreadable};

/// What one job had.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Account {
    /// The amount at the first reading, and the start of the job as it was known when they were last counted.
    first: u64,
    start: Boottime,
    /// The amount at the last reading, and until when it is counted.
    amount: u64,
    until: Boottime,
    /// Amount times nanoseconds from the start until then; below 0 while a later start is not made up for.
    booked: i128,
    /// The most that was ever exported, or could have been.
    most: u128,
}

/// An amount that was had for a time, in nanoseconds.
fn times(amount: u64, time: Duration) -> i128 {
    i128::from(amount).saturating_mul(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX))
}

impl Account {
    fn new(amount: u64, start: Boottime) -> Self {
        Self { first: amount, start, amount, until: start, booked: 0, most: 0 }
    }

    /// Counts until `at`. What was counted is not counted again, nor taken back.
    fn advance(&mut self, job: &Job, at: Boottime) -> u128 {
        self.correct(job.started.boottime);
        self.book(times(self.amount, at.since(self.until)));
        self.until = self.until.max(at);
        self.most = self.most.max(u128::try_from(self.booked).unwrap_or(0));
        self.most
    }

    /// A start may be found to be another one, once. What it adds or takes had the amount read first.
    fn correct(&mut self, start: Boottime) {
        let (earlier, later) = (self.start.since(start), start.since(self.start));
        self.book(times(self.first, earlier) - times(self.first, later));
        self.start = start;
    }

    fn book(&mut self, more: i128) {
        self.booked = self.booked.saturating_add(more);
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

    /// Amount times nanoseconds until the job's end, or until it was read last.
    pub(in crate::collector::job) fn nanoseconds(&self, job: &Job) -> Option<u128> {
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
    use slurm_jobs::testing::moment;

    use super::*;
    use crate::collector::testing::{Machine, job};

    /// A job that started at 1000.
    fn started() -> Job {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        job(7, machine.v2("job_7"), &[])
    }

    /// What was had, in seconds.
    fn seconds(had: &Allocated, job: &Job) -> Option<f64> {
        had.nanoseconds(job).map(|nanoseconds| nanoseconds as f64 / 1e9)
    }

    fn after_boot(seconds: f64) -> Boottime {
        moment(seconds).boottime
    }

    #[test]
    fn what_is_read_first_counts_from_the_start_and_then_until_something_else_is() {
        let (had, job) = (Allocated::default(), started());
        let read = |cpus, at| {
            had.read(&job, cpus, after_boot(at));
            seconds(&had, &job)
        };
        assert_eq!(read(None, 1001.0), None, "not bound yet");
        assert_eq!(read(Some(4), 1002.5), Some(10.0));
        assert_eq!(read(Some(4), 1010.0), Some(40.0));
        assert_eq!(read(Some(16), 1020.0), Some(80.0), "it has more from now on");
        assert_eq!(read(Some(16), 1030.0), Some(240.0));
        assert_eq!(read(None, 1031.0), Some(256.0), "what is not known changes nothing");
        assert_eq!(read(Some(1), 1040.0), Some(400.0));
        assert_eq!(read(Some(1), 1050.0), Some(410.0));
        assert_eq!(seconds(&had, &job), Some(410.0), "until it was read");
        for _ in 0..2 {
            assert_eq!(seconds(&had, &Job { ended: Some(moment(1060.0)), ..job.clone() }), Some(420.0));
        }
    }

    #[test]
    fn a_start_that_is_corrected_counts_as_it_is_and_takes_nothing_back() {
        let (had, first) = (Allocated::default(), started());
        had.read(&first, Some(2), after_boot(1100.0));
        had.read(&first, Some(3), after_boot(1110.0));
        assert_eq!(seconds(&had, &first), Some(220.0));
        let earlier = Job { started: moment(900.0), ..first.clone() };
        had.read(&earlier, Some(3), after_boot(1120.0));
        assert_eq!(seconds(&had, &earlier), Some(2.0 * 210.0 + 3.0 * 10.0));
        let later = Job { started: moment(950.0), ..first };
        had.read(&later, Some(3), after_boot(1121.0));
        assert_eq!(seconds(&had, &later), Some(450.0), "it would be 353");
        let ended = |at| Job { ended: Some(moment(at)), ..later.clone() };
        assert_eq!(seconds(&had, &ended(1122.0)), Some(450.0));
        assert_eq!(seconds(&had, &ended(1220.0)), Some(2.0 * 160.0 + 3.0 * 110.0));
    }

    /// A reading may come in after a later one.
    #[test]
    fn no_time_is_counted_twice_or_taken_back() {
        let (had, job) = (Allocated::default(), started());
        for (at, wanted) in [(1010.0, 20.0), (1005.0, 20.0), (900.0, 20.0), (1011.0, 22.0)] {
            had.read(&job, Some(2), after_boot(at));
            assert_eq!(seconds(&had, &job), Some(wanted));
        }
        had.forget(job.run);
        assert_eq!((had.knows(job.run), seconds(&had, &job)), (false, None));
    }

    /// Steps of +1 day and -10 days of the wall clock: they are in what is shown, and in no account.
    #[test]
    fn how_the_start_and_the_end_are_shown_is_not_counted() {
        let had = Allocated::default();
        let mut job = started();
        for (second, step) in [(1001.0, 0.0), (1002.0, 86_400.0), (1003.0, -864_000.0)] {
            job.started.unix = 1000.0 + step;
            had.read(&job, Some(2), after_boot(second));
            assert_eq!(seconds(&had, &job), Some(2.0 * (second - 1000.0)));
        }
        let end = job.started.at(after_boot(1000.0) + Duration::from_secs(10));
        assert!(end.unix >= job.started.unix);
        assert_eq!(seconds(&had, &Job { ended: Some(end), ..job }), Some(20.0));
    }

    #[test]
    fn another_run_begins_anew() {
        let (had, first) = (Allocated::default(), started());
        had.read(&first, Some(2), after_boot(1100.0));
        let second = Job { run: JobRunId(8), started: moment(1200.0), ..first };
        assert_eq!((had.knows(second.run), seconds(&had, &second)), (false, None));
        had.read(&second, Some(8), after_boot(1201.0));
        assert_eq!(seconds(&had, &second), Some(8.0));
    }

    /// As floats the parts of a second do not add up to it.
    #[test]
    fn jobs_of_odd_lengths_add_up_to_the_last_digit() {
        const ODD: u64 = 1_234_567_891;
        let had = Allocated::default();
        let at = |nanoseconds| Boottime::from_nanoseconds(nanoseconds);
        let mut sum = 0;
        for run in 1..=1000_u64 {
            let mut job = Job { run: JobRunId(run), ..started() };
            let start = job.started.boottime.as_nanoseconds();
            for third in 1..=3 {
                had.read(&job, Some(7), at(start + i64::try_from(run * ODD * third / 3).unwrap()));
            }
            job.ended = Some(job.started.at(at(start + i64::try_from(run * ODD).unwrap())));
            sum += had.nanoseconds(&job).unwrap();
        }
        assert_eq!(sum, u128::from(7 * ODD * (1000 * 1001 / 2)));
    }
}
