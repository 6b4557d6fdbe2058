//! How long the counters of a node went on: from `jobledger_exporter_counting_start_time_seconds`. Pure.

/// Two start times that are one: `VictoriaMetrics` rounds the last digits.
const SAME: f64 = 0.1;

/// What a part of the time says of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bin {
    /// Its end. The first bin may be the one before the window.
    pub(super) end: f64,
    /// Since when the node counts, as of the end of the bin.
    pub(super) began: f64,
    /// Whether that changed within the bin.
    pub(super) changed: bool,
    /// The time and value of each sample, where they were asked for.
    pub(super) samples: Vec<(f64, f64)>,
}

/// A time in which the counters of a node went on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counting {
    /// When they were 0.
    pub(super) began: f64,
    /// The first sample; `None` if it is long before the window.
    pub(super) first: Option<f64>,
    /// The last sample before the window.
    pub(super) before: Option<f64>,
    /// The last sample.
    pub(super) last: f64,
}

pub(super) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < SAME
}

/// The bins whose samples are needed to know when a counting begins and ends. `steady` is whether the node was scraped right
/// before the window and right before its end, with no change.
pub(super) fn uncertain(bins: &[Bin], since: f64, steady: [bool; 2]) -> Vec<usize> {
    let is_same = |one: &Bin, other: Option<&Bin>| other.is_some_and(|other| is_same(one.began, other.began));
    let wanted = |(at, bin): (usize, &Bin)| {
        if bin.end <= since {
            return !steady[0];
        }
        let previous = at.checked_sub(1).and_then(|at| bins.get(at));
        let next = bins.get(at + 1);
        bin.changed
            || !is_same(bin, previous)
            || if next.is_some() { !is_same(bin, next) } else { !steady[1] }
    };
    bins.iter().enumerate().filter(|each| wanted(*each)).map(|(at, _)| at).collect()
}

/// The countings of a node, in the order of time.
pub(super) fn countings(bins: &[Bin], since: f64) -> Vec<Counting> {
    let mut found: Vec<Counting> = Vec::new();
    let mut see = |began: f64, first: Option<f64>, at: f64| {
        let before = Some(at).filter(|at| *at <= since);
        match found.last_mut().filter(|last| is_same(last.began, began)) {
            Some(last) => (last.last, last.before) = (at, before.or(last.before)),
            None => found.push(Counting { began, first, before, last: at }),
        }
    };
    for bin in bins {
        if bin.samples.is_empty() {
            see(bin.began, None, bin.end);
        }
        for (at, began) in &bin.samples {
            see(*began, Some(*at), *at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(end: f64, began: f64) -> Bin {
        Bin { end, began, changed: false, samples: Vec::new() }
    }

    #[test]
    fn samples_are_needed_where_a_counting_begins_or_ends() {
        let bins = [bin(100.0, 7.0), bin(200.0, 7.0), bin(300.0, 7.0), bin(500.0, 8.0), bin(600.0, 8.0)];
        assert_eq!(uncertain(&bins, 100.0, [true, true]), [2, 3]);
        assert_eq!(uncertain(&bins, 100.0, [false, false]), [0, 2, 3, 4]);
        let mut twice = bins[..3].to_vec();
        twice[1].changed = true;
        assert_eq!(uncertain(&twice, 100.0, [true, true]), [1]);
        // A node that is new.
        assert_eq!(uncertain(&bins[3..], 100.0, [false, true]), [0]);
    }

    #[test]
    fn a_counting_ends_where_another_one_begins() {
        let mut bins = [bin(100.0, 7.0), bin(200.0, 7.0), bin(300.0, 8.0), bin(400.0, 8.0)];
        bins[2].samples = vec![(210.0, 7.0), (225.0, 7.04), (290.0, 8.0)];
        assert_eq!(
            countings(&bins, 100.0),
            [
                Counting { began: 7.0, first: None, before: Some(100.0), last: 225.0 },
                Counting { began: 8.0, first: Some(290.0), before: None, last: 400.0 },
            ]
        );
        bins[0].samples = vec![(20.0, 7.0), (40.0, 7.0)];
        assert_eq!(countings(&bins[..1], 100.0)[0].before, Some(40.0));
    }
}
