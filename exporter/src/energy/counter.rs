//! Counters that live in files: one number, read anew each time.

use super::{Range, Sample};
use crate::collector::CollectError;
use crate::collector::node_files::NodeFiles;
use crate::kernel_file::ReadError;

/// Whether a counter's file has been there all the time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Presence {
    epoch: u32,
    gone: bool,
}

impl Presence {
    /// The file was read, or failed for another reason than not being there.
    pub(super) fn there(&mut self) -> u32 {
        if std::mem::take(&mut self.gone) {
            self.epoch = self.epoch.wrapping_add(1);
        }
        self.epoch
    }

    /// The file was not there.
    pub(super) fn gone(&mut self) {
        self.gone = true;
    }
}

/// One such counter.
#[derive(Debug)]
pub(super) struct FileCounter {
    /// As [`NodeFiles`] wants it.
    pub(super) path: String,
    pub(super) presence: Presence,
}

/// How to make an error of a failed reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) file: &'static str,
    pub(super) needs: &'static str,
    pub(super) fix: &'static str,
}

impl Words {
    pub(super) fn error(self, error: ReadError) -> CollectError {
        CollectError::reading(self.file, self.needs, self.fix)(error)
    }
}

impl FileCounter {
    pub(super) fn new(path: String) -> Self {
        Self { path, presence: Presence::default() }
    }

    /// Reads it; `parse` gives microjoules.
    pub(super) fn read(
        &mut self,
        files: &mut NodeFiles,
        words: Words,
        range: Range,
        parse: impl FnOnce(&[u8]) -> Result<u64, crate::parse::ParseError>,
    ) -> Result<Sample, CollectError> {
        match files.read(&self.path) {
            Ok(bytes) => {
                let epoch = self.presence.there();
                let energy_uj = parse(bytes).map_err(CollectError::parsing(words.file))?;
                Ok(Sample { energy_uj, range, epoch, power_uw: None })
            }
            Err(error) => {
                if error == ReadError::Gone {
                    self.presence.gone();
                }
                Err(words.error(error))
            }
        }
    }
}

/// Which zones are read: all of them until one is told not to be.
#[derive(Debug, Default)]
pub(super) struct Skips(Vec<usize>);

impl Skips {
    pub(super) fn add(&mut self, zone: usize) {
        if !self.0.contains(&zone) {
            self.0.push(zone);
        }
    }

    pub(super) fn has(&self, zone: usize) -> bool {
        self.0.contains(&zone)
    }
}
