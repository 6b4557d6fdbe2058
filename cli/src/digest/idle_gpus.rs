//! Jobs that run and whose GPUs do nothing: when their owners get a mail, and when a job may be cancelled.

use jiff::Timestamp;
use job_report::{Report, Thresholds};

use super::history::{Action, Entry};
use super::letters::Period;
use super::number::count;
use super::policies::IdleGpus;
use crate::job_id::shown;
use crate::mail::Letter;
use crate::source::prometheus::JobGpus;
use crate::text::wrapped;

/// The name of this policy in the history.
pub const POLICY: &str = "idle_gpus";

/// What is to be done about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its owner gets a mail.
    Warn,
    /// It is cancelled.
    Cancel,
}

/// Whether a GPU of a job could have been idle for so many minutes, by its counters alone.
pub fn may_be_idle(minutes: u32, now: &JobGpus, before: &JobGpus) -> bool {
    let idle = |uuid: &str| Some(now.get(uuid)?.idle? - before.get(uuid)?.idle?);
    now.keys().filter_map(|uuid| idle(uuid)).any(|seconds| seconds > f64::from(minutes) * 60.0 * 0.5)
}

/// Whether the report has every GPU that readings have: one of a node that is not seen any more is not there.
pub fn has_all<'a>(report: &Report, mut readings: impl Iterator<Item = &'a JobGpus>) -> bool {
    let has = |uuid: &String| report.job.gpus().any(|(_, gpu)| gpu.uuid == *uuid);
    readings.all(|gpus| gpus.keys().all(has))
}

/// Whether the job's GPUs did nothing for the last minutes before `at`. `None` unless every one of them was seen, on every node, for nine tenths of
/// that time.
pub fn were_idle(
    report: &Report,
    minutes: u32,
    (at, now, before): (f64, &JobGpus, &JobGpus),
    policy: &IdleGpus,
    thresholds: &Thresholds,
) -> Option<bool> {
    let job = &report.job;
    let seconds = f64::from(minutes) * 60.0;
    let all_run = job.nodes.iter().all(|node| node.running && node.start <= at - seconds);
    let allocated = job.nodes_allocated.and_then(|nodes| usize::try_from(nodes).ok());
    let all_known = job.nodes.iter().all(|node| node.gpus_held == Some(count(node.gpus.len())));
    if !all_run || !all_known || allocated.is_some_and(|nodes| nodes != job.nodes.len()) {
        return None;
    }
    let (seen, busy_ratio) = (thresholds.get("gpu_seen")?, thresholds.get("gpu_idle_busy_ratio")?);
    let (mut of, mut used) = (0, 0);
    for (_, gpu) in job.gpus() {
        let (now, before) = (now.get(&gpu.uuid)?, before.get(&gpu.uuid)?);
        let idle = now.idle? - before.idle?;
        // A GPU on which a kernel never ran may have no counter of busy time.
        let busy = now.busy.unwrap_or(0.0) - before.busy.unwrap_or(0.0);
        if gpu.shared || busy < 0.0 || idle < 0.0 || busy + idle < seen * seconds {
            return None;
        }
        of += 1;
        used += usize::from(busy > busy_ratio * idle);
    }
    (of > 0).then(|| count(used) <= policy.used_part * count(of))
}

/// What to do about a job whose GPUs were idle for so many minutes, after what was done about this run of it.
pub fn step<'a>(
    minutes: u32,
    done: impl Iterator<Item = &'a Entry> + Clone,
    may_cancel: bool,
    idle: &IdleGpus,
    now: Timestamp,
) -> Option<Step> {
    let of = |action: Action| done.clone().filter(move |entry| entry.action == action);
    let mails = of(Action::Mail).count();
    let last_mail = of(Action::Mail).map(|entry| entry.time).max();
    let since_mail = last_mail.map(|last| now.duration_since(last).as_secs_f64() / 60.0);
    // The time between two steps passes even where the first was late. A run a minute early is none too early.
    let has_passed = |least: u32| since_mail.is_none_or(|since| since >= f64::from(least) - 1.0);
    let before = mails.checked_sub(1).and_then(|at| idle.warn_minutes.get(at)).copied();
    if let Some(next) = idle.warn_minutes.get(mails) {
        let least = before.map_or(0, |before| next.saturating_sub(before));
        return (minutes >= *next && has_passed(least)).then_some(Step::Warn);
    }
    let cancel = idle.cancel_minutes.filter(|_| may_cancel)?;
    let last = idle.warn_minutes.last().copied()?;
    let least = cancel.saturating_sub(last).max(idle.notice_minutes);
    // What SLURM refused once it refuses again.
    let tried = of(Action::Cancel).next().is_some();
    (minutes >= cancel && since_mail.is_some() && has_passed(least) && !tried).then_some(Step::Cancel)
}

/// The mail about a job that runs.
pub fn letter(report: &Report, minutes: u32, period: &Period, will_cancel: Option<u32>) -> Letter {
    let Words { name, what, on, gpus } = &Words::of(report);
    let mut parts = vec![
        format!(
            "your job {what}{on} runs since {}. For {minutes} minutes {gpus} nothing, and others cannot have what it holds.",
            period.show(report.job.start())
        ),
        format!("If it does not need them any more, end it:\n\n  scancel {name}"),
        "If a later part of it needs no GPU, do that in a job of its own (--dependency=afterok). If it waits for you, start one when you are there.".to_owned(),
    ];
    if let Some(cancel) = will_cancel {
        parts.push(format!("If nothing changes, it is cancelled once this is so for {cancel} minutes."));
    }
    parts.push(format!("What it did so far:\n\n  jobledger report {name}"));
    let subject = format!("Job {name}{on}: for {minutes} minutes {gpus} nothing");
    Letter { subject, text: text(report, &parts) }
}

/// The mail about a job that was cancelled.
pub fn farewell(report: &Report, minutes: u32, period: &Period) -> Letter {
    let Words { name, what, on, gpus } = &Words::of(report);
    let parts = [
        format!(
            "your job {what}{on}, which ran since {}, was cancelled: for {minutes} minutes {gpus} nothing.",
            period.show(report.job.start())
        ),
        format!("What it did:\n\n  jobledger report {name}"),
    ];
    Letter {
        subject: format!("Job {name}{on} was cancelled: its GPUs did nothing"),
        text: text(report, &parts),
    }
}

/// What mails call a job.
struct Words {
    name: String,
    /// With its name, if it has one.
    what: String,
    on: String,
    gpus: String,
}

impl Words {
    fn of(report: &Report) -> Self {
        let (job, who) = (&report.job, &report.job.identity);
        let name = shown(job.id, who);
        Self {
            what: if who.name.is_empty() { name.clone() } else { format!("{name} ({})", who.name) },
            name,
            on: job.cluster.as_ref().map(|cluster| format!(" on {cluster}")).unwrap_or_default(),
            gpus: match job.gpus().count() {
                1 => "its GPU does".to_owned(),
                all => format!("its {all} GPUs do"),
            },
        }
    }
}

/// In lines of a mail; a command stands alone.
fn text(report: &Report, parts: &[String]) -> String {
    let hello = format!("Hello {},", report.job.identity.user);
    let lines = |part: &str| wrapped(part, 78).join("\n");
    let parts = parts.iter().map(|part| match part.split_once("\n\n") {
        Some((first, command)) => format!("{}\n\n{command}\n", lines(first)),
        None => format!("{}\n", lines(part)),
    });
    std::iter::once(hello + "\n").chain(parts).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::source::prometheus::GpuTimes;
    use crate::testing::{self, THRESHOLDS};

    const NOW: f64 = 1_646_400_000.0;

    fn idle() -> IdleGpus {
        toml::from_str("warn_minutes = [60, 105]\ncancel_minutes = 120\n").unwrap()
    }

    fn running() -> Report {
        let mut job = testing::job();
        for node in &mut job.nodes {
            (node.running, node.end, node.seen_until) = (true, None, NOW);
            node.gpus_held = Some(2.0);
        }
        testing::report(job)
    }

    /// All GPUs with these seconds.
    fn gpus(busy: Option<f64>, idle: f64) -> JobGpus {
        (0..4).map(|minor| (format!("GPU-{minor}"), GpuTimes { busy, idle: Some(idle) })).collect()
    }

    fn judged(report: &Report, now: &JobGpus, before: &JobGpus) -> Option<bool> {
        were_idle(report, 60, (NOW, now, before), &idle(), &THRESHOLDS)
    }

    #[test]
    fn gpus_are_idle_if_all_of_them_were_seen_to_be() {
        let (report, before, now) = (running(), gpus(Some(100.0), 10.0), gpus(Some(100.0), 3610.0));
        assert_eq!(judged(&report, &now, &before), Some(true));
        // Nine tenths of the time are enough, less is not.
        assert_eq!(judged(&report, &gpus(Some(100.0), 3255.0), &before), Some(true));
        assert_eq!(judged(&report, &gpus(Some(100.0), 3200.0), &before), None);
        // A watchdog's kernel is no use; a second more is.
        assert_eq!(judged(&report, &gpus(Some(103.5), 3600.0), &before), Some(true));
        assert_eq!(judged(&report, &gpus(Some(104.5), 3600.0), &before), Some(false));
        assert_eq!(judged(&report, &gpus(None, 3610.0), &gpus(None, 10.0)), Some(true));
        let mut one = now.clone();
        one.insert("GPU-2".to_owned(), GpuTimes { busy: Some(1000.0), idle: Some(2710.0) });
        assert_eq!(judged(&report, &one, &before), Some(false));
        let part = IdleGpus { used_part: 0.25, ..idle() };
        assert_eq!(were_idle(&report, 60, (NOW, &one, &before), &part, &THRESHOLDS), Some(true));
    }

    #[test]
    fn a_gpu_of_a_node_that_is_gone_is_missing() {
        let (mut report, all) = (running(), gpus(None, 1.0));
        assert!(has_all(&report, [&all, &all].into_iter()));
        report.job.nodes.pop();
        assert!(!has_all(&report, [&all].into_iter()));
        assert!(has_all(&report, std::iter::empty()));
    }

    #[test]
    fn nothing_follows_from_data_that_is_not_there() {
        let (before, now) = (gpus(Some(100.0), 10.0), gpus(Some(100.0), 3610.0));
        let none = |change: fn(&mut Report)| {
            let mut report = running();
            change(&mut report);
            assert_eq!(judged(&report, &now, &before), None);
        };
        none(|report| report.job.nodes[1].running = false);
        none(|report| report.job.nodes[1].start = NOW - 1800.0);
        none(|report| report.job.nodes_allocated = Some(3));
        none(|report| report.job.nodes[1].gpus_held = Some(3.0));
        none(|report| report.job.nodes[1].gpus_held = None);
        none(|report| report.job.nodes[0].gpus[0].shared = true);
        none(|report| report.job.nodes[0].gpus[0].uuid = "GPU-other".to_owned());
        none(|report| report.job.nodes.iter_mut().for_each(|node| node.gpus.clear()));
        let mut missing = before.clone();
        missing.remove("GPU-3");
        assert_eq!(judged(&running(), &now, &missing), None);
        let mut unknown = now.clone();
        unknown.insert("GPU-3".to_owned(), GpuTimes { busy: Some(100.0), idle: None });
        assert_eq!(judged(&running(), &unknown, &before), None);
        // A counter that began anew.
        assert_eq!(judged(&running(), &now, &gpus(Some(200.0), 10.0)), None);
    }

    fn entry(action: Action, minutes_ago: i64) -> Entry {
        Entry {
            time: Timestamp::UNIX_EPOCH - SignedDuration::from_mins(minutes_ago),
            action,
            cluster: None,
            user: "a".to_owned(),
            policy: POLICY.to_owned(),
            jobs: vec![1],
            start: Some(0.0),
            why: None,
        }
    }

    #[test]
    fn steps_follow_each_other() {
        use Action::{Cancel, Mail};
        let next =
            |minutes, done: &[Entry], may| step(minutes, done.iter(), may, &idle(), Timestamp::UNIX_EPOCH);
        assert_eq!(next(59, &[], true), None);
        assert_eq!(next(60, &[], true), Some(Step::Warn));
        assert_eq!(next(500, &[], true), Some(Step::Warn), "never without a mail before");
        let one = [entry(Mail, 45)];
        assert_eq!((next(104, &one, true), next(105, &one, true)), (None, Some(Step::Warn)));
        assert_eq!(next(500, &[entry(Mail, 43)], true), None, "45 minutes are between the mails");
        let two = [entry(Mail, 60), entry(Mail, 15)];
        assert_eq!(next(119, &two, true), None);
        assert_eq!(next(120, &two, true), Some(Step::Cancel));
        assert_eq!(next(120, &two, false), None);
        assert_eq!(next(500, &[entry(Mail, 60), entry(Mail, 13)], true), None, "no notice");
        assert_eq!(next(500, &[entry(Mail, 60), entry(Mail, 30), entry(Cancel, 15)], true), None);
        let never = IdleGpus { cancel_minutes: None, ..idle() };
        assert_eq!(step(500, two.iter(), true, &never, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn the_mail_says_what_happens_next() {
        let period = Period { from: 0.0, until: NOW, zone: TimeZone::UTC };
        let letter = letter(&running(), 60, &period, Some(120));
        assert_eq!(letter.subject, "Job 39798795 on della: for 60 minutes its 4 GPUs do nothing");
        assert!(letter.text.contains("\n  scancel 39798795\n"), "{}", letter.text);
        assert!(letter.text.contains("cancelled once this is so for 120 minutes"), "{}", letter.text);
        assert!(!super::letter(&running(), 60, &period, None).text.contains("cancelled"));
        let farewell = farewell(&running(), 120, &period);
        assert_eq!(farewell.subject, "Job 39798795 on della was cancelled: its GPUs did nothing");
        assert!(farewell.text.contains("was cancelled: for 120 minutes"), "{}", farewell.text);
        assert!(letter.text.lines().all(|line| crate::text::width(line) <= 80));
    }
}
