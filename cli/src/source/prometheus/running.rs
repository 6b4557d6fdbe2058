//! What all running jobs do now: two queries for a cluster, however many jobs it has.

use std::collections::BTreeMap;

use job_report::Identity;

use super::selector::{any_of, range};
use super::{Prometheus, Selection};
use crate::Failure;
use crate::source::identity::identities;
use crate::source::labels::ALL_LABELS;

/// A job that runs. What it uses is the mean over the last minutes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunningJob {
    /// SLURM's number.
    pub id: u64,
    /// Who it is.
    pub identity: Identity,
    /// When it started on its first node, seconds since the epoch.
    pub start: f64,
    /// Nodes on which it runs.
    pub nodes: f64,
    /// Cores that it has.
    pub cores: Option<f64>,
    /// Cores that it keeps busy; with SMT a busy thread is one.
    pub cores_used: Option<f64>,
    /// Bytes that it holds and the kernel cannot drop.
    pub memory_held: Option<f64>,
    /// Bytes that it may use.
    pub memory_limit: Option<f64>,
    /// GPUs, or parts of divided ones.
    pub gpus: Option<f64>,
    /// Those that it keeps busy.
    pub gpus_busy: Option<f64>,
    /// Those that are seen to do nothing.
    pub gpus_idle: Option<f64>,
    /// Watts of CPUs, memory and overhead.
    pub watts: Option<f64>,
    /// Watts of GPUs.
    pub gpu_watts: Option<f64>,
}

impl RunningJob {
    fn slot(&mut self, what: &str) -> Option<&mut Option<f64>> {
        Some(match what {
            "cores" => &mut self.cores,
            "cores_used" => &mut self.cores_used,
            "memory_held" => &mut self.memory_held,
            "memory_limit" => &mut self.memory_limit,
            "gpus" => &mut self.gpus,
            "gpus_busy" => &mut self.gpus_busy,
            "gpus_idle" => &mut self.gpus_idle,
            "watts" => &mut self.watts,
            "gpu_watts" => &mut self.gpu_watts,
            _ => return None,
        })
    }
}

/// Of more jobs than these, a selector without their numbers is cheaper.
const MOST_NAMED: usize = 300;

impl Prometheus {
    /// The jobs that run, by number.
    pub async fn running(&self, selection: &Selection, over: f64) -> Result<Vec<RunningJob>, Failure> {
        // Who they are is asked of the time of a look, not of the whole window.
        let recently = Self { window: over, ..self.clone() };
        let who = self.client.query(&recently.who(&selection.matchers()), self.until).await?;
        let who = identities(&who, &self.scope.cluster_label);
        let numbers: Vec<String> = who.keys().map(|(_, id)| id.to_string()).collect();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let named =
            (numbers.len() <= MOST_NAMED).then(|| any_of("jobid", numbers.iter().map(String::as_str)));
        let answer = self.client.query(&self.uses(named.as_deref(), over), self.until).await?;
        let mut jobs: BTreeMap<(String, u64), RunningJob> = BTreeMap::new();
        for sample in &answer {
            let get = |name: &str| sample.labels.get(name).unwrap_or_default();
            let Ok(id) = get("jobid").parse() else { continue };
            let job = jobs.entry((get(&self.scope.cluster_label).to_owned(), id)).or_default();
            match get("of") {
                "nodes" => job.nodes = sample.value,
                "start" => job.start = sample.value,
                what => {
                    if let Some(slot) = job.slot(what) {
                        *slot = Some(sample.value);
                    }
                }
            }
        }
        // What ended is exported for a while.
        let runs = jobs.into_iter().filter(|(_, job)| job.nodes > 0.0);
        let known = runs.filter_map(|(key, job)| {
            let identity = who.get(&key)?.clone();
            Some(RunningJob { id: key.1, identity, ..job })
        });
        Ok(known.collect())
    }

    fn uses(&self, named: Option<&str>, over: f64) -> String {
        let cluster = &self.scope.cluster_label;
        let selector = self.scope.selector(&named.into_iter().collect::<Vec<_>>());
        let all = self.scope.selector(&[]);
        let series = |name: &str| format!("jobledger_job_{name}{selector}");
        let rate = |name: &str| format!("rate({}{})", series(name), range(over));
        // Of a target that is scraped twice one counts.
        let sum =
            |expr: &str| format!("sum by (jobid, {cluster}) (max by ({ALL_LABELS}, {cluster}) ({expr}))");
        // What is retained of nodes on which a job ended is none of what it does now.
        let running = |name: &str| {
            let ended = series("end_time_seconds");
            format!("{} unless on (jobid, instance, slurm_node, {cluster}) {ended}", series(name))
        };
        let starts = running("start_time_seconds");
        let node = format!("(instance, {cluster})");
        let per_cpu = format!(
            "max by {node} (jobledger_node_cores{all}) / on {node} max by {node} (jobledger_node_cpus{all})"
        );
        let held = format!("{} + {}", series("memory_anon_bytes"), series("memory_shmem_bytes"));
        let parts = [
            (
                "nodes",
                format!(
                    "count by (jobid, {cluster}) (max by (jobid, instance, slurm_node, {cluster}) ({starts}))"
                ),
            ),
            ("start", format!("min by (jobid, {cluster}) ({starts})")),
            ("cores", sum(&format!("{} * on {node} group_left () ({per_cpu})", series("cpus")))),
            ("cores_used", sum(&rate("cpu_seconds_total"))),
            ("memory_held", sum(&held)),
            ("memory_limit", sum(&running("memory_limit_bytes"))),
            ("gpus", sum(&series("gpus"))),
            ("gpus_busy", sum(&rate("gpu_busy_seconds_total"))),
            ("gpus_idle", sum(&rate("gpu_idle_seconds_total"))),
            ("watts", sum(&rate("energy_joules_total"))),
            ("gpu_watts", sum(&rate("gpu_energy_joules_total"))),
        ];
        let parts = parts.map(|(of, expr)| format!("label_replace({expr}, \"of\", \"{of}\", \"\", \"\")"));
        parts.join(" or ")
    }
}
