//! Jobs that run and whose GPUs do nothing: when their owners get a mail, and when a job may be cancelled.

use jiff::Timestamp;
use job_report::{Report, Thresholds};

use super::history::{Action, Entry};
use super::idle_time::{Before, IdleTime, idle_time};
use super::letters::Period;
use super::number::count;
use super::policies::IdleGpus;
use crate::job_id::shown;
use crate::mail::Letter;
use crate::source::prometheus::{GpuCurves, JobGpus};
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

/// Whether its GPUs were surely used in so many minutes, by its counters alone.
pub fn were_used(minutes: u32, now: &JobGpus, before: &JobGpus, policy: &IdleGpus, busy_ratio: f64) -> bool {
    let busy = |uuid: &str| Some(now.get(uuid)?.busy.unwrap_or(0.0) - before.get(uuid)?.busy.unwrap_or(0.0));
    let least = busy_ratio * f64::from(minutes) * 60.0;
    let used = now.keys().filter_map(|uuid| busy(uuid)).filter(|seconds| *seconds > least).count();
    count(used) > policy.used_part * count(now.len())
}

/// What was seen of a job's GPUs, and what follows from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// The longest of the policy's times for which they did nothing; 0 if it is none of them.
    pub minutes: u32,
    /// Mails about this run within that time.
    pub mails: usize,
    /// What is to be done.
    pub step: Option<Step>,
    /// What would be to be done if all was known, and what is not.
    pub refused: Option<(Step, String)>,
}

/// Judges a job by its counters, and by what was done about this run of it. Mails count from the last second of work on: a user who worked since is
/// warned anew.
pub fn look<'a>(
    report: &Report,
    curves: &GpuCurves,
    done: impl Iterator<Item = &'a Entry> + Clone,
    may_cancel: bool,
    (policy, thresholds): (&IdleGpus, &Thresholds),
    now: Timestamp,
) -> Looked {
    let (first, until) = match curves.times.as_slice() {
        [first, .., until] => (*first, *until),
        _ => return Looked::default(),
    };
    let minutes = |since: f64| {
        let times = policy.warn_minutes.iter().copied().chain(policy.cancel_minutes);
        // Of a time in milliseconds the last one may be rounded.
        times.filter(|minutes| until - since >= f64::from(*minutes) * 60.0 - 0.01).max().unwrap_or(0)
    };
    let since =
        |since: f64| done.clone().filter(move |entry| entry.action != Action::Mail || at(entry) >= since);
    let would = || step(minutes(first), done.clone(), may_cancel, policy, now);
    let (idle, why) = match idle_time(report, curves, policy, thresholds) {
        Ok(IdleTime { since, before: Before::Unknown(why) }) => (since, Some(why)),
        Ok(IdleTime { since, .. }) => (since, None),
        Err(why) => (f64::INFINITY, Some(why)),
    };
    let next = step(minutes(idle), since(idle), may_cancel, policy, now);
    let refused = why.and_then(|why| would().filter(|would| next != Some(*would)).map(|would| (would, why)));
    Looked {
        minutes: minutes(idle),
        mails: since(idle).filter(|entry| entry.action == Action::Mail).count(),
        step: next,
        refused,
    }
}

fn at(entry: &Entry) -> f64 {
    entry.time.as_duration().as_secs_f64()
}

/// What to do about a job whose GPUs were idle for so many minutes, after what was done about this run of it in that time.
fn step<'a>(
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
    use proptest::prelude::*;

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

    #[test]
    fn counters_alone_say_who_is_looked_at() {
        let gpus = |busy: Option<f64>, idle: f64| -> JobGpus {
            let times = GpuTimes { held: Some(4000.0), busy, idle: Some(idle) };
            (0..4).map(|minor| (format!("GPU-{minor}"), times)).collect()
        };
        let (before, now) = (gpus(Some(100.0), 10.0), gpus(Some(100.0), 3610.0));
        assert!(may_be_idle(60, &now, &before) && !may_be_idle(60, &gpus(None, 1000.0), &before));
        assert!(!may_be_idle(60, &now, &JobGpus::new()));
        // A watchdog's kernel is no use; a second more is.
        let used =
            |now: &JobGpus, part| were_used(60, now, &before, &IdleGpus { used_part: part, ..idle() }, 0.001);
        assert!(
            !used(&now, 0.0) && !used(&gpus(Some(103.5), 3600.0), 0.0) && !used(&gpus(None, 3600.0), 0.0)
        );
        let mut one = now.clone();
        one.insert("GPU-2".to_owned(), GpuTimes { busy: Some(104.5), ..GpuTimes::default() });
        assert!(used(&one, 0.0) && !used(&one, 0.25));
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
            letter: None,
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

    /// Curves of the last two hours and a half; what a GPU did is of a minute, from the first to the last.
    fn curves(gpus: usize, mut minute: impl FnMut(usize, usize) -> Option<(f64, f64)>) -> GpuCurves {
        let times: Vec<f64> = (0_u32..=150).map(|at| NOW - f64::from(150 - at) * 60.0).collect();
        let of_gpu = |gpu: usize| {
            let mut now = GpuTimes { held: Some(9000.0), busy: Some(500.0), idle: Some(8000.0) };
            let mut values = Vec::new();
            for at in 0..times.len() {
                let Some((busy, idle)) = minute(gpu, at) else {
                    values.push(GpuTimes::default());
                    continue;
                };
                now = GpuTimes {
                    held: now.held.map(|held| held + 60.0),
                    busy: now.busy.map(|before| before + busy),
                    idle: now.idle.map(|before| before + idle),
                };
                values.push(now);
            }
            (format!("GPU-{gpu}"), values)
        };
        GpuCurves { times: times.clone(), gpus: (0..gpus).map(of_gpu).collect() }
    }

    fn did_nothing() -> GpuCurves {
        curves(4, |_, _| Some((0.0, 60.0)))
    }

    fn mail(minutes_ago: i64) -> Entry {
        let now = Timestamp::from_second(1_646_400_000).unwrap();
        Entry { time: now - SignedDuration::from_mins(minutes_ago), ..entry(Action::Mail, 0) }
    }

    fn looked(report: &Report, curves: &GpuCurves, done: &[Entry], may_cancel: bool) -> Looked {
        let now = Timestamp::from_second(1_646_400_000).unwrap();
        look(report, curves, done.iter(), may_cancel, (&idle(), &THRESHOLDS), now)
    }

    /// Of all that can be with a job whose owner got both mails, in one case alone it is cancelled.
    #[test]
    fn one_state_of_all_ends_in_a_cancellation() {
        let two = [mail(60), mail(15)];
        let of = |report: &Report, curves: &GpuCurves, done: &[Entry]| looked(report, curves, done, true);
        let running = running();
        let mut cancelled = 0;
        let mut is = |what: &str, looked: Looked, step: Option<Step>, why: &str| {
            cancelled += usize::from(looked.step == Some(Step::Cancel));
            let refused = looked.refused.map(|(_, why)| why).unwrap_or_default();
            assert_eq!((looked.step, refused.as_str()), (step, why), "{what}");
        };
        is("idle", of(&running, &did_nothing(), &two), Some(Step::Cancel), "");
        is("no mail", of(&running, &did_nothing(), &[]), Some(Step::Warn), "");
        is("spared", looked(&running, &did_nothing(), &two, false), None, "");
        let tried = [mail(60), mail(15), Entry { action: Action::Cancel, ..mail(5) }];
        is("tried", of(&running, &did_nothing(), &tried), None, "");
        // It worked after the first mail, for as long as a watchdog does not.
        let worked =
            |gpu: usize, at: usize| Some(if gpu == 2 && at == 150 - 59 { (4.0, 56.0) } else { (0.0, 60.0) });
        is("work", of(&running, &curves(4, worked), &two), None, "");
        let watchdog = |gpu: usize, at: usize| {
            Some(if gpu == 2 && at.is_multiple_of(60) { (3.5, 56.5) } else { (0.0, 60.0) })
        };
        let looks = of(&running, &curves(4, watchdog), &two);
        assert_eq!((looks.step, looks.minutes), (Some(Step::Cancel), 120), "a watchdog's kernel is no work");
        // The exporter of a node was away, was started anew, or was not able to ask the driver; its time before is not known.
        let lost = curves(4, |gpu, at| (gpu < 2 || !(50..60).contains(&at)).then_some((0.0, 60.0)));
        is("lost", of(&running, &lost, &two), None, "node2 was not seen for some time before 90 minutes ago");
        let mut anew = did_nothing();
        for times in anew.gpus.get_mut("GPU-1").unwrap().iter_mut().skip(80) {
            *times = GpuTimes { busy: None, ..*times };
        }
        is("anew", of(&running, &anew, &two), None, "counters of node1 began anew 70 minutes ago");
        let unseen = curves(4, |_, at| Some((0.0, if (60..70).contains(&at) { 0.0 } else { 60.0 })));
        let why = "GPU-1 was not always seen before 86 minutes ago";
        is("unseen", of(&running, &unseen, &two), None, why);
        let mut held = did_nothing();
        for (at, times) in held.gpus.get_mut("GPU-3").unwrap().iter_mut().enumerate() {
            times.held = times.held.map(|held| if at > 100 { held - 400.0 } else { held });
        }
        is("held", of(&running, &held, &two), None, "counters of node2 began anew 49 minutes ago");
        let old = curves(4, |gpu, at| (gpu > 0 || at < 150).then_some((0.0, 60.0)));
        is("old", of(&running, &old, &two), None, "the last scrape of node1 is too old");
        let other = curves(5, |_, at| (at < 100).then_some((0.0, 60.0)));
        is("gone", of(&running, &other, &two), None, "its GPU GPU-4 is not seen any more");
        is("nothing", of(&running, &GpuCurves::default(), &two), None, "");
        let mut with = |change: fn(&mut Report), why: &str| {
            let mut report = running.clone();
            change(&mut report);
            is(why, of(&report, &did_nothing(), &two), None, why);
        };
        with(|report| report.job.identity.user.clear(), "nobody says whose it is");
        with(|report| report.job.nodes_allocated = Some(3), "2 of its 3 nodes are seen");
        with(|report| report.job.nodes[1].running = false, "node2 does not show that it runs there");
        with(
            |report| report.job.nodes[1].gpus_held = Some(3.0),
            "node2 shows 2 of the 3 GPUs that it has there",
        );
        with(|report| report.job.nodes[0].gpus_held = None, "node1 does not say how many GPUs it has there");
        with(|report| report.job.nodes[0].gpus[0].shared = true, "other jobs have GPU-1 of node1, too");
        assert_eq!(cancelled, 1);
    }

    #[test]
    fn a_part_of_the_gpus_may_be_used() {
        let one = curves(4, |gpu, _| Some(if gpu == 2 { (30.0, 30.0) } else { (0.0, 60.0) }));
        let step = |part| {
            let policy = IdleGpus { used_part: part, ..idle() };
            let now = Timestamp::from_second(1_646_400_000).unwrap();
            look(&running(), &one, [mail(60), mail(15)].iter(), true, (&policy, &THRESHOLDS), now).step
        };
        assert_eq!((step(0.0), step(0.2), step(0.25)), (None, None, Some(Step::Cancel)));
    }

    proptest! {
        /// A user who works now and then, and this program every quarter of an hour, for a day and a half.
        #[test]
        fn between_a_cancellation_and_the_last_second_of_work_lie_all_mails(
            work in prop::collection::vec((0_usize..2100, 5.0..60.0), 0..8),
            gaps in prop::collection::vec((0_usize..2100, 1_usize..30), 0..3),
            late in 0_usize..15,
        ) {
            let report = running();
            let mut busy = vec![0.0_f64; 2200];
            let mut seen = vec![true; 2200];
            for (at, seconds) in &work {
                busy[*at] = *seconds;
            }
            for (at, length) in &gaps {
                seen[*at..(*at + *length).min(2200)].fill(false);
            }
            let time = |at: usize| NOW + f64::from(u32::try_from(at).unwrap()) * 60.0;
            let mut sums = GpuTimes { held: Some(0.0), busy: None, idle: Some(0.0) };
            let mut all = Vec::new();
            for at in 0..2200 {
                if busy[at] > 0.0 {
                    sums.busy = Some(sums.busy.unwrap_or(0.0) + busy[at]);
                }
                sums.idle = sums.idle.map(|idle| idle + 60.0 - busy[at]);
                sums.held = sums.held.map(|held| held + 60.0);
                all.push(if seen[at] { sums } else { GpuTimes::default() });
            }
            let mut done: Vec<Entry> = Vec::new();
            for now in (15 + late..2200).step_by(15) {
                let gpus = (0..4).map(|gpu| (format!("GPU-{gpu}"), all[..=now].to_vec())).collect();
                let curves = GpuCurves { times: (0..=now).map(time).collect(), gpus };
                let stamp = Timestamp::from_second(1_646_400_000 + 60 * i64::try_from(now).unwrap()).unwrap();
                let looked = look(&report, &curves, done.iter(), true, (&idle(), &THRESHOLDS), stamp);
                match looked.step {
                    Some(Step::Warn) => done.push(Entry { time: stamp, ..entry(Action::Mail, 0) }),
                    Some(Step::Cancel) => {
                        let last = (0..=now).rev().find(|at| busy[*at] > 0.0);
                        let since = last.map_or(f64::NEG_INFINITY, time);
                        let mails = done.iter().filter(|entry| at(entry) >= since).count();
                        prop_assert!(mails >= idle().warn_minutes.len());
                        prop_assert!(time(now) - since >= 7200.0);
                        break;
                    }
                    None => {}
                }
            }
        }
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
