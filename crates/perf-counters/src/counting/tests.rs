use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use cpu_topology::CpuSet;

use super::*;
use crate::Quantity;
use crate::sharing::Reason;
use crate::testing::{Opener, World, plan};

struct Bench {
    world: Arc<World>,
    ownership: CounterOwnership,
    counting: Counting,
}

impl Bench {
    fn new(limit: usize) -> Self {
        let (world, ownership) = (Arc::new(World::new(plan())), CounterOwnership::default());
        let counting =
            Counting::new(Arc::new(Opener(world.clone())), Arc::new(plan()), ownership.clone(), limit);
        Self { world, ownership, counting }
    }

    fn job(&mut self, cpus: &str) -> Counted {
        let mut counted = self.counting.begin(Mode::Cpus, None);
        self.open(&mut counted, cpus);
        counted
    }

    fn open(&mut self, counted: &mut Counted, cpus: &str) {
        self.counting.open(counted, &CpuSet::parse(cpus.as_bytes()).unwrap());
    }

    fn counts(&self, counted: &Counted) -> BTreeMap<Quantity, u64> {
        counted.tally().quantities(self.counting.layout()).collect()
    }

    /// What is really open is what is accounted for.
    fn open_now(&self) -> usize {
        let open = self.world.open.load(Ordering::SeqCst);
        assert_eq!(open, self.counting.descriptors().0);
        open
    }
}

#[test]
fn what_all_cpus_count_is_the_jobs() {
    let mut bench = Bench::new(100);
    bench.world.run(2, "flops", (5, 5), &[50, 50]);
    let mut job = bench.job("2-3");
    assert_eq!(bench.open_now(), 6);
    bench.world.run(2, "flops", (10, 10), &[1000, 500]);
    bench.world.run(3, "flops", (20, 20), &[2000, 700]);
    bench.world.run(3, "branches", (20, 10), &[8]);
    bench.counting.read(&mut job);
    let expected = [(Quantity::Cycles, 3000), (Quantity::Instructions, 1200), (Quantity::Branches, 16)];
    assert_eq!(bench.counts(&job), BTreeMap::from(expected), "not what was before");
    assert_eq!(job.tally().covered(), 30);
    bench.counting.read(&mut job);
    assert_eq!(bench.counts(&job), BTreeMap::from(expected), "nothing twice");
    bench.world.run(3, "branches", (7, 0), &[0]);
    bench.counting.close(&mut job);
    assert_eq!(bench.open_now(), 0);
    let branches = job.tally().groups().nth(1).unwrap();
    assert_eq!((branches.enabled, branches.running), (27, 10), "time without a counter is enabled time, too");
}

#[test]
fn cpus_that_come_later_add_and_those_that_go_keep_what_they_counted() {
    let mut bench = Bench::new(100);
    let mut job = bench.job("0,7");
    bench.world.run(0, "flops", (10, 10), &[1000, 1]);
    bench.world.run(7, "flops", (10, 10), &[50_000, 1]);
    bench.world.run(7, "branches", (10, 0), &[0]);
    bench.open(&mut job, "0-2");
    assert_eq!(job.cpus().iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(
        (bench.counts(&job)[&Quantity::Cycles], bench.open_now()),
        (51_000, 9),
        "read before it was closed"
    );
    assert_eq!(job.tally().groups().nth(1).map(|times| times.enabled), Some(10));
    bench.world.run(7, "flops", (10, 10), &[1_000_000, 1]);
    bench.world.run(0, "flops", (10, 10), &[100, 1]);
    bench.world.run(1, "flops", (10, 10), &[10, 1]);
    bench.counting.read(&mut job);
    assert_eq!(bench.counts(&job)[&Quantity::Cycles], 51_110);
    // A CPU goes offline and comes back: the kernel's event died with it, a new one counts from 0.
    bench.world.offline.lock().unwrap().insert(1);
    bench.counting.read(&mut job);
    assert_eq!((job.cpus().len(), bench.open_now()), (2, 6));
    bench.open(&mut job, "0-2");
    assert_eq!(job.cpus().len(), 2, "it is still away");
    bench.world.offline.lock().unwrap().clear();
    bench.open(&mut job, "0-2");
    bench.world.run(1, "flops", (10, 10), &[5, 1]);
    bench.counting.read(&mut job);
    assert_eq!((bench.counts(&job)[&Quantity::Cycles], bench.open_now()), (51_115, 9));
    assert_eq!(job.not_counted(), None);
}

#[test]
fn without_descriptors_the_less_important_groups_go_first_and_whole() {
    let mut bench = Bench::new(8);
    let first = bench.job("0-1");
    assert_eq!((bench.open_now(), first.not_counted()), (6, None));
    let mut second = bench.job("2");
    assert_eq!((bench.open_now(), second.not_counted()), (8, Some(NotCounted::Descriptors)));
    bench.world.run(2, "flops", (1, 1), &[7, 1]);
    bench.counting.read(&mut second);
    assert!(!bench.counts(&second).contains_key(&Quantity::Branches), "absent, not 0");
    let third = bench.job("3");
    assert_eq!((bench.counts(&third).len(), third.not_counted()), (0, Some(NotCounted::Descriptors)));
    // They are reported while they last, and opened when there are descriptors.
    bench.open(&mut second, "2");
    assert_eq!(second.not_counted(), Some(NotCounted::Descriptors));
    let mut first = first;
    bench.counting.close(&mut first);
    bench.open(&mut second, "2");
    assert_eq!((bench.open_now(), second.not_counted()), (3, None));
    bench.world.run(2, "flops", (1, 1), &[7, 1]);
    bench.world.run(2, "branches", (1, 1), &[5]);
    bench.counting.read(&mut second);
    assert_eq!(bench.counts(&second)[&Quantity::Branches], 5);
    assert_eq!((bench.counts(&second)[&Quantity::Cycles], second.tally().covered()), (14, 2), "as before");
    // The kernel has its own limit, which is met only on the way.
    let mut bench = Bench::new(100);
    bench.world.refused.lock().unwrap().insert("branches".to_owned(), OpenError::Descriptors);
    let job = bench.job("0-3");
    assert_eq!((bench.open_now(), job.not_counted()), (8, Some(NotCounted::Descriptors)));
}

#[test]
fn a_group_that_the_kernel_refuses_is_not_counted_on_some_cpus() {
    let mut bench = Bench::new(100);
    bench.world.refused.lock().unwrap().insert("branches".to_owned(), OpenError::Unfit);
    let job = bench.job("0-1");
    assert_eq!(job.not_counted(), Some(NotCounted::Failed(OpenError::Unfit)));
    assert_eq!(
        bench.counts(&job).into_keys().collect::<Vec<_>>(),
        [Quantity::Cycles, Quantity::Instructions]
    );
    bench.world.refused.lock().unwrap().insert("flops".to_owned(), OpenError::Denied);
    let denied = bench.job("2");
    assert_eq!((denied.not_counted(), bench.counts(&denied).len()), (Some(NotCounted::Denied), 0));
}

fn times(counted: &Counted, group: usize) -> (u64, u64) {
    let times = counted.tally().groups().nth(group).unwrap();
    (times.enabled, times.running)
}

#[test]
fn what_a_group_missed_while_it_was_left_out_is_in_its_times() {
    let mut bench = Bench::new(8);
    let (mut first, mut second) = (bench.job("0-1"), bench.job("2"));
    bench.world.run(2, "flops", (70, 70), &[7, 1]);
    bench.counting.read(&mut second);
    bench.counting.close(&mut first);
    // What runs between the last reading and the return was missed, too.
    bench.world.run(2, "flops", (10, 10), &[7, 1]);
    bench.open(&mut second, "2");
    assert_eq!(second.not_counted(), None);
    assert!(!bench.counts(&second).contains_key(&Quantity::Branches), "nothing of it yet");
    bench.world.run(2, "flops", (20, 20), &[7, 1]);
    bench.world.run(2, "branches", (20, 20), &[5]);
    bench.counting.read(&mut second);
    assert_eq!((times(&second, 1), times(&second, 0)), ((100, 20), (100, 100)));
    assert_eq!((bench.counts(&second)[&Quantity::Branches], second.tally().covered()), (5, 100));
}

#[test]
fn when_a_job_grows_beyond_the_descriptors_the_least_important_groups_make_room() {
    for kernel in [false, true] {
        let mut bench = Bench::new(if kernel { 100 } else { 8 });
        *bench.world.most.lock().unwrap() = Some(8);
        let mut job = bench.job("0-1");
        assert_eq!((bench.open_now(), job.not_counted()), (6, None));
        bench.world.run(0, "flops", (10, 10), &[7, 1]);
        for _ in 0..3 {
            bench.open(&mut job, "0-3");
            assert_eq!((bench.open_now(), job.not_counted()), (8, Some(NotCounted::Descriptors)), "{kernel}");
        }
        bench.world.run(3, "flops", (10, 10), &[7, 1]);
        bench.counting.read(&mut job);
        let counts = [(Quantity::Cycles, 14), (Quantity::Instructions, 2)];
        assert_eq!(bench.counts(&job), BTreeMap::from(counts), "{kernel}");
        assert_eq!(job.tally().covered(), 20);
    }
}

#[test]
fn groups_that_come_back_and_cpus_that_are_new_share_the_same_descriptors() {
    let mut bench = Bench::new(5);
    let (mut first, mut second) = (bench.job("0"), bench.job("1"));
    assert_eq!((bench.open_now(), second.not_counted()), (5, Some(NotCounted::Descriptors)));
    bench.counting.close(&mut first);
    bench.open(&mut second, "1-2");
    assert_eq!((bench.open_now(), second.not_counted()), (4, Some(NotCounted::Descriptors)));
}

#[test]
fn a_cpu_is_covered_by_whichever_group_counts_it() {
    let mut bench = Bench::new(100);
    let mut job = bench.job("0");
    let run = |bench: &Bench, flops, branches| {
        bench.world.run(0, "flops", (10, flops), &[flops, 0]);
        bench.world.run(0, "branches", (10, branches), &[branches]);
    };
    run(&bench, 0, 10);
    bench.counting.read(&mut job);
    assert_eq!(job.tally().covered(), 10, "the first had no turn");
    run(&bench, 10, 0);
    bench.counting.read(&mut job);
    assert_eq!(job.tally().covered(), 20, "and nothing is covered twice");
    // The most important one is closed: the kernel refuses it on another CPU.
    bench.world.refused_on.lock().unwrap().insert((1, "flops".to_owned()), OpenError::Unfit);
    bench.open(&mut job, "0-1");
    assert_eq!((bench.open_now(), job.not_counted()), (2, Some(NotCounted::Failed(OpenError::Unfit))));
    run(&bench, 10, 10);
    bench.world.run(1, "branches", (10, 10), &[1]);
    bench.counting.read(&mut job);
    assert_eq!(job.tally().covered(), 40);
}

/// A level that is raised while a CPU's groups are opened must not leave some of them to be opened again.
#[test]
fn a_refusal_in_the_middle_of_a_cpu_leaves_nothing_to_be_counted_twice() {
    let mut bench = Bench::new(100);
    let refuse = |bench: &Bench, cpu| {
        let mut refused = bench.world.refused_on.lock().unwrap();
        refused.insert((cpu, "branches".to_owned()), OpenError::Denied);
    };
    refuse(&bench, 1);
    let mut job = bench.job("0-1");
    assert_eq!((bench.open_now(), job.not_counted()), (3, Some(NotCounted::Denied)));
    bench.world.refused_on.lock().unwrap().clear();
    bench.open(&mut job, "0-1");
    assert_eq!((bench.open_now(), job.not_counted()), (6, None));
    bench.world.run(1, "flops", (10, 10), &[1000, 1]);
    bench.counting.read(&mut job);
    assert_eq!(bench.counts(&job)[&Quantity::Cycles], 1000, "once");
    // A group that comes back is on all CPUs or on none.
    let mut bench = Bench::new(9);
    let mut first = bench.job("7");
    let mut second = bench.job("0-2");
    assert_eq!(second.not_counted(), Some(NotCounted::Descriptors));
    bench.counting.close(&mut first);
    refuse(&bench, 1);
    bench.open(&mut second, "0-2");
    assert_eq!((bench.open_now(), second.not_counted()), (6, Some(NotCounted::Denied)));
    bench.world.refused_on.lock().unwrap().clear();
    bench.open(&mut second, "0-2");
    assert_eq!((bench.open_now(), second.not_counted()), (9, None));
}

#[test]
fn opening_stops_at_once_when_the_counters_are_somebody_elses() {
    let mut bench = Bench::new(1000);
    *bench.world.yields.lock().unwrap() = Some((5, bench.ownership.clone()));
    let mut job = bench.job("0-63");
    assert!(bench.open_now() <= 6, "{}", bench.open_now());
    bench.counting.close(&mut job);
    assert_eq!(bench.open_now(), 0);
    bench.open(&mut job, "0-63");
    assert_eq!(bench.open_now(), 0, "none is opened while they are");
    *bench.world.yields.lock().unwrap() = None;
    bench.ownership.resume_from(Reason::Order);
    bench.open(&mut job, "0-63");
    assert_eq!(bench.open_now(), 192);
}

#[test]
fn what_is_not_believed_is_in_no_count_and_is_counted_itself() {
    let mut bench = Bench::new(100);
    let mut job = bench.job("0");
    bench.world.run(0, "flops", (10, 10), &[1_000_000, 9_000_000]);
    bench.counting.read(&mut job);
    assert_eq!(bench.counts(&job)[&Quantity::Cycles], 0);
    let rejected: BTreeMap<_, _> = bench.counting.rejected().collect();
    assert_eq!((rejected[&RejectReason::Instructions], rejected.values().sum::<u64>()), (1, 1));
    assert_eq!(job.tally().covered(), 0, "it is missing from what was covered");
    bench.world.run(0, "flops", (10, 10), &[1_000_000, 1_000_000]);
    bench.counting.read(&mut job);
    assert_eq!(bench.counts(&job)[&Quantity::Instructions], 1_000_000, "the next interval is");
}

/// Whoever wants the counters has them as soon as the last group stopped, however long closing takes.
#[test]
fn all_is_stopped_before_anything_is_read_and_read_before_anything_is_closed() {
    let mut bench = Bench::new(1000);
    let mut jobs = [bench.job("0-9"), bench.job("10-19")];
    bench.world.run(12, "flops", (10, 10), &[1000, 1]);
    bench.counting.release(jobs.iter_mut());
    let done: Vec<_> = bench.world.done.lock().unwrap().iter().map(|(what, _)| *what).collect();
    assert_eq!(done, [["stop"; 40], ["read"; 40], ["close"; 40]].concat());
    assert_eq!((bench.open_now(), bench.counts(&jobs[1])[&Quantity::Cycles]), (0, 1000));
    assert!(jobs.iter().all(|job| job.cpus().is_empty()));
}

/// 512 hardware threads: what one thread does at once for each is done by several, as many as this machine has CPUs for.
#[test]
fn a_large_job_is_stopped_and_closed_by_several_threads() {
    let mut bench = Bench::new(10_000);
    let mut jobs = [bench.job("0-511")];
    let hands = |bench: &Bench, wanted: &str| {
        let done = std::mem::take(&mut *bench.world.done.lock().unwrap());
        let order: Vec<_> = done.iter().map(|(what, _)| *what).collect();
        assert_eq!(order, [["stop"; 1024], ["read"; 1024], ["close"; 1024]].concat());
        done.iter().filter(|(what, _)| *what == wanted).map(|(_, thread)| *thread).collect::<HashSet<_>>()
    };
    let threads = threads_for(4);
    bench.counting.release(jobs.iter_mut());
    assert_eq!(hands(&bench, "stop").len(), threads);
    // Its end is as quick, since who wants the counters waits for that.
    bench.open(&mut jobs[0], "0-511");
    bench.counting.close(&mut jobs[0]);
    assert_eq!((hands(&bench, "close").len(), bench.open_now()), (threads, 0));
}

/// One CPU does nearly all, another a little, a third nothing: the series of the imbalance.
#[test]
fn the_busiest_cpu_and_idle_ones_are_added_up_interval_by_interval() {
    let mut bench = Bench::new(100);
    let mut job = bench.job("0-2");
    let begun = job.looked.unwrap();
    let second = 1_000_000_000;
    bench.world.run(0, "flops", (8 * second, 8 * second), &[9000, 900]);
    bench.world.run(1, "flops", (second, second), &[1000, 100]);
    bench.counting.read_at(&mut job, begun + Duration::from_secs(10), false);
    let busiest = |job: &Counted| job.tally().imbalance.busiest_instructions;
    assert_eq!((busiest(&job), job.tally().imbalance.idle), (900, 10 * second));
    // Another one is the busiest now; the interval is too short until the job ends.
    bench.world.run(1, "flops", (second, second), &[5000, 500]);
    bench.counting.read_at(&mut job, begun + Duration::from_secs(11), false);
    assert_eq!(busiest(&job), 900);
    bench.counting.read_at(&mut job, begun + Duration::from_secs(12), true);
    assert_eq!(busiest(&job), 1400);
    let instructions = bench.counts(&job)[&Quantity::Instructions];
    assert_eq!(instructions, 1500);
}
