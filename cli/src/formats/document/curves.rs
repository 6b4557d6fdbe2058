//! Plots over the time of the job.

use jiff::tz::TimeZone;
use job_report::metric::{self, Metric};
use job_report::show::{bytes, digits};
use job_report::{Curve, Curves, Step, busiest_steps};
use svg_plots::{ClockUnit, Layer, Limit, LocalTime, Plot, TimeAxis, Unit, ValueAxis, XAxis};

use super::super::moment;
use super::{Block, Drawing, Place};
use crate::source::PLOTTED_STEPS;

/// Curves of fewer bins say no more than their means.
pub(super) const LEAST_BINS: usize = 3;

/// Names and values.
type Lines<'a> = Vec<(&'a str, Vec<f64>)>;

/// A plot.
struct Shown<'a> {
    title: &'static str,
    unit: Unit<'static>,
    lines: Lines<'a>,
    /// They are parts of a whole.
    stacked: bool,
    limit: Option<(f64, String)>,
}

impl<'a> Shown<'a> {
    fn lines(title: &'static str, unit: Unit<'static>, lines: Lines<'a>) -> Self {
        Self { title, unit, lines, stacked: false, limit: None }
    }
}

/// The plots of what was seen. What was not is added to what is missing.
pub(super) fn blocks(place: &Place<'_>, missing: &mut Vec<&'static str>) -> Vec<Block> {
    let curves = place.report.job.curves.as_ref().filter(|curves| curves.bins() >= LEAST_BINS);
    let Some(curves) = curves else {
        missing.push("curves (the job was too short, or nothing was seen of it over time)");
        return Vec::new();
    };
    let mut blocks = Vec::new();
    for mut shown in all(place, curves) {
        shown.lines.retain(|(_, values)| values.iter().any(|value| value.is_finite()));
        if shown.lines.is_empty() {
            missing.push(shown.title);
        } else {
            blocks.push(Block::Drawing(drawing(place, curves, &shown)));
        }
    }
    blocks
}

fn all(place: &Place<'_>, curves: &Curves) -> Vec<Shown<'static>> {
    let (job, numbers) = (&place.report.job, &place.report.numbers);
    let sums = |lines: &[(&'static str, &'static Metric)]| -> Lines<'static> {
        lines.iter().filter_map(|(name, metric)| Some((*name, curves.sum(metric)?))).collect()
    };
    let mut cpus = Shown::lines("CPUs used", Unit::Number, sums(&[("", &metric::CPU_SECONDS)]));
    cpus.limit = numbers.cpus.map(|cpus| (cpus, format!("{} held", digits(cpus))));
    let mut memory = Shown { stacked: true, ..Shown::lines("Memory", Unit::Binary("B"), memory(curves)) };
    memory.limit =
        job.total(&metric::MEMORY_LIMIT_BYTES).map(|limit| (limit, format!("limit {}", bytes(limit))));
    let mut plots = vec![cpus, memory];
    if job.gpus().next().is_some() {
        plots.extend(gpus(place, curves, &sums));
    }
    plots.push(Shown { stacked: true, ..Shown::lines("Power", Unit::Si("W"), power(place, curves)) });
    let (io, rate) = ("Read and written", Unit::Binary("B/s"));
    plots.push(Shown::lines(
        io,
        rate,
        sums(&[
            ("disks, read", &metric::IO_READ_BYTES),
            ("disks, written", &metric::IO_WRITTEN_BYTES),
            ("NFS, read", &metric::NFS_READ_BYTES),
            ("NFS, written", &metric::NFS_WRITTEN_BYTES),
            ("Lustre, read", &metric::LUSTRE_READ_BYTES),
            ("Lustre, written", &metric::LUSTRE_WRITTEN_BYTES),
        ]),
    ));
    plots.push(Shown::lines(
        "Network",
        rate,
        sums(&[
            ("IP, received", &metric::NETWORK_RECEIVED_BYTES),
            ("IP, sent", &metric::NETWORK_TRANSMITTED_BYTES),
            ("InfiniBand, received", &metric::INFINIBAND_RECEIVED_BYTES),
            ("InfiniBand, sent", &metric::INFINIBAND_TRANSMITTED_BYTES),
        ]),
    ));
    let waited = [
        ("for a CPU", &metric::WAITED_CPU_SECONDS),
        ("for memory", &metric::WAITED_MEMORY_SECONDS),
        ("for storage", &metric::WAITED_IO_SECONDS),
    ];
    let waited = waited.into_iter().filter_map(|(name, metric)| Some((name, curves.most(metric)?)));
    plots.push(Shown::lines("Part of the time in which a task waited", Unit::Percent, waited.collect()));
    plots.extend(counters(curves, &sums));
    plots
}

/// Plots of the busiest steps, where there are several. Where the exporter publishes none there is no plot, and nothing is missing.
pub(super) fn steps(place: &Place<'_>) -> Vec<Block> {
    let nodes = &place.report.job.nodes;
    let curves = place.report.job.curves.as_ref().filter(|curves| curves.bins() >= LEAST_BINS);
    let steps = busiest_steps(nodes, PLOTTED_STEPS);
    let (Some(curves), 2..) = (curves, steps.len()) else { return Vec::new() };
    let of = |metrics: &[&Metric]| -> Lines<'_> {
        let line = |step: &Step<'_>| {
            let is_of = |curve: &&Curve| {
                let part = curve.node.and_then(|node| nodes.get(node)?.parts.get(curve.part?));
                let is_it = part.is_some_and(|part| part.step == step.name && part.task.is_none());
                is_it && metrics.contains(&curve.metric)
            };
            curves.join(curves.of_parts.iter().filter(is_of), |sum, value| sum + value)
        };
        let lines = steps.iter().filter_map(|step| Some((step.name, line(step)?)));
        lines.filter(|(_, values)| values.iter().any(|value| value.is_finite())).collect()
    };
    let (cpus, memory) = ("CPUs used by each step", "Memory that each step held, without page cache");
    let held = of(&[&metric::MEMORY_ANON_BYTES, &metric::MEMORY_SHMEM_BYTES]);
    [(cpus, Unit::Number, of(&[&metric::CPU_SECONDS])), (memory, Unit::Binary("B"), held)]
        .into_iter()
        .filter(|(.., lines)| !lines.is_empty())
        .map(|(title, unit, lines)| Block::Drawing(drawing(place, curves, &Shown::lines(title, unit, lines))))
        .collect()
}

/// Parts that were read at slightly different times may be more than the whole. What is not known is not known of them, either.
fn not_below_zero(value: f64) -> f64 {
    if value < 0.0 { 0.0 } else { value }
}

/// What is charged and neither anonymous nor shared is page cache and what the kernel needs for the job.
fn memory(curves: &Curves) -> Lines<'static> {
    let (anon, shared) = (curves.sum(&metric::MEMORY_ANON_BYTES), curves.sum(&metric::MEMORY_SHMEM_BYTES));
    let rest = curves.sum(&metric::MEMORY_USED_BYTES).zip(anon.as_ref().zip(shared.as_ref()));
    let rest = rest.map(|(used, (anon, shared))| {
        used.iter().zip(anon.iter().zip(shared)).map(|(used, (a, s))| not_below_zero(used - a - s)).collect()
    });
    let parts = [("anonymous", anon), ("shared, tmpfs", shared), ("page cache, kernel", rest)];
    parts.into_iter().filter_map(|(name, values)| Some((name, values?))).collect()
}

/// Energy's domains are disjoint. Those without a part of their own here are one.
fn power(place: &Place<'_>, curves: &Curves) -> Lines<'static> {
    let domains = [
        ("CPU packages", curves.sum(&metric::ENERGY_PACKAGE_JOULES)),
        ("memory", curves.sum(&metric::ENERGY_DRAM_JOULES)),
        ("rest of the node", curves.sum(&metric::ENERGY_OVERHEAD_JOULES)),
    ];
    let mut parts: Lines<'_> =
        domains.into_iter().filter_map(|(name, values)| Some((name, values?))).collect();
    if let Some(all) = curves.sum(&metric::ENERGY_JOULES) {
        let known = |bin| parts.iter().filter_map(|(_, part)| part.get(bin)).sum::<f64>();
        let others: Vec<f64> =
            all.iter().enumerate().map(|(bin, all)| not_below_zero(all - known(bin))).collect();
        let seen = |values: &[f64]| values.iter().filter(|value| value.is_finite()).sum::<f64>();
        if seen(&others) > 0.001 * seen(&all) {
            parts.push(("others", others));
        }
    }
    let gpus = curves.sum(&metric::GPU_ENERGY_JOULES);
    // Without its GPUs' power it is not that of the job.
    if gpus.is_none() && place.report.job.gpus().next().is_some() {
        return Vec::new();
    }
    parts.extend(gpus.map(|gpus| ("GPUs", gpus)));
    parts
}

fn gpus(
    place: &Place<'_>,
    curves: &Curves,
    sums: &impl Fn(&[(&'static str, &'static Metric)]) -> Lines<'static>,
) -> Vec<Shown<'static>> {
    let job = &place.report.job;
    let mut lines: Lines<'_> = curves.gpus_busy().map(|busy| ("busy", busy)).into_iter().collect();
    lines.extend(sums(&[
        ("SM active", &metric::GPU_SM_ACTIVE_SECONDS),
        ("tensor cores active", &metric::GPU_TENSOR_ACTIVE_SECONDS),
        ("memory active", &metric::GPU_DRAM_ACTIVE_SECONDS),
    ]));
    let held = job.gpus().count();
    #[allow(clippy::cast_precision_loss, reason = "a number of GPUs")]
    let busy = Shown {
        limit: Some((held as f64, format!("{held} held"))),
        ..Shown::lines("GPUs at work", Unit::Number, lines)
    };
    let memory = Shown {
        limit: job
            .total(&metric::GPU_MEMORY_LIMIT_BYTES)
            .map(|limit| (limit, format!("there is {}", bytes(limit)))),
        ..Shown::lines("GPU memory", Unit::Binary("B"), sums(&[("", &metric::GPU_MEMORY_USED_BYTES)]))
    };
    let moved = [
        ("PCIe, received", &metric::GPU_PCIE_RECEIVED_BYTES),
        ("PCIe, sent", &metric::GPU_PCIE_TRANSMITTED_BYTES),
        ("links, received", &metric::GPU_LINK_RECEIVED_BYTES),
        ("links, sent", &metric::GPU_LINK_TRANSMITTED_BYTES),
    ];
    vec![busy, memory, Shown::lines("GPU transfers", Unit::Binary("B/s"), sums(&moved))]
}

fn counters(
    curves: &Curves,
    sums: &impl Fn(&[(&'static str, &'static Metric)]) -> Lines<'static>,
) -> Vec<Shown<'static>> {
    let each = curves.sum(&metric::INSTRUCTIONS).zip(curves.sum(&metric::CYCLES));
    let each = each.map(|(instructions, cycles)| {
        // Nothing ran in a bin without cycles.
        instructions.iter().zip(&cycles).map(|(instructions, cycles)| instructions / cycles).collect()
    });
    vec![
        Shown::lines("Floating-point operations of CPUs", Unit::Si("FLOP/s"), sums(&[("", &metric::FLOPS)])),
        Shown::lines("Instructions a cycle", Unit::Number, each.map(|each| ("", each)).into_iter().collect()),
        Shown::lines(
            "Memory traffic",
            Unit::Binary("B/s"),
            sums(&[
                ("DRAM", &metric::MEMORY_TRAFFIC_BYTES),
                ("HBM", &metric::HBM_TRAFFIC_BYTES),
                ("loads, as the cores count", &metric::MEMORY_LOAD_BYTES),
            ]),
        ),
    ]
}

fn drawing(place: &Place<'_>, curves: &Curves, shown: &Shown<'_>) -> Drawing {
    let edges: Vec<(f64, f64)> =
        std::iter::once(curves.start).chain(curves.ends()).zip(curves.ends()).collect();
    let points = |values: &[f64]| -> Vec<(f64, f64)> {
        let both = |((from, to), value): (&(f64, f64), &f64)| [(*from, *value), (*to, *value)];
        edges.iter().zip(values).flat_map(both).collect()
    };
    // A value is the mean of its bin, so it is level.
    let series: Vec<(&str, Vec<(f64, f64)>)> =
        shown.lines.iter().map(|(name, values)| (*name, points(values))).collect();
    let xs: Vec<f64> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let heights: Vec<(&str, Vec<f64>)> = series
        .iter()
        .map(|(name, points)| (*name, points.iter().map(|(_, value)| *value).collect()))
        .collect();
    let parts: Vec<(&str, &[f64])> =
        heights.iter().map(|(name, values)| (*name, values.as_slice())).collect();
    let layers = if shown.stacked {
        vec![Layer::Stack { xs: &xs, parts: &parts }]
    } else {
        series.iter().map(|(name, points)| Layer::Line { name, points }).collect()
    };
    let description = description(curves, shown);
    let svg = with_time(place.zone, |axis| {
        Plot {
            title: shown.title,
            description: &description,
            x: XAxis::Time { axis, range: Some(span(curves)) },
            y: ValueAxis::of(shown.unit),
            layers,
            limits: shown.limit.iter().map(|(value, label)| Limit { value: *value, label }).collect(),
            markers: Vec::new(),
        }
        .svg(&place.canvas)
    });
    Drawing { description: format!("{}: {description}", shown.title), svg }
}

/// Whole bins: a heat map has the last one as wide as the others.
#[allow(clippy::cast_precision_loss, reason = "a number of bins")]
pub(super) fn span(curves: &Curves) -> (f64, f64) {
    (curves.start, curves.end.max(curves.start + curves.bins() as f64 * curves.step))
}

/// Least, mean and greatest of each line, and the limit.
fn description(curves: &Curves, shown: &Shown<'_>) -> String {
    let show = |value: f64| shown.unit.show(value);
    let lines = shown.lines.iter().filter_map(|(name, values)| {
        let summary = curves.summary(values)?;
        let name = if name.is_empty() { String::new() } else { format!("{name} ") };
        Some(format!("{name}{} to {}, mean {}", show(summary.min), show(summary.max), show(summary.mean)))
    });
    lines.chain(shown.limit.iter().map(|(_, label)| label.clone())).collect::<Vec<_>>().join("; ") + "."
}

/// Has something drawn whose time is the clock's in a zone.
pub(super) fn with_time(zone: &TimeZone, draw: impl FnOnce(TimeAxis<'_>) -> String) -> String {
    let offset =
        |at: i64| jiff::Timestamp::from_second(at).map_or(0, |at| i64::from(zone.to_offset(at).seconds()));
    #[allow(clippy::cast_precision_loss, reason = "seconds since the epoch")]
    let label = |at: i64, unit: ClockUnit| {
        let format = match unit {
            ClockUnit::Day => "%d %b",
            ClockUnit::Minute => "%H:%M",
            ClockUnit::Second => "%H:%M:%S",
        };
        moment(at as f64, zone, format)
    };
    draw(TimeAxis::Local(LocalTime { offset: &offset, label: &label }))
}
