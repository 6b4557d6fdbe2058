//! Tables of nodes, GPUs, energy and hardware counters.

use job_report::metric::{self, Metric};
use job_report::show::{bytes, digits, percent, si, time};
use job_report::{Gpu, Job, Node, Numbers, Report, Step, busiest_steps, ratio, steps as steps_of};

use super::super::nodes::busy;
use super::super::table::{Head, Row};
use super::{Block, Table};

/// A column: its head, a cell, and the cell of all together.
type Column<T> = (&'static str, fn(&T) -> Option<String>, fn(&Job) -> Option<String>);

fn none(_: &Job) -> Option<String> {
    None
}

const NODE: [Column<Node>; 14] = [
    ("CPUs", |node| node.values.get(&metric::CPUS).map(digits), |job| job.total(&metric::CPUS).map(digits)),
    ("CPU used", |node| node.cpu_use().map(percent), none),
    ("memory peak", |node| node.memory_peak().map(bytes), |job| job.most(Node::memory_peak).map(bytes)),
    (
        "held",
        |node| node.memory_held_bytes.map(bytes),
        |job| job.most(|node| node.memory_held_bytes).map(bytes),
    ),
    (
        "limit",
        |node| node.values.get(&metric::MEMORY_LIMIT_BYTES).map(bytes),
        |job| job.total(&metric::MEMORY_LIMIT_BYTES).map(bytes),
    ),
    (
        "GPUs",
        |node| Some(node.gpus.len()).filter(|gpus| *gpus > 0).map(|gpus| gpus.to_string()),
        |job| Some(job.gpus().count()).filter(|gpus| *gpus > 0).map(|gpus| gpus.to_string()),
    ),
    ("GPU busy", |node| busy(node).map(percent), none),
    (
        "read",
        |node| node.values.get(&metric::IO_READ_BYTES).map(bytes),
        |job| job.total(&metric::IO_READ_BYTES).map(bytes),
    ),
    (
        "written",
        |node| node.values.get(&metric::IO_WRITTEN_BYTES).map(bytes),
        |job| job.total(&metric::IO_WRITTEN_BYTES).map(bytes),
    ),
    (
        "IP in",
        |node| node.values.get(&metric::NETWORK_RECEIVED_BYTES).map(bytes),
        |job| job.total(&metric::NETWORK_RECEIVED_BYTES).map(bytes),
    ),
    (
        "IP out",
        |node| node.values.get(&metric::NETWORK_TRANSMITTED_BYTES).map(bytes),
        |job| job.total(&metric::NETWORK_TRANSMITTED_BYTES).map(bytes),
    ),
    (
        "IB in",
        |node| node.values.get(&metric::INFINIBAND_RECEIVED_BYTES).map(bytes),
        |job| job.total(&metric::INFINIBAND_RECEIVED_BYTES).map(bytes),
    ),
    (
        "IB out",
        |node| node.values.get(&metric::INFINIBAND_TRANSMITTED_BYTES).map(bytes),
        |job| job.total(&metric::INFINIBAND_TRANSMITTED_BYTES).map(bytes),
    ),
    ("energy", |node| energy_of(node).map(watt_hours), |job| all(job, energy_of).map(watt_hours)),
];

const GPU: [Column<Gpu>; 8] = [
    ("model", |gpu| Some(joined(&gpu.model, &gpu.profile)).filter(|model| !model.is_empty()), none),
    ("busy", |gpu| gpu.utilization().map(percent), none),
    ("SM active", |gpu| part(gpu, &metric::GPU_SM_ACTIVE_SECONDS), none),
    ("memory active", |gpu| part(gpu, &metric::GPU_DRAM_ACTIVE_SECONDS), none),
    ("memory peak", |gpu| gpu.values.get(&metric::GPU_MEMORY_PEAK_BYTES).map(bytes), none),
    (
        "of",
        |gpu| gpu.values.get(&metric::GPU_MEMORY_LIMIT_BYTES).map(bytes),
        |job| job.total(&metric::GPU_MEMORY_LIMIT_BYTES).map(bytes),
    ),
    (
        "energy",
        |gpu| gpu.values.get(&metric::GPU_ENERGY_JOULES).map(watt_hours),
        |job| job.total(&metric::GPU_ENERGY_JOULES).map(watt_hours),
    ),
    ("remark", |gpu| gpu.shared.then(|| "others had it, too".to_owned()), none),
];

fn watt_hours(joules: f64) -> String {
    si(joules / 3600.0, "Wh")
}

fn joined(model: &str, profile: &str) -> String {
    format!("{model} {profile}").trim().to_owned()
}

/// Of a node with GPUs only with theirs.
fn energy_of(node: &Node) -> Option<f64> {
    let cpus = node.values.get(&metric::ENERGY_JOULES)?;
    if node.gpus.is_empty() { Some(cpus) } else { Some(cpus + node.total(&metric::GPU_ENERGY_JOULES)?) }
}

/// The sum of what is known.
fn sum(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    values.into_iter().flatten().reduce(|a, b| a + b)
}

fn all(job: &Job, of: fn(&Node) -> Option<f64>) -> Option<f64> {
    sum(job.nodes.iter().map(of))
}

/// A part of the time for which the job had the GPU.
fn part(gpu: &Gpu, metric: &Metric) -> Option<String> {
    let held = gpu.values.get(&metric::GPU_ALLOCATED_SECONDS).filter(|held| *held > 0.0)?;
    Some(percent((gpu.values.get(metric)? / held).min(1.0)))
}

/// A table of things with their names, without columns in which none has a cell.
fn table<T>(
    caption: &'static str,
    names: &[&'static str],
    columns: &[Column<T>],
    job: &Job,
    things: &[(Vec<String>, &T)],
) -> Table {
    let columns: Vec<&Column<T>> =
        columns.iter().filter(|(_, cell, _)| things.iter().any(|(_, thing)| cell(thing).is_some())).collect();
    let words = ["model", "remark"];
    let heads = names.iter().map(|name| Head { name, number: false });
    let heads = heads.chain(columns.iter().map(|(name, ..)| Head { name, number: !words.contains(name) }));
    let row = |(names, thing): &(Vec<String>, &T)| {
        names.iter().cloned().map(Some).chain(columns.iter().map(|(_, cell, _)| cell(thing))).collect()
    };
    let total = || {
        let rest = names.iter().skip(1).map(|_| Some(String::new()));
        // What has no total has an empty cell: it is not unknown.
        let cells = columns.iter().map(|(_, _, total)| Some(total(job).unwrap_or_default()));
        std::iter::once(Some("all".to_owned())).chain(rest).chain(cells).collect()
    };
    Table {
        caption,
        heads: heads.collect(),
        rows: things.iter().map(row).collect(),
        total: (things.len() > 1).then(total),
    }
}

pub(super) fn nodes_and_gpus(job: &Job) -> Vec<Block> {
    let nodes: Vec<_> = job.nodes.iter().map(|node| (vec![node.name.clone()], node)).collect();
    let gpus: Vec<_> =
        job.gpus().map(|(node, gpu)| (vec![node.name.clone(), gpu.index.clone()], gpu)).collect();
    let mut blocks = Vec::new();
    if !nodes.is_empty() {
        blocks.push(Block::Table(table(
            "Nodes; of peak and held the last row has the most",
            &["node"],
            &NODE,
            job,
            &nodes,
        )));
    }
    if !gpus.is_empty() {
        blocks.push(Block::Table(table("GPUs", &["node", "GPU"], &GPU, job, &gpus)));
    }
    blocks
}

fn flops_of_busy_cpu(total: impl Fn(&Metric) -> Option<f64>) -> Option<String> {
    ratio(total(&metric::FLOPS), total(&metric::COUNTED_CPU_SECONDS)).map(|rate| si(rate, "FLOP/s"))
}

fn instructions_a_cycle(total: impl Fn(&Metric) -> Option<f64>) -> Option<String> {
    ratio(total(&metric::INSTRUCTIONS), total(&metric::CYCLES)).map(digits)
}

fn columns_of_steps<'a>() -> [Column<Step<'a>>; 13] {
    [
        (
            "nodes",
            |step| Some(step.parts.len()).filter(|nodes| *nodes > 0).map(|nodes| nodes.to_string()),
            none,
        ),
        ("tasks", |step| Some(step.tasks).filter(|tasks| *tasks > 0).map(|tasks| tasks.to_string()), none),
        ("CPUs", |step| step.total(&metric::CPUS).map(digits), none),
        (
            "CPU time",
            |step| step.total(&metric::CPU_SECONDS).map(time),
            |job| job.total(&metric::CPU_SECONDS).map(time),
        ),
        (
            "memory peak",
            |step| step.most(&metric::MEMORY_PEAK_BYTES).map(bytes),
            |job| job.most(Node::memory_peak).map(bytes),
        ),
        (
            "read",
            |step| step.total(&metric::IO_READ_BYTES).map(bytes),
            |job| job.total(&metric::IO_READ_BYTES).map(bytes),
        ),
        (
            "written",
            |step| step.total(&metric::IO_WRITTEN_BYTES).map(bytes),
            |job| job.total(&metric::IO_WRITTEN_BYTES).map(bytes),
        ),
        (
            "IP in",
            |step| step.total(&metric::NETWORK_RECEIVED_BYTES).map(bytes),
            |job| job.total(&metric::NETWORK_RECEIVED_BYTES).map(bytes),
        ),
        (
            "IP out",
            |step| step.total(&metric::NETWORK_TRANSMITTED_BYTES).map(bytes),
            |job| job.total(&metric::NETWORK_TRANSMITTED_BYTES).map(bytes),
        ),
        (
            "instr. per cycle",
            |step| instructions_a_cycle(|metric| step.total(metric)),
            |job| instructions_a_cycle(|metric| job.total(metric)),
        ),
        (
            "per busy CPU",
            |step| flops_of_busy_cpu(|metric| step.total(metric)),
            |job| flops_of_busy_cpu(|metric| job.total(metric)),
        ),
        (
            "loaded",
            |step| step.total(&metric::MEMORY_LOAD_BYTES).map(bytes),
            |job| job.total(&metric::MEMORY_LOAD_BYTES).map(bytes),
        ),
        ("OOM kills", |step| step.total(&metric::OOM_KILLS).filter(|kills| *kills > 0.0).map(digits), none),
    ]
}

/// Rows of the table of steps.
const MOST_STEPS: usize = 30;

pub(super) fn steps(job: &Job) -> Vec<Block> {
    let shown = busiest_steps(&job.nodes, MOST_STEPS);
    let rows: Vec<_> = shown.iter().map(|step| (vec![step.name.to_owned()], step)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let table = table(
        "Steps; memory is of the node that had the most, and the last row is the job",
        &["step"],
        &columns_of_steps(),
        job,
        &rows,
    );
    let rest = steps_of(&job.nodes).len() - rows.len();
    let rest = (rest > 0).then(|| Block::Lines(vec![format!("{rest} more steps used less CPU time each.")]));
    std::iter::once(Block::Table(table)).chain(rest).collect()
}

pub(super) fn energy(report: &Report, missing: &mut Vec<&'static str>) -> Vec<Block> {
    let (job, numbers) = (&report.job, &report.numbers);
    let Some(all) = numbers.energy_joules.filter(|all| *all > 0.0) else {
        missing.push("Energy");
        return Vec::new();
    };
    let packages = job.total(&metric::ENERGY_PACKAGE_JOULES);
    let cores =
        ("… of these the cores", job.total(&metric::ENERGY_CORE_JOULES).filter(|_| packages.is_some()));
    let known = [
        ("CPU packages", packages),
        ("memory", job.total(&metric::ENERGY_DRAM_JOULES)),
        ("rest of the node: board, fans, losses", job.total(&metric::ENERGY_OVERHEAD_JOULES)),
        ("GPUs", job.total(&metric::GPU_ENERGY_JOULES)),
    ];
    let rest = all - known.iter().filter_map(|(_, joules)| *joules).sum::<f64>();
    let others = [("others", Some(rest).filter(|rest| *rest > 0.001 * all))];
    let row = |name: &str, joules: f64| -> Row {
        let mean = (numbers.elapsed_seconds > 0.0).then(|| si(joules / numbers.elapsed_seconds, "W"));
        vec![Some(name.to_owned()), Some(watt_hours(joules)), Some(percent(joules / all)), mean]
    };
    let [first, rest @ ..] = &known;
    // A part of a part is no part of the sum.
    let rows = [first, &cores].into_iter().chain(rest).chain(&others);
    let rows = rows.filter_map(|(name, joules)| Some(row(name, (*joules)?))).collect();
    let table = Table {
        caption: "Energy by domain",
        heads: vec![
            Head { name: "domain", number: false },
            Head { name: "energy", number: true },
            Head { name: "part", number: true },
            Head { name: "mean power", number: true },
        ],
        rows,
        total: Some(row("all", all)),
    };
    let carbon = numbers.carbon_grams.map(|grams| {
        let factor = job.grams_per_joule.map(|grams| digits(grams * 3.6e6)).unwrap_or_default();
        format!("{} of CO₂ equivalent, at {factor} g for each kilowatt hour.", si(grams, "g"))
    });
    let carbon = carbon.map(|line| Block::Lines(vec![line]));
    std::iter::once(Block::Table(table)).chain(carbon).collect()
}

pub(super) fn counters(job: &Job, missing: &mut Vec<&'static str>) -> Vec<Block> {
    let numbers = Numbers::of(job);
    let total = |metric| job.total(metric);
    let ratio = |part: Option<f64>, whole: Option<f64>| {
        Some(part? / whole.filter(|whole| *whole > 0.0)?).filter(|ratio| ratio.is_finite())
    };
    let elapsed = Some(job.elapsed());
    let (flops, traffic) = (total(&metric::FLOPS), total(&metric::MEMORY_TRAFFIC_BYTES));
    let counted = total(&metric::COUNTED_CPU_SECONDS);
    let rows = [
        ("Floating-point operations", flops.map(|flops| si(flops, "FLOP"))),
        ("… for each second", ratio(flops, elapsed).map(|rate| si(rate, "FLOP/s"))),
        ("… for each second of a busy CPU", ratio(flops, counted).map(|rate| si(rate, "FLOP/s"))),
        ("… for each byte of memory traffic", ratio(flops, traffic).map(|each| si(each, "FLOP"))),
        ("… for each cycle of a core", numbers.flops_per_cycle.map(digits)),
        ("Instructions", total(&metric::INSTRUCTIONS).map(|count| si(count, "").trim_end().to_owned())),
        ("… for each cycle", ratio(total(&metric::INSTRUCTIONS), total(&metric::CYCLES)).map(digits)),
        ("Operations vectorised", numbers.vectors.map(percent)),
        ("Core capacity with useful work", numbers.slots_retiring.map(percent)),
        ("… that waited for data or units", numbers.slots_backend.map(percent)),
        ("… that waited for memory", numbers.slots_memory.map(percent)),
        ("… that waited for instructions", numbers.slots_frontend.map(percent)),
        ("… that was lost to wrong guesses", numbers.slots_bad_speculation.map(percent)),
        ("Balance of a node's CPUs", numbers.cpus_alike.map(percent)),
        ("Idle cores", numbers.cores_idle.map(digits)),
        ("Memory traffic", traffic.map(bytes)),
        ("… for each second", ratio(traffic, elapsed).map(|rate| format!("{}/s", bytes(rate)))),
        ("Loaded from memory, as the cores count", total(&metric::MEMORY_LOAD_BYTES).map(bytes)),
        (
            "CPU time counted of that used",
            ratio(counted, total(&metric::CPU_SECONDS)).map(|part| percent(part.min(1.0))),
        ),
    ];
    let row = |(name, value): (&str, Option<String>)| -> Option<Row> {
        Some(vec![Some(name.to_owned()), Some(value?)])
    };
    let rows: Vec<Row> = rows.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        missing.push("Hardware counters");
        return Vec::new();
    }
    vec![Block::Table(Table {
        caption: "Hardware counters of CPUs, all nodes",
        heads: vec![Head { name: "counter", number: false }, Head { name: "value", number: true }],
        rows,
        total: None,
    })]
}
