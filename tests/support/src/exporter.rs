//! The exporter under test, running.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::http;
use crate::servers::{die_with_parent, free_address};

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running exporter on a free loopback port, stopped on drop. It dies with the thread that started it.
#[derive(Debug)]
pub struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    /// Starts `binary` with these flags and waits until it listens. Its log goes to the test's standard error.
    ///
    /// # Panics
    /// If it ends or does not come up.
    #[must_use]
    pub fn start<S: AsRef<str>>(binary: &str, flags: &[S]) -> Self {
        let address = free_address();
        let mut command = Command::new(binary);
        command.arg(format!("--web.listen-address={address}")).stdin(Stdio::null()).stdout(Stdio::null());
        command.args(flags.iter().map(AsRef::as_ref)).stderr(Stdio::piped());
        let mut child = die_with_parent(&mut command).spawn().unwrap_or_else(|e| panic!("{binary}: {e}"));
        let log = child.stderr.take();
        std::thread::spawn(move || {
            for line in log.into_iter().flat_map(|log| BufReader::new(log).lines()).map_while(Result::ok) {
                let _ = writeln!(std::io::stderr(), "exporter: {line}");
            }
        });
        let mut exporter = Self { child, address };
        let deadline = Instant::now() + PATIENCE;
        while http::get(address, "/-/ready", &[], Duration::from_secs(1)).is_err() {
            let ended = exporter.child.try_wait().expect("wait");
            assert!(ended.is_none() && Instant::now() < deadline, "the exporter does not come up: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        exporter
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
        let answer = http::get(self.address, "/metrics", &[], Duration::from_secs(20));
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
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
