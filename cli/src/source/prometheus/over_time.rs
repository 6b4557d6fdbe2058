//! What is known over the time of a job: curves, what it held at most, what its nodes are, how much of it was scraped.

use job_report::metric::{self, Level};
use job_report::part::{OF_PARTS, series_of_parts};
use job_report::{Curves, Metric, busiest_steps};
use prometheus_api::Range;

use super::find::WHO;
use super::runs::Found;
use super::selector::{any_of, matcher, named, range};
use super::{Prometheus, Wanted};
use crate::Failure;
use crate::series::{OF_NODES, START};
use crate::source::labels::merged;
use crate::source::measured::Measured;
use crate::source::{OF_PLOTTED_STEPS, PLOTTED_STEPS, Parts, endings, round_step};

/// Curves have bins of at least so many seconds: scrapes are as far apart.
const LEAST_STEP: f64 = 15.0;
/// The most that a job held is looked at so often.
const HELD_STEPS: f64 = 1500.0;

/// An ended job is exported for so long at most (--jobs.retention-max), and some scrapes.
pub(super) const RETAINED: f64 = 3600.0 + 300.0;

impl Prometheus {
    /// Adds it.
    pub(super) async fn over_time(
        &self,
        selector: &[String],
        found: &mut Found,
        wanted: &Wanted<'_>,
    ) -> Result<(), Failure> {
        let (at, from, measured) = (found.at, found.from, &mut found.measured);
        let start = measured.nodes.iter().map(|node| node.start).fold(f64::INFINITY, f64::min);
        let end = measured.nodes.iter().map(|node| node.seen_until).fold(start, f64::max).max(start + 1.0);
        let time = end - start;
        let of_job = |name: &str, more: &[&str]| {
            let matchers: Vec<&str> =
                selector.iter().map(String::as_str).chain(more.iter().copied()).collect();
            format!("{name}{}", self.scope.selector(&matchers))
        };
        let held = format!(
            "max by (instance, slurm_node) (max_over_time(({} + {})[{}ms:{}ms]))",
            of_job("jobledger_job_memory_anon_bytes", &[]),
            of_job("jobledger_job_memory_shmem_bytes", &[]),
            (time * 1000.0).ceil(),
            // Subqueries are evaluated at multiples of their step.
            ((time / HELD_STEPS).max(LEAST_STEP) * 1000.0).ceil(),
        );
        let facts = format!(
            "{} or {}",
            self.hardware(&measured.exporters, range(time.min(86_400.0) + 300.0)),
            self.endings_of_run(selector, (start, end), at),
        );
        // Scrapes that had it; and how far apart they are, by a target that answers.
        let one = measured
            .exporters
            .first()
            .map(|(instance, _)| matcher("instance", "=", instance))
            .unwrap_or_default();
        let scrapes = format!(
            "{} or max(max_over_time(count_over_time(up{}[5m]){every}))",
            seen(&format!("count_over_time({}{})", of_job(START, &[]), range(time))),
            self.scope.or_none(&[&one]),
            every = format_args!("[{}ms:5m]", (time.clamp(300.0, 86_400.0) * 1000.0).ceil()),
        );
        let curves = async {
            if wanted.curves.is_empty() || wanted.bins == 0 {
                return Ok((0.0, Vec::new()));
            }
            let bins = wanted.bins.min(affordable(measured, wanted));
            let step = wanted.step.unwrap_or_else(|| round_step(time, bins, LEAST_STEP));
            let of_parts = match wanted.parts {
                Parts::Curves => names_of_parts(wanted.curves),
                Parts::None | Parts::Totals | Parts::Plots => Vec::new(),
            };
            let more = of_parts.iter().map(String::as_str).chain([metric::CPU_ALLOCATED_SECONDS.series]);
            let mut series = of_job("", &[&named(wanted.curves, &more.collect::<Vec<_>>())]);
            let has_gpus = measured.nodes.iter().any(|node| !node.gpus.is_empty());
            let others = wanted.curves.iter().filter(|metric| match metric.level {
                Level::Node | Level::Gpu => false,
                Level::Device => has_gpus,
                Level::Host => true,
            });
            if others.clone().next().is_some() {
                // These name no job: those of other GPUs are left out later.
                series += &format!(" or {}", self.on_hosts(&measured.exporters, &named(others, &[])));
            }
            let answer = self.client.query_range(&series, ends(start, end, step)).await;
            answer.map(|series| (step, merged(series, &self.scope.cluster_label)))
        };
        // What steps did is shown as long as the job is.
        let parts = async {
            if wanted.parts == Parts::None {
                return Ok(Vec::new());
            }
            let names = names_of_parts(&OF_PARTS);
            let names = any_of("__name__", names.iter().map(String::as_str));
            let until = (end + RETAINED).min(at).max(end);
            // Steps of an earlier run are shown until readers have its end.
            let since = from.max(start).min(until);
            let last = format!("last_over_time({}{})", of_job("", &[&names]), range(until - since));
            self.client.query(&self.scope.parts(&last), until).await
        };
        let known_at = (end + RETAINED).min(at).max(end);
        let (changes, held, facts, scrapes, parts, (step, mut series)) = tokio::try_join!(
            self.changes(selector, (from, known_at)),
            self.client.query(&held, end),
            self.client.query(&facts, end),
            self.client.query(&scrapes, end),
            parts,
            curves
        )?;
        measured.add_changes(changes);
        if measured.evidence.cpus_changed {
            // How long it was seen does not follow from the CPU time that it held.
            measured.nodes.iter_mut().filter(|node| node.running).for_each(|node| node.seen_until = at);
        }
        measured.add_held(&held);
        measured.add_parts(&parts);
        measured.add_others(&facts);
        measured.add_coverage(&scrapes);
        if step > 0.0 {
            let plotted = match wanted.parts {
                Parts::Plots => plotted_steps(measured, ends(start, end, step)),
                Parts::None | Parts::Totals | Parts::Curves => Vec::new(),
            };
            if !plotted.is_empty() {
                let names = OF_PLOTTED_STEPS.into_iter().filter_map(series_of_parts).map(|[step, _]| step);
                let names = any_of("__name__", names.collect::<Vec<_>>().iter().map(String::as_str));
                let steps = of_job("", &[&names, &any_of("step", plotted)]);
                let answer = self.client.query_range(&steps, ends(start, end, step)).await?;
                series.extend(merged(answer, &self.scope.cluster_label));
            }
            measured.curves = Some(measured.draw(Curves::new(start, end, step), &series, wanted.curves));
        }
        Ok(())
    }
}

/// How often a node was scraped: with --metric.job-labels it has another series once a name is known, and a target may be scraped twice.
fn seen(counts: &str) -> String {
    format!("max by (instance, slurm_node) (sum without ({}) ({counts}))", WHO.join(", "))
}

/// The ends of bins.
fn ends(start: f64, end: f64, step: f64) -> Range {
    let bins = Curves::new(start, end, step).bins();
    let count = f64::from(u32::try_from(bins).unwrap_or(u32::MAX));
    Range { start: start + step, end: start + count * step, step }
}

/// The steps that plots show, as far as their values are not too many for a server. One alone is the job.
fn plotted_steps(measured: &Measured, range: Range) -> Vec<&str> {
    let bins = Curves::new(range.start - range.step, range.end, range.step).bins();
    let of_each = measured.nodes.len() * OF_PLOTTED_STEPS.len() * bins;
    let most = PLOTTED_STEPS.min(MOST_VALUES / of_each.max(1));
    let steps = busiest_steps(&measured.nodes, most);
    if steps.len() < 2 { Vec::new() } else { steps.iter().map(|step| step.name).collect() }
}

/// The exporter's series of steps and tasks of those metrics that they have.
fn names_of_parts(metrics: &[&'static Metric]) -> Vec<String> {
    metrics.iter().filter_map(|metric| series_of_parts(metric)).flatten().collect()
}

/// Of a divided GPU its parts are counted.
const NOT_DIVIDED: &str = "divided!=\"true\"";
/// A selector of more hosts than this is dearer than the answer for all of them.
const MOST_HOSTS: usize = 300;

impl Prometheus {
    /// What prolog and epilog said of a run. How it ended is known after that, and what was known before its start is of another run.
    pub(super) fn endings_of_run(&self, selector: &[String], (start, end): (f64, f64), at: f64) -> String {
        let known_at = (end + RETAINED).min(at).max(end);
        format!("last_over_time({}{} @ {known_at:.3})", self.endings(selector), range(known_at - start))
    }

    /// The series of that.
    pub(super) fn endings(&self, selector: &[String]) -> String {
        let names = any_of("__name__", endings::SERIES);
        let matchers: Vec<&str> = selector.iter().map(String::as_str).chain([names.as_str()]).collect();
        self.scope.selector(&matchers)
    }

    /// The series of these exporters that match; those of all if there are many.
    fn on_hosts(&self, exporters: &[(String, String)], what: &str) -> String {
        if exporters.len() > MOST_HOSTS {
            return self.scope.selector(&[what]);
        }
        let hosts = any_of("instance", exporters.iter().map(|(instance, _)| instance.as_str()));
        self.scope.selector(&[what, &hosts])
    }

    /// What these nodes are, and the grams of CO2 of a kilowatt hour.
    pub(super) fn hardware(&self, exporters: &[(String, String)], range: String) -> String {
        let nodes = self.on_hosts(exporters, &any_of("__name__", OF_NODES));
        let (factor, cluster) = (self.scope.or_none(&[]), &self.scope.cluster_label);
        let gpus = self.on_hosts(exporters, NOT_DIVIDED);
        // `or` does not look at names, so that a count of GPUs needs a label of its own.
        format!(
            "last_over_time({nodes}{range}) or max by ({cluster}) (jobledger:carbon_factor:grams_per_kwh{factor}) \
             or label_replace(count by (instance, {cluster}) (group by (instance, {cluster}, uuid) (last_over_time(jobledger_gpu_info{gpus}{range}))), \
             \"of\", \"gpus\", \"\", \"\")"
        )
    }
}

/// Values of curves that one report asks for: some 40 MB of an answer.
const MOST_VALUES: usize = 1_500_000;
/// A report has so many bins whatever it has of nodes.
const LEAST_BINS: usize = 120;

/// Bins whose values are not too many for a server, by the nodes and GPUs of the job.
fn affordable(measured: &Measured, wanted: &Wanted<'_>) -> usize {
    let of = |level| wanted.curves.iter().filter(|metric| metric.level == level).count();
    let gpus: usize = measured.nodes.iter().map(|node| node.gpus.len()).sum();
    let series = measured.nodes.len() * of(Level::Node) + gpus * of(Level::Gpu);
    (MOST_VALUES / series.max(1)).max(LEAST_BINS)
}

/// The curves of a report in words: those of its numbers and its advice.
pub static OF_REPORTS: &[&Metric] = &[
    &metric::CPU_SECONDS,
    &metric::MEMORY_ANON_BYTES,
    &metric::MEMORY_SHMEM_BYTES,
    &metric::MEMORY_USED_BYTES,
    &metric::ENERGY_JOULES,
    &metric::WAITED_IO_SECONDS,
    &metric::GPU_BUSY_SECONDS,
    &metric::GPU_IDLE_SECONDS,
    &metric::GPU_ENERGY_JOULES,
    &metric::GPU_MEMORY_USED_BYTES,
];

/// Those of a report with plots.
pub static OF_PAGES: &[&Metric] = &[
    &metric::CPU_SECONDS,
    &metric::MEMORY_USED_BYTES,
    &metric::MEMORY_ANON_BYTES,
    &metric::MEMORY_SHMEM_BYTES,
    &metric::IO_READ_BYTES,
    &metric::IO_WRITTEN_BYTES,
    &metric::LUSTRE_READ_BYTES,
    &metric::LUSTRE_WRITTEN_BYTES,
    &metric::NFS_READ_BYTES,
    &metric::NFS_WRITTEN_BYTES,
    &metric::NETWORK_RECEIVED_BYTES,
    &metric::NETWORK_TRANSMITTED_BYTES,
    &metric::INFINIBAND_RECEIVED_BYTES,
    &metric::INFINIBAND_TRANSMITTED_BYTES,
    &metric::ENERGY_JOULES,
    &metric::ENERGY_PACKAGE_JOULES,
    &metric::ENERGY_DRAM_JOULES,
    &metric::ENERGY_OVERHEAD_JOULES,
    &metric::INSTRUCTIONS,
    &metric::CYCLES,
    &metric::FLOPS,
    &metric::MEMORY_LOAD_BYTES,
    &metric::MEMORY_TRAFFIC_BYTES,
    &metric::HBM_TRAFFIC_BYTES,
    &metric::WAITED_CPU_SECONDS,
    &metric::WAITED_MEMORY_SECONDS,
    &metric::WAITED_IO_SECONDS,
    &metric::GPU_BUSY_SECONDS,
    &metric::GPU_IDLE_SECONDS,
    &metric::GPU_SM_ACTIVE_SECONDS,
    &metric::GPU_TENSOR_ACTIVE_SECONDS,
    &metric::GPU_DRAM_ACTIVE_SECONDS,
    &metric::GPU_MEMORY_USED_BYTES,
    &metric::GPU_ENERGY_JOULES,
    &metric::GPU_PCIE_RECEIVED_BYTES,
    &metric::GPU_PCIE_TRANSMITTED_BYTES,
    &metric::GPU_LINK_RECEIVED_BYTES,
    &metric::GPU_LINK_TRANSMITTED_BYTES,
];

#[cfg(test)]
mod tests {
    use job_report::{Gpu, Node};

    use super::*;
    use crate::source::WhichRun;

    #[test]
    fn bins_are_fewer_where_there_are_many_series() {
        let bins = |nodes, gpus| {
            let node = Node { gpus: vec![Gpu::default(); gpus], ..Node::default() };
            let measured = Measured { nodes: vec![node; nodes], ..Measured::default() };
            let id = "1".parse().unwrap();
            let wanted = Wanted {
                id: &id,
                run: WhichRun::Last,
                bins: 600,
                step: None,
                curves: OF_PAGES,
                parts: Parts::None,
            };
            wanted.bins.min(affordable(&measured, &wanted))
        };
        assert_eq!([bins(1, 8), bins(64, 0), bins(64, 4), bins(1000, 0)], [600, 600, 330, 120]);
    }

    #[test]
    fn pages_have_the_curves_of_reports() {
        assert!(OF_REPORTS.iter().all(|metric| OF_PAGES.contains(metric)));
    }
}
