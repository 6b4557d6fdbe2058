//! A reading, and how a later one is compared with it.

use std::time::Duration;

pub use readings::Range;
use serde::{Deserialize, Serialize};

/// More power than any socket, memory or platform with RAPL draws, in microwatts: 2 kW. A counter that fell and would
/// have had to gain more than this did not wrap but restart.
pub const LARGEST_WRAPPED_POWER: u64 = 2_000_000_000;

/// A zone's energy as read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Microjoules since whenever the counter began; only differences mean anything.
    pub energy_uj: u64,
    /// How far it counts, in microjoules.
    pub range: Range,
    /// Changes when the counter may have restarted: its file was gone meanwhile, or its descriptor had to be opened
    /// again. The energy between readings of different epochs is not known.
    pub epoch: u32,
    /// Momentary power in microwatts, from sources that measure power.
    pub power_uw: Option<u64>,
}

impl Sample {
    /// Microjoules since an earlier sample of the same zone, read so long ago. The only place that decides whether a
    /// counter that fell has wrapped. `None` when the gain is not known: the counter may have restarted, it fell, or
    /// a wrap would mean more power than possible.
    pub fn gain_since(&self, earlier: &Self, elapsed: Duration) -> Option<u64> {
        if self.epoch != earlier.epoch || self.range != earlier.range {
            return None;
        }
        let gain = self.range.gain(earlier.energy_uj, self.energy_uj)?;
        let wrapped = self.energy_uj < earlier.energy_uj;
        let most = u128::from(LARGEST_WRAPPED_POWER) * elapsed.as_millis() / 1000;
        (!wrapped || u128::from(gain) <= most).then_some(gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_have_been_drawn_was_no_wrap() {
        let at = 262_143_328_851;
        let sample = |energy_uj| Sample { energy_uj, range: Range::Wraps { at }, epoch: 3, power_uw: None };
        let minute = Duration::from_secs(60);
        let late = sample(at - 1_000_000);
        assert_eq!(sample(5_000_000).gain_since(&late, minute), Some(6_000_000));
        assert_eq!(sample(0).gain_since(&sample(1), minute), None, "262 kJ in a minute is 4.4 kW");
        assert_eq!(sample(0).gain_since(&sample(1), minute * 3), Some(at - 1));
        assert_eq!(sample(at - 1).gain_since(&sample(0), Duration::ZERO), Some(at - 1), "no fall, no wrap");
        let other = Sample { epoch: 4, ..sample(5_000_000) };
        assert_eq!(other.gain_since(&sample(1), minute), None);
        let endless = Sample { range: Range::Full, ..sample(9) };
        assert_eq!(endless.gain_since(&sample(1), minute), None, "the range is another one");
    }
}
