//! What the integration tests share.
//!
//! Nothing here is linked into the exporter, and nothing here uses the exporter's code: a test that checks the exporter
//! with the exporter's own parser checks nothing.
#![allow(
    clippy::disallowed_methods,
    reason = "the disallowed calls are the exporter's policy on a compute node; tests start processes and read files"
)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit fails the test it serves by panicking"
)]

pub mod allocations;
pub mod cgroups;
pub mod crowd;
pub mod device_programs;
pub mod exporter;
pub mod exposition;
pub mod footprint;
pub mod golden;
pub mod http;
pub mod machine;
pub mod networks;
pub mod nvml;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod scratch;
pub mod servers;
pub mod stepd;
pub mod stop;
pub mod strace;
pub mod tools;

/// Waits for something that another thread or process brings about.
///
/// # Panics
/// If it does not come in half a minute.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    use std::time::{Duration, Instant};
    const PATIENCE: Duration = Duration::from_secs(30);
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// For a test in which other threads must have their turn within some ten milliseconds: on a machine that others keep busy it
/// is given several chances, later and later. What is wrong and not late fails them all, which takes half a minute.
pub fn in_time(test: impl Fn() + std::panic::RefUnwindSafe) {
    let pauses = (0..8).map(|turn| std::time::Duration::from_millis(125 << turn));
    for pause in pauses {
        if std::panic::catch_unwind(&test).is_ok() {
            return;
        }
        std::thread::sleep(pause);
    }
    test();
}
