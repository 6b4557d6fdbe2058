//! GPUs whose driver fails in all its ways, and nodes without one. Rows 10 to 13 and 26, and what GPUs share with others.

mod absent;
mod amd;
mod driver;
mod hanging;
mod left_behind;
mod lost;
mod parts;
mod release;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Kind};
use jobledger_testkit::machine::Machine;
use jobledger_testkit::nvml::FakeNvml;

use crate::support::*;

/// Eight that work a little.
const EIGHT: &str = "gpus 8\ngpu 0 util 50 10 0 0 0 0\n";
const NVIDIA: &str = "nvidia";

/// A node with NVIDIA's GPUs. Who has one says a prolog's file.
struct Gpus {
    node: Node,
    fake: FakeNvml,
}

impl Gpus {
    fn new(text: &str) -> Self {
        Self::with(FakeNvml::new(text), 1..=2)
    }

    fn with(fake: FakeNvml, jobs: std::ops::RangeInclusive<u32>) -> Self {
        let node = Node::with_jobs(jobs);
        node.0.write("dev/nvidiactl", "").mkdir("run/orders");
        let gpus = Self { node, fake };
        gpus.give(0, 1);
        gpus.give(1, 2);
        gpus
    }

    fn give(&self, gpu: u32, job: u32) {
        self.node.0.write(format!("run/gpustat/{gpu}"), format!("{job}\n"));
    }

    fn socket(&self) -> PathBuf {
        self.node.0.path("run/orders/control.sock")
    }

    /// Flags, but for the library.
    fn flags_without_library(&self, more: &[&str]) -> Vec<String> {
        let gpustat = format!("--collector.gpu.gpustat-dir={}", self.node.0.path("run/gpustat").display());
        let socket = format!("--control.socket={}", self.socket().display());
        let period = more.iter().find(|flag| flag.starts_with("--collector.gpu.period="));
        let mut flags = vec![&*gpustat, &*socket, "--security.no-device-helper"];
        flags.extend(period.is_none().then_some("--collector.gpu.period=1s"));
        self.node.flags(&[&flags, more].concat())
    }

    fn flags(&self, more: &[&str]) -> Vec<String> {
        let library = format!("--collector.gpu.nvml-library={}", self.fake.library().display());
        self.flags_without_library(&[&[&*library], more].concat())
    }

    fn start(&self, more: &[&str]) -> Exporter {
        Exporter::start(BINARY, &self.flags(more))
    }

    /// Gives an order, as an admin does.
    fn order(&self, order: &str) -> Output {
        let socket = format!("--control.socket={}", self.socket().display());
        Command::new(BINARY).args(["gpu", order, &socket]).output().unwrap()
    }
}

fn up(now: &Exposition) -> BTreeMap<String, bool> {
    now.named("jobledger_gpu_up").map(|s| (s.label("gpu").unwrap().to_owned(), s.value == 1.0)).collect()
}

fn all_up(now: &Exposition) -> bool {
    up(now).len() == 8 && up(now).values().all(|up| *up)
}

/// The GPUs with a sample of a family.
fn gpus_in(now: &Exposition, family: &str) -> Vec<String> {
    let mut gpus: Vec<_> = now.named(family).map(|s| s.label("gpu").unwrap().to_owned()).collect();
    gpus.sort();
    gpus.dedup();
    gpus
}

const TEMPERATURE: &str = "jobledger_gpu_temperature_celsius";

fn state(now: &Exposition, vendor: &str) -> String {
    let states = now.named("jobledger_gpu_driver_state");
    let is: Vec<_> = states
        .filter(|s| s.label("vendor") == Some(vendor) && s.value == 1.0)
        .map(|s| s.label("state").unwrap().to_owned())
        .collect();
    is.join(", ")
}

/// Names of the threads.
fn threads(exporter: &Exporter) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", exporter.pid())).unwrap().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

/// What is counted of GPUs and jobs: no counter goes back, and every account balances.
#[derive(Default)]
struct Accounts(BTreeMap<String, f64>);

impl Accounts {
    fn check(&mut self, now: &Exposition) {
        for family in now.families.iter().filter(|f| f.kind == Kind::Counter && f.name.contains("_gpu_")) {
            for sample in &family.samples {
                let series = format!("{}{:?}", sample.name, sample.labels);
                let before = self.0.insert(series.clone(), sample.value).unwrap_or(0.0);
                assert!(sample.value >= before, "{series}: {before}, then {}", sample.value);
            }
        }
        for quantity in ["busy_seconds", "energy_joules", "pcie_received_bytes"] {
            let mut sums: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
            let names = [
                (format!("jobledger_gpu_{quantity}_total"), 0),
                (format!("jobledger_job_gpu_{quantity}_total"), 1),
                (format!("jobledger_gpu_unattributed_{quantity}_total"), 1),
            ];
            for (name, side) in &names {
                for sample in now.named(name) {
                    sums.entry(sample.label("uuid").unwrap()).or_default()[*side] += sample.value;
                }
            }
            for (uuid, [measured, charged]) in sums {
                assert!(
                    (measured - charged).abs() < 1e-6,
                    "{quantity} of {uuid}: {measured} is not {charged}"
                );
            }
        }
    }
}

fn of_gpu(now: &Exposition, name: &str, gpu: u32) -> Option<f64> {
    now.value(name, &[("gpu", &gpu.to_string())])
}

fn of_job_and_gpu(now: &Exposition, name: &str, job: u32, gpu: u32) -> Option<f64> {
    let of = |s: &&jobledger_testkit::exposition::Sample| {
        s.label("jobid") == Some(&*job.to_string()) && s.label("gpu") == Some(&*gpu.to_string())
    };
    let all: Vec<f64> = now.named(name).filter(of).map(|s| s.value).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

/// Waits until the driver was read once more, from its beginning.
fn read_anew(exporter: &Exporter) -> Exposition {
    let begun = std::time::Instant::now();
    until("a reading", || {
        let asked = begun.elapsed().as_secs_f64();
        let now = scrape(exporter);
        // The period is a second: this reading is not one that was under way.
        let anew = |age: f64| asked - age > 1.2;
        // What is released is not read.
        let released = state(&now, NVIDIA) == "released";
        let all = now.named("jobledger_gpu_reading_age_seconds").all(|sample| anew(sample.value));
        if (all || released) && asked > 2.3 { Ok(now) } else { Err(String::new()) }
    })
}

fn machine(fixture: &str) -> Node {
    Node(Machine::fixture(fixture))
}
