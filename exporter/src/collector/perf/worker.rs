//! Who opens counters when a job appears: a thread of its own, since that takes up to a tenth of a second on a large node, for
//! which the thread that follows jobs must not be held up. It sleeps until there is something to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::super::{BuildContext, Fate, Levels, LifeHook};
use super::books::Books;
use crate::handover::Participant;
use crate::kernel_file::Buffer;
use crate::slurm::{Job, LifeId};

/// What happened to a job, or to the counters.
#[derive(Debug)]
enum News {
    Appeared(Arc<Job>),
    /// Something of it ended: what it has used by now may be the last that can be read.
    PartEnded(LifeId),
    Left(LifeId),
    Forgotten(LifeId),
    Resumed,
}

/// What the threads share.
pub(super) struct Shared {
    books: Mutex<Books>,
    news: Mutex<VecDeque<News>>,
    bell: Condvar,
    hired: AtomicBool,
    this: Weak<Self>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A reading that a panic broke off is taken again from where the counters stood before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(context: &BuildContext) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            books: Mutex::new(Books::new(context)),
            news: Mutex::default(),
            bell: Condvar::new(),
            hired: AtomicBool::new(false),
            this: this.clone(),
        })
    }

    /// The books, with everything in them that happened by now.
    pub(super) fn caught_up(&self) -> MutexGuard<'_, Books> {
        let mut books = lock(&self.books);
        while let Some(news) = { lock(&self.news).pop_front() } {
            match news {
                News::Appeared(job) => books.appeared(job),
                News::PartEnded(life) => books.part_ended(life),
                News::Left(life) => books.left(life),
                News::Forgotten(life) => books.forgotten(life),
                News::Resumed => books.resume(),
            }
        }
        books
    }

    fn tell(&self, news: News) {
        lock(&self.news).push_back(news);
        if !self.hired.swap(true, Ordering::SeqCst) {
            let this = self.this.clone();
            let work = move || {
                while let Some(shared) = this.upgrade() {
                    shared.attend();
                }
            };
            let spawned =
                std::thread::Builder::new().name("perf".to_owned()).stack_size(256 << 10).spawn(work);
            if let Err(error) = spawned {
                tracing::error!(%error, "no thread to open counters on: they are opened at scrapes");
            }
        }
        self.bell.notify_all();
    }

    fn attend(&self) {
        let due = self.caught_up().due();
        let nothing = |news: &mut VecDeque<News>| news.is_empty();
        let news = lock(&self.news);
        match due {
            None => drop(self.bell.wait_while(news, nothing).unwrap_or_else(PoisonError::into_inner)),
            Some(due) => {
                let wait = due.saturating_duration_since(Instant::now());
                drop(
                    self.bell.wait_timeout_while(news, wait, nothing).unwrap_or_else(PoisonError::into_inner),
                );
                self.caught_up().look_again();
            }
        }
    }
}

impl LifeHook for Shared {
    fn appeared(&self, job: &Job) {
        self.tell(News::Appeared(Arc::new(job.clone())));
    }

    fn left(&self, life: LifeId) {
        self.tell(News::Left(life));
    }

    fn checkpoint(&self, job: &Job, _step: Option<u32>, _levels: Levels, _buffer: &mut Buffer) {
        self.tell(News::PartEnded(job.life));
    }

    fn forget(&self, life: LifeId, _fate: Fate) {
        self.tell(News::Forgotten(life));
    }
}

impl Participant for Shared {
    fn let_go(&self) {
        lock(&self.books).let_go();
    }

    fn resume(&self) {
        self.tell(News::Resumed);
    }
}
