//! Jobs of cgroup v1, by the CPUs that are theirs alone.

use super::*;

#[test]
fn without_a_perf_group_a_job_is_counted_where_it_has_its_cpus_alone() {
    let mut node = Node::new(plan(), None);
    let (first, second) = (node.v1(1, "0-1"), node.v1(2, "2-3"));
    let (outcome, text) = node.scrape(&[&first, &second]);
    assert_eq!(outcome, Ok(()));
    assert!(info(&text, 1, "cpus", "") && info(&text, 2, "cpus", ""), "{text}");
    node.world.run(1, "flops", (1000, 1000), &[7, 1]);
    let third = node.v1(3, "1-2");
    node.bench.run().job_started(&third);
    node.world.run(4, "flops", (1000, 1000), &[7, 1]);
    let (outcome, text) = node.scrape(&[&first, &second, &third]);
    assert_eq!(outcome, Ok(()), "that they share is no failure");
    for id in 1..=3 {
        assert!(info(&text, id, "none", "shared_cpus"), "{text}");
    }
    assert_eq!((of(&text, 1, "cycles_total", ""), node.open()), (Some(7.0), 0));
    assert_eq!(of(&text, 3, "cycles_total", ""), None, "absent, not 0");
    assert_eq!(of(&text, 1, "counted_cpu_seconds_total", ""), None, "that was not its CPU time");
    node.world.run(1, "flops", (1000, 1000), &[70, 1]);
    node.bench.run().job_left_node(third.run);
    node.well(&[&first, &second]);
    node.world.run(1, "flops", (1000, 1000), &[700, 1]);
    assert_eq!(
        of(&node.scrape(&[&first, &second]).1, 1, "cycles_total", ""),
        Some(707.0),
        "not what was in between"
    );
}

/// slurmstepd makes its directories of v1 one after the other: that of cpuset may be there later than the job.
#[test]
fn a_job_whose_cpus_are_known_later_is_counted_then() {
    let mut node = Node::new(plan(), None);
    let (first, second) = (node.v1(1, "0-1"), node.v1(2, "2-3"));
    node.machine.write("cgroup/freezer/slurm/uid_0/job_2/freezer.state", "THAWED\n");
    let early = node.machine.v1(&[("freezer", "slurm/uid_0/job_2")]);
    let unbound = Job { cgroup: Arc::new(early), ..second.clone() };
    let (_, text) = node.scrape(&[&first, &unbound]);
    assert!(info(&text, 1, "none", "shared_cpus") && info(&text, 2, "none", "shared_cpus"), "{text}");
    // That needs no scrape.
    node.bench.run().step_grew(&second, None);
    jobledger_testkit::eventually("the counters of both are open", || node.open() == 12);
    let (_, text) = node.scrape(&[&first, &second]);
    assert!(info(&text, 1, "cpus", "") && info(&text, 2, "cpus", ""), "{text}");
}

/// A hierarchy of perf events or, where counters are divided, the freezer's.
#[test]
fn a_job_that_gets_a_directory_to_be_counted_by_goes_on_with_it() {
    let mut node = Node::new(plan(), None);
    let (first, second) = (node.v1(1, "0-1"), node.v1(2, "0-1"));
    node.well(&[&first]);
    node.world.run(1, "flops", (1000, 1000), &[7, 1]);
    let group = "slurm/uid_0/job_1";
    node.machine.write(&format!("cgroup/perf_event/{group}/tasks"), "");
    let cgroup = Arc::new(node.machine.v1(&[("cpuset", group), ("perf_event", group)]));
    let first = Job { cgroup, ..first };
    let (_, text) = node.scrape(&[&first, &second]);
    assert!(info(&text, 1, "cgroup", "") && info(&text, 2, "none", "shared_cpus"), "{text}");
    node.world.run(1, "flops", (1000, 1000), &[70, 1]);
    assert_eq!(of(&node.scrape(&[&first, &second]).1, 1, "cycles_total", ""), Some(77.0));
}

#[test]
fn a_job_that_cannot_be_counted_any_more_keeps_what_was_counted_before_a_restart() {
    let mut node = Node::new(plan(), None);
    let (first, second) = (node.v1(1, "0-1"), node.v1(2, "0-1"));
    node.well(&[&first]);
    node.world.run(1, "flops", (1000, 1000), &[7, 1]);
    node.well(&[&first]);
    for _ in 0..2 {
        node.restart(plan(), &[first.run]);
        let (_, text) = node.scrape(&[&first, &second]);
        assert!(info(&text, 1, "none", "shared_cpus"), "{text}");
        assert_eq!(of(&text, 1, "cycles_total", ""), Some(7.0), "{text}");
        assert_eq!(of(&text, 1, "counted_cpu_seconds_total", ""), None, "that was not its CPU time");
    }
}
