//! Axes of time: by the clock on the wall, or since the start.

use std::fmt;

use crate::axis::{Axis, Tick, drawable};

/// What a tick of the clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockUnit {
    /// The day, at midnight.
    Day,
    /// Hour and minute.
    Minute,
    /// Hour, minute and second.
    Second,
}

/// Local time, which the caller knows.
#[derive(Clone, Copy)]
pub struct LocalTime<'a> {
    /// Seconds east of UTC at this Unix time.
    pub offset: &'a dyn Fn(i64) -> i64,
    /// The text of a tick at this Unix time.
    pub label: &'a dyn Fn(i64, ClockUnit) -> String,
}

impl fmt::Debug for LocalTime<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTime").finish_non_exhaustive()
    }
}

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 86_400;

/// Steps of a clock, in seconds.
const STEPS: [i64; 31] = [
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    56 * DAY,
    112 * DAY,
    224 * DAY,
    448 * DAY,
    896 * DAY,
    1792 * DAY,
    3584 * DAY,
    7168 * DAY,
    14_336 * DAY,
];
/// The first Monday after the epoch: weeks begin on a Monday.
const MONDAY: i64 = 4 * DAY;
/// No axis has more ticks.
const MOST: i64 = 50;
/// Times beyond are no times: 31 million years.
const LATEST: f64 = 1e15;

/// How time is shown.
#[derive(Debug, Clone, Copy)]
pub enum TimeAxis<'a> {
    /// Unix seconds, as local time.
    Local(LocalTime<'a>),
    /// Seconds since the start.
    Elapsed,
}

/// An axis of time over this range with as many ticks as fit; none if there is no range.
pub(crate) fn time_axis(
    kind: TimeAxis<'_>,
    range: Option<(f64, f64)>,
    fits: impl Fn(&[Tick]) -> bool,
) -> Axis {
    let range = range.and_then(|(from, to)| Some((drawable(from)?, drawable(to)?)));
    let Some((from, to)) = range else { return Axis::linear(0.0, 1.0) };
    let (from, to) = (from.clamp(-LATEST, LATEST), to.clamp(-LATEST, LATEST));
    // All at one time: a second of it.
    let range = (from, to.max(from + 1.0));
    match kind {
        TimeAxis::Local(local) => clock_axis(range, local, fits),
        TimeAxis::Elapsed => elapsed_axis(range, fits),
    }
}

fn clock_axis(range: (f64, f64), local: LocalTime<'_>, fits: impl Fn(&[Tick]) -> bool) -> Axis {
    let label = |at: i64| {
        let unit = match (at.saturating_add((local.offset)(at))).rem_euclid(DAY) {
            0 => ClockUnit::Day,
            second if second % MINUTE == 0 => ClockUnit::Minute,
            _ => ClockUnit::Second,
        };
        (local.label)(at, unit)
    };
    axis(range, fits, |step, (from, to)| {
        let first = if step > DAY { MONDAY } else { 0 };
        let mut ticks = Vec::new();
        let mut wall = round_up(from.saturating_add((local.offset)(from)).saturating_sub(first), step)
            .saturating_add(first);
        for _ in 0..MOST {
            // When the wall shows this: by the offset of about then, which summer time may change.
            let about = wall.saturating_sub((local.offset)(wall.saturating_sub((local.offset)(from))));
            let at = wall.saturating_sub((local.offset)(about));
            if at > to {
                break;
            }
            // In the hour that summer time leaves out there is no such time, and in the one it repeats there are two.
            let exists = at.saturating_add((local.offset)(at)) == wall;
            if exists && at >= from && ticks.last().is_none_or(|(last, _)| *last < at) {
                ticks.push((at, label(at)));
            }
            wall = wall.saturating_add(step);
        }
        ticks
    })
}

fn elapsed_axis(range: (f64, f64), fits: impl Fn(&[Tick]) -> bool) -> Axis {
    axis(range, fits, |step, (from, to)| {
        let mut ticks = Vec::new();
        let mut at = round_up(from, step);
        while at <= to && ticks.len() < 50 {
            ticks.push((at, elapsed(at, step)));
            at = at.saturating_add(step);
        }
        ticks
    })
}

fn axis(
    range: (f64, f64),
    fits: impl Fn(&[Tick]) -> bool,
    ticks: impl Fn(i64, (i64, i64)) -> Vec<(i64, String)>,
) -> Axis {
    let mut axis = Axis::linear(range.0, range.1);
    let whole = (seconds(range.0.ceil()), seconds(range.1.floor()));
    let span = whole.1.saturating_sub(whole.0);
    for step in STEPS.into_iter().filter(|step| span / step < MOST - 2) {
        let place = |(at, label): (i64, String)| Some(Tick { at: axis.place(float(at))?, label });
        let ticks: Vec<Tick> = ticks(step, whole).into_iter().filter_map(place).collect();
        if fits(&ticks) {
            axis.ticks = ticks;
            break;
        }
    }
    axis
}

fn round_up(value: i64, step: i64) -> i64 {
    value.saturating_add((-value).rem_euclid(step))
}

#[allow(clippy::cast_possible_truncation, reason = "a range of time is within 1e15, and the cast saturates")]
fn seconds(value: f64) -> i64 {
    value as i64
}

fn float(seconds: i64) -> f64 {
    // Exact below 2^53, where all times are.
    seconds as f64
}

/// A time since the start, in the largest unit of its step.
fn elapsed(at: i64, step: i64) -> String {
    let (sign, at) = if at < 0 { ("-", -at) } else { ("", at) };
    let in_parts = |large: i64, unit: &str, small: i64| match at % large / small {
        0 => format!("{sign}{} {unit}", at / large),
        part => format!("{sign}{}:{part:02} {unit}", at / large),
    };
    match step {
        _ if at == 0 => "0".to_owned(),
        DAY.. => format!("{sign}{} d", at / DAY),
        MINUTE.. if at >= HOUR => in_parts(HOUR, "h", MINUTE),
        _ if at >= HOUR => format!("{sign}{}:{:02}:{:02}", at / HOUR, at % HOUR / MINUTE, at % MINUTE),
        _ if at >= MINUTE => in_parts(MINUTE, "min", 1),
        _ => format!("{sign}{at} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central Europe around 26 October 2025, 01:00 UTC, when summer time ended.
    fn berlin(at: i64) -> i64 {
        if at < 1_761_440_400 { 7200 } else { 3600 }
    }

    fn label(at: i64, unit: ClockUnit) -> String {
        let second = (at + berlin(at)).rem_euclid(DAY);
        match unit {
            ClockUnit::Day => format!("day {}", (at + berlin(at)) / DAY),
            ClockUnit::Minute => format!("{:02}:{:02}", second / HOUR, second % HOUR / MINUTE),
            ClockUnit::Second => {
                format!("{:02}:{:02}:{:02}", second / HOUR, second % HOUR / MINUTE, second % MINUTE)
            }
        }
    }

    fn clock(from: i64, to: i64, most: usize) -> Vec<String> {
        let local = LocalTime { offset: &berlin, label: &label };
        let axis = clock_axis((float(from), float(to)), local, |ticks| ticks.len() <= most);
        axis.ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_at_round_local_times_and_name_the_day_at_midnight() {
        // 24 October 2025, 20:10 local time, for eight hours.
        let from = 1_761_329_400;
        assert_eq!(clock(from, from + 8 * HOUR, 5), ["22:00", "day 20386", "02:00", "04:00"]);
        assert_eq!(clock(from, from + 90, 4), ["20:10", "20:10:30", "20:11", "20:11:30"]);
        assert_eq!(clock(from, from + 3 * DAY, 4), ["day 20386", "day 20387", "day 20388"]);
    }

    #[test]
    fn the_end_of_summer_time_moves_no_tick() {
        // From 25 October 22:00 to 26 October 09:00 local time are twelve hours.
        let from = 1_761_422_400;
        assert_eq!(clock(from, from + 12 * HOUR, 5), ["day 20387", "03:00", "06:00", "09:00"]);
    }

    #[test]
    fn weeks_begin_on_a_monday() {
        // Day 20388 is 27 October 2025, a Monday.
        let from = 20_380 * DAY;
        assert_eq!(clock(from, from + 25 * DAY, 5), ["day 20381", "day 20388", "day 20395", "day 20402"]);
    }

    #[test]
    fn time_since_the_start_has_the_unit_of_its_size() {
        let elapsed = |to: i64, most| -> Vec<String> {
            let axis = elapsed_axis((0.0, float(to)), |ticks| ticks.len() <= most);
            axis.ticks.into_iter().map(|tick| tick.label).collect()
        };
        assert_eq!(elapsed(25, 4), ["0", "10 s", "20 s"]);
        assert_eq!(elapsed(150, 6), ["0", "30 s", "1 min", "1:30 min", "2 min", "2:30 min"]);
        assert_eq!(elapsed(5400, 4), ["0", "30 min", "1 h", "1:30 h"]);
        assert_eq!(elapsed(67_316, 4), ["0", "6 h", "12 h", "18 h"]);
        assert_eq!(elapsed(3 * DAY, 4), ["0", "1 d", "2 d", "3 d"]);
    }

    #[test]
    fn a_range_of_nothing_is_a_second() {
        let range = |range| time_axis(TimeAxis::Elapsed, range, |_| true).range();
        assert_eq!(range(Some((5.0, 5.0))), (5.0, 6.0));
        assert_eq!(range(Some((9.0, 3.0))), (9.0, 10.0));
        assert!(time_axis(TimeAxis::Elapsed, Some((f64::NAN, 5.0)), |_| true).ticks.is_empty());
    }
}
