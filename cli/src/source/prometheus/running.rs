//! What all running jobs do now: two queries for a cluster, however many jobs it has.

use std::collections::BTreeMap;

use job_report::Identity;

use super::selector::{any_of, range};
use super::{Prometheus, Selection};
use crate::Failure;
use crate::source::identity::identities;
use crate::source::labels::ALL_LABELS;

/// A job that runs. What it uses is the mean over the last minutes, of a younger one since its start.
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

/// A power over less time is none: clocks of node and server differ, and meters are read now and then.
const LEAST_SECONDS: f64 = 10.0;

/// What was used and what was had, of a function that gives the sum of a series.
type Quotient<'a> = &'a dyn Fn(&dyn Fn(&str) -> String) -> (String, String);

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
                        *slot = Some(sample.value).filter(|value| value.is_finite());
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

    /// What each job has and uses, the label `of` says what. What it uses is divided by the time in which it was used: `rate` divides by the whole
    /// window, also where a job is younger or its node was scraped for less. A sum that lacks a node is NaN.
    fn uses(&self, named: Option<&str>, over: f64) -> String {
        let cluster = &self.scope.cluster_label;
        let (job, on_node) =
            (format!("(jobid, {cluster})"), format!("(jobid, instance, slurm_node, {cluster})"));
        let (node, gpu) = (
            format!("(instance, {cluster})"),
            format!("(jobid, instance, slurm_node, gpu, uuid, {cluster})"),
        );
        let selector = self.scope.selector(&named.into_iter().collect::<Vec<_>>());
        let all = self.scope.selector(&[]);
        let window = range(over);
        let series = |name: &str| format!("jobledger_job_{name}{selector}");
        // Of a target that is scraped twice one counts.
        let once = |by: &str, expr: &str| format!("sum by {by} (max by ({ALL_LABELS}, {cluster}) ({expr}))");
        let sum = |expr: &str| once(&job, expr);
        // What is retained of nodes on which a job ended is none of what it does now.
        let running = |expr: &str| format!("({expr} unless on {on_node} {})", series("end_time_seconds"));
        let start = running(&series("start_time_seconds"));
        // Since the job's start, by the server's clock.
        let age = format!(
            "max by {on_node} ({} - {})",
            running(&format!("timestamp({})", series("start_time_seconds"))),
            series("start_time_seconds")
        );
        let is_young = format!("({age} < {over})");
        // Two counters of one page: their quotient needs no clock.
        let part = |by: &str, of: Quotient<'_>| {
            let (used, had) = of(&|name| once(by, &series(name)));
            let since_start = format!("{used} / ({had} > 0) and on {on_node} {is_young}");
            let (used, had) = of(&|name| once(by, &format!("rate({}{window})", series(name))));
            let lately = format!("{used} / ({had} > 0) unless on {on_node} {is_young}");
            format!("({since_start} or ({lately} and on {on_node} {start}))")
        };
        let whole = |expr: &str, nodes: &str| {
            format!("sum by {job} ({expr} or on {on_node} NaN * max by {on_node} ({nodes}))")
        };
        let per_cpu = format!(
            "max by {node} (jobledger_node_cores{all}) / on {node} max by {node} (jobledger_node_cpus{all})"
        );
        let cores = format!("{} * on {node} group_left () ({per_cpu})", series("cpus"));
        let cpu = part(&on_node, &|sum| (sum("cpu_seconds_total"), sum("allocated_cpu_seconds_total")));
        let cores_used = format!("{cpu} * on {on_node} max by {on_node} ({})", series("cpus"));
        let gpu_part = |of: &str| {
            part(&gpu, &|sum| {
                let (busy, idle) = (sum("gpu_busy_seconds_total"), sum("gpu_idle_seconds_total"));
                (sum(of), format!("({busy} + {idle} or {idle})"))
            })
        };
        // Energy has no counter of time beside it. It counts from the job's start, or from that of an exporter that found the job running.
        let late = format!(
            "max by {node} (jobledger_exporter_counting_start_time_seconds{all}) - on {node} group_right () max by {on_node} ({start}) > 0"
        );
        let counted = format!("({age} - on {on_node} ({late}) or {age})");
        let scraped = format!(
            "(max by {on_node} (rate({}{window})) / max by {on_node} ({}) or 1 + 0 * max by {on_node} ({start}))",
            series("allocated_cpu_seconds_total"),
            series("cpus")
        );
        let power = |name: &str| {
            format!(
                "({} / ({counted} >= {LEAST_SECONDS} < {over}) or {} / {scraped} and {counted} >= {over})",
                once(&on_node, &series(name)),
                once(&on_node, &format!("rate({}{window})", series(name)))
            )
        };
        let held = format!("{} + {}", series("memory_anon_bytes"), series("memory_shmem_bytes"));
        let gpus = series("gpus");
        let parts = [
            ("nodes", format!("count by {job} (max by {on_node} ({start}))")),
            ("start", format!("min by {job} ({start})")),
            ("cores", sum(&cores)),
            ("cores_used", whole(&cores_used, &start)),
            ("memory_held", sum(&held)),
            ("memory_limit", sum(&running(&series("memory_limit_bytes")))),
            ("gpus", sum(&gpus)),
            ("gpus_busy", format!("sum by {job} ({})", gpu_part("gpu_busy_seconds_total"))),
            ("gpus_idle", format!("sum by {job} ({})", gpu_part("gpu_idle_seconds_total"))),
            ("watts", whole(&power("energy_joules_total"), &start)),
            ("gpu_watts", whole(&power("gpu_energy_joules_total"), &format!("{gpus} > 0"))),
        ];
        let parts = parts.map(|(of, expr)| format!("label_replace({expr}, \"of\", \"{of}\", \"\", \"\")"));
        parts.join(" or ")
    }
}
