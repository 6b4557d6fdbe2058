//! Where a report goes, and the line that says how far it is.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use job_files::atomic;
use serde::Serialize;

use crate::Failure;

/// JSON that people may read, too, with a line break at its end.
pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| Failure::other(error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Writes to a file, which is whole or not there at all, or to the standard output. A reader that has read enough (`| head`) is no failure.
pub(crate) fn write(to: Option<&Path>, bytes: &[u8]) -> Result<(), Failure> {
    match to {
        Some(path) => atomic::write(path, |to| to.write_all(bytes))
            .map_err(|error| Failure::other(format!("{}: {error}", path.display()))),
        None => {
            Progress::erase();
            let mut out = io::stdout().lock();
            match out.write_all(bytes).and_then(|()| out.flush()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(Failure::other(format!("the standard output: {error}")))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Whether the line of the terminal that the cursor is in says how far a command is.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// That line. What is written to a terminal erases it first.
pub(crate) struct Progress;

impl Progress {
    #[allow(clippy::print_stderr, reason = "that is what it is for")]
    pub(crate) fn show(&self, text: &str) {
        Self::erase();
        eprint!("{text}");
        SHOWN.store(true, Ordering::Relaxed);
    }

    #[allow(clippy::print_stderr, reason = "that is what it is for")]
    pub(crate) fn erase() {
        if SHOWN.swap(false, Ordering::Relaxed) {
            // console_codes(4)
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        Self::erase();
    }
}
