//! A row over time for each node and each GPU: who waited for whom.

use job_report::metric::{self, Metric};
use job_report::{Curve, Curves, Job};
use svg_plots::{HeatMap, Row, Unit};

use super::curves::{LEAST_BINS, span, with_time};
use super::{Block, Drawing, Place};

/// A name and its values.
type Values = Vec<(String, Vec<f64>)>;

/// One of a single row would be a curve once more.
pub(super) fn blocks(place: &Place<'_>) -> Vec<Block> {
    let job = &place.report.job;
    let Some(curves) = job.curves.as_ref().filter(|curves| curves.bins() >= LEAST_BINS) else {
        return Vec::new();
    };
    let maps = [
        ("CPUs used of those held, each node", cpus(job, curves)),
        ("Memory held of the limit, each node", memory(job, curves)),
        ("GPU busy, each GPU", gpus(job, curves)),
    ];
    maps.into_iter()
        .filter(|(_, rows)| rows.len() > 1)
        .map(|(title, rows)| Block::Drawing(drawing(place, curves, title, &rows)))
        .collect()
}

fn of_node<'a>(curves: &'a Curves, metric: &'a Metric, node: usize) -> Option<&'a Curve> {
    curves.of(metric).find(|curve| curve.node == Some(node))
}

fn cpus(job: &Job, curves: &Curves) -> Values {
    let row = |(at, node): (usize, &job_report::Node)| {
        let held = node.values.get(&metric::CPUS).filter(|held| *held > 0.0)?;
        let used = of_node(curves, &metric::CPU_SECONDS, at)?;
        Some((node.name.clone(), used.values.iter().map(|used| used / held).collect()))
    };
    job.nodes.iter().enumerate().filter_map(row).collect()
}

/// What the kernel cannot drop.
fn memory(job: &Job, curves: &Curves) -> Values {
    let row = |(at, node): (usize, &job_report::Node)| {
        let limit = node.values.get(&metric::MEMORY_LIMIT_BYTES).filter(|limit| *limit > 0.0)?;
        let anon = of_node(curves, &metric::MEMORY_ANON_BYTES, at)?;
        let shared = of_node(curves, &metric::MEMORY_SHMEM_BYTES, at)?;
        let parts = anon.values.iter().zip(&shared.values).map(|(anon, shared)| (anon + shared) / limit);
        Some((node.name.clone(), parts.collect()))
    };
    job.nodes.iter().enumerate().filter_map(row).collect()
}

/// The busy part of the time in which each was seen.
fn gpus(job: &Job, curves: &Curves) -> Values {
    let mut rows = Vec::new();
    for idle in curves.of(&metric::GPU_IDLE_SECONDS) {
        let Some(node) = idle.node.and_then(|node| job.nodes.get(node)) else { continue };
        let Some(gpu) = idle.gpu.and_then(|gpu| node.gpus.get(gpu)) else { continue };
        let values = curves.gpu_busy(idle);
        let name =
            if job.nodes.len() > 1 { format!("{} {}", node.name, gpu.index) } else { gpu.index.clone() };
        rows.push(((idle.node, idle.gpu), (name, values)));
    }
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn drawing(place: &Place<'_>, curves: &Curves, title: &str, rows: &Values) -> Drawing {
    let mean = |(name, values): &(String, Vec<f64>)| {
        curves.summary(values).map(|summary| (name.clone(), summary.mean))
    };
    let means: Vec<(String, f64)> = rows.iter().filter_map(mean).collect();
    let named = |found: Option<&(String, f64)>| {
        found.map(|(name, mean)| format!("{} on {name}", Unit::Percent.show(*mean))).unwrap_or_default()
    };
    let least = means.iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
    let most = means.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    let description = format!("{} rows, means from {} to {}.", rows.len(), named(least), named(most));
    let svg = with_time(place.zone, |axis| {
        HeatMap {
            title,
            description: &description,
            axis,
            span: span(curves),
            unit: Unit::Percent,
            at_least: Some((0.0, 1.0)),
            rows: rows.iter().map(|(label, values)| Row { label, values }).collect(),
        }
        .svg(&place.canvas)
    });
    Drawing { description: format!("{title}: {description}"), svg }
}
