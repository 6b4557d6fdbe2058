//! How long kernels ran, from the driver's ring buffer of utilisation samples (nvml.h, nvmlDeviceGetSamples). A
//! sample is the fraction of the time before it, 1/6 to 1 second, in which a kernel ran. Where the buffer does not
//! reach back to the last reading, the missing time is a gap, not idle time.

use std::time::{Duration, Instant};

/// The longest period that a sample stands for (nvml.h, nvmlUtilization_t).
const LONGEST: u64 = 1_000_000;
/// Without a sample for this long, the buffer counts as broken, or the clock as set back.
const SILENCE: Duration = Duration::from_secs(60);

/// The buffer's content for a span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Time in which a kernel ran, nanoseconds.
    pub(super) busy: u64,
    /// Time with samples, nanoseconds.
    pub(super) covered: u64,
    /// Time without samples, nanoseconds.
    pub(super) gap: u64,
}

/// Adds up samples (microseconds, percent) after `last`. Each stands for the time since the one before it unless that is
/// more than twice the usual distance.
pub(super) fn add_up(samples: &[(u64, u32)], last: u64) -> Window {
    let mut times: Vec<(u64, u32)> = samples.iter().copied().filter(|(at, _)| *at > last).collect();
    times.sort_unstable();
    times.dedup_by_key(|(at, _)| *at);
    let mut distances: Vec<u64> =
        times.windows(2).filter_map(|pair| Some(pair.get(1)?.0 - pair.first()?.0)).collect();
    distances.sort_unstable();
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(LONGEST).clamp(1, LONGEST);
    let (mut window, mut before) = (Window::default(), last);
    for (at, percent) in times {
        let passed = at - before;
        let covered = if passed > 2 * usual { usual } else { passed };
        // Percent of microseconds, in nanoseconds.
        window.busy += covered * u64::from(percent.min(100)) * 10;
        window.covered += covered * 1000;
        window.gap += (passed - covered) * 1000;
        before = at;
    }
    window
}

/// Where the reading of a buffer is.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The driver's time of the last sample that was read, microseconds.
    last: u64,
    read: Option<Instant>,
}

/// What a reading of the buffer gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The first one: history is unattributed.
    First,
    /// What happened since the last one.
    Since(Window),
    /// Nothing new yet.
    Nothing,
}

impl Buffer {
    /// Which samples to ask for: those after this, microseconds.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// For a GPU without a buffer: the time since the last reading, which ends now.
    pub(super) fn since(&mut self, now: Instant) -> Option<Duration> {
        self.last = 0;
        self.read.replace(now).map(|read| now.saturating_duration_since(read))
    }

    /// Takes the samples that came after [`Buffer::last`].
    pub(super) fn take(&mut self, samples: &[(u64, u32)], now: Instant) -> Reading {
        let newest = samples.iter().map(|(at, _)| *at).filter(|at| *at > self.last).max();
        let passed = self.read.map(|read| now.saturating_duration_since(read));
        let Some(newest) = newest else {
            return match passed {
                Some(passed) if passed > SILENCE => {
                    let gap = nanoseconds(passed);
                    *self = Self { last: 0, read: Some(now) };
                    Reading::Since(Window { busy: 0, covered: 0, gap })
                }
                _ => Reading::Nothing,
            };
        };
        let last = std::mem::replace(&mut self.last, newest);
        self.read = Some(now);
        let Some(passed) = passed else { return Reading::First };
        // After silence, or a time without a buffer, which is accounted for already: from there on.
        let last = if last == 0 { newest.saturating_sub(microseconds(passed)) } else { last };
        let window = add_up(samples, last);
        // The driver's time is the clock's, which may be set: no more than really passed, and a sample or two for the
        // distance between its samples and our readings.
        let most = nanoseconds(passed) + 2 * LONGEST * 1000;
        let busy = window.busy.min(most);
        Reading::Since(Window { busy, covered: window.covered.min(most), gap: window.gap.min(most - busy) })
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Nanoseconds of a time.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Samples every 200 ms, from `first` on.
    fn every_fifth(first: u64, percents: &[u32]) -> Vec<(u64, u32)> {
        percents.iter().zip(0u64..).map(|(percent, at)| (first + at * 200_000, *percent)).collect()
    }

    #[test]
    fn each_sample_stands_for_the_time_before_it() {
        let samples = every_fifth(1_200_000, &[100, 50, 0, 25, 25]);
        assert_eq!(add_up(&samples, 1_000_000), Window { busy: SECOND / 5 * 2, covered: SECOND, gap: 0 });
        let mut turned = samples.clone();
        turned.reverse();
        turned.push((900_000, 100));
        turned.push((0, 100));
        turned.push(samples[0]);
        assert_eq!(
            add_up(&turned, 1_000_000),
            add_up(&samples, 1_000_000),
            "in any order, old and double ones"
        );
    }

    #[test]
    fn what_the_buffer_does_not_reach_back_to_is_a_gap_and_not_idle() {
        let samples = every_fifth(5_000_000, &[100; 5]);
        assert_eq!(add_up(&samples, 1_000_000), Window { busy: SECOND, covered: SECOND, gap: 3_800_000_000 });
        let mut torn = every_fifth(1_200_000, &[100; 5]);
        torn.extend(every_fifth(4_000_000, &[100; 5]));
        assert_eq!(
            add_up(&torn, 1_000_000),
            Window { busy: 2 * SECOND, covered: 2 * SECOND, gap: 1_800_000_000 }
        );
        let one = Window { busy: 400_000_000, covered: SECOND / 2, gap: 0 };
        assert_eq!(add_up(&[(1_500_000, 80)], 1_000_000), one, "one sample");
        let late = Window { busy: 800_000_000, covered: SECOND, gap: 7 * SECOND };
        assert_eq!(add_up(&[(9_000_000, 80)], 1_000_000), late);
        assert_eq!(add_up(&[], 1), Window::default());
        assert_eq!(add_up(&[(2_000_000, 400)], 1_000_000).busy, SECOND, "no more than all the time");
    }

    #[test]
    fn readings_go_on_where_the_last_one_ended() {
        let mut buffer = Buffer::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        assert_eq!(buffer.take(&[], at(0)), Reading::Nothing);
        assert_eq!(buffer.take(&every_fifth(1_000_000, &[100; 5]), at(0)), Reading::First);
        assert_eq!(buffer.last(), 1_800_000);
        let next = every_fifth(2_000_000, &[50; 5]);
        assert_eq!(
            buffer.take(&next, at(1)),
            Reading::Since(Window { busy: SECOND / 2, covered: SECOND, gap: 0 })
        );
        assert_eq!(buffer.take(&next, at(2)), Reading::Nothing, "they were read");
    }

    #[test]
    fn a_clock_that_is_set_makes_no_time() {
        let mut buffer = Buffer::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        buffer.take(&[(1_000_000, 0)], at(0));
        let hour = every_fifth(3_600_000_000, &[100; 5]);
        let Reading::Since(window) = buffer.take(&hour, at(10)) else { panic!() };
        assert_eq!(window, Window { busy: SECOND, covered: SECOND, gap: 11 * SECOND });
        // Set back: nothing comes that is newer, until that is noticed.
        assert_eq!(buffer.take(&[], at(40)), Reading::Nothing);
        assert_eq!(
            buffer.take(&[], at(80)),
            Reading::Since(Window { busy: 0, covered: 0, gap: 70 * SECOND })
        );
        assert_eq!(buffer.last(), 0);
        // It is known up to the 80th second.
        let ten = every_fifth(500_200_000, &[100; 50]);
        let Reading::Since(window) = buffer.take(&ten, at(90)) else { panic!() };
        assert_eq!(window, Window { busy: 10 * SECOND, covered: 10 * SECOND, gap: 0 });
        let next = every_fifth(510_200_000, &[100; 5]);
        assert_eq!(
            buffer.take(&next, at(91)),
            Reading::Since(Window { busy: SECOND, covered: SECOND, gap: 0 })
        );
        // The driver did not answer for a time, which was taken from elsewhere.
        assert_eq!(buffer.since(at(101)), Some(Duration::from_secs(10)));
        let later = every_fifth(511_200_000, &[100; 60]);
        assert_eq!(
            buffer.take(&later, at(103)),
            Reading::Since(Window { busy: 2 * SECOND, covered: 2 * SECOND, gap: 0 })
        );
    }
}
