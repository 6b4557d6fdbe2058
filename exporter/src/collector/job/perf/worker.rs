//! The thread that opens counters when a job appears. That takes up to a tenth of a second on a large node, for which the
//! thread that follows jobs must not be delayed.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kernel_files::Buffer;
use parking_lot::{Mutex, MutexGuard};
use perf_counters::sharing::CounterUser;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, Step};
use worker_threads::Worker;

use super::accounts::PerfAccounts;
use super::options::PerfOptions;
use crate::collector::BuildContext;
use crate::collector::durable::{Before, Durable, Unreadable};

/// What happened to a job, or to the counters.
#[derive(Debug)]
enum Message {
    /// There was no job yet.
    Prepare,
    Appeared(Arc<Job>),
    /// Directories of it were made.
    Widened(Arc<Job>),
    /// Steps of it were made, or directories in them.
    Grew(JobRunId, Vec<Step>),
    /// A step or task of it ended: its usage now may be the last that can be read. The step's ordinal, if its directory is gone.
    PartEnded(JobRunId, Option<u32>),
    Left(JobRunId),
    Forgotten(JobRunId),
    Resumed,
}

/// What the threads share.
pub(super) struct Shared {
    accounts: Mutex<PerfAccounts>,
    /// Events that are not in the accounts yet.
    mailbox: Mutex<VecDeque<Message>>,
    /// Whether counters may be divided, which takes a while to prepare.
    divides: bool,
    /// Whether steps may be counted.
    steps: bool,
    worker: Worker,
    this: Weak<Self>,
}

impl Shared {
    pub(super) fn new(context: &BuildContext) -> Arc<Self> {
        let options: PerfOptions = context.options.get();
        Arc::new_cyclic(|this| Self {
            accounts: Mutex::new(PerfAccounts::new(context)),
            mailbox: Mutex::default(),
            divides: options.may_divide(),
            steps: options.may_follow_steps(),
            worker: Worker::new("perf", 256 << 10),
            this: this.clone(),
        })
    }

    /// The accounts, with all events up to now in them.
    pub(super) fn caught_up(&self) -> MutexGuard<'_, PerfAccounts> {
        let mut accounts = self.accounts.lock();
        while let Some(message) = { self.mailbox.lock().pop_front() } {
            match message {
                Message::Prepare => {
                    accounts.prepared();
                }
                Message::Appeared(job) => accounts.appeared(job),
                // A directory that was left behind is no job.
                Message::Widened(job) if !accounts.knows(job.run) => {}
                Message::Widened(job) => accounts.appeared(job),
                Message::Grew(run, steps) => accounts.follow_steps(run, &steps),
                Message::PartEnded(run, step) => {
                    accounts.read_cpu_time(run);
                    step.into_iter().for_each(|step| accounts.step_ended(run, step));
                }
                Message::Left(run) => accounts.left(run),
                Message::Forgotten(run) => accounts.forgotten(run),
                Message::Resumed => accounts.resume(),
            }
        }
        accounts
    }

    fn submit(&self, message: Message) {
        self.mailbox.lock().push_back(message);
        if !self.worker.is_started() {
            let this = self.this.clone();
            if let Err(error) = self.worker.start(move || move || this.upgrade()?.round()) {
                tracing::error!(%error, "no thread to open counters on: they are opened at scrapes");
            }
        }
        self.worker.notify();
    }

    /// Takes the events in. Returns when a job's binding is to be looked for next.
    fn round(&self) -> Option<Instant> {
        let mut accounts = self.caught_up();
        accounts.look_again();
        accounts.due()
    }
}

impl JobObserver for Shared {
    /// The first job is counted from its start then.
    fn initial_scan_done(&self) {
        if self.divides {
            self.submit(Message::Prepare);
        }
    }

    fn job_started(&self, job: &Job) {
        self.submit(Message::Appeared(Arc::new(job.clone())));
    }

    fn job_left_node(&self, run: JobRunId) {
        self.submit(Message::Left(run));
    }

    fn step_grew(&self, job: &Job, step: Option<u32>) {
        match step {
            // It may have directories of v1 that it did not have before: those of its CPUs, and of its CPU time.
            None => self.submit(Message::Widened(Arc::new(job.clone()))),
            Some(step) if self.steps => {
                let grown = job.steps.iter().find(|known| known.ordinal == step && known.ended.is_none());
                self.submit(Message::Grew(job.run, grown.into_iter().cloned().collect()));
            }
            Some(_) => {}
        }
    }

    fn checkpoint(&self, job: &Job, step: Option<u32>, _levels: Levels, _buffer: &mut Buffer) {
        let over = job.steps.iter().find(|known| Some(known.ordinal) == step && known.ended.is_some());
        self.submit(Message::PartEnded(job.run, over.map(|step| step.ordinal)));
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.submit(Message::Forgotten(run));
    }
}

impl Durable for Shared {
    fn save(&self) -> Option<Vec<u8>> {
        /// Longer than it takes to open the counters of a job.
        const PATIENCE: Duration = Duration::from_millis(500);
        Some(self.accounts.try_lock_for(PATIENCE)?.save())
    }

    fn read_last(&self) {
        self.caught_up().read_all();
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        self.accounts.lock().restore(section, before)
    }
}

impl CounterUser for Shared {
    fn release(&self) -> bool {
        self.accounts.lock().release();
        true
    }

    fn resume(&self) {
        self.submit(Message::Resumed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use perf_counters::testing::{Opener, World, plan};
    use slurm_jobs::Users;

    use super::*;
    use crate::collector::testing::{Machine, job, snapshot_of};

    /// A job without a cpuset yet, and accounts without a thread.
    fn without_thread() -> (Machine, Arc<World>, Arc<Shared>, Job) {
        let machine = Machine::new();
        machine.write("sys/devices/system/cpu/online", "0-7\n");
        machine.write("cgroup/job_7/cpuset.cpus", "\n");
        machine.write("cgroup/job_7/cpuset.cpus.effective", "0-7\n");
        let world = Arc::new(World::new(plan()));
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        let open = Arc::new(Opener(world.clone()));
        let plan = Some(Arc::new(plan()));
        context.options.set(PerfOptions { plan, open, ..PerfOptions::default() });
        let shared = Shared::new(&context);
        let job = job(7, machine.v2("job_7"), &[]);
        (machine, world, shared, job)
    }

    /// A scrape often comes at the same time as the event, and may take it in before the thread is awake.
    #[test]
    fn an_event_that_a_scrape_took_in_first_wakes_the_thread_all_the_same() {
        let (_machine, world, shared, job) = without_thread();
        shared.job_started(&job);
        assert!(shared.caught_up().due().is_some(), "its binding is waited for");
        let open = || world.open.load(Ordering::SeqCst);
        jobledger_testkit::eventually("counters, without another event or scrape", || open() == 24);
    }

    #[test]
    fn a_scrape_looks_for_bindings_itself() {
        let (machine, world, shared, job) = without_thread();
        shared.mailbox.lock().push_back(Message::Appeared(Arc::new(job.clone())));
        let snapshot = snapshot_of(machine.roots(), vec![job]);
        let scrape = || {
            shared.caught_up().scrape(&snapshot).unwrap();
            world.open.load(Ordering::SeqCst)
        };
        scrape();
        std::thread::sleep(Duration::from_millis(450));
        assert_eq!(scrape(), 24, "no cpuset came, and it was waited for long enough");
    }
}
