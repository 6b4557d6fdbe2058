//! What a policy adds up: hours that jobs had, and those of them that were wasted.

use job_report::{Report, Subject, Thresholds, gpus_never_used, metric};
use serde::Deserialize;

use super::number::count;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const HOUR: f64 = 3600.0;

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// GPU time; wasted is that in which nothing ran.
    GpuHours,
    /// GPU time; wasted is that of GPUs that were never used.
    GpuHoursNeverUsed,
    /// Core time; wasted is what was not used.
    CoreHours,
    /// Core time; wasted is that of all cores but one.
    CoreHoursBeyondOne,
    /// Memory that might be used, GiB times hours; wasted is what is above a node's peak.
    MemoryGibHours,
    /// Cores times the time limit; wasted is what was left of the limit.
    LimitCoreHours,
    /// GPUs times the time limit; wasted is what was left of the limit.
    LimitGpuHours,
}

/// Hours, of jobs or of one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hours {
    /// What they had.
    pub held: f64,
    /// What of it was wasted.
    pub wasted: f64,
}

impl Hours {
    /// The part that was not wasted.
    pub fn used_part(self) -> Option<f64> {
        (self.held > 0.0).then(|| 1.0 - self.wasted / self.held)
    }
}

impl Measure {
    /// What its hours rest on.
    pub(super) fn subject(self) -> Subject {
        match self {
            Self::GpuHours | Self::GpuHoursNeverUsed => Subject::Gpus,
            Self::CoreHours | Self::CoreHoursBeyondOne => Subject::Cpus,
            Self::MemoryGibHours => Subject::Peaks,
            Self::LimitCoreHours | Self::LimitGpuHours => Subject::Time,
        }
    }

    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::GpuHours,
        Self::GpuHoursNeverUsed,
        Self::CoreHours,
        Self::CoreHoursBeyondOne,
        Self::MemoryGibHours,
        Self::LimitCoreHours,
        Self::LimitGpuHours,
    ];

    /// The unit of its hours, and of what is used at a time.
    pub fn units(self) -> (&'static str, &'static str) {
        match self {
            Self::GpuHours | Self::GpuHoursNeverUsed | Self::LimitGpuHours => ("GPU-hours", "GPUs"),
            Self::CoreHours | Self::CoreHoursBeyondOne | Self::LimitCoreHours => ("core-hours", "cores"),
            Self::MemoryGibHours => ("GiB-hours of memory", "GiB"),
        }
    }

    /// Its name in a file of policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::GpuHours => "gpu_hours",
            Self::GpuHoursNeverUsed => "gpu_hours_never_used",
            Self::CoreHours => "core_hours",
            Self::CoreHoursBeyondOne => "core_hours_beyond_one",
            Self::MemoryGibHours => "memory_gib_hours",
            Self::LimitCoreHours => "limit_core_hours",
            Self::LimitGpuHours => "limit_gpu_hours",
        }
    }

    /// Whether it may make sense of a job: one that is known to have no GPU has no hours of them.
    pub(super) fn makes_sense(self, report: &Report) -> bool {
        let is_of_gpus = matches!(self, Self::GpuHours | Self::GpuHoursNeverUsed | Self::LimitGpuHours);
        !is_of_gpus || report.numbers.gpus != Some(0.0)
    }

    /// That of a job; `None` where a node does not know it.
    pub fn of(self, report: &Report, thresholds: &Thresholds) -> Option<Hours> {
        let (job, numbers) = (&report.job, &report.numbers);
        let hours = |held: f64, wasted: f64| {
            Some(Hours { held: held / HOUR, wasted: wasted.clamp(0.0, held) / HOUR })
        };
        let left = |things: f64| {
            let limit = job.time_limit?;
            hours(limit * things, (limit - numbers.elapsed_seconds) * things)
        };
        let gpus = numbers.gpus.filter(|gpus| *gpus > 0.0);
        let gpu_held = || gpus.and_then(|_| job.total(&metric::GPU_ALLOCATED_SECONDS));
        match self {
            Self::GpuHours => hours(gpu_held()?, numbers.gpu_idle_seconds?),
            Self::GpuHoursNeverUsed => {
                let unused = gpus_never_used(job, thresholds);
                let unused = unused.iter().filter_map(|gpu| gpu.values.get(&metric::GPU_ALLOCATED_SECONDS));
                hours(gpu_held()?, unused.sum())
            }
            Self::CoreHours => {
                let (mut held, mut wasted) = (0.0, 0.0);
                for node in &job.nodes {
                    let had = node.core_seconds()?;
                    held += had;
                    wasted += (had - node.values.get(&metric::CPU_SECONDS)?).max(0.0);
                }
                hours(held, wasted)
            }
            Self::CoreHoursBeyondOne => {
                let held = job.nodes.iter().map(job_report::Node::core_seconds).sum::<Option<f64>>()?;
                hours(held, held - numbers.elapsed_seconds)
            }
            Self::MemoryGibHours => {
                let (mut held, mut wasted) = (0.0, 0.0);
                for node in &job.nodes {
                    let limit = node.values.get(&metric::MEMORY_LIMIT_BYTES)?;
                    held += limit * node.ran() / GIB;
                    wasted += (limit - node.memory_peak()?).max(0.0) * node.ran() / GIB;
                }
                hours(held, wasted)
            }
            Self::LimitCoreHours => left(numbers.cores?),
            Self::LimitGpuHours => left(gpus?),
        }
    }
}

/// The mean and the median of some numbers.
pub(super) fn mean_and_median(mut numbers: Vec<f64>) -> Option<(f64, f64)> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    let median = if numbers.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(upper, *numbers.get(middle.checked_sub(1)?)?)
    };
    Some((numbers.iter().sum::<f64>() / count(numbers.len()), median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn each_measure_is_of_what_the_job_had() {
        let report = testing::report(testing::job());
        let of = |measure: Measure| {
            let hours = measure.of(&report, &testing::THRESHOLDS).unwrap();
            format!("{:.2} of {:.2}", hours.wasted, hours.held)
        };
        // 18.699 hours; GPUs at 0.646, 0.655, 0 and 0.675.
        assert_eq!(of(Measure::GpuHours), "37.85 of 74.80");
        assert_eq!(of(Measure::GpuHoursNeverUsed), "18.70 of 74.80");
        assert_eq!(of(Measure::CoreHours), "809.04 of 897.55");
        assert_eq!(of(Measure::CoreHoursBeyondOne), "878.85 of 897.55");
        assert_eq!(of(Measure::MemoryGibHours), "4306.35 of 4786.92");
        assert_eq!(of(Measure::LimitCoreHours), "3710.45 of 4608.00");
        assert_eq!(of(Measure::LimitGpuHours), "309.20 of 384.00");
    }

    #[test]
    fn the_page_has_all_measures() {
        #[derive(Deserialize)]
        struct One {
            measure: Measure,
        }
        let page = include_str!("../../../docs/digest.md");
        let rows = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
        let measures: Vec<(&str, Measure)> = rows
            .filter_map(|name| {
                Some((name, toml::from_str::<One>(&format!("measure = \"{name}\"")).ok()?.measure))
            })
            .collect();
        assert_eq!(measures, Measure::ALL.map(|measure| (measure.name(), measure)));
    }

    #[test]
    fn what_a_node_does_not_say_is_not_added_up() {
        let mut job = testing::job();
        job.time_limit = None;
        job.nodes[1].values = job_report::Values::default();
        let report = testing::report(job);
        for measure in [Measure::CoreHours, Measure::MemoryGibHours, Measure::LimitGpuHours] {
            assert_eq!(measure.of(&report, &testing::THRESHOLDS), None, "{measure:?}");
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_between_two() {
        assert_eq!(mean_and_median(vec![4.0, 1.0, 2.0, 5.0]), Some((3.0, 3.0)));
        assert_eq!(mean_and_median(vec![9.0, 1.0, 2.0]), Some((4.0, 2.0)));
        assert_eq!(mean_and_median(Vec::new()), None);
    }
}
