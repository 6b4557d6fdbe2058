//! The driver across openings and closings: when it may be opened again, and what is kept meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::{Roots, SourceError};
use nvml_wrapper::error::NvmlError;

use super::Options;
use super::error::opening;
use super::raw::DEFAULT_LIBRARY;
use super::session::{Session, lost};
use super::xids::Xids;
use crate::{Sample, Unit, Vendor, Wanted};

/// Why the driver is left alone, and until when.
#[derive(Debug)]
struct Pause {
    until: Instant,
    error: SourceError,
    /// Every GPU is lost: what they were, and why.
    lost: Vec<(Arc<Unit>, &'static str)>,
}

/// The driver, open or not.
#[derive(Debug, Default)]
pub(super) struct State {
    session: Option<Session>,
    pause: Option<Pause>,
    /// How often in a row it had to be closed.
    failures: u32,
    /// GPUs of the last session.
    known: Vec<Arc<Unit>>,
    xids: Xids,
}

/// How long the driver is not opened after this many failures in a row.
fn pause(first: Duration, failures: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(60);
    first.saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(LONGEST)
}

impl State {
    /// Reads everything, and opens the driver when it is time to.
    pub(super) fn sample(
        &mut self,
        options: &Options,
        roots: &Roots,
        wanted: Wanted,
    ) -> Result<Sample, SourceError> {
        self.pause = self.pause.take().filter(|pause| Instant::now() < pause.until);
        if let Some(pause) = &self.pause {
            return self.paused(pause);
        }
        let read = match self.session.take() {
            Some(session) => Ok(session),
            None => Session::open(options),
        };
        let read = read.and_then(|mut session| {
            let sample = session.sample(options, &self.known, roots, wanted, &mut self.xids)?;
            Ok((session, sample))
        });
        match read {
            Ok((session, sample)) => {
                self.known = session.units();
                let lost = session.lost();
                if lost.is_empty() {
                    self.failures = 0;
                    self.session = Some(session);
                } else {
                    drop(session);
                    self.leave_alone(options, &NvmlError::GpuLost, lost);
                }
                Ok(sample)
            }
            Err(error) => Err(self.leave_alone(options, &error, Vec::new())),
        }
    }

    fn paused(&self, pause: &Pause) -> Result<Sample, SourceError> {
        if pause.lost.is_empty() {
            return Err(pause.error.clone());
        }
        let now = Instant::now();
        let units = pause.lost.iter().map(|(unit, why)| lost(unit, why, &self.xids)).collect();
        let failed = vec![pause.error.clone()];
        Ok(Sample { vendor: Vendor::Nvidia, began: now, ended: now, units, facts: Vec::new(), failed })
    }

    fn leave_alone(
        &mut self,
        options: &Options,
        error: &NvmlError,
        lost: Vec<(Arc<Unit>, &'static str)>,
    ) -> SourceError {
        self.failures = self.failures.saturating_add(1);
        let library = options.library.as_ref().map(|path| path.display().to_string());
        let error = opening(error, library.as_deref().unwrap_or(DEFAULT_LIBRARY));
        let until = Instant::now() + pause(options.first_pause, self.failures);
        self.pause = Some(Pause { until, error: error.clone(), lost });
        error
    }

    /// Closes the driver; it is opened again by the next sample.
    pub(super) fn release(&mut self) {
        self.session = None;
        self.pause = None;
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let pauses: Vec<u64> = (1..8).map(|n| pause(Duration::from_secs(5), n).as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 60]);
        assert_eq!(pause(Duration::from_secs(5), 99).as_secs(), 60);
    }
}
