//! Counters that are assigned to groups: AMD's ABMC, mode `mbm_event`.

use super::*;

fn free(node: &Node) -> u64 {
    node.fake.state().assigned.as_ref().unwrap().free[&0]
}

#[test]
fn a_group_gets_a_counter_where_making_it_gives_none() {
    let mut node = Node::new(&[0, 1], 8);
    node.fake.assigns(4, false).spawn(70, "job_7", "").moves(70, 0, 5);
    assert_eq!(free(&node), 2, "the root has two");
    node.follow(&[7]);
    assert_eq!(free(&node), 1);
    node.fake.moves(70, 0, 30).moves(70, 1, 4).moves(1, 0, 2);
    let round = node.read();
    assert_eq!((node.of(7, 0), node.of(7, 1)), (Some(30), Some(4)), "from its beginning");
    assert_eq!(round.whole, BTreeSet::from([0, 1]));
    assert_eq!((node.monitor.problem(), node.monitor.refused.len()), (None, 0));
    node.fake.moves(1, 0, 3).exit(70);
    node.follow(&[]);
    node.read();
    assert_eq!((free(&node), node.unattributed[&0]), (2, 3), "it is free again");
    let about = node.monitor.about().unwrap();
    assert_eq!((about.mode.as_str(), about.counters), ("mbm_event", Some(4)));
    assert_eq!(about.counted, "dirty_victim_writes_all,local_reads,remote_reads");
}

/// Each event of a group takes a counter, and one of the two is not read.
#[test]
fn the_counter_for_local_bytes_is_given_back() {
    let mut node = Node::new(&[0], 8);
    node.fake.assigns(4, true).spawn(70, "job_7", "").spawn(80, "job_8", "");
    node.follow(&[7, 8]);
    assert_eq!(free(&node), 0);
    node.fake.moves(70, 0, 10).moves(80, 0, 20);
    node.read();
    assert_eq!((node.of(7, 0), node.of(8, 0)), (Some(10), Some(20)));
    assert_eq!(node.monitor.refused.len(), 0);
}

#[test]
fn a_job_without_a_free_counter_has_no_bytes_until_one_is_free() {
    let mut node = Node::new(&[0], 8);
    node.fake.assigns(3, false).spawn(70, "job_7", "").spawn(80, "job_8", "");
    node.follow(&[7, 8]);
    assert_eq!(node.monitor.refused, BTreeMap::from([(Refusal::NoCounter, 1)]));
    assert!(node.monitor.problem().unwrap().to_string().contains("counters of memory bandwidth"));
    node.fake.moves(80, 0, 500).moves(70, 0, 3);
    let round = node.read();
    assert_eq!((node.of(8, 0), node.of(7, 0)), (None, Some(3)), "absent, and not 0");
    assert!(!round.read.contains(&(JobRunId(80), 0)) && round.read.contains(&(JobRunId(70), 0)));
    assert!(round.whole.is_empty(), "what it moved is in no sum of the kernel's");
    assert_eq!(node.monitor.unread, BTreeMap::from([((Quantity::Bytes, Unread::Unassigned), 1)]));
    node.fake.exit(70);
    // The counter of a group that goes is free after its last reading.
    node.follow(&[8]);
    node.read();
    node.fake.moves(80, 0, 60);
    let round = node.read();
    assert_eq!((node.of(8, 0), node.monitor.problem()), (Some(60), None));
    assert_eq!(round.whole, BTreeSet::from([0]));
}

/// The kernel adds up the groups that have a counter, and does not say that some have none.
#[test]
fn a_sum_without_the_control_groups_own_bytes_is_not_taken_for_the_whole() {
    let mut node = Node::new(&[0], 8);
    node.fake.assigns(8, true).site_makes("mon_groups/pqos").spawn(70, "job_7", "");
    node.follow(&[7]);
    assert_eq!(node.read().whole, BTreeSet::from([0]));
    for group in ["", "mon_groups/pqos"] {
        let of = (group.to_owned(), "mbm_total_bytes", 0);
        node.fake.state().assigned.as_mut().unwrap().counters.remove(&of);
        node.fake.moves(70, 0, 9);
        assert!(node.read().whole.is_empty(), "{group}");
        node.fake.state().assigned.as_mut().unwrap().counters.insert(of);
        node.fake.render();
        assert_eq!(node.read().whole, BTreeSet::from([0]));
    }
    assert_eq!((node.of(7, 0), node.unattributed[&0]), (Some(18), 0));
}

#[test]
fn a_mode_that_is_changed_is_noticed_and_no_counter_is_asked_for_in_the_default_mode() {
    let mut node = Node::new(&[0], 8);
    node.fake.assigns(3, false).spawn(70, "job_7", "").spawn(80, "job_8", "");
    node.follow(&[7, 8]);
    node.read();
    node.fake.state().assigned = None;
    node.machine.write("sys/fs/resctrl/info/L3_MON/mbm_assign_mode", "mbm_event\n[default]\n");
    node.fake.moves(80, 0, 4);
    node.follow(&[7, 8]);
    assert_eq!(node.monitor.about().unwrap().mode, "default");
    assert_eq!((node.monitor.problem(), node.monitor.about().unwrap().counters), (None, None));
    node.read();
    node.fake.moves(80, 0, 40);
    node.read();
    assert_eq!(node.of(8, 0), Some(44), "its first number is all that it counted");
}

/// The kernel's side of it is one file, to which two lines go.
#[test]
fn the_mounted_tree_assigns_by_a_fixed_text() {
    let machine = Machine::new();
    machine.write("sys/fs/resctrl/mon_groups/x/mbm_L3_assignments", "");
    let tree = Mounted::at(machine.path.join("sys/fs/resctrl"));
    tree.assign("mon_groups/x").unwrap();
    let written = tree.read("mon_groups/x/mbm_L3_assignments").unwrap();
    assert_eq!(written, b"mbm_local_bytes:*=_\nmbm_total_bytes:*=e\n");
    assert_eq!(tree.assign("mon_groups/y"), Err(Errno::NOENT));
    assert_eq!(tree.identity("mon_groups/y"), None);
    assert_ne!(tree.identity("mon_groups/x"), tree.identity(""));
}
