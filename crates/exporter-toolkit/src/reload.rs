//! The active web configuration, and its reload when a file changes.
//!
//! Go's exporter-toolkit reads its file again for every request. Here a request checks the metadata of the files, at
//! most once a second, and reads the files if they changed. A reload takes effect as a whole or not at all. After an error
//! the last good configuration remains in force. No reload removes a protection (TLS, client certificates, passwords),
//! since an emptied file would look the same. Removing one needs a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config_files::{ConfigError, Source, Stamp, read_config_file};
use parking_lot::Mutex;
use tokio_rustls::rustls::ServerConfig;

use crate::auth::{NotLogins, Remembered};
use crate::config::{ClientAuth, WebConfig};
use crate::limit::Limiter;
use crate::tls;

/// How long a request waits for the check of the files. On a hung file system the last state remains active.
const PATIENCE: Duration = Duration::from_millis(500);

/// How the last attempt to read the files went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastReload {
    /// Whether the files were loaded as they are.
    pub succeeded: bool,
    /// When it was attempted.
    pub at: SystemTime,
}

/// A loaded configuration.
#[derive(Debug, Default)]
pub(crate) struct Active {
    pub(crate) config: WebConfig,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// When the certificate expires, in Unix time.
    pub(crate) not_after: Option<i64>,
    pub(crate) limiter: Option<Arc<Limiter>>,
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
    logins: Arc<Remembered>,
}

type Files = Vec<(PathBuf, Option<Stamp>)>;

#[derive(Debug)]
struct Schedule {
    next: Instant,
    /// While a check hangs, no second one starts.
    running: bool,
}

impl WebConfigHandle {
    /// Reads the file and the files that it names. Without a path: plain HTTP without passwords.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with(path, Duration::from_secs(1))
    }

    /// The same, with another interval between checks than a second. A changed file is read when it has not changed for
    /// one interval.
    pub fn load_with(path: Option<&Path>, check_interval: Duration) -> Result<Self, ConfigError> {
        let (files, active) = match path {
            Some(path) => {
                let Attempt { files, outcome } = Attempt::new(path);
                (files, outcome?)
            }
            None => (Files::new(), Active::default()),
        };
        let logins = Remembered::new();
        let logins =
            logins.map_err(|why| ConfigError::new(path.unwrap_or(Path::new("")), why.to_string()))?;
        Ok(WebConfigHandle(Arc::new(Inner {
            path: path.map(Path::to_owned),
            check_interval,
            active: Mutex::new(Arc::new(active)),
            last: Mutex::new(LastReload { succeeded: true, at: clocks::wall() }),
            files: Mutex::new(files),
            schedule: Mutex::new(Schedule { next: Instant::now() + check_interval, running: false }),
            logins: Arc::new(logins),
        })))
    }

    /// Reads the files again at once (SIGHUP), whether or not they changed. An error is also logged.
    pub async fn reload(&self) -> Result<(), ConfigError> {
        let Some(path) = self.0.path.clone() else { return Ok(()) };
        let inner = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || inner.install(&mut inner.files.lock(), &path));
        let path = self.0.path.as_deref().unwrap_or(Path::new(""));
        read.await.unwrap_or_else(|_| Err(ConfigError::new(path, "reading it was cut short")))
    }

    /// How the last attempt to read the files went, that at start included.
    pub fn last_reload(&self) -> LastReload {
        *self.0.last.lock()
    }

    /// When the certificate in force expires, or the first one of its chain; none without TLS.
    pub fn certificate_expires(&self) -> Option<SystemTime> {
        let not_after = self.active().not_after?;
        Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(not_after).unwrap_or(0)))
    }

    /// Every file that a reload reads, for a caller that restricts access to other files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.files.lock().iter().map(|(path, _)| path.clone()).collect()
    }

    /// The logins that were right, for the next process: with them a client that was let in is let in again without a
    /// check of its password, which a flood of wrong ones can delay.
    ///
    /// At most some 2 KiB: keyed hashes, and their key. Passwords can be tried on them much faster than on the hashes of the
    /// configuration. Only this user and root may read where they are kept.
    pub fn export_logins(&self) -> Vec<u8> {
        self.0.logins.export()
    }

    /// Takes over logins that [`export_logins`](Self::export_logins) gave, and forgets others. One whose user's hash has
    /// changed in the configuration since is not valid. `Err` leaves everything as it is.
    pub fn import_logins(&self, exported: &[u8]) -> Result<(), NotLogins> {
        self.0.logins.import(exported)
    }

    /// Shared by the servers of this configuration.
    pub(crate) fn logins(&self) -> Arc<Remembered> {
        Arc::clone(&self.0.logins)
    }

    /// The active configuration.
    pub(crate) fn active(&self) -> Arc<Active> {
        Arc::clone(&self.0.active.lock())
    }

    /// The active configuration, after a check of the files if one is due.
    pub(crate) async fn fresh(&self) -> Arc<Active> {
        if let Some(path) = self.0.path.clone().filter(|_| self.0.check_is_due()) {
            let inner = Arc::clone(&self.0);
            let check = tokio::task::spawn_blocking(move || {
                let _running = Running(&inner.schedule);
                inner.check(&path);
            });
            // If it is late or fails, the last state remains active.
            let _ = tokio::time::timeout(PATIENCE, check).await;
        }
        self.active()
    }
}

struct Running<'a>(&'a Mutex<Schedule>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running = false;
    }
}

impl Inner {
    fn check_is_due(&self) -> bool {
        let now = Instant::now();
        let mut schedule = self.schedule.lock();
        let due = !schedule.running && now >= schedule.next;
        if due {
            *schedule = Schedule { next: now + self.check_interval, running: true };
        }
        due
    }

    fn check(&self, path: &Path) {
        let mut files = self.files.lock();
        let now = stamped(files.iter().map(|(path, _)| path.clone()));
        let settled = || {
            now.iter().flat_map(|(_, stamp)| stamp).all(|s| s.is_settled(self.check_interval, clocks::wall()))
        };
        if now != *files && settled() {
            // An error is logged in `install`.
            let _ = self.install(&mut files, path);
        }
    }

    fn install(&self, files: &mut Files, path: &Path) -> Result<(), ConfigError> {
        let mut attempt = Attempt::new(path);
        let active = Arc::clone(&self.active.lock());
        let outcome = attempt.outcome.and_then(|new| new.replacing(&active, path));
        if outcome.is_err() {
            // Go on watching the files of the active state, so that a repair of one of them is noticed.
            let known = |path: &PathBuf| attempt.files.iter().any(|(other, _)| other == path);
            let others: Vec<_> =
                files.iter().map(|(path, _)| path.clone()).filter(|path| !known(path)).collect();
            attempt.files.extend(stamped(others.into_iter()));
        }
        *files = attempt.files;
        *self.last.lock() = LastReload { succeeded: outcome.is_ok(), at: clocks::wall() };
        match outcome {
            Ok(new) => {
                *self.active.lock() = Arc::new(new);
                tracing::info!(file = %path.display(), "web configuration reloaded");
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "web configuration not reloaded, the last good one remains in force");
                Err(error)
            }
        }
    }
}

/// One reading of the file and of the files that it names. The stamps are older than the contents, so that the next check
/// sees a change in between.
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
            Err(ConfigError::new(path, "it changed, or a file that it names, while it was being read"))
        });
        Attempt { files, outcome }
    }

    fn read(path: &Path, files: &mut Files) -> Result<Active, ConfigError> {
        let bytes = read_config_file(path).map_err(|why| ConfigError::new(path, why.to_string()))?;
        let config = WebConfig::parse(&bytes, path)?;
        let (server, not_after) = match &config.tls {
            Some(section) => {
                let pems = [Some(&section.cert), Some(&section.key), section.client_ca.as_ref()];
                files.extend(stamped(pems.into_iter().flatten().filter_map(|pem| match &pem.source {
                    Source::File(path) => Some(path.clone()),
                    Source::Inline(_) => None,
                })));
                if section.client_allowed_sans.is_some() && !section.client_auth.verifies() {
                    tracing::warn!(file = %path.display(), "client_allowed_sans is no protection: \
                        RequireAnyClientCert takes a certificate that anybody can make, with any name");
                }
                let (server, not_after) = tls::server(section).map_err(|why| ConfigError::new(path, why))?;
                (Some(server), Some(not_after))
            }
            None => (None, None),
        };
        let limiter = config.rate.map(|rate| Arc::new(Limiter::new(rate, Instant::now())));
        Ok(Active { config, tls: server, not_after, limiter })
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
            return Err(ConfigError::new(path, reason));
        }
        let expired = |active: &Self| active.not_after.is_some_and(tls::has_expired);
        if expired(&self) && !expired(old) {
            return Err(ConfigError::new(path, "the new certificate has expired"));
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
