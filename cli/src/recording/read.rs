//! What is in a recording.

use std::collections::BTreeMap;

use prometheus_api::{Labels, Sample, Series};

use super::line::Line;
use crate::series::INFO;

/// Recordings of one or several nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Over time, in the order of time.
    pub series: Vec<Series>,
    /// Who the jobs are: the last sample of each set of labels.
    pub who: Vec<Sample>,
    /// Lines that are neither samples nor comments, such as one that was cut off.
    pub odd_lines: usize,
}

/// Reads the texts of recordings. `is_kept` says which labels distinguish series.
pub fn read<'a>(texts: impl IntoIterator<Item = &'a str>, is_kept: impl Fn(&str) -> bool) -> Recorded {
    let (mut all, mut who) = (BTreeMap::<Labels, Vec<(f64, f64)>>::new(), BTreeMap::<Labels, Sample>::new());
    let mut odd_lines = 0;
    // Lines of a series are the same but for value and time.
    let mut known = BTreeMap::<(&str, &str), Labels>::new();
    for line in texts.into_iter().flat_map(str::lines) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let sample = Line::parse(line).and_then(|line| {
            let (value, time) = (line.value.parse::<f64>().ok()?, line.time?.parse::<f64>().ok()?);
            time.is_finite().then_some((line, value, time))
        });
        let Some((line, value, time)) = sample else {
            odd_lines += 1;
            continue;
        };
        let labels = known.entry((line.name, line.labels)).or_insert_with(|| {
            // What is said by labels is in all of them.
            let is_info = line.name.ends_with("_info");
            let values: Vec<_> = line.labels().filter(|(name, _)| is_info || is_kept(name)).collect();
            let named = std::iter::once(("__name__", line.name));
            named.chain(values.iter().map(|(name, value)| (*name, value.as_ref()))).collect()
        });
        if line.name == INFO {
            who.insert(labels.clone(), Sample { labels: labels.clone(), value, time });
            continue;
        }
        all.entry(labels.clone()).or_default().push((time, value));
    }
    let series = all.into_iter().map(|(labels, mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        // Two recordings of a node have the same values. Labels that are left out make no second part of a total.
        points.dedup_by(|later, first| later.0 <= first.0);
        Series { labels, points }
    });
    Recorded { series: series.collect(), who: who.into_values().collect(), odd_lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_series_and_the_rest_is_counted() {
        let text = "jobledger_a{jobid=\"7\",user=\"1000\",mode=\"user\",instance=\"n\"} 1 10.5\n\
                    jobledger_job_info{jobid=\"7\",user=\"1000\",instance=\"n\"} 1 10.5\n\
                    jobledger_a{jobid=\"7\",user=\"alice\",mode=\"user\",instance=\"n\"} 2 15.5\n\
                    jobledger_a{jobid=\"7\",user=\"alice\",mode=\"system\",instance=\"n\"} 9 15.5\n\
                    jobledger_a{jobid=\"7\",us";
        let found = read([text, "# EOF\n", "up 1\n"], |name| name != "user");
        let modes: Vec<Option<&str>> = found.series.iter().map(|series| series.labels.get("mode")).collect();
        assert_eq!(modes, [Some("system"), Some("user")]);
        assert_eq!(found.series[0].points, [(15.5, 9.0)]);
        assert_eq!(found.series[1].points, [(10.5, 1.0), (15.5, 2.0)]);
        assert_eq!(found.who.len(), 1);
        assert_eq!(found.who[0].labels.get("user"), Some("1000"));
        // What was cut off, and a sample without a time.
        assert_eq!(found.odd_lines, 2);
    }

    #[test]
    fn a_node_that_was_recorded_twice_counts_once() {
        let text = "jobledger_a{instance=\"n\"} 1 10\n";
        assert_eq!(read([text, text], |_| true).series[0].points, [(10.0, 1.0)]);
        assert_eq!(read(["jobledger_a 1 NaN\n"], |_| true), Recorded { odd_lines: 1, ..Recorded::default() });
    }
}
