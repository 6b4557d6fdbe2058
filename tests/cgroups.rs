//! Real control groups with real work in them: the exporter's values of a job are those that cgroups-rs and `/proc`
//! read at the same time, and groups that vanish during a reading (ENODEV, which no file can imitate) are no error.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, thread};

use cpu_topology::CpuSet;
use jobledger_testkit::cgroups::{
    Site, accounting_v1, attach, make_group, pids, skip_without_groups, subgroups,
};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::oracle::{self, Reading};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::{RunningStep, Step};
use jobledger_testkit::stop::Stop;
use jobledger_testkit::strace::{self, Call};
use jobledger_testkit::tools::{for_everybody, tool};
use jobledger_testkit::wait::{QUIET, until};
use jobledger_testkit::{eventually, http};
use rustix::process::{Pid, Signal, kill_process};

/// Rounding of user and system time against their sum, microseconds.
const ROUNDING: u64 = 2;

fn start(site: &Site, retention: &str) -> Exporter {
    start_with(site, retention, &[])
}

fn start_with(site: &Site, retention: &str, more: &[&str]) -> Exporter {
    let mut flags = vec![
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        "--jobs.metadata-dir=/nonexistent".to_owned(),
        format!("--jobs.retention={retention}"),
        "--log.level=info".to_owned(),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags)
}

fn scrape(exporter: &Exporter) -> Exposition {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &header, QUIET).unwrap();
    assert_eq!(answer.status, 200);
    parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{e}"))
}

fn of_job(exposition: &Exposition, name: &str, id: u32) -> Option<f64> {
    exposition.value(name, &[("jobid", &id.to_string())])
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of CPU time in a test")]
fn cpu_usec(exposition: &Exposition, id: u32) -> u64 {
    let of_job = exposition.named("jobledger_job_cpu_seconds_total");
    let seconds: f64 = of_job.filter(|s| s.label("jobid") == Some(&id.to_string())).map(|s| s.value).sum();
    (seconds * 1e6).round() as u64
}

/// A step that uses CPU time, holds memory and then sleeps until the test ends it: no time is long enough on a machine that is busy.
fn busy_step(site: &Site, id: u32, cpu_ms: u32, memory_mib: u32, records: &Scratch) -> RunningStep {
    let burn = tool("burn").display().to_string();
    let flags =
        [format!("--cpu-ms={cpu_ms}"), format!("--memory-mib={memory_mib}"), "--sleep-ms=3600000".to_owned()];
    Step::new(id, records.path(), &[&burn, &flags[0], &flags[1], &flags[2]]).start(site)
}

fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_path_buf()];
    let mut next = 0;
    while let Some(dir) = all.get(next).cloned() {
        all.extend(subgroups(&dir));
        next += 1;
    }
    all
}

/// CPU time of the processes in a job's groups by `/proc`, microseconds; it has whole ticks only.
fn by_proc(dir: &Path) -> (u64, usize) {
    let pids: BTreeSet<u32> = groups_below(dir).iter().flat_map(|dir| pids(dir)).collect();
    let ticks = pids.iter().filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<u64> =
            stat.rsplit(')').next()?.split_whitespace().map(|f| f.parse().unwrap_or(0)).collect();
        Some(fields[11] + fields[12])
    });
    (ticks.sum::<u64>() * 10_000, pids.len())
}

/// The processes in the groups of its tasks.
fn tasks(dir: &Path) -> usize {
    let is_task =
        |dir: &&PathBuf| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("task_"));
    groups_below(dir).iter().filter(is_task).flat_map(|dir| pids(dir)).count()
}

/// Compares a job with both other readers, before and after the scrape.
fn agrees(site: &Site, exporter: &Exporter, id: u32, read: impl Fn(&Path) -> Reading) {
    let dir = site.job_dir(&format!("job_{id}"), 1001);
    let (before, now, after) = (read(&dir), scrape(exporter), read(&dir));
    let cpu = cpu_usec(&now, id);
    let doubt = 2 * ROUNDING;
    // v1 counts the modes by ticks: only their sum is compared, exactly.
    if matches!(site, Site::V2 { .. }) {
        let modes = |r: &Reading| r.cpu.user_usec + r.cpu.system_usec;
        let within = modes(&before) <= cpu + ROUNDING && cpu <= modes(&after) + ROUNDING;
        assert!(within, "{before:?}, {cpu}, {after:?}");
    }
    let usage = (before.cpu.usage_usec, after.cpu.usage_usec);
    assert!(usage.0 <= cpu + doubt && cpu <= usage.1 + doubt, "{cpu}, {usage:?}");
    let (proc_usec, processes) = by_proc(&dir);
    // Each process rounds both its times down; ended processes are only in the group's time.
    let slack = doubt + 20_000 * u64::try_from(processes).unwrap() + cpu / 10;
    assert!(cpu + slack >= proc_usec && proc_usec + slack >= cpu, "{cpu} us, {proc_usec} us by /proc");
    if dir.join("memory.current").exists() {
        let used = of_job(&now, "jobledger_job_memory_used_bytes", id).unwrap();
        let (low, high) =
            (before.memory_used.min(after.memory_used), before.memory_used.max(after.memory_used));
        assert!(used >= low as f64 * 0.98 && used <= high as f64 * 1.02, "{low} <= {used} <= {high}");
        let anon = of_job(&now, "jobledger_job_memory_anon_bytes", id).unwrap();
        assert!((anon - after.anon as f64).abs() <= 0.02 * after.anon as f64 + 65536.0, "{anon}, {after:?}");
    } else {
        eprintln!("NOT COMPARED: memory, whose controller is not in {}", dir.display());
    }
    assert_eq!(of_job(&now, "jobledger_job_processes", id), Some(tasks(&dir) as f64), "of job {id}");
}

fn compares(site: &Site, read: impl Fn(&Path) -> Reading) {
    let records = Scratch::new("records");
    let exporter = start(site, "1h");
    let jobs = [(901, 300, 16), (902, 150, 32), (903, 0, 1)];
    let steps: Vec<_> =
        jobs.iter().map(|(id, cpu, memory)| busy_step(site, *id, *cpu, *memory, &records)).collect();
    for (id, cpu_ms, _) in jobs {
        let dir = site.job_dir(&format!("job_{id}"), 1001);
        eventually("the work is done", || {
            dir.exists() && read(&dir).cpu.usage_usec >= u64::from(cpu_ms) * 1000 && tasks(&dir) == 1
        });
    }
    for _ in 0..3 {
        for (id, ..) in jobs {
            agrees(site, &exporter, id, &read);
        }
    }
    drop(steps);
}

#[test]
fn v2_jobs_are_read_as_cgroups_rs_and_proc_read_them() {
    if skip_without_groups() {
        return;
    }
    compares(&Site::v2("slurmstepd.scope").unwrap(), oracle::v2);
}

#[test]
fn v1_jobs_are_read_as_cgroups_rs_and_proc_read_them() {
    let Some(site) = accounting_v1() else { return };
    compares(&site, |dir| oracle::v1(dir, None, None));
}

/// The files of jobs and directories of SLURM that a scrape opens, and how many readings of files it makes that are held
/// open.
fn calls_about_jobs(exporter: &Exporter) -> (Vec<String>, usize) {
    let of_job = |call: &Call| call.file().filter(|file| file.contains("/job_"));
    // The collecting thread is traced, and not only the one that follows the jobs.
    let sought = |call: &Call| call.name == "pread64" && of_job(call).is_some();
    let calls = strace::during(exporter.pid(), || drop(scrape(exporter)), sought);
    let listed = |call: &Call| call.arguments.contains("O_DIRECTORY");
    let of_slurm = |call: &Call| {
        call.file().filter(|file| file.contains("/job_") || (file.contains("/slurm") && listed(call)))
    };
    let opened = calls.iter().filter(|call| call.opens_content() && call.result >= 0).filter_map(of_slurm);
    (opened.collect(), calls.iter().filter(|call| sought(call)).count())
}

/// From its second scrape on no file of a job is opened, as far as the budget reaches, and the values are the same.
#[test]
fn files_of_jobs_are_held_open_within_the_budget() {
    if skip_without_groups() || !strace::is_there() {
        return;
    }
    let mut sites = vec![Site::v2("slurmstepd.scope").unwrap()];
    sites.extend(Site::v1());
    for site in &sites {
        let records = Scratch::new("records");
        let steps: Vec<_> = (1..=3).map(|id| busy_step(site, id, 20, 1, &records)).collect();
        let exporter = start(site, "1s");
        let open_fds = |exporter: &Exporter| scrape(exporter).value("process_open_fds", &[]).unwrap();
        until("all jobs have a process", || {
            let now = scrape(&exporter);
            let processes = [1, 2, 3].map(|id| of_job(&now, "jobledger_job_processes", id));
            if processes == [Some(1.0); 3] { Ok(()) } else { Err(format!("{processes:?}")) }
        });
        (0..3).for_each(|_| drop(scrape(&exporter)));
        let held = open_fds(&exporter);
        // Who a job's owner is may be asked for some more milliseconds.
        until("a scrape that reads files of three jobs, opens none and lists no directory", || {
            let (opened, read) = calls_about_jobs(&exporter);
            if opened.is_empty() && read >= 3 * 3 {
                Ok(())
            } else {
                Err(format!("{read} readings, opened {opened:?}"))
            }
        });

        let few = start_with(site, "1s", &["--jobs.descriptors=4"]);
        (0..4).for_each(|_| drop(scrape(&few)));
        let (opened, read) = calls_about_jobs(&few);
        assert!(
            (1..=4).contains(&read),
            "{read} readings of files that are held open: more than the budget has"
        );
        assert!(opened.len() >= 3, "{opened:?}");
        assert!(open_fds(&few) < held);

        // The ends of their tasks are the ends of the jobs.
        for id in 1..=3 {
            let is_task =
                |dir: &PathBuf| dir.file_name().is_some_and(|n| n.to_string_lossy().starts_with("task_"));
            let groups = groups_below(&site.job_dir(&format!("job_{id}"), 1001));
            for pid in groups.into_iter().filter(is_task).flat_map(|dir| pids(&dir)) {
                kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
            }
        }
        eventually("all jobs have ended and their files are closed", || {
            let now = scrape(&exporter);
            let ended = (1..=3).all(|id| of_job(&now, "jobledger_job_processes", id).is_none());
            ended && now.value("process_open_fds", &[]).unwrap() <= held - 9.0
        });
        drop(steps);
    }
}

/// The kernel shows a list of v1 again through an open descriptor, as long as it is read more often than once a second.
#[test]
fn a_process_that_comes_while_a_client_asks_without_a_pause_is_counted() {
    if skip_without_groups() {
        return;
    }
    let Some(site) = Site::v1() else { return };
    let records = Scratch::new("records");
    let _step = busy_step(&site, 1, 20, 1, &records);
    let exporter = start_with(&site, "1s", &["--scrape.min-interval=0s"]);
    let processes = || of_job(&scrape(&exporter), "jobledger_job_processes", 1);
    let are = |wanted: f64| {
        until("the job's processes", || {
            let now = processes();
            if now == Some(wanted) { Ok(()) } else { Err(format!("{now:?}")) }
        });
    };
    are(1.0);
    // From the second scrape on the list is held open.
    (0..3).for_each(|_| assert_eq!(processes(), Some(1.0)));
    let mut more = Command::new("sleep").arg("3600").spawn().unwrap();
    let dirs = site.job_dirs("job_1", 1001);
    let (_, freezer) = dirs.iter().find(|(controller, _)| *controller == Some("freezer")).unwrap();
    attach(subgroups(freezer).first().unwrap(), more.id()).unwrap();
    are(2.0);
    more.kill().unwrap();
    more.wait().unwrap();
}

/// Rows 1 and 2 of the fault table, which no file can imitate: open files of a removed group give ENODEV.
#[test]
fn groups_that_vanish_during_a_reading_are_no_error() {
    if skip_without_groups() {
        return;
    }
    let mut sites = vec![Site::v2("slurmstepd.scope").unwrap()];
    sites.extend(Site::v1());
    for site in &sites {
        let exporter = start(site, "1s");
        let steady = site.job_dir("job_1", 1001);
        fs::create_dir_all(&steady).unwrap();
        let (stop, came) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            let stopping = Stop::when_dropped(&stop);
            scope.spawn(|| {
                while !Stop::is_set(&stop) {
                    let number = came.fetch_add(1, Ordering::Relaxed);
                    let dir = site.job_dir(&format!("job_{}", 1000 + number), 1001);
                    let groups = [dir.clone(), dir.join("step_0"), dir.join("step_0/user")];
                    groups.iter().for_each(|group| make_group(group));
                    thread::sleep(Duration::from_millis(u64::from(number % 10)));
                    groups.iter().rev().for_each(|group| fs::remove_dir(group).unwrap());
                }
            });
            while came.load(Ordering::Relaxed) < 150 {
                let now = scrape(&exporter);
                for collector in ["job", "cpu"] {
                    let success =
                        now.value("jobledger_exporter_collector_success", &[("collector", collector)]);
                    assert_eq!(success, Some(1.0), "{collector}");
                }
                assert!(of_job(&now, "jobledger_job_start_time_seconds", 1).is_some());
            }
            drop(stopping);
        });
        let log = exporter.log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
        fs::remove_dir(&steady).unwrap();
    }
}

/// Row 2: each read of a file waits a little after its open, so that a group is removed in between and the kernel answers
/// ENODEV. Whatever file it was, no collector fails and the other job is exported.
#[test]
fn a_file_whose_group_is_removed_after_it_was_opened_is_no_error() {
    if skip_without_groups() || !strace::is_there() {
        return;
    }
    let mut sites = vec![Site::v2("slurmstepd.scope").unwrap()];
    sites.extend(Site::v1());
    for site in &sites {
        let exporter = start(site, "1s");
        let steady = site.job_dir("job_1", 1001);
        fs::create_dir_all(&steady).unwrap();
        let came = AtomicU32::new(1000);
        let churn = || {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let stopping = Stop::when_dropped(&stop);
                scope.spawn(|| {
                    while !Stop::is_set(&stop) {
                        let number = came.fetch_add(1, Ordering::Relaxed);
                        let dir = site.job_dir(&format!("job_{number}"), 1001);
                        let groups = [dir.clone(), dir.join("step_0"), dir.join("step_0/user")];
                        groups.iter().for_each(|group| make_group(group));
                        thread::sleep(Duration::from_millis(u64::from(number % 40)));
                        groups.iter().rev().for_each(|group| fs::remove_dir(group).unwrap());
                    }
                });
                for _ in 0..6 {
                    let now = scrape(&exporter);
                    for sample in now.named("jobledger_exporter_collector_status_info") {
                        let reason = sample.label("reason").unwrap();
                        assert!(["unsupported", "denied"].contains(&reason), "{sample:?}");
                    }
                    assert!(of_job(&now, "jobledger_job_start_time_seconds", 1).is_some());
                }
                drop(stopping);
            });
        };
        let gone = |call: &strace::Call| call.error.as_deref() == Some("ENODEV");
        let reads = "read,pread64";
        let (traced, slowed) = (format!("trace=openat,{reads}"), format!("inject={reads}:delay_enter=2000"));
        let calls = strace::with_options(exporter.pid(), &["-e", &traced, "-e", &slowed], churn, gone);
        let files: BTreeSet<String> =
            calls.iter().filter(|call| gone(call)).filter_map(strace::Call::file).collect();
        assert!(files.iter().any(|file| file.contains("/job_1")), "{files:?}");
        let log = exporter.log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
        fs::remove_dir(&steady).unwrap();
    }
}

/// Row 33: a procfs that hides the processes of other users (`hidepid=invisible`, of a mount of its own since Linux 5.8).
#[test]
fn behind_hidepid_jobs_are_exported_without_their_owner() {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let records = Scratch::new("records");
    let _step = busy_step(&site, 21, 50, 1, &records);
    let uid = |now: &Exposition| {
        let info = now.named("jobledger_job_info").find(|s| s.label("jobid") == Some("21"));
        info.and_then(|info| info.label("uid")).map(str::to_owned)
    };
    for (options, owner) in [("defaults", "1001"), ("hidepid=invisible", "")] {
        let program = records.path().join(format!("exporter-{owner}"));
        let script = format!(
            "#!/bin/sh\nexec unshare --mount sh -c 'mount -t proc -o {options} proc /proc && \
             exec setpriv --reuid=65534 --regid=65534 --clear-groups -- \"$0\" \"$@\"' {} \"$@\"\n",
            for_everybody(Path::new(env!("CARGO_BIN_EXE_jobledger-exporter"))).display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let flags = [
            format!("--path.cgroupfs={}", site.cgroupfs().display()),
            "--jobs.metadata-dir=/nonexistent".to_owned(),
        ];
        let exporter = Exporter::start(program.to_str().unwrap(), &flags);
        eventually("the job and its owner", || uid(&scrape(&exporter)).as_deref() == Some(owner));
        let now = scrape(&exporter);
        assert!(cpu_usec(&now, 21) > 0, "{options}");
        let success =
            |collector| now.value("jobledger_exporter_collector_success", &[("collector", collector)]);
        assert_eq!((success("job"), success("cpu")), (Some(1.0), Some(1.0)), "{options}");
        // Its own process is not hidden.
        assert!(now.value("process_resident_memory_bytes", &[]).is_some(), "{options}");
    }
}

/// Shorter than the time between two scrapes: its CPUs are read when it starts and ends.
#[test]
fn a_job_between_two_scrapes_has_its_allocated_cpu_time() {
    if skip_without_groups() {
        return;
    }
    let mut sites = vec![Site::v2("slurmstepd.scope").unwrap()];
    sites.extend(Site::v1());
    for site in &sites {
        let records = Scratch::new("records");
        let cpuset = match site {
            Site::V2 { scope, .. } => scope.join("cpuset.cpus.effective"),
            Site::V1 { .. } => site.cgroupfs().join("cpuset/cpuset.effective_cpus"),
        };
        let Ok(list) = fs::read(&cpuset) else {
            jobledger_testkit::skip("cpuset", format!("no {}", cpuset.display()));
            continue;
        };
        // Without a cpuset it may use its parent's CPUs.
        let cpus = CpuSet::parse(&list).unwrap().len() as f64;
        let exporter = start(site, "1h");
        let _ = scrape(&exporter);
        let burn = tool("burn").display().to_string();
        for id in [11, 12, 13] {
            let worked = Step::new(id, records.path(), &[&burn, "--cpu-ms=50"]).start(site).finish();
            assert!(worked.tasks_usec >= 40_000, "{worked:?}");
        }
        eventually("all have ended", || {
            let now = scrape(&exporter);
            [11, 12, 13].iter().all(|id| of_job(&now, "jobledger_job_end_time_seconds", *id).is_some())
        });
        let now = scrape(&exporter);
        for id in [11, 12, 13] {
            let of = |name: &str| of_job(&now, name, id).unwrap_or_else(|| panic!("{name} of {id}"));
            let run = of("jobledger_job_end_time_seconds") - of("jobledger_job_start_time_seconds");
            let had = of("jobledger_job_allocated_cpu_seconds_total");
            assert!(run >= 0.05 && (had - cpus * run).abs() < 1e-3, "{had} of {cpus} CPUs in {run}");
        }
    }
}
