//! The labels of the series that reports read.

/// Every label of the series that reports read, but those of --metric.job-labels: a user's name may be known later than the job, and two series
/// of one counter are then one. Of targets that are scraped twice one counts, so `job` is not there.
pub(super) const ALL_LABELS: &str = "__name__, jobid, instance, slurm_node, category, clock, device, direction, domain, engine, export, fan, filesystem, gpu, kind, level, \
location, method, mode, mountpoint, pipe, port, precision, reason, resource, sensor, since, socket, state, step, task, type, uuid, width";
/// Those that distinguish metrics, nodes, GPUs, steps and tasks; over the others parts are added up.
pub(super) const KEPT_LABELS: &str = "__name__, jobid, instance, slurm_node, category, clock, direction, domain, engine, fan, gpu, kind, level, mode, pipe, precision, reason, resource, sensor, \
since, state, step, task, type, uuid, width";

#[cfg(test)]
mod tests {
    use super::*;

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
