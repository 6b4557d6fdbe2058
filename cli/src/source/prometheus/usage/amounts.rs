//! Values of counters, and what they grew by. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::is_same;

/// What is counted of owners, and what a node has beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Ends of jobs: one on each node that a job had.
    JobsEnded,
    /// CPU seconds.
    CpuHeld,
    /// CPU seconds.
    CpuUsed,
    /// GPU seconds.
    GpuHeld,
    /// GPU seconds.
    GpuBusy,
    /// GPU seconds.
    GpuIdle,
    /// Bytes times seconds of jobs with a limit.
    MemoryHeld,
    /// Joules.
    Energy,
    /// Grams.
    Co2,
    /// CPU seconds of SLURM's cgroups that no job can be charged with.
    CpuUnattributed,
    /// GPU seconds in which something else ran.
    GpuUnattributed,
    /// Joules that no job can be charged with.
    EnergyUnattributed,
    /// Grams of these.
    Co2Unattributed,
    /// CPU seconds of all owners. It is there whenever owners are counted.
    HeldOnNode,
}

impl Counter {
    /// The counters of owners.
    pub(super) const OF_OWNERS: [Self; 9] = [
        Self::JobsEnded,
        Self::CpuHeld,
        Self::CpuUsed,
        Self::GpuHeld,
        Self::GpuBusy,
        Self::GpuIdle,
        Self::MemoryHeld,
        Self::Energy,
        Self::Co2,
    ];
    /// What a node has beyond them.
    pub(super) const OF_NODES: [Self; 5] = [
        Self::CpuUnattributed,
        Self::GpuUnattributed,
        Self::EnergyUnattributed,
        Self::Co2Unattributed,
        Self::HeldOnNode,
    ];

    /// Its series.
    pub(super) fn series(self) -> &'static [&'static str] {
        match self {
            Self::JobsEnded => &["jobledger_owner_jobs_ended_total"],
            Self::CpuHeld => &["jobledger_owner_allocated_cpu_seconds_total"],
            Self::CpuUsed => &["jobledger_owner_cpu_seconds_total"],
            Self::GpuHeld => &["jobledger_owner_gpu_allocated_seconds_total"],
            Self::GpuBusy => &["jobledger_owner_gpu_busy_seconds_total"],
            Self::GpuIdle => &["jobledger_owner_gpu_idle_seconds_total"],
            Self::MemoryHeld => &["jobledger_owner_memory_allocated_byte_seconds_total"],
            Self::Energy => &["jobledger_owner_charged_energy_joules_total"],
            Self::Co2 => &["jobledger_owner_co2_grams_total"],
            Self::CpuUnattributed => &["jobledger_node_slurm_cpu_unattributed_seconds_total"],
            Self::GpuUnattributed => &["jobledger_gpu_unattributed_busy_seconds_total"],
            Self::EnergyUnattributed => &[
                "jobledger_node_energy_unattributed_joules_total",
                "jobledger_gpu_unattributed_energy_joules_total",
            ],
            Self::Co2Unattributed => &["jobledger_node_co2_unattributed_grams_total"],
            Self::HeldOnNode => &["jobledger_node_allocated_cpu_seconds_total"],
        }
    }

    /// The series of jobs that it is the sum of.
    pub(super) fn series_of_jobs(self) -> &'static [&'static str] {
        match self {
            Self::CpuHeld => &["jobledger_job_allocated_cpu_seconds_total"],
            Self::CpuUsed => &["jobledger_job_cpu_seconds_total"],
            Self::GpuHeld => &["jobledger_job_gpu_allocated_seconds_total"],
            Self::GpuBusy => &["jobledger_job_gpu_busy_seconds_total"],
            Self::GpuIdle => &["jobledger_job_gpu_idle_seconds_total"],
            Self::MemoryHeld => &["jobledger_job_memory_allocated_byte_seconds_total"],
            Self::Energy => &["jobledger_job_energy_joules_total", "jobledger_job_gpu_energy_joules_total"],
            _ => &[],
        }
    }

    /// The one that a series is of.
    pub(super) fn of(series: &str) -> Option<Self> {
        Self::OF_OWNERS.into_iter().chain(Self::OF_NODES).find(|counter| counter.series().contains(&series))
    }

    /// The one that a job's series is a part of.
    pub(super) fn of_job(series: &str) -> Option<Self> {
        Self::OF_OWNERS.into_iter().find(|counter| counter.series_of_jobs().contains(&series))
    }
}

/// Values of a node's counters by owner.
pub(super) type Values = BTreeMap<(Counter, String), f64>;

/// A job on a node at a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct JobThen {
    /// Seconds since the epoch.
    pub(super) start: f64,
    /// The value of the label that rows are of; `None` if the job is not of those that are asked for.
    pub(super) owner: Option<String>,
    /// Of its counters.
    pub(super) values: BTreeMap<Counter, f64>,
}

/// The jobs of a node by their number, and SLURM's name of the node where it has several.
pub(super) type JobsThen = BTreeMap<(String, String), JobThen>;

/// What was counted, before a counting began, of the jobs that it begins with.
pub(super) fn counted_before(then: &JobsThen, now: &JobsThen) -> Values {
    let mut counted = Values::new();
    for (number, now) in now {
        let (Some(then), Some(owner)) = (then.get(number), &now.owner) else { continue };
        if (then.start - now.start).abs() > super::SAME_START {
            continue;
        }
        for (counter, value) in &then.values {
            // What the exporter counts by itself begins anew with it.
            if now.values.get(counter).is_some_and(|now| now >= value) {
                *counted.entry((*counter, owner.clone())).or_default() += value;
            }
        }
    }
    counted
}

/// What jobs of a node that is new had before the window, by their part of the time until `at`. Of what was held that is exact.
pub(super) fn before_window(now: &JobsThen, since: f64, at: f64) -> Values {
    use Counter::{CpuHeld, CpuUsed, GpuHeld, MemoryHeld};
    let mut before = Values::new();
    for job in now.values().filter(|job| job.start < since) {
        let Some(owner) = &job.owner else { continue };
        let part = (since - job.start) / (at - job.start);
        for counter in [CpuHeld, CpuUsed, GpuHeld, MemoryHeld] {
            if let Some(value) = job.values.get(&counter) {
                *before.entry((counter, owner.clone())).or_default() += value * part;
            }
        }
    }
    before
}

/// What is taken off is a part of what is there.
pub(super) fn part_of(mut values: Values, after: &Values) -> Values {
    values.retain(|key, value| {
        *value = value.min(after.get(key).copied().unwrap_or(0.0));
        *value > 0.0
    });
    values
}

/// What counters grew by, and how many have no value at the end or fell.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Grown {
    pub(super) amounts: Values,
    pub(super) lost: BTreeSet<Counter>,
}

/// From one time to another of the same counting; `before` is nothing where it began in between.
pub(super) fn grown(before: &Values, after: &Values) -> Grown {
    let mut grown = Grown::default();
    let counters: BTreeSet<Counter> =
        before.keys().chain(after.keys()).map(|(counter, _)| *counter).collect();
    for counter in counters {
        let of = |values: &Values| -> BTreeMap<String, f64> {
            let of = values.iter().filter(|((of, _), _)| *of == counter);
            of.map(|((_, owner), value)| (owner.clone(), *value)).collect()
        };
        let (before, after) = (of(before), of(after));
        let at_start = |owner: &String| before.get(owner).copied().unwrap_or(0.0);
        let falls = |(owner, value): (&String, &f64)| *value < at_start(owner) - tolerance(at_start(owner));
        if before.keys().all(|owner| after.contains_key(owner)) && !after.iter().any(falls) {
            let amounts = after
                .iter()
                .map(|(owner, value)| ((counter, owner.clone()), (value - at_start(owner)).max(0.0)));
            grown.amounts.extend(amounts);
            continue;
        }
        // Owners are counted by other labels now, or nothing counts any more.
        let amount = after.values().sum::<f64>() - before.values().sum::<f64>();
        grown.lost.insert(counter);
        if amount >= 0.0 {
            grown.amounts.insert((counter, String::new()), amount);
        }
    }
    grown
}

/// What two readings of the same value may differ by: rounding, and a server that keeps fewer digits.
fn tolerance(value: f64) -> f64 {
    1e-6 + value.abs() * 1e-9
}

/// Whether a counting of another name of the node went on with the same values.
pub(super) fn continues(then: &Values, now: &Values, began: [f64; 2]) -> bool {
    is_same(began[0], began[1])
        && !then.is_empty()
        && then.iter().all(|(key, value)| now.get(key).is_some_and(|now| *now >= value - tolerance(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[(Counter, &str, f64)]) -> Values {
        of.iter().map(|(counter, owner, value)| ((*counter, (*owner).to_owned()), *value)).collect()
    }

    #[test]
    fn every_series_has_its_counter() {
        for counter in Counter::OF_OWNERS.into_iter().chain(Counter::OF_NODES) {
            assert!(counter.series().iter().all(|series| Counter::of(series) == Some(counter)));
            assert!(counter.series_of_jobs().iter().all(|series| Counter::of_job(series) == Some(counter)));
        }
        let documented = include_str!("../../../../../docs/metrics.md");
        let all = Counter::OF_OWNERS.into_iter().chain(Counter::OF_NODES);
        for series in all.flat_map(|counter| counter.series().iter().chain(counter.series_of_jobs())) {
            assert!(documented.contains(&format!("| `{series}` | counter |")), "{series}");
        }
    }

    #[test]
    fn an_owner_that_is_new_counts_whole() {
        use Counter::{CpuHeld, CpuUsed};
        let before = values(&[(CpuHeld, "a", 10.0), (CpuUsed, "a", 3.0)]);
        let after = values(&[(CpuHeld, "a", 12.0), (CpuHeld, "b", 5.0), (CpuUsed, "a", 3.0)]);
        let found = grown(&before, &after);
        assert_eq!(found.amounts, values(&[(CpuHeld, "a", 2.0), (CpuHeld, "b", 5.0), (CpuUsed, "a", 0.0)]));
        assert!(found.lost.is_empty());
    }

    #[test]
    fn counters_of_other_labels_are_nobodys() {
        use Counter::{CpuHeld, Energy};
        let before = values(&[(CpuHeld, "a", 10.0), (CpuHeld, "b", 1.0), (Energy, "a", 7.0)]);
        let found = grown(&before, &values(&[(CpuHeld, "", 14.0)]));
        assert_eq!(found.amounts, values(&[(CpuHeld, "", 3.0)]));
        assert_eq!(found.lost, BTreeSet::from([CpuHeld, Energy]));
    }

    #[test]
    fn what_was_counted_of_running_jobs_is_taken_off() {
        use Counter::{CpuHeld, Energy};
        let job = |start, held, energy| JobThen {
            start,
            owner: Some("a".to_owned()),
            values: BTreeMap::from([(CpuHeld, held), (Energy, energy)]),
        };
        let jobs = |of: &[(&str, JobThen)]| -> JobsThen {
            of.iter().map(|(number, job)| (((*number).to_owned(), String::new()), job.clone())).collect()
        };
        let then =
            jobs(&[("1", job(5.0, 100.0, 70.0)), ("2", job(6.0, 50.0, 1.0)), ("3", job(7.0, 9.0, 1.0))]);
        // The second is another run, the third is over; energy began anew.
        let now =
            jobs(&[("1", job(5.0, 130.0, 2.0)), ("2", job(60.0, 70.0, 2.0)), ("4", job(80.0, 8.0, 2.0))]);
        assert_eq!(counted_before(&then, &now), values(&[(CpuHeld, "a", 100.0)]));
    }

    #[test]
    fn jobs_of_a_new_node_have_what_is_of_the_window() {
        let of = |start, owner: Option<&str>| JobThen {
            start,
            owner: owner.map(str::to_owned),
            values: BTreeMap::from([(Counter::CpuHeld, 80.0), (Counter::Energy, 80.0)]),
        };
        let jobs = [of(60.0, Some("a")), of(120.0, Some("a")), of(60.0, None)];
        let jobs = (0..).map(|number: u8| (number.to_string(), String::new())).zip(jobs).collect();
        assert_eq!(before_window(&jobs, 100.0, 140.0), values(&[(Counter::CpuHeld, "a", 40.0)]));
    }

    #[test]
    fn a_node_of_another_name_has_all_that_the_first_one_had() {
        let then = values(&[(Counter::CpuHeld, "a", 10.0)]);
        let now = values(&[(Counter::CpuHeld, "a", 11.0), (Counter::CpuHeld, "b", 1.0)]);
        assert!(continues(&then, &now, [7.0, 7.0]));
        assert!(!continues(&then, &now, [7.0, 9.0]));
        assert!(!continues(&now, &then, [7.0, 7.0]));
    }
}
