//! GPUs: what a scrape costs with them, what a reading costs beside the same questions asked bare, and what finding out
//! costs which job has which while nothing changes. The fake library answers at once: what a driver takes for its answers
//! comes on top, in the floor and in the exporter alike.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use bpf::device::{MOST_PROGRAMS, effective};
use gpu_binding::{BindOptions, Binder, DeviceAccessSource, KernelDeviceAccess, ProcessesOnUnits};
use gpu_devices::{Backend, Unit, Wanted, amd, intel, nvml};
use jobledger_exporter::collector::devices::gpu::{GpuOptions, backends};
use jobledger_testkit::crowd::{Crowd, FIRST_ID};
use jobledger_testkit::device_programs::{ALLOW_OVERRIDE, Rule, attach, load, slurm};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::footprint::{peak_rss_kib, rss_kib};
use jobledger_testkit::machine::Machine;
use jobledger_testkit::nvml::FakeNvml;
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::strace;
use kernel_files::Roots;

use crate::bare::Bare;
use crate::config;
use crate::direct::Direct;
use crate::floor::Floor;
use crate::stats::{cost, median, row};

const EIGHT: &str = "gpus 8\ngpu 0 util 50 10 0 0 0 0\n";
const GPUS: u32 = 8;
const JOBS: u32 = 100;
const ROUNDS: usize = 400;

pub(crate) fn measure(groups: bool) {
    println!("\n## GPUs\n");
    println!("Median CPU time, microseconds.\n");
    scrapes();
    readings();
    bindings(groups);
    memory();
}

fn nvidia(fake: &FakeNvml) -> nvml::Options {
    nvml::Options { library: Some(fake.library()), ..nvml::Options::default() }
}

/// The middles of what two things cost, measured in turn.
fn in_turn(mut one: impl FnMut(), mut other: impl FnMut()) -> (f64, f64) {
    (0..10).for_each(|_| (one(), other()).1);
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ones.push(cost(&mut one));
        others.push(cost(&mut other));
    }
    (median(&mut ones), median(&mut others))
}

/// A prolog's files that give each of the first eight jobs a GPU.
fn gpustat() -> Scratch {
    let dir = Scratch::new("gpustat");
    for gpu in 0..GPUS {
        fs::write(dir.path().join(gpu.to_string()), format!("{}\n", FIRST_ID + gpu)).unwrap();
    }
    dir
}

/// A scrape of a node with jobs, with eight GPUs and without the collector.
fn scrapes() {
    println!("\nA scrape of {JOBS} jobs on one thread, {GPUS} GPUs of which {GPUS} jobs have one each:\n");
    row(&["", "series", "scrape", "the collector", "ratio"]);
    row(&["---", "---:", "---:", "---:", "---:"]);
    let (fake, dir, mut crowd) = (FakeNvml::new(EIGHT), gpustat(), Crowd::recorded());
    crowd.grow_to(JOBS);
    let mut with = crowd.flags();
    with.push(format!("--collector.gpu.gpustat-dir={}", dir.path().display()));
    let mut without = crowd.flags();
    without.push("--no-collector.gpu".to_owned());
    let gpus = GpuOptions {
        gpustat_dir: Some(dir.path().to_owned()),
        // Read once: the scrapes are what is measured.
        period: Duration::from_secs(300),
        backends: backends(nvidia(&fake)),
        ..GpuOptions::default()
    };
    let mut plain = Direct::new(&config(&without));
    let mut nothing = Direct::with(
        &config(&with),
        GpuOptions { backends: backends(nvml::Options::default()), ..GpuOptions::default() },
    );
    let mut direct = Direct::with(&config(&with), gpus);
    direct.scrape();
    sleep(Duration::from_secs(2));
    let (mut base, mut none, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        base.push(cost(|| plain.scrape()));
        none.push(cost(|| nothing.scrape()));
        all.push(cost(|| direct.scrape()));
    }
    let base = median(&mut base);
    let emit = |what: &str, scrape: f64, of: &mut Direct| {
        let cells = [of.series().to_string(), format!("{scrape:.0}"), format!("{:.1}", of.part("gpu"))];
        row(&[what, &cells[0], &cells[1], &cells[2], &format!("{:.3}", scrape / base)]);
    };
    emit("without the collector", base, &mut plain);
    emit("no GPU", median(&mut none), &mut nothing);
    emit("eight GPUs", median(&mut all), &mut direct);
}

/// A reading of all GPUs beside the same calls, or the same files, without anything else.
fn readings() {
    println!("\nA reading of all GPUs, which is made every ten seconds and when jobs come and go:\n");
    row(&["GPUs", "calls or files", "floor", "reading", "ratio"]);
    row(&["---", "---:", "---:", "---:", "---:"]);
    let fake = FakeNvml::new(EIGHT);
    let nowhere = Arc::new(Roots::new("/nowhere", "/nowhere", "/nowhere", "/nowhere"));
    let mut backend = nvml::NvmlBackend::new(nowhere, nvidia(&fake));
    let mut sample = || drop(backend.sample(Wanted::default()).unwrap());
    (0..3).for_each(|_| sample());
    let ((), calls) = fake.calls(&mut sample);
    let mut bare = Bare::open(&fake.library(), GPUS, &calls);
    let ((), asked) = fake.calls(|| bare.run());
    assert_eq!(asked, calls, "the floor is the same calls");
    let (floor, reading) = in_turn(|| bare.run(), sample);
    let count: u32 = calls.values().sum();
    print_reading("8 of NVIDIA, a fake library", count as usize, floor, reading);
    for fixture in ["gpu-mi250", "gpu-mi300", "gpu-intel-xe"] {
        let machine = Machine::fixture(fixture);
        let mut flags = machine.path_flags();
        flags.extend(
            ["--collector.disable-defaults", "--collector.gpu", "--collector.gpu.period=1s"]
                .map(str::to_owned),
        );
        let roots = config(&flags).roots.clone();
        let mut floor = files_of_a_reading(flags);
        let roots = Arc::new(roots);
        let mut backend: Box<dyn Backend> = match fixture {
            "gpu-intel-xe" => Box::new(intel::Intel::new(&roots)),
            _ => Box::new(amd::Amd::new(&roots)),
        };
        let files = floor.files();
        let (bare, reading) = in_turn(|| floor.run(), || drop(backend.sample(Wanted::default()).unwrap()));
        print_reading(fixture, files, bare, reading);
    }
}

fn print_reading(what: &str, count: usize, floor: f64, reading: f64) {
    let ratio = format!("{:.2}", reading / floor);
    row(&[what, &count.to_string(), &format!("{floor:.0}"), &format!("{reading:.0}"), &ratio]);
}

/// The files of sysfs that the running binary reads while nobody scrapes.
fn files_of_a_reading(mut flags: Vec<String>) -> Floor {
    flags.push("--log.level=error".to_owned());
    let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags);
    let _ = exporter.metrics();
    sleep(Duration::from_secs(3));
    let of_sysfs = |call: &strace::Call| call.file().is_some_and(|file| file.contains("/sys/"));
    let mut calls = strace::during(exporter.pid(), || sleep(Duration::from_millis(1300)), of_sysfs);
    calls.retain(of_sysfs);
    Floor::of_calls(&calls, exporter.pid())
}

/// Who has which GPU, while nothing changes.
fn bindings(groups: bool) {
    println!(
        "\nWhich of {JOBS} jobs has which of {GPUS} GPUs, at every scrape and reading, nothing having changed:\n"
    );
    row(&["source", "floor", "binding", "ratio"]);
    row(&["---", "---:", "---:", "---:"]);
    let fake = FakeNvml::new(EIGHT);
    let nowhere = Arc::new(Roots::new("/nowhere", "/nowhere", "/nowhere", "/nowhere"));
    let sample = nvml::NvmlBackend::new(nowhere, nvidia(&fake)).sample(Wanted::default()).unwrap();
    let units: Vec<Arc<Unit>> = sample.units.iter().map(|unit| unit.unit.clone()).collect();
    let dir = gpustat();
    let files = BindOptions { gpustat_dir: Some(dir.path().to_owned()), ..BindOptions::default() };
    let mut crowd = Crowd::recorded();
    crowd.grow_to(JOBS);
    let names: Vec<PathBuf> = (0..GPUS).map(|gpu| dir.path().join(gpu.to_string())).collect();
    let floor = || names.iter().for_each(|name| drop(fs::read(name).unwrap()));
    bind("a prolog's files", &crowd, files, None, &units, floor);
    if groups {
        let mut crowd = Crowd::real().expect("a cgroup2 mount");
        crowd.grow_to(JOBS);
        let dirs = constrain(&crowd);
        let floor = || {
            for dir in &dirs {
                let mut room = [0; MOST_PROGRAMS];
                effective(dir.as_fd(), &mut room).unwrap();
            }
        };
        let kernel: Box<dyn DeviceAccessSource> = Box::new(KernelDeviceAccess::default());
        bind("device programs, in this process", &crowd, BindOptions::default(), Some(kernel), &units, floor);
    }
}

/// Gives each job a program of SLURM's, and opens their directories.
fn constrain(crowd: &Crowd) -> Vec<OwnedFd> {
    let open = |number: u32| {
        let group = crowd.job_group(FIRST_ID + number).expect("real groups");
        let rules: Vec<Rule> = (0..GPUS)
            .map(|minor| Rule { allowed: minor == number % GPUS, major: 195, minor: minor.cast_signed() })
            .collect();
        attach(&group, &load(&slurm(&rules)).unwrap(), ALLOW_OVERRIDE).unwrap();
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        rustix::fs::open(&group, flags, rustix::fs::Mode::empty()).unwrap()
    };
    (0..JOBS).map(open).collect()
}

fn bind(
    what: &str,
    crowd: &Crowd,
    options: BindOptions,
    access_source: Option<Box<dyn DeviceAccessSource>>,
    units: &[Arc<Unit>],
    floor: impl FnMut(),
) {
    let config = config(&crowd.flags());
    let mut direct = Direct::new(&config);
    let snapshot = direct.snapshot();
    let jobs: Vec<_> = snapshot.jobs.clone();
    assert_eq!(jobs.len(), JOBS as usize);
    let mut binder = Binder::new(Arc::new(config.roots.clone()), options, access_source);
    let processes = ProcessesOnUnits::default();
    let (bare, own) = in_turn(floor, || drop(binder.bind(&jobs, &snapshot.scopes, units, &processes)));
    row(&[what, &format!("{bare:.0}"), &format!("{own:.0}"), &format!("{:.2}", own / bare)]);
}

/// The binary with eight GPUs, and its helper.
fn memory() {
    println!("\nMemory of the binary with {JOBS} jobs, KiB:\n");
    row(&["", "RSS", "peak", "helper's RSS"]);
    row(&["---", "---:", "---:", "---:"]);
    let (fake, dir, mut crowd) = (FakeNvml::new(EIGHT), gpustat(), Crowd::recorded());
    crowd.grow_to(JOBS);
    let dev = Scratch::new("dev");
    fs::write(dev.path().join("nvidiactl"), "").unwrap();
    let mut base = crowd.flags();
    base.retain(|flag| !flag.starts_with("--path.dev="));
    base.extend([format!("--path.dev={}", dev.path().display()), "--log.level=error".to_owned()]);
    let own = [
        format!("--collector.gpu.nvml-library={}", fake.library().display()),
        format!("--collector.gpu.gpustat-dir={}", dir.path().display()),
        "--collector.gpu.period=1s".to_owned(),
    ];
    for (what, more) in
        [("without the collector", &["--no-collector.gpu".to_owned()][..]), ("eight GPUs", &own)]
    {
        let flags = [&base, more].concat();
        let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags);
        for _ in 0..20 {
            let _ = exporter.metrics();
            sleep(Duration::from_millis(200));
        }
        let pid = exporter.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let helper: Vec<String> =
            children.split_whitespace().map(|child| rss_kib(child.parse().unwrap()).to_string()).collect();
        row(&[what, &rss_kib(pid).to_string(), &peak_rss_kib(pid).to_string(), &helper.join(" ")]);
    }
}
