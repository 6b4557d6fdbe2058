//! SLURM's commands and sendmail: their answers, and why there is none.

use std::ffi::OsStr;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::text::harmless;

/// How long a command may take where nobody waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// More is not read.
const MOST_BYTES: u64 = 16 << 20;
const MOST_BYTES_OF_ERRORS: u64 = 4096;

/// What a command prints, its times in seconds since the epoch.
///
/// # Errors
/// A line for a person, that begins with the command. `NotFound` if there is no such command, `TimedOut` if it took longer than `patience`.
pub(crate) async fn ask<S: AsRef<OsStr>>(
    program: &OsStr,
    arguments: &[S],
    patience: Duration,
) -> io::Result<String> {
    ask_about(program, arguments, &[], patience).await
}

/// The same of a command that reads something.
///
/// # Errors
/// The same.
pub(crate) async fn ask_about<S: AsRef<OsStr>>(
    program: &OsStr,
    arguments: &[S],
    input: &[u8],
    patience: Duration,
) -> io::Result<String> {
    let failed = |kind, why: String| io::Error::new(kind, format!("{}: {why}", program.display()));
    match tokio::time::timeout(patience, run(program, arguments, input)).await {
        Ok(Ok(Ok(answer))) => Ok(String::from_utf8_lossy(&answer).into_owned()),
        Ok(Ok(Err(says))) => Err(failed(io::ErrorKind::Other, says)),
        Ok(Err(error)) => Err(failed(error.kind(), error.to_string())),
        Err(_) => Err(failed(io::ErrorKind::TimedOut, format!("no answer in {} s", patience.as_secs_f64()))),
    }
}

/// The answer, or what the command says of its failure. It is killed if nobody waits for it any more.
async fn run<S: AsRef<OsStr>>(
    program: &OsStr,
    arguments: &[S],
    input: &[u8],
) -> io::Result<Result<Vec<u8>, String>> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("SLURM_TIME_FORMAT", "%s")
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    // Its end closes the pipe.
    let write = async move {
        match stdin {
            Some(mut stdin) => stdin.write_all(input).await,
            None => Ok(()),
        }
    };
    let (written, answer, errors) = tokio::join!(
        write,
        read(child.stdout.take(), MOST_BYTES),
        read(child.stderr.take(), MOST_BYTES_OF_ERRORS)
    );
    let status = child.wait().await?;
    let (answer, errors) = (answer?, errors?);
    if status.success() {
        return written.map(|()| Ok(answer));
    }
    let says = String::from_utf8_lossy(&errors);
    let says = says.lines().next().unwrap_or_default();
    // `sacct: error: Access denied` (src/common/log.c).
    let says = says.split_once(": error: ").map_or(says, |(_, error)| error);
    Ok(Err(if says.is_empty() { status.to_string() } else { harmless(says) }))
}

/// What comes, up to so many bytes. More is not waited for: the pipe is closed.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
