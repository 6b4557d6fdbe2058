//! Which jobs are meant: by who they are, and by their numbers.

use std::collections::BTreeMap;

use job_report::{Report, Thresholds};
use serde::Deserialize;

use super::bounds::Bounds;
use super::number::Number;
use crate::text::is_like;

/// Conditions of jobs; all that are set have to hold. In a list `*` stands for any text, and one of it has to be that of the job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Which {
    users: Vec<String>,
    accounts: Vec<String>,
    partitions: Vec<String>,
    qos: Vec<String>,
    /// Of jobs.
    names: Vec<String>,
    clusters: Vec<String>,
    /// All nodes of the job have to be among them.
    nodelist: Vec<String>,
    /// `COMPLETED`, `OUT_OF_MEMORY`, ...
    states: Vec<String>,
    /// An unknown key is no name of a number, and so an error.
    #[serde(flatten)]
    numbers: BTreeMap<Number, Bounds>,
}

impl Which {
    /// Whether nothing is set.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether all conditions hold. What is not known fulfils none.
    pub fn has(&self, report: &Report, thresholds: &Thresholds) -> bool {
        self.holds(report, thresholds, false)
    }

    /// Whether all conditions hold, or might: what is not known fulfils each.
    pub fn may_have(&self, report: &Report, thresholds: &Thresholds) -> bool {
        self.holds(report, thresholds, true)
    }

    /// The conditions on which it depends whether the job is meant, because they are not known: none if it is, or is not.
    pub(super) fn unknown(&self, report: &Report, thresholds: &Thresholds) -> Vec<&'static str> {
        if !self.may_have(report, thresholds) {
            return Vec::new();
        }
        let who = &report.job.identity;
        let state = report.job.ended.as_ref().map(|ended| ended.state.as_str()).unwrap_or_default();
        let texts = [
            ("users", &self.users, who.user.as_str()),
            ("accounts", &self.accounts, &who.account),
            ("partitions", &self.partitions, &who.partition),
            ("qos", &self.qos, &who.qos),
            ("names", &self.names, &who.name),
            ("clusters", &self.clusters, report.job.cluster.as_deref().unwrap_or_default()),
            ("states", &self.states, state),
        ];
        let texts = texts
            .into_iter()
            .filter(|(_, patterns, text)| {
                text.is_empty()
                    && !patterns.is_empty()
                    && !patterns.iter().any(|pattern| is_like(pattern, ""))
            })
            .map(|(name, ..)| name);
        let numbers = self.numbers.keys().filter(|number| number.of(report, thresholds).is_none());
        texts.chain(numbers.map(|number| number.name())).collect()
    }

    fn holds(&self, report: &Report, thresholds: &Thresholds, unknown: bool) -> bool {
        let (job, who) = (&report.job, &report.job.identity);
        let one = |patterns: &[String], text: &str| {
            let is_one = patterns.is_empty() || patterns.iter().any(|pattern| is_like(pattern, text));
            is_one || (unknown && text.is_empty())
        };
        let within = |number: &Number, bounds: &Bounds| {
            let value = number.of(report, thresholds);
            bounds.hold(value) || (unknown && value.is_none() && number.makes_sense(report))
        };
        let state = job.ended.as_ref().map(|ended| ended.state.as_str()).unwrap_or_default();
        one(&self.users, &who.user)
            && one(&self.accounts, &who.account)
            && one(&self.partitions, &who.partition)
            && one(&self.qos, &who.qos)
            && one(&self.names, &who.name)
            && one(&self.clusters, job.cluster.as_deref().unwrap_or_default())
            && one(&self.states, state)
            && job.nodes.iter().all(|node| one(&self.nodelist, &node.name))
            && self.numbers.iter().all(|(number, bounds)| within(number, bounds))
    }

    /// Seconds that a job of it ran at least.
    pub(super) fn least_seconds(&self) -> f64 {
        self.numbers.get(&Number::RunMinutes).and_then(Bounds::least).unwrap_or(0.0) * 60.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn has(which: &str) -> bool {
        let which: Which = toml::from_str(which).unwrap();
        which.has(&testing::report(testing::job()), &testing::THRESHOLDS)
    }

    #[test]
    fn all_conditions_have_to_hold() {
        assert!(
            has("") && has("users = [\"x\", \"atur*\"]\naccounts = [\"math\"]\nstates = [\"COMPLETED\"]")
        );
        assert!(has("nodelist = [\"node1\", \"node2\"]") && !has("nodelist = [\"node1\"]"));
        assert!(has(
            "names = [\"ordinals*\"]\nqos = [\"*gpu\"]\nclusters = [\"della\"]\npartitions = [\"gpu\"]"
        ));
        assert!(!has("partitions = [\"cpu\"]") && !has("users = [\"aturing\"]\naccounts = [\"physics\"]"));
        assert!(has("run_minutes = \">= 60\"\ngpu_use = \"> 0, < 50 %\"") && !has("gpu_use = \">= 50 %\""));
    }

    #[test]
    fn what_is_not_known_may_be_a_condition() {
        let which: Which = toml::from_str("names = [\"notebook\"]\nlimit_minutes = \"<= 480\"").unwrap();
        let judged = |name: &str, limit: Option<f64>| {
            let mut job = testing::job();
            (job.identity.name, job.time_limit) = (name.to_owned(), limit);
            let report = testing::report(job);
            (which.has(&report, &testing::THRESHOLDS), which.may_have(&report, &testing::THRESHOLDS))
        };
        assert_eq!(judged("notebook", Some(3600.0)), (true, true));
        assert_eq!(judged("notebook", None), (false, true));
        assert_eq!(judged("", Some(3600.0)), (false, true));
        assert_eq!(judged("train", None), (false, false));
        assert_eq!(judged("notebook", Some(90_000.0)), (false, false));
    }

    #[test]
    fn conditions_that_decide_are_named_where_they_are_not_known() {
        let unknown = |which: &str, change: &dyn Fn(&mut job_report::Job)| {
            let mut job = testing::job();
            change(&mut job);
            let which: Which = toml::from_str(which).unwrap();
            which.unknown(&testing::report(job), &testing::THRESHOLDS)
        };
        let no_gpus_known = |job: &mut job_report::Job| {
            job.nodes.iter_mut().for_each(|node| (node.gpus, node.gpus_held) = (Vec::new(), None));
        };
        let cores_low = "run_minutes = \">= 30\"\ngpus = \"<= 0\"";
        assert_eq!(unknown(cores_low, &no_gpus_known), ["gpus"]);
        assert!(unknown(cores_low, &|_| {}).is_empty(), "it has GPUs");
        let of_gpus = "gpu_use = \">= 0\"";
        assert_eq!(unknown(of_gpus, &no_gpus_known), ["gpu_use"]);
        let without_gpus = |job: &mut job_report::Job| {
            job.nodes.iter_mut().for_each(|node| (node.gpus, node.gpus_held) = (Vec::new(), Some(0.0)));
        };
        assert!(unknown(of_gpus, &without_gpus).is_empty(), "a job without GPUs is not meant");
        let of_limits = "states = [\"COMPLETED\"]\nlimit_minutes = \"> 0\"";
        let neither = |job: &mut job_report::Job| (job.ended, job.time_limit) = (None, None);
        assert_eq!(unknown(of_limits, &neither), ["states", "limit_minutes"]);
        let other = "users = [\"somebody\"]\ngpus = \"<= 0\"";
        assert!(unknown(other, &no_gpus_known).is_empty(), "it is another user's");
    }

    #[test]
    fn what_is_no_condition_is_an_error() {
        let error = |which: &str| toml::from_str::<Which>(which).unwrap_err().to_string();
        assert!(
            error("run_hours = \"> 1\"")
                .contains("unknown variant `run_hours`, expected one of `run_minutes`")
        );
        assert!(error("gpu_use = \"50\"").contains("are no bounds"), "{}", error("gpu_use = \"50\""));
    }

    #[test]
    fn the_least_time_is_that_of_the_bounds() {
        let least = |which: &str| toml::from_str::<Which>(which).unwrap().least_seconds();
        assert_eq!(
            [least("run_minutes = \">= 30\""), least("run_minutes = \"< 30\""), least("")],
            [1800.0, 0.0, 0.0]
        );
    }
}
