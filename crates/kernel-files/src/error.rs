//! Why something could not be read, in outcomes that must not be confused.

use crate::file::ReadError;
use crate::parse::ParseError;

/// Why a source of numbers yields nothing, or less than it should. Outcomes that must not be confused (denied,
/// unsupported, failed, late) are variants of their own; an empty result is none of them but success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The kernel refused.
    #[error("denied: {what}")]
    Denied {
        /// The refused file or call.
        what: String,
    },
    /// This machine has no such thing.
    #[error("unsupported: needs {needs}")]
    Unsupported {
        /// What would be needed.
        needs: String,
    },
    /// A file is not of its documented form.
    #[error("malformed: {file}: {error}")]
    Malformed {
        /// Which file.
        file: &'static str,
        /// Where and how.
        error: ParseError,
    },
    /// Reading failed.
    #[error("failed: {file}: {error}")]
    Io {
        /// Which file.
        file: &'static str,
        /// How.
        error: ReadError,
    },
    /// A driver's library answered with an error of its own.
    #[error("failed: {call}: {says}")]
    Driver {
        /// The call.
        call: &'static str,
        /// Its error, or what can be done.
        says: String,
    },
    /// Some of several objects could not be read; the others are served.
    #[error("partial: {failed} of {} failed, first {first}", .ok + .failed)]
    Partial {
        /// How many were read.
        ok: usize,
        /// How many were not.
        failed: usize,
        /// What the first failure was, a denial only if there was no other.
        first: Box<SourceError>,
    },
    /// Not finished by the deadline.
    #[error("late: not finished by the scrape's deadline")]
    TimedOut,
    /// A bug; the process runs on.
    #[error("panic: a bug in this collector, please report it")]
    Panicked,
}

impl SourceError {
    /// The kind in a word, for a label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "denied",
            Self::Unsupported { .. } => "unsupported",
            Self::Malformed { .. } => "malformed",
            Self::Io { .. } | Self::Driver { .. } => "io",
            Self::Partial { .. } => "partial",
            Self::TimedOut => "timeout",
            Self::Panicked => "panic",
        }
    }

    /// The part that does not change from reading to reading: of a partial failure, the first one.
    pub fn lasting(&self) -> &Self {
        match self {
            Self::Partial { first, .. } => first.lasting(),
            other => other,
        }
    }

    /// An error of reading `file`; `needs` is what a machine without that file lacks.
    pub fn reading(file: &'static str, needs: &str) -> impl FnOnce(ReadError) -> Self {
        move |error| match error {
            ReadError::Gone | ReadError::Unsupported => Self::Unsupported { needs: needs.to_owned() },
            ReadError::Denied => Self::Denied { what: file.to_owned() },
            error => Self::Io { file, error },
        }
    }

    /// An error of parsing `file`.
    pub fn parsing(file: &'static str) -> impl FnOnce(ParseError) -> Self {
        move |error| Self::Malformed { file, error }
    }
}

/// Collects outcomes of several objects into one result.
#[derive(Debug, Default)]
pub struct Tally {
    ok: usize,
    failed: usize,
    first: Option<SourceError>,
}

impl Tally {
    /// Notes an outcome and hands on its value.
    pub fn note<T>(&mut self, outcome: Result<T, SourceError>) -> Option<T> {
        match outcome {
            Ok(value) => {
                self.ok += 1;
                Some(value)
            }
            Err(error) => {
                self.failed += 1;
                // What is denied remains denied; a failure beside it is new.
                let denied = |error: &SourceError| matches!(error, SourceError::Denied { .. });
                if self.first.as_ref().is_none_or(|first| denied(first) && !denied(&error)) {
                    self.first = Some(error);
                }
                None
            }
        }
    }

    /// All well, the error itself when nothing was read, or [`SourceError::Partial`].
    pub fn result(self) -> Result<(), SourceError> {
        match self.first {
            None => Ok(()),
            Some(first) if self.ok == 0 => Err(first),
            Some(first) => {
                Err(SourceError::Partial { ok: self.ok, failed: self.failed, first: Box::new(first) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_before_what_is_denied_and_the_first_of_each_before_others() {
        let denied = |what: &str| SourceError::Denied { what: what.to_owned() };
        let failed = |call| SourceError::Driver { call, says: "no".to_owned() };
        let first = |errors: Vec<SourceError>| {
            let mut tally = Tally::default();
            tally.note(Ok(()));
            for error in errors {
                assert!(tally.note::<()>(Err(error)).is_none());
            }
            tally.result().unwrap_err().to_string()
        };
        assert_eq!(first(vec![denied("a"), denied("b")]), "partial: 2 of 3 failed, first denied: a");
        assert_eq!(
            first(vec![denied("a"), failed("c"), failed("d")]),
            "partial: 3 of 4 failed, first failed: c: no"
        );
        assert_eq!(first(vec![failed("c"), denied("a")]), "partial: 2 of 3 failed, first failed: c: no");
    }
}
