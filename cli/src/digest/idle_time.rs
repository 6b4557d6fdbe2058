//! Since when the GPUs of a job that runs do nothing, by their counters over time, and why no earlier time is known.

use job_report::{Gpu, Node, Report, Thresholds};

use super::number::count;
use super::policies::IdleGpus;
use crate::source::prometheus::{GpuCurves, GpuTimes};

/// Seconds for which nothing may be known of a GPU: scrapes are missing now and then, and an exporter that is started anew goes on from where it was.
const LOST: f64 = 180.0;

/// Since when, and what was before.
#[derive(Debug, Clone, PartialEq)]
pub struct IdleTime {
    /// Seconds since the epoch.
    pub since: f64,
    /// What was before.
    pub before: Before,
}

/// What was before a time in which GPUs did nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Before {
    /// They worked.
    Work,
    /// The curves begin there.
    Beginning,
    /// It is not known, and why.
    Unknown(String),
}

/// A GPU's counters at two times.
#[derive(Debug, Clone, Copy)]
struct Between {
    from: GpuTimes,
    to: GpuTimes,
}

impl Between {
    /// A GPU on which a kernel never ran may have no counter of busy time.
    fn busy(&self) -> f64 {
        self.to.busy.unwrap_or(0.0) - self.from.busy.unwrap_or(0.0)
    }

    fn idle(&self) -> f64 {
        self.to.idle.unwrap_or(0.0) - self.from.idle.unwrap_or(0.0)
    }

    fn held(&self) -> f64 {
        self.to.held.unwrap_or(0.0) - self.from.held.unwrap_or(0.0)
    }

    fn fell(&self) -> bool {
        self.busy() < 0.0 || self.idle() < 0.0 || self.held() < 0.0
    }
}

/// What has to be known before any time of a job's GPUs is judged.
///
/// # Errors
/// What is not known.
pub fn check(report: &Report) -> Result<(), String> {
    let job = &report.job;
    let allocated = job.nodes_allocated.and_then(|nodes| usize::try_from(nodes).ok());
    if job.identity.user.is_empty() {
        return Err("nobody says whose it is".to_owned());
    }
    if let Some(all) = allocated.filter(|all| *all != job.nodes.len()) {
        return Err(format!("{} of its {all} nodes are seen", job.nodes.len()));
    }
    for node in &job.nodes {
        let name = &node.name;
        match node.gpus_held {
            _ if !node.running => return Err(format!("{name} does not show that it runs there")),
            None => return Err(format!("{name} does not say how many GPUs it has there")),
            Some(held) if held != count(node.gpus.len()) => {
                return Err(format!("{name} shows {} of the {held} GPUs that it has there", node.gpus.len()));
            }
            Some(_) => {}
        }
        if let Some(gpu) = node.gpus.iter().find(|gpu| gpu.shared) {
            return Err(format!("other jobs have {} of {name}, too", gpu.uuid));
        }
    }
    Ok(())
}

/// Since when the job's GPUs do nothing: from then on no more than `gpu_idle_busy_ratio` of any time as long as that before the first mail, and all of
/// them were seen and held. A second of work that is more than that lies before it, and so does whatever is not known.
///
/// # Errors
/// Why it is not known what they do now.
pub fn idle_time(
    report: &Report,
    curves: &GpuCurves,
    policy: &IdleGpus,
    thresholds: &Thresholds,
) -> Result<IdleTime, String> {
    check(report)?;
    let limits = thresholds.get("gpu_seen").zip(thresholds.get("gpu_idle_busy_ratio"));
    let (seen, busy_ratio) = limits.ok_or("thresholds are missing: gpu_seen, gpu_idle_busy_ratio")?;
    let length = f64::from(policy.warn_minutes.first().copied().unwrap_or(0)) * 60.0;
    let (most_unseen, most_busy) = (((1.0 - seen) * length).max(LOST), busy_ratio * length);
    let gpus: Vec<OfGpu<'_>> = report.job.gpus().map(|(node, gpu)| OfGpu::new(node, gpu, curves)).collect();
    let others = curves.gpus.iter().filter(|(uuid, _)| gpus.iter().all(|gpu| gpu.gpu.uuid != **uuid));
    if let Some((uuid, _)) = others.clone().next() {
        return Err(format!("its GPU {uuid} is not seen any more"));
    }
    let newest = curves.times.len().checked_sub(1).filter(|_| !gpus.is_empty());
    let newest = newest.ok_or("it has no GPU")?;
    if let Some(gpu) = gpus.iter().find(|gpu| !gpu.is_seen(newest)) {
        return Err(format!("the last scrape of {} is too old", gpu.node.name));
    }
    let time = |at: usize| curves.times.get(at).copied().unwrap_or_default();
    let ago = |at: usize| ((time(newest) - time(at)) / 60.0).round();
    let step = time(newest) - time(newest.saturating_sub(1));
    let found = |at: usize, before: Before| Ok(IdleTime { since: time(at), before });
    // Times at which all GPUs were seen, the last first; and the first of them that is no further away than that length.
    let (mut whole, mut end) = (vec![newest], 0);
    for at in (0..newest).rev() {
        let next = whole.last().copied().unwrap_or(newest);
        if time(next) - time(at) > LOST.max(step) {
            let lost = gpus.iter().find(|gpu| !gpu.is_seen(next.saturating_sub(1)));
            let name = lost.map_or("it", |gpu| &gpu.node.name);
            let why = format!("{name} was not seen for some time before {} minutes ago", ago(next));
            return found(next, Before::Unknown(why));
        }
        if !gpus.iter().all(|gpu| gpu.is_seen(at)) {
            continue;
        }
        if let Some(gpu) = gpus.iter().find(|gpu| gpu.between(at, next).fell()) {
            let why = format!("counters of {} began anew {} minutes ago", gpu.node.name, ago(next));
            return found(next, Before::Unknown(why));
        }
        whole.push(at);
        while whole.get(end).is_some_and(|last| time(*last) - time(at) > length) {
            end += 1;
        }
        let last = whole.get(end).copied().unwrap_or(next);
        let used = gpus.iter().filter(|gpu| gpu.between(at, last).busy() > most_busy).count();
        if count(used) > policy.used_part * count(gpus.len()) {
            return found(next, Before::Work);
        }
        let missing = |gpu: &&OfGpu<'_>| {
            let (between, all) = (gpu.between(at, last), time(last) - time(at));
            all - (between.busy() + between.idle()).min(between.held()) > most_unseen
        };
        if let Some(gpu) = gpus.iter().find(missing) {
            let why = format!("{} was not always seen before {} minutes ago", gpu.gpu.uuid, ago(next));
            return found(next, Before::Unknown(why));
        }
    }
    found(whole.last().copied().unwrap_or(newest), Before::Beginning)
}

/// A GPU and its curve.
struct OfGpu<'a> {
    node: &'a Node,
    gpu: &'a Gpu,
    times: &'a [GpuTimes],
}

impl<'a> OfGpu<'a> {
    fn new(node: &'a Node, gpu: &'a Gpu, curves: &'a GpuCurves) -> Self {
        Self { node, gpu, times: curves.gpus.get(&gpu.uuid).map(Vec::as_slice).unwrap_or_default() }
    }

    fn at(&self, at: usize) -> GpuTimes {
        self.times.get(at).copied().unwrap_or_default()
    }

    fn is_seen(&self, at: usize) -> bool {
        let GpuTimes { held, idle, .. } = self.at(at);
        held.is_some() && idle.is_some()
    }

    fn between(&self, from: usize, to: usize) -> Between {
        Between { from: self.at(from), to: self.at(to) }
    }
}
