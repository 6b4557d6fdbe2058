//! Whether the ends of many jobs were scraped: one query for hundreds of them.

use std::collections::{BTreeMap, BTreeSet};

use prometheus_api::Sample;

use super::Prometheus;
use super::measure::APART;
use super::selector::any_of;
use crate::Failure;
use crate::series::{END, INFO, START};
use crate::source::endings::NODES;
use crate::source::measured::exporter;

/// Jobs of one query. Some servers have a limit of 16 kB for it.
const AT_ONCE: usize = 500;

/// What nodes show of jobs now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ends {
    jobs: BTreeMap<u64, OneJob>,
    /// The numbers of the elements of arrays.
    elements: BTreeMap<u64, BTreeSet<u64>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct OneJob {
    /// Start and end on each node.
    nodes: BTreeMap<(String, String), (Option<f64>, Option<f64>)>,
    /// How many nodes SLURM gave it.
    asked: Option<f64>,
}

/// What is seen of the run of a job that ended at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Not its end on all of its nodes.
    Less,
    /// Its end.
    Ended,
    /// The start of a later run.
    Later,
}

impl Prometheus {
    /// What is seen of jobs, and of the elements of arrays.
    pub async fn ends(&self, jobs: &BTreeSet<u64>, arrays: &BTreeSet<u64>) -> Result<Ends, Failure> {
        let mut ends = Ends::default();
        let arrays: Vec<String> = arrays.iter().map(u64::to_string).collect();
        for arrays in arrays.chunks(AT_ONCE) {
            let of = self.scope.selector(&[&any_of("array_job_id", arrays.iter().map(String::as_str))]);
            let elements = format!("group by (array_job_id, jobid) ({INFO}{of})");
            ends.add_elements(&self.client.query(&elements, self.until).await?);
        }
        let numbers: BTreeSet<u64> = ends.elements.values().flatten().chain(jobs).copied().collect();
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let names = any_of("__name__", [START, END, NODES]);
        for numbers in numbers.chunks(AT_ONCE) {
            let of_jobs = any_of("jobid", numbers.iter().map(String::as_str));
            let times = self.scope.selector(&[&names, &of_jobs]);
            ends.add_times(&self.client.query(&times, self.until).await?);
        }
        Ok(ends)
    }
}

impl Ends {
    fn add_elements(&mut self, answer: &[Sample]) {
        for sample in answer {
            let get = |label| sample.labels.get(label).and_then(|number| number.parse().ok());
            if let (Some(array), Some(job)) = (get("array_job_id"), get("jobid")) {
                self.elements.entry(array).or_default().insert(job);
            }
        }
    }

    fn add_times(&mut self, answer: &[Sample]) {
        for sample in answer {
            let Some(id) = sample.labels.get("jobid").and_then(|id| id.parse().ok()) else { continue };
            let job = self.jobs.entry(id).or_default();
            let most = |known: Option<f64>| Some(known.map_or(sample.value, |known| known.max(sample.value)));
            match sample.labels.name() {
                Some(NODES) => job.asked = most(job.asked),
                Some(START) => {
                    let (start, _) = job.nodes.entry(exporter(&sample.labels)).or_default();
                    *start = most(*start);
                }
                Some(END) => {
                    let (_, end) = job.nodes.entry(exporter(&sample.labels)).or_default();
                    *end = most(*end);
                }
                _ => {}
            }
        }
    }

    /// Of the run of a job that ended at a time.
    pub fn of_job(&self, job: u64, ended: f64) -> Seen {
        self.jobs.get(&job).map_or(Seen::Less, |job| job.seen(ended))
    }

    /// Of an array: whether all of its elements have ended that nodes show. They show each for some minutes after its end.
    pub fn of_array(&self, array: u64, ended: f64) -> Seen {
        let all = |elements: &BTreeSet<u64>| {
            let mut seen = elements.iter().filter_map(|element| self.jobs.get(element)).peekable();
            seen.peek().is_some() && seen.all(|job| job.seen(ended) != Seen::Less)
        };
        if self.elements.get(&array).is_some_and(all) { Seen::Ended } else { Seen::Less }
    }
}

impl OneJob {
    fn seen(&self, ended: f64) -> Seen {
        let mut starts = self.nodes.values().filter_map(|(start, _)| *start);
        if starts.any(|start| start > ended + APART) {
            return Seen::Later;
        }
        // An end before the start is that of an earlier run.
        let has_ended = |(start, end): &(Option<f64>, Option<f64>)| {
            end.is_some_and(|end| start.is_none_or(|start| end >= start))
        };
        let nodes = self.nodes.len();
        let asked = self.asked.unwrap_or(1.0).max(1.0);
        let all_seen = u32::try_from(nodes).is_ok_and(|nodes| f64::from(nodes) >= asked);
        if all_seen && self.nodes.values().all(has_ended) { Seen::Ended } else { Seen::Less }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::measured::sample;

    fn of(samples: &[(&str, &str, f64)]) -> Ends {
        let of = |(name, node, value): &(&str, &str, f64)| {
            sample(&[("__name__", name), ("jobid", "7"), ("instance", node)], *value)
        };
        let mut ends = Ends::default();
        ends.add_times(&samples.iter().map(of).collect::<Vec<_>>());
        ends
    }

    #[test]
    fn a_job_has_ended_once_all_of_its_nodes_say_so() {
        let mut samples = vec![(START, "a", 100.0), (NODES, "a", 2.0), (END, "a", 200.0)];
        assert_eq!(of(&samples).of_job(7, 201.0), Seen::Less, "one of two nodes");
        samples.push((START, "b", 101.0));
        assert_eq!(of(&samples).of_job(7, 201.0), Seen::Less);
        samples.push((END, "b", 200.5));
        assert_eq!(of(&samples).of_job(7, 201.0), Seen::Ended);
        assert_eq!(of(&samples).of_job(8, 201.0), Seen::Less);
        assert_eq!(of(&[(START, "a", 100.0), (END, "a", 200.0)]).of_job(7, 201.0), Seen::Ended);
    }

    #[test]
    fn a_run_that_began_later_is_not_the_one_that_ended() {
        let samples = [(START, "a", 320.0), (END, "a", 200.0)];
        assert_eq!(of(&samples).of_job(7, 201.0), Seen::Later);
        assert_eq!(of(&samples).of_job(7, 400.0), Seen::Less, "it is the one, and its end is not there yet");
        let elsewhere = [(START, "a", 100.0), (END, "a", 200.0), (START, "b", 320.0), (END, "b", 330.0)];
        assert_eq!(of(&elsewhere).of_job(7, 201.0), Seen::Later);
        // The node's clock goes ahead of slurmctld's.
        assert_eq!(of(&[(START, "a", 210.0), (END, "a", 212.0)]).of_job(7, 201.0), Seen::Ended);
    }

    #[test]
    fn an_array_has_ended_once_nothing_of_it_runs() {
        let mut ends = of(&[(START, "a", 100.0)]);
        let element = |job| sample(&[("array_job_id", "5"), ("jobid", job)], 1.0);
        assert_eq!(ends.of_array(5, 200.0), Seen::Less, "nothing is known of it");
        ends.add_elements(&[element("6"), element("7")]);
        assert_eq!(ends.of_array(5, 200.0), Seen::Less);
        ends.add_times(&[sample(&[("__name__", END), ("jobid", "7"), ("instance", "a")], 199.0)]);
        assert_eq!(ends.of_array(5, 200.0), Seen::Ended);
        ends.jobs.clear();
        assert_eq!(ends.of_array(5, 200.0), Seen::Less, "it is not there any more");
    }
}
