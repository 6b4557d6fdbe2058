mod assigned;
mod others;
mod telemetry;

use std::collections::BTreeMap;

use rustix::fs::{FlockOperation, flock};
use test_machine::Machine;

use super::super::testing::Fake;
use super::super::tree::Mounted;
use super::*;

struct Node {
    machine: Machine,
    fake: Fake,
    monitor: Monitor,
    /// What was charged to jobs and left unattributed, by domain.
    jobs: BTreeMap<(u64, u32), u64>,
    unattributed: BTreeMap<u32, u64>,
    /// The same of telemetry, by quantity.
    measured: BTreeMap<(Quantity, u64, u32), u64>,
    rest: BTreeMap<(Quantity, u32), u64>,
    began: Instant,
}

impl Node {
    fn new(domains: &[u32], rmids: usize) -> Self {
        let machine = Machine::new();
        for id in [7, 8] {
            machine.write(&format!("cgroup/job_{id}/cgroup.threads"), "");
        }
        let fake = Fake::mount(&machine, domains, rmids);
        // A daemon.
        machine.write("cgroup/system/cgroup.threads", "");
        fake.spawn(1, "system", "");
        let monitor = Monitor::new(&Arc::new(machine.roots()), Box::new(fake.clone()));
        Self {
            machine,
            fake,
            monitor,
            jobs: BTreeMap::new(),
            unattributed: BTreeMap::new(),
            measured: BTreeMap::new(),
            rest: BTreeMap::new(),
            began: Instant::now(),
        }
    }

    fn job(&self, id: u32) -> Job {
        let cgroup = Arc::new(self.machine.v2(&format!("job_{id}")));
        Job { run: JobRunId(u64::from(id) * 10), id: Some(JobId(id)), cgroup }
    }

    fn charge(&mut self, round: &Round) {
        for (run, domain, bytes) in &round.jobs {
            *self.jobs.entry((run.0, *domain)).or_default() += bytes;
        }
        for (domain, bytes) in &round.unattributed {
            *self.unattributed.entry(*domain).or_default() += bytes;
        }
    }

    fn follow(&mut self, ids: &[u32]) {
        self.follow_at(ids, 0);
    }

    fn follow_at(&mut self, ids: &[u32], seconds: u64) {
        let jobs: Vec<Job> = ids.iter().map(|id| self.job(*id)).collect();
        let last = self.monitor.follow(&jobs, self.began + Duration::from_secs(seconds));
        last.get(&Quantity::Bytes).iter().for_each(|round| self.charge(round));
        self.charge_telemetry(&last);
    }

    fn read(&mut self) -> Round {
        let round = self.monitor.read();
        self.charge(&round);
        round
    }

    fn charge_telemetry(&mut self, rounds: &Rounds) {
        for (quantity, round) in rounds.iter().filter(|(quantity, _)| **quantity != Quantity::Bytes) {
            for (run, package, amount) in &round.jobs {
                *self.measured.entry((*quantity, run.0, *package)).or_default() += amount;
            }
            for (package, amount) in &round.unattributed {
                *self.rest.entry((*quantity, *package)).or_default() += amount;
            }
        }
    }

    fn measure(&mut self) -> Round {
        let mut rounds = self.monitor.read_telemetry();
        self.charge_telemetry(&rounds);
        rounds.remove(&Quantity::CoreEnergy).unwrap()
    }

    /// Microjoules of a job.
    fn energy(&self, id: u32, package: u32) -> Option<u64> {
        self.measured.get(&(Quantity::CoreEnergy, u64::from(id) * 10, package)).copied()
    }

    /// Microjoules of no job.
    fn rest(&self, package: u32) -> Option<u64> {
        self.rest.get(&(Quantity::CoreEnergy, package)).copied()
    }

    fn of(&self, id: u32, domain: u32) -> Option<u64> {
        self.jobs.get(&(u64::from(id) * 10, domain)).copied()
    }
}

const GROUP_7: &str = "mon_groups/jobledger_job_7_70";

#[test]
fn a_job_has_a_group_for_its_run_and_its_bytes_are_read_a_last_time() {
    let mut node = Node::new(&[0, 1], 4);
    node.fake.spawn(70, "job_7", "").moves(70, 0, 5).moves(1, 0, 100);
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(70), GROUP_7);
    let round = node.read();
    assert_eq!(round.whole, BTreeSet::from([0, 1]));
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(0), 0), "history is in no number");
    node.fake.fork(70, 71).moves(71, 0, 1000).moves(70, 1, 300).moves(1, 0, 40);
    let round = node.read();
    assert_eq!((node.of(7, 0), node.of(7, 1), node.unattributed[&0]), (Some(1000), Some(300), 40));
    assert_eq!(round.occupancy[&(JobRunId(70), 0)], 100);
    node.fake.moves(70, 0, 24).exit(70).exit(71);
    node.follow(&[]);
    assert_eq!(node.of(7, 0), Some(1024));
    assert!(node.fake.ours().is_empty());
    node.fake.moves(1, 0, 2);
    node.read();
    assert_eq!(
        (node.unattributed[&0], node.of(7, 0)),
        (42, Some(1024)),
        "the group's removal is no loss and no gain"
    );
}

#[test]
fn threads_that_are_forked_while_their_parent_is_moved_are_found() {
    let mut node = Node::new(&[0], 4);
    node.fake.spawn(70, "job_7", "");
    node.fake.state().forks.insert(70, 71);
    node.fake.state().forks.insert(71, 72);
    node.follow(&[7]);
    for task in [70, 71, 72] {
        assert_eq!(node.fake.group_of(task), GROUP_7, "{task}");
    }
    // A new step's slurmstepd is slurmd's child, not the job's.
    node.fake.spawn(90, "job_7", "");
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(90), GROUP_7);
}

#[test]
fn a_sites_control_groups_are_respected() {
    let mut node = Node::new(&[0], 8);
    node.fake.site_makes("gold").site_makes("silver");
    node.fake.spawn(70, "job_7", "gold").spawn(71, "job_7", "").spawn(1000, "system", "gold");
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(70), format!("gold/{GROUP_7}"));
    assert_eq!(node.fake.group_of(71), GROUP_7);
    node.read();
    node.fake.moves(70, 0, 10).moves(71, 0, 20).moves(1000, 0, 7).moves(1, 0, 5);
    let round = node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(30), 12));
    assert!(round.read.contains(&(JobRunId(70), 0)));
    // Moving a task to another control group takes it out of ours: it is found there.
    node.fake.site_moves(70, "silver");
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(70), format!("silver/{GROUP_7}"));
    node.read();
    node.fake.moves(70, 0, 3);
    node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(33), 12));
    node.monitor.remove_all();
    assert!(node.fake.ours().is_empty());
    assert_eq!(node.fake.group_of(70), "silver");
    assert!(node.fake.state().groups.contains("gold"), "not ours to remove");
}

#[test]
fn tasks_in_somebody_elses_monitoring_group_remain_there() {
    let mut node = Node::new(&[0], 8);
    node.fake.site_makes("mon_groups/pqos").spawn(70, "job_7", "mon_groups/pqos");
    for silent in [false, true] {
        node.fake.state().silent = silent;
        let _ = std::fs::remove_dir_all(node.machine.path.join("proc/70"));
        node.fake.render();
        node.follow(&[7]);
        assert_eq!(node.fake.group_of(70), "mon_groups/pqos");
        assert_eq!(node.monitor.refused.get(&Refusal::Foreign), Some(&(1 + u64::from(silent))));
        assert!(node.monitor.problem().unwrap().to_string().contains("somebody else"));
    }
    assert_eq!(node.monitor.monitored(JobRunId(70), node.began + Duration::from_secs(9)), None);
}

#[test]
fn before_linux_5_6_a_tasks_group_is_searched_for() {
    let mut node = Node::new(&[0], 8);
    node.fake.state().silent = true;
    node.fake.site_makes("gold").spawn(70, "job_7", "gold").spawn(71, "job_7", "");
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(70), format!("gold/{GROUP_7}"));
    assert_eq!(node.fake.group_of(71), GROUP_7);
}

#[test]
fn a_job_without_a_free_rmid_has_no_data_until_one_is_free() {
    let mut node = Node::new(&[0], 1);
    node.fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
    node.follow_at(&[7, 8], 0);
    assert_eq!(node.fake.ours(), [GROUP_7]);
    assert_eq!(node.monitor.refused, BTreeMap::from([(Refusal::Exhausted, 1)]));
    assert!(node.monitor.problem().unwrap().to_string().contains("RMIDs"));
    node.read();
    node.fake.moves(80, 0, 500);
    node.read();
    assert_eq!((node.of(8, 0), node.unattributed[&0]), (None, 500), "unattributed");
    node.follow_at(&[8], 10);
    node.follow_at(&[8], 20);
    node.fake.moves(80, 0, 60);
    node.read();
    assert_eq!((node.of(8, 0), node.unattributed[&0]), (Some(60), 500));
    assert_eq!(node.monitor.problem(), None);
    let at = |seconds| node.began + Duration::from_secs(seconds);
    assert_eq!(node.monitor.monitored(JobRunId(70), at(30)), Some(Duration::from_secs(10)));
    assert_eq!(
        node.monitor.monitored(JobRunId(80), at(25)),
        Some(Duration::from_secs(15)),
        "not from its beginning"
    );
}

#[test]
fn groups_that_an_earlier_run_left_are_removed_and_no_others() {
    let mut node = Node::new(&[0], 8);
    node.fake
        .site_makes("gold")
        .site_makes("mon_groups/mine")
        .site_makes("gold/mon_groups/jobledger_job_3_4");
    node.fake.site_makes("mon_groups/jobledger_job_1_2").spawn(70, "job_7", "mon_groups/jobledger_job_1_2");
    node.follow(&[7]);
    assert_eq!(node.fake.ours(), [GROUP_7]);
    assert_eq!(node.fake.group_of(70), GROUP_7);
    assert!(node.fake.state().groups.contains("mon_groups/mine"));
}

/// Sub-NUMA clusters are parts of their domain; Zen has a domain for each complex of cores.
#[test]
fn clusters_are_not_added_to_their_domain() {
    let mut node = Node::new(&[0, 1, 2, 3], 8);
    node.fake.state().clusters = 2;
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    node.read();
    node.fake.moves(70, 3, 11).moves(70, 0, 5);
    let round = node.read();
    assert_eq!((node.of(7, 3), node.of(7, 0), node.of(7, 1)), (Some(11), Some(5), Some(0)));
    assert_eq!(round.whole.len(), 4);
}

#[test]
fn what_the_hardware_does_not_know_is_absent_and_never_made_up_later() {
    let mut node = Node::new(&[0, 1], 8);
    node.fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
    node.follow(&[7, 8]);
    node.read();
    node.fake.moves(70, 0, 1000).moves(80, 0, 10).moves(70, 1, 1);
    node.fake.state().instead.insert((GROUP_7.to_owned(), 0), "Unavailable");
    node.fake.render();
    let round = node.read();
    assert_eq!(round.whole, BTreeSet::from([1]), "a part is not taken for the whole");
    assert!(!round.read.contains(&(JobRunId(70), 0)) && round.read.contains(&(JobRunId(80), 0)));
    assert_eq!((node.of(7, 0), node.of(8, 0), node.of(7, 1)), (Some(0), Some(10), Some(1)));
    node.fake.state().instead.clear();
    node.fake.moves(70, 0, 7);
    let round = node.read();
    assert!(round.whole.contains(&0));
    assert_eq!(node.of(7, 0), Some(0), "how much of it is of this interval is not known");
    node.fake.moves(70, 0, 5);
    node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(5), 0));
    // A counter that is not assigned remains so.
    node.fake.state().instead.insert((GROUP_7.to_owned(), 0), "Unassigned");
    node.fake.render();
    assert!(!node.read().whole.contains(&0));
}

/// AMD without ABMC: the first readings of a new group are "Unavailable" (fs/resctrl/monitor.c, `mon_event_count`).
#[test]
fn the_first_number_of_a_new_group_is_all_that_it_counted() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "");
    node.fake.state().instead.insert((GROUP_7.to_owned(), 0), "Unavailable");
    node.follow(&[7]);
    node.fake.moves(70, 0, 30);
    let round = node.read();
    assert_eq!((node.of(7, 0), round.read.len(), round.whole.len()), (None, 0, 0), "absent, and not 0");
    node.fake.state().instead.clear();
    node.fake.moves(70, 0, 4);
    let round = node.read();
    assert_eq!((node.of(7, 0), round.read.len()), (Some(34), 1));
    assert!(round.whole.contains(&0) && round.began.is_empty());
    node.fake.moves(70, 0, 2).moves(1, 0, 5);
    node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(36), 5));
}

#[test]
fn somebody_who_removes_our_group_costs_what_it_counted_since_the_last_reading() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    node.read();
    node.fake.moves(70, 0, 10);
    node.read();
    node.fake.moves(70, 0, 99);
    node.fake.remove(GROUP_7).unwrap();
    assert!(node.read().whole.is_empty());
    node.follow(&[7]);
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(70), GROUP_7, "made again");
    node.read();
    node.fake.moves(70, 0, 4);
    node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(14), 0));
}

#[test]
fn who_has_the_lock_is_waited_for_until_the_next_time() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "");
    let root = std::fs::File::open(node.machine.path.join("sys/fs/resctrl")).unwrap();
    flock(&root, FlockOperation::LockExclusive).unwrap();
    node.follow(&[7]);
    assert_eq!(node.monitor.refused, BTreeMap::from([(Refusal::Locked, 1)]));
    flock(&root, FlockOperation::Unlock).unwrap();
    node.follow(&[7]);
    assert_eq!(node.fake.ours(), [GROUP_7]);
    flock(&root, FlockOperation::LockExclusive).unwrap();
    node.follow(&[]);
    assert_eq!(node.fake.ours(), [GROUP_7], "nothing is removed meanwhile");
    flock(&root, FlockOperation::Unlock).unwrap();
    node.follow(&[]);
    assert!(node.fake.ours().is_empty());
}

#[test]
fn without_root_it_is_denied_and_without_resctrl_unsupported() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "");
    node.fake.state().refuse_tasks = Some(Errno::PERM);
    node.follow(&[7]);
    let problem = node.monitor.problem().unwrap();
    assert_eq!(problem.to_string(), "denied: resctrl's groups");
    node.machine.remove("sys/fs/resctrl");
    let mounted = Mounted::at(node.machine.path.join("sys/fs/resctrl"));
    let mut monitor = Monitor::new(&Arc::new(node.machine.roots()), Box::new(mounted.clone()));
    monitor.follow(&[], node.began);
    assert_eq!(monitor.problem().unwrap().reason(), "unsupported");
    // A CPU that monitors occupancy alone.
    node.machine.write("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n");
    monitor.follow(&[], node.began);
    assert!(monitor.problem().unwrap().to_string().contains("cqm_mbm_total"));
    assert_eq!(monitor.read(), Round::default());
}

/// The kernel's side of a plain directory: made, locked, written.
#[test]
fn the_mounted_tree_makes_locks_and_writes() {
    let machine = Machine::new();
    machine.write("sys/fs/resctrl/tasks", "").write("sys/fs/resctrl/mon_groups/x/tasks", "");
    let tree = Mounted::at(machine.path.join("sys/fs/resctrl"));
    tree.make("mon_groups/y").unwrap();
    assert_eq!(tree.make("mon_groups/y"), Err(Errno::EXIST));
    assert_eq!(tree.directories("mon_groups").unwrap(), ["x", "y"]);
    tree.add_task("mon_groups/x", 123).unwrap();
    assert_eq!(tree.read("mon_groups/x/tasks").unwrap(), b"123\n");
    assert_eq!(tree.add_task("mon_groups/z", 123), Err(Errno::NOENT));
    tree.remove("mon_groups/y").unwrap();
    assert_eq!(tree.remove("mon_groups/y"), Err(Errno::NOENT));
    let lock = tree.lock().unwrap();
    assert!(lock.is_some() && tree.lock().unwrap().is_none());
    drop(lock);
    assert!(tree.lock().unwrap().is_some());
}

/// Random runs of two jobs beside a daemon. Charges never exceed the traffic, and miss only what moved before a job's
/// threads were in its group.
#[test]
fn jobs_and_the_unattributed_rest_are_all_that_was_moved() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..4 {
        let mut node = Node::new(&[0], 8);
        node.follow(&[]);
        node.read();
        let (mut there, mut moved, mut of_jobs) = (BTreeSet::new(), 0, BTreeMap::new());
        for _ in 0..40 {
            let id = if random(2) == 0 { 7 } else { 8 };
            match random(6) {
                0 if there.insert(id) => drop(node.fake.spawn(id * 10, &format!("job_{id}"), "")),
                1 if there.remove(&id) => drop(node.fake.exit(id * 10)),
                2 => drop(node.read()),
                _ => {
                    let bytes = random(1000);
                    let task = if there.contains(&id) { id * 10 } else { 1 };
                    node.fake.moves(task, 0, bytes);
                    moved += bytes;
                    if task != 1 {
                        *of_jobs.entry(id).or_insert(0) += bytes;
                    }
                }
            }
            let ids: Vec<u32> = there.iter().copied().collect();
            node.follow(&ids);
        }
        node.read();
        for id in [7, 8] {
            assert_eq!(node.of(id, 0).unwrap_or(0), of_jobs.get(&id).copied().unwrap_or(0));
        }
        let charged: u64 = node.jobs.values().chain(node.unattributed.values()).sum();
        assert_eq!(charged, moved);
    }
}

#[test]
fn a_restart_keeps_the_groups_of_runs_that_are_known_and_removes_the_others() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
    node.follow_at(&[7, 8], 0);
    node.read();
    node.follow_at(&[7, 8], 10);
    node.fake.moves(70, 0, 5).moves(80, 0, 6);
    let saved = node.monitor.save(node.began + Duration::from_secs(10));
    let roots = Arc::new(node.machine.roots());
    node.monitor = Monitor::new(&roots, Box::new(node.fake.clone()));
    node.monitor.restore(saved, |run| run == JobRunId(70));
    node.follow_at(&[7], 60);
    assert_eq!(node.fake.ours(), [GROUP_7]);
    node.read();
    assert_eq!((node.of(7, 0), node.of(8, 0)), (Some(5), Some(0)));
    let monitored = node.monitor.monitored(JobRunId(70), node.began + Duration::from_secs(61));
    assert_eq!(monitored, Some(Duration::from_secs(11)), "not the time between");
    assert_eq!(node.monitor.monitored(JobRunId(80), node.began + Duration::from_secs(61)), None);
}
