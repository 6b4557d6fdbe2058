//! Tables for staff and for coordinators of accounts: who wasted what, and who gets a mail about it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use job_report::show::{digits, percent};

use super::findings::{Finding, NotJudged};
use super::history::{Entry, History};
use super::letters::Period;
use super::measure::Hours;
use super::policies::Mails;
use crate::formats::table::{self, Head};

const DAY: f64 = 86_400.0;

/// Whether a user gets a mail about a finding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Due {
    /// In this run, after so many mails before.
    Now(usize),
    /// Not again: so many mails were sent, the last so many days ago.
    Lately(usize, f64),
    /// None by the policy.
    No,
}

impl Due {
    /// By what was sent before.
    pub fn of(finding: &Finding<'_>, history: &History, mails: &Mails, now: Timestamp) -> Self {
        let policy = finding.policy;
        if !finding.for_owner || !policy.mail {
            return Self::No;
        }
        let sent = history.mails(&finding.user, &policy.name);
        let (before, last) = (sent.clone().count(), sent.map(|entry: &Entry| entry.time).max());
        let days = last.map(|last| now.duration_since(last).as_secs_f64() / DAY);
        // A run that starts a little earlier than the one before is none too early.
        match days.filter(|days| *days < f64::from(policy.repeat_days(mails)) - 0.25) {
            Some(days) => Self::Lately(before, days),
            None => Self::Now(before),
        }
    }

    fn show(self) -> String {
        match self {
            Self::Now(0) => "now".to_owned(),
            Self::Now(before) => format!("now, {before} before"),
            Self::Lately(before, days) => format!("{before}, last {} d ago", digits(days)),
            Self::No => "-".to_owned(),
        }
    }
}

/// What was looked at.
#[derive(Debug, Clone)]
pub struct Looked {
    /// Jobs.
    pub jobs: usize,
    /// Those that were not judged.
    pub left_out: NotJudged,
}

/// The tables; of one account only its jobs. `None` if there is nothing in them. The staff's table has, too, what policies could not judge.
pub fn page(
    findings: &[(Finding<'_>, Due)],
    account: Option<&str>,
    period: &Period,
    looked: &Looked,
) -> Option<String> {
    let mut text = head(account, period, looked);
    let mut is_empty = true;
    let mut policy = None;
    let mut rows = Vec::new();
    let of_staff = findings.iter().filter(|(finding, _)| finding.for_staff || finding.for_owner);
    for (finding, due) in of_staff {
        let hours: Vec<Hours> = finding
            .jobs
            .iter()
            .filter(|job| account.is_none_or(|account| job.report.job.identity.account == account))
            .map(|job| job.hours)
            .collect();
        if hours.is_empty() {
            continue;
        }
        is_empty = false;
        if policy != Some(finding.policy) {
            flush(&mut text, &mut rows);
            policy = Some(finding.policy);
            let (unit, _) = finding.policy.measure.units();
            let says = finding.policy.says.as_deref().unwrap_or_default();
            text.push_str(&format!("\n{}: {says} ({unit})\n\n", finding.policy.name));
        }
        let all = hours.iter().fold(Hours::default(), |sum, job| Hours {
            held: sum.held + job.held,
            wasted: sum.wasted + job.wasted,
        });
        rows.push(vec![
            Some(finding.user.name.clone()),
            finding.user.cluster.clone(),
            Some(hours.len().to_string()),
            Some(digits(all.held)),
            Some(digits(all.wasted)),
            all.used_part().map(percent),
            account.is_none().then(|| percent(finding.share)),
            Some(due.show()),
        ]);
    }
    flush(&mut text, &mut rows);
    let by_policy = &looked.left_out.by_policy;
    if account.is_none() && !by_policy.is_empty() {
        if is_empty {
            text.push_str("\nNo policy found anything.\n");
        }
        is_empty = false;
        text.push_str("\nNot judged, because what the policy asks for is not known\n\n");
        text.push_str(&unknown(by_policy));
    }
    (!is_empty).then_some(text)
}

fn unknown(by_policy: &BTreeMap<(String, String), usize>) -> String {
    let head = |name: &'static str, number: bool| Head { name, number };
    let heads = [head("policy", false), head("jobs", true), head("not known", false)];
    let row = |((policy, what), jobs): (&(String, String), &usize)| {
        vec![Some(policy.clone()), Some(jobs.to_string()), Some(what.clone())]
    };
    table::text(&heads, &by_policy.iter().map(row).collect::<Vec<_>>())
}

fn head(account: Option<&str>, period: &Period, looked: &Looked) -> String {
    let whose = account.map(|account| format!("Jobs of account {account}")).unwrap_or("Jobs".to_owned());
    let Looked { jobs, left_out } = looked;
    let mut text = format!("{whose} from {} to {}.\n", period.show(period.from), period.show(period.until));
    text.push_str(&format!("{jobs} jobs were looked at."));
    let left_out: Vec<String> =
        left_out.at_all.iter().map(|(why, number)| format!("{number} {why}")).collect();
    if !left_out.is_empty() {
        text.push_str(&format!(" Not judged: {}.", left_out.join(", ")));
    }
    text.push('\n');
    text
}

fn flush(text: &mut String, rows: &mut Vec<table::Row>) {
    if rows.is_empty() {
        return;
    }
    let clusters = rows.iter().any(|row| row.get(1).is_some_and(Option::is_some));
    let head = |name: &'static str, number: bool| Head { name, number };
    let mut heads = vec![
        head("user", false),
        head("cluster", false),
        head("jobs", true),
        head("hours", true),
        head("wasted", true),
        head("used", true),
        head("share", true),
        head("mail", false),
    ];
    if !clusters {
        heads.remove(1);
        for row in rows.iter_mut() {
            row.remove(1);
        }
    }
    text.push_str(&table::text(&heads, rows));
    rows.clear();
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use job_report::Reason;
    use jobledger_testkit::scratch::Scratch;

    use super::*;
    use crate::digest::findings::find;
    use crate::digest::history::Action;
    use crate::digest::policies::Policies;
    use crate::testing::{self, THRESHOLDS};

    const DAYS: i64 = 86_400;

    #[test]
    fn staff_see_who_gets_a_mail_and_how_many_came_before() {
        let text = "[[policy]]\nname = \"gpus\"\nadvice = \"gpu_never_used\"\nmeasure = \"gpu_hours_never_used\"\n\
            owner = { wasted = \">= 20\" }\nstaff = { wasted = \"> 0\" }\n";
        let policies = Policies::parse(text, &THRESHOLDS).unwrap();
        let of = |(id, (user, account)): (u64, (&str, &str))| {
            let mut job = testing::job();
            job.id = id;
            (job.identity.user, job.identity.account) = (user.to_owned(), account.to_owned());
            testing::report(job)
        };
        let owners =
            [("alice", "math"), ("alice", "math"), ("bob", "bio"), ("carol", "bio"), ("carol", "math")];
        let reports: Vec<_> = (101..).zip(owners).map(of).collect();
        let (findings, left_out) = find(&policies, &reports, &THRESHOLDS);
        let directory = Scratch::new("summary");
        let mut history = History::open(&directory.path().join("history")).unwrap();
        let now = Timestamp::from_second(1_000 * DAYS).unwrap();
        for (user, days) in [("alice", 30), ("alice", 7), ("carol", 3)] {
            let entry = Entry {
                time: Timestamp::from_second((1_000 - days) * DAYS + 60).unwrap(),
                action: Action::Mail,
                cluster: Some("della".to_owned()),
                user: user.to_owned(),
                policy: "gpus".to_owned(),
                jobs: vec![1],
                start: None,
                why: None,
                letter: None,
            };
            history.add(entry).unwrap();
        }
        let due: Vec<_> = findings
            .into_iter()
            .map(|finding| {
                let due = Due::of(&finding, &history, &policies.mails, now);
                (finding, due)
            })
            .collect();
        let period = Period { from: 0.0, until: 7.0 * 86_400.0, zone: TimeZone::UTC };
        let looked = Looked { jobs: 5, left_out };
        let page = |account| super::page(&due, account, &period, &looked);
        let expected = "\
Jobs from Thu 1 Jan 00:00 to Thu 8 Jan 00:00.
5 jobs were looked at.

gpus: GPUs were never used (GPU-hours)

USER   CLUSTER  JOBS  HOURS  WASTED  USED  SHARE  MAIL
alice  della       2    150    37.4  75 %   40 %  now, 2 before
carol  della       2    150    37.4  75 %   40 %  1, last 3 d ago
bob    della       1   74.8    18.7  75 %   20 %  -
";
        assert_eq!(page(None).unwrap(), expected);
        let bio = page(Some("bio")).unwrap();
        assert!(bio.starts_with("Jobs of account bio from"), "{bio}");
        assert!(bio.contains("\ncarol  della       1   74.8") && !bio.contains("alice"), "{bio}");
        assert_eq!(page(Some("none")), None);
    }

    #[test]
    fn staff_see_which_policies_judged_nobody_and_why() {
        let text = "[[policy]]\nname = \"cores-low\"\nadvice = \"cpu_low\"\nmeasure = \"core_hours\"\n\
            jobs = { gpus = \"<= 0\" }\n";
        let policies = Policies::parse(text, &THRESHOLDS).unwrap();
        let mut job = testing::job();
        job.nodes.iter_mut().for_each(|node| (node.gpus, node.gpus_held) = (Vec::new(), None));
        let mut lost = testing::report(job.clone());
        lost.quality.reasons.push(Reason::EndNotSeen { nodes: 1, of: 2 });
        let reports = [testing::report(job), lost];
        let (findings, left_out) = find(&policies, &reports, &THRESHOLDS);
        assert!(findings.is_empty());
        let period = Period { from: 0.0, until: 7.0 * 86_400.0, zone: TimeZone::UTC };
        let looked = Looked { jobs: 2, left_out };
        let expected = "\
Jobs from Thu 1 Jan 00:00 to Thu 8 Jan 00:00.
2 jobs were looked at. Not judged: 1 not wholly seen.

No policy found anything.

Not judged, because what the policy asks for is not known

POLICY     JOBS  NOT KNOWN
cores-low     1  gpus
";
        assert_eq!(page(&[], None, &period, &looked).unwrap(), expected);
        assert_eq!(page(&[], Some("math"), &period, &looked), None);
    }
}
