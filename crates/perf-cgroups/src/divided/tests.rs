mod following;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bpf::Width;
use jobledger_testkit::cgroups::{
    OwnedGroup, attach, cgroup2_mount, make_group, skip_without_groups, v1_mount,
};
use jobledger_testkit::kernel_types;

use parking_lot::MutexGuard;

use super::*;
use crate::layout::state;

/// The kernel's own events stand for hardware's, which virtual machines have none of: cpu-clock leads page faults, and
/// context switches are a group of their own.
fn groups() -> Vec<SharedGroup> {
    let group = |configs: &[u64]| SharedGroup {
        events: configs.iter().map(|config| Attr::new(Attr::SOFTWARE, *config)).collect(),
        cpus: None,
    };
    vec![group(&[0, 2]), group(&[3])]
}

/// The CPU on which the tests' processes run. Those of one CPU take turns.
const CPU: u32 = 0;

/// A cgroup, and on v1 another one of v2 with the same processes, whose own events are to say the same.
struct Group {
    path: PathBuf,
    twin: Option<PathBuf>,
}

impl Group {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.path), self.twin.as_ref()].into_iter().flatten().map(PathBuf::as_path)
    }
}

struct Bench {
    divided: Divided,
    hierarchy: Hierarchy,
    top: OwnedGroup,
    twin: Option<OwnedGroup>,
    /// One at a time: they want the same CPU.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// One for each hierarchy in which cgroups can be made and divided, one after the other.
fn benches() -> impl Iterator<Item = Bench> {
    let hierarchies = if skip_without_groups() { [None; 2] } else { [unified(), freezer()] };
    hierarchies.into_iter().flatten().filter_map(Bench::new)
}

fn unified() -> Option<Hierarchy> {
    Some(Hierarchy::unified(&kernel_types()?).unwrap())
}

fn freezer() -> Option<Hierarchy> {
    if v1_mount("freezer").is_none() {
        jobledger_testkit::skip("v1", "no freezer is mounted");
        return None;
    }
    Some(Hierarchy::v1(&kernel_types()?, "freezer").unwrap())
}

impl Bench {
    fn new(hierarchy: Hierarchy) -> Option<Self> {
        let alone = ALONE.lock();
        let divided = match Divided::new(hierarchy, groups(), CPU + 1, true) {
            Ok(divided) => divided,
            Err(error) => {
                jobledger_testkit::skip("bpf", error);
                return None;
            }
        };
        if let Err(error) = divided.prepare(std::iter::once(CPU), || false) {
            jobledger_testkit::skip("perf-events", error);
            return None;
        }
        let unified = OwnedGroup::below(&cgroup2_mount()?, "divided");
        let (top, twin) = if hierarchy.is_unified() {
            (unified, None)
        } else {
            (OwnedGroup::below(&v1_mount("freezer")?, "divided"), Some(unified))
        };
        Some(Self { divided, hierarchy, top, twin, _alone: alone })
    }

    fn group(&self, name: &str) -> Group {
        let group = Group {
            path: self.top.path().join(name),
            twin: self.twin.as_ref().map(|twin| twin.path().join(name)),
        };
        group.paths().for_each(make_group);
        group
    }

    /// Both groups of events of a cgroup.
    fn count(&self, group: &Group) -> Counted {
        let open = |with: &dyn Open, path: &Path| {
            let directory = File::open(path).unwrap();
            let open = |group: &SharedGroup| with.open(On::Cgroup(&directory), CPU, &group.events).unwrap();
            groups().iter().map(open).collect()
        };
        let own = group.twin.as_ref().unwrap_or(&group.path);
        let inner = Arc::clone(&self.divided.0);
        let (divided, own) = (open(&self.divided, &group.path), open(&Kernel, own));
        Counted { unseen: unseen(&inner), divided, own, inner }
    }
}

/// By how much a count of switches may differ. The kernel counts a switch for the task that leaves; the program, which runs before
/// that, for the one that comes. So one that is on the CPU has one more there; and where the kernel counts none from some threads, as
/// some virtual machines' does, those to them are there all the same.
fn slack_of_switches(switches: u64) -> u64 {
    10 + switches / 10
}

type Groups = Vec<Box<dyn Counters>>;

/// A cgroup's counters: divided ones, and events of its own, which are to say the same.
struct Counted {
    divided: Groups,
    own: Groups,
    inner: Arc<Inner>,
    /// How many intervals were of no cgroup when they were opened, because a switch was not seen.
    unseen: u64,
}

/// How many intervals were of no cgroup so far, because a switch was not seen.
fn unseen(inner: &Inner) -> u64 {
    inner.cpus[0].lock().kept(&inner.tables)[state::UNSEEN]
}

fn read_all(counters: &mut Groups) -> Vec<Reading> {
    let read = |counters: &mut Box<dyn Counters>| {
        let mut reading = Reading::default();
        counters.read(&mut reading).unwrap();
        reading
    };
    counters.iter_mut().map(read).collect()
}

impl Counted {
    /// What each group counted so far.
    fn read(&mut self) -> Vec<Reading> {
        read_all(&mut self.divided)
    }

    /// The same, which events of its own say, too; they may say more where a switch was not seen.
    #[track_caller]
    fn agreed(&mut self) -> Vec<Reading> {
        let least = read_all(&mut self.own);
        let divided = self.read();
        let most = read_all(&mut self.own);
        let is_whole = unseen(&self.inner) == self.unseen;
        for ((least, divided), most) in least.iter().zip(&divided).zip(&most) {
            // A switch itself is counted here and not there.
            let slack = 300_000 + most.enabled / 100;
            assert!(!is_whole || divided.enabled + slack >= least.enabled, "{divided:?} {least:?}");
            assert!(divided.enabled <= most.enabled + slack, "{divided:?} {most:?}");
            assert_eq!(divided.running, divided.enabled);
        }
        let slacks = [0, slack_of_switches(most[1].counts[0])];
        let [least, divided_counts, most] =
            [&least, &divided, &most].map(|readings| [readings[0].counts[1], readings[1].counts[0]]);
        for (((least, divided), most), slack) in least.into_iter().zip(divided_counts).zip(most).zip(slacks) {
            assert!(divided <= most + slack, "{divided} {most}");
            assert!(!is_whole || divided + slack >= least, "{divided} {least}");
        }
        divided
    }
}

/// A shell on the one CPU, which waits before it runs the script.
fn spawn(script: &str) -> Child {
    let mut only = rustix::thread::CpuSet::new();
    only.set(CPU as usize);
    let script = format!("read go; {script}");
    let spawn = move || {
        rustix::thread::sched_setaffinity(None, &only).unwrap();
        Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
    };
    let child = std::thread::spawn(spawn).join().unwrap();
    let waits = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.contains("(sh) S")
    };
    jobledger_testkit::eventually("the shell waits", waits);
    child
}

fn go(mut child: Child) -> Child {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child
}

/// Runs a script in a cgroup. It is moved there while it waits: one that moves itself is taken to have been there since it got its CPU.
fn start(group: &Group, script: &str) -> Child {
    let child = spawn(script);
    group.paths().for_each(|group| attach(group, child.id()).unwrap());
    go(child)
}

fn run(group: &Group, script: &str) {
    assert!(start(group, script).wait().unwrap().success());
}

/// So many rounds of nothing, by a process of its own, which has page faults.
fn work(rounds: u32) -> String {
    format!("(:); i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done")
}

#[test]
fn a_cgroup_has_what_it_did_and_what_others_did_is_not_in_it() {
    for bench in benches() {
        let (one, other) = (bench.group("one"), bench.group("other"));
        let mut counted = bench.count(&one);
        run(&other, &work(100_000));
        assert_eq!(counted.agreed()[0], Reading { counts: vec![0, 0], ..Reading::default() });
        run(&one, &work(100_000));
        let readings = counted.agreed();
        assert!(readings[0].enabled > 10_000_000 && readings[0].counts[1] > 0, "{readings:?}");
        // cpu-clock is the CPU's time, as the enabled time is.
        let apart = readings[0].counts[0].abs_diff(readings[0].enabled);
        assert!(apart < 1_000_000 + readings[0].enabled / 1000, "{readings:?}");
    }
}

/// As before Linux 5.5, where the other half of an id is no part of the inode. Cgroups that are made here have small ones.
#[test]
fn a_cgroup_of_v1_is_known_by_the_lower_half_of_its_id() {
    let of_word = |freezer| Bench::new(Hierarchy { inode: Width::Word, ..freezer });
    let Some(bench) = freezer().and_then(of_word) else { return };
    let one = bench.group("one");
    let mut counted = bench.count(&one);
    run(&one, &work(100_000));
    assert!(counted.agreed()[0].enabled > 10_000_000);
}

/// As slurmstepd may do. Nothing else of this CPU's is in a cgroup below the root.
#[test]
fn a_task_that_moves_itself_from_the_root_of_v1_brings_nothing_of_others() {
    const BEFORE: Duration = Duration::from_millis(300);
    // The root of v2 has none but the system's threads on most machines.
    let Some(bench) = freezer().and_then(Bench::new) else { return };
    let group = bench.group("mover");
    let mut counted = bench.count(&group);
    counted.read();
    std::thread::sleep(BEFORE);
    let moves = format!("echo 0 > {}/cgroup.procs; {}", group.path.display(), work(1000));
    assert!(go(spawn(&moves)).wait().unwrap().success());
    let enabled = Duration::from_nanos(counted.read()[0].enabled);
    assert!(enabled > Duration::ZERO && enabled < BEFORE / 2, "{enabled:?}");
}

/// A job shorter than any interval of reading, and gone when it is read.
#[test]
fn a_job_of_50_ms_is_counted_and_its_removed_cgroup_keeps_its_counts() {
    for bench in benches() {
        let group = bench.group("short");
        let mut counted = bench.count(&group);
        run(&group, &work(30_000));
        group.paths().for_each(|path| std::fs::remove_dir(path).unwrap());
        assert!(counted.agreed()[0].enabled > 5_000_000);
    }
}

#[test]
fn what_runs_at_the_moment_is_in_a_reading() {
    for bench in benches() {
        let group = bench.group("endless");
        let mut counted = bench.count(&group);
        let mut child = start(&group, "while :; do :; done");
        let mut last = 0;
        for _ in 0..3 {
            let runs = || read_all(&mut counted.own)[0].enabled > last + 30_000_000;
            jobledger_testkit::eventually("it runs", runs);
            last = counted.agreed()[0].enabled;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Some virtual machines have threads that leave the CPU unseen.
#[test]
fn what_came_since_a_switch_that_was_not_seen_is_in_no_cgroup() {
    for bench in benches() {
        let group = bench.group("after");
        let mut counted = bench.count(&group);
        let mut child = start(&group, "while :; do :; done");
        let inner = Arc::clone(&bench.divided.0);
        let enabled = |groups: &mut Groups| read_all(groups)[0].enabled;
        let left_out = || {
            let (own, before, seen) =
                (enabled(&mut counted.own), enabled(&mut counted.divided), unseen(&inner));
            std::thread::sleep(Duration::from_millis(2));
            inner.cpus[0].lock().mistake(&inner.tables);
            let (after, own_after) = (enabled(&mut counted.divided), enabled(&mut counted.own));
            assert!(unseen(&inner) > seen, "the switch was taken for one that was seen");
            after - before < 500_000 && own_after - own > 1_500_000
        };
        jobledger_testkit::eventually("an interval is left out", left_out);
        counted.agreed();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// SLURM's jobs, steps and tasks: each level has all that is below it.
#[test]
fn nested_cgroups_have_each_what_is_in_them_and_below() {
    for bench in benches() {
        let job = bench.group("job");
        let (first, second) = (bench.group("job/step_0"), bench.group("job/step_1"));
        let mut counted = [&job, &first, &second].map(|path| bench.count(path));
        run(&first, &work(50_000));
        run(&second, &work(100_000));
        let [whole, one, two] = counted.each_mut().map(|counted| counted.agreed());
        // Nothing runs in the job's own cgroup.
        for ((whole, one), two) in whole.iter().zip(&one).zip(&two) {
            assert!(one.enabled > 0 && two.enabled > 0);
            assert_eq!(whole.enabled, one.enabled + two.enabled);
            assert_eq!(whole.counts[0], one.counts[0] + two.counts[0]);
        }
    }
}

/// Everything is somewhere, to the last nanosecond and the last fault: two cgroups that take turns on a CPU, one that sleeps and
/// wakes, the system, and idle time.
#[test]
fn the_cgroups_and_the_rest_are_all_that_the_cpu_counted() {
    for bench in benches() {
        let paths = ["busy", "other", "sleeper"].map(|name| bench.group(name));
        let mut counted = paths.each_ref().map(|path| bench.count(path));
        let children = [
            start(&paths[0], &work(150_000)),
            start(&paths[0], &work(150_000)),
            start(&paths[1], &work(300_000)),
            start(&paths[2], "i=0; while [ $i -lt 30 ]; do sleep 0.001; i=$((i+1)); done"),
        ];
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        std::thread::sleep(Duration::from_millis(50));
        let inner = &bench.divided.0;
        inner.on_all(|cpu| cpu.stop(&inner.tables));
        let whole = inner.cpus[0].lock().counted();
        let rest = inner.cpus[0].lock().rest(&inner.tables);
        inner.on_all(|cpu| cpu.close(&inner.tables));
        let of_cgroups = counted.each_mut().map(|counted| counted.agreed());
        for (group, whole) in whole.iter().enumerate() {
            let mut sum = Reading::default();
            inner.tables.layout.reading(group, &rest, &[], &mut sum);
            for readings in &of_cgroups {
                let reading = &readings[group];
                assert!(reading.enabled > 0 && reading.counts[0] > 0, "each did something: {of_cgroups:?}");
                sum.enabled += reading.enabled;
                sum.running += reading.running;
                sum.counts.iter_mut().zip(&reading.counts).for_each(|(sum, count)| *sum += count);
            }
            assert_eq!(&sum, whole, "group {group}");
        }
        for counted in &mut counted {
            let again = counted.divided[0].read(&mut Reading::default());
            assert_eq!(again, Err(ReadError::Gone), "nothing more comes");
        }
    }
}

/// The same cgroup again: from 0, and nothing twice.
#[test]
fn a_cgroup_that_is_registered_again_begins_at_zero() {
    for bench in benches() {
        let group = bench.group("again");
        let mut first = bench.count(&group);
        run(&group, &work(50_000));
        assert!(first.agreed()[0].enabled > 0);
        // One group alone comes back while the entry is there.
        drop(first.divided.pop());
        let directory = File::open(&group.path).unwrap();
        let mut back = bench.divided.open(On::Cgroup(&directory), CPU, &groups()[1].events).unwrap();
        let mut reading = Reading::default();
        back.read(&mut reading).unwrap();
        assert_eq!((reading.enabled, reading.counts[0]), (0, 0));
        drop((first, back));
        let mut second = bench.count(&group);
        assert_eq!(second.agreed()[0].enabled, 0);
        run(&group, &work(50_000));
        assert!(second.agreed()[0].enabled > 0);
    }
}

#[test]
fn released_counters_are_off_and_come_back_when_they_are_wanted() {
    for bench in benches() {
        let group = bench.group("released");
        let mut counted = bench.count(&group);
        run(&group, &work(50_000));
        let so_far = counted.agreed()[0].enabled;
        assert_eq!(bench.divided.descriptors(), 3);
        bench.divided.release();
        assert_eq!(bench.divided.descriptors(), 0);
        run(&group, &work(50_000));
        assert_eq!(counted.read()[0].enabled, so_far);
        drop(counted);
        let mut counted = bench.count(&group);
        assert_eq!(bench.divided.descriptors(), 3);
        run(&group, &work(50_000));
        assert!(counted.agreed()[0].enabled > 0);
    }
}

/// Whoever wants the counters has them as soon as the last CPU stopped, and no CPU waits for another one.
#[test]
fn all_cpus_are_stopped_by_several_threads_before_any_is_closed() {
    if threads_for(2) < 2 {
        jobledger_testkit::skip("cpus", "two CPUs");
        return;
    }
    for bench in benches() {
        let divided = Divided::new(bench.hierarchy, groups(), 2, false).unwrap();
        divided.prepare(0..2, || false).unwrap();
        let [first, second] = [0, 1].map(|number| divided.0.cpu(number).unwrap());
        let running = || {
            let now = || second.lock().counted()[0].enabled;
            let before = now();
            now() > before
        };
        assert!(running());
        let open = second.lock().descriptors();
        std::thread::scope(|scope| {
            let busy = first.lock();
            scope.spawn(|| divided.release());
            jobledger_testkit::eventually("the second is stopped", || !running());
            assert_eq!(second.lock().descriptors(), open, "and not closed before the first is stopped");
            drop(busy);
        });
        assert_eq!(divided.descriptors(), 0);
    }
}

#[test]
fn a_full_table_is_said_and_room_comes_back() {
    for bench in benches() {
        let divided =
            Divided::with_room(bench.hierarchy, groups(), CPU + 1, Room { registered: 2, followed: 0 })
                .unwrap();
        let open = |name: &str| {
            let path = bench.group(name).path;
            divided.open(On::Cgroup(&File::open(path).unwrap()), CPU, &groups()[0].events)
        };
        let (one, two) = (open("one").unwrap(), open("two").unwrap());
        assert_eq!(open("three").err(), Some(OpenError::Descriptors));
        drop(one);
        let three = open("three").unwrap();
        drop((two, three));
    }
}

/// Where there is nothing to divide, events are opened as ever.
#[test]
fn what_is_no_cgroup_of_the_hierarchy_is_counted_by_events_of_its_own() {
    for bench in benches() {
        let mut everybody = bench.divided.open(On::Host, CPU, &groups()[0].events).unwrap();
        let mut reading = Reading::default();
        everybody.read(&mut reading).unwrap();
        assert!(reading.enabled > 0);
        let no_cgroup = File::open("/").unwrap();
        let error = bench.divided.open(On::Cgroup(&no_cgroup), CPU, &groups()[0].events).err();
        assert_eq!(error, Some(OpenError::Io(Errno::BADF.raw_os_error())));
        let directory = File::open(bench.group("x").path).unwrap();
        let offline = bench.divided.open(On::Cgroup(&directory), 4095, &groups()[0].events);
        assert_eq!(offline.err(), Some(OpenError::Offline));
    }
}
