//! What a user sees of a command that takes long, and what Ctrl-C does to it.

use std::future::Future;
use std::io::{IsTerminal, stderr};
use std::pin::pin;
use std::time::{Duration, Instant};

use prometheus_api::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::output::Progress;
use crate::{Failure, Kind};

/// What takes no longer shows nothing.
const EVERY: Duration = Duration::from_secs(1);

/// Does the work. After a second a line on a terminal says how far it is, and goes when it is done.
pub(super) async fn shown<T>(work: impl Future<Output = T>, client: &Client) -> T {
    if !stderr().is_terminal() {
        return work.await;
    }
    let (mut work, begun, line) = (pin!(work), Instant::now(), Progress);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(EVERY) => {
                let answers = client.log();
                let (count, bytes) = (answers.len(), answers.iter().map(|asked| asked.bytes).sum::<u64>());
                let seconds = begun.elapsed().as_secs();
                line.show(&format!("the server is asked: {count} answers, {} kB, {seconds} s", bytes / 1000));
            }
        }
    }
}

/// Does the work until Ctrl-C, which ends it where it waits: a file that is being written is whole, or is not there.
pub(super) async fn interrupted<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::other(error.to_string()))?;
    tokio::select! {
        biased;
        done = work => done,
        _ = interrupt.recv() => Err(Failure::new(Kind::Interrupted, "interrupted")),
    }
}
