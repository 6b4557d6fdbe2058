//! The exporter under test, running.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::servers::{die_with_parent, free_address};
use crate::wait::until;
use crate::{http, wait};

/// What tests need unless they say otherwise: each scrape measures, and what a test scrapes is delivered. A test that gives
/// one of them without a value has the exporter's own default.
const DEFAULTS: &[(&str, &str)] = &[("--scrape.min-interval", "0s"), ("--web.scrapers", "127.0.0.1")];

/// A running exporter on a free loopback port, stopped on drop. It dies with the thread that started it.
#[derive(Debug)]
pub struct Exporter {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Exporter {
    /// Starts `binary` with these flags and waits until it listens. Its log goes to the test's standard error.
    ///
    /// # Panics
    /// If it ends or does not come up.
    #[must_use]
    pub fn start<S: AsRef<str>>(binary: &str, flags: &[S]) -> Self {
        Self::prepared(binary, flags, |_| {})
    }

    /// As [`Exporter::start`], after `prepare` had its way with the command: another user, limits, another
    /// standard error (whose log is then not taken).
    ///
    /// # Panics
    /// As [`Exporter::start`].
    #[must_use]
    pub fn prepared<S: AsRef<str>>(binary: &str, flags: &[S], prepare: impl FnOnce(&mut Command)) -> Self {
        let address = free_address();
        let mut command = Command::new(crate::tools::for_everybody(Path::new(binary)));
        command.arg(format!("--web.listen-address={address}")).stdin(Stdio::null()).stdout(Stdio::null());
        let is_unset = |flag: &&str| DEFAULTS.iter().any(|(name, _)| flag.strip_prefix(name) == Some("="));
        command.args(flags.iter().map(AsRef::as_ref).filter(|flag| !is_unset(flag))).stderr(Stdio::piped());
        for (name, value) in DEFAULTS {
            if !flags.iter().any(|flag| flag.as_ref().starts_with(name)) {
                command.arg(format!("{name}={value}"));
            }
        }
        prepare(&mut command);
        die_with_parent(&mut command);
        let mut child = until("a program that nobody writes", || match command.spawn() {
            // A copy that was just written: another test's child has its descriptor until it is executed.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => Err(e.to_string()),
            other => Ok(other.unwrap_or_else(|e| panic!("{binary}: {e}"))),
        });
        let (stderr, log) = (child.stderr.take(), Arc::default());
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines());
            for line in lines.map_while(Result::ok) {
                let _ = writeln!(std::io::stderr(), "exporter: {line}");
                lock(&written).push_str(&(line + "\n"));
            }
        });
        let mut exporter = Self { child, address, log };
        until("the exporter answers", || {
            let ended = exporter.child.try_wait().expect("wait");
            assert!(ended.is_none(), "the exporter does not come up: {ended:?}");
            if answers(address) { Ok(()) } else { Err(exporter.log()) }
        });
        exporter
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        lock(&self.log).clone()
    }

    /// Its exit status once it has ended.
    ///
    /// # Panics
    /// If it waits for something else than a busy machine longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> std::process::ExitStatus {
        self.ended(limit).unwrap_or_else(|| panic!("the exporter still runs after {limit:?}"))
    }

    fn ended(&mut self, limit: Duration) -> Option<std::process::ExitStatus> {
        let mut clock = wait::QuietClock::new();
        loop {
            let status = self.child.try_wait().expect("wait");
            if status.is_some() || clock.is_over(limit) {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The text exposition.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn metrics(&self) -> String {
        let answer = http::get(self.address, "/metrics", &[], wait::QUIET);
        answer.unwrap_or_else(|e| panic!("/metrics: {e}")).text().to_owned()
    }

    /// CPU time it has spent, seconds (`/proc/PID/stat`, fields 14 and 15).
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(Path::new("/proc").join(self.pid().to_string()).join("stat"));
        let stat = stat.expect("the exporter runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Ends it as systemd does, and says how it exited; `None` if it waits for something longer than 10 s.
    ///
    /// # Panics
    /// If it cannot be asked to.
    #[must_use]
    pub fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM");
        self.ended(Duration::from_secs(10))?.code()
    }
}

fn lock(log: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it answers; over TLS, with the alert that a plain request gets.
fn answers(address: SocketAddr) -> bool {
    match http::get(address, "/-/ready", &[], Duration::from_secs(1)) {
        Ok(answer) => answer.status == 200,
        Err(error) => error.kind() == std::io::ErrorKind::InvalidData,
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
