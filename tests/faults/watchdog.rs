//! What systemd's watchdog gets. Row 10.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::http;
use jobledger_testkit::scratch::Scratch;

use crate::support::*;

/// Its limit; it is fed four times as often.
const LIMIT: Duration = Duration::from_millis(800);
/// No feeding for so long is none at all.
const SILENCE: Duration = Duration::from_secs(4);

/// systemd's end of the notifications.
struct Manager(UnixDatagram);

impl Manager {
    /// Anybody may send to it, as to systemd's.
    fn at(socket: &Path) -> Self {
        let manager = Self(UnixDatagram::bind(socket).unwrap());
        std::fs::set_permissions(socket, Permissions::from_mode(0o777)).unwrap();
        manager
    }

    fn next(&self, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).unwrap();
        let mut text = [0; 1024];
        match self.0.recv(&mut text) {
            Ok(len) => Some(String::from_utf8_lossy(&text[..len]).into_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn expect(&self, what: &str) {
        let got = self.next(LONGEST).unwrap_or_else(|| panic!("no {what}"));
        assert_eq!(got.trim(), what);
    }

    fn drain(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }
}

#[test]
fn the_watchdog_is_fed_while_jobs_are_followed_whatever_a_collector_does() {
    let scratch = Scratch::new("notify");
    let socket = scratch.path().join("socket");
    let manager = Manager::at(&socket);
    let node = Node::with_jobs([1, 2]);
    let exporter = Exporter::prepared(BINARY, &node.flags(&["--scrape.timeout=2s"]), |command| {
        command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", LIMIT.as_micros().to_string());
    });
    manager.expect("READY=1");
    scrape(&exporter);

    // A collector hangs.
    node.0.fifo(format!("{}/memory.stat", job(2)));
    let now = scrape_within(&exporter, "10");
    assert_eq!(success(&now, "memory"), Some(0.0));
    manager.drain();
    for _ in 0..8 {
        manager.expect("WATCHDOG=1");
    }

    // The thread that follows the jobs hangs: it reads this file at each scrape.
    let control = format!("{SCOPE}/cgroup.subtree_control");
    node.0.remove(&control).fifo(&control);
    let timeout = [("X-Prometheus-Scrape-Timeout-Seconds", "1")];
    // Whatever it answers without jobs.
    let _ = http::get(exporter.address(), "/metrics", &timeout, QUIET);
    let fed = std::iter::from_fn(|| manager.next(SILENCE)).take(50).count();
    assert!(fed < 50, "it is fed although no job is followed");
    assert!(exporter.log().contains("the thread that follows the jobs hangs"), "{}", exporter.log());

    // The file answers.
    node.0.rename(&control, "released");
    node.0.write(&control, "cpu memory\n");
    drop(std::fs::OpenOptions::new().write(true).open(node.0.path("released")).unwrap());
    for _ in 0..4 {
        manager.expect("WATCHDOG=1");
    }
}

#[test]
fn without_a_watchdog_there_is_no_feeding() {
    let scratch = Scratch::new("notify");
    let socket = scratch.path().join("socket");
    let manager = Manager::at(&socket);
    let node = Node::with_jobs([1]);
    let exporter = Exporter::prepared(BINARY, &node.flags(&[]), |command| {
        command.env("NOTIFY_SOCKET", &socket);
    });
    manager.expect("READY=1");
    scrape(&exporter);
    assert_eq!(manager.next(2 * LIMIT), None);
    assert_eq!(exporter.terminate(), Some(0));
    manager.expect("STOPPING=1");
}
