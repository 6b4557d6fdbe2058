//! Whether the totals of a run are exact, and why they may not be.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::job::{Gpu, Job, Node, State};
use crate::metric;
use crate::numbers::count;
use crate::run::CLOCKS;
use crate::show::{percent, time};

/// Why totals may not be exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Some nodes did not show the end.
    EndNotSeen {
        /// Nodes without an end.
        nodes: usize,
        /// All that were seen.
        of: usize,
    },
    /// SLURM gave it more nodes than were seen.
    NodesNotSeen {
        /// Nodes that were seen.
        seen: usize,
        /// Nodes by SLURM.
        allocated: u64,
    },
    /// More nodes were seen than SLURM gave it: a node has two names.
    MoreNodesThanAllocated {
        /// Nodes that were seen.
        seen: usize,
        /// Nodes by SLURM.
        allocated: u64,
    },
    /// Scrapes cover a part of its time: the most that it held between them is not known.
    ScrapesMissing {
        /// 0 to 1.
        coverage: f64,
    },
    /// A counter fell: what it counted between its last reading and its new beginning is missing.
    CounterReset {
        /// Nodes on which one fell.
        nodes: usize,
    },
    /// CPUs or GPUs were counted for less time than the run took.
    HeldLessThanElapsed {
        /// `CPUs` or `GPUs`.
        what: &'static str,
        /// Seconds that were counted, for each CPU or GPU.
        held: f64,
        /// Seconds that it ran there.
        ran: f64,
    },
    /// It had another number of CPUs at another time.
    CpusChanged,
    /// SLURM's accounting has another length of the run.
    AccountingDisagrees {
        /// Seconds by the nodes.
        nodes: f64,
        /// Seconds by the accounting.
        accounting: f64,
    },
    /// Its user had a run of this number before, which may be a part of this one: an allocation without `PrologFlags=Contain` has no cgroup between
    /// its steps.
    MayBeAPart,
    /// It did nothing for a while, and SLURM's accounting, which knows whether it was suspended, is not there.
    SuspendedUnknown,
}

/// What was not looked at, or could not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unchecked {
    /// How many nodes SLURM gave it.
    Nodes,
    /// How far apart scrapes are.
    Scrapes,
    /// Whether counters fell.
    Resets,
}

/// What a total is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// CPU time, and what else a node counts.
    Cpus,
    /// GPU time.
    Gpus,
    /// How long it ran.
    Time,
    /// The most that it held.
    Peaks,
}

impl Reason {
    /// Its name in files: a contract.
    pub fn key(&self) -> &'static str {
        match self {
            Self::EndNotSeen { .. } => "end_not_seen",
            Self::NodesNotSeen { .. } => "nodes_not_seen",
            Self::MoreNodesThanAllocated { .. } => "more_nodes_than_allocated",
            Self::ScrapesMissing { .. } => "scrapes_missing",
            Self::CounterReset { .. } => "counter_reset",
            Self::HeldLessThanElapsed { .. } => "held_less_than_elapsed",
            Self::CpusChanged => "cpus_changed",
            Self::AccountingDisagrees { .. } => "accounting_disagrees",
            Self::MayBeAPart => "may_be_a_part",
            Self::SuspendedUnknown => "suspended_unknown",
        }
    }

    /// A clause for people.
    pub fn says(&self) -> String {
        match self {
            Self::EndNotSeen { nodes: 1, of: 1 } => "its end was not seen".to_owned(),
            Self::EndNotSeen { nodes, of } => format!("its end was not seen on {nodes} of {of} nodes"),
            Self::NodesNotSeen { seen, allocated } => format!("{seen} of {allocated} nodes were seen"),
            Self::MoreNodesThanAllocated { seen, allocated } => {
                format!("{seen} nodes were seen, SLURM gave it {allocated}: one may have two names")
            }
            Self::ScrapesMissing { coverage } => {
                format!("only {} of its time was scraped", percent(*coverage))
            }
            Self::CounterReset { nodes: 1 } => "a counter began anew".to_owned(),
            Self::CounterReset { nodes } => format!("counters began anew on {nodes} nodes"),
            Self::HeldLessThanElapsed { what, held, ran } => {
                format!("its {what} were counted for {} of {}", time(*held), time(*ran))
            }
            Self::CpusChanged => "its number of CPUs changed".to_owned(),
            Self::AccountingDisagrees { nodes, accounting } => {
                format!(
                    "it ran for {} by the nodes, {} by SLURM's accounting",
                    time(*nodes),
                    time(*accounting)
                )
            }
            Self::MayBeAPart => {
                "its user had this number before: it may be a part of a run, SLURM's accounting is not known"
                    .to_owned()
            }
            Self::SuspendedUnknown => {
                "it did nothing for a while, and may have been suspended: SLURM's accounting is not known"
                    .to_owned()
            }
        }
    }

    /// Whether a number of this kind cannot be relied upon.
    pub fn is_about(&self, subject: Subject) -> bool {
        match self {
            Self::CounterReset { .. } => subject != Subject::Time && subject != Subject::Peaks,
            Self::HeldLessThanElapsed { what, .. } => {
                subject == if *what == GPUS { Subject::Gpus } else { Subject::Cpus }
            }
            Self::CpusChanged => subject == Subject::Cpus,
            Self::ScrapesMissing { .. } => subject == Subject::Peaks,
            Self::AccountingDisagrees { .. } | Self::MayBeAPart | Self::SuspendedUnknown => {
                subject != Subject::Peaks
            }
            Self::EndNotSeen { .. } | Self::NodesNotSeen { .. } | Self::MoreNodesThanAllocated { .. } => true,
        }
    }

    /// Whether a part of the run was not seen at all.
    pub fn is_unseen_part(&self) -> bool {
        matches!(self, Self::EndNotSeen { .. } | Self::NodesNotSeen { .. })
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("reason", self.key())?;
        map.serialize_entry("says", &self.says())?;
        map.end()
    }
}

const CPUS: &str = "CPUs";
const GPUS: &str = "GPUs";
/// Scrapes are late now and then, and times are whole milliseconds.
const LEAST_COVERAGE: f64 = 0.9;
const LEAST_HELD: f64 = 0.98;
/// Seconds that a clock, a prolog or an epilog may take of a run.
const SLACK: f64 = 2.0 * CLOCKS;
/// A job that is suspended uses nothing: shorter pauses are a program's own.
const LEAST_PAUSE: f64 = 600.0;

/// All that apply.
pub(crate) fn reasons(job: &Job, coverage: Option<f64>) -> Vec<Reason> {
    let mut found = Vec::new();
    let seen = job.nodes.len();
    let without_end = ends_not_seen(job);
    if without_end > 0 {
        found.push(Reason::EndNotSeen { nodes: without_end, of: seen });
    }
    match job.nodes_allocated {
        Some(allocated) if count(seen) < of(allocated) => {
            found.push(Reason::NodesNotSeen { seen, allocated })
        }
        Some(allocated) if count(seen) > of(allocated) => {
            found.push(Reason::MoreNodesThanAllocated { seen, allocated });
        }
        _ => {}
    }
    found.extend(
        coverage.filter(|part| *part < LEAST_COVERAGE).map(|coverage| Reason::ScrapesMissing { coverage }),
    );
    if let Some(nodes) = job.evidence.resets.filter(|nodes| *nodes > 0) {
        found.push(Reason::CounterReset { nodes });
    }
    if job.evidence.cpus_changed {
        found.push(Reason::CpusChanged);
    } else {
        found.extend(job.nodes.iter().find_map(|node| cpus_held_less(job, node)));
    }
    found.extend(job.nodes.iter().find_map(|node| gpus_held_less(job, node)));
    found.extend(disagreement(job));
    if job.evidence.may_be_a_part && job.evidence.accounted.is_none() {
        found.push(Reason::MayBeAPart);
    }
    if job.suspended_seconds().is_none() && pauses(job) {
        found.push(Reason::SuspendedUnknown);
    }
    found
}

/// What was not looked at.
pub(crate) fn unchecked(job: &Job) -> Vec<Unchecked> {
    [
        (job.nodes_allocated.is_none(), Unchecked::Nodes),
        (job.evidence.interval.is_none(), Unchecked::Scrapes),
        (job.evidence.resets.is_none(), Unchecked::Resets),
    ]
    .into_iter()
    .filter_map(|(missing, what)| missing.then_some(what))
    .collect()
}

/// Nodes that are not exported any more, and did not show the job's end.
pub(crate) fn ends_not_seen(job: &Job) -> usize {
    job.nodes.iter().filter(|node| !node.running && node.end.is_none()).count()
}

#[allow(clippy::cast_precision_loss, reason = "a number of nodes")]
fn of(nodes: u64) -> f64 {
    nodes as f64
}

fn less(what: &'static str, held: f64, ran: f64, slack: f64) -> Option<Reason> {
    (held < LEAST_HELD * ran - slack).then_some(Reason::HeldLessThanElapsed { what, held, ran })
}

/// Each CPU is counted from the start of the run to the end. On a node whose cgroup came late it is counted from then on.
fn cpus_held_less(job: &Job, node: &Node) -> Option<Reason> {
    let held = node.values.get(&metric::CPU_ALLOCATED_SECONDS)?;
    let cpus = node.values.get(&metric::CPUS).filter(|cpus| *cpus > 0.0)?;
    // The first node counts by the clock that says when it started.
    let slack = if node.start > job.start() { SLACK } else { 0.1 };
    less(CPUS, held / cpus, node.end? - job.start() - node.suspended_seconds, slack)
}

fn gpus_held_less(job: &Job, node: &Node) -> Option<Reason> {
    let ran = node.end.unwrap_or(node.seen_until) - job.start() - node.suspended_seconds;
    // Nobody sees whether a GPU works while the exporter is away.
    let seen = |gpu: &Gpu| Some(gpu.busy()? + gpu.values.get(&metric::GPU_IDLE_SECONDS)?);
    let held = node.gpus.iter().filter_map(|gpu| {
        let held = gpu.values.get(&metric::GPU_ALLOCATED_SECONDS)?;
        Some(seen(gpu).map_or(held, |seen| seen.min(held)))
    });
    less(GPUS, held.reduce(f64::min)?, ran, SLACK)
}

/// A run whose ends were seen is as long as SLURM says.
fn disagreement(job: &Job) -> Option<Reason> {
    let accounting = job.evidence.accounted.and_then(|run| run.elapsed)?;
    if job.state() != State::Ended {
        return None;
    }
    let nodes = job.elapsed_by_nodes();
    let differs = (nodes - accounting).abs() > SLACK + 0.01 * accounting;
    differs.then_some(Reason::AccountingDisagrees { nodes, accounting })
}

/// Whether it did nothing at all for a while.
fn pauses(job: &Job) -> bool {
    let curve = job.curves.as_ref().and_then(|curves| Some((curves, curves.sum(&metric::CPU_SECONDS)?)));
    let Some((curves, used)) = curve else { return false };
    let (mut from, mut pause, mut longest) = (curves.start, 0.0, 0.0f64);
    for (value, end) in used.iter().zip(curves.ends()) {
        pause = if *value <= 1e-4 { pause + end - from } else { 0.0 };
        (longest, from) = (longest.max(pause), end);
    }
    longest >= LEAST_PAUSE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curves::Curves;
    use crate::evidence::{Accounted, Evidence};
    use crate::job::{Gpu, Identity};

    /// A job of two hours on a node with four CPUs and a GPU, of which all was looked at.
    fn job() -> Job {
        let mut node = Node { end: Some(7200.0), seen_until: 7200.0, ..Node::default() };
        let mut gpu = Gpu::default();
        for (metric, value) in [(&metric::CPUS, 4.0), (&metric::CPU_ALLOCATED_SECONDS, 28_800.0)] {
            node.values.set(metric, value);
        }
        for (metric, value) in [
            (&metric::GPU_ALLOCATED_SECONDS, 7200.0),
            (&metric::GPU_BUSY_SECONDS, 7000.0),
            (&metric::GPU_IDLE_SECONDS, 190.0),
        ] {
            gpu.values.set(metric, value);
        }
        node.gpus = vec![gpu];
        Job {
            id: 7,
            cluster: None,
            identity: Identity::default(),
            run: 1,
            runs: 1,
            ended: None,
            time_limit: None,
            nodes_allocated: Some(1),
            queued_seconds: None,
            nodes: vec![node],
            curves: None,
            grams_per_joule: None,
            restarts: None,
            evidence: Evidence { resets: Some(0), interval: Some(30.0), ..Evidence::default() },
        }
    }

    fn accounted(elapsed: f64, suspended: f64) -> Accounted {
        let end = Some(elapsed + suspended);
        Accounted { submit: None, start: 0.0, end, elapsed: Some(elapsed), suspended: Some(suspended) }
    }

    fn keys(job: &Job, coverage: Option<f64>) -> Vec<&'static str> {
        reasons(job, coverage).iter().map(Reason::key).collect()
    }

    #[track_caller]
    fn gives(change: impl Fn(&mut Job), expected: &[&str]) {
        let mut changed = job();
        change(&mut changed);
        assert_eq!(keys(&changed, Some(1.0)), expected);
    }

    #[test]
    fn a_run_that_was_wholly_seen_is_exact() {
        assert_eq!((keys(&job(), Some(1.0)), unchecked(&job())), (vec![], vec![]));
        gives(|job| job.account(accounted(7203.0, 0.0)), &[]);
        let unknown = Job { nodes_allocated: None, evidence: Evidence::default(), ..job() };
        assert_eq!(unchecked(&unknown), [Unchecked::Nodes, Unchecked::Scrapes, Unchecked::Resets]);
    }

    #[test]
    fn what_was_not_seen_is_a_reason() {
        gives(|job| job.nodes[0].end = None, &["end_not_seen"]);
        gives(|job| job.nodes_allocated = Some(2), &["nodes_not_seen"]);
        gives(|job| job.nodes_allocated = Some(0), &["more_nodes_than_allocated"]);
        assert_eq!(keys(&job(), Some(0.89)), ["scrapes_missing"]);
        assert_eq!(keys(&job(), None), Vec::<&str>::new());
    }

    #[test]
    fn what_was_counted_for_a_part_of_the_run_is_a_reason() {
        gives(|job| job.evidence.resets = Some(1), &["counter_reset"]);
        gives(
            |job| job.nodes[0].values.set(&metric::CPU_ALLOCATED_SECONDS, 27_000.0),
            &["held_less_than_elapsed"],
        );
        gives(
            |job| job.nodes[0].gpus[0].values.set(&metric::GPU_ALLOCATED_SECONDS, 6000.0),
            &["held_less_than_elapsed"],
        );
        gives(
            |job| job.nodes[0].gpus[0].values.set(&metric::GPU_BUSY_SECONDS, 5000.0),
            &["held_less_than_elapsed"],
        );
        // With other CPUs before, the last number says nothing of the time.
        let fewer = |job: &mut Job| {
            job.evidence.cpus_changed = true;
            job.nodes[0].values.set(&metric::CPU_ALLOCATED_SECONDS, 20_000.0);
        };
        gives(fewer, &["cpus_changed"]);
        // The cgroup of another node came an hour later.
        let late = |job: &mut Job| {
            let mut late = Node { start: 3600.0, gpus: Vec::new(), ..job.nodes[0].clone() };
            late.values.set(&metric::CPU_ALLOCATED_SECONDS, 14_400.0);
            job.nodes.push(late);
            job.nodes_allocated = Some(2);
        };
        gives(late, &["held_less_than_elapsed"]);
    }

    #[test]
    fn accounting_that_disagrees_is_a_reason() {
        gives(|job| job.account(accounted(3600.0, 0.0)), &["accounting_disagrees"]);
        gives(|job| job.account(accounted(6000.0, 1200.0)), &[]);
        gives(|job| job.evidence.may_be_a_part = true, &["may_be_a_part"]);
        let known = |job: &mut Job| {
            job.evidence.may_be_a_part = true;
            job.account(accounted(7200.0, 0.0));
        };
        gives(known, &[]);
    }

    #[test]
    fn a_pause_may_be_a_suspension_unless_the_accounting_knows() {
        let pausing = |job: &mut Job| {
            let mut curves = Curves::new(0.0, 7200.0, 300.0);
            let used = |at: f64| at.min(3600.0) + (at - 5400.0).max(0.0);
            let points: Vec<_> = curves.ends().map(|end| (end, used(end))).collect();
            curves.add((&metric::CPU_SECONDS, Some(0), None), &points, None);
            job.curves = Some(curves);
        };
        gives(pausing, &["suspended_unknown"]);
        let known = |job: &mut Job| {
            pausing(job);
            job.account(accounted(7200.0, 0.0));
        };
        gives(known, &[]);
    }

    #[test]
    fn advice_is_silent_about_what_it_rests_on() {
        use crate::Piece;
        let reset = [Reason::CounterReset { nodes: 1 }];
        assert!(!Piece::GpuNeverUsed.is_known(&reset) && !Piece::CpuLow.is_known(&reset));
        assert!(Piece::OomKilled.is_known(&reset) && Piece::TimeOverAsked.is_known(&reset));
        let gpus = [Reason::HeldLessThanElapsed { what: GPUS, held: 1.0, ran: 2.0 }];
        assert!(!Piece::GpuLowUse.is_known(&gpus) && Piece::CpuLow.is_known(&gpus));
    }
}
