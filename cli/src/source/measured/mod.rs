//! A job as the samples of its nodes show it, wherever these come from.

mod building;
mod curves;
mod parts;

use std::collections::BTreeSet;

use job_report::metric::{self, Kind, Level};
use job_report::{Curves, Evidence, Job, Node, Run, Seen, Values, runs};
use prometheus_api::{Labels, Sample};

use super::endings::Facts;
use super::identity::Who;
use crate::text::harmless;

pub(crate) use building::node_name;
#[cfg(test)]
pub(in crate::source) use building::tests::sample;
pub(in crate::source) use building::{exporter, measured, metrics_of};

/// What changed in a run, by exporters.
#[derive(Debug, Clone, Default)]
pub(in crate::source) struct Changes {
    /// A counter fell there.
    pub(in crate::source) resets: BTreeSet<(String, String)>,
    /// The number of its CPUs changed there.
    pub(in crate::source) cpus: BTreeSet<(String, String)>,
    /// What counters had before they fell: with their last values it is the total.
    pub(in crate::source) lost: Vec<Sample>,
}

/// A job at a time, as its nodes show it.
#[derive(Debug, Clone, Default)]
pub(in crate::source) struct Measured {
    /// By name.
    pub(in crate::source) nodes: Vec<Node>,
    /// The exporters of the nodes, by `nodes`: instance, and SLURM's name on a host with several slurmd.
    pub(in crate::source) exporters: Vec<(String, String)>,
    pub(in crate::source) curves: Option<Curves>,
    pub(in crate::source) grams_per_joule: Option<f64>,
    pub(in crate::source) facts: Facts,
    /// At least so often it ran.
    pub(in crate::source) runs_seen: usize,
    /// What bears on whether its totals are exact.
    pub(in crate::source) evidence: Evidence,
    /// Its cgroup went and came again: an allocation without `PrologFlags=Contain` has none between its steps.
    pub(in crate::source) in_pieces: bool,
}

impl Measured {
    /// Which nodes are of which run, the earliest first.
    pub(in crate::source) fn runs(&self) -> Vec<Run> {
        let seen = |node: &Node| Seen { start: node.start, until: node.seen_until };
        runs(&self.nodes.iter().map(seen).collect::<Vec<_>>())
    }

    /// Leaves out the other nodes.
    pub(in crate::source) fn keep(&mut self, nodes: &[usize]) {
        let mut at = 0..;
        self.nodes.retain(|_| at.next().is_some_and(|at| nodes.contains(&at)));
        let mut at = 0..;
        self.exporters.retain(|_| at.next().is_some_and(|at| nodes.contains(&at)));
    }

    /// Nothing was seen after the last time that is looked at: a node's clock may be ahead, or it had fewer CPUs before.
    pub(in crate::source) fn end_by(&mut self, at: f64) {
        for node in &mut self.nodes {
            node.end = node.end.map(|end| end.min(at).max(node.start));
            node.seen_until = node.seen_until.min(at).max(node.start);
        }
    }

    /// Adds an earlier piece of the same run: what both counted is added up.
    pub(in crate::source) fn join(&mut self, earlier: Measured) {
        let join = |to: &mut Values, from: &Values| {
            for metric in metric::ALL {
                if let Some(value) = from.get(metric) {
                    match metric.kind {
                        Kind::Counter => to.add(metric, value),
                        Kind::Gauge | Kind::Last => {
                            to.set(metric, to.get(metric).map_or(value, |v| v.max(value)))
                        }
                    }
                }
            }
        };
        for (node, exporter) in earlier.nodes.into_iter().zip(earlier.exporters) {
            let at = self.exporters.iter().position(|known| *known == exporter);
            let Some(known) = at.and_then(|at| self.nodes.get_mut(at)) else {
                self.nodes.push(node);
                self.exporters.push(exporter);
                continue;
            };
            known.start = known.start.min(node.start);
            join(&mut known.values, &node.values);
            for gpu in node.gpus {
                match known.gpus.iter_mut().find(|same| same.uuid == gpu.uuid && same.index == gpu.index) {
                    Some(same) => join(&mut same.values, &gpu.values),
                    None => known.gpus.push(gpu),
                }
            }
        }
        self.in_pieces = true;
    }

    pub(in crate::source) fn into_job(self, who: Who, (run, runs): (usize, usize)) -> Job {
        let mut job = Job {
            id: who.id,
            cluster: who.cluster.as_deref().map(harmless),
            identity: who.identity,
            run,
            runs,
            ended: None,
            time_limit: None,
            nodes_allocated: None,
            queued_seconds: None,
            nodes: self.nodes,
            curves: self.curves,
            grams_per_joule: self.grams_per_joule,
            restarts: None,
            evidence: self.evidence,
        };
        self.facts.fill(&mut job);
        job
    }
}

impl Measured {
    pub(in crate::source) fn position(&self, labels: &Labels) -> Option<usize> {
        let wanted = exporter(labels);
        self.exporters.iter().position(|exporter| *exporter == wanted)
    }

    /// Adds what changed. The counters of a run in pieces begin anew with each.
    pub(in crate::source) fn add_changes(&mut self, changes: Changes) {
        let is_node = |exporter: &&(String, String)| self.exporters.contains(*exporter);
        self.evidence.cpus_changed = changes.cpus.iter().any(|exporter| is_node(&exporter));
        if self.in_pieces {
            self.evidence.resets = Some(0);
            return;
        }
        self.evidence.resets = Some(changes.resets.iter().filter(is_node).count());
        for sample in &changes.lost {
            let Some(at) = self.position(&sample.labels) else { continue };
            let Some(node) = self.nodes.get_mut(at) else { continue };
            for metric in metrics_of(&sample.labels) {
                match metric.level {
                    Level::Node => node.values.add(metric, sample.value),
                    Level::Gpu => {
                        let get = |name| sample.labels.get(name).unwrap_or_default();
                        let (index, uuid) = (get("gpu"), get("uuid"));
                        let gpus = node.gpus.iter_mut().chain(&mut node.boards);
                        for gpu in gpus.filter(|gpu| gpu.index == index && gpu.uuid == uuid) {
                            gpu.values.add(metric, sample.value);
                        }
                    }
                    Level::Device | Level::Host => {}
                }
            }
        }
    }

    pub(in crate::source) fn add_held(&mut self, answer: &[Sample]) {
        for sample in answer {
            if let Some(node) = self.position(&sample.labels).and_then(|at| self.nodes.get_mut(at)) {
                node.memory_held_bytes = Some(sample.value);
            }
        }
    }

    pub(in crate::source) fn add_others(&mut self, answer: &[Sample]) {
        for sample in answer {
            if self.position(&sample.labels).is_some() && self.facts.add(sample) {
                continue;
            }
            let instance = sample.labels.get("instance");
            if instance.is_none() {
                // Grams for each kilowatt hour at the node; of the cluster and of none the larger.
                let grams = sample.value / 3.6e6;
                self.grams_per_joule = Some(self.grams_per_joule.map_or(grams, |known| known.max(grams)));
                continue;
            }
            for (node, _) in self
                .nodes
                .iter_mut()
                .zip(&self.exporters)
                .filter(|(_, (host, _))| Some(host.as_str()) == instance)
            {
                let value = Some(sample.value);
                match sample.labels.name() {
                    Some("jobledger_node_cpus") => node.hardware.cpus = value,
                    Some("jobledger_node_cores") => node.hardware.cores = value,
                    Some("jobledger_node_memory_total_bytes") => node.hardware.memory_bytes = value,
                    None => node.hardware.gpus = value,
                    Some(_) => {}
                }
            }
        }
    }

    pub(in crate::source) fn add_coverage(&mut self, answer: &[Sample]) {
        let in_five_minutes =
            answer.iter().find(|sample| sample.labels.iter().next().is_none()).map(|sample| sample.value);
        let Some(interval) = in_five_minutes.filter(|scrapes| *scrapes > 0.0).map(|scrapes| 300.0 / scrapes)
        else {
            return;
        };
        self.evidence.interval = Some(interval);
        for sample in answer {
            if let Some(node) = self.position(&sample.labels).and_then(|at| self.nodes.get_mut(at))
                // The first scrape after the start, and the last before the end, are less than an interval away.
                && node.present() >= 2.0 * interval
            {
                node.coverage = Some(((sample.value + 1.0) * interval / node.present()).min(1.0));
            }
        }
    }
}
