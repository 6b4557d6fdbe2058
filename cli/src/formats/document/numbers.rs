//! Every number of a report with its definition, and every total.

use jiff::tz::TimeZone;
use job_report::metric::{self, Kind, Metric, Unit};
use job_report::show::{bytes, digits, percent, si, time};
use job_report::{Job, Numbers, Report};

use super::super::moment;
use super::super::table::{Head, Row};
use super::{Block, Table};

/// The key in JSON, a name, the value in words, and the definition.
type Number = (&'static str, &'static str, fn(&Numbers, (&Job, &TimeZone)) -> Option<String>, &'static str);

/// All of them, as `job_report::Numbers` defines them.
#[rustfmt::skip]
const NUMBERS: [Number; 40] = [
    ("elapsed_seconds", "Elapsed", |n, _| Some(time(n.elapsed_seconds)), "From the start on the first node to the end on the last, or to when it was last seen"),
    ("time_use", "Time limit used", |n, _| n.time_use.map(percent), "Elapsed of the time limit"),
    ("cpus", "CPUs", |n, _| n.cpus.map(digits), "Hardware threads held"),
    ("cores", "Cores", |n, _| n.cores.map(digits), "Cores that these are"),
    ("cpu_use", "CPU use", |n, _| n.cpu_use.map(percent), "CPU time used of the core time held; with SMT one thread on each core is all of it"),
    ("cpu_efficiency", "CPU efficiency", |n, _| n.cpu_efficiency.map(percent), "CPU time used of the CPU time held, as seff has it"),
    ("cores_used", "Cores used", |n, _| n.cores_used.map(digits), "CPU use times the cores"),
    ("cpu_system", "In the kernel", |n, _| n.cpu_system.map(percent), "CPU time used in the kernel of that in the kernel and in user mode"),
    ("memory_peak_bytes", "Memory, peak", |n, _| n.memory_peak_bytes.map(bytes), "The highest peak of a node, page cache included"),
    ("memory_peak_node", "Node of the peak", |n, (job, _)| job.nodes.get(n.memory_peak_node?).map(|node| node.name.clone()), "Which node that is"),
    ("memory_held_bytes", "Memory held", |n, _| n.memory_held_bytes.map(bytes), "The most that a node held and the kernel cannot drop, in a scrape"),
    ("memory_limit_bytes", "Memory limit", |n, _| n.memory_limit_bytes.map(bytes), "The lowest limit of a node"),
    ("memory_use", "Memory use", |n, _| n.memory_use.map(percent), "The highest peak of a limit"),
    ("memory_held_use", "Memory held of the limit", |n, _| n.memory_held_use.map(percent), "The most that was held of a limit"),
    ("gpus", "GPUs", |n, _| n.gpus.map(digits), "GPUs, or parts of divided ones"),
    ("gpu_use", "GPU busy", |n, _| n.gpu_use.map(percent), "Busy time of the time seen, GPUs that others had too left out"),
    ("gpu_seen", "GPUs seen", |n, _| n.gpu_seen.map(percent), "Part of the time held in which these GPUs were seen"),
    ("gpus_used", "GPUs used", |n, _| n.gpus_used.map(digits), "GPU busy times the GPUs that the job had alone"),
    ("gpu_idle_seconds", "GPU time idle", |n, _| n.gpu_idle_seconds.map(time), "Idle time of GPUs that the job had alone"),
    ("gpu_sm_active", "SM active", |n, _| n.gpu_sm_active.map(percent), "Part of the multiprocessors that worked, over the time that the job had these GPUs"),
    ("gpu_memory_use", "GPU memory use", |n, _| n.gpu_memory_use.map(percent), "The most memory used on a GPU of what that has"),
    ("gpus_alike", "Balance of GPUs", |n, _| n.gpus_alike.map(percent), "The mean GPU's use of the busiest one's"),
    ("nodes_alike", "Balance of nodes", |n, _| n.nodes_alike.map(percent), "The mean node's CPU use of the busiest one's"),
    ("cpus_alike", "Balance of CPUs", |n, _| n.cpus_alike.map(percent), "The mean CPU's instructions of the busiest one's, of those that worked, on the node where it is least"),
    ("cpus_alike_node", "Node of these", |n, (job, _)| job.nodes.get(n.cpus_alike_node?).map(|node| node.name.clone()), "Which node that is"),
    ("cores_idle", "Cores idle", |n, _| n.cores_idle.map(digits), "Cores of which no CPU worked, on average over its time"),
    ("waited_cpu", "Waited for a CPU", |n, _| n.waited_cpu.map(percent), "Part of the time in which a task waited, on the node where it was most"),
    ("waited_memory", "Waited for memory", |n, _| n.waited_memory.map(percent), "The same for memory"),
    ("waited_io", "Waited for storage", |n, _| n.waited_io.map(percent), "The same for storage"),
    ("slots_retiring", "Core capacity, useful", |n, _| n.slots_retiring.map(percent), "Part of the operations that the cores could have done that they did"),
    ("slots_bad_speculation", "Core capacity, lost", |n, _| n.slots_bad_speculation.map(percent), "Part that was lost to wrong guesses of branches"),
    ("slots_frontend", "Core capacity, no instructions", |n, _| n.slots_frontend.map(percent), "Part that waited for instructions"),
    ("slots_backend", "Core capacity, no data or units", |n, _| n.slots_backend.map(percent), "Part that waited for data or for units"),
    ("slots_memory", "Core capacity, waiting for memory", |n, _| n.slots_memory.map(percent), "The part of these that waited for memory, where the CPUs of all nodes count it"),
    ("vectors", "Operations vectorised", |n, _| n.vectors.map(percent), "Of the floating-point operations, where the CPUs count these apart"),
    ("flops_per_cycle", "Operations per cycle", |n, _| n.flops_per_cycle.map(digits), "Floating-point operations of each cycle of the CPUs"),
    ("energy_joules", "Energy", |n, _| n.energy_joules.map(|v| si(v / 3600.0, "Wh")), "CPUs, memory, the rest of the node and GPUs; of a job with GPUs only with theirs"),
    ("carbon_grams", "CO₂ equivalent", |n, _| n.carbon_grams.map(|v| si(v, "g")), "Of this energy, by the factor that the site sets"),
    ("longest_idle_seconds", "Longest idle", |n, _| n.longest_idle_seconds.map(time), "All GPUs, or without any all CPUs, did nothing at one stretch, after they had worked"),
    ("longest_idle_start", "Longest idle from", |n, (_, zone)| n.longest_idle_start.map(|at| moment(at, zone, "%d %b %H:%M:%S")), "When that began"),
];

/// Heads of the totals.
const ONE: [(&str, bool); 3] = [("what", false), ("all", true), ("name in files", false)];
const SEVERAL: [(&str, bool); 5] = [
    ("what", false),
    ("all nodes", true),
    ("node with least", true),
    ("with most", true),
    ("name in files", false),
];

/// The numbers that are known, and the totals.
pub(super) fn blocks(report: &Report, zone: &TimeZone) -> Vec<Block> {
    let row = |(_, name, value, definition): &Number| {
        let value = value(&report.numbers, (&report.job, zone))?;
        Some(vec![Some((*name).to_owned()), Some(value), Some((*definition).to_owned())])
    };
    let mut blocks = vec![Block::Table(Table {
        caption: "Numbers of this report",
        heads: vec![
            Head { name: "number", number: false },
            Head { name: "value", number: true },
            Head { name: "what it is", number: false },
        ],
        rows: NUMBERS.iter().filter_map(row).collect(),
        total: None,
    })];
    let rows: Vec<Row> = metric::ALL.iter().filter_map(|metric| total(&report.job, metric)).collect();
    if !rows.is_empty() {
        // What one node has is what all have.
        let heads = if report.job.nodes.len() > 1 { SEVERAL.as_slice() } else { ONE.as_slice() };
        blocks.push(Block::Table(Table {
            caption: "Totals",
            heads: heads.iter().map(|(name, number)| Head { name, number: *number }).collect(),
            rows,
            total: None,
        }));
    }
    blocks
}

/// A value in words, in its unit.
fn shown(metric: &Metric, value: f64) -> String {
    match metric.unit {
        Unit::Seconds => time(value),
        Unit::Bytes => bytes(value),
        Unit::Joules => si(value / 3600.0, "Wh"),
        Unit::Hertz => si(value, "Hz"),
        Unit::Celsius => format!("{} °C", digits(value)),
        Unit::Ratio => percent(value),
        Unit::Count if metric.kind == Kind::Counter => si(value, "").trim_end().to_owned(),
        Unit::Count => digits(value),
    }
}

fn total(job: &Job, metric: &'static Metric) -> Option<Row> {
    let total = job.total(metric)?;
    let of_nodes = || job.nodes.iter().filter_map(|node| node.total(metric));
    let mut row = vec![Some(metric.help.to_owned()), Some(shown(metric, total))];
    if job.nodes.len() > 1 {
        let of = |value: Option<f64>| value.map(|value| shown(metric, value));
        row.extend([of(of_nodes().reduce(f64::min)), of(of_nodes().reduce(f64::max))]);
    }
    row.push(Some(metric.key.to_owned()));
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn every_number_of_the_json_has_a_definition() {
        let report = testing::report(testing::job());
        let json = serde_json::to_value(&report.numbers).unwrap();
        let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut known: Vec<&str> = NUMBERS.iter().map(|(key, ..)| *key).collect();
        keys.sort_unstable();
        known.sort_unstable();
        assert_eq!(keys, known);
    }

    #[test]
    fn a_number_is_shown_where_it_is_known() {
        let report = testing::report(testing::job());
        let json = serde_json::to_value(&report.numbers).unwrap();
        for (key, _, value, _) in &NUMBERS {
            let shown = value(&report.numbers, (&report.job, &TimeZone::UTC));
            assert_eq!(shown.is_some(), !json[*key].is_null(), "{key}");
        }
    }
}
