//! Who opens counters when a job appears: a thread of its own, since that takes up to a tenth of a second on a large node, for
//! which the thread that follows jobs must not be held up. It sleeps until there is something to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use kernel_files::Buffer;
use parking_lot::{Condvar, Mutex, MutexGuard};
use perf_counters::sharing::CounterUser;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels};

use super::accounts::PerfAccounts;
use crate::collector::BuildContext;

/// What happened to a job, or to the counters.
#[derive(Debug)]
enum Message {
    Appeared(Arc<Job>),
    /// Something of it ended: what it has used by now may be the last that can be read.
    PartEnded(JobRunId),
    Left(JobRunId),
    Forgotten(JobRunId),
    Resumed,
}

/// Events that are not in the accounts yet.
#[derive(Debug, Default)]
struct Mailbox {
    waiting: VecDeque<Message>,
    /// How much ever came in. Whoever sleeps waits for more of it: a scrape may have taken out what came.
    came: u64,
}

/// What the threads share.
pub(super) struct Shared {
    accounts: Mutex<PerfAccounts>,
    message: Mutex<Mailbox>,
    wakeup: Condvar,
    hired: AtomicBool,
    this: Weak<Self>,
}

impl Shared {
    pub(super) fn new(context: &BuildContext) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            accounts: Mutex::new(PerfAccounts::new(context)),
            message: Mutex::default(),
            wakeup: Condvar::new(),
            hired: AtomicBool::new(false),
            this: this.clone(),
        })
    }

    /// The accounts, with all events up to now in them.
    pub(super) fn caught_up(&self) -> MutexGuard<'_, PerfAccounts> {
        let mut accounts = self.accounts.lock();
        while let Some(message) = { self.message.lock().waiting.pop_front() } {
            match message {
                Message::Appeared(job) => accounts.appeared(job),
                Message::PartEnded(run) => accounts.part_ended(run),
                Message::Left(run) => accounts.left(run),
                Message::Forgotten(run) => accounts.forgotten(run),
                Message::Resumed => accounts.resume(),
            }
        }
        accounts
    }

    fn emit(&self, message: Message) {
        let mut mailbox = self.message.lock();
        mailbox.waiting.push_back(message);
        mailbox.came += 1;
        drop(mailbox);
        if !self.hired.swap(true, Ordering::SeqCst) {
            let this = self.this.clone();
            let work = move || {
                while let Some(shared) = this.upgrade() {
                    shared.read_now();
                }
            };
            let spawned =
                std::thread::Builder::new().name("perf".to_owned()).stack_size(256 << 10).spawn(work);
            if let Err(error) = spawned {
                tracing::error!(%error, "no thread to open counters on: they are opened at scrapes");
            }
        }
        self.wakeup.notify_all();
    }

    fn read_now(&self) {
        // Checked before the accounts: later events may be in them or not.
        let came = self.message.lock().came;
        let mut accounts = self.caught_up();
        accounts.look_again();
        let due = accounts.due();
        drop(accounts);
        self.sleep(came, due);
    }

    /// Until more came in than this, or it is time.
    fn sleep(&self, came: u64, due: Option<Instant>) {
        let nothing = |message: &mut Mailbox| message.came == came;
        let mut message = self.message.lock();
        match due {
            None => self.wakeup.wait_while(&mut message, nothing),
            Some(due) => {
                let wait = due.saturating_duration_since(Instant::now());
                self.wakeup.wait_while_for(&mut message, nothing, wait);
            }
        }
    }
}

impl JobObserver for Shared {
    fn job_started(&self, job: &Job) {
        self.emit(Message::Appeared(Arc::new(job.clone())));
    }

    fn job_left_node(&self, run: JobRunId) {
        self.emit(Message::Left(run));
    }

    fn checkpoint(&self, job: &Job, _step: Option<u32>, _levels: Levels, _buffer: &mut Buffer) {
        self.emit(Message::PartEnded(job.run));
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.emit(Message::Forgotten(run));
    }
}

impl CounterUser for Shared {
    fn release(&self) -> bool {
        self.accounts.lock().release();
        true
    }

    fn resume(&self) {
        self.emit(Message::Resumed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use perf_counters::testing::{Opener, World, plan};
    use slurm_jobs::Users;

    use super::*;
    use crate::collector::testing::{Machine, job, snapshot_of};

    /// A job that nobody has bound yet, and nobody who would look after it but the test.
    fn unattended() -> (Machine, Arc<World>, Arc<Shared>, Job) {
        let machine = Machine::new();
        machine.write("sys/devices/system/cpu/online", "0-7\n");
        machine.write("cgroup/job_7/cpuset.cpus", "\n");
        machine.write("cgroup/job_7/cpuset.cpus.effective", "0-7\n");
        let world = Arc::new(World::new(plan()));
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        let open = Arc::new(Opener(world.clone()));
        context.perf.plan = Some(Arc::new(plan()));
        context.perf.open = open;
        let shared = Shared::new(&context);
        shared.hired.store(true, Ordering::SeqCst);
        let job = job(7, machine.v2("job_7"), &[]);
        (machine, world, shared, job)
    }

    /// A scrape often comes with the news that it is about, and may take them before the thread is awake.
    #[test]
    fn news_that_a_scrape_took_first_wake_the_thread_all_the_same() {
        let (_machine, _, shared, job) = unattended();
        let came = shared.message.lock().came;
        shared.job_started(&job);
        assert!(shared.caught_up().due().is_some(), "its binding is waited for");
        let (awake, is_awake) = channel();
        std::thread::spawn(move || {
            shared.sleep(came, None);
            awake.send(()).unwrap();
        });
        jobledger_testkit::eventually("it wakes up, since a job waits", || is_awake.try_recv().is_ok());
    }

    #[test]
    fn a_scrape_looks_for_bindings_itself() {
        let (machine, world, shared, job) = unattended();
        shared.job_started(&job);
        let snapshot = snapshot_of(machine.roots(), vec![job]);
        let scrape = || {
            shared.caught_up().scrape(&snapshot).unwrap();
            world.open.load(Ordering::SeqCst)
        };
        scrape();
        std::thread::sleep(Duration::from_millis(450));
        assert_eq!(scrape(), 24, "nobody bound it, and it was waited for long enough");
    }
}
