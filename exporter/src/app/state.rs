//! The accounts, kept for a restart: by systemd in its descriptor store, or in a file.

use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use durable_state::slot::{Identity, Refused};
use durable_state::{Outcome, Sections, Store, StoreError, decode};
use exporter_toolkit::WebConfigHandle;
use parking_lot::Mutex;
use rustix::fs::{Mode as Permissions, OFlags};
use slurm_jobs::table::SavedTable;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, TableSaver};
use worker_threads::Worker;

use crate::cli::{Config, Mode};
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::exporter::StateReport;

/// The name of the memory file in systemd's descriptor store.
pub(super) const STATE_DESCRIPTOR: &str = "jobledger-state";
/// The layout of what is saved. It changes with every type that is: an old state is refused then, and not misread.
pub const LAYOUT: u32 = 9;
/// The section of the table of jobs.
const TABLE: &str = "table";
/// How long the table is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the last readings of all parts may take together.
const LAST_READINGS: Duration = Duration::from_secs(1);
/// How often all parts are saved anew when a collection ended meanwhile. The next save follows in any case.
const ATTEMPTS: usize = 3;
/// Jobs that come and go soon after each other are saved together, after the readings that they cause.
const PAUSE: Duration = Duration::from_millis(200);

/// Where the accounts are kept, opened while the process has its privileges.
#[derive(Debug, Default)]
pub struct KeptState {
    store: Option<Store>,
    storage: Option<&'static str>,
}

impl KeptState {
    /// Opens what the configuration and systemd offer; nothing for a run that does not serve.
    pub fn open(config: &Config) -> Self {
        if config.mode != Mode::Serve {
            return Self::default();
        }
        match open(config) {
            Ok(Some((store, storage))) => Self { store: Some(store), storage: Some(storage) },
            Ok(None) => {
                tracing::info!(
                    "the accounts are not kept for a restart: no --state.file, and no descriptor store of systemd"
                );
                Self::default()
            }
            Err((storage, error)) => {
                tracing::warn!(%error, storage, "the accounts are not kept for a restart");
                Self { store: None, storage: Some(storage) }
            }
        }
    }

    /// In words, where a service with this configuration keeps them.
    pub fn describe(config: &Config) -> String {
        match (&config.state_file, config.stores_descriptors) {
            (_, true) => "Accounts are kept for a restart by systemd (descriptor store).".to_owned(),
            (Some(file), false) => format!("Accounts are kept for a restart in {}.", file.display()),
            (None, false) => {
                "Accounts are not kept for a restart: no --state.file, no descriptor store.".to_owned()
            }
        }
    }
}

type Opening = Result<Option<(Store, &'static str)>, (&'static str, StoreError)>;

fn open(config: &Config) -> Opening {
    const DESCRIPTOR: &str = "descriptor";
    const FILE: &str = "file";
    let identity = |storage| {
        let boot = durable_state::boot_id().map_err(|error| (storage, error))?;
        Ok(Identity { layout: LAYOUT, boot })
    };
    let stored =
        exporter_toolkit::systemd_descriptors().into_iter().find(|(_, name)| name == STATE_DESCRIPTOR);
    if let Some((fd, _)) = stored {
        let failed = |error| (DESCRIPTOR, error);
        let store =
            reopened(fd).and_then(|fd| Store::in_memory(Some(fd), identity(DESCRIPTOR).map_err(|(_, e)| e)?));
        return store.map(|store| Some((store, DESCRIPTOR))).map_err(failed);
    }
    if config.stores_descriptors {
        let failed = |error| (DESCRIPTOR, error);
        let store = Store::in_memory(None, identity(DESCRIPTOR)?).map_err(failed)?;
        let state = [sd_notify::NotifyState::FdStore, sd_notify::NotifyState::FdName(STATE_DESCRIPTOR)];
        sd_notify::notify_with_fds(&state, &[store.descriptor()]).map_err(|error| failed(error.into()))?;
        return Ok(Some((store, DESCRIPTOR)));
    }
    let Some(file) = &config.state_file else { return Ok(None) };
    let store = Store::in_file(file, identity(FILE)?).map_err(|error| (FILE, error))?;
    Ok(Some((store, FILE)))
}

/// A descriptor of our own for the file behind one that systemd handed over.
fn reopened(fd: RawFd) -> Result<OwnedFd, StoreError> {
    let path = format!("/proc/self/fd/{fd}");
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Permissions::empty())?)
}

type Parts = Vec<(&'static str, Arc<dyn Durable>)>;

/// Saves the accounts: after each collection, soon after jobs came and went, and on request. Clones share it.
#[derive(Clone)]
pub struct Keeper(Arc<Inner>);

struct Inner {
    store: Mutex<Saving>,
    parts: Parts,
    table: OnceLock<TableSaver>,
    report: StateReport,
    plan: Mutex<Plan>,
    worker: Worker,
}

struct Saving {
    store: Store,
    /// The last sections, for parts that are busy now.
    latest: BTreeMap<&'static str, Vec<u8>>,
    /// The last failure: each is logged once.
    failed: Option<String>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Since when something is to be saved.
    wanted: Option<Instant>,
    last: Option<Instant>,
    took: Duration,
}

impl Keeper {
    /// Takes over what an exporter before this one saved, before any job is found: the parts here, and the table, with when it
    /// was saved, for the caller. `None` where nothing is kept.
    pub fn restore(
        kept: KeptState,
        parts: Parts,
        report: StateReport,
    ) -> (Option<Self>, Option<(SavedTable, Instant)>) {
        let Some(mut store) = kept.store else {
            report.opened(kept.storage.unwrap_or("none"), "off");
            return (None, None);
        };
        let storage = kept.storage.unwrap_or("none");
        let (outcome, saved) = match store.load() {
            Ok(Outcome::Found(sections)) => match restore(&sections, &parts) {
                Some(table) => ("restored", Some((table, sections.saved))),
                None => ("damaged", None),
            },
            Ok(Outcome::Refused(why)) => (reason(why), None),
            Err(error) => {
                tracing::warn!(%error, storage, "the state from before cannot be read");
                ("damaged", None)
            }
        };
        match &saved {
            Some((_, seen)) => {
                let unobserved = format!("{:.1} s", seen.elapsed().as_secs_f64());
                tracing::info!(storage, unobserved, "the accounts go on from where they were");
            }
            None => tracing::info!(storage, outcome, "the accounts begin now"),
        }
        report.opened(storage, outcome);
        let saving = Saving { store, latest: BTreeMap::new(), failed: None };
        let inner = Inner {
            store: Mutex::new(saving),
            parts,
            table: OnceLock::new(),
            report,
            plan: Mutex::default(),
            worker: Worker::new("state", 256 << 10),
        };
        (Some(Self(Arc::new(inner))), saved)
    }

    /// Saves from now on.
    pub fn start(&self, table: TableSaver) {
        let _ = self.0.table.set(table);
        let this = Arc::downgrade(&self.0);
        if let Err(error) = self.0.worker.start(move || move || this.upgrade()?.round()) {
            tracing::error!(%error, "no thread to save the accounts on");
        }
    }

    /// Saves now.
    pub fn save(&self) {
        self.0.save();
    }

    /// Saves before the process ends, the second time with what only this process can read. A reading may hang.
    pub fn save_last(&self) {
        self.save();
        let (parts, (read, all_read)) = (self.0.parts.clone(), std::sync::mpsc::channel());
        let readings = move || {
            parts.iter().for_each(|(_, part)| part.read_last());
            let _ = read.send(());
        };
        match std::thread::Builder::new().name("state".to_owned()).spawn(readings) {
            Ok(_) => match all_read.recv_timeout(LAST_READINGS) {
                Ok(()) => self.save(),
                Err(_) => tracing::warn!("the last readings hang; the accounts end with those before"),
            },
            Err(error) => tracing::error!(%error, "no thread for the last readings"),
        }
    }

    /// Has what jobs' comings and goings changed saved soon.
    pub fn observer(&self) -> Arc<dyn JobObserver> {
        Arc::new(SavesSoon(self.0.clone()))
    }
}

fn reason(refused: Refused) -> &'static str {
    match refused {
        Refused::Empty => "empty",
        Refused::Damaged => "damaged",
        Refused::OtherVersion => "other_version",
        Refused::OtherBoot => "other_boot",
    }
}

/// Restores the parts. `None` if the table of jobs cannot be read: without it no run is known.
fn restore(sections: &Sections, parts: &Parts) -> Option<SavedTable> {
    let table: SavedTable = decode(sections.get(TABLE)?).ok()?;
    let before = Before { runs: table.runs(), seen: sections.saved };
    for (name, part) in parts {
        if let Some(section) = sections.get(name)
            && part.restore(section, &before).is_err()
        {
            tracing::warn!(
                collector = name,
                "the saved state of this collector cannot be read: its counters begin at 0"
            );
        }
    }
    Some(table)
}

impl Inner {
    fn soon(&self) {
        self.plan.lock().wanted.get_or_insert_with(Instant::now);
        self.worker.notify();
    }

    /// Saves when it is due: at most a hundredth of a CPU goes into it, however many jobs come and go.
    fn round(&self) -> Option<Instant> {
        let due = {
            let plan = self.plan.lock();
            let rested = plan.last.map(|last| last + plan.took.saturating_mul(100));
            let due = plan.wanted? + PAUSE;
            rested.map_or(due, |rested| due.max(rested))
        };
        if due > Instant::now() {
            return Some(due);
        }
        self.save();
        None
    }

    /// Saves the parts, and the table of jobs for the caller.
    fn save_parts(
        &self,
        table: &TableSaver,
        latest: &mut BTreeMap<&'static str, Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let generation = || self.parts.iter().map(|(_, part)| part.generation()).fold(0, u64::wrapping_add);
        let mut saved = None;
        for _ in 0..ATTEMPTS {
            let before = generation();
            for (name, part) in &self.parts {
                if let Some(section) = part.save() {
                    latest.insert(name, section);
                }
            }
            // Last, so that every run of the sections is in it.
            saved = table.save(PATIENCE);
            // Else a job may be dropped from the table whose last growth came to its owner after the owners were saved.
            if saved.is_none() || generation() == before {
                break;
            }
        }
        saved
    }

    fn save(&self) {
        let Some(table) = self.table.get() else { return };
        let mut saving = self.store.lock();
        let saved = Instant::now();
        self.plan.lock().wanted = None;
        let Saving { store, latest, failed } = &mut *saving;
        let outcome = match self.save_parts(table, latest) {
            Some(table) => {
                let sections = latest.iter().map(|(name, section)| ((*name).to_owned(), section.clone()));
                let sections = sections.chain([(TABLE.to_owned(), table)]).collect();
                store.save(&Sections { saved, sections }).map_err(|error| error.to_string())
            }
            None => Err("the table of jobs is late".to_owned()),
        };
        let failure = outcome.err();
        if let Some(error) = &failure {
            self.report.save_failed();
            if *failed != failure {
                tracing::warn!(error, "the accounts cannot be saved for a restart");
            }
        }
        *failed = failure;
        let took = saved.elapsed();
        let mut plan = self.plan.lock();
        (plan.last, plan.took) = (Some(saved), took);
        tracing::debug!(?took, "saved the accounts");
    }
}

/// The logins that the web server remembers.
pub(super) struct Logins(WebConfigHandle);

impl Logins {
    /// As a part of what is kept.
    pub(super) fn part(web_config: WebConfigHandle) -> (&'static str, Arc<dyn Durable>) {
        ("logins", Arc::new(Self(web_config)))
    }
}

impl Durable for Logins {
    fn save(&self) -> Option<Vec<u8>> {
        Some(self.0.export_logins())
    }

    fn restore(&self, section: &[u8], _before: &Before) -> Result<(), Unreadable> {
        self.0.import_logins(section).map_err(|_| Unreadable)
    }
}

/// The keeper's observer of jobs.
struct SavesSoon(Arc<Inner>);

impl JobObserver for SavesSoon {
    fn initial_scan_done(&self) {
        self.0.soon();
    }

    fn job_started(&self, _job: &Job) {
        self.0.soon();
    }

    fn job_left_node(&self, _run: JobRunId) {
        self.0.soon();
    }

    fn job_removed(&self, _run: JobRunId, _disposition: Disposition) {
        self.0.soon();
    }
}
