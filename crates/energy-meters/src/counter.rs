//! Counters in files: one number, read each time.

use kernel_files::parse::ParseError;
use kernel_files::{NodeFiles, ReadError, SourceError};

use super::{Range, Sample};

/// One such counter.
#[derive(Debug)]
pub(super) struct FileCounter {
    /// As [`NodeFiles`] wants it.
    pub(super) path: String,
    epoch: u32,
    /// It was not there the last time.
    gone: bool,
}

/// How to make an error of a failed reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) file: &'static str,
    pub(super) needs: &'static str,
}

impl Words {
    pub(super) fn error(self, error: ReadError) -> SourceError {
        SourceError::reading(self.file, self.needs)(error)
    }
}

impl FileCounter {
    pub(super) fn new(path: String) -> Self {
        Self { path, epoch: 0, gone: false }
    }

    /// Reads it; `parse` gives microjoules.
    pub(super) fn read(
        &mut self,
        files: &mut NodeFiles,
        words: Words,
        range: Range,
        parse: impl FnOnce(&[u8]) -> Result<u64, ParseError>,
    ) -> Result<Sample, SourceError> {
        let bytes = match files.read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.gone |= error == ReadError::Gone;
                return Err(words.error(error));
            }
        };
        if std::mem::take(&mut self.gone) {
            self.epoch = self.epoch.wrapping_add(1);
        }
        let energy_uj = parse(bytes).map_err(SourceError::parsing(words.file))?;
        Ok(Sample { energy_uj, range, epoch: self.epoch, power_uw: None })
    }
}

/// Which zones are read: all, until one is excluded.
#[derive(Debug, Default)]
pub(super) struct Skips(Vec<usize>);

impl Skips {
    pub(super) fn add(&mut self, zone: usize) {
        if !self.0.contains(&zone) {
            self.0.push(zone);
        }
    }

    /// Whether all of this many zones are excluded.
    pub(super) fn all(&self, zones: usize) -> bool {
        (0..zones).all(|zone| self.has(zone))
    }

    pub(super) fn has(&self, zone: usize) -> bool {
        self.0.contains(&zone)
    }
}
