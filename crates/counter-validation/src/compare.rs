//! What was counted of a loop against what is known of it. Pure.

use known_work::Kernel;
use perf_counters::counting::NotCounted;
use perf_counters::tally::{RejectReason, Times};
use perf_counters::{Group, Plan, Quantity};

use crate::known::{Known, float, known};
use crate::results::{Row, Verdict};

/// Estimates of counters that took turns may be off by as much more.
const TURNS: f64 = 0.02;
/// Counted all the time, but for the moments in which it is read.
const ALL_THE_TIME: f64 = 0.999;

/// What the counters gave of a loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// By quantity, multiplied by what a count is worth. Absent what was not counted completely.
    pub counts: Vec<(Quantity, u64)>,
    /// How long each group of the plan was counted, in its order.
    pub groups: Vec<Times>,
    /// What was not opened, if anything.
    pub not_counted: Option<NotCounted>,
    /// Why an interval was not believed, if one was not.
    pub rejected: Option<RejectReason>,
}

/// Where and what ran.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    /// The loop.
    pub kernel: &'a Kernel,
    /// How often.
    pub iterations: u64,
    /// On which CPU.
    pub cpu: u32,
}

/// A row for each quantity of the plan of which something is known in this loop.
pub fn compare(plan: &Plan, ran: Ran<'_>, counted: &Counted) -> Vec<Row> {
    let here = |group: &&Group| group.cpus.as_ref().is_none_or(|cpus| cpus.contains(ran.cpu));
    let mut quantities: Vec<Quantity> = Vec::new();
    for event in plan.groups.iter().filter(here).flat_map(|group| &group.events) {
        if !quantities.contains(&event.quantity) {
            quantities.push(event.quantity);
        }
    }
    let rows = quantities.into_iter().filter_map(|quantity| {
        let known = known(quantity, &ran.kernel.work)?;
        let of_it = |group: &Group| group.events.iter().any(|event| event.quantity == quantity);
        let times: Vec<Times> = plan
            .groups
            .iter()
            .zip(&counted.groups)
            .filter(|(group, _)| here(group) && of_it(group))
            .map(|(_, times)| *times)
            .collect();
        let count =
            counted.counts.iter().find(|(counted, _)| *counted == quantity).map(|(_, count)| float(*count));
        let running = running(&times);
        let uncounted = || {
            if let Some(reason) = counted.rejected {
                return (Verdict::Off, format!("an interval is not believed: {}", reason.as_str()));
            }
            if times.iter().any(|times| times.opened && times.running == 0) {
                return (Verdict::NeverRan, "its group never had counters".to_owned());
            }
            let why = counted.not_counted.map_or("its group is not open", NotCounted::as_str);
            (Verdict::Absent, why.to_owned())
        };
        Some(row(
            known,
            "cores",
            ran,
            count.filter(|_| counted.rejected.is_none()).ok_or_else(uncounted),
            running,
        ))
    });
    rows.collect()
}

/// The part of the time in which the group that was counted least was.
fn running(groups: &[Times]) -> Option<f64> {
    let part = |times: &Times| (times.enabled > 0).then(|| float(times.running) / float(times.enabled));
    groups.iter().filter_map(part).reduce(f64::min)
}

/// A row from a count, or from why there is none.
pub fn row(
    known: Known,
    counted_by: &str,
    ran: Ran<'_>,
    counted: Result<f64, (Verdict, String)>,
    running: Option<f64>,
) -> Row {
    let iterations = float(ran.iterations);
    let (least, most) = (known.range.0 * iterations, known.range.1 * iterations);
    let limit = known.limit + if running.is_some_and(|running| running < ALL_THE_TIME) { TURNS } else { 0.0 };
    let (counted, why, failed) = match counted {
        Ok(counted) => (Some(counted), None, None),
        Err((verdict, why)) => (None, Some(why), Some(verdict)),
    };
    let off_by = counted.map(|counted| {
        let nearest = counted.clamp(least, most);
        (counted - nearest) / (known.whole * iterations).max(f64::MIN_POSITIVE)
    });
    let compared = || if off_by.is_some_and(|off| off.abs() <= limit) { Verdict::Pass } else { Verdict::Off };
    Row {
        quantity: known.name,
        counted_by: counted_by.to_owned(),
        kernel: ran.kernel.name.to_owned(),
        cpu: ran.cpu,
        known_least: least,
        known_most: most,
        counted,
        off_by,
        limit,
        running,
        verdict: failed.unwrap_or_else(compared),
        why,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use known_work::kernels;
    use perf_counters::{Event, PlausibilityLimits, Precision, Width};
    use perf_events::Attr;

    use super::*;

    const DOUBLES: Quantity = Quantity::Flops { precision: Precision::Double, width: Width::Scalar, each: 1 };
    const SINGLES: Quantity = Quantity::Flops { precision: Precision::Single, width: Width::Scalar, each: 1 };
    const LOADS: Quantity = Quantity::MemoryLoads { each: 64 };

    fn plan(groups: &[&[Quantity]]) -> Plan {
        let event = |quantity: &Quantity| Event {
            name: "event".into(),
            quantity: *quantity,
            attr: Attr::new(4, 1),
            minus: false,
        };
        let group = |quantities: &&[Quantity]| Group {
            name: Arc::from("group"),
            hardware: true,
            cpus: None,
            events: quantities.iter().map(event).collect(),
        };
        Plan {
            microarchitecture: None,
            flops: None,
            groups: groups.iter().map(group).collect(),
            absent: Vec::new(),
            limits: PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: None },
        }
    }

    fn kernel(name: &str) -> Kernel {
        kernels().into_iter().find(|kernel| kernel.name == name).expect("a loop of every architecture")
    }

    fn ran(kernel: &Kernel) -> Ran<'_> {
        Ran { kernel, iterations: 1000, cpu: 0 }
    }

    fn times(enabled: u64, running: u64) -> Times {
        Times { enabled, running, opened: true, left_out: false }
    }

    fn outcome(row: &Row) -> (&str, Option<f64>, Verdict) {
        (&row.quantity, row.off_by.map(|off| (off * 1e4).round() / 1e4), row.verdict)
    }

    #[test]
    fn a_counter_of_operations_that_counts_half_is_found() {
        let kernel = kernel("add_scalar_double");
        let plan = plan(&[&[Quantity::Instructions, DOUBLES, SINGLES]]);
        let flops = kernel.work.flops.unwrap().count * 1000;
        let instructions = kernel.work.instructions.unwrap() * 1000;
        let counted = Counted {
            counts: vec![
                (Quantity::Instructions, instructions + instructions / 200),
                (DOUBLES, flops / 2),
                (SINGLES, 0),
            ],
            groups: vec![times(100, 100)],
            ..Counted::default()
        };
        let rows = compare(&plan, ran(&kernel), &counted);
        assert_eq!(
            rows.iter().map(outcome).collect::<Vec<_>>(),
            [
                ("instructions", Some(0.005), Verdict::Pass),
                ("flops double scalar", Some(-0.5), Verdict::Off),
                ("flops single scalar", Some(0.0), Verdict::Pass),
            ]
        );
        let taken_for_others = Counted { counts: vec![(SINGLES, flops)], ..counted };
        let row = compare(&plan, ran(&kernel), &taken_for_others).pop().unwrap();
        assert_eq!(outcome(&row), ("flops single scalar", Some(1.0), Verdict::Off), "doubles are no singles");
    }

    #[test]
    fn a_group_that_never_ran_is_said_to_and_one_that_is_not_open_is_absent() {
        let kernel = kernel("add_scalar_double");
        let plan = plan(&[&[Quantity::Instructions], &[DOUBLES], &[SINGLES]]);
        let counted = Counted {
            counts: vec![(Quantity::Instructions, kernel.work.instructions.unwrap() * 1000)],
            groups: vec![times(100, 100), times(100, 0), Times::default()],
            not_counted: Some(NotCounted::Descriptors),
            rejected: None,
        };
        let rows = compare(&plan, ran(&kernel), &counted);
        let verdicts: Vec<_> = rows.iter().map(|row| (row.verdict, row.why.as_deref())).collect();
        assert_eq!(
            verdicts,
            [
                (Verdict::Pass, None),
                (Verdict::NeverRan, Some("its group never had counters")),
                (Verdict::Absent, Some("descriptors")),
            ]
        );
        assert_eq!(crate::results::verdict(&rows), Some(Verdict::NeverRan));
        assert_eq!(crate::results::verdict(&rows[2..]), None, "nothing was compared");
    }

    #[test]
    fn what_the_exporter_does_not_believe_is_off() {
        let kernel = kernel("chain");
        let counted = Counted {
            counts: vec![(Quantity::Instructions, 0)],
            groups: vec![times(100, 100)],
            rejected: Some(RejectReason::Flops),
            ..Counted::default()
        };
        let rows = compare(&plan(&[&[Quantity::Instructions]]), ran(&kernel), &counted);
        assert_eq!(rows[0].verdict, Verdict::Off);
        assert_eq!(rows[0].why.as_deref(), Some("an interval is not believed: flops_per_cycle"));
    }

    #[test]
    fn turns_allow_for_more_and_are_shown() {
        let kernel = kernel("chain");
        let instructions = kernel.work.instructions.unwrap() * 1000;
        let by = |parts: u64, running| {
            let counted = Counted {
                counts: vec![(Quantity::Instructions, instructions + instructions * parts / 100)],
                groups: vec![times(1000, running)],
                ..Counted::default()
            };
            compare(&plan(&[&[Quantity::Instructions]]), ran(&kernel), &counted).remove(0)
        };
        assert_eq!((by(2, 1000).verdict, by(2, 300).verdict), (Verdict::Off, Verdict::Pass));
        assert_eq!((by(4, 300).verdict, by(4, 300).running), (Verdict::Off, Some(0.3)));
    }

    #[test]
    fn bytes_that_are_counted_twice_are_found_and_lines_read_for_stores_are_not() {
        let kernel = kernel("triad");
        let (least, most) = kernel.work.traffic.unwrap().read;
        let by = |bytes: u64| {
            let counted = Counted {
                counts: vec![(LOADS, bytes * 1000)],
                groups: vec![times(100, 100)],
                ..Counted::default()
            };
            outcome(&compare(&plan(&[&[LOADS]]), ran(&kernel), &counted)[0]).2
        };
        assert_eq!(
            (by(least), by(most), by((least + most) / 2)),
            (Verdict::Pass, Verdict::Pass, Verdict::Pass)
        );
        assert_eq!((by(2 * most), by(least / 2)), (Verdict::Off, Verdict::Off));
    }

    #[test]
    fn another_kind_of_cores_is_not_compared() {
        let mut plan = plan(&[&[Quantity::Instructions], &[Quantity::Branches]]);
        plan.groups[1].cpus = cpu_topology::CpuSet::parse(b"4-7").ok();
        let kernel = kernel("chain");
        let quantities: Vec<_> =
            compare(&plan, ran(&kernel), &Counted::default()).into_iter().map(|row| row.quantity).collect();
        assert_eq!(quantities, ["instructions"]);
    }
}
