//! Where a node's numbers go: to HTTP, or once to standard output.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use exporter_toolkit::{WebConfigHandle, WebOptions};

use super::failure::{FAILED, Failure};
use super::state::STATE_DESCRIPTOR;
use super::{Node, check, once, serve};
use crate::cli::{Config, Mode};
use crate::security;

/// How long the one exposition of `--once` may take.
const ONCE: Duration = Duration::from_secs(30);

/// With fewer descriptors it would run and never accept a scrape.
const LEAST_DESCRIPTORS: usize = 256;

/// The limit of open files is too low to serve.
#[derive(Debug, thiserror::Error)]
#[error(
    "only {0} files may be open; serving takes {LEAST_DESCRIPTORS} (LimitNOFILE= of the service, ulimit -n)"
)]
struct TooFewDescriptors(usize);

/// Writes a text to standard output. Gives the exit status.
pub fn print(text: &str) -> u8 {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => FAILED,
        _ => 0,
    }
}

/// The sockets and the web configuration, opened while the process has its privileges.
pub struct Output {
    web_config: WebConfigHandle,
    listeners: Vec<TcpListener>,
    /// Under which user `--check` was started, and as whom it looks.
    who: String,
    /// Files that the process may have open.
    descriptors: usize,
}

impl Output {
    /// Opens what the configuration asks for, and raises the limit of open files.
    pub fn open(config: &Config) -> Result<Self, Failure> {
        let web_config = WebConfigHandle::load(config.web_config.as_deref()).map_err(Failure::usage)?;
        let listeners = match config.mode {
            Mode::Serve if config.systemd_socket => {
                exporter_toolkit::systemd_listeners(&[STATE_DESCRIPTOR]).map_err(Failure::other)?
            }
            Mode::Serve => exporter_toolkit::bind(&config.listen).map_err(Failure::other)?,
            Mode::Once | Mode::Check => Vec::new(),
        };
        let who = if config.mode == Mode::Check { security::who() } else { String::new() };
        let descriptors = raise_descriptor_limit();
        if config.mode == Mode::Serve && descriptors < LEAST_DESCRIPTORS {
            return Err(Failure::usage(TooFewDescriptors(descriptors)));
        }
        Ok(Self { web_config, listeners, who, descriptors })
    }

    /// TLS, users, and who has logged in.
    pub fn web_config(&self) -> WebConfigHandle {
        self.web_config.clone()
    }

    /// What can be seen only now that privileges are dropped: as whom `--check` looks, and files that cannot be read
    /// again.
    pub fn after_drop(&mut self, config: &Config) {
        if config.mode == Mode::Check {
            let now = security::who();
            if now != self.who {
                self.who = format!("{}, which became {now}", self.who);
            }
        }
        let unreadable = |file: &Path| rustix::fs::access(file, rustix::fs::Access::READ_OK).is_err();
        for file in self.web_config.files().iter().filter(|file| unreadable(file)) {
            tracing::warn!(
                file = %file.display(),
                "cannot be read again by the user that the exporter became: SIGHUP will keep what is in force"
            );
        }
        let credentials = config.redfish.as_ref().and_then(|options| options.credentials.as_deref());
        if let Some(file) = credentials.filter(|file| unreadable(file)) {
            tracing::warn!(
                file = %file.display(),
                "cannot be read again by the user that the exporter became: a new password needs a restart"
            );
        }
    }

    /// Serves until a signal ends it, or prints once. Gives the exit status.
    pub fn run(self, node: Node, config: &Config) -> Result<u8, Failure> {
        match config.mode {
            Mode::Serve => {
                // Connections leave descriptors for the jobs and for reading, which leave those for connections.
                let most = config.web.max_connections.min(self.descriptors / 4);
                let options = WebOptions { max_connections: most, ..config.web.clone() };
                serve(node, self.listeners, options, self.web_config).map_err(Failure::other)?;
                Ok(0)
            }
            Mode::Once => {
                let page = once(&node, ONCE).map_err(Failure::other)?.map_err(Failure::other)?;
                Ok(print(&String::from_utf8_lossy(&page.body)))
            }
            Mode::Check => {
                let (report, fine) = check(&node, config, &self.who).map_err(Failure::other)?;
                print(&report);
                Ok(if fine { 0 } else { FAILED })
            }
        }
    }
}

/// Each running job has a directory held open (on v1 one per hierarchy), and the usual soft limit is 1024.
///
/// Returns the limit.
fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}
