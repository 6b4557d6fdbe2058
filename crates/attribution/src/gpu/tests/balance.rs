//! Any jobs on any GPUs, read at any times: the sum over jobs and what no job is charged with is what was counted.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Comes(u64, Option<Vec<usize>>),
    Binds(u64, Vec<usize>),
    Goes(u64),
    Forget(u64),
    /// A scrape shows these jobs.
    Scrape(Vec<u64>),
    Read(Vec<u64>, Option<Vec<(u64, u64)>>),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let units = || proptest::collection::vec(0..2_usize, 0..3);
    let run = || 1..6_u64;
    let processes = proptest::option::of(proptest::collection::vec((run(), 0..3 * SECOND), 0..4));
    let step = prop_oneof![
        2 => (run(), proptest::option::of(units())).prop_map(|(l, u)| Step::Comes(l, u)),
        1 => (run(), units()).prop_map(|(l, u)| Step::Binds(l, u)),
        2 => run().prop_map(Step::Goes),
        1 => run().prop_map(Step::Forget),
        2 => proptest::collection::vec(run(), 0..4).prop_map(Step::Scrape),
        4 => (proptest::collection::vec(0..5 * SECOND, 4), processes).prop_map(|(g, p)| Step::Read(g, p)),
        4 => (0..4_000_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever the order of events: every count is charged once, to a job or to the unattributed rest.
    #[test]
    fn it_balances(steps in steps()) {
        let mut node = Node::new();
        let names: [Arc<str>; 2] = ["g".into(), "h".into()];
        let of = |units: &[usize]| units.iter().map(|u| names[*u].clone()).collect::<Vec<_>>();
        let (mut millis, mut raw, mut read) = (0, [0_u64; 4], [0_u64; 4]);
        let mut first = true;
        let quantities = [Quantity::Busy, Quantity::Energy];
        let sums = |node: &GpuLedger<Quantity>, index: usize| {
            let account = node.accounts(&names[index / 2]).find(|(q, _)| *q == quantities[index % 2]).unwrap().1;
            let jobs: u64 = account.runs().flat_map(|run| account.of(run)).map(|(_, a)| a).sum();
            (exported_whole(account), account.residual(), jobs)
        };
        // The last values that scrapes showed, by unit and quantity.
        let mut shown: [BTreeMap<JobRunId, u64>; 4] = Default::default();
        // A run that comes after one was dropped is another one.
        let mut ages = [0_u64; 6];
        let run_of = |ages: &[u64; 6], run: u64| JobRunId(run + 10 * ages[usize::try_from(run).unwrap()]);
        for step in steps {
            let at = node.at(millis);
            match step {
                Step::Comes(run, units) => {
                    node.ledger.appeared(run_of(&ages, run), at);
                    if let Some(units) = units {
                        node.ledger.bind(run_of(&ages, run), &of(&units), at);
                    }
                }
                Step::Binds(run, units) => node.ledger.bind(run_of(&ages, run), &of(&units), at),
                Step::Goes(run) => node.ledger.left(run_of(&ages, run), at),
                Step::Forget(run) => {
                    node.ledger.left(run_of(&ages, run), at);
                    node.ledger.forget(run_of(&ages, run));
                    ages[usize::try_from(run).unwrap()] += 1;
                }
                Step::Wait(more) => millis += more,
                Step::Scrape(runs) if !first => {
                    for (index, shown) in shown.iter_mut().enumerate() {
                        let (unit, quantity) = (&names[index / 2], quantities[index % 2]);
                        for run in runs.iter().map(|run| run_of(&ages, *run)) {
                            node.ledger.export(run, unit);
                            let (_, account) = node.ledger.accounts(unit).find(|(q, _)| *q == quantity).unwrap();
                            shown.insert(run, account.of(run).map(|(_, amount)| amount).sum());
                        }
                        let (_, account) = node.ledger.accounts(unit).find(|(q, _)| *q == quantity).unwrap();
                        let jobs: u64 = shown.values().sum();
                        prop_assert_eq!(jobs + account.residual(), account.exported_total());
                    }
                }
                Step::Scrape(_) => {}
                Step::Read(gains, processes) => {
                    for (raw, gain) in raw.iter_mut().zip(gains) {
                        *raw += gain;
                    }
                    if first {
                        read = raw;
                        first = false;
                    }
                    let shares = processes.map(|p| shares(&p.iter().map(|(l, ns)| (run_of(&ages, *l), *ns)).collect::<Vec<_>>(), 7));
                    for (unit, raw) in raw.chunks(2).enumerate() {
                        let counts = [(Quantity::Busy, raw[0]), (Quantity::Energy, raw[1])];
                        let gpu_reading = GpuReading { at, seen: true,
 epoch: 1, counts: &counts, standing: &[], shares: shares.as_ref(), parts: &[] };
                        node.ledger.observe(&names[unit], &gpu_reading);
                    }
                }
            }
        }
        if !first {
            node.ledger.settle(node.at(millis) + PATIENCE * 2);
            for (index, shown) in shown.iter().enumerate() {
                let (total, residual, jobs) = sums(&node.ledger, index);
                // What scrapes showed of runs that were dropped counts as theirs.
                let there = |run: &JobRunId| ages.iter().zip(0..).any(|(_, l)| run_of(&ages, l) == *run);
                let gone: u64 = shown.iter().filter(|(run, _)| !there(run)).map(|(_, amount)| amount).sum();
                prop_assert_eq!((total, residual + jobs + gone), (raw[index] - read[index], total));
            }
        }
    }

    /// A job alone on a GPU is charged with what was counted while it was there, however often it was read.
    #[test]
    fn how_often_it_is_read_makes_no_difference(readings in proptest::collection::btree_set(1..9_999_u64, 0..30)) {
        let mut node = Node::new();
        let count = |millis: u64| [(Quantity::Busy, millis * 700_000), (Quantity::Energy, millis * 300_000)];
        node.comes(A, 0, &["g"]);
        for millis in std::iter::once(0).chain(readings).chain([10_000]) {
            node.read(millis, &count(millis));
        }
        prop_assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, 7 * SECOND)]);
        prop_assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::Alone, 3_000_000_000)]);
        prop_assert_eq!(node.ledger.usage(A, "g").unwrap().idle, Duration::from_secs(3));
    }
}
