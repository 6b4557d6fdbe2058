//! What a quantity of the plan is to be for an iteration of a loop. Pure.

use known_work::{Flops, Precision, Traffic, Width, Work};
use perf_counters::{CacheLevel, Flow, Quantity};

/// What is known of a quantity, for one iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The quantity, in words.
    pub name: String,
    /// At least and at most.
    pub range: (f64, f64),
    /// What a difference is a part of: the quantity itself, or where it is to be 0 what could be taken for it.
    pub whole: f64,
    /// How large that part may be.
    pub limit: f64,
}

/// Interrupts and the readings themselves are counted, too.
const EXACT: f64 = 0.01;
/// The predictor finds patterns in any bits for a while.
const PREDICTED: f64 = 0.1;
/// A loop's own instructions may not quite fit beside the chain.
const CYCLES: f64 = 0.03;
/// Walks of page tables, and what is left in the caches at the end.
const MOVED: f64 = 0.1;

impl Known {
    fn exact(name: impl Into<String>, value: f64, limit: f64) -> Self {
        Self { name: name.into(), range: (value, value), whole: value, limit }
    }

    fn moved(name: &str, (least, most): (u64, u64)) -> Option<Self> {
        let (least, most) = (float(least), float(most));
        (least > 0.0).then(|| Self {
            name: name.to_owned(),
            range: (least, most),
            whole: least,
            limit: MOVED,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of some seconds are far below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// What is known of a quantity; `None` where nothing is known of it.
pub fn known(quantity: Quantity, work: &Work) -> Option<Known> {
    let exact = |name: &str, count: Option<u64>, limit| Some(Known::exact(name, float(count?), limit));
    match quantity {
        Quantity::Instructions => exact("instructions", work.instructions, EXACT),
        Quantity::Branches => exact("branches", work.branches, EXACT),
        Quantity::BranchMisses => {
            let (missed, branches) = (work.mispredicted?, float(work.branches?));
            let whole = if missed > 0.0 { missed } else { branches };
            let limit = if missed > 0.0 { PREDICTED } else { EXACT };
            Some(Known { whole, ..Known::exact("branch misses", missed, limit) })
        }
        Quantity::Cycles => exact("cycles", work.cycles, CYCLES),
        Quantity::Flops { precision, width, .. } => flops(precision, width, work.flops?),
        Quantity::MemoryLoads { .. } => Known::moved("memory loads", work.traffic?.read),
        Quantity::CacheTraffic { level, flow, .. } => cache_traffic(level, flow, work.traffic?),
        Quantity::MinorFaults => exact("minor faults", work.minor_faults, EXACT),
        Quantity::ContextSwitches => exact("context switches", work.context_switches, PREDICTED),
        // What an access or a miss is differs between CPUs; clocks have frequencies of their own.
        _ => None,
    }
}

/// Of a loop's operations those that this quantity has: all of them or none.
fn flops(precision: perf_counters::Precision, width: perf_counters::Width, done: Flops) -> Option<Known> {
    use perf_counters::{Precision as P, Width as W};
    let same_numbers = match (precision, done.precision) {
        (P::Any, _) => true,
        (P::Double, of) => of == Precision::Double,
        (P::Single, of) => of == Precision::Single,
        _ => false,
    };
    let same_width = match (width, done.width) {
        (W::Any, _) | (W::Scalar, Width::Scalar) | (W::Packed, Width::Bits(_)) => true,
        (W::Bits(counted), Width::Bits(done)) => counted == done,
        _ => false,
    };
    let done = float(done.count);
    let value = if same_numbers && same_width { done } else { 0.0 };
    let name = format!("flops {} {}", precision.as_str(), width.as_str());
    Some(Known { whole: done, ..Known::exact(name, value, EXACT) })
}

/// A stream passes through all caches. A line that leaves one unchanged may be passed on or dropped.
fn cache_traffic(level: CacheLevel, flow: Flow, traffic: Traffic) -> Option<Known> {
    let name = format!("{} {}", level.as_str(), flow.as_str());
    match flow {
        Flow::Load => Known::moved(&name, traffic.read),
        // Where stores pass the caches by, nothing is evicted.
        Flow::Evict if traffic.read.1 == traffic.read.0 => None,
        Flow::Evict => Known::moved(&name, (traffic.written, traffic.written + traffic.read.1)),
    }
}

/// What the memory controllers are to read and to write.
pub fn controllers(work: &Work) -> Option<(Option<Known>, Option<Known>, Option<Known>)> {
    let Traffic { read, written } = work.traffic?;
    Some((
        Known::moved("memory read", read),
        Known::moved("memory written", (written, written)),
        Known::moved("memory moved", (read.0 + written, read.1 + written)),
    ))
}

/// What resctrl is to measure: reads of L3 from memory, and on some CPUs what it writes there.
pub fn monitored(work: &Work) -> Option<Known> {
    let Traffic { read, written } = work.traffic?;
    Known::moved("memory bandwidth", (read.0, read.1 + written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fma(width: Width) -> Work {
        let flops = Flops { precision: Precision::Double, width, count: 96 };
        Work { instructions: Some(26), branches: Some(1), flops: Some(flops), ..Work::default() }
    }

    fn of(precision: perf_counters::Precision, width: perf_counters::Width, work: &Work) -> f64 {
        let known = known(Quantity::Flops { precision, width, each: 4 }, work).unwrap();
        assert_eq!((known.range.0, known.whole), (known.range.1, 96.0));
        known.range.0
    }

    #[test]
    fn operations_are_those_of_their_precision_and_width_and_of_none_other() {
        use perf_counters::{Precision as P, Width as W};
        let (vector, scalar) = (fma(Width::Bits(256)), fma(Width::Scalar));
        assert_eq!(of(P::Double, W::Bits(256), &vector), 96.0);
        assert_eq!(of(P::Double, W::Packed, &vector), 96.0);
        assert_eq!((of(P::Any, W::Any, &vector), of(P::Any, W::Any, &scalar)), (96.0, 96.0));
        assert_eq!(of(P::Double, W::Scalar, &scalar), 96.0);
        for (precision, width) in [
            (P::Single, W::Bits(256)),
            (P::Double, W::Bits(512)),
            (P::Double, W::Scalar),
            (P::Bfloat16, W::Any),
        ] {
            assert_eq!(of(precision, width, &vector), 0.0, "{precision:?} {width:?}");
        }
        assert_eq!(of(P::Double, W::Packed, &scalar), 0.0);
        let none = known(Quantity::Flops { precision: P::Any, width: W::Any, each: 1 }, &Work::default());
        assert_eq!(none, None, "nothing is known of other work");
    }

    #[test]
    fn what_moves_is_a_range_where_stores_may_read_their_lines() {
        let traffic = Traffic { read: (128, 192), written: 64 };
        let triad = Work { traffic: Some(traffic), ..Work::default() };
        let range = |quantity| known(quantity, &triad).map(|known| known.range);
        assert_eq!(range(Quantity::MemoryLoads { each: 64 }), Some((128.0, 192.0)));
        let l2 = |flow| Quantity::CacheTraffic { level: CacheLevel::L2, flow, each: 64 };
        assert_eq!(range(l2(Flow::Evict)), Some((64.0, 256.0)));
        let (read, written, moved) = controllers(&triad).unwrap();
        let ranges = [read, written, moved].map(|known| known.unwrap().range);
        assert_eq!(ranges, [(128.0, 192.0), (64.0, 64.0), (192.0, 256.0)]);
        assert_eq!(monitored(&triad).unwrap().range, (128.0, 256.0));
        let past = Work { traffic: Some(Traffic { read: (128, 128), written: 64 }), ..Work::default() };
        assert_eq!(known(l2(Flow::Evict), &past), None);
        assert_eq!(known(Quantity::MemoryLoads { each: 64 }, &Work::default()), None);
        assert_eq!(
            known(Quantity::CacheReferences(CacheLevel::L3), &triad),
            None,
            "no two CPUs mean the same"
        );
    }
}
