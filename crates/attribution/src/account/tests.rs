use proptest::prelude::*;

use super::super::split;
use super::*;

#[test]
fn what_is_charged_is_a_job_runs_or_unattributed() {
    let mut account = Account::default();
    account.charge(1, split(100, vec![(JobRunId(1), 1), (JobRunId(2), 2)], 4));
    account.charge(2, split(50, vec![(JobRunId(1), 1)], 1));
    account.leave_unattributed(7);
    assert_eq!(account.residual(), 32);
    assert_eq!(account.of(JobRunId(1)).collect::<Vec<_>>(), [(1, 25), (2, 50)]);
    assert_eq!(account.of(JobRunId(3)).count(), 0, "absent, not 0");
    account.export(JobRunId(1));
    account.export(JobRunId(3));
    assert_eq!(account.exported_total(), 107, "50 are of one that is not exported yet");
    account.export(JobRunId(2));
    assert_eq!(account.exported_total(), 157);
}

#[test]
fn a_dropped_run_leaves_what_no_scrape_showed_to_unattributed() {
    for (exported, residual) in [(None, 150), (Some(100), 50), (Some(150), 0)] {
        let mut account = Account::default();
        account.charge_to(JobRunId(1), 1, 100);
        if exported == Some(100) {
            account.export(JobRunId(1));
        }
        account.charge_to(JobRunId(1), 2, 50);
        if exported == Some(150) {
            account.export(JobRunId(1));
        }
        account.forget(JobRunId(1));
        assert_eq!((account.exported_total(), account.residual()), (150, residual), "{exported:?}");
        assert_eq!(account.of(JobRunId(1)).count(), 0);
    }
}

#[derive(Debug, Clone)]
enum Op {
    Charge(u64, u8, u64),
    Split(u64, Vec<(u64, u64)>, u64),
    Unattributed(u64),
    /// A scrape, with the job runs that are in it.
    Scrape(Vec<u64>),
    /// Retained long enough, dropped, never identified, superseded by a requeued run: a job run is not retained any more.
    Forget(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let runs = || 1..6_u64;
    let amount = || 0..1_000_000_u64;
    prop_oneof![
        4 => (runs(), 0..3_u8, amount()).prop_map(|(run, method, amount)| Op::Charge(run, method, amount)),
        2 => (amount(), proptest::collection::vec((runs(), 0..9_u64), 0..4), 0..30_u64)
            .prop_map(|(amount, weights, whole)| Op::Split(amount, weights, whole)),
        1 => amount().prop_map(Op::Unattributed),
        3 => proptest::collection::vec(runs(), 0..5).prop_map(Op::Scrape),
        2 => runs().prop_map(Op::Forget),
    ]
}

proptest! {
    /// As seen by who stores every scrape: the last values of all job runs and unattributed are the node, no counter falls,
    /// and nothing that was measured is lost.
    #[test]
    fn jobs_and_unattributed_are_the_node_after_any_history_with_drops(
        history in proptest::collection::vec(op(), 1..120)
    ) {
        let mut account = Account::default();
        let (mut measured, mut node, mut unattributed) = (0, 0, 0);
        // A job run that comes after one was dropped is another one.
        let mut age = BTreeMap::<u64, u64>::new();
        let run_of = |age: &BTreeMap<u64, u64>, run: u64| JobRunId(run + 10 * age.get(&run).copied().unwrap_or(0));
        let mut shown = BTreeMap::<JobRunId, u64>::new();
        for op in history {
            match op {
                Op::Charge(run, method, amount) => {
                    measured += amount;
                    account.charge_to(run_of(&age, run), method, amount);
                }
                Op::Split(amount, weights, whole) => {
                    measured += amount;
                    let weights = weights.iter().map(|(run, weight)| (run_of(&age, *run), u128::from(*weight)));
                    account.charge(0, split(amount, weights.collect(), u128::from(whole)));
                }
                Op::Unattributed(amount) => {
                    measured += amount;
                    account.leave_unattributed(amount);
                }
                Op::Forget(run) => {
                    account.forget(run_of(&age, run));
                    *age.entry(run).or_insert(0) += 1;
                }
                Op::Scrape(runs) => {
                    for run in runs.into_iter().map(|run| run_of(&age, run)) {
                        account.export(run);
                        let now = account.of(run).map(|(_, amount)| amount).sum();
                        if account.of(run).count() > 0 {
                            let before = shown.insert(run, now).unwrap_or(0);
                            prop_assert!(now >= before, "a job's counter fell");
                        }
                    }
                    let jobs: u64 = shown.values().sum();
                    prop_assert_eq!(jobs + account.residual(), account.exported_total());
                    prop_assert!(account.exported_total() >= node && account.residual() >= unattributed);
                    (node, unattributed) = (account.exported_total(), account.residual());
                }
            }
        }
        for run in account.runs().collect::<Vec<_>>() {
            account.export(run);
        }
        prop_assert_eq!(account.exported_total(), measured);
    }
}
