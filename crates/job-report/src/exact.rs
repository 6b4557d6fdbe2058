//! Whether the totals of a run are exact, and why they may not be.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::job::{Gpu, Job, Node, State};
use crate::metric;
use crate::numbers::count;
use crate::run::CLOCKS;
use crate::show::{percent, time};

/// What a source found out about a run besides its numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// Nodes on which a counter of the job fell. `None` if that was not looked for.
    pub resets: Option<usize>,
    /// The number of its CPUs on a node changed.
    pub cpus_changed: bool,
    /// Seconds between scrapes. `None` if that is not known.
    pub interval: Option<f64>,
    /// What SLURM's accounting has of the run. `None` without a record that fits.
    pub accounted: Option<Accounted>,
}

/// A run in SLURM's accounting (sacct). Times are seconds since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Accounted {
    /// When it was submitted, or requeued.
    pub submit: Option<f64>,
    /// When it started.
    pub start: f64,
    /// When it ended; `None` while it runs.
    pub end: Option<f64>,
    /// Seconds that it ran, without those in which it was suspended.
    pub elapsed: Option<f64>,
    /// Seconds in which it was suspended.
    pub suspended: Option<f64>,
}

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
            Self::AccountingDisagrees { .. } | Self::SuspendedUnknown => subject != Subject::Peaks,
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
        found.extend(job.nodes.iter().find_map(cpus_held_less));
    }
    found.extend(job.nodes.iter().find_map(gpus_held_less));
    found.extend(disagreement(job));
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

fn less(what: &'static str, held: f64, ran: f64) -> Option<Reason> {
    (held < LEAST_HELD * ran - SLACK).then_some(Reason::HeldLessThanElapsed { what, held, ran })
}

/// Each CPU is counted from the start to the end.
fn cpus_held_less(node: &Node) -> Option<Reason> {
    let held = node.values.get(&metric::CPU_ALLOCATED_SECONDS)?;
    let cpus = node.values.get(&metric::CPUS).filter(|cpus| *cpus > 0.0)?;
    less(CPUS, held / cpus, node.end? - node.start - node.suspended_seconds)
}

fn gpus_held_less(node: &Node) -> Option<Reason> {
    let ran = node.end.unwrap_or(node.seen_until) - node.start - node.suspended_seconds;
    // Nobody sees whether a GPU works while the exporter is away.
    let seen = |gpu: &Gpu| Some(gpu.busy()? + gpu.values.get(&metric::GPU_IDLE_SECONDS)?);
    let held = node.gpus.iter().filter_map(|gpu| {
        let held = gpu.values.get(&metric::GPU_ALLOCATED_SECONDS)?;
        Some(seen(gpu).map_or(held, |seen| seen.min(held)))
    });
    less(GPUS, held.reduce(f64::min)?, ran)
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
