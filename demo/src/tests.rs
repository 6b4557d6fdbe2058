//! An hour of the simulation, checked second by second, and its files every minute.

mod devices;
mod gpus;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::directory::{PrivateDirectory, default_base};
use super::group::Group;
use super::layout::CPUS;
use super::profile::Profile;
use super::simulation::run_to;
use super::tree::Tree;
use super::workloads::WORKLOADS;
use super::world::{SECOND, World};

const BOOT: u64 = 1_700_000_000;
const BEGIN: u64 = 1_000_000 * SECOND;

fn walk<'g>(group: &'g Group, path: &str, visit: &mut impl FnMut(&str, &'g Group)) {
    visit(path, group);
    for child in &group.children {
        walk(child, &format!("{path}/{}", child.name), visit);
    }
}

/// Checks the numbers of one moment.
fn check_moment(world: &World) {
    walk(&world.root, "", &mut |path, group| {
        let totals = &group.totals;
        let (counters, memory) = (totals.counters, totals.memory);
        let of_children = |of: fn(&Group) -> u64| group.children.iter().map(of).sum::<u64>();
        assert!(of_children(|c| c.totals.counters.user) <= counters.user, "{path}");
        assert!(of_children(|c| c.totals.counters.system) <= counters.system, "{path}");
        assert!(of_children(|c| c.totals.counters.oom_kills) <= counters.oom_kills, "{path}");
        assert!(of_children(|c| c.totals.counters.page_faults) <= counters.page_faults, "{path}");
        assert!(of_children(|c| c.totals.memory.current()) <= memory.current(), "{path}");
        assert!(memory.shmem <= memory.file && memory.mapped <= memory.file, "{path}");
        assert!(totals.peak >= memory.current(), "{path}");
        if let Some(limit) = group.limits.memory {
            assert!(totals.peak <= limit, "{path}: {} above {limit}", totals.peak);
        }
        assert!(group.processes.is_empty() || group.children.is_empty(), "{path}: inner processes");
        let own: u64 = group.processes.iter().map(|p| p.user + p.system).sum();
        assert!(own <= group.own.user + group.own.system, "{path}: processes used more than their group");
        for child in &group.children {
            let pairs = child.pressure.iter().flatten().zip(group.pressure.iter().flatten());
            // Groups above jobs get their stalls once a second.
            let above_jobs = child.name.starts_with("job_");
            for ((stall, above), kind) in pairs.zip([0, 1].into_iter().cycle()) {
                assert!(kind == 1 || above_jobs || stall.total <= above.total, "{path}/{}", child.name);
            }
        }
        for [some, full] in group.pressure {
            assert!(full.total <= some.total && some.total <= world.now, "{path}");
        }
    });
    let [user, system] = world.machine.cpu_time();
    let counters = world.root.totals.counters;
    assert_eq!([user, system], [counters.user, counters.system], "CPUs and groups agree");
    let mut taken = BTreeSet::new();
    for job in &world.jobs {
        assert!(job.cpus.iter().all(|cpu| *cpu < CPUS && taken.insert(*cpu)), "a CPU of two jobs");
        let group = world.scope().unwrap().child(&job.directory()).expect("a group for each job");
        let (c, age) = (group.totals.counters, world.now - job.started);
        let cpus = u64::try_from(job.workload.cpus).unwrap();
        // slurmstepd's CPU time is charged at once.
        assert!(c.user + c.system <= age * cpus + 100_000, "{} of {cpus} in {age}", c.user + c.system);
    }
}

/// All counters, by path and start of the job. None may decrease.
fn numbers(world: &World) -> HashMap<(String, u64), Vec<u64>> {
    let mut all = HashMap::new();
    let started: HashMap<String, u64> = world.jobs.iter().map(|j| (j.directory(), j.started)).collect();
    walk(&world.root, "", &mut |path, group| {
        let run = path.split('/').nth(3).and_then(|job| started.get(job)).copied().unwrap_or(0);
        let c = group.totals.counters;
        let mut values =
            vec![c.user, c.system, c.page_faults, c.major_faults, c.limit_hits, c.ooms, c.oom_kills];
        values.extend([c.fabric.received, c.fabric.sent, c.network.received, c.network.sent, c.nfs_metadata]);
        values.extend([c.nfs.read_bytes, c.nfs.written_bytes, c.nfs.reads, c.nfs.writes]);
        values.extend(c.io.iter().flat_map(|io| [io.read_bytes, io.written_bytes, io.reads, io.writes]));
        values.extend(group.pressure.iter().flatten().map(|stall| stall.total));
        values.extend([group.bandwidth.periods, group.bandwidth.throttled, group.bandwidth.throttled_usec]);
        all.insert((path.to_owned(), run), values);
    });
    all
}

fn keyed(path: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let pair = |line: &str| {
        let (key, value) = line.split_once(' ').unwrap();
        (key.to_owned(), value.parse().unwrap())
    };
    text.lines().map(pair).collect()
}

fn number(path: &Path) -> u64 {
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// Checks the files of a group and of its descendants.
fn check_files(path: &Path, root: bool) -> u64 {
    let cpu = keyed(&path.join("cpu.stat"));
    assert_eq!(cpu["user_usec"] + cpu["system_usec"], cpu["usage_usec"], "{}", path.display());
    let stat = keyed(&path.join("memory.stat"));
    assert_eq!(stat["inactive_anon"] + stat["active_anon"], stat["anon"] + stat["shmem"]);
    assert_eq!(stat["inactive_file"] + stat["active_file"], stat["file"] - stat["shmem"]);
    let mut pids: usize = 0;
    if !root {
        assert_eq!(stat["anon"] + stat["file"] + stat["kernel"], number(&path.join("memory.current")));
        assert!(keyed(&path.join("memory.events")).contains_key("oom_kill"));
        let procs = std::fs::read_to_string(path.join("cgroup.procs")).unwrap();
        pids = procs.lines().count();
        for pid in procs.lines() {
            let proc = path.ancestors().find(|p| p.ends_with("cgroup")).unwrap().with_file_name("proc");
            let group = std::fs::read_to_string(proc.join(pid).join("cgroup")).unwrap();
            assert!(path.ends_with(group.trim().strip_prefix("0::/").unwrap()), "{group}");
        }
    }
    let mut children = 0;
    for entry in path.read_dir().unwrap().map(Result::unwrap).filter(|e| e.path().is_dir()) {
        children += check_files(&entry.path(), false);
        pids += usize::try_from(number(&entry.path().join("pids.current"))).unwrap();
    }
    assert!(children <= cpu["usage_usec"], "{}", path.display());
    if !root {
        let populated = keyed(&path.join("cgroup.events"))["populated"];
        assert_eq!(populated == 1, pids > 0, "{}", path.display());
    }
    cpu["usage_usec"]
}

fn check_tree(root: &Path, world: &World) {
    let usage = check_files(&root.join("cgroup"), true);
    let stat = std::fs::read_to_string(root.join("proc/stat")).unwrap();
    let ticks: Vec<u64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect();
    let busy = ticks[0] + ticks[2];
    assert!(busy.abs_diff(usage / 10_000) <= 1, "{busy} ticks of the node, {usage} us of its groups");
    let elapsed = world.now / 10_000 * u64::from(CPUS);
    assert!(
        ticks.iter().sum::<u64>().abs_diff(elapsed) < elapsed / 1000,
        "the modes add up to the elapsed time"
    );
    let pids = world.root.totals.memory.threads;
    assert!(pids >= 8, "the services at least");
    let scope = root.join("cgroup/system.slice/slurmstepd.scope");
    let listed: BTreeSet<String> = scope
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("job_"))
        .collect();
    let expected: BTreeSet<String> = world.jobs.iter().map(|job| job.directory()).collect();
    assert_eq!(listed, expected);
    let metadata: BTreeSet<String> = root
        .join("run/jobledger/jobs")
        .read_dir()
        .unwrap()
        .map(|e| format!("job_{}", e.unwrap().file_name().into_string().unwrap()))
        .collect();
    assert_eq!(metadata, expected);
    let names = root.join("proc").read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut processes = 0;
    walk(&world.root, "", &mut |_, group| processes += group.processes.len());
    assert_eq!(names.filter(|name| name.parse::<u64>().is_ok()).count(), processes);
    assert_eq!(root.join("staging").read_dir().unwrap().count(), 0);
}

/// How many jobs of a kind start in an hour, at least.
fn least(profile: Profile) -> u64 {
    match profile {
        Profile::Short => 300,
        Profile::Idle => 3,
        Profile::LeftBehind => 2,
        Profile::Busy | Profile::Serial | Profile::IoHeavy | Profile::Throttled | Profile::Pressured => 6,
        Profile::Heterogeneous | Profile::Array => 20,
        Profile::Training | Profile::Finished => 5,
        Profile::IdleGpu => 3,
        Profile::ShortGpu => 100,
        Profile::Exclusive => 2,
        _ => 8,
    }
}

#[test]
fn every_second_of_an_hour_is_consistent() {
    let mut world = World::new(7, 1.0, BOOT, BEGIN);
    let directory = PrivateDirectory::make(&default_base()).unwrap();
    let mut tree = Tree::lay_out(directory.path()).unwrap();
    let mut before = HashMap::new();
    let mut runs: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut kills = 0;
    for second in 1..=3600 {
        run_to(&mut world, BEGIN + second * SECOND);
        check_moment(&world);
        let now = numbers(&world);
        for (run, values) in &now {
            let earlier = before.get(run).into_iter().flatten();
            assert!(values.iter().zip(earlier).all(|(now, was): (&u64, &u64)| now >= was), "{run:?}");
        }
        before = now;
        for job in &world.jobs {
            runs.entry(job.id).or_default().insert(job.started);
        }
        kills = kills.max(world.root.totals.counters.oom_kills);
        if second % 60 == 0 {
            tree.publish(&mut world).unwrap();
            check_tree(directory.path(), &world);
        }
    }
    for (workload, started) in WORKLOADS.iter().zip(world.started) {
        assert!(started >= least(workload.profile), "{:?}: {started}", workload.profile);
    }
    assert!(kills >= 8, "{kills}");
    assert!(runs.values().any(|starts| starts.len() >= 3), "requeued");
}

#[test]
fn the_same_seed_runs_the_same_jobs() {
    let ids = |seed| {
        let mut world = World::new(seed, 1.0, BOOT, BEGIN);
        run_to(&mut world, BEGIN + 300 * SECOND);
        world.jobs.iter().map(|job| (job.id, job.user, job.cpus.clone(), job.started)).collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
}

#[test]
fn each_change_of_a_job_is_visible_however_late_the_simulation_runs() {
    let mut world = World::new(3, 1.0, BOOT, BEGIN);
    let mut seen: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for n in 0..2000 {
        world.step(BEGIN + n * 5 * SECOND);
        world.tick();
        check_moment(&world);
        for job in world.jobs.iter().filter(|j| j.workload.profile == Profile::Short) {
            seen.entry(job.id).or_default().insert(job.steps.len());
        }
    }
    // The external step alone, then with the batch step, then alone again.
    let last = *seen.keys().last().unwrap();
    assert!(seen.len() > 100);
    assert!(seen.iter().filter(|(id, _)| **id != last).all(|(_, steps)| *steps == BTreeSet::from([1, 2])));
}
