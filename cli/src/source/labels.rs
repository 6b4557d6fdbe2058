//! The labels of the series that reports read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use prometheus_api::{Labels, Series};

/// Every label of the series that reports read, but those of --metric.job-labels: a user's name may be known later than the job, and two series
/// of one counter are then one. Of targets that are scraped twice one counts, so `job` is not there.
pub(super) const ALL_LABELS: &str = "__name__, jobid, instance, slurm_node, category, clock, device, direction, domain, engine, export, fan, filesystem, gpu, kind, level, \
location, method, mode, mountpoint, pipe, port, precision, reason, resource, sensor, since, socket, source, state, step, task, type, uuid, width";
/// Those that distinguish metrics, nodes, GPUs, steps and tasks; over the others parts are added up.
pub(super) const KEPT_LABELS: &str = "__name__, jobid, instance, slurm_node, category, clock, direction, domain, engine, fan, gpu, kind, level, mode, pipe, precision, reason, resource, sensor, \
since, source, state, step, task, type, uuid, width";

/// The labels that distinguish series.
pub(super) fn counted(cluster_label: &str) -> HashSet<&str> {
    ALL_LABELS.split(", ").chain([cluster_label]).collect()
}

/// Series of the same labels, of those that count and the cluster's, as one: the greatest value at each time. A server would do the same
/// (`Scope::parts`) for five times the work.
pub(super) fn merged(answer: Vec<Series>, cluster_label: &str) -> Vec<Series> {
    let counted = counted(cluster_label);
    let mut merged: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for series in answer {
        let labels = series.labels.iter().filter(|(name, _)| counted.contains(name)).collect();
        match merged.entry(labels) {
            Entry::Vacant(place) => drop(place.insert(series.points)),
            Entry::Occupied(mut place) => {
                let points = place.get_mut();
                points.extend(series.points);
                points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
                points.dedup_by(|later, first| later.0 <= first.0);
            }
        }
    }
    merged.into_iter().map(|(labels, points)| Series { labels, points }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_target_that_is_scraped_twice_one_counts() {
        let series = |labels: &[(&str, &str)], points: &[(f64, f64)]| Series {
            labels: labels.iter().copied().collect(),
            points: points.to_vec(),
        };
        let (name, cluster) = (("__name__", "a_total"), ("site", "one"));
        let answer = vec![
            series(&[name, cluster, ("socket", "0"), ("job", "x")], &[(15.0, 1.0), (30.0, 4.0)]),
            series(
                &[name, cluster, ("socket", "0"), ("job", "y"), ("user", "alice")],
                &[(15.0, 2.0), (45.0, 5.0)],
            ),
            series(&[name, cluster, ("socket", "1"), ("job", "x")], &[(15.0, 7.0)]),
            series(&[name, ("site", "two"), ("socket", "0")], &[(15.0, 9.0)]),
        ];
        let found = merged(answer, "site");
        assert_eq!(
            found,
            [
                series(&[name, cluster, ("socket", "0")], &[(15.0, 2.0), (30.0, 4.0), (45.0, 5.0)]),
                series(&[name, cluster, ("socket", "1")], &[(15.0, 7.0)]),
                series(&[name, ("site", "two"), ("socket", "0")], &[(15.0, 9.0)]),
            ]
        );
    }

    /// A label that is left out would make two series one, of which the larger counts.
    #[test]
    fn all_labels_of_the_series_are_known() {
        let documented = include_str!("../../../docs/metrics.md");
        let known: Vec<&str> = ALL_LABELS.split(", ").collect();
        for metric in job_report::metric::ALL {
            let row = documented
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", metric.series)))
                .unwrap();
            let labels = row.split('|').nth(4).unwrap();
            for label in labels.split('`').skip(1).step_by(2) {
                assert!(known.contains(&label), "{}: {label}", metric.series);
            }
            for (label, _) in metric.labels {
                assert!(KEPT_LABELS.split(", ").any(|kept| kept == *label), "{}: {label}", metric.series);
            }
        }
    }
}
