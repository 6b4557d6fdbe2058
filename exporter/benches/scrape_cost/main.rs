//! The cost of a scrape against two floors: the bare `pread` of exactly the files that the exporter reads in one, held
//! open, and their `openat`, `read` and `close`; with the `getdents64` of its walk, without parsing. All are measured in
//! turn, in one process, by its CPU clock. Prints tables; docs/performance.md says what is in them.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a measurement, not the exporter"
)]

mod bare;
mod beside;
mod counters;
mod direct;
mod floor;
mod gpu;
mod hand_over;
mod job_runs;
mod meters;
mod network;
mod profiles;
mod running;
mod sources;
mod stats;

use std::time::{Duration, Instant};

use direct::Direct;
use exporter_toolkit::{Bytes, Format, Selection};
use floor::Floor;
use jobledger_exporter::app::{Node, Opened};
use jobledger_exporter::cli::{self, Config, Invocation};
use jobledger_exporter::scrape::Engine;
use jobledger_testkit::allocations::{self, Counting};
use jobledger_testkit::cgroups::skip_without_groups;
use jobledger_testkit::crowd::Crowd;
use jobledger_testkit::strace;
use stats::{cpu, median, row};

#[global_allocator]
static COUNTING: Counting = Counting;

const SIZES: [u32; 4] = [1, 10, 100, 500];
/// CPU time spent on one comparison.
const BUDGET: Duration = Duration::from_secs(6);
const MOST_ROUNDS: usize = 2000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let wanted = |name: &str| {
        let names: Vec<_> = arguments.iter().skip(1).filter(|a| !a.starts_with('-')).collect();
        names.is_empty() || names.iter().any(|n| *n == name)
    };
    raise_descriptor_limit();
    if let Some(at) = arguments.iter().position(|argument| argument == "beside") {
        let own = arguments.iter().skip(at + 1).filter(|argument| *argument != "--bench");
        return beside::serve(&own.cloned().collect::<Vec<_>>());
    }
    let groups = !skip_without_groups();
    if !strace::is_there() {
        eprintln!("without strace the files of a scrape are not known, and there is no floor");
        std::process::exit(1);
    }
    if groups && wanted("real") {
        curve("real cgroup v2 directories", Crowd::real().expect("a cgroup2 mount"));
    }
    if groups && wanted("v1") {
        curve("real cgroup v1 directories", Crowd::real_v1().expect("v1's freezer"));
    }
    if wanted("recorded") {
        curve("recorded files on tmpfs, all controllers on", Crowd::recorded());
    }
    if wanted("profiles") {
        profiles::measure(groups);
    }
    if wanted("sources") {
        sources::each();
    }
    if wanted("meters") {
        meters::each();
    }
    if wanted("binary") {
        running::measure(groups);
    }
    if groups && wanted("network") {
        network::packets();
        network::scrapes();
    }
    if groups && wanted("counters") {
        counters::measure();
    }
    if groups && wanted("hand-over") {
        hand_over::measure();
    }
    if wanted("gpu") {
        gpu::measure(groups);
    }
    if groups && wanted("job-runs") {
        job_runs::whole_run();
        job_runs::first_page();
        job_runs::search();
    }
}

/// Runs what is compared in turns until enough CPU time was spent.
fn in_turns(mut round: impl FnMut()) {
    let begun = cpu();
    for _ in 0..MOST_ROUNDS {
        round();
        if cpu() - begun > BUDGET {
            break;
        }
    }
}

/// An exporter and the floor hold the files of 500 jobs open.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = Some(100_000);
    if setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: wanted }).is_err() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// The exporter's settings for these flags. Each scrape collects.
fn config(flags: &[String]) -> Box<Config> {
    let own = ["jobledger-exporter".to_owned(), "--scrape.min-interval=0s".to_owned()];
    let arguments = own.into_iter().chain(flags.iter().cloned());
    match cli::parse(arguments.map(Into::into)) {
        Ok(Invocation::Run(config)) => config,
        other => panic!("{other:?}"),
    }
}

/// The collecting part of an exporter, asked as the web side asks it.
struct Asked {
    runtime: tokio::runtime::Runtime,
    engine: Engine,
}

impl Asked {
    fn new(config: &Config) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, engine: Node::start(config, Opened::default()).unwrap().engine }
    }

    fn scrape(&self) -> Bytes {
        let deadline = Instant::now() + Duration::from_secs(60);
        self.runtime
            .block_on(self.engine.scrape(Selection::default(), Format::OpenMetrics, deadline))
            .unwrap()
            .body
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn curve(place: &str, mut crowd: Crowd) {
    println!("\n## A scrape and its floor: {place}\n");
    println!(
        "Median CPU time, microseconds; ratios of the medians to the pread of files that are held open.\n"
    );
    row(&[
        "jobs",
        "files",
        "series",
        "open, read, close",
        "pread",
        "scrape",
        "ratio",
        "one thread",
        "ratio",
        "allocations",
        "KiB",
    ]);
    row(&["---:"; 11]);
    let mut details = Vec::new();
    for jobs in SIZES {
        crowd.grow_to(jobs);
        let mut floor = Floor::of_the_running_exporter(&crowd);
        let config = config(&crowd.flags());
        let (mut whole, mut bare, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let (mut counts, mut bytes) = (Vec::new(), Vec::new());
        let asked = Asked::new(&config);
        (0..10).for_each(|_| {
            asked.scrape();
            floor.run();
        });
        in_turns(|| {
            bare.push(stats::cost(|| floor.run()));
            held.push(stats::cost(|| floor.run_held()));
            let before = allocations::so_far();
            whole.push(stats::cost(|| drop(asked.scrape())));
            let after = allocations::so_far();
            counts.push((after.count - before.count) as f64);
            bytes.push((after.bytes - before.bytes) as f64 / 1024.0);
        });
        // Not beside the other: all descriptors together would be more than a process may have.
        drop(asked);
        let mut direct = Direct::new(&config);
        (0..10).for_each(|_| direct.scrape());
        let (mut alone, mut held_then) = (Vec::new(), Vec::new());
        in_turns(|| {
            held_then.push(stats::cost(|| floor.run_held()));
            alone.push(stats::cost(|| direct.scrape()));
        });
        let (bare, held, whole) = (median(&mut bare), median(&mut held), median(&mut whole));
        let (alone, held_then) = (median(&mut alone), median(&mut held_then));
        row(&[
            &jobs.to_string(),
            &floor.files().to_string(),
            &direct.series().to_string(),
            &format!("{bare:.0}"),
            &format!("{held:.0}"),
            &format!("{whole:.0}"),
            &format!("{:.2}", whole / held),
            &format!("{alone:.0}"),
            &format!("{:.2}", alone / held_then),
            &format!("{:.0}", median(&mut counts)),
            &format!("{:.0}", median(&mut bytes)),
        ]);
        details.push((jobs, floor.calls(), direct.parts()));
    }
    for (jobs, calls, parts) in details.into_iter().filter(|(jobs, ..)| [1, 100].contains(jobs)) {
        println!(
            "\nSystem calls of one scrape of the release binary with jobs: {jobs}, no file held open: {calls}\n"
        );
        println!("Parts of that scrape with files held open, microseconds:\n");
        row(&["part", "all", "per job"]);
        row(&["---", "---:", "---:"]);
        for (name, usec) in parts {
            row(&[name, &format!("{usec:.1}"), &format!("{:.2}", usec / f64::from(jobs))]);
        }
    }
}
