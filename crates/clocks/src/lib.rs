//! The clocks of a node: time since boot for accounts, wall time for what is shown.
//!
//! The wall clock is set now and then: by NTP after the boot, by an admin, by a hypervisor that resumes a machine. An
//! account on it would count the step. So accounts run on `CLOCK_BOOTTIME` (clock_gettime(2)), which nobody sets and
//! which goes on in suspend. `std::time::Instant` is `CLOCK_MONOTONIC`: for time-outs, pauses, and intervals between
//! two readings of this process.
//!
//! ```
//! use std::time::Duration;
//! use clocks::{Boottime, Moment};
//!
//! let start = Moment::now();
//! let end = start.at(start.boottime + Duration::from_secs(5));
//! assert_eq!(end.unix - start.unix, 5.0);
//! assert!(Boottime::now() >= start.boottime);
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this crate is where clocks are read")]

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

const NANOSECONDS: i64 = 1_000_000_000;
/// USER_HZ, what procfs counts ticks in: 100 on every architecture Linux has.
const TICKS: i64 = 100;

/// A moment on `CLOCK_BOOTTIME`. Negative before the boot: a recorded machine may have run for longer than this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Boottime(i64);

impl Boottime {
    /// Now.
    pub fn now() -> Self {
        Self(nanoseconds(clock_gettime(ClockId::Boottime)))
    }

    /// So many nanoseconds after the boot.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// So many ticks after the boot, as in field 22 of `/proc/PID/stat` (proc_pid_stat(5)).
    pub fn from_ticks(ticks: u64) -> Self {
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        Self(ticks.saturating_mul(NANOSECONDS / TICKS))
    }

    /// Nanoseconds after the boot.
    pub const fn as_nanoseconds(self) -> i64 {
        self.0
    }

    /// Time since an earlier moment; none since a later one.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn seconds_since(self, other: Self) -> f64 {
        seconds(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Boottime {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Boottime {
    type Output = Self;

    fn sub(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(before.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// A moment as accounts have it, and as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// On the clock of accounts.
    pub boottime: Boottime,
    /// Seconds since the epoch, as the wall clock was when the moment was first seen.
    pub unix: f64,
}

impl Moment {
    /// Now, on both clocks.
    pub fn now() -> Self {
        Self { boottime: Boottime::now(), unix: unix_now() }
    }

    /// A later moment, shown by its distance from this one: a wall clock that is set in between changes nothing. One that
    /// is earlier is this moment.
    pub fn at(self, later: Boottime) -> Self {
        let boottime = later.max(self.boottime);
        Self { boottime, unix: self.unix + boottime.seconds_since(self.boottime) }
    }

    /// A moment in the past of which only the wall time is known. It is not later than now.
    pub fn of_unix(unix: f64, now: Self) -> Self {
        let unix = unix.min(now.unix);
        Self {
            boottime: now.boottime - Duration::try_from_secs_f64(now.unix - unix).unwrap_or_default(),
            unix,
        }
    }
}

/// When a machine was booted, whose processes are dated in ticks since then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Boot(Moment);

impl Boot {
    /// The machine whose `/proc/stat` has this `btime`, seconds since the epoch. `btime` follows the wall clock
    /// (`show_stat` in fs/proc/stat.c), so that of this machine is known to the nanosecond; any other is a recorded or a
    /// simulated machine, which is as old as its `btime` says.
    pub fn of(btime: u64, now: Moment) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
        let btime = btime as f64;
        let zero = Boottime::from_nanoseconds(0);
        let here = now.unix - now.boottime.seconds_since(zero);
        // `btime` has whole seconds, and the clock may be set by a little between the readings.
        if (here - btime).abs() < 2.0 {
            return Self(Moment { boottime: zero, unix: here });
        }
        Self(Moment::of_unix(btime, now))
    }

    /// When something happened that is dated in ticks since this boot.
    pub fn at_ticks(&self, ticks: u64) -> Moment {
        let after = Boottime::from_ticks(ticks).since(Boottime::from_nanoseconds(0));
        self.0.at(self.0.boottime + after)
    }
}

/// The wall clock.
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The wall clock, seconds since the epoch: to show a time, never to count one.
pub fn unix_now() -> f64 {
    wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// CPU time of this process, user and system, seconds (`CLOCK_PROCESS_CPUTIME_ID`).
pub fn process_cpu_seconds() -> f64 {
    seconds(nanoseconds(clock_gettime(ClockId::ProcessCPUTime)))
}

/// `CLOCK_MONOTONIC`, which `std::time::Instant` is on Linux: the same for all processes of a boot.
pub fn monotonic_nanoseconds() -> u64 {
    u64::try_from(nanoseconds(clock_gettime(ClockId::Monotonic))).unwrap_or(0)
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(NANOSECONDS).saturating_add(time.tv_nsec)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 nanoseconds are 104 days, then steps of some nanoseconds"
)]
fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn after_boot(seconds: i64) -> Boottime {
        Boottime::from_nanoseconds(seconds * NANOSECONDS)
    }

    const DAY: f64 = 86_400.0;

    #[test]
    fn a_moment_is_shown_by_its_distance_from_the_start_however_the_wall_clock_is_set() {
        let start = Moment { boottime: after_boot(100), unix: 1_000_000.0 };
        assert_eq!(start.at(after_boot(160)), Moment { boottime: after_boot(160), unix: 1_000_060.0 });
        assert_eq!(start.at(after_boot(40)), start, "an end is not before its start");
    }

    #[test]
    fn only_a_positive_time_has_passed() {
        assert_eq!(after_boot(5).since(after_boot(3)), Duration::from_secs(2));
        assert_eq!(after_boot(3).since(after_boot(5)), Duration::ZERO);
        assert_eq!(after_boot(3) - Duration::from_secs(5), after_boot(-2));
        assert_eq!(Boottime::from_ticks(u64::MAX), Boottime(i64::MAX));
    }

    #[test]
    fn a_wall_time_of_the_past_is_as_long_ago_on_both_clocks() {
        let now = Moment { boottime: after_boot(100), unix: 1000.0 };
        assert_eq!(Moment::of_unix(990.0, now), Moment { boottime: after_boot(90), unix: 990.0 });
        assert_eq!(Moment::of_unix(800.0, now), Moment { boottime: after_boot(-100), unix: 800.0 });
        assert_eq!(Moment::of_unix(1000.0 + DAY, now), now, "a file of the future is of now");
    }

    #[test]
    fn processes_of_this_machine_are_dated_by_its_clocks_and_those_of_another_by_its_boot() {
        let now = Moment { boottime: after_boot(100), unix: 5100.25 };
        for btime in [4999, 5000, 5001] {
            let started = Boot::of(btime, now).at_ticks(9050);
            assert_eq!(started, Moment { boottime: Boottime(90_500_000_000), unix: 5090.75 }, "{btime}");
        }
        // Recorded long ago, and booted half an hour before this machine.
        let recorded = Boot::of(3000, now).at_ticks(9050);
        assert_eq!(recorded, Moment { boottime: Boottime(-1_909_750_000_000), unix: 3090.5 });
        assert_eq!(now.boottime.since(recorded.boottime).as_secs_f64(), 5100.25 - 3090.5);
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_the_boot_with_it_and_no_account() {
        let before = Moment { boottime: after_boot(100), unix: 5100.0 };
        for step in [DAY, -3000.0] {
            let after = Moment { boottime: after_boot(101), unix: 5101.0 + step };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
            let set = Boot::of((5000.0 + step) as u64, after).at_ticks(9000);
            assert_eq!(set.boottime, Boot::of(5000, before).at_ticks(9000).boottime);
            assert_eq!(set.unix, 5090.0 + step, "shown as a reader of the clock would now");
        }
    }

    #[test]
    fn the_clocks_of_this_machine_agree_with_its_procfs() {
        let read = |file: &str| std::fs::read_to_string(file).unwrap();
        let uptime: f64 = read("/proc/uptime").split_whitespace().next().unwrap().parse().unwrap();
        let since = Boottime::now().since(after_boot(0)).as_secs_f64();
        assert!((0.0..60.0).contains(&(since - uptime + 0.02)), "{since} and {uptime}");
        let stat = read("/proc/stat");
        let btime = stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok()).unwrap();
        let process = read("/proc/self/stat");
        let ticks = process.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
        let (started, now) = (Boot::of(btime, Moment::now()).at_ticks(ticks), Moment::now());
        assert!(started.boottime <= now.boottime && now.boottime.since(started.boottime).as_secs() < 3600);
        assert!(started.unix <= now.unix + 0.1, "{started:?} and {now:?}");
        assert!(process_cpu_seconds() > 0.0);
    }
}
