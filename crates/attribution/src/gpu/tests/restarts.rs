//! The ledger over a restart of the exporter.

use super::*;

/// The node after a restart, with the runs that are found again.
fn restarted(before: &Node, seen: u64, found: &[JobRunId]) -> Node {
    let saved = before.ledger.save(|quantity| format!("{quantity:?}"));
    let saved = durable_state::decode(&durable_state::encode(&saved)).unwrap();
    let mut node = Node { origin: before.origin, ..Node::new() };
    let quantity =
        |name: &str| [Quantity::Busy, Quantity::Energy].into_iter().find(|q| format!("{q:?}") == name);
    node.ledger.restore(saved, node.at(seen), quantity, |run| [A, B].contains(&run));
    found.iter().for_each(|run| node.ledger.appeared(*run, node.at(seen)));
    node
}

#[test]
fn after_a_restart_charges_go_on_and_what_was_counted_meanwhile_is_not_known() {
    let mut node = Node::new();
    node.origin -= Duration::from_secs(100);
    node.comes(A, 0, &["g"]);
    node.read(0, &[(Quantity::Busy, 0)]);
    node.read(10_000, &[(Quantity::Busy, 5 * SECOND)]);
    let mut after = restarted(&node, 11_000, &[A]);
    after.read(20_000, &[(Quantity::Busy, SECOND)]);
    after.read(30_000, &[(Quantity::Busy, 3 * SECOND)]);
    assert_eq!(after.of(A, Quantity::Busy), [(GpuMethod::Alone, 7 * SECOND)]);
    assert_eq!(after.node(Quantity::Busy), (7 * SECOND, 0));
    assert_eq!(after.ledger.allocated(A, after.at(30_000)), [("g".into(), Duration::from_secs(30))]);
    assert_eq!(after.ledger.watched("g"), Some((Duration::from_secs(30), Duration::ZERO)));
    assert_eq!(after.ledger.take_restarts(), 0);
}

/// The board's own counter goes on while no exporter runs.
#[test]
fn a_counter_that_stood_there_before_and_after_a_restart_is_charged_for_the_time_between() {
    const NOT_SHARED: (Option<&Shares>, &[Part]) = (None, &[]);
    let mut node = Node::new();
    node.origin -= Duration::from_secs(100);
    node.comes(A, 0, &["g"]);
    node.read_standing(0, &[(Quantity::Energy, 0)], &[(Quantity::Energy, 7000)], NOT_SHARED);
    node.read_standing(10_000, &[(Quantity::Energy, 500)], &[(Quantity::Energy, 7500)], NOT_SHARED);
    for (stands, gained) in [(7900, 400), (100, 0)] {
        let mut after = restarted(&node, 11_000, &[A]);
        after.read_standing(20_000, &[(Quantity::Energy, 0)], &[(Quantity::Energy, stands)], NOT_SHARED);
        after.read_standing(
            30_000,
            &[(Quantity::Energy, 30)],
            &[(Quantity::Energy, stands + 30)],
            NOT_SHARED,
        );
        assert_eq!(
            after.of(A, Quantity::Energy),
            [(GpuMethod::Alone, 530 + gained)],
            "it stands at {stands}"
        );
        assert_eq!(after.node(Quantity::Energy), (530 + gained, 0));
    }
    // The job is gone: it had the GPU for a part of that time.
    let mut after = restarted(&node, 15_000, &[]);
    after.read_standing(20_000, &[(Quantity::Energy, 0)], &[(Quantity::Energy, 7900)], NOT_SHARED);
    let (total, unattributed) = after.node(Quantity::Energy);
    assert_eq!((total, unattributed), (900, 200));
}

#[test]
fn a_job_that_is_not_found_after_a_restart_had_its_gpu_until_it_was_seen_last() {
    let mut node = Node::new();
    node.origin -= Duration::from_secs(100);
    node.comes(A, 0, &["g"]);
    node.read(0, &[(Quantity::Busy, 0)]);
    node.read(10_000, &[(Quantity::Busy, 5 * SECOND)]);
    let mut after = restarted(&node, 11_000, &[]);
    after.goes(A, 20_000);
    after.read(20_000, &[(Quantity::Busy, SECOND)]);
    assert_eq!(after.ledger.allocated(A, after.at(30_000)), [("g".into(), Duration::from_secs(11))]);
    assert_eq!(after.of(A, Quantity::Busy), [(GpuMethod::Alone, 5 * SECOND)]);
    assert_eq!(after.ledger.holders("g"), 0);
}
