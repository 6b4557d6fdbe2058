//! Steps and tasks of a job, as far as the exporter publishes them (`--jobs.steps`, `--jobs.tasks`).

use std::cmp::Ordering;

use serde::Serialize;

use crate::metric::{self, Metric};
use crate::values::Values;

/// A step of a job on a node, or a task of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Part {
    /// SLURM's name of the step: `batch`, `extern`, `interactive`, `0`.
    pub step: String,
    /// Of a task its number in the step, or SLURM's word for what is no task; `None` of a step.
    pub task: Option<String>,
    /// Totals. A task's are in those of its step, too.
    pub values: Values,
}

/// What is measured of steps: the metrics of a job on a node of which the exporter has the same of a step (tests/metric_names.txt).
pub static OF_PARTS: [&Metric; 43] = [
    &metric::CPU_SECONDS,
    &metric::CPU_USER_SECONDS,
    &metric::CPU_SYSTEM_SECONDS,
    &metric::CPU_THROTTLED_SECONDS,
    &metric::CPUS,
    &metric::MEMORY_PEAK_BYTES,
    &metric::MEMORY_LIMIT_BYTES,
    &metric::MEMORY_USED_BYTES,
    &metric::MEMORY_ANON_BYTES,
    &metric::MEMORY_FILE_BYTES,
    &metric::MEMORY_SHMEM_BYTES,
    &metric::SWAP_USED_BYTES,
    &metric::OOM_KILLS,
    &metric::PAGE_FAULTS_MAJOR,
    &metric::PROCESSES,
    &metric::THREADS,
    &metric::IO_READ_BYTES,
    &metric::IO_WRITTEN_BYTES,
    &metric::IO_READS,
    &metric::IO_WRITES,
    &metric::NETWORK_RECEIVED_BYTES,
    &metric::NETWORK_TRANSMITTED_BYTES,
    &metric::NETWORK_RECEIVED_PACKETS,
    &metric::NETWORK_TRANSMITTED_PACKETS,
    &metric::WAITED_CPU_SECONDS,
    &metric::WAITED_MEMORY_SECONDS,
    &metric::WAITED_IO_SECONDS,
    &metric::INSTRUCTIONS,
    &metric::CYCLES,
    &metric::FLOPS,
    &metric::FLOPS_DOUBLE,
    &metric::FLOPS_SINGLE,
    &metric::FLOPS_SCALAR,
    &metric::FLOPS_ANY_WIDTH,
    &metric::SLOTS,
    &metric::SLOTS_RETIRING,
    &metric::SLOTS_BAD_SPECULATION,
    &metric::SLOTS_FRONTEND,
    &metric::SLOTS_BACKEND,
    &metric::SLOTS_MEMORY,
    &metric::SLOTS_CORE,
    &metric::MEMORY_LOAD_BYTES,
    &metric::COUNTED_CPU_SECONDS,
];

const OF_JOBS: &str = "jobledger_job_";
const OF_STEPS: &str = "jobledger_step_";
const OF_TASKS: &str = "jobledger_task_";

/// The name that a series of a step or a task has of a job; `None` if it is of neither.
pub fn series_of_job(series: &str) -> Option<String> {
    let rest = series.strip_prefix(OF_STEPS).or_else(|| series.strip_prefix(OF_TASKS))?;
    Some(format!("{OF_JOBS}{rest}"))
}

/// The exporter's series of a metric of steps and of tasks; `None` if there are none.
pub fn series_of_parts(metric: &Metric) -> Option<[String; 2]> {
    let rest = metric.series.strip_prefix(OF_JOBS).filter(|_| OF_PARTS.contains(&metric))?;
    Some([format!("{OF_STEPS}{rest}"), format!("{OF_TASKS}{rest}")])
}

impl Part {
    /// In the order of reports: the batch script and SLURM's own steps first, then by number; each step before its tasks.
    pub fn order(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }

    fn key(&self) -> (Place, Option<Place>) {
        (place(&self.step), self.task.as_deref().map(place))
    }
}

type Place = (Option<u64>, String);

/// Words before numbers.
fn place(name: &str) -> Place {
    (name.parse().ok(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exporter_has_them_of_steps() {
        let published = include_str!("../../../tests/metric_names.txt");
        for metric in OF_PARTS {
            let [step, _] = series_of_parts(metric).unwrap();
            assert_eq!(series_of_job(&step).as_deref(), Some(metric.series));
            assert!(published.contains(&format!("\n{step} ")), "{step}");
        }
        assert_eq!(series_of_parts(&metric::ENERGY_JOULES), None);
        assert_eq!(series_of_job("jobledger_job_cpus"), None);
    }

    #[test]
    fn words_come_before_numbers() {
        let part = |step: &str, task: Option<&str>| Part {
            step: step.into(),
            task: task.map(Into::into),
            ..Part::default()
        };
        let mut parts = [
            part("10", None),
            part("9", Some("10")),
            part("9", Some("2")),
            part("9", None),
            part("batch", None),
        ];
        parts.sort_by(Part::order);
        let names: Vec<_> = parts.iter().map(|part| (part.step.as_str(), part.task.as_deref())).collect();
        assert_eq!(names, [("batch", None), ("9", None), ("9", Some("2")), ("9", Some("10")), ("10", None)]);
    }
}
