//! Jobs that resctrl measures.

use perf_counters::resctrl::testing::Fake;

use super::*;

/// Two sockets with two L3 caches each; jobs are measured by resctrl on a node that they share.
pub(super) fn monitored(domains: &[u32], rmids: usize) -> (Node, Fake) {
    let machine = Machine::new();
    ice_lake(&machine, 2);
    testing::caches(&machine, 8, 2);
    let fake = Fake::mount(&machine, domains, rmids);
    machine.write("cgroup/system/cgroup.threads", "");
    let at = Node::with(machine, Some(Box::new(fake.clone())));
    fake.spawn(1, "system", "");
    (at, fake)
}

fn l3(text: &str, what: &str, job: Option<u32>, socket: &str) -> Option<f64> {
    let method = if job.is_some() { "resctrl" } else { "" };
    of(text, &format!("jobledger_{what}bytes_total"), job, socket, "both", method)
}

#[test]
fn with_resctrl_jobs_on_a_shared_node_have_what_their_tasks_moved() {
    let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
    fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
    at.looked().appears(7).appears(8);
    at.collect();
    fake.moves(70, 0, 1000).moves(70, 1, 24).moves(70, 2, 6).moves(80, 3, 500).moves(1, 0, 9);
    at.reads(0, 10);
    let text = at.collect();
    assert_eq!(l3(&text, "job_memory_traffic_", Some(7), "0"), Some(1024.0), "two caches of the socket");
    assert_eq!(l3(&text, "job_memory_traffic_", Some(7), "1"), Some(6.0));
    assert_eq!(l3(&text, "job_memory_traffic_", Some(8), "1"), Some(500.0));
    assert_eq!(l3(&text, "node_memory_traffic_", None, "0"), Some(1033.0));
    assert_eq!(l3(&text, "node_memory_traffic_unattributed_", None, "0"), Some(9.0));
    assert_eq!(l3(&text, "node_memory_traffic_", None, "1"), Some(506.0));
    assert_eq!(value(&text, "jobledger_job_l3_occupancy_bytes{jobid=\"7\",socket=\"0\"}"), Some(102.0));
    assert!(value(&text, "jobledger_job_l3_monitored_seconds_total{jobid=\"7\"}").unwrap() > 0.05);
    assert_eq!(
        value(
            &text,
            "jobledger_node_l3_monitoring_info{rmids=\"224\",mode=\"default\",counters=\"\",counted=\"\"}"
        ),
        Some(1.0)
    );
    // The controllers' bytes are not charged as well.
    assert_eq!(
        (node(&text, "0"), unattributed(&text, "0"), jobs(&text, 7, "0")),
        (Some(640.0), Some(640.0), None)
    );
    fake.exit(70);
    at.leaves(7);
    let gone = [ended(&at.jobs[0]), at.jobs[1].clone()];
    let (_, text) = at.collect_these(&gone);
    assert_eq!(l3(&text, "job_memory_traffic_", Some(7), "0"), Some(1024.0));
    assert!(!text.contains("jobledger_job_l3_occupancy_bytes{jobid=\"7\""));
    assert_eq!(fake.ours().len(), 1);
    at.context.options.get::<TrafficOptions>().end.run();
    assert!(fake.ours().is_empty(), "nothing is left behind");
    at.settle();
    assert!(fake.ours().is_empty());
}

#[test]
fn what_resctrl_does_not_know_is_absent_on_its_socket_alone() {
    let (mut at, fake) = monitored(&[0, 1, 2, 3], 1);
    fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
    at.looked().appears(7).appears(8);
    let jobs = at.jobs.clone();
    let (outcome, text) = at.collect_these(&jobs);
    assert!(outcome.unwrap_err().to_string().contains("RMIDs"));
    let refused = value(&text, "jobledger_node_l3_monitoring_refused_total{reason=\"exhausted\"}");
    assert!(refused.unwrap() >= 1.0);
    assert_eq!(value(&text, "jobledger_job_l3_monitored_seconds_total{jobid=\"8\"}"), None);
    let group = fake.ours().remove(0);
    fake.state().instead.insert((group, 1), "Unavailable");
    fake.moves(70, 0, 10).moves(70, 2, 20);
    let (_, text) = at.collect_these(&jobs);
    assert_eq!(l3(&text, "job_memory_traffic_", Some(7), "0"), None);
    assert_eq!(l3(&text, "node_memory_traffic_", None, "0"), None);
    assert_eq!(l3(&text, "job_memory_traffic_", Some(7), "1"), Some(20.0));
    assert_eq!(l3(&text, "node_memory_traffic_", None, "1"), Some(20.0));
    assert_eq!(value(&text, "jobledger_job_l3_occupancy_bytes{jobid=\"7\",socket=\"0\"}"), Some(1.0));
}

/// A walk over the tasks of all jobs takes its time, for which nobody who wants the counters has to wait.
#[test]
fn counters_are_released_without_following_jobs() {
    let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
    fake.spawn(70, "job_7", "");
    at.looked().appears(7).reads(0, 10);
    at.collect();
    at.reads(0, 10);
    fake.spawn(71, "job_7", "");
    assert!(at.context.ownership.yield_for(Reason::Lock));
    assert_eq!((at.hardware.are_open(), fake.group_of(71)), (0, String::new()), "it is followed later");
    at.settle();
    assert_eq!(fake.group_of(71), fake.group_of(70));
    at.context.ownership.resume_from(Reason::Lock);
    assert_eq!(node(&at.collect(), "0"), Some(1280.0), "by the last reading");
}

/// The kernel counts in the groups of an exporter that was killed, and in the control group of one that ended.
#[test]
fn what_resctrl_counted_while_no_exporter_ran_is_charged_afterwards() {
    for killed in [true, false] {
        let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
        fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
        at.looked().appears(7).appears(8);
        at.collect();
        fake.moves(70, 0, 1000).moves(1, 0, 9);
        at.collect();
        if !killed {
            fake.moves(70, 0, 20);
            at.shared.read_last();
            at.context.options.get::<TrafficOptions>().end.run();
        }
        let mut at = at.restart(Some(Box::new(fake.clone())));
        assert_eq!(fake.ours().len(), if killed { 2 } else { 0 });
        fake.moves(70, 0, 300).moves(80, 3, 40).moves(1, 0, 1);
        at.appears(7).appears(8);
        assert_eq!(fake.ours().len(), if killed { 2 } else { 0 }, "before all jobs are known none is gone");
        at.looked();
        let text = at.collect();
        let of_job = |job, socket| l3(&text, "job_memory_traffic_", Some(job), socket);
        let node = |socket| {
            ["node_memory_traffic_", "node_memory_traffic_unattributed_"]
                .map(|what| l3(&text, what, None, socket))
        };
        if killed {
            assert_eq!((of_job(7, "0"), of_job(8, "1")), (Some(1300.0), Some(40.0)), "{text}");
            assert_eq!(node("0"), [Some(1310.0), Some(10.0)], "{text}");
            assert_eq!(node("1"), [Some(40.0), Some(0.0)]);
        } else {
            assert_eq!((of_job(7, "0"), of_job(8, "1")), (Some(1020.0), Some(0.0)), "{text}");
            assert_eq!(node("0"), [Some(1330.0), Some(310.0)], "{text}");
            assert_eq!(node("1"), [Some(40.0), Some(40.0)]);
        }
        let monitored = value(&text, "jobledger_job_l3_monitored_seconds_total{jobid=\"7\"}");
        assert!(monitored.unwrap() > 0.0);
    }
}

/// AMD's ABMC: a job without a counter has no bytes, and it is said why.
#[test]
fn a_job_without_a_counter_has_no_bytes_and_the_reason_is_exported() {
    let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
    fake.assigns(3, false).spawn(70, "job_7", "").spawn(80, "job_8", "");
    at.looked().appears(7).appears(8);
    fake.moves(70, 0, 10).moves(80, 0, 10);
    let jobs = at.jobs.clone();
    let (outcome, text) = at.collect_these(&jobs);
    assert!(outcome.unwrap_err().to_string().contains("available_mbm_cntrs"));
    assert_eq!(l3(&text, "job_memory_traffic_", Some(7), "0"), Some(10.0), "{text}");
    assert_eq!(l3(&text, "job_memory_traffic_", Some(8), "0"), None);
    assert_eq!(l3(&text, "node_memory_traffic_", None, "0"), None, "nor is there a whole");
    assert!(value(&text, "jobledger_job_l3_monitored_seconds_total{jobid=\"8\"}").is_some());
    let unread = "jobledger_node_l3_monitoring_unread_total{event=\"mbm_total_bytes\",reason=\"unassigned\"}";
    assert_eq!(value(&text, unread), Some(4.0), "{text}");
    assert!(
        value(&text, "jobledger_node_l3_monitoring_refused_total{reason=\"no_counter\"}").unwrap() >= 1.0
    );
    let info = "jobledger_node_l3_monitoring_info{rmids=\"224\",mode=\"mbm_event\",counters=\"3\",counted=\"dirty_victim_writes_all,local_reads,remote_reads\"}";
    assert_eq!(value(&text, info), Some(1.0), "{text}");
}

#[test]
fn a_check_makes_no_group_and_says_what_jobs_would_lack() {
    let machine = Machine::new();
    ice_lake(&machine, 2);
    let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
    let says = |machine: &Machine, may: bool| {
        let mut context = BuildContext::new(Arc::new(machine.roots()), users.clone());
        context.options.set(TrafficOptions { checked: Some(may), ..TrafficOptions::default() });
        let outcome = build(&context)
            .collector
            .collect(&snapshot_of(machine.roots(), Vec::new()), &mut Section::default());
        outcome.err().map(|error| CollectError::from(error).to_string()).unwrap_or_default()
    };
    assert!(says(&machine, true).contains("mount -t resctrl"));
    let fake = Fake::mount(&machine, &[0, 1], 8);
    fake.assigns(2, false).site_makes("mon_groups/jobledger_job_1_2");
    assert!(says(&machine, true).contains("available_mbm_cntrs"));
    fake.assigns(4, false);
    assert!(says(&machine, false).contains("for its helper"));
    assert!(!says(&machine, true).contains("resctrl"), "what remains are the controllers");
    assert_eq!(fake.ours().len(), 1, "nothing is removed");
}
