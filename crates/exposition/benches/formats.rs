//! What each format costs for the same samples, in turn, in one process, by its CPU clock: nanoseconds for a sample, bytes
//! for a sample. Prints a table; docs/performance.md says what is in it.

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a measurement"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use exposition::{Created, Family, Section, Value, encode_openmetrics_with, encode_protobuf, encode_text};

const JOBS: u64 = 500;
const ROUNDS: usize = 200;

static SECONDS: [Family; 6] = [
    Family::counter("jobledger_job_cpu_seconds_total").help("Help"),
    Family::counter("jobledger_job_pressure_seconds_total").help("Help"),
    Family::counter("jobledger_job_gpu_busy_seconds_total").help("Help"),
    Family::counter("jobledger_job_gpu_idle_seconds_total").help("Help"),
    Family::counter("jobledger_job_energy_joules_total").help("Help"),
    Family::counter("jobledger_job_alone_seconds_total").help("Help"),
];
static COUNTS: [Family; 6] = [
    Family::counter("jobledger_job_io_read_bytes_total").help("Help"),
    Family::counter("jobledger_job_io_written_bytes_total").help("Help"),
    Family::counter("jobledger_job_io_operations_total").help("Help"),
    Family::counter("jobledger_job_page_faults_total").help("Help"),
    Family::counter("jobledger_job_oom_kills_total").help("Help"),
    Family::counter("jobledger_job_memory_limit_hits_total").help("Help"),
];
static GAUGES: [Family; 8] = [
    Family::gauge("jobledger_job_memory_used_bytes").help("Help"),
    Family::gauge("jobledger_job_memory_peak_bytes").help("Help"),
    Family::gauge("jobledger_job_memory_anon_bytes").help("Help"),
    Family::gauge("jobledger_job_memory_file_bytes").help("Help"),
    Family::gauge("jobledger_job_cpus").help("Help"),
    Family::gauge("jobledger_job_processes").help("Help"),
    Family::gauge("jobledger_job_threads").help("Help"),
    Family::gauge("jobledger_job_gpu_utilization_ratio").help("Help"),
];

/// Samples as a node with many jobs has them: two of each counter, with a label.
fn sections() -> (Vec<Arc<Section>>, usize) {
    let mut section = Section::default();
    for nth in 0..JOBS {
        let id = (4_000_000 + nth).to_string();
        let job = section.subject_since([("jobid", id.as_str())], Some(1_700_000_000.123_456 + nth as f64));
        for mode in ["user", "system"] {
            for (at, family) in (1_u64..).zip(&SECONDS) {
                section.push(family, job, &[("mode", mode)], Value::micro(at * 7_007_159_177 + nth));
            }
            for (at, family) in (1_u64..).zip(&COUNTS) {
                section.push(family, job, &[("mode", mode)], at * 123_456_789 * nth);
            }
        }
        for (at, family) in (1_u64..).zip(&GAUGES) {
            let value = if at == 8 { Value::Float(nth as f64 / 7.0) } else { (at * nth * 4096).into() };
            section.push(family, job, &[], value);
        }
    }
    let samples = section.len();
    (vec![Arc::new(section)], samples)
}

/// An encoder, which says how many bytes it wrote.
type Encoder = fn(&[Arc<Section>]) -> usize;

fn text(sections: &[Arc<Section>]) -> usize {
    let mut out = String::with_capacity(4 << 20);
    encode_text(sections, &mut out).unwrap();
    black_box(&out).len()
}

fn openmetrics(sections: &[Arc<Section>], created: Created) -> usize {
    let mut out = String::with_capacity(8 << 20);
    encode_openmetrics_with(sections, created, &mut out).unwrap();
    black_box(&out).len()
}

fn protobuf(sections: &[Arc<Section>]) -> usize {
    let mut out = Vec::with_capacity(4 << 20);
    encode_protobuf(sections, &mut out);
    black_box(&out).len()
}

fn main() {
    let (sections, samples) = sections();
    let formats: [(&str, Encoder); 4] = [
        ("text 0.0.4", text),
        ("OpenMetrics", |sections| openmetrics(sections, Created::LeftOut)),
        ("OpenMetrics with _created", |sections| openmetrics(sections, Created::Written)),
        ("protobuf", protobuf),
    ];
    let begun = Instant::now();
    let mut times = formats.map(|_| Vec::with_capacity(ROUNDS));
    let mut sizes = formats.map(|_| 0);
    for _ in 0..ROUNDS {
        for (((_, encode), times), size) in formats.iter().zip(&mut times).zip(&mut sizes) {
            let before = clocks::process_cpu_seconds();
            *size = encode(&sections);
            times.push(clocks::process_cpu_seconds() - before);
        }
    }
    println!("{samples} samples, {ROUNDS} rounds in {:.1} s", begun.elapsed().as_secs_f64());
    println!(
        "| format | ns for a sample | bytes for a sample | time, to text 0.0.4 | bytes, to text 0.0.4 |"
    );
    println!("|---|---|---|---|---|");
    let each = samples as f64;
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or_default() * 1e9 / each
    });
    let sizes = sizes.map(|size| size as f64 / each);
    for (((name, _), time), size) in formats.iter().zip(medians).zip(sizes) {
        let [first_time, ..] = medians;
        let [first_size, ..] = sizes;
        println!("| {name} | {time:.0} | {size:.0} | {:.2} | {:.2} |", time / first_time, size / first_size);
    }
}
