//! Whether a job has its CPUs for itself, so that what they count is its own. Pure.

use cpu_topology::CpuSet;

/// Whether no other process may run on a job's CPUs: the job is alone on the node, or every job is bound to CPUs of
/// its own. `None` in `others` is a job that is not bound, or not known to be.
pub(super) fn has_its_cpus_alone<'a>(
    own: Option<&CpuSet>,
    others: impl IntoIterator<Item = Option<&'a CpuSet>>,
) -> bool {
    others.into_iter().all(|other| match (own, other) {
        (Some(own), Some(other)) => !own.intersects(other),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use cpu_topology::CpuSet;

    use super::*;

    #[test]
    fn cpus_are_a_jobs_own_when_no_other_job_may_run_there() {
        let list = |text: &str| CpuSet::parse(text.as_bytes()).ok();
        let alone = |own: &str, others: &[&str]| {
            let lists: Vec<_> = others.iter().map(|text| list(text)).collect();
            has_its_cpus_alone(
                list(own).filter(|own| !own.is_empty()).as_ref(),
                lists.iter().map(Option::as_ref),
            )
        };
        assert!(alone("0-3", &[]) && alone("", &[]), "alone on the node");
        assert!(alone("0-3", &["4-7", "8,9"]));
        assert!(!alone("0-3", &["4-7", "3"]));
        assert!(!alone("", &["4-7"]), "not bound itself");
        assert!(!has_its_cpus_alone(list("0-3").as_ref(), [None]), "another is not bound");
    }
}
