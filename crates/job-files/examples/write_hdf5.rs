//! Writes a fixed job as HDF5 in both layouts, and what is in it as JSON: `write_hdf5 DIRECTORY`. For tests/report.

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;

use job_files::hdf5::{About, Layout, write};
use job_files::{atomic, json};
use job_report::metric::{self, Metric};
use job_report::{Curves, Ended, Gpu, Hardware, Identity, Job, Node, Origin, Report, Thresholds};

const START: f64 = 1_795_421_500.0;
/// The last bin is shorter than the others.
const END: f64 = START + 19.5 * STEP;
const STEP: f64 = 60.0;
const MIB: f64 = 1024.0 * 1024.0;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: write_hdf5 DIRECTORY")?);
    let notes = vec!["a note \u{2713}".to_owned(), String::new()];
    let report = Report::new(job(), &Thresholds::shipped()?, notes);
    atomic::write(&directory.join("report.json"), |to| json::write(&report, to))?;
    let about = About { source: Some("http://prometheus:9090".to_owned()), generated: END + 7.25 };
    for (layout, name) in [(Layout::Jobledger, "jobledger.h5"), (Layout::Slurm, "slurm.h5")] {
        write(report.clone(), &about, layout, File::create(directory.join(name))?)?;
    }
    Ok(())
}

/// Two nodes, three GPUs, gaps, and names that are meant to break paths, tables and terminals.
fn job() -> Job {
    let gpu = |index: &str, uuid: &str| Gpu {
        index: index.to_owned(),
        uuid: uuid.to_owned(),
        model: "H\u{f6}llenmaschine\0".to_owned(),
        ..Gpu::default()
    };
    let node = |name: &str, gpus| Node {
        name: name.to_owned(),
        start: START,
        end: Some(END),
        seen_until: END,
        hardware: Hardware { cpus: Some(32.0), cores: Some(16.0), ..Hardware::default() },
        gpus,
        coverage: Some(0.75),
        ..Node::default()
    };
    let mut job = Job {
        id: 7,
        cluster: Some("c1".to_owned()),
        identity: Identity {
            user: "alice".to_owned(),
            account: "physics".to_owned(),
            name: "=cmd|' /C calc'!A0 \u{1b}[31m\u{202e} \0 \u{1f525}".to_owned(),
            ..Identity::default()
        },
        run: 1,
        runs: 1,
        ended: Some(Ended {
            state: "COMPLETED".to_owned(),
            origin: Origin::Derived,
            exit_code: Some(0),
            signal: None,
        }),
        time_limit: Some(7200.0),
        nodes_allocated: Some(2),
        queued_seconds: None,
        nodes: vec![
            node("../n1,\"x\"\n", vec![gpu("0", "GPU-a"), gpu("1", "GPU-\u{fc}/b")]),
            node("", vec![gpu("0", "")]),
        ],
        curves: Some(Curves::new(START, END, STEP)),
        grams_per_joule: None,
        restarts: None,
        evidence: job_report::Evidence::default(),
    };
    for index in 0..job.nodes.len() {
        fill(&mut job, index);
    }
    job
}

/// Numbers that differ between nodes, GPUs and bins. The second node lacks some of what the first one has.
fn fill(job: &mut Job, index: usize) {
    let Some(curves) = &mut job.curves else { return };
    let Some(node) = job.nodes.get_mut(index) else { return };
    let factor = 1.0 + 2.0 * (index as f64);
    let first = index == 0;
    node.values.set(&metric::CPUS, 4.0 * factor);
    let mut counter = |metric: &'static Metric, gpu: Option<usize>, rate: f64| {
        let at = |time: f64| rate * factor * ((time - START) + 10.0 * (time / 97.0).sin().abs());
        let points: Vec<_> = curves.ends().map(|end| (end, at(end))).collect();
        curves.add((metric, Some(index), gpu), &points, Some((END, at(END))));
        let values = match gpu {
            Some(gpu) => node.gpus.get_mut(gpu).map(|gpu| &mut gpu.values),
            None => Some(&mut node.values),
        };
        values.into_iter().for_each(|values| values.set(metric, at(END)));
    };
    counter(&metric::CPU_SECONDS, None, 1.5);
    counter(&metric::CPU_USER_SECONDS, None, 1.25);
    counter(&metric::ENERGY_JOULES, None, 120.3);
    counter(&metric::IO_READ_BYTES, None, 3.5 * MIB);
    counter(&metric::LUSTRE_READ_BYTES, None, 1.75 * MIB);
    counter(&metric::LUSTRE_WRITTEN_BYTES, None, 0.3 * MIB);
    counter(&metric::INFINIBAND_RECEIVED_BYTES, None, 11.0 * MIB);
    counter(&metric::INFINIBAND_TRANSMITTED_BYTES, None, 7.0 * MIB);
    counter(&metric::NETWORK_RECEIVED_BYTES, None, 0.5 * MIB);
    counter(&metric::NETWORK_TRANSMITTED_BYTES, None, 0.25 * MIB);
    counter(&metric::CYCLES, None, 3.3e9);
    counter(&metric::COUNTED_CPU_SECONDS, None, 1.4);
    if first {
        counter(&metric::PAGE_FAULTS_MAJOR, None, 2.0);
        counter(&metric::SYSCALL_WRITTEN_BYTES, None, 0.5 * MIB);
    }
    counter(&metric::IO_WRITTEN_BYTES, None, 0.1 * MIB);
    let gpus = if first { 2 } else { 1 };
    for gpu in 0..gpus {
        counter(&metric::GPU_BUSY_SECONDS, Some(gpu), 0.2 + 0.1 * gpu as f64);
        counter(&metric::GPU_IDLE_SECONDS, Some(gpu), 0.7);
        counter(&metric::GPU_ENERGY_JOULES, Some(gpu), 55.0 + 20.0 * gpu as f64);
    }
    // A gauge is not seen in every third bin of the second node.
    let seen = |bin: usize| first || bin % 3 != 1;
    let mut gauge = |metric, gpu, value: f64| {
        let points = curves.ends().enumerate().filter(|(bin, _)| seen(*bin));
        let points: Vec<_> = points.map(|(bin, end)| (end, (value + bin as f64) * factor)).collect();
        curves.add((metric, Some(index), gpu), &points, None);
    };
    gauge(&metric::MEMORY_ANON_BYTES, None, 1e9);
    gauge(&metric::MEMORY_SHMEM_BYTES, None, 5e8);
    gauge(&metric::PROCESSES, None, 3.0);
    for gpu in 0..gpus {
        gauge(&metric::GPU_MEMORY_USED_BYTES, Some(gpu), (gpu as f64 + 1.0) * 1e9);
    }
}
