//! What the policies find in the jobs of each user.

use std::collections::BTreeMap;

use job_report::{Identity, Report, State, Thresholds};

use super::measure::{Hours, mean_and_median};
use super::number::{Number, count};
use super::policies::{Policies, Policy, Together};
use super::which::Which;
use crate::job_id::shown;

/// A user of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// The label of the cluster, if the server has one.
    pub cluster: Option<String>,
    /// The name.
    pub name: String,
}

/// A job that a policy looks at.
#[derive(Debug, Clone)]
pub struct Wasteful<'a> {
    /// Its report.
    pub report: &'a Report,
    /// By the policy's measure.
    pub hours: Hours,
}

/// What a policy found of a user.
#[derive(Debug, Clone)]
pub struct Finding<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Whose jobs these are.
    pub user: User,
    /// The jobs, by what they wasted.
    pub jobs: Vec<Wasteful<'a>>,
    /// Of all of them.
    pub hours: Hours,
    /// What they had, of what those of all users had.
    pub share: f64,
    /// Whether the user gets a mail by the policy.
    pub for_owner: bool,
    /// Whether the staff's table has it.
    pub for_staff: bool,
}

/// How many jobs were not judged, by the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotJudged {
    /// By no policy.
    pub at_all: BTreeMap<&'static str, usize>,
    /// By a policy of this name, and what it needs to know of them.
    pub by_policy: BTreeMap<(String, String), usize>,
}

/// Why no policy judges a job; `None` if all is known that each of them needs.
fn not_judged(report: &Report) -> Option<&'static str> {
    [(report.is_incomplete(), "not wholly seen"), (report.job.identity.user.is_empty(), "of unknown users")]
        .into_iter()
        .find_map(|(is_so, why)| is_so.then_some(why))
}

/// Whether a policy judges the job; the error is what it needs to know for that.
fn judged(policy: &Policy, report: &Report, thresholds: &Thresholds) -> Result<Option<Hours>, String> {
    let unknown = policy.jobs.unknown(report, thresholds);
    if !unknown.is_empty() {
        return Err(unknown.join(", "));
    }
    if !policy.jobs.has(report, thresholds) {
        return Ok(None);
    }
    // What rests on a number that may not be exact is not said.
    if let Some(reason) = report.not_judged(policy.measure.subject()) {
        return Err(reason.key().replace('_', " "));
    }
    match policy.measure.of(report, thresholds) {
        Some(hours) => Ok(Some(hours)),
        None if policy.measure.makes_sense(report) => Err(policy.measure.name().to_owned()),
        None => Ok(None),
    }
}

/// What the policies find: in their order, and of each first who wasted most.
pub fn find<'a>(
    policies: &'a Policies,
    reports: &'a [Report],
    thresholds: &Thresholds,
) -> (Vec<Finding<'a>>, NotJudged) {
    let mut left_out = NotJudged::default();
    let any = |which: &[Which], report: &Report| which.iter().any(|which| which.has(report, thresholds));
    let reports: Vec<&Report> = reports
        .iter()
        .filter(|report| !any(&policies.except, report))
        .filter(|report| {
            let why = not_judged(report);
            why.into_iter().for_each(|why| *left_out.at_all.entry(why).or_default() += 1);
            why.is_none()
        })
        .collect();
    let mut findings = Vec::new();
    for policy in &policies.policy {
        let mut users: BTreeMap<User, Vec<Wasteful<'a>>> = BTreeMap::new();
        for report in reports.iter().copied() {
            let is_meant = policy.running || report.job.state() == State::Ended;
            if !is_meant || any(&policy.except, report) {
                continue;
            }
            match judged(policy, report, thresholds) {
                Ok(None) => {}
                Ok(Some(hours)) => {
                    let Identity { user, .. } = &report.job.identity;
                    let user = User { cluster: report.job.cluster.clone(), name: user.clone() };
                    users.entry(user).or_default().push(Wasteful { report, hours });
                }
                Err(unknown) => {
                    *left_out.by_policy.entry((policy.name.clone(), unknown)).or_default() += 1;
                }
            }
        }
        findings.extend(of_policy(policy, users));
    }
    (findings, left_out)
}

fn of_policy<'a>(policy: &'a Policy, users: BTreeMap<User, Vec<Wasteful<'a>>>) -> Vec<Finding<'a>> {
    let mut found: Vec<Finding<'a>> = users
        .into_iter()
        .map(|(user, mut jobs)| {
            jobs.sort_by(|a, b| {
                b.hours.wasted.total_cmp(&a.hours.wasted).then(a.report.job.id.cmp(&b.report.job.id))
            });
            let hours = jobs.iter().fold(Hours::default(), |sum, job| Hours {
                held: sum.held + job.hours.held,
                wasted: sum.wasted + job.hours.wasted,
            });
            Finding { policy, user, jobs, hours, share: 0.0, for_owner: false, for_staff: false }
        })
        .collect();
    let all: f64 = found.iter().map(|finding| finding.hours.held).sum();
    found.sort_by(|a, b| b.hours.wasted.total_cmp(&a.hours.wasted));
    let held: Vec<f64> = found.iter().map(|finding| finding.hours.held).collect();
    for (at, finding) in found.iter_mut().enumerate() {
        finding.share = if all > 0.0 { finding.hours.held / all } else { 0.0 };
        let before = held.iter().filter(|held| **held > finding.hours.held).count();
        let ranks = (count(before + 1), count(at + 1));
        finding.for_owner = is_within(&policy.owner, finding, ranks);
        finding.for_staff = is_within(policy.staff.as_ref().unwrap_or(&policy.owner), finding, ranks);
    }
    found.retain(|finding| finding.for_owner || finding.for_staff);
    found
}

fn is_within(together: &Together, finding: &Finding<'_>, (rank_held, rank_wasted): (f64, f64)) -> bool {
    let uses = finding.jobs.iter().filter_map(|job| job.hours.used_part()).collect();
    let (mean, median) = mean_and_median(uses).unzip();
    let Together {
        jobs,
        held,
        wasted,
        use_of_all,
        mean_use,
        median_use,
        share,
        rank_held: by_held,
        rank_wasted: by_wasted,
    } = together;
    [
        (jobs, Some(count(finding.jobs.len()))),
        (held, Some(finding.hours.held)),
        (wasted, Some(finding.hours.wasted)),
        (use_of_all, finding.hours.used_part()),
        (mean_use, mean),
        (median_use, median),
        (share, Some(finding.share)),
        (by_held, Some(rank_held)),
        (by_wasted, Some(rank_wasted)),
    ]
    .into_iter()
    .all(|(bounds, value)| bounds.as_ref().is_none_or(|bounds| bounds.hold(value)))
}

impl Wasteful<'_> {
    /// As its user knows it.
    pub fn name(&self) -> String {
        shown(self.report.job.id, &self.report.job.identity)
    }

    /// Options of sbatch that would have been enough.
    pub fn sbatch(&self, policy: &Policy, thresholds: &Thresholds) -> Option<String> {
        match &policy.sbatch {
            Some(template) => filled(template, self.report, thresholds),
            None => {
                let advice = policy.advice.as_deref()?;
                let advice = self.report.advice.iter().find(|each| each.piece.name() == advice)?;
                advice.sbatch.clone()
            }
        }
    }
}

/// `None` where a number is not known.
fn filled(template: &str, report: &Report, thresholds: &Thresholds) -> Option<String> {
    let mut parts = template.split('{');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}')?;
        let number = Number::ALL.iter().find(|number| number.name() == name)?;
        text.push_str(&format!("{:.0}", number.of(report, thresholds)?.ceil()));
        text.push_str(rest);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use job_report::Reason;

    use super::*;
    use crate::testing::{self, THRESHOLDS};

    fn policies(text: &str) -> Policies {
        Policies::parse(text, &THRESHOLDS).unwrap()
    }

    /// Jobs of 18.7 hours with four GPUs, of which they wasted 37.85 hours and one was never used.
    fn jobs(users: &[&str]) -> Vec<Report> {
        let of = |(id, user): (u64, &&str)| {
            let mut job = testing::job();
            job.id = id;
            job.identity.user = (*user).to_owned();
            testing::report(job)
        };
        (1..).zip(users).map(of).collect()
    }

    fn found(text: &str, reports: &[Report]) -> Vec<String> {
        let policies = policies(text);
        let (findings, _) = find(&policies, reports, &THRESHOLDS);
        findings
            .iter()
            .map(|finding| {
                let who = if finding.for_owner { "owner" } else { "staff" };
                format!("{} {} {} {:.1}", finding.policy.name, finding.user.name, who, finding.hours.wasted)
            })
            .collect()
    }

    const GPUS: &str =
        "[[policy]]\nname = \"p\"\nadvice = \"gpu_never_used\"\nmeasure = \"gpu_hours_never_used\"\n";

    #[test]
    fn jobs_of_a_user_are_added_up() {
        let reports = jobs(&["a", "b", "a"]);
        assert_eq!(found(GPUS, &reports), ["p a owner 37.4", "p b owner 18.7"]);
        assert_eq!(found(&format!("{GPUS}owner = {{ wasted = \">= 20\" }}"), &reports), ["p a owner 37.4"]);
        assert_eq!(found(&format!("{GPUS}owner = {{ jobs = \"< 2\" }}"), &reports), ["p b owner 18.7"]);
        let staff = format!("{GPUS}owner = {{ wasted = \">= 20\" }}\nstaff = {{ wasted = \">= 10\" }}");
        assert_eq!(found(&staff, &reports), ["p a owner 37.4", "p b staff 18.7"]);
    }

    #[test]
    fn every_bound_of_a_user_is_held() {
        let reports = jobs(&["a", "b", "a"]);
        for (bound, expected) in [
            ("held = \"> 100\"", &["p a owner 37.4"][..]),
            ("share = \"> 50 %\"", &["p a owner 37.4"]),
            ("rank_held = \"<= 1\"", &["p a owner 37.4"]),
            ("rank_wasted = \"> 1\"", &["p b owner 18.7"]),
            ("use = \"< 75 %\"", &[]),
            ("mean_use = \"> 74 %\", median_use = \"< 76 %\"", &["p a owner 37.4", "p b owner 18.7"]),
        ] {
            assert_eq!(found(&format!("{GPUS}owner = {{ {bound} }}"), &reports), expected, "{bound}");
        }
    }

    #[test]
    fn what_rests_on_an_inexact_number_is_not_judged() {
        let mut reports = jobs(&["a", "b", "c"]);
        reports[0].quality.reasons.push(Reason::HeldLessThanElapsed { what: "GPUs", held: 2.0, ran: 6.0 });
        reports[1].quality.reasons.push(Reason::CpusChanged);
        let policies = policies(GPUS);
        let (findings, left_out) = find(&policies, &reports, &THRESHOLDS);
        assert_eq!(findings.iter().map(|finding| finding.user.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        let expected = (("p".to_owned(), "held less than elapsed".to_owned()), 1);
        assert_eq!(left_out.by_policy.into_iter().collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn jobs_that_were_not_wholly_seen_are_not_judged() {
        let mut reports = jobs(&["a", "b", "", "d"]);
        reports[0].quality.reasons.push(Reason::EndNotSeen { nodes: 1, of: 2 });
        let policies = policies(GPUS);
        let (findings, left_out) = find(&policies, &reports, &THRESHOLDS);
        let at_all = [("not wholly seen", 1), ("of unknown users", 1)].into();
        assert_eq!(left_out, NotJudged { at_all, by_policy: BTreeMap::new() });
        assert_eq!(findings.iter().map(|finding| finding.user.name.as_str()).collect::<Vec<_>>(), ["b", "d"]);
    }

    /// Of a job of which nothing is known but its time and its user, each shipped policy says that it does not judge it.
    #[test]
    fn no_shipped_policy_judges_nobody_without_a_word() {
        let shipped = policies(include_str!("../../../packaging/digest.toml.example"));
        let mut job = testing::job();
        job.id = 1;
        (job.ended, job.time_limit, job.identity.partition) = (None, None, String::new());
        for node in &mut job.nodes {
            (node.gpus, node.gpus_held, node.memory_held_bytes) = (Vec::new(), None, None);
            (node.values, node.hardware) = (job_report::Values::default(), job_report::Hardware::default());
        }
        // A policy of jobs on one node is not of this one.
        let mut small = job.clone();
        small.nodes.truncate(1);
        small.nodes_allocated = Some(1);
        let reports = [testing::report(job), testing::report(small)];
        let (findings, left_out) = find(&shipped, &reports, &THRESHOLDS);
        assert!(findings.is_empty() && left_out.at_all.is_empty(), "{left_out:?}");
        for policy in &shipped.policy {
            let says = left_out.by_policy.keys().any(|(name, _)| *name == policy.name);
            assert!(says, "{}", policy.name);
        }
    }

    #[test]
    fn running_jobs_and_exceptions_are_left_out() {
        let mut reports = jobs(&["a", "b", "c"]);
        for node in &mut reports[0].job.nodes {
            (node.running, node.end) = (true, None);
        }
        assert_eq!(found(&format!("{GPUS}except = [{{ users = [\"b\"] }}]"), &reports), ["p c owner 18.7"]);
        assert_eq!(found(&format!("{GPUS}running = true"), &reports).len(), 3);
        assert_eq!(found(&format!("[[except]]\nusers = [\"c\"]\n{GPUS}"), &reports), ["p b owner 18.7"]);
        assert_eq!(found(&format!("{GPUS}jobs = {{ accounts = [\"none\"] }}"), &reports).len(), 0);
    }

    #[test]
    fn options_are_those_of_the_advice_or_the_sites() {
        let reports = jobs(&["a"]);
        let sbatch = |text: &str| {
            let policies = policies(text);
            let (findings, _) = find(&policies, &reports, &THRESHOLDS);
            findings[0].jobs[0].sbatch(findings[0].policy, &THRESHOLDS)
        };
        assert_eq!(sbatch(GPUS), None, "of two nodes it is not known which");
        let memory =
            "[[policy]]\nname = \"m\"\nadvice = \"memory_over_asked\"\nmeasure = \"memory_gib_hours\"\n";
        assert_eq!(sbatch(memory).as_deref(), Some("--mem=16G"));
        let own = format!(
            "{memory}sbatch = \"--nodes={{nodes_needed}} --mem-per-gpu={{memory_peak_per_gpu_gib}}G\""
        );
        assert_eq!(sbatch(&own).as_deref(), Some("--nodes=1 --mem-per-gpu=7G"));
    }
}
