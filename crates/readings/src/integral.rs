//! Power readings added up to energy.

use std::time::{Duration, Instant};

/// Readings further apart have a gap between them: the power meanwhile is not known, and no line is drawn across it.
/// Prometheus itself calls a series stale after this time.
pub const LONGEST_GAP: Duration = Duration::from_secs(300);

/// The most that one node, or a part of it, can draw, in microwatts: 50 kW. Firmware that does not know says
/// 0xffffffff mW (ACPI specification, `_PMM`), which would be 4 MW, or 0xffff W.
pub const LARGEST_POWER: u64 = 50_000_000_000;

/// Energy since the first reading, by the trapezoid between each two.
#[derive(Debug, Clone, Default)]
pub struct Integral {
    last: Option<(Instant, u64)>,
    /// Microwatts times nanoseconds, twice: exact, so that nothing is lost between two readings.
    doubled: u128,
}

impl Integral {
    /// Takes a reading in microwatts into account and gives the energy until now, microjoules.
    pub fn add(&mut self, now: Instant, microwatts: u64) -> u64 {
        if let Some((then, before)) = self.last.replace((now, microwatts)) {
            let elapsed = now.saturating_duration_since(then);
            if elapsed <= LONGEST_GAP {
                self.doubled += (u128::from(before) + u128::from(microwatts)) * elapsed.as_nanos();
            }
        }
        u64::try_from(self.doubled / 2_000_000_000).unwrap_or(u64::MAX)
    }

    /// A reading failed: the energy until the next one is not known.
    pub fn interrupt(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: u64 = 1_000_000;

    #[test]
    fn energy_is_the_area_under_straight_lines_between_readings() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut integral = Integral::default();
        assert_eq!(integral.add(at(0), 100 * W), 0, "before the first reading nothing is known");
        assert_eq!(integral.add(at(10_000), 100 * W), 1_000_000_000, "100 W for 10 s");
        assert_eq!(integral.add(at(20_000), 300 * W), 3_000_000_000, "200 W on average");
        assert_eq!(integral.add(at(20_000), 500 * W), 3_000_000_000, "no time, no energy");
        assert_eq!(integral.add(at(15_000), 500 * W), 3_000_000_000, "nor does it go back");
    }

    #[test]
    fn a_gap_is_no_line() {
        let start = Instant::now();
        let mut integral = Integral::default();
        integral.add(start, 100 * W);
        assert_eq!(integral.add(start + LONGEST_GAP, 100 * W), 30_000_000_000);
        let late = start + LONGEST_GAP * 2 + Duration::from_nanos(1);
        assert_eq!(integral.add(late, 100 * W), 30_000_000_000);
        integral.interrupt();
        assert_eq!(integral.add(late + Duration::from_secs(1), 100 * W), 30_000_000_000);
        assert_eq!(integral.add(late + Duration::from_secs(2), 100 * W), 30_100_000_000);
    }

    #[test]
    fn many_small_steps_lose_nothing() {
        let start = Instant::now();
        let mut integral = Integral::default();
        let mut energy = 0;
        for step in 0..=1000 {
            energy = integral.add(start + Duration::from_nanos(step * 333), 7);
        }
        assert_eq!(energy, 7 * 333_000 / 1_000_000_000);
        assert_eq!(integral.doubled, 2 * 7 * 333_000);
    }
}
