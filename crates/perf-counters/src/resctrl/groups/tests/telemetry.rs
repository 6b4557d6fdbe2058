//! Intel's energy and activity by group (Application Energy Telemetry).

use super::*;

fn node() -> Node {
    let node = Node::new(&[0, 1], 4);
    node.fake.has_telemetry(&[0, 1]);
    node
}

#[test]
fn a_job_has_the_energy_that_its_tasks_spent_and_the_rest_is_of_no_job() {
    let mut node = node();
    node.fake.spawn(70, "job_7", "").spends(70, 0, 4).spends(1, 0, 100);
    node.follow(&[7]);
    node.fake.spends(70, 0, 9);
    node.measure();
    node.fake.spends(70, 0, 22_030).spends(70, 1, 5000).spends(1, 0, 40);
    node.measure();
    node.fake.spends(70, 0, 7_000_000).spends(1, 1, 3);
    let round = node.measure();
    assert_eq!((node.energy(7, 0), node.energy(7, 1)), (Some(7_022_030), Some(0)), "first seen on 1");
    assert_eq!((node.rest(0), node.rest(1)), (Some(40), Some(3)), "history is in no number");
    assert_eq!((round.places, round.whole), (BTreeSet::from([0, 1]), BTreeSet::from([0, 1])));
    assert_eq!(node.measured[&(Quantity::Activity, 70, 0)], 7_022);
    // What was spent last is read when the job ends.
    node.fake.spends(70, 1, 600).exit(70);
    node.follow(&[]);
    node.fake.spends(1, 1, 10);
    node.measure();
    assert_eq!((node.energy(7, 1), node.rest(1)), (Some(600), Some(13)));
}

/// The kernel begins anew for bytes alone: a group goes on with what its RMID counted for others.
#[test]
fn what_an_rmid_counted_for_an_earlier_job_is_not_the_next_ones() {
    let mut node = node();
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    node.fake.spends(70, 0, 9_000_000).exit(70);
    node.follow(&[]);
    node.fake.spawn(80, "job_8", "");
    node.follow(&[8]);
    node.measure();
    node.fake.spends(80, 0, 11);
    let round = node.measure();
    assert_eq!((node.energy(8, 0), node.rest(0)), (Some(11), Some(0)));
    assert!(round.whole.contains(&0) && round.began.is_empty());
    assert_eq!(node.energy(7, 0), Some(0), "the first number of an RMID shows no growth");
}

#[test]
fn a_group_whose_rmid_never_counted_has_no_number_and_spoils_no_sum() {
    let mut node = node();
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    node.fake.spends(1, 1, 5);
    node.measure();
    node.fake.spends(1, 1, 5);
    let round = node.measure();
    assert_eq!((node.energy(7, 1), node.rest(1)), (None, Some(5)));
    assert!(round.whole.contains(&1) && !round.read.contains(&(JobRunId(70), 1)));
    assert_eq!(node.monitor.unread[&(Quantity::CoreEnergy, Unread::Unavailable)], 4);
    node.fake.spends(70, 1, 1000);
    let round = node.measure();
    assert!(round.began.contains(&1) && round.read.contains(&(JobRunId(70), 1)));
    assert_eq!(
        (node.energy(7, 1), node.rest(1)),
        (Some(0), Some(5)),
        "how much of it was before is not known"
    );
}

/// Theirs is not a job's. A group that is made again under its name has another RMID, with another history.
#[test]
fn what_other_programs_groups_counted_is_unattributed_and_never_their_history() {
    let mut node = node();
    node.follow(&[]);
    node.fake.site_makes("mon_groups/pqos").spawn(60, "system", "mon_groups/pqos").spends(60, 0, 100);
    node.measure();
    node.fake.spends(60, 0, 7);
    node.measure();
    assert_eq!(node.rest(0), Some(7));
    // Its RMID goes to the back of the queue behind one that counted much.
    node.fake.site_makes("mon_groups/a").spawn(61, "system", "mon_groups/a").spends(61, 0, 5_000_000);
    node.fake.site_removes("mon_groups/a");
    node.measure();
    node.fake.site_removes("mon_groups/pqos").site_makes("mon_groups/pqos");
    let round = node.measure();
    assert!(round.began.contains(&0));
    node.fake.spends(1, 0, 2);
    node.measure();
    assert_eq!(node.rest(0), Some(9));
    // A control group that is made again is another one, too.
    for _ in 0..2 {
        node.fake.site_makes("gold").spawn(62, "system", "gold").spends(62, 0, 300);
        node.measure();
        node.fake.site_removes("gold");
    }
    assert_eq!(node.rest(0), Some(9));
}

#[test]
fn a_machine_without_telemetry_has_no_round_of_it() {
    let mut node = Node::new(&[0], 4);
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    assert_eq!(node.measure(), Round::default());
    assert!(!node.monitor.about().unwrap().features.core_energy);
    assert_eq!(node.monitor.about().unwrap().rmids, Some(224));
    node.fake.has_telemetry(&[0]);
    node.follow(&[7]);
    assert_eq!(node.monitor.about().unwrap().rmids, Some(96), "the smaller of both");
}

/// A server with two sockets, two sub-NUMA clusters each and telemetry: each directory is what it is, and no other's.
#[test]
fn l3_domains_clusters_and_packages_are_kept_apart() {
    let mut node = node();
    node.fake.state().clusters = 2;
    node.fake.spawn(70, "job_7", "").spends(70, 0, 1).spends(70, 1, 1);
    node.follow(&[7]);
    node.fake.spends(70, 0, 1).spends(70, 1, 1);
    node.read();
    node.measure();
    node.fake.moves(70, 0, 100).moves(70, 1, 20).spends(70, 0, 3).spends(70, 1, 4);
    let (bytes, energy) = (node.read(), node.measure());
    assert_eq!((node.of(7, 0), node.of(7, 1)), (Some(100), Some(20)));
    assert_eq!((node.energy(7, 0), node.energy(7, 1)), (Some(3), Some(4)));
    assert_eq!((bytes.places, energy.places), (BTreeSet::from([0, 1]), BTreeSet::from([0, 1])));
}

#[test]
fn a_restart_goes_on_with_the_energy_of_groups_that_are_there() {
    let mut node = node();
    node.fake.site_makes("mon_groups/pqos").spawn(60, "system", "mon_groups/pqos").spends(60, 0, 50);
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    node.fake.spends(70, 0, 8);
    node.measure();
    node.fake.spends(70, 0, 5).spends(60, 0, 6).spends(1, 0, 7);
    let saved = node.monitor.save(node.began);
    node.monitor = Monitor::new(&Arc::new(node.machine.roots()), Box::new(node.fake.clone()));
    node.monitor.restore(saved, |_| true);
    node.follow(&[7]);
    node.measure();
    assert_eq!((node.energy(7, 0), node.rest(0)), (Some(5), Some(13)));
}

/// Random runs of two jobs beside a daemon on RMIDs that others had: the jobs, and what is unattributed, are what was spent, but for
/// what a group's first number hides.
#[test]
fn jobs_and_the_unattributed_rest_are_all_that_was_spent() {
    let mut state = 0x853c_49e6_748f_ea9b_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..4 {
        let mut node = node();
        // Each RMID has counted before.
        for id in [7, 8] {
            node.fake.spawn(id * 10, &format!("job_{id}"), "");
        }
        node.follow(&[7, 8]);
        node.fake.spends(70, 0, random(9_000_000)).spends(80, 0, random(9_000_000)).exit(70).exit(80);
        node.follow(&[]);
        node.measure();
        let (mut there, mut spent, mut of_jobs) = (BTreeSet::new(), 0, BTreeMap::new());
        for _ in 0..40 {
            let id = if random(2) == 0 { 7 } else { 8 };
            match random(6) {
                0 if there.insert(id) => drop(node.fake.spawn(id * 10, &format!("job_{id}"), "")),
                1 if there.remove(&id) => drop(node.fake.exit(id * 10)),
                2 => drop(node.measure()),
                _ => {
                    let energy = random(1000);
                    let task = if there.contains(&id) { id * 10 } else { 1 };
                    node.fake.spends(task, 0, energy);
                    spent += energy;
                    if task != 1 {
                        *of_jobs.entry(id).or_insert(0) += energy;
                    }
                }
            }
            let ids: Vec<u32> = there.iter().copied().collect();
            node.follow(&ids);
        }
        node.measure();
        for id in [7, 8] {
            assert_eq!(node.energy(id, 0).unwrap_or(0), of_jobs.get(&id).copied().unwrap_or(0));
        }
        let jobs: u64 = [7, 8].iter().filter_map(|id| node.energy(*id, 0)).sum();
        assert_eq!(jobs + node.rest(0).unwrap(), spent);
    }
}
