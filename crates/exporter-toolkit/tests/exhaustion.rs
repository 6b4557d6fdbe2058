//! No descriptors left. Alone in its process, since the limit is the process's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]
#![allow(clippy::disallowed_methods, reason = "a test may wait")]

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

#[path = "web/support.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support;

use support::{Double, Server, ask, quick};

#[test]
fn accepting_pauses_without_descriptors_and_goes_on_with_them() {
    let server = Server::start(quick(), Double::default());
    let mut kept = server.connect();
    assert_eq!(ask(&mut kept, "GET", "/metrics", "").unwrap().status, 200);

    let waiting = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut all_others = Vec::new();
    while let Ok(copy) = waiting.as_fd().try_clone_to_owned() {
        all_others.push(copy);
    }
    rustix::net::connect(&waiting, &server.address).unwrap();
    let mut waiting = TcpStream::from(waiting);

    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = cpu();
    waiting.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(ask(&mut waiting, "GET", "/metrics", "").is_err(), "answered without a descriptor");
    let spent = cpu() - before;
    assert!(spent < Duration::from_millis(100), "{spent:?} of CPU in half a second: it spins");
    assert_eq!(ask(&mut kept, "GET", "/metrics", "").unwrap().status, 200, "open connections are served");

    drop(all_others);
    waiting.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(support::read_answer(&mut waiting, false).unwrap().status, 200);
    assert_eq!(server.get("/metrics", "").status, 200);
}
