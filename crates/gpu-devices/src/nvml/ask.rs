//! Calls to a GPU, one after the other. An unsupported one is not repeated until the next look, a denied one is
//! reported once, and a lost GPU or driver ends the reading.

use kernel_files::SourceError;
use nvml_wrapper::error::NvmlError;

use super::error::{Meaning, denied, failed, meaning};

/// Why a reading ends.
#[derive(Debug)]
pub(super) enum Stop {
    /// The GPU is down; why.
    Down(&'static str),
    /// The driver has to be opened again.
    Reopen(NvmlError),
}

impl Stop {
    /// Whether an answer ends the reading.
    pub(super) fn of(error: NvmlError) -> Result<NvmlError, Self> {
        match meaning(&error) {
            Meaning::Down(why) => Err(Self::Down(why)),
            Meaning::Reopen => Err(Self::Reopen(error)),
            _ => Ok(error),
        }
    }
}

/// What could not be read of all GPUs together.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<SourceError>);

impl Notes {
    /// Notes a failure, each once.
    pub(super) fn note(&mut self, error: SourceError) {
        if !self.0.contains(&error) {
            self.0.push(error);
        }
    }

    /// All of them.
    pub(super) fn into_errors(self) -> Vec<SourceError> {
        self.0
    }
}

/// What a GPU answered before.
#[derive(Debug, Default)]
pub(super) struct Asker {
    absent: Vec<&'static str>,
    denied: Vec<&'static str>,
}

impl Asker {
    /// Calls. `None` if it is unsupported, denied or failed; the last two are reported.
    pub(super) fn ask<T>(
        &mut self,
        call: &'static str,
        notes: &mut Notes,
        ask: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<Option<T>, Stop> {
        if self.absent.contains(&call) {
            return Ok(None);
        }
        if self.denied.contains(&call) {
            notes.note(denied(call));
            return Ok(None);
        }
        let error = match ask() {
            Ok(value) => return Ok(Some(value)),
            Err(error) => Stop::of(error)?,
        };
        match meaning(&error) {
            Meaning::Absent => self.absent.push(call),
            Meaning::Denied => {
                self.denied.push(call);
                notes.note(denied(call));
            }
            Meaning::Failed => notes.note(failed(call, &error)),
            Meaning::Nothing | Meaning::Down(_) | Meaning::Reopen => {}
        }
        Ok(None)
    }

    /// Asks everything again: modes change.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
