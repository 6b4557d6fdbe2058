//! Nodes and GPUs from the last samples of their series.

use std::collections::BTreeMap;

use job_report::metric::{self, Level};
use job_report::{Gpu, Hardware, Metric, Node};
use prometheus_api::{Labels, Sample};

use super::Measured;
use crate::series::{END, GPU_INFO, GPUS, START};
use crate::text::harmless;

/// Puts samples together: the last ones of a job, what says that it runs, and its GPUs. A sample without a name is how often its start changed
/// on a node.
pub(in crate::source) fn measured(values: &[Sample], others: &[Sample]) -> Measured {
    let mut nodes: BTreeMap<(String, String), Building> = BTreeMap::new();
    for sample in values {
        nodes.entry(exporter(&sample.labels)).or_default().add(sample);
    }
    let mut runs_seen = 0.0;
    for sample in others {
        let node = nodes.get_mut(&exporter(&sample.labels));
        match (sample.labels.name(), node) {
            (Some(GPU_INFO), Some(node)) => node.describe(&sample.labels),
            (Some(_), Some(node)) => node.node.running = true,
            (None, _) => runs_seen = (sample.value + 1.0).max(runs_seen),
            (_, None) => {}
        }
    }
    let mut built: Vec<(String, (String, String), Node)> = nodes
        .into_iter()
        .filter_map(|(exporter, building)| {
            let name = node_name(&exporter.0, &exporter.1);
            Some((name.clone(), exporter, Node { name, ..building.finish()? }))
        })
        .collect();
    built.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let (exporters, nodes) = built.into_iter().map(|(_, exporter, node)| (exporter, node)).unzip();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is not negative"
    )]
    let runs_seen = runs_seen as usize;
    let measured = Measured { nodes, exporters, ..Measured::default() };
    // Of a job that was requeued to other nodes no start changed.
    let runs_seen = measured.runs().len().max(runs_seen);
    Measured { runs_seen, ..measured }
}

/// Which exporter shows it, and SLURM's name for the node where that is needed.
pub(in crate::source) fn exporter(labels: &Labels) -> (String, String) {
    let get = |name| labels.get(name).unwrap_or_default().to_owned();
    (get("instance"), get("slurm_node"))
}

/// The metrics that a series is a part of.
pub(in crate::source) fn metrics_of(labels: &Labels) -> impl Iterator<Item = &'static Metric> {
    metric::ALL.iter().copied().filter(|metric| {
        metric.matches(labels.name().unwrap_or_default(), |name| labels.get(name).unwrap_or_default())
    })
}

/// The name of a node: the exporter's address without its port, or where several slurmd share it SLURM's name.
pub(crate) fn node_name(instance: &str, slurm_node: &str) -> String {
    if !slurm_node.is_empty() {
        return harmless(slurm_node);
    }
    let without = instance
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(instance, |(host, _)| host);
    harmless(without)
}

/// The CPUs of a job that ended before a scrape showed how many they were: it held each of them all the time. `None` if that is no
/// whole number, as of a job whose CPUs changed.
fn whole_cpus(held: f64, ran: f64) -> Option<f64> {
    // Start and end are exported in milliseconds.
    const LEAST_SECONDS: f64 = 0.1;
    const ACCURACY: f64 = 0.002;
    if ran < LEAST_SECONDS {
        return None;
    }
    let whole = (held / ran).round();
    (whole >= 1.0 && (held / whole - ran).abs() <= ACCURACY + 1e-4 * ran).then_some(whole)
}

#[derive(Default)]
struct Building {
    node: Node,
    start: Option<f64>,
    end: Option<f64>,
    /// By index and UUID.
    gpus: BTreeMap<(u64, String, String), Gpu>,
}

impl Building {
    fn add(&mut self, sample: &Sample) {
        let (labels, value) = (&sample.labels, sample.value);
        match labels.name() {
            // Of a target that is scraped twice, and of a user that is known later, one counts.
            Some(START) => self.start = self.start.into_iter().chain([value]).reduce(f64::max),
            Some(END) => self.end = self.end.into_iter().chain([value]).reduce(f64::max),
            Some(GPUS) => self.node.gpus_held = Some(value),
            _ => {
                for metric in metrics_of(labels) {
                    match metric.level {
                        Level::Node => self.node.values.add(metric, value),
                        // What began before the job has no total.
                        Level::Device | Level::Host => {}
                        Level::Gpu => self.gpu(labels).values.add(metric, value),
                    }
                }
            }
        }
    }

    fn gpu(&mut self, labels: &Labels) -> &mut Gpu {
        let (index, uuid) = (labels.get("gpu").unwrap_or_default(), labels.get("uuid").unwrap_or_default());
        let order = index.parse().unwrap_or(u64::MAX);
        let gpu = self.gpus.entry((order, index.to_owned(), uuid.to_owned())).or_default();
        (gpu.index, gpu.uuid) = (harmless(index), harmless(uuid));
        gpu
    }

    fn describe(&mut self, labels: &Labels) {
        let get = |name| harmless(labels.get(name).unwrap_or_default());
        let (model, minor, profile) = (get("model"), get("minor"), get("profile"));
        let shared = labels.get("shared") == Some("true");
        let gpu = self.gpu(labels);
        (gpu.model, gpu.minor, gpu.profile) = (model, minor, profile);
        gpu.shared |= shared;
    }

    /// `None` if it is not known when the job was there.
    fn finish(mut self) -> Option<Node> {
        let start = self.start?;
        self.node.start = start;
        // The end of an earlier run is no end.
        self.node.end = self.end.filter(|end| *end >= start && !self.node.running);
        // How long it was seen follows from the CPU time that it held.
        let held = self.node.values.get(&metric::CPU_ALLOCATED_SECONDS);
        if let (None, Some(held), Some(end)) = (self.node.values.get(&metric::CPUS), held, self.node.end)
            && let Some(cpus) = whole_cpus(held, end - start)
        {
            self.node.values.set(&metric::CPUS, cpus);
        }
        let cpus = self.node.values.get(&metric::CPUS).filter(|cpus| *cpus > 0.0);
        let seen = held.zip(cpus).map_or(start, |(held, cpus)| start + held / cpus);
        self.node.seen_until = self.node.end.unwrap_or(seen);
        self.node.hardware = Hardware::default();
        // A part of a divided GPU has what is measured of it; its board has no time of its own.
        let times = [&metric::GPU_ALLOCATED_SECONDS, &metric::GPU_IDLE_SECONDS, &metric::GPU_BUSY_SECONDS];
        let has_time = |gpu: &Gpu| times.iter().any(|time| gpu.values.get(time).is_some());
        let is_board = |gpu: &Gpu| gpu.model.is_empty() && !has_time(gpu);
        (self.node.boards, self.node.gpus) = self.gpus.into_values().partition(is_board);
        Some(self.node)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::source) fn sample(labels: &[(&str, &str)], value: f64) -> Sample {
        Sample { labels: labels.iter().copied().collect(), value, time: 0.0 }
    }

    fn on(name: &str, instance: &str, value: f64) -> Sample {
        sample(&[("__name__", name), ("instance", instance)], value)
    }

    #[test]
    fn a_job_that_ended_between_two_scrapes_has_the_cpus_that_it_held() {
        let cpus = |held: f64, end: f64| {
            let mut building = Building::default();
            for (name, value) in
                [(START, 100.0), (END, end), ("jobledger_job_allocated_cpu_seconds_total", held)]
            {
                building.add(&on(name, "n1:9810", value));
            }
            building.finish().unwrap().values.get(&metric::CPUS)
        };
        assert_eq!(cpus(8.001, 102.0), Some(4.0));
        assert_eq!(cpus(7.0, 102.0), None, "its CPUs changed");
        assert_eq!(cpus(0.2, 100.05), None, "times are exported in milliseconds");
        assert_eq!(cpus(0.0, 102.0), None);
    }

    #[test]
    fn answers_become_nodes_and_gpus() {
        let values = [
            on(START, "n2:9810", 100.0),
            on(START, "n1:9810", 101.0),
            on(END, "n1:9810", 400.0),
            on("jobledger_job_allocated_cpu_seconds_total", "n2:9810", 800.0),
            on("jobledger_job_cpus", "n2:9810", 4.0),
            sample(
                &[("__name__", "jobledger_job_cpu_seconds_total"), ("instance", "n2:9810"), ("mode", "user")],
                30.0,
            ),
            sample(
                &[
                    ("__name__", "jobledger_job_cpu_seconds_total"),
                    ("instance", "n2:9810"),
                    ("mode", "system"),
                ],
                5.0,
            ),
            sample(
                &[
                    ("__name__", "jobledger_job_gpu_idle_seconds_total"),
                    ("instance", "n2:9810"),
                    ("gpu", "10"),
                    ("uuid", "b"),
                ],
                3.0,
            ),
            sample(
                &[
                    ("__name__", "jobledger_job_gpu_idle_seconds_total"),
                    ("instance", "n2:9810"),
                    ("gpu", "2"),
                    ("uuid", "a"),
                ],
                2.0,
            ),
            sample(
                &[
                    ("__name__", "jobledger_job_gpu_energy_joules_total"),
                    ("instance", "n2:9810"),
                    ("gpu", "2"),
                    ("uuid", "board"),
                ],
                7.0,
            ),
            on("jobledger_job_cpus", "lost:9810", 4.0),
        ];
        let others = [
            on(START, "n2:9810", 100.0),
            sample(
                &[
                    ("__name__", GPU_INFO),
                    ("instance", "n2:9810"),
                    ("gpu", "2"),
                    ("uuid", "a"),
                    ("model", "H100"),
                    ("shared", "true"),
                ],
                1.0,
            ),
            sample(&[], 2.0),
        ];
        let found = measured(&values, &others);
        assert_eq!(found.runs_seen, 3);
        let [n1, n2] = found.nodes.as_slice() else { panic!("{found:?}") };
        assert_eq!((n1.name.as_str(), n1.end, n1.seen_until, n1.running), ("n1", Some(400.0), 400.0, false));
        assert_eq!((n2.name.as_str(), n2.end, n2.seen_until, n2.running), ("n2", None, 300.0, true));
        assert_eq!(n2.values.get(&metric::CPU_SECONDS), Some(35.0));
        assert_eq!(n2.values.get(&metric::CPU_SYSTEM_SECONDS), Some(5.0));
        let gpus: Vec<_> =
            n2.gpus.iter().map(|gpu| (gpu.index.as_str(), gpu.model.as_str(), gpu.shared)).collect();
        assert_eq!(gpus, [("2", "H100", true), ("10", "", false)]);
        assert_eq!((n2.boards.len(), n2.total(&metric::GPU_ENERGY_JOULES)), (1, Some(7.0)));
        assert_eq!(
            found.exporters,
            [("n1:9810".to_owned(), String::new()), ("n2:9810".to_owned(), String::new())]
        );
    }

    #[test]
    fn runs_on_other_nodes_are_counted() {
        let seen = |name: &str, start, end| [on(START, name, start), on(END, name, end)];
        let values = [seen("n1", 100.0, 200.0), seen("n2", 150.0, 190.0), seen("n3", 300.0, 400.0)].concat();
        assert_eq!(measured(&values, &[]).runs_seen, 2);
        assert_eq!(measured(&values, &[sample(&[], 2.0)]).runs_seen, 3);
    }

    #[test]
    fn the_end_of_an_earlier_run_is_none() {
        let found = measured(&[on(START, "n", 500.0), on(END, "n", 400.0)], &[]);
        assert_eq!((found.nodes[0].end, found.nodes[0].seen_until), (None, 500.0));
    }
}
