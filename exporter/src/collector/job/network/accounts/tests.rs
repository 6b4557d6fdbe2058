use proptest::prelude::*;

use super::*;

fn counts(bytes: u64) -> Counts {
    Counts([bytes, bytes / 100 + 1, 0, 0, 0, 0])
}

fn key(group: u64) -> Key {
    Key { group, step: 0 }
}

fn table(entries: &[(u64, u64)]) -> HashMap<Key, Counts> {
    entries.iter().map(|(group, bytes)| (key(*group), counts(*bytes))).collect()
}

const NONE: Counts = Counts([0; 6]);
const ONE: JobRunId = JobRunId(1);

#[test]
fn a_jobs_packets_are_its_own_and_remain_so_after_its_end() {
    let mut network = NetworkAccounts::default();
    network.open(ONE, 7);
    network.round(table(&[(7, 1000)]), NONE, false);
    network.export(ONE);
    network.round(table(&[(7, 1500)]), NONE, false);
    assert_eq!(network.total(), counts(1000), "what a scrape showed");
    network.export(ONE);
    assert_eq!((network.of(ONE), network.total()), (Some(counts(1500)), counts(1500)));
    network.forget(ONE, Disposition::Exported);
    assert_eq!((network.of(ONE), network.total(), network.unattributed()), (None, counts(1500), NONE));
    // A socket that outlived it.
    let idle = network.round(table(&[(7, 1700)]), NONE, false);
    assert!(idle.is_empty());
    assert_eq!(network.unattributed(), Counts([200, 2, 0, 0, 0, 0]));
    assert_eq!(network.round(table(&[(7, 1700)]), NONE, false), [key(7)], "nobody needs it any more");
    network.removed(key(7), counts(1700));
    assert_eq!(network.total(), counts(1700));
}

#[test]
fn packets_that_come_before_their_job_is_found_wait_for_it() {
    let mut network = NetworkAccounts::default();
    network.round(table(&[(7, 1000), (8, 500)]), NONE, false);
    assert_eq!((network.total(), network.unattributed()), (NONE, NONE), "held back");
    network.open(ONE, 7);
    network.export(ONE);
    network.round(table(&[(7, 1100), (8, 500)]), NONE, false);
    assert_eq!((network.of(ONE), network.unattributed()), (Some(counts(1100)), counts(500)));
}

#[test]
fn a_cgroup_that_turns_out_to_be_a_job_late_keeps_what_is_not_charged_yet() {
    let mut network = NetworkAccounts::default();
    for bytes in [100, 200, 300] {
        network.round(table(&[(7, bytes)]), NONE, false);
    }
    network.open(ONE, 7);
    network.round(table(&[(7, 400)]), NONE, false);
    network.export(ONE);
    assert_eq!(network.of(ONE).unwrap().0[0], 100);
    assert_eq!(network.unattributed().0[0], 300, "what was exported as unattributed is not taken back");
    assert_eq!(network.total(), counts(400));
}

#[test]
fn a_run_that_no_scrape_showed_is_in_neither_sum_until_it_is_dropped() {
    for disposition in [Disposition::Unidentified, Disposition::Dropped, Disposition::Superseded] {
        let mut network = NetworkAccounts::default();
        network.open(ONE, 7);
        network.round(table(&[(7, 100)]), NONE, false);
        assert_eq!((network.total(), network.pending()), (NONE, counts(100)));
        network.forget(ONE, disposition);
        assert_eq!(
            (network.total(), network.unattributed(), network.pending()),
            (counts(100), counts(100), NONE)
        );
    }
}

#[test]
fn what_is_remembered_of_dropped_runs_is_bounded_though_no_scrape_comes() {
    let mut network = NetworkAccounts::default();
    for run in 1..=20_000 {
        network.open(JobRunId(run), run);
        network.forget(JobRunId(run), Disposition::Dropped);
    }
    assert_eq!(network.unknown.len(), MOST_UNKNOWN);
    assert_eq!(network.accounts.len() + network.owners.len(), 0);
    for _ in 0..2 {
        network.round(table(&[(20_000, 5)]), NONE, false);
    }
    assert_eq!(network.unattributed(), counts(5), "held back for a round");
}

#[test]
fn a_requeued_job_begins_anew_in_its_new_cgroup() {
    let mut network = NetworkAccounts::default();
    network.open(ONE, 7);
    network.round(table(&[(7, 100)]), NONE, false);
    network.export(ONE);
    network.open(JobRunId(2), 9);
    network.round(table(&[(7, 100), (9, 50)]), NONE, false);
    assert_eq!((network.of(ONE), network.of(JobRunId(2))), (Some(counts(100)), Some(counts(50))));
    assert_eq!(network.total(), counts(100), "the second run waits");
    network.export(JobRunId(2));
    assert_eq!(network.total().0[0], 150);
}

#[test]
fn what_does_not_fit_is_unattributed_and_an_entry_made_anew_counts_from_zero() {
    let mut network = NetworkAccounts::default();
    network.open(ONE, 7);
    network.round(table(&[(7, 1000)]), counts(300), true);
    assert_eq!(network.round(table(&[(7, 1000)]), counts(300), true), [key(7)], "crowded: idle ones go");
    network.removed(key(7), counts(1000));
    network.round(table(&[(7, 20)]), counts(400), false);
    assert_eq!(network.of(ONE).unwrap().0[0], 1020);
    assert_eq!((network.unattributed(), network.overflow()), (counts(400), counts(400)));
    assert_eq!(network.overflow().packets(), 5);
}

#[test]
fn steps_are_distinguished_and_dropped_with_the_job() {
    let mut network = NetworkAccounts::default();
    network.open(ONE, 7);
    network.step(ONE, 0, 70);
    network.step(ONE, 1, 71);
    let entries = [(70, 5), (71, 6), (0, 1)];
    let table = entries.iter().map(|(step, n)| (Key { group: 7, step: *step }, counts(*n))).collect();
    network.round(table, NONE, false);
    assert_eq!(network.of(ONE).unwrap().0[0], 12);
    assert_eq!((network.of_step(ONE, 0), network.of_step(ONE, 1)), (Some(counts(5)), Some(counts(6))));
    assert_eq!(network.of_step(ONE, 2), None, "not known is absent");
    for ordinal in 2..40 {
        network.step(ONE, ordinal, 100 + u64::from(ordinal));
    }
    network.keep_steps(ONE, |ordinal| ordinal == 1, 1);
    assert_eq!((network.of_step(ONE, 0), network.of_step(ONE, 1)), (None, Some(counts(6))));
    assert_eq!(network.of(ONE).unwrap().0[0], 12);
}

#[derive(Debug, Clone)]
enum Op {
    Send {
        group: u64,
        step: u64,
        bytes: u64,
    },
    Overflow(u64),
    Open {
        run: u64,
        group: u64,
    },
    /// The run is in the scrapes from now on.
    Export(u64),
    Forget(u64, Disposition),
    Round {
        crowded: bool,
        remove: bool,
        late: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let disposition = prop_oneof![
        Just(Disposition::Exported),
        Just(Disposition::Dropped),
        Just(Disposition::Unidentified),
        Just(Disposition::Superseded),
        Just(Disposition::Foreign),
    ];
    prop_oneof![
        6 => (1..6_u64, 0..3_u64, 1..10_000_u64).prop_map(|(group, step, bytes)| Op::Send { group, step, bytes }),
        1 => (1..1000_u64).prop_map(Op::Overflow),
        2 => (1..8_u64, 1..6_u64).prop_map(|(run, group)| Op::Open { run, group }),
        2 => (1..8_u64).prop_map(Op::Export),
        2 => (1..8_u64, disposition).prop_map(|(run, why)| Op::Forget(run, why)),
        4 => (any::<bool>(), any::<bool>(), 0..50_u64)
            .prop_map(|(crowded, remove, late)| Op::Round { crowded, remove, late }),
    ]
}

proptest! {
    /// Whatever happens in whatever order: nothing is lost, nothing is counted twice, and neither sum ever falls.
    #[test]
    fn the_sum_over_jobs_and_the_unattributed_rest_is_the_total_and_with_what_waits_all_there_was(
        history in proptest::collection::vec(op(), 1..200)
    ) {
        let mut network = NetworkAccounts::default();
        let mut kernel: HashMap<Key, Counts> = HashMap::new();
        let (mut sent, mut overflow) = (0, Counts::default());
        let (mut total, mut unattributed) = (0, 0);
        // The last values of all job runs: what Prometheus has.
        let mut shown: HashMap<JobRunId, u64> = HashMap::new();
        let (mut exported, mut ended) = (HashSet::new(), HashSet::new());
        for op in history {
            match op {
                Op::Send { group, step, bytes } => {
                    sent += bytes;
                    kernel.entry(Key { group, step }).or_default().add(Counts([bytes, 1, 0, 0, 0, 0]));
                }
                Op::Overflow(bytes) => {
                    sent += bytes;
                    overflow.add(Counts([bytes, 1, 0, 0, 0, 0]));
                }
                // A run comes once, and to a cgroup that is no other's.
                Op::Open { run, group } if !ended.contains(&run) => {
                    if !network.owners.contains_key(&group) {
                        network.open(JobRunId(run), group);
                    }
                }
                Op::Export(run) => {
                    exported.insert(JobRunId(run));
                }
                Op::Forget(run, why) => {
                    if network.accounts.contains_key(&JobRunId(run)) {
                        ended.insert(run);
                    }
                    network.forget(JobRunId(run), why);
                }
                Op::Open { .. } => {}
                Op::Round { crowded, remove, late } => {
                    let idle = network.round(kernel.clone(), overflow, crowded);
                    prop_assert_eq!(network.total().0[0] + network.pending().0[0], sent);
                    if remove {
                        for key in idle {
                            let mut last = kernel.remove(&key).unwrap();
                            // A packet between the reading and the removal.
                            sent += late;
                            last.add(Counts([late, 0, 0, 0, 0, 0]));
                            network.removed(key, last);
                        }
                    }
                    for run in &exported {
                        let Some(counts) = network.of(*run) else { continue };
                        network.export(*run);
                        let before = shown.insert(*run, counts.0[0]).unwrap_or(0);
                        prop_assert!(counts.0[0] >= before, "a job's counter fell");
                    }
                    let jobs: u64 = shown.values().sum();
                    prop_assert_eq!(jobs + network.unattributed().0[0], network.total().0[0]);
                    prop_assert_eq!(network.total().0[0] + network.pending().0[0], sent);
                    prop_assert!(network.total().0[0] >= total && network.unattributed().0[0] >= unattributed);
                    (total, unattributed) = (network.total().0[0], network.unattributed().0[0]);
                }
            }
        }
    }
}

#[test]
fn after_a_restart_the_kernels_table_begins_anew_and_the_accounts_go_on() {
    let mut network = NetworkAccounts::default();
    network.open(ONE, 7);
    network.round(table(&[(7, 1000)]), counts(30), false);
    network.export(ONE);
    let mut network: NetworkAccounts = durable_state::decode(&durable_state::encode(&network)).unwrap();
    network.round(table(&[(7, 5)]), counts(2), false);
    network.export(ONE);
    let (of_job, rest) = (counts(1000).plus(counts(5)), counts(30).plus(counts(2)));
    assert_eq!(network.of(ONE), Some(of_job));
    assert_eq!((network.unattributed(), network.total()), (rest, of_job.plus(rest)));
    assert_eq!(network.overflow(), rest, "it does not begin at 0 either");
}
