//! Why the process ends with another status than 0.

/// A wrong command line or configuration (EX_USAGE, sysexits.h).
pub(super) const USAGE: u8 = 64;
/// What is asked for is not there (EX_UNAVAILABLE).
const UNAVAILABLE: u8 = 69;
/// Not now (EX_TEMPFAIL).
const NOT_NOW: u8 = 75;
/// Anything else that went wrong.
pub(super) const FAILED: u8 = 1;

/// What went wrong, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line or a configuration file is wrong.
    #[error("{0}")]
    Usage(String),
    /// This machine does not have it.
    #[error("{0}")]
    Unavailable(String),
    /// Something is in the way now.
    #[error("{0}")]
    NotNow(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Prints clap's message (an error, or the text of `--help`). Returns the exit status.
pub fn refuse(error: &clap::Error) -> u8 {
    // Nothing is left to do when not even this can be written.
    let _ = error.print();
    if error.use_stderr() { USAGE } else { 0 }
}

impl Failure {
    /// An error of the command line or a configuration file.
    pub fn usage(error: impl ToString) -> Self {
        Self::Usage(error.to_string())
    }

    /// Any other one.
    pub fn other(error: impl ToString) -> Self {
        Self::Other(error.to_string())
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::NotNow(_) => NOT_NOW,
            Self::Other(_) => FAILED,
        }
    }
}
