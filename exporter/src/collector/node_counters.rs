//! Counters of the node that belong to a job while it has the node for itself: network, disks, file systems,
//! interconnect. Counts of times with several jobs, or none, are unattributed: nothing is guessed.

mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attribution::{Account, Occupants, SIMULTANEOUS};
use exposition::{Family, Profile, Section, SubjectId, Value, same_but_prefix};
use parking_lot::Mutex;
use readings::{Counter, Gain, Range};
use saved::SavedCounter;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, NodeSnapshot};

use crate::collector::checkout::Checkout;
use crate::collector::durable::Unreadable;
use crate::collector::interval_reader::{Call, IntervalReader, IntervalSource};
use crate::collector::{BuildContext, Built, Collector, SourceError, Tally};

/// A counter of the node, the part of it that a job is charged with, and the unattributed rest.
#[derive(Debug)]
pub struct NodeCounter {
    /// `jobledger_node_…`: Σ jobs + unattributed, since this exporter started.
    pub node: Family,
    /// `jobledger_job_…`
    pub job: Family,
    /// `jobledger_node_…_unattributed_…`
    pub unattributed: Family,
    /// How many raw units make one of the family's: 1 for bytes, 1000 for milliseconds exported as seconds.
    pub per_unit: u64,
}

impl NodeCounter {
    /// The three whole names: of the node's total, of the job's part, and of the unattributed part.
    pub const fn new(node: &'static str, job: &'static str, unattributed: &'static str) -> Self {
        assert!(
            same_but_prefix((node, "jobledger_node_"), (job, "jobledger_job_")),
            "the job's name is another"
        );
        Self {
            node: Family::counter(node)
                .help_suffix(", since this exporter started: the sum over jobs plus the unattributed"),
            job: Family::counter(job).help_suffix(
                ", while the job had the node for itself (jobledger_job_alone_seconds_total); absent if it never had",
            ),
            unattributed: Family::counter(unattributed).help_suffix(", while no job or several were there"),
            per_unit: 1,
        }
    }

    /// With labels beyond those of the job.
    pub const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self {
            node: self.node.labels(labels),
            job: self.job.labels(labels),
            unattributed: self.unattributed.labels(labels),
            ..self
        }
    }

    /// With this meaning, without a full stop: the help texts begin with it.
    pub const fn help(self, help: &'static str) -> Self {
        Self {
            node: self.node.help(help),
            job: self.job.help(help),
            unattributed: self.unattributed.help(help),
            ..self
        }
    }

    /// In this profile and those that have more, all three of them: a sum is whole or not there.
    pub const fn profile(self, profile: Profile) -> Self {
        Self {
            node: self.node.profile(profile),
            job: self.job.profile(profile),
            unattributed: self.unattributed.profile(profile),
            ..self
        }
    }

    /// With another unit of the raw value: how many of it make one of the family's unit.
    pub const fn per_unit(self, per_unit: u64) -> Self {
        Self { per_unit, ..self }
    }

    /// The three rows of the catalogue.
    pub fn rows(&'static self) -> [&'static Family; 3] {
        [&self.node, &self.job, &self.unattributed]
    }

    fn push(
        &self,
        family: &'static Family,
        to: SubjectId,
        labels: &[(&'static str, &str)],
        amount: u64,
        out: &mut Section,
    ) {
        out.push(family, to, labels, Value::parts(amount, self.per_unit));
    }
}

/// A source of such counters.
pub trait NodeSource: Send + 'static {
    /// Reads the present values. Counters always; gauges and infos only in a scrape
    /// ([`NodeReadings::section_of_scrape`]).
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError>;

    /// By what it knows devices again after a restart, to be saved. Without it their counts while no exporter ran are not
    /// known.
    fn save(&self) -> Option<Vec<u8>> {
        None
    }

    /// Takes over what [`NodeSource::save`] gave before a restart.
    fn restore(&mut self, _saved: &[u8]) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// One counter of one device.
#[derive(Debug)]
struct CounterAccount {
    family: &'static NodeCounter,
    labels: Vec<(&'static str, Box<str>)>,
    raw: Counter,
    /// When it was read last.
    at: Instant,
    /// The round in which it was seen last.
    round: u64,
    /// Which device of this name it is.
    device: u64,
    saturated: bool,
    account: Account<()>,
}

impl CounterAccount {
    fn is(&self, family: &'static NodeCounter, labels: &[(&'static str, &str)]) -> bool {
        std::ptr::eq(self.family, family)
            && self.labels.len() == labels.len()
            && self.labels.iter().zip(labels).all(|((key, value), other)| (*key, &**value) == *other)
    }
}

/// The accounts of one source. They are kept when a device goes, since jobs still export what they moved on it.
#[derive(Debug, Default)]
struct NodeAccounts {
    accounts: Vec<CounterAccount>,
    /// Those of an exporter before this one, until their devices are read.
    saved: Vec<SavedCounter>,
    round: u64,
    restarts: u64,
    /// When the last reading that succeeded began.
    read: Option<Instant>,
}

/// Takes the readings of a source.
pub struct NodeReadings<'a> {
    accounts: &'a mut NodeAccounts,
    interval_reader: &'a IntervalReader,
    now: Instant,
    /// The account that is probably next: devices come in the same order each time.
    next: usize,
    device: u64,
    from_zero: Option<Instant>,
    intervals: BTreeMap<Instant, Occupants>,
    /// The scrape's section, and since when its accounts count.
    scrape: Option<(&'a mut Section, f64)>,
}

impl NodeReadings<'_> {
    /// Sets the device of the counters that follow. Another device of the same name (unplugged and plugged in, a file
    /// system mounted again) has another identity, such as its directory's inode, and counts from 0.
    pub fn device(&mut self, identity: u64) {
        self.device = identity;
        self.from_zero = None;
    }

    /// The same for a device that was made since the last reading that succeeded, or whose counters were all 0 then:
    /// all its counts are from after that reading.
    pub fn device_from_zero(&mut self, identity: u64) {
        self.device = identity;
        self.from_zero = self.accounts.read;
    }

    /// When the last reading that succeeded began.
    pub fn before(&self) -> Option<Instant> {
        self.accounts.read
    }

    /// Counters that went back without a wrap, where the source makes one of several.
    pub fn note_restarts(&mut self, counters: u64) {
        self.accounts.restarts += counters;
    }

    /// A counter as the kernel gives it.
    pub fn counter(
        &mut self,
        family: &'static NodeCounter,
        labels: &[(&'static str, &str)],
        raw: u64,
        range: Range,
    ) {
        self.aged_counter(family, labels, raw, range, Duration::ZERO);
    }

    /// The same for a counter whose value may be up to `age` old. Its interval begins that much earlier: the growth
    /// may be from before the last reading. A small age is ignored.
    pub fn aged_counter(
        &mut self,
        family: &'static NodeCounter,
        labels: &[(&'static str, &str)],
        raw: u64,
        range: Range,
        age: Duration,
    ) {
        let age = if age > SIMULTANEOUS { age } else { Duration::ZERO };
        let NodeAccounts { accounts, saved, round, restarts, .. } = &mut *self.accounts;
        let index = match accounts.get(self.next) {
            Some(counter_account) if counter_account.is(family, labels) => self.next,
            _ => accounts
                .iter()
                .position(|counter_account| counter_account.is(family, labels))
                .unwrap_or_else(|| {
                    let before = saved.iter().position(|saved| saved.is(family, labels));
                    if let Some(before) = before.map(|at| saved.swap_remove(at)) {
                        accounts.push(CounterAccount {
                            family,
                            labels: labels.iter().map(|(key, value)| (*key, Box::from(*value))).collect(),
                            raw: before.raw,
                            at: before.at,
                            round: 0,
                            device: before.device,
                            saturated: false,
                            account: before.account,
                        });
                        return accounts.len() - 1;
                    }
                    accounts.push(CounterAccount {
                        family,
                        labels: labels.iter().map(|(key, value)| (*key, Box::from(*value))).collect(),
                        raw: if self.from_zero.is_some() { Counter::from_zero() } else { Counter::default() },
                        at: self.from_zero.unwrap_or(self.now),
                        round: 0,
                        device: self.device,
                        saturated: false,
                        account: Account::default(),
                    });
                    accounts.len() - 1
                }),
        };
        self.next = index + 1;
        let Some(counter_account) = accounts.get_mut(index) else { return };
        if std::mem::replace(&mut counter_account.device, self.device) != self.device {
            match self.from_zero {
                Some(at) => (counter_account.raw, counter_account.at) = (Counter::from_zero(), at),
                None => counter_account.raw.lost(),
            }
        }
        counter_account.round = *round;
        let gain = counter_account.raw.advance(raw, range);
        counter_account.saturated = gain == Gain::Saturated;
        *restarts += u64::from(gain == Gain::Restarted);
        let since = std::mem::replace(&mut counter_account.at, self.now);
        if gain == Gain::First {
            return;
        }
        let occupants = match since.checked_sub(age) {
            Some(from) => {
                let between = || self.interval_reader.between(from, self.now);
                *self.intervals.entry(from).or_insert_with(between)
            }
            None => Occupants::Mixed,
        };
        match occupants {
            Occupants::One(run) => counter_account.account.charge_to(run, (), gain.amount()),
            Occupants::Empty | Occupants::Mixed => counter_account.account.leave_unattributed(gain.amount()),
        }
    }

    /// When the reading began.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The section for gauges and infos; `None` outside of a scrape.
    pub fn section_of_scrape(&mut self) -> Option<&mut Section> {
        self.scrape.as_mut().map(|(section, _)| &mut **section)
    }

    /// The same, with the subject of what a source sums up itself: it was 0 when jobs began to be followed.
    pub fn section_of_sums(&mut self) -> Option<(&mut Section, SubjectId)> {
        let (section, since) = self.scrape.as_mut()?;
        let subject = section.node_since(Some(*since));
        Some((section, subject))
    }
}

struct Inner<S> {
    source: S,
    accounts: NodeAccounts,
}

struct Shared<S> {
    inner: Checkout<Inner<S>>,
    /// Job runs that are not retained any more: noted here, since a reading may hang.
    forgotten: Mutex<Vec<JobRunId>>,
    interval_reader: Arc<IntervalReader>,
    /// Another thread was reading, or hangs in it, when jobs came or went: it is read again then.
    put_off: Mutex<Option<PutOff>>,
}

/// A reading that waits for another one to end.
struct PutOff {
    until: Instant,
    /// How long it waited last.
    pause: Duration,
}

/// Makes a collector of a source that is read at every scrape and whenever a job gets the node for itself or loses it.
pub fn build<S: NodeSource>(context: &BuildContext, source: S) -> Built {
    let shared = Arc::new(Shared {
        inner: Checkout::new(Inner { source, accounts: NodeAccounts::default() }),
        forgotten: Mutex::default(),
        interval_reader: context.interval_reader.clone(),
        put_off: Mutex::default(),
    });
    let collector = NodeCounterCollector { shared: shared.clone() };
    Built { source: Some(shared.clone()), ..Built::with_accounts(collector, shared) }
}

impl<S: NodeSource> Shared<S> {
    fn read(&self, inner: &mut Inner<S>, scrape: Option<(&mut Section, f64)>) -> Result<(), SourceError> {
        *self.put_off.lock() = None;
        let now = Instant::now();
        inner.accounts.round += 1;
        let mut out = NodeReadings {
            accounts: &mut inner.accounts,
            interval_reader: &self.interval_reader,
            now,
            next: 0,
            device: 0,
            from_zero: None,
            intervals: BTreeMap::new(),
            scrape,
        };
        let outcome = inner.source.read(&mut out);
        // What the machine has not got had counted nothing.
        if matches!(outcome, Ok(()) | Err(SourceError::Unsupported { .. })) {
            inner.accounts.read = Some(now);
        }
        // Only after the reading: counts since the last one may be charged to them.
        self.forget_noted(&mut inner.accounts, 0);
        outcome
    }

    /// Forgets the job runs that are noted, but for the newest `keep`.
    fn forget_noted(&self, accounts: &mut NodeAccounts, keep: usize) {
        let mut noted = self.forgotten.lock();
        let old = noted.len().saturating_sub(keep);
        let forgotten: Vec<JobRunId> = noted.drain(..old).collect();
        drop(noted);
        for run in forgotten {
            accounts.accounts.iter_mut().for_each(|counter_account| counter_account.account.forget(run));
            accounts.saved.iter_mut().for_each(|saved| saved.account.forget(run));
        }
    }
}

impl NodeAccounts {
    fn emit(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        // Few jobs ever have the node for themselves.
        let charged: BTreeSet<JobRunId> =
            self.accounts.iter().flat_map(|counter_account| counter_account.account.runs()).collect();
        let jobs: Vec<&Arc<Job>> = snapshot.jobs.iter().filter(|job| charged.contains(&job.run)).collect();
        for counter_account in &mut self.accounts {
            jobs.iter().for_each(|job| counter_account.account.export(job.run));
        }
        let since_start = out.node_since(Some(snapshot.following_since));
        for counter_account in &self.accounts {
            let labels: Vec<(&'static str, &str)> =
                counter_account.labels.iter().map(|(key, value)| (*key, &**value)).collect();
            let counter = counter_account.family;
            if counter_account.round == self.round {
                let name = counter.node.name;
                tally.note(if counter_account.saturated { Err(saturated(name)) } else { Ok(()) });
                if !counter_account.saturated {
                    let total = counter_account.account.exported_total();
                    counter.push(&counter.node, since_start, &labels, total, out);
                    counter.push(
                        &counter.unattributed,
                        since_start,
                        &labels,
                        counter_account.account.residual(),
                        out,
                    );
                }
            }
        }
        for job in jobs {
            let mut subject = None;
            for counter_account in &self.accounts {
                for ((), amount) in counter_account.account.of(job.run) {
                    let began = job.followed_from(snapshot);
                    let subject = *subject.get_or_insert_with(|| out.subject_since(job.labels(), began));
                    let labels: Vec<(&'static str, &str)> =
                        counter_account.labels.iter().map(|(key, value)| (*key, &**value)).collect();
                    counter_account.family.push(&counter_account.family.job, subject, &labels, amount, out);
                }
            }
        }
        out.note_restarts(std::mem::take(&mut self.restarts));
        tally.result()
    }
}

fn saturated(counter: &'static str) -> SourceError {
    SourceError::Unsupported {
        needs: format!(
            "a counter of more than 32 bits for {counter}, or a reset of the one that is at its end"
        ),
    }
}

struct NodeCounterCollector<S> {
    shared: Arc<Shared<S>>,
}

impl<S: NodeSource> Collector for NodeCounterCollector<S> {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        const PATIENCE: Duration = Duration::from_millis(500);
        let work = |inner: &mut Inner<S>| {
            let read = self.shared.read(inner, Some((out, snapshot.following_since)));
            read.and(inner.accounts.emit(snapshot, out))
        };
        self.shared.inner.with(PATIENCE, work).unwrap_or(Err(SourceError::TimedOut))
    }
}

impl<S: NodeSource> IntervalSource for Shared<S> {
    fn read_now(&self, call: Call) {
        const SHORTEST: Duration = Duration::from_millis(100);
        /// A reading that hangs costs no more wake-ups than these.
        const LONGEST: Duration = Duration::from_secs(5);
        if matches!(call, Call::Gpus | Call::Meter | Call::Shared) {
            return;
        }
        // The next scrape finds a failure again, and reports it; before the first one nothing is reported at all.
        let read = self.inner.with(Duration::ZERO, |inner| self.read(inner, None));
        if read.is_none() {
            // A reading that began before the change says nothing of the time after it.
            let mut put_off = self.put_off.lock();
            let pause = match (call, &*put_off) {
                (Call::Due, Some(before)) => (before.pause * 2).min(LONGEST),
                _ => SHORTEST,
            };
            *put_off = Some(PutOff { until: Instant::now() + pause, pause });
        }
    }

    fn due(&self) -> Option<Instant> {
        self.put_off.lock().as_ref().map(|put_off| put_off.until)
    }
}

impl<S: NodeSource> JobObserver for Shared<S> {
    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        const MANY: usize = 1024;
        let mut forgotten = self.forgotten.lock();
        forgotten.push(run);
        let many = forgotten.len().is_multiple_of(MANY);
        drop(forgotten);
        // While several jobs are there nothing is read between scrapes. A reading may still be due for the newest.
        if many {
            self.inner.with(Duration::ZERO, |inner| self.forget_noted(&mut inner.accounts, MANY / 2));
        }
    }
}

#[cfg(test)]
mod tests;
