//! A range query in parts that a server answers, and their answers put together.

use std::collections::BTreeMap;

use crate::answer::Series;
use crate::error::Error;
use crate::labels::Labels;

/// The times of a range query, Unix time in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The first time.
    pub start: f64,
    /// No time is after this one.
    pub end: f64,
    /// Between two times. Prometheus has milliseconds.
    pub step: f64,
}

/// Times in milliseconds, both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) step: i64,
}

/// No report asks for so many: a step of seconds over decades.
const MOST_PARTS: usize = 1000;
/// The year 5138, as milliseconds.
const MOST_TIME: f64 = 1e14;

/// A time in milliseconds, as servers count.
#[allow(clippy::cast_possible_truncation, reason = "checked before")]
pub(crate) fn milliseconds(seconds: f64) -> Result<i64, Error> {
    let time = (seconds * 1e3).round();
    if time.abs() <= MOST_TIME { Ok(time as i64) } else { Err(Error::Range("a time that is none")) }
}

/// As a parameter of a request.
pub(crate) fn seconds(milliseconds: i64) -> String {
    let (sign, time) = (if milliseconds < 0 { "-" } else { "" }, milliseconds.unsigned_abs());
    format!("{sign}{}.{:03}", time / 1000, time % 1000)
}

/// Parts of at most so many points. Each begins at a whole number of steps from the start, so that together they have exactly the
/// times of the whole.
pub(crate) fn parts(range: Range, most_points: usize) -> Result<Vec<Part>, Error> {
    let (start, end, step) =
        (milliseconds(range.start)?, milliseconds(range.end)?, milliseconds(range.step)?);
    if step < 1 {
        return Err(Error::Range("the step is shorter than a millisecond"));
    }
    if end < start {
        return Err(Error::Range("the end is before the start"));
    }
    let length = i64::try_from(most_points.max(1)).unwrap_or(i64::MAX).saturating_mul(step);
    let mut parts = Vec::new();
    let mut from = start;
    while from <= end {
        if parts.len() == MOST_PARTS {
            return Err(Error::Range("too many points: a longer step is needed"));
        }
        let next = from.saturating_add(length);
        parts.push(Part { start: from, end: end.min(next.saturating_sub(step)), step });
        from = next;
    }
    Ok(parts)
}

/// Puts the answers of parts together, which are given in the order of time.
pub(crate) fn join(
    answers: impl IntoIterator<Item = Vec<Series>>,
    most_series: usize,
) -> Result<Vec<Series>, Error> {
    let mut whole: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for series in answers.into_iter().flatten() {
        let points = whole.entry(series.labels).or_default();
        let last = points.last().map_or(f64::NEG_INFINITY, |(time, _)| *time);
        if points.is_empty() {
            *points = series.points;
        } else {
            // A server that aligns times by itself may give one twice.
            points.extend(series.points.into_iter().filter(|(time, _)| *time > last));
        }
    }
    if whole.len() > most_series {
        return Err(Error::TooManySeries(most_series));
    }
    Ok(whole.into_iter().map(|(labels, points)| Series { labels, points }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: f64, end: f64, step: f64) -> Range {
        Range { start, end, step }
    }

    #[test]
    fn parts_have_the_times_of_the_whole_each_once() {
        for (whole, most) in [
            (range(0.0, 100.0, 10.0), 3),
            (range(0.5, 100.0, 0.1), 7),
            (range(-5.0, 5.0, 1.0), 11),
            (range(7.0, 7.0, 60.0), 4),
            (range(1.7e9, 1.7e9 + 99.9, 15.0), 1),
        ] {
            let times = |part: &Part| {
                (part.start..=part.end).step_by(usize::try_from(part.step).unwrap()).collect::<Vec<_>>()
            };
            let found = parts(whole, most).unwrap();
            assert!(found.iter().all(|part| (1..=most).contains(&times(part).len())), "{found:?}");
            let one = parts(whole, 1_000_000).unwrap();
            assert_eq!(one.len(), 1);
            assert_eq!(found.iter().flat_map(times).collect::<Vec<_>>(), times(&one[0]), "{whole:?}");
        }
    }

    #[test]
    fn a_range_that_is_none_is_refused() {
        for bad in [
            range(0.0, 1.0, 0.0),
            range(0.0, 1.0, -1.0),
            range(0.0, 1.0, 0.0001),
            range(1.0, 0.0, 1.0),
            range(f64::NAN, 1.0, 1.0),
            range(0.0, f64::INFINITY, 1.0),
            range(0.0, 1e10, 0.001),
        ] {
            assert!(matches!(parts(bad, 10_000), Err(Error::Range(_))), "{bad:?}");
        }
    }

    #[test]
    fn times_are_written_with_milliseconds() {
        assert_eq!(seconds(1_435_781_451_781), "1435781451.781");
        assert_eq!((seconds(5), seconds(-1500)), ("0.005".to_owned(), "-1.500".to_owned()));
        assert_eq!(milliseconds(1_435_781_451.781).unwrap(), 1_435_781_451_781);
    }

    #[test]
    fn joined_series_have_no_time_twice_and_are_in_order() {
        let labels = |name| [("a", name)].into_iter().collect::<Labels>();
        let series = |name, points: &[(f64, f64)]| Series { labels: labels(name), points: points.to_vec() };
        let first = vec![series("y", &[(1.0, 1.0), (2.0, 2.0)]), series("x", &[(2.0, 0.0)])];
        let second = vec![series("y", &[(2.0, 9.0), (3.0, 3.0)]), series("z", &[(3.0, 4.0)])];
        let joined = join([first, second], 3).unwrap();
        assert_eq!(
            joined,
            [
                series("x", &[(2.0, 0.0)]),
                series("y", &[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]),
                series("z", &[(3.0, 4.0)])
            ]
        );
        assert_eq!(join([joined], 2), Err(Error::TooManySeries(2)));
    }
}
