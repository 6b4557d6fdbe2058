//! A job as it was measured.

use serde::Serialize;

use crate::curves::Curves;
use crate::evidence::{Accounted, Evidence};
use crate::metric;
use crate::part::Part;
use crate::run::CLOCKS;
use crate::values::{Values, most, ratio, sum};

/// Who a job is. An empty string is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the labels of jobledger_job_info (docs/metadata.md)")]
pub struct Identity {
    pub user: String,
    pub uid: String,
    pub account: String,
    pub partition: String,
    pub qos: String,
    pub name: String,
    pub array_job_id: String,
    pub array_task_id: String,
    pub het_job_id: String,
    pub sluid: String,
}

impl Identity {
    /// Whether both may be of one user: by their numbers, else by their names.
    pub fn may_be_user(&self, other: &Self) -> bool {
        let same = |one: &str, other: &str| one.is_empty() || other.is_empty() || one == other;
        match self.uid.is_empty() || other.uid.is_empty() {
            true => same(&self.user, &other.user),
            false => self.uid == other.uid,
        }
    }

    /// How many of what a reader asks for first are known.
    pub fn known(&self) -> usize {
        [&self.account, &self.user, &self.name].into_iter().filter(|text| !text.is_empty()).count()
    }
}

/// How a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A node of it still runs it.
    Running,
    /// All nodes saw its end.
    Ended,
    /// It is not exported any more, and its end was not seen: the exporter or Prometheus was down.
    NotSeen,
}

/// Who says how a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// SLURM's accounting.
    Accounting,
    /// It follows from exit code, signal, time limit and kills, as the node saw them.
    Derived,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// SLURM's word: `COMPLETED`, `FAILED`, `TIMEOUT`, ...
    pub state: String,
    /// Who says so.
    pub origin: Origin,
    /// The exit status of the batch script.
    pub exit_code: Option<u64>,
    /// The signal that ended it.
    pub signal: Option<u64>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Hardware {
    /// Hardware threads.
    pub cpus: Option<f64>,
    /// Cores.
    pub cores: Option<f64>,
    /// Bytes of memory.
    pub memory_bytes: Option<f64>,
    /// GPUs that are not divided, and parts of those that are.
    pub gpus: Option<f64>,
}

/// A GPU of a job, or a part of a divided one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gpu {
    /// The index of the vendor's tools.
    pub index: String,
    /// Its UUID.
    pub uuid: String,
    /// Its model.
    pub model: String,
    /// The number of its device file.
    pub minor: String,
    /// Which part of a divided GPU it is.
    pub profile: String,
    /// Other jobs had it at the same time.
    pub shared: bool,
    /// Totals.
    pub values: Values,
}

impl Gpu {
    /// Time in which it was seen to be busy; 0 if it was seen and a kernel never ran.
    pub fn busy(&self) -> Option<f64> {
        self.values
            .get(&metric::GPU_BUSY_SECONDS)
            .or_else(|| self.values.get(&metric::GPU_IDLE_SECONDS).map(|_| 0.0))
    }

    /// Busy of the time in which it was seen.
    pub fn utilization(&self) -> Option<f64> {
        let (busy, idle) = (self.busy()?, self.values.get(&metric::GPU_IDLE_SECONDS).unwrap_or(0.0));
        (busy + idle > 0.0).then(|| busy / (busy + idle))
    }
}

/// What a job did on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Node {
    /// Its name: the instance without its port, or SLURM's.
    pub name: String,
    /// When the job started there, seconds since the epoch.
    pub start: f64,
    /// When it ended there; `None` while it runs, and where that was not seen.
    pub end: Option<f64>,
    /// When it was last seen there: the end, if there is one.
    pub seen_until: f64,
    /// It still runs there.
    pub running: bool,
    /// Seconds of its time there in which SLURM had suspended it. Totals of time held leave them out.
    pub suspended_seconds: f64,
    /// What the node is.
    pub hardware: Hardware,
    /// Totals.
    pub values: Values,
    /// Most memory held that the kernel cannot drop, in a scrape.
    pub memory_held_bytes: Option<f64>,
    /// GPUs and parts of GPUs that the job has there, as the node says; `None` while that is not known.
    pub gpus_held: Option<f64>,
    /// The job's GPUs there.
    pub gpus: Vec<Gpu>,
    /// Divided GPUs of which the job has parts: what is measured of a board as a whole, such as energy.
    pub boards: Vec<Gpu>,
    /// Its steps and tasks there, in the order of [`Part::order`]; none where the exporter does not publish them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Part of its time there that scrapes cover.
    pub coverage: Option<f64>,
}

impl Node {
    /// Time that the job was seen there, also suspended.
    pub fn present(&self) -> f64 {
        (self.seen_until - self.start).max(0.0)
    }

    /// Time that the job was seen to run there.
    pub fn ran(&self) -> f64 {
        (self.present() - self.suspended_seconds).max(0.0)
    }

    /// Leaves out seconds in which it was suspended: they are neither held nor idle, as in SLURM's own numbers.
    fn leave_out(&mut self, suspended: f64) {
        let suspended = suspended.min(self.present());
        let cpus = self.values.get(&metric::CPUS).unwrap_or(0.0);
        let shorten = |values: &mut Values, metric: &'static metric::Metric, by: f64| {
            if let Some(value) = values.get(metric) {
                values.set(metric, (value - by).max(0.0));
            }
        };
        shorten(&mut self.values, &metric::CPU_ALLOCATED_SECONDS, cpus * suspended);
        for gpu in &mut self.gpus {
            shorten(&mut gpu.values, &metric::GPU_ALLOCATED_SECONDS, suspended);
            shorten(&mut gpu.values, &metric::GPU_IDLE_SECONDS, suspended);
        }
        self.suspended_seconds += suspended;
    }

    /// Cores that its CPUs are: with SMT a CPU is a part of a core.
    pub fn cores(&self) -> Option<f64> {
        let (cpus, Hardware { cpus: all, cores, .. }) = (self.values.get(&metric::CPUS)?, self.hardware);
        let (all, cores) = (all?, cores?);
        (all > 0.0).then(|| cpus * cores / all)
    }

    /// Whether no core of the node is left for others.
    pub fn holds_all_cores(&self) -> Option<bool> {
        Some(self.cores()? >= self.hardware.cores? * 0.999)
    }

    /// Core time held.
    pub fn core_seconds(&self) -> Option<f64> {
        let (held, cpus) =
            (self.values.get(&metric::CPU_ALLOCATED_SECONDS)?, self.values.get(&metric::CPUS)?);
        let cores = self.cores()?;
        (cpus > 0.0).then(|| held * cores / cpus)
    }

    /// CPU time used of the core time held, at most 1.
    pub fn cpu_use(&self) -> Option<f64> {
        let (used, held) = (self.values.get(&metric::CPU_SECONDS)?, self.core_seconds()?);
        (held > 0.0).then(|| (used / held).min(1.0))
    }

    /// CPUs kept busy on average.
    pub fn cpus_used(&self) -> Option<f64> {
        let used = self.values.get(&metric::CPU_SECONDS)?;
        (self.ran() > 0.0).then(|| used / self.ran())
    }

    /// CPUs that worked on average: those held, without the ones that did nothing while they were counted.
    pub fn cpus_worked(&self) -> Option<f64> {
        let counted = self.values.get(&metric::COUNTED_CPU_SECONDS)?;
        let covered = ratio(Some(counted), self.values.get(&metric::CPU_SECONDS))?.min(1.0);
        let held = self.values.get(&metric::CPU_ALLOCATED_SECONDS)? * covered;
        let idle = ratio(self.values.get(&metric::CPUS_IDLE_SECONDS), Some(held))?.min(1.0);
        Some(self.values.get(&metric::CPUS)? * (1.0 - idle))
    }

    /// Cores of which no CPU worked. Who runs a thread on each core leaves none, although half of the CPUs do nothing.
    pub fn cores_idle(&self) -> Option<f64> {
        Some((self.cores()? - self.cpus_worked()?).max(0.0))
    }

    /// Instructions of the mean CPU of the busiest one's, of those that worked.
    pub fn cpus_alike(&self) -> Option<f64> {
        let all = self.values.get(&metric::INSTRUCTIONS);
        let busiest = self.values.get(&metric::BUSIEST_CPU_INSTRUCTIONS)?;
        ratio(all, Some(busiest * self.cpus_worked()?)).map(|part| part.min(1.0))
    }

    /// The most memory that was charged, or where the kernel does not say, the most that was held in a scrape.
    pub fn memory_peak(&self) -> Option<f64> {
        self.values.get(&metric::MEMORY_PEAK_BYTES).or(self.memory_held_bytes)
    }

    /// That of the limit.
    pub fn memory_use(&self) -> Option<f64> {
        ratio(self.memory_peak(), self.values.get(&metric::MEMORY_LIMIT_BYTES))
    }

    /// The most that was held in a scrape, of the limit.
    pub fn memory_held_use(&self) -> Option<f64> {
        ratio(self.memory_held_bytes, self.values.get(&metric::MEMORY_LIMIT_BYTES))
    }

    /// Part of the time in which a task waited.
    pub fn waited(&self, metric: &metric::Metric) -> Option<f64> {
        let waited = self.values.get(metric)?;
        (self.ran() > 0.0).then(|| (waited / self.ran()).min(1.0))
    }

    /// A total of the node, those of GPUs and boards added up.
    pub fn total(&self, metric: &metric::Metric) -> Option<f64> {
        match metric.level {
            metric::Level::Node | metric::Level::Host => self.values.get(metric),
            metric::Level::Gpu | metric::Level::Device => {
                sum(self.gpus.iter().chain(&self.boards).map(|gpu| gpu.values.get(metric)))
            }
        }
    }
}

/// A run of a job as it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// SLURM's number.
    pub id: u64,
    /// The label of its cluster, if the server has one.
    pub cluster: Option<String>,
    /// Who it is.
    pub identity: Identity,
    /// Which of its runs this is, from 1.
    pub run: usize,
    /// How many runs were seen.
    pub runs: usize,
    /// How it ended, where that is known.
    pub ended: Option<Ended>,
    /// Seconds that it may run.
    pub time_limit: Option<f64>,
    /// Nodes that it has by SLURM: more than in `nodes` where some were not scraped.
    pub nodes_allocated: Option<u64>,
    /// Seconds between submission, or when it could have begun, and start.
    pub queued_seconds: Option<f64>,
    /// Its nodes, by name.
    pub nodes: Vec<Node>,
    /// Over time.
    pub curves: Option<Curves>,
    /// Grams of CO2 per joule at the wall, where the site sets it.
    pub grams_per_joule: Option<f64>,
    /// How often it was requeued before this run, where SLURM's prolog said it.
    pub restarts: Option<u64>,
    /// What bears on whether its totals are exact.
    pub evidence: Evidence,
}

impl Job {
    /// Start on the first node, seconds since the epoch.
    pub fn start(&self) -> f64 {
        self.nodes.iter().map(|node| node.start).reduce(f64::min).unwrap_or(0.0)
    }

    /// End on the last node, or when it was last seen.
    pub fn until(&self) -> f64 {
        self.nodes.iter().map(|node| node.seen_until).reduce(f64::max).unwrap_or(0.0)
    }

    /// When SLURM started it; the start on the first node if that is not known, or the same but for clocks.
    pub fn began(&self) -> f64 {
        let by_slurm = self.evidence.accounted.map(|run| run.start);
        by_slurm.filter(|start| *start < self.start() - CLOCKS).unwrap_or_else(|| self.start())
    }

    /// When SLURM ended it; the end on the last node if that is not known, or the same but for clocks.
    pub fn ended_at(&self) -> f64 {
        let by_slurm = self.evidence.accounted.and_then(|run| run.end);
        by_slurm.filter(|end| *end > self.until() + CLOCKS).unwrap_or_else(|| self.until())
    }

    /// Seconds in which it was suspended; `None` if that is not known.
    pub fn suspended_seconds(&self) -> Option<f64> {
        self.evidence.accounted.and_then(|run| run.suspended)
    }

    /// Takes what SLURM's accounting has of the run. Of a node that was lost it is not known which part of its time was suspended.
    pub fn account(&mut self, run: Accounted) {
        let suspended = run.suspended.unwrap_or(0.0);
        for node in
            self.nodes.iter_mut().filter(|node| suspended > 0.0 && (node.running || node.end.is_some()))
        {
            node.leave_out(suspended);
        }
        self.evidence.accounted = Some(run);
    }

    /// Seconds from start to end, or to when it was last seen, without suspended ones.
    pub(crate) fn elapsed_by_nodes(&self) -> f64 {
        (self.until() - self.start() - self.suspended_seconds().unwrap_or(0.0)).max(0.0)
    }

    /// Seconds that it ran, without suspended ones: SLURM's where it was not seen from start to end, and the nodes' where both are the same but for
    /// clocks, since they have fractions.
    pub fn elapsed(&self) -> f64 {
        let nodes = self.elapsed_by_nodes();
        let by_slurm = self.evidence.accounted.and_then(|run| run.elapsed);
        by_slurm.filter(|elapsed| (elapsed - nodes).abs() > CLOCKS).unwrap_or(nodes)
    }

    /// How it is doing.
    pub fn state(&self) -> State {
        if self.nodes.iter().any(|node| node.running) {
            State::Running
        } else if self.nodes.iter().all(|node| node.end.is_some()) {
            State::Ended
        } else {
            State::NotSeen
        }
    }

    /// Whether all nodes were seen that SLURM gave it, as far as that is known.
    pub fn all_nodes_seen(&self) -> bool {
        let seen = u64::try_from(self.nodes.len()).unwrap_or(u64::MAX);
        seen >= self.nodes_allocated.unwrap_or(1)
    }

    /// Whether all nodes that SLURM gave it saw its end.
    pub fn end_was_seen(&self) -> bool {
        self.state() == State::Ended && self.all_nodes_seen()
    }

    /// A total over all nodes; `None` if no node has it.
    pub fn total(&self, metric: &metric::Metric) -> Option<f64> {
        sum(self.nodes.iter().map(|node| node.total(metric)))
    }

    /// The greatest of its nodes.
    pub fn most(&self, of: impl Fn(&Node) -> Option<f64>) -> Option<f64> {
        most(self.nodes.iter().map(of))
    }

    /// The node that has it.
    pub fn node_with_most(&self, of: impl Fn(&Node) -> Option<f64>) -> Option<&Node> {
        let known = self.nodes.iter().filter_map(|node| Some((node, of(node)?)));
        known.reduce(|most, next| if next.1 > most.1 { next } else { most }).map(|(node, _)| node)
    }

    /// All GPUs, with their nodes.
    pub fn gpus(&self) -> impl Iterator<Item = (&Node, &Gpu)> {
        self.nodes.iter().flat_map(|node| node.gpus.iter().map(move |gpu| (node, gpu)))
    }
}
