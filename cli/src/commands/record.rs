//! `jobledger record`

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::node::Node;
use super::surroundings::{now, warn};
use crate::recording::{Recorder, file_name};
use crate::{Failure, Kind, arguments};

/// A job that is not shown for so many batches in a row is over, or another node's.
const MOST_WITHOUT: u32 = 12;
/// signal(7): 31 on MIPS alone.
const SIGXFSZ: i32 = 25;
/// What a shell says of a command that it cannot start.
const CANNOT_START: u8 = 127;

/// Records until the job, the command or a signal ends it. The command goes before the recording: whatever becomes of that, it runs to its end,
/// and its exit status is this program's.
pub(super) async fn run(options: &arguments::Record, node: &mut Node) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::other(error.to_string());
    // A limit of file sizes (RLIMIT_FSIZE) is an error of write(2) then, and not the end of this process.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ)).map_err(failed)?;
    let mut recording = Recording::open(options, node);
    if let Err(failure) = &recording {
        if options.command.is_empty() {
            return Err(failure.clone());
        }
        warn(&failure.says);
    }
    if let Ok(recording) = &mut recording {
        recording.add().await;
    }
    let mut command = match start(&options.command) {
        Ok(command) => command,
        Err((name, error)) => {
            warn(&format!("{name}: {error}"));
            return Ok(CANNOT_START);
        }
    };
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(terminate), Ok(interrupt), Ok(hangup)] = &mut signals else {
        return Err(signals
            .into_iter()
            .find_map(Result::err)
            .map_or_else(|| Failure::other("signals"), failed));
    };
    let status = loop {
        // A command whose job ends is ended by SLURM.
        if command.is_none() && recording.as_ref().is_ok_and(|recording| recording.is_over) {
            break None;
        }
        tokio::select! {
            () = tokio::time::sleep(until_next(now(), options.interval)) => {
                if let Ok(recording) = &mut recording {
                    recording.add().await;
                }
            }
            status = wait(command.as_mut()) => break Some(status.map_err(failed)?),
            // SLURM, a shell and a terminal send signals to the command as well, which decides what they mean.
            () = any(terminate, interrupt, hangup) => if command.is_none() { break None },
        }
    };
    let outcome = match recording {
        Ok(mut recording) => {
            recording.add().await;
            recording.outcome()
        }
        Err(_) => Ok(()),
    };
    match status {
        Some(status) => {
            outcome.unwrap_or_else(|failure| warn(&failure.says));
            Ok(exit_code(status))
        }
        None => outcome.map(|()| 0),
    }
}

/// The node, and the file.
struct Recording<'a> {
    node: &'a mut Node,
    file: Recorder,
    batches: u64,
    /// Batches without the job since it was last there.
    without: u32,
    is_over: bool,
    /// The last failure: it is said once.
    failure: Option<Failure>,
}

impl<'a> Recording<'a> {
    fn open(options: &arguments::Record, node: &'a mut Node) -> Result<Self, Failure> {
        let path = file_name(&options.output, &node.selection.job, &node.selection.node);
        let file = Recorder::open(&path)?;
        Ok(Self { node, file, batches: 0, without: 0, is_over: false, failure: None })
    }

    async fn add(&mut self) {
        let added = match self.node.batch().await {
            Ok(batch) if batch.of_job == 0 => {
                self.without += 1;
                self.is_over = self.without >= MOST_WITHOUT || self.batches > 0;
                return;
            }
            Ok(batch) => {
                self.is_over = batch.ended;
                self.file.add(&batch)
            }
            Err(failure) => Err(failure),
        };
        self.without = 0;
        match added {
            Ok(()) => {
                self.batches += 1;
                self.failure = None;
            }
            Err(failure) => {
                if self.failure.as_ref() != Some(&failure) {
                    warn(&failure.says);
                }
                self.failure = Some(failure);
            }
        }
    }

    fn outcome(self) -> Result<(), Failure> {
        if self.batches > 0 {
            return Ok(());
        }
        Err(Failure::new(Kind::NotFound, format!("nothing was recorded: {}", self.node.shows_nothing())))
    }
}

fn start(command: &[OsString]) -> Result<Option<Child>, (String, std::io::Error)> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(arguments).spawn();
    child.map(Some).map_err(|error| (program.to_string_lossy().into_owned(), error))
}

async fn wait(command: Option<&mut Child>) -> std::io::Result<ExitStatus> {
    match command {
        Some(command) => command.wait().await,
        None => std::future::pending().await,
    }
}

async fn any(a: &mut Signal, b: &mut Signal, c: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
        _ = c.recv() => {}
    }
}

/// Until the next multiple of the interval: the nodes of a job are then read at the same times.
fn until_next(now: f64, interval: u32) -> Duration {
    let interval = f64::from(interval);
    let next = ((now / interval).floor() + 1.0) * interval;
    Duration::from_secs_f64((next - now).clamp(0.0, interval))
}

/// As a shell says it: 128 and the signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_at_the_same_times() {
        assert_eq!(until_next(1000.25, 5), Duration::from_secs_f64(4.75));
        assert_eq!(until_next(1000.0, 5), Duration::from_secs(5));
        assert_eq!(until_next(1004.999, 1), Duration::from_secs_f64(1005.0 - 1004.999));
    }
}
