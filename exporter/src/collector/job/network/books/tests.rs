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
fn a_jobs_packets_are_its_own_and_stay_so_after_its_end() {
    let mut books = Books::default();
    books.open(ONE, 7);
    books.round(table(&[(7, 1000)]), NONE, false);
    books.export(ONE);
    books.round(table(&[(7, 1500)]), NONE, false);
    assert_eq!(books.total(), counts(1000), "what a scrape showed");
    books.export(ONE);
    assert_eq!((books.of(ONE), books.total()), (Some(counts(1500)), counts(1500)));
    books.forget(ONE, Disposition::Exported);
    assert_eq!((books.of(ONE), books.total(), books.unattributed()), (None, counts(1500), NONE));
    // A socket that outlived it.
    let idle = books.round(table(&[(7, 1700)]), NONE, false);
    assert!(idle.is_empty());
    assert_eq!(books.unattributed(), Counts([200, 2, 0, 0, 0, 0]));
    assert_eq!(books.round(table(&[(7, 1700)]), NONE, false), [key(7)], "nobody needs it any more");
    books.removed(key(7), counts(1700));
    assert_eq!(books.total(), counts(1700));
}

#[test]
fn packets_that_come_before_their_job_is_found_wait_for_it() {
    let mut books = Books::default();
    books.round(table(&[(7, 1000), (8, 500)]), NONE, false);
    assert_eq!((books.total(), books.unattributed()), (NONE, NONE), "held back");
    books.open(ONE, 7);
    books.export(ONE);
    books.round(table(&[(7, 1100), (8, 500)]), NONE, false);
    assert_eq!((books.of(ONE), books.unattributed()), (Some(counts(1100)), counts(500)));
}

#[test]
fn a_cgroup_that_turns_out_to_be_a_job_late_keeps_what_is_not_booked_yet() {
    let mut books = Books::default();
    for bytes in [100, 200, 300] {
        books.round(table(&[(7, bytes)]), NONE, false);
    }
    books.open(ONE, 7);
    books.round(table(&[(7, 400)]), NONE, false);
    books.export(ONE);
    assert_eq!(books.of(ONE).unwrap().0[0], 100);
    assert_eq!(books.unattributed().0[0], 300, "what was told of nobody is not taken back");
    assert_eq!(books.total(), counts(400));
}

#[test]
fn a_run_that_no_scrape_showed_is_in_neither_sum_until_it_is_dropped() {
    for disposition in [Disposition::Unidentified, Disposition::Dropped, Disposition::Superseded] {
        let mut books = Books::default();
        books.open(ONE, 7);
        books.round(table(&[(7, 100)]), NONE, false);
        assert_eq!((books.total(), books.pending()), (NONE, counts(100)));
        books.forget(ONE, disposition);
        assert_eq!((books.total(), books.unattributed(), books.pending()), (counts(100), counts(100), NONE));
    }
}

#[test]
fn what_is_remembered_of_dropped_runs_is_bounded_though_no_scrape_comes() {
    let mut books = Books::default();
    for run in 1..=20_000 {
        books.open(JobRunId(run), run);
        books.forget(JobRunId(run), Disposition::Dropped);
    }
    assert_eq!(books.strangers.len(), MOST_STRANGERS);
    assert_eq!(books.accounts.len() + books.owners.len(), 0);
    for _ in 0..2 {
        books.round(table(&[(20_000, 5)]), NONE, false);
    }
    assert_eq!(books.unattributed(), counts(5), "held back for a round");
}

#[test]
fn a_requeued_job_begins_anew_in_its_new_cgroup() {
    let mut books = Books::default();
    books.open(ONE, 7);
    books.round(table(&[(7, 100)]), NONE, false);
    books.export(ONE);
    books.open(JobRunId(2), 9);
    books.round(table(&[(7, 100), (9, 50)]), NONE, false);
    assert_eq!((books.of(ONE), books.of(JobRunId(2))), (Some(counts(100)), Some(counts(50))));
    assert_eq!(books.total(), counts(100), "the second run waits");
    books.export(JobRunId(2));
    assert_eq!(books.total().0[0], 150);
}

#[test]
fn what_does_not_fit_is_nobodys_and_an_entry_made_anew_counts_from_zero() {
    let mut books = Books::default();
    books.open(ONE, 7);
    books.round(table(&[(7, 1000)]), counts(300), true);
    assert_eq!(books.round(table(&[(7, 1000)]), counts(300), true), [key(7)], "crowded: idle ones go");
    books.removed(key(7), counts(1000));
    books.round(table(&[(7, 20)]), counts(400), false);
    assert_eq!(books.of(ONE).unwrap().0[0], 1020);
    assert_eq!((books.unattributed(), books.overflow()), (counts(400), counts(400)));
    assert_eq!(books.overflow().packets(), 5);
}

#[test]
fn steps_are_told_apart_and_given_up_with_the_job() {
    let mut books = Books::default();
    books.open(ONE, 7);
    books.step(ONE, 0, 70);
    books.step(ONE, 1, 71);
    let entries = [(70, 5), (71, 6), (0, 1)];
    let table = entries.iter().map(|(step, n)| (Key { group: 7, step: *step }, counts(*n))).collect();
    books.round(table, NONE, false);
    assert_eq!(books.of(ONE).unwrap().0[0], 12);
    assert_eq!((books.of_step(ONE, 0), books.of_step(ONE, 1)), (Some(counts(5)), Some(counts(6))));
    assert_eq!(books.of_step(ONE, 2), None, "not known is absent");
    for ordinal in 2..40 {
        books.step(ONE, ordinal, 100 + u64::from(ordinal));
    }
    books.keep_steps(ONE, |ordinal| ordinal == 1, 1);
    assert_eq!((books.of_step(ONE, 0), books.of_step(ONE, 1)), (None, Some(counts(6))));
    assert_eq!(books.of(ONE).unwrap().0[0], 12);
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
    Tell(u64),
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
        2 => (1..8_u64).prop_map(Op::Tell),
        2 => (1..8_u64, disposition).prop_map(|(run, why)| Op::Forget(run, why)),
        4 => (any::<bool>(), any::<bool>(), 0..50_u64)
            .prop_map(|(crowded, remove, late)| Op::Round { crowded, remove, late }),
    ]
}

proptest! {
    /// Whatever happens in whatever order: nothing is lost, nothing is counted twice, and neither sum ever falls.
    #[test]
    fn the_sum_over_jobs_and_nobody_is_the_total_and_with_what_waits_all_there_was(
        history in proptest::collection::vec(op(), 1..200)
    ) {
        let mut books = Books::default();
        let mut kernel: HashMap<Key, Counts> = HashMap::new();
        let (mut sent, mut overflow) = (0, Counts::default());
        let (mut total, mut nobody) = (0, 0);
        // The last values of all job runs: what Prometheus has.
        let mut shown: HashMap<JobRunId, u64> = HashMap::new();
        let (mut told, mut ended) = (HashSet::new(), HashSet::new());
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
                    if !books.owners.contains_key(&group) {
                        books.open(JobRunId(run), group);
                    }
                }
                Op::Tell(run) => {
                    told.insert(JobRunId(run));
                }
                Op::Forget(run, why) => {
                    if books.accounts.contains_key(&JobRunId(run)) {
                        ended.insert(run);
                    }
                    books.forget(JobRunId(run), why);
                }
                Op::Open { .. } => {}
                Op::Round { crowded, remove, late } => {
                    let idle = books.round(kernel.clone(), overflow, crowded);
                    prop_assert_eq!(books.total().0[0] + books.pending().0[0], sent);
                    if remove {
                        for key in idle {
                            let mut last = kernel.remove(&key).unwrap();
                            // A packet between the reading and the removal.
                            sent += late;
                            last.add(Counts([late, 0, 0, 0, 0, 0]));
                            books.removed(key, last);
                        }
                    }
                    for run in &told {
                        let Some(counts) = books.of(*run) else { continue };
                        books.export(*run);
                        let before = shown.insert(*run, counts.0[0]).unwrap_or(0);
                        prop_assert!(counts.0[0] >= before, "a job's counter fell");
                    }
                    let jobs: u64 = shown.values().sum();
                    prop_assert_eq!(jobs + books.unattributed().0[0], books.total().0[0]);
                    prop_assert_eq!(books.total().0[0] + books.pending().0[0], sent);
                    prop_assert!(books.total().0[0] >= total && books.unattributed().0[0] >= nobody);
                    (total, nobody) = (books.total().0[0], books.unattributed().0[0]);
                }
            }
        }
    }
}
