//! Other programs that mount, unmount and use resctrl.

use super::*;

#[test]
fn when_it_is_unmounted_jobs_are_not_monitored_and_when_it_is_back_they_are_again() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "");
    node.follow_at(&[7], 0);
    node.read();
    node.fake.moves(70, 0, 10);
    node.read();
    node.fake.is_mounted(false);
    node.follow_at(&[7], 10);
    let problem = node.monitor.problem().unwrap();
    assert_eq!((problem.reason(), node.monitor.about()), ("unsupported", None));
    assert!(problem.to_string().contains("mount -t resctrl"));
    assert_eq!(node.read(), Round::default(), "nothing is there, and no 0");
    node.follow_at(&[7], 100);
    assert!(!node.monitor.is_monitored(JobRunId(70)));
    node.fake.is_mounted(true);
    node.follow_at(&[7], 200);
    assert_eq!((node.fake.group_of(70).as_str(), node.monitor.problem()), (GROUP_7, None));
    node.read();
    node.fake.moves(70, 0, 5).moves(1, 0, 3);
    node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(15), 3));
    let monitored = node.monitor.monitored(JobRunId(70), node.began + Duration::from_secs(207));
    assert_eq!(monitored, Some(Duration::from_secs(17)), "not while it was away");
}

#[test]
fn somebody_who_unmounts_and_mounts_between_two_looks_costs_what_was_counted_since() {
    let mut node = Node::new(&[0], 8);
    node.fake.spawn(70, "job_7", "");
    node.follow(&[7]);
    node.read();
    node.fake.moves(70, 0, 10).is_mounted(false).is_mounted(true);
    node.follow(&[7]);
    assert_eq!(node.fake.group_of(70), GROUP_7, "made again at once");
    node.read();
    node.fake.moves(70, 0, 5);
    node.read();
    assert_eq!(node.of(7, 0), Some(5));
}

/// Moving a group keeps its RMID and its counts (Documentation/filesystems/resctrl.rst).
#[test]
fn a_group_that_is_moved_below_another_control_group_counts_on() {
    let mut node = Node::new(&[0], 8);
    node.fake.has_telemetry(&[0]).site_makes("gold").spawn(70, "job_7", "").spends(70, 0, 1);
    node.follow(&[7]);
    node.fake.spends(70, 0, 1);
    node.read();
    node.measure();
    node.fake.moves(70, 0, 10).spends(70, 0, 100);
    let there = format!("gold/{GROUP_7}");
    node.fake.site_moves_group(GROUP_7, &there).moves(70, 0, 7).spends(70, 0, 20);
    node.follow(&[7]);
    assert_eq!((node.fake.ours(), node.fake.group_of(70)), (vec![there.clone()], there));
    let round = node.read();
    node.measure();
    assert_eq!((node.of(7, 0), node.energy(7, 0)), (Some(17), Some(120)));
    assert!(round.read.contains(&(JobRunId(70), 0)));
    node.fake.moves(70, 0, 1).moves(1, 0, 2);
    assert!(node.read().whole.contains(&0));
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(18), 2));
    node.fake.exit(70);
    node.follow(&[]);
    assert!(node.fake.ours().is_empty());
}

#[test]
fn what_is_in_other_programs_groups_is_theirs_and_of_no_job() {
    let mut node = Node::new(&[0], 8);
    node.fake.site_makes("mon_groups/pqos").spawn(60, "system", "mon_groups/pqos").spawn(70, "job_7", "");
    node.follow(&[7]);
    node.read();
    node.fake.moves(60, 0, 40).moves(70, 0, 2);
    node.read();
    node.fake.moves(60, 0, 4);
    node.read();
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(2), 44));
    node.fake.exit(70);
    node.follow(&[]);
    node.monitor.remove_all();
    assert_eq!(node.fake.group_of(60), "mon_groups/pqos");
}

#[test]
fn a_check_says_what_is_lacking_and_changes_nothing() {
    let node = Node::new(&[0], 8);
    node.fake.site_makes("mon_groups/jobledger_job_1_2");
    assert_eq!(node.monitor.check(), Ok(()));
    let says = |node: &Node| node.monitor.check().unwrap_err().to_string();
    node.fake.assigns(3, false);
    assert_eq!(node.monitor.check(), Ok(()));
    node.fake.assigns(2, false);
    assert!(says(&node).contains("available_mbm_cntrs"));
    node.machine.write("sys/fs/resctrl/info/L3_MON/num_rmids", "2\n");
    assert!(says(&node).contains("RMIDs"), "the root and another group");
    node.machine.write("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n");
    assert!(says(&node).contains("cqm_mbm_total"));
    node.fake.is_mounted(false);
    assert!(says(&node).contains("mount -t resctrl"));
    assert!(node.monitor.refused.is_empty());
}
