//! What jobs spend last, and beside others that come and go.

use super::*;

#[test]
fn a_job_that_ends_between_two_scrapes_is_exported_with_its_last_reading() {
    let mut node = Node::new();
    node.scrape();
    node.make_job("job_7", "0", Some((50, 51)));
    node.settle();
    node.spend("job_7", 1_500_000, 1_500_000);
    // The last process of the step leaves: the kernel changes the file in place.
    node.machine.write(format!("{SCOPE}/job_7/step_0/user/cgroup.events"), "populated 0\n");
    node.settle();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    let (snapshot, text) = node.scrape();
    assert!(!only(&snapshot).is_running());
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"}"), Some(1.5));
    assert_eq!(
        value(&text, "jobledger_step_cpu_seconds_total{jobid=\"7\",step=\"0\",mode=\"user\"}"),
        Some(0.0)
    );
    sleep(Duration::from_millis(5));
    let (snapshot, text) = node.scrape();
    assert_eq!(ids(&snapshot), Vec::<u32>::new(), "exported once and retention over");
    assert_eq!(
        value(&text, "jobledger_node_slurm_cpu_seconds_total"),
        Some(1.5),
        "the node's total remembers it"
    );
}

#[test]
fn what_is_spent_after_the_last_reading_goes_to_the_one_job_that_vanished() {
    let mut node = Node::new();
    node.make_job("job_7", "0", None);
    node.spend("job_7", 1_000_000, 1_000_000);
    node.scrape();
    node.spend("", 0, 1_250_000);
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    let (_, text) = node.scrape();
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"unsplit\"}"), Some(0.25));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(1.25));
}

#[test]
fn what_two_vanished_jobs_spent_last_is_unattributed() {
    let mut node = Node::new();
    for name in ["job_7", "job_8"] {
        node.make_job(name, "0", None);
        node.spend(name, 1_000_000, 2_000_000);
    }
    node.scrape();
    node.spend("", 0, 2_500_000);
    node.machine.remove(format!("{SCOPE}/job_7")).remove(format!("{SCOPE}/job_8"));
    node.settle();
    let (_, text) = node.scrape();
    assert!(!text.contains("mode=\"unsplit\""), "{text}");
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.5));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(2.5));
}

#[test]
fn a_job_that_appears_between_the_walk_and_the_reading_is_not_taken_for_unexplained_time() {
    let mut node = Node::new();
    node.scrape();
    let snapshot = node.table.snapshot();
    // It is not in the snapshot, but what it spent is in the scope when the collector comes to read it.
    node.make_job("job_7", "0", None);
    node.spend("job_7", 75_000, 75_000);
    let mut section = Section::default();
    node.cpu.collector.collect(&snapshot, &mut section).unwrap();
    let (_, text) = node.scrape();
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0), "{text}");
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(0.075));
}

#[test]
fn a_job_that_appears_while_another_vanishes_is_not_charged_to_it() {
    let mut node = Node::new();
    node.make_job("job_7", "0", None);
    node.spend("job_7", 1_000_000, 1_000_000);
    node.scrape();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    // Both happen before the table looks again, and the event of the new one is not read yet.
    node.make_job("job_8", "0", None);
    node.spend("job_8", 400_000, 1_400_000);
    let (_, text) = node.scrape();
    assert!(!text.contains("mode=\"unsplit\""), "{text}");
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(1.4));
}
