//! Sockets handed over by systemd: the test plays systemd, and starts itself as the service.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]
#![allow(clippy::disallowed_methods, reason = "a test may start a process and read its environment")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use exporter_toolkit::systemd_listeners;

/// What the service does with the first connection.
const GREETING: &str = "adopted";

#[test]
fn a_socket_of_systemd_is_adopted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // What the service has stored before (here standard error) comes with the socket, and is none.
    // LISTEN_PID is the service's own, which only a shell that becomes the service can know.
    let mut service = Command::new("sh")
        .args(["-c", "LISTEN_FDS=2 LISTEN_FDNAMES=http.socket:stored LISTEN_PID=$$ exec \"$0\" --exact the_service --nocapture 3<&0 4<&2"])
        .arg(std::env::current_exe().unwrap())
        .env("TOOLKIT_TEST_SERVICE", "1")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    TcpStream::connect(address).unwrap().read_to_string(&mut said).unwrap();
    assert!(service.wait().unwrap().success());
    assert_eq!(said, GREETING);
}

#[test]
fn the_service() {
    if std::env::var_os("TOOLKIT_TEST_SERVICE").is_none() {
        return;
    }
    let listeners = systemd_listeners(&["stored"]).unwrap();
    assert_eq!(listeners.len(), 1);
    listeners[0].accept().unwrap().0.write_all(GREETING.as_bytes()).unwrap();
}
