//! CPUs of a node that do more than others, and those that do nothing.

use super::*;

/// A node with 16 CPUs on 8 cores whose counters saw everything: how many CPUs did nothing, and what the busiest did of 1600.
fn counted(name: &str, idle: f64, busiest: f64) -> Node {
    let mut node = Node { name: name.to_owned(), ..node() };
    for (metric, value) in [
        (&metric::COUNTED_CPU_SECONDS, 4.0 * HOUR),
        (&metric::CPUS_IDLE_SECONDS, idle * HOUR),
        (&metric::INSTRUCTIONS, 1600.0),
        (&metric::BUSIEST_CPU_INSTRUCTIONS, busiest),
    ] {
        node.values.set(metric, value);
    }
    node
}

fn one(idle: f64, busiest: f64) -> Job {
    job(vec![counted("n1", idle, busiest)])
}

/// The same with something else.
fn but(mut job: Job, metric: &'static Metric, value: f64) -> Job {
    job.nodes[0].values.set(metric, value);
    job
}

#[test]
fn cpus_that_do_more_than_others() {
    gives(&one(0.0, 126.0), Piece::Imbalance, Some(("21 % less", None)));
    gives(&one(0.0, 124.0), Piece::Imbalance, None);
    // Of the CPUs that worked: twelve did 133 each on average.
    gives(&one(4.0, 160.0), Piece::Imbalance, None);
    gives(&one(4.0, 200.0), Piece::Imbalance, Some(("33 % less", None)));
    // The node where it is worst.
    let nodes = vec![counted("n1", 0.0, 110.0), counted("n2", 0.0, 200.0), counted("n3", 0.0, 150.0)];
    gives(&job(nodes), Piece::Imbalance, Some(("50 % less on n2", None)));
    let nodes = vec![node(), counted("n2", 0.0, 200.0)];
    gives(&job(nodes), Piece::Imbalance, Some(("50 % less on n2", None)));
    gives(&job(vec![node()]), Piece::Imbalance, None);
}

#[test]
fn cores_that_do_nothing() {
    // Five CPUs that work are on five cores at most.
    gives(&one(11.0, 320.0), Piece::CpusIdle, Some(("3 of 8 cores", None)));
    gives(&one(10.0, 320.0), Piece::CpusIdle, None);
    let nodes = vec![counted("n1", 13.0, 533.0), counted("n2", 8.0, 200.0)];
    gives(&job(nodes), Piece::CpusIdle, Some(("5 of 16 cores", None)));
    gives(&job(vec![node()]), Piece::CpusIdle, None);
}

#[test]
fn a_thread_on_each_core_leaves_no_core_idle() {
    let job = one(8.0, 200.0);
    assert_eq!((job.nodes[0].cpus_worked(), job.nodes[0].cores_idle()), (Some(8.0), Some(0.0)));
    gives(&job, Piece::CpusIdle, None);
    gives(&job, Piece::Imbalance, None);
}

/// Half of the CPU time was counted, and so was half of the idle time.
#[test]
fn what_was_not_counted_is_not_taken_for_work() {
    let job = but(one(5.5, 200.0), &metric::COUNTED_CPU_SECONDS, 2.0 * HOUR);
    gives(&job, Piece::CpusIdle, Some(("3 of 8 cores", None)));
    let job = but(one(0.0, 200.0), &metric::CPU_SECONDS, 0.0);
    assert_eq!((job.nodes[0].cpus_worked(), job.nodes[0].cpus_alike()), (None, None));
}

/// One fact is one piece of advice.
#[test]
fn what_other_advice_says_is_not_said_again() {
    let quiet = |job: &Job, instead: Piece| {
        let found: Vec<Piece> = find(job).into_iter().map(|advice| advice.piece).collect();
        assert!(found.contains(&instead), "{found:?}");
        assert!(!found.contains(&Piece::CpusIdle) && !found.contains(&Piece::Imbalance), "{found:?}");
    };
    quiet(&but(one(11.0, 500.0), &metric::CPU_SECONDS, 1.5 * HOUR), Piece::CpuLow);
    let mut serial = but(one(7.0, 1600.0), &metric::CPU_SECONDS, HOUR);
    for metric in [&metric::CPUS, &metric::CPU_ALLOCATED_SECONDS] {
        let held = serial.nodes[0].values.get(metric).unwrap();
        serial.nodes[0].values.set(metric, held / 2.0);
    }
    quiet(&serial, Piece::Serial);
    let mut idle_node = one(11.0, 320.0);
    idle_node.nodes.push(Node { name: "n2".to_owned(), ..node() });
    idle_node.nodes[1].values.set(&metric::CPU_SECONDS, 0.0);
    idle_node.nodes[0].values.set(&metric::CPU_SECONDS, 8.0 * HOUR);
    quiet(&idle_node, Piece::NodeIdle);
}

/// A program that keeps its GPU busy may need no more than the CPU that feeds it.
#[test]
fn a_gpus_job_may_leave_cpus_idle() {
    let mut job = one(15.0, 1600.0);
    job.nodes[0].gpus.push(gpu(Some(0.9 * HOUR), Some(0.1 * HOUR), HOUR));
    job.nodes[0].gpus_held = None;
    let found: Vec<Piece> = find(&job).into_iter().map(|advice| advice.piece).collect();
    assert_eq!(found, []);
}

#[test]
fn a_job_that_is_too_short_has_none() {
    let mut job = one(11.0, 1600.0);
    job.nodes[0].seen_until = 119.0;
    job.nodes[0].end = Some(119.0);
    assert!(find(&job).is_empty());
}
