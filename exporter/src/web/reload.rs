//! The web configuration in force, and how a changed file takes its place.
//!
//! The toolkit reads its file again for every request. Here the files are looked at when there is a request, at
//! most once a second, and read when they have changed. A new state comes into force whole or not at all: what is
//! broken leaves the last good one in force, and no reload lifts a protection (TLS, client certificates,
//! passwords) that was on, since an emptied file looks just like that. Lifting one takes a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use kernel_files::site_file;
use tokio_rustls::rustls::ServerConfig;

use super::config::{ClientAuth, ConfigError, PemSource, WebConfig};
use super::file::Stamp;
use super::limit::Limiter;
use super::tls;

/// How long a request waits for files to be looked at; on a hung file system the last state goes on.
const PATIENCE: Duration = Duration::from_millis(500);

/// How the last attempt to read the files went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastReload {
    /// Whether what the files say is what is in force.
    pub succeeded: bool,
    /// When it was attempted.
    pub at: SystemTime,
}

/// A configuration in force.
#[derive(Debug, Default)]
pub(super) struct Active {
    pub(super) config: WebConfig,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) limiter: Option<Arc<Limiter>>,
}

/// The web configuration of a running server. Clones are the same.
#[derive(Debug, Clone)]
pub struct WebConfigHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    check_interval: Duration,
    active: Mutex<Arc<Active>>,
    last: Mutex<LastReload>,
    /// The files as they were when last read. Held while reading, so that there is one reader at a time.
    files: Mutex<Files>,
    schedule: Mutex<Schedule>,
}

type Files = Vec<(PathBuf, Option<Stamp>)>;

#[derive(Debug)]
struct Schedule {
    next: Instant,
    /// A check that hangs is not joined by a second one.
    running: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WebConfigHandle {
    /// Reads the file and everything that it names, or says what is wrong with it. Without a path: plain HTTP for
    /// everyone.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with(path, Duration::from_secs(1))
    }

    /// The same, looking for changes at another interval than every second. A file counts as changed when it has
    /// been left alone for one interval.
    pub fn load_with(path: Option<&Path>, check_interval: Duration) -> Result<Self, ConfigError> {
        let (files, active) = match path {
            Some(path) => {
                let Attempt { files, outcome } = Attempt::new(path);
                (files, outcome?)
            }
            None => (Files::new(), Active::default()),
        };
        Ok(WebConfigHandle(Arc::new(Inner {
            path: path.map(Path::to_owned),
            check_interval,
            active: Mutex::new(Arc::new(active)),
            last: Mutex::new(LastReload { succeeded: true, at: SystemTime::now() }),
            files: Mutex::new(files),
            schedule: Mutex::new(Schedule { next: Instant::now() + check_interval, running: false }),
        })))
    }

    /// Reads the files again at once (SIGHUP), whether or not they changed. What is wrong is also logged.
    pub async fn reload(&self) -> Result<(), ConfigError> {
        let Some(path) = self.0.path.clone() else { return Ok(()) };
        let inner = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || inner.install(&mut lock(&inner.files), &path));
        let stopped = |_| ConfigError {
            path: self.0.path.clone().unwrap_or_default(),
            line: None,
            reason: "reading it was cut short".to_owned(),
        };
        read.await.map_err(stopped).and_then(|outcome| outcome)
    }

    /// How the last attempt to read the files went, the one at start included.
    pub fn last_reload(&self) -> LastReload {
        *lock(&self.0.last)
    }

    /// Every file that a reload reads, for whoever takes away the right to read others.
    pub fn files(&self) -> Vec<PathBuf> {
        lock(&self.0.files).iter().map(|(path, _)| path.clone()).collect()
    }

    /// What is in force.
    pub(super) fn active(&self) -> Arc<Active> {
        Arc::clone(&lock(&self.0.active))
    }

    /// What is in force, after a look at the files if one is due.
    pub(super) async fn fresh(&self) -> Arc<Active> {
        if let Some(path) = self.0.path.clone().filter(|_| self.0.check_is_due()) {
            let inner = Arc::clone(&self.0);
            let check = tokio::task::spawn_blocking(move || {
                let _running = Running(&inner.schedule);
                inner.check(&path);
            });
            // Late or cut short, what is in force stays in force.
            let _ = tokio::time::timeout(PATIENCE, check).await;
        }
        self.active()
    }
}

struct Running<'a>(&'a Mutex<Schedule>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(self.0).running = false;
    }
}

impl Inner {
    fn check_is_due(&self) -> bool {
        let now = Instant::now();
        let mut schedule = lock(&self.schedule);
        let due = !schedule.running && now >= schedule.next;
        if due {
            *schedule = Schedule { next: now + self.check_interval, running: true };
        }
        due
    }

    fn check(&self, path: &Path) {
        let mut files = lock(&self.files);
        let now = stamped(files.iter().map(|(path, _)| path.clone()));
        let settled = || {
            now.iter()
                .flat_map(|(_, stamp)| stamp)
                .all(|s| s.is_settled(self.check_interval, SystemTime::now()))
        };
        if now != *files && settled() {
            // Logged and counted where it is installed; there is nobody here to tell.
            let _ = self.install(&mut files, path);
        }
    }

    fn install(&self, files: &mut Files, path: &Path) -> Result<(), ConfigError> {
        let mut attempt = Attempt::new(path);
        let active = Arc::clone(&lock(&self.active));
        let outcome = attempt.outcome.and_then(|new| new.replacing(&active, path));
        if outcome.is_err() {
            // The good state's files are still watched, so that putting one of them right is noticed.
            let known = |path: &PathBuf| attempt.files.iter().any(|(other, _)| other == path);
            let others: Vec<_> =
                files.iter().map(|(path, _)| path.clone()).filter(|path| !known(path)).collect();
            attempt.files.extend(stamped(others.into_iter()));
        }
        *files = attempt.files;
        *lock(&self.last) = LastReload { succeeded: outcome.is_ok(), at: SystemTime::now() };
        match outcome {
            Ok(new) => {
                *lock(&self.active) = Arc::new(new);
                tracing::info!(file = %path.display(), "web configuration reloaded");
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "web configuration not reloaded, the last good one stays in force");
                Err(error)
            }
        }
    }
}

/// One reading of the file and of what it names. The stamps are older than what was read, so that a change in
/// between is seen by the next look.
struct Attempt {
    files: Files,
    outcome: Result<Active, ConfigError>,
}

impl Attempt {
    fn new(path: &Path) -> Self {
        let mut files = stamped([path.to_owned()].into_iter());
        let outcome = Self::read(path, &mut files);
        let outcome = outcome.and_then(|active| {
            if stamped(files.iter().map(|(path, _)| path.clone())) == files {
                return Ok(active);
            }
            let reason = "it changed, or a file that it names, while it was being read".to_owned();
            Err(ConfigError { path: path.to_owned(), line: None, reason })
        });
        Attempt { files, outcome }
    }

    fn read(path: &Path, files: &mut Files) -> Result<Active, ConfigError> {
        let error = |line, reason: String| ConfigError { path: path.to_owned(), line, reason };
        let bytes = site_file::read(path).map_err(|why| error(None, why.to_string()))?;
        let config = WebConfig::parse(&bytes, path)?;
        let server = match &config.tls {
            Some(section) => {
                let pems = [Some(&section.cert), Some(&section.key), section.client_ca.as_ref()];
                files.extend(stamped(pems.into_iter().flatten().filter_map(|pem| match &pem.source {
                    PemSource::File(path) => Some(path.clone()),
                    PemSource::Inline(_) => None,
                })));
                if section.client_allowed_sans.is_some() && !section.client_auth.verifies() {
                    tracing::warn!(file = %path.display(), "client_allowed_sans is no protection: \
                        RequireAnyClientCert takes a certificate that anybody can make, with any name");
                }
                Some(tls::server(section).map_err(|why| error(why.line, why.reason))?)
            }
            None => None,
        };
        let limiter = config.rate.map(|rate| Arc::new(Limiter::new(rate, Instant::now())));
        Ok(Active { config, tls: server, limiter })
    }
}

fn stamped(paths: impl Iterator<Item = PathBuf>) -> Files {
    let with_stamp = |path: PathBuf| {
        let stamp = Stamp::of(&path);
        (path, stamp)
    };
    paths.map(with_stamp).collect()
}

impl Active {
    fn replacing(mut self, old: &Active, path: &Path) -> Result<Self, ConfigError> {
        let lifted =
            old.protections().into_iter().zip(self.protections()).find(|((_, was), (_, is))| *was && !is);
        if let Some(((protection, _), _)) = lifted {
            let reason = format!("{protection} cannot be switched off without a restart");
            return Err(ConfigError { path: path.to_owned(), line: None, reason });
        }
        if self.config.rate == old.config.rate {
            self.limiter = old.limiter.clone();
        }
        Ok(self)
    }

    fn protections(&self) -> [(&'static str, bool); 4] {
        let section = self.config.tls.as_ref();
        let client_auth = section.map_or(ClientAuth::None, |tls| tls.client_auth);
        [
            ("TLS", self.tls.is_some()),
            ("the check of client certificates", client_auth.verifies() && client_auth.requires()),
            ("the list of client names", section.is_some_and(|tls| tls.client_allowed_sans.is_some())),
            ("the password check", !self.config.users.is_empty()),
        ]
    }
}
