//! What the exporter costs its node: wake-ups, allocations, memory, size, system calls. Nothing here is measured
//! with a clock; `make bench` does that.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy on a compute node; tests start processes and wait"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use exporter_toolkit::{Format, Selection};
use exposition::{Section, Value};
use jobledger_exporter::app::{Node, Opened};
use jobledger_exporter::cli::{self, Invocation};
use jobledger_exporter::collector::owners::OwnerOptions;
use jobledger_exporter::collector::{BuildContext, REGISTRY};
use jobledger_exporter::scrape::Engine;
use jobledger_testkit::allocations::{self, Counting};
use jobledger_testkit::cgroups::skip_without_groups;
use jobledger_testkit::crowd::{Crowd, FIRST_ID};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::footprint::{peak_rss_kib, switches};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::wait::eventually;
use jobledger_testkit::{http, strace};
use slurm_jobs::metadata::parse_metadata;
use slurm_jobs::{Job, Users};

#[global_allocator]
static COUNTING: Counting = Counting;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");

/// One test at a time: they count what their process and their machine do.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn crowds(jobs: u32) -> Vec<Crowd> {
    let mut crowds = vec![Crowd::recorded()];
    if !skip_without_groups() {
        crowds.push(Crowd::real().expect("a cgroup2 mount"));
    }
    crowds.iter_mut().for_each(|crowd| crowd.grow_to(jobs));
    crowds
}

fn start(binary: &str, mut flags: Vec<String>) -> Exporter {
    flags.push("--log.level=error".to_owned());
    Exporter::start(binary, &flags)
}

/// The release binary, where one was built.
fn release_binary() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/jobledger-exporter");
    if !built.exists() {
        jobledger_testkit::skip("release-binary", "no release binary to measure; make build");
    }
    built.exists().then_some(built)
}

/// Whether there are two seconds in which no thread of it runs. Threads that end soon after a scrape (HTTP) may run
/// before.
fn sleeps(exporter: &Exporter) -> bool {
    (0..8).any(|_| {
        let before = switches(exporter.pid());
        sleep(Duration::from_secs(2));
        switches(exporter.pid()) == before
    })
}

#[test]
fn an_exporter_with_jobs_is_not_woken_between_scrapes() {
    let _alone = alone();
    for crowd in crowds(100) {
        let exporter = start(BINARY, crowd.flags());
        let _ = exporter.metrics();
        let gzip = [("accept-encoding", "gzip")];
        http::get(exporter.address(), "/metrics", &gzip, Duration::from_secs(20)).unwrap();
        assert!(sleeps(&exporter));
    }
}

#[test]
fn an_exporter_without_slurm_or_with_tls_is_not_woken() {
    let _alone = alone();
    let nowhere = Scratch::new("nowhere");
    let cgroupfs = format!("--path.cgroupfs={}", nowhere.path().display());
    assert!(sleeps(&start(BINARY, vec![cgroupfs.clone()])));

    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (file, content) in [
        ("cert.pem", key.cert.pem()),
        ("key.pem", key.signing_key.serialize_pem()),
        ("web.yml", "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n".to_owned()),
    ] {
        std::fs::write(nowhere.path().join(file), content).unwrap();
    }
    let web = format!("--web.config.file={}", nowhere.path().join("web.yml").display());
    assert!(sleeps(&start(BINARY, vec![cgroupfs, web])));
}

#[test]
fn allocations_per_scrape_are_bounded_and_do_not_grow() {
    let _alone = alone();
    const JOBS: u32 = 20;
    let mut crowd = Crowd::recorded();
    crowd.grow_to(JOBS);
    let flags = ["jobledger-exporter".to_owned()].into_iter().chain(crowd.flags());
    let Ok(Invocation::Run(config)) = cli::parse(flags.map(Into::into)) else { panic!("flags") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = Node::start(&config, Opened::default()).unwrap().engine;
    let scrape = || {
        let before = allocations::so_far();
        let deadline = Instant::now() + Duration::from_secs(60);
        let scrape = engine.scrape(Selection::default(), Format::OpenMetrics, deadline);
        let text = runtime.block_on(scrape).unwrap().body;
        let last = format!("jobid=\"{}\"", FIRST_ID + JOBS - 1);
        assert!(String::from_utf8_lossy(&text).contains(&last));
        drop(text);
        allocations::so_far().count - before.count
    };
    (0..20).for_each(|_| {
        scrape();
    });
    let before = allocations::so_far();
    let mut counts: Vec<u64> = (0..200).map(|_| scrape()).collect();
    let grown = allocations::so_far().live.saturating_sub(before.live);
    engine.stop();
    let middle = |counts: &mut [u64]| {
        counts.sort_unstable();
        counts[counts.len() / 2]
    };
    let (early, late) = (middle(&mut counts[..50]), middle(&mut counts[150..]));
    println!("{JOBS} jobs: {early} allocations in a scrape, later {late}; {grown} bytes more are held");
    assert!(early < 200 + 15 * u64::from(JOBS), "{early}");
    assert!(late <= early + 2, "{early}, later {late}");
    assert!(grown < 16 << 10, "{grown} bytes after 200 scrapes");
}

/// What a node's jobs show in a collection, some of which grows with each.
fn samples(jobs: &[Arc<Job>], collection: u64) -> Vec<(usize, Arc<Section>)> {
    let rows = || REGISTRY.iter().flat_map(|entry| (entry.families)());
    let mut sections = Vec::new();
    for (name, labels) in [
        ("jobledger_job_cpu_seconds_total", &[("mode", "user")][..]),
        ("jobledger_job_allocated_cpu_seconds_total", &[]),
        ("jobledger_job_memory_allocated_byte_seconds_total", &[]),
        (
            "jobledger_job_energy_joules_total",
            &[("domain", "package"), ("socket", "0"), ("method", "cpus_held")],
        ),
        ("jobledger_job_gpu_allocated_seconds_total", &[("gpu", "0"), ("uuid", "GPU-0")]),
        ("jobledger_job_gpu_energy_joules_total", &[("gpu", "0"), ("uuid", "GPU-0"), ("method", "alone")]),
    ] {
        let family = rows().find(|family| family.name == name).expect("a family of the catalogue");
        let mut section = Section::default();
        for job in jobs {
            let subject = section.subject(job.labels());
            section.push(family, subject, labels, Value::micro(collection * 1_000_000));
        }
        sections.push((sections.len(), Arc::new(section)));
    }
    sections
}

/// How often the sums of owners ask for memory in a collection of a node whose jobs are the same as before. Owners beyond `limit`
/// are one.
fn allocations_of_owners(jobs: u32, limit: usize) -> u64 {
    let machine = test_machine::Machine::new();
    machine.write("cgroup/job_7/cgroup.procs", "");
    let job = |id| Job {
        uid: Some(1000 + id % 50),
        metadata: Arc::new(parse_metadata(format!("account=a{}\n", id % 7).as_bytes())),
        ..slurm_jobs::testing::job(id, machine.v2("job_7"), &[])
    };
    let snapshot = slurm_jobs::testing::snapshot_of(machine.roots(), (1..=jobs).map(job).collect());
    let users = Users::start(Box::new(|uid| (uid % 2 == 0).then(|| format!("u{uid}"))));
    let users = Arc::new(users.expect("a thread for names"));
    let mut context = BuildContext::new(snapshot.roots.clone(), users.clone());
    context.options.set(OwnerOptions { limit, co2: "380".parse().ok(), ..OwnerOptions::default() });
    let entry = REGISTRY.iter().find(|entry| entry.name == "owners").expect("a collector of owners");
    let owners = (entry.build)(&context).summary.expect("its sums");
    let mut out = Section::default();
    let mut collect = |collection| {
        let sections = samples(&snapshot.jobs, collection);
        out.clear();
        let before = allocations::of_this_thread();
        owners.take_in(&snapshot, &sections);
        owners.summarize(&snapshot, &sections, &mut out);
        allocations::of_this_thread() - before
    };
    let first = collect(0);
    assert!(first > u64::from(jobs), "{first}: they are all new");
    users.settle(Duration::from_secs(60));
    // Of which the names are known now.
    (1..4).for_each(|collection| {
        collect(collection);
    });
    (4..9).map(collect).max().unwrap_or_default()
}

#[test]
fn the_sums_of_owners_need_no_memory_while_the_jobs_are_the_same() {
    let _alone = alone();
    // Of 1000 jobs there are 350 owners, and more in the first collection, which does not have all names.
    let of = [(1, 1000), (10, 1000), (1000, 1000), (1000, 100)];
    assert_eq!(of.map(|(jobs, limit)| allocations_of_owners(jobs, limit)), [0; 4]);
}

/// An exporter in this process, and what scrapes it.
struct InProcess {
    engine: Engine,
    runtime: tokio::runtime::Runtime,
}

impl InProcess {
    fn start(flags: &[String]) -> Self {
        let flags = std::iter::once("jobledger-exporter").chain(flags.iter().map(String::as_str));
        let Ok(Invocation::Run(config)) = cli::parse(flags.map(Into::into)) else { panic!("flags") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { engine: Node::start(&config, Opened::default()).unwrap().engine, runtime }
    }

    /// Has all collected, and gets a small part of it.
    fn scrape(&self) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        let part = Selection { collect: ["exporter"].into(), ..Selection::default() };
        let scrape = self.engine.scrape(part, Format::OpenMetrics, deadline);
        String::from_utf8_lossy(&self.runtime.block_on(scrape).unwrap().body).into_owned()
    }

    fn scrape_until(&self, line: &str) {
        eventually(line, || self.scrape().contains(line));
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// Retained jobs, of which no more than a few ran at a time: nearly the worst case of tables that grow by doubling.
const RETAINED: u32 = 13 * 20;

/// Bytes that are live for each retained job before any collection has it, and after some had it: with the buffers of samples,
/// which are as large as those of the largest collection.
fn bytes_of_a_retained_job(flags: &[&str]) -> (i64, i64) {
    let mut crowd = Crowd::recorded();
    let flags: Vec<String> = crowd.flags().into_iter().chain(flags.iter().map(ToString::to_string)).collect();
    let node = InProcess::start(&flags);
    let run_some = |crowd: &mut Crowd, until: u32| {
        let before = crowd.jobs();
        crowd.grow_to(until);
        eventually("all jobs run", || node.engine.running_jobs() == (until - before) as usize);
        crowd.end_all();
        eventually("no job runs", || node.engine.running_jobs() == 0);
    };
    run_some(&mut crowd, 20);
    let retained = |jobs| format!("jobledger_exporter_jobs{{state=\"retained\"}} {jobs}\n");
    node.scrape_until(&retained(20));
    // What a thread has only while it works does not count.
    let live = || {
        let looks = (0..10).map(|_| {
            sleep(Duration::from_millis(20));
            allocations::so_far().live
        });
        looks.min().expect("there are some")
    };
    let before = live();
    (2..=13).for_each(|batch| run_some(&mut crowd, 20 * batch));
    let of_each = |live: u64| {
        (i64::try_from(live).unwrap() - i64::try_from(before).unwrap()) / i64::from(RETAINED - 20)
    };
    let unscraped = of_each(live());
    node.scrape_until(&retained(RETAINED));
    // A buffer may be twice as large as what it has to hold, until a later collection makes it anew.
    let collected = (0..6).map(|_| {
        drop(node.scrape());
        live()
    });
    (unscraped, of_each(collected.min().expect("there are some")))
}

#[test]
#[ignore = "a table: cargo test --test footprint -- --ignored --nocapture where_the_memory"]
fn where_the_memory_of_a_retained_job_is() {
    let _alone = alone();
    const ALONE: &str = "--collector.disable-defaults";
    let (table, collected) = bytes_of_a_retained_job(&[ALONE, "--collector.exporter"]);
    println!("| part | bytes | after collections |\n|---|---:|---:|\n| table | {table} | {collected} |");
    for name in REGISTRY.iter().filter(|e| e.default_on && e.name != "exporter").map(|e| e.name) {
        let flag = format!("--collector.{name}");
        let (bytes, after) = bytes_of_a_retained_job(&[ALONE, "--collector.exporter", flag.as_str()]);
        println!("| {name} | {} | {} |", bytes - table, after - collected);
    }
}

#[test]
fn a_retained_job_takes_two_kibibytes() {
    let _alone = alone();
    let (unscraped, with_owners) = bytes_of_a_retained_job(&[]);
    let (_, without_owners) = bytes_of_a_retained_job(&["--no-collector.owners"]);
    // What owners remember of a run comes with its first collection.
    let (owners, all) = (with_owners - without_owners, unscraped + with_owners - without_owners);
    println!("a retained job: {all} bytes, {owners} of them for owners, and {with_owners} with buffers");
    assert!(unscraped < 1792, "{unscraped}");
    // The buffers of two runs differ by chance by some 300 bytes a job.
    assert!(all < 2048 + 512, "{all}");
}

#[test]
fn jobs_that_are_not_retained_any_more_leave_nothing() {
    let _alone = alone();
    let mut crowd = Crowd::recorded();
    let flags = ["--jobs.retention=0s".to_owned(), "--jobs.retention-max=0s".to_owned()];
    let node = InProcess::start(&crowd.flags().into_iter().chain(flags).collect::<Vec<_>>());
    let mut run_some = || {
        let until = crowd.jobs() + 20;
        crowd.grow_to(until);
        node.scrape_until("jobledger_exporter_jobs{state=\"running\"} 20\n");
        crowd.end_all();
        eventually("no job runs", || node.engine.running_jobs() == 0);
        node.scrape_until("jobledger_exporter_jobs{state=\"retained\"} 0\n");
        (0..3).for_each(|_| drop(node.scrape()));
        allocations::so_far().live
    };
    let live: Vec<u64> = (0..12).map(|_| run_some()).collect();
    let least = |live: &[u64]| live.iter().copied().min().unwrap();
    let (before, after) = (least(&live[..6]), least(&live[6..]));
    println!("least live bytes: {before}, after 120 more jobs {after}");
    // Buffers are of one size or another when it is looked. A retained job takes more than a KiB.
    assert!(after <= before + (64 << 10), "{live:?}");
}

#[test]
fn a_hundred_jobs_fit_in_little_memory() {
    let _alone = alone();
    // Two thirds of it are the pages of the test build, which is not optimized.
    holds_a_hundred_jobs(Path::new(BINARY), 40);
}

#[test]
fn the_release_binary_holds_a_hundred_jobs_in_little_memory() {
    let _alone = alone();
    if let Some(binary) = release_binary() {
        holds_a_hundred_jobs(&binary, 15);
    }
}

fn holds_a_hundred_jobs(binary: &Path, most_mib: u64) {
    let mut crowd = Crowd::recorded();
    crowd.grow_to(100);
    let exporter = start(binary.to_str().expect("a path in UTF-8"), crowd.flags());
    for headers in [&[][..], &[("accept-encoding", "gzip")], &[("accept", "application/openmetrics-text")]] {
        for _ in 0..5 {
            http::get(exporter.address(), "/metrics", headers, Duration::from_secs(20)).expect("an answer");
        }
    }
    let peak = peak_rss_kib(exporter.pid());
    println!("{}: {peak} KiB at most", binary.display());
    assert!(peak <= most_mib << 10, "{}: {peak} KiB", binary.display());
}

#[test]
fn the_release_binary_is_small() {
    if let Some(binary) = release_binary() {
        let size = std::fs::metadata(&binary).unwrap().len();
        println!("{}: {size} bytes", binary.display());
        assert!(size <= 10 << 20, "{size} bytes");
        // The size varies a little between compilers.
        let page = include_str!("../docs/performance.md");
        let words = page.split_once("The binary, stripped: ").unwrap().1.split_once(" bytes").unwrap().0;
        let documented: u64 = words.parse().unwrap();
        assert!(
            documented.abs_diff(size) <= documented / 50,
            "docs/performance.md says {documented}, it has {size}"
        );
    }
}

#[test]
fn a_scrape_opens_each_file_of_a_job_once_and_no_missing_file() {
    let _alone = alone();
    if !strace::is_there() {
        return;
    }
    for crowd in crowds(10) {
        let mut flags = crowd.flags();
        // Files that are held open are not opened at all.
        flags.push("--jobs.descriptors=0".to_owned());
        let exporter = start(BINARY, flags);
        (0..8).for_each(|_| drop(exporter.metrics()));
        let of_job =
            |call: &strace::Call| call.opens_content() && call.file().is_some_and(|f| f.contains("/job_"));
        let scrape = || {
            let calls = strace::during(exporter.pid(), || drop(exporter.metrics()), of_job);
            let mut opened: BTreeMap<String, usize> = BTreeMap::new();
            for call in calls.iter().filter(|call| call.name == "openat") {
                let file = call.file().unwrap();
                if file.contains("/job_") {
                    assert!(call.result >= 0, "{file} is not there");
                    *opened.entry(file).or_default() += 1;
                }
            }
            opened
        };
        // On a busy machine strace attaches to some threads after they have read.
        let opened = (0..5).map(|_| scrape()).find(|opened| opened.len() >= 10 * 8);
        let opened = opened.expect("a scrape that strace saw");
        let twice: Vec<_> = opened.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

/// How many files and directories the exporter opens from its start to the end of the first page.
fn opens_until_the_first_page(flags: &[String]) -> usize {
    let traced = strace::Traced::of(BINARY);
    let exporter = start(traced.script(), flags.to_vec());
    let _ = exporter.metrics();
    assert_eq!(exporter.terminate(), Some(0));
    traced.calls().iter().filter(|call| call.name == "openat").count()
}

#[test]
fn the_start_opens_few_files_for_each_job() {
    let _alone = alone();
    if !strace::is_there() {
        return;
    }
    let mut places = vec![(Crowd::recorded(), "recorded", 80)];
    if !skip_without_groups() {
        places.push((Crowd::real().expect("a cgroup2 mount"), "v2", 60));
        places.extend(Crowd::real_v1().map(|crowd| (crowd, "v1", 120)));
    }
    for (mut crowd, place, most) in places {
        let opens = [10, 20].map(|jobs| {
            crowd.grow_to(jobs);
            opens_until_the_first_page(&crowd.flags())
        });
        let of_each = (opens[1] - opens[0]) / 10;
        println!("{place}: {opens:?} opens with 10 and 20 jobs, {of_each} for each");
        assert!(of_each <= most, "{place}: {opens:?}");
        assert!(opens[0] <= 1000 + 10 * most, "{place}: {opens:?}");
    }
}
