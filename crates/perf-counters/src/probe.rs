//! What of a plan this kernel really counts: each group is opened once, on a CPU that has it, and closed again. A virtual
//! machine, a firmware or an old kernel may have less than its CPU's name promises.
//!
//! A group that is too large for the free counters is divided. An event that is refused by itself takes with it all
//! events that are added to it, on all kinds of cores: a sum with a part missing would be too small.

use std::collections::BTreeMap;
use std::sync::Arc;

use cpu_topology::CpuSet;
use perf_events::{On, Open, OpenError};

use super::catalogue::Topic;
use super::{Absent, Event, Group, Plan, Quantity};

/// Leaves out of a plan what cannot be opened, and says of it why. An error when the kernel lets this process count nothing of
/// others.
pub fn probe(plan: &Plan, online: &CpuSet, open: &dyn Open) -> Result<Plan, OpenError> {
    let mut probed = Plan { groups: Vec::new(), ..plan.clone() };
    let mut refused = Vec::new();
    for group in &plan.groups {
        let on_it = |cpu: &u32| group.cpus.as_ref().is_none_or(|cpus| cpus.contains(*cpu));
        let Some(cpu) = online.iter().find(on_it) else { continue };
        let try_one = |group: &Group| open.open(On::Everybody, cpu, &group.attrs()).map(drop);
        match try_one(group) {
            Ok(()) => probed.groups.push(group.clone()),
            Err(error @ (OpenError::Denied | OpenError::Descriptors)) => return Err(error),
            Err(_) => divide(plan, group, &try_one, &mut probed.groups, &mut refused)?,
        }
    }
    let mut lost: BTreeMap<Sum, Arc<str>> = BTreeMap::new();
    for (event, of, error) in refused {
        if probed.groups.iter().any(|group| group.cpus == of.cpus && counts(group, &event)) {
            continue;
        }
        lost.entry(sum(event.quantity)).or_insert(event.name.clone());
        let absent = Absent { what: event.name, why: error.to_string().into() };
        if !probed.absent.contains(&absent) {
            probed.absent.push(absent);
        }
    }
    for (lost, without) in lost {
        let part = |event: &Event| sum(event.quantity) == lost;
        if probed.groups.iter().flat_map(|group| &group.events).any(part) {
            let why = format!("without {without} the rest would look like the whole").into();
            probed.absent.push(Absent { what: lost.0.as_str().into(), why });
        }
        probed.groups.iter_mut().for_each(|group| group.events.retain(|event| !part(event)));
    }
    // The rest of a group may be in others already.
    for group in std::mem::take(&mut probed.groups) {
        let known = |event: &Event| {
            probed.groups.iter().any(|before| before.cpus == group.cpus && counts(before, event))
        };
        if !group.events.iter().all(known) {
            probed.groups.push(group);
        }
    }
    let flops = |event: &Event| matches!(event.quantity, Quantity::Flops { .. });
    if !probed.groups.iter().flat_map(|group| &group.events).any(flops) {
        (probed.flops, probed.limits.flops_per_cycle) = (None, None);
    }
    Ok(probed)
}

/// Reported only as a whole.
type Sum = (Topic, Option<Quantity>);

/// What the kernel counts by itself has no topic, and is each of its own.
fn sum(quantity: Quantity) -> Sum {
    let software = Topic::of(quantity) == Topic::Cycles && quantity != Quantity::Cycles;
    (Topic::of(quantity), software.then_some(quantity))
}

fn counts(group: &Group, event: &Event) -> bool {
    group.events.iter().any(|known| (known.quantity, known.attr) == (event.quantity, event.attr))
}

type Left = Vec<(Event, OpenError)>;
type Refused<'p> = Vec<(Event, &'p Group, OpenError)>;

/// Divides a group that is not opened as it is into some that are, in the order of the importance of its events.
fn divide<'p>(
    plan: &Plan,
    group: &'p Group,
    try_one: &dyn Fn(&Group) -> Result<(), OpenError>,
    groups: &mut Vec<Group>,
    refused: &mut Refused<'p>,
) -> Result<(), OpenError> {
    let (mut fits, mut left) = fill(group, Vec::new(), group.events.clone(), try_one)?;
    // An event that does not fit beside the others may fit alone; it is divided by cycles nevertheless.
    let cycles: Vec<Event> =
        fits.iter().filter(|event| event.quantity == Quantity::Cycles).take(1).cloned().collect();
    let mut name = group.name.clone();
    loop {
        if !fits.is_empty() {
            groups.push(Group { name, events: fits, ..group.clone() });
        }
        let known =
            |event: &Event| groups.iter().any(|before| before.cpus == group.cpus && counts(before, event));
        let (rest, never): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(event, error)| *error == OpenError::Unfit && !known(event));
        refused.extend(never.into_iter().map(|(event, error)| (event, group, error)));
        if rest.is_empty() {
            return Ok(());
        }
        let rest: Vec<Event> = rest.into_iter().map(|(event, _)| event).collect();
        (fits, left) = fill(group, cycles.clone(), rest.clone(), try_one)?;
        if fits.len() == cycles.len() {
            (fits, left) = fill(group, Vec::new(), rest, try_one)?;
        }
        if fits.is_empty() {
            refused.extend(left.into_iter().map(|(event, error)| (event, group, error)));
            return Ok(());
        }
        name = free_name(plan, groups, &group.name);
    }
}

/// Which of these events can be counted beside those that it begins with, and why the others cannot.
fn fill(
    group: &Group,
    begin: Vec<Event>,
    rest: Vec<Event>,
    try_one: &dyn Fn(&Group) -> Result<(), OpenError>,
) -> Result<(Vec<Event>, Left), OpenError> {
    let (mut fits, mut left) = (Group { events: begin, ..group.clone() }, Vec::new());
    for event in rest {
        fits.events.push(event.clone());
        match try_one(&fits) {
            Ok(()) => {}
            Err(error @ (OpenError::Denied | OpenError::Descriptors)) => return Err(error),
            Err(error) => {
                fits.events.pop();
                left.push((event, error));
            }
        }
    }
    Ok((fits.events, left))
}

/// The next name of its kind.
fn free_name(plan: &Plan, groups: &[Group], name: &str) -> Arc<str> {
    let word = name.split('_').next().unwrap_or(name);
    let taken = |name: &str| plan.groups.iter().chain(groups).any(|group| &*group.name == name);
    let mut number = 2;
    loop {
        let name = format!("{word}_{number}");
        if !taken(&name) {
            return name.into();
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use perf_events::{Attr, Counters, Reading};

    use super::*;
    use crate::{CacheLevel, Event, Flow, PlausibilityLimits, Precision, Quantity, Width};

    /// Counts events below `kinds` of its own, at most `most` at a time.
    struct Machine {
        kinds: u64,
        most: usize,
        denies: bool,
    }

    struct Nothing;

    impl Counters for Nothing {
        fn read(&mut self, _into: &mut Reading) -> Result<(), kernel_files::ReadError> {
            Ok(())
        }
    }

    impl Open for Machine {
        fn open(&self, _on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
            // The first of 2-3 and of 4-7; only the latter have event 32.
            let other = group.iter().any(|attr| attr.config == 32);
            assert!(cpu == 4 || cpu == 2 && !other, "CPU {cpu} does not have {group:?}");
            if self.denies {
                return Err(OpenError::Denied);
            }
            if group.iter().any(|attr| attr.config >= self.kinds) {
                return Err(OpenError::Absent);
            }
            if group.len() > self.most { Err(OpenError::Unfit) } else { Ok(Box::new(Nothing)) }
        }
    }

    /// By tens.
    fn quantity(config: u64) -> Quantity {
        let double =
            |bits| Quantity::Flops { precision: Precision::Double, width: Width::Bits(bits), each: 2 };
        let load = |level| Quantity::CacheTraffic { level, flow: Flow::Load, each: 64 };
        match config {
            1 => Quantity::Cycles,
            2 => Quantity::Instructions,
            3 => Quantity::Branches,
            11 => Quantity::MajorFaults,
            12 => Quantity::MinorFaults,
            4..=9 => double(128),
            20..=29 => double(256),
            30..=39 => load(CacheLevel::L3),
            _ => load(CacheLevel::L2),
        }
    }

    fn plan(groups: &[&[u64]]) -> Plan {
        let event = |config: &u64| Event {
            name: format!("event{config}").into(),
            quantity: quantity(*config),
            attr: Attr::new(4, *config),
        };
        let group = |configs: &&[u64]| Group {
            name: "group".into(),
            hardware: true,
            cpus: cpu_topology::CpuSet::parse(b"2-3").ok(),
            events: configs.iter().map(event).collect(),
        };
        let limits = PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: None };
        Plan {
            microarchitecture: None,
            flops: None,
            groups: groups.iter().map(group).collect(),
            absent: vec![],
            limits,
        }
    }

    fn configs(plan: &Plan) -> Vec<Vec<u64>> {
        plan.groups.iter().map(|group| group.events.iter().map(|event| event.attr.config).collect()).collect()
    }

    #[test]
    fn what_is_not_counted_is_left_out_and_named() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 10, most: 3, denies: false };
        let planned = plan(&[&[1, 2, 3], &[4, 11, 5], &[1, 2, 3, 4], &[12]]);
        let probed = probe(&planned, &online, &machine).unwrap();
        assert_eq!(
            configs(&probed),
            [vec![1, 2, 3], vec![4, 5]],
            "what is in others already is not counted again"
        );
        let absent: Vec<_> = probed.absent.iter().map(|absent| (&*absent.what, &*absent.why)).collect();
        assert_eq!(
            absent,
            [
                ("event11", "no PMU of this machine counts it (ENOENT)"),
                ("event12", "no PMU of this machine counts it (ENOENT)"),
            ]
        );
        let none_online = cpu_topology::CpuSet::parse(b"0-1").unwrap();
        assert!(probe(&planned, &none_online, &machine).unwrap().groups.is_empty());
        let denying = Machine { denies: true, ..machine };
        assert_eq!(probe(&planned, &online, &denying).err(), Some(OpenError::Denied));
    }

    /// A guest may have fewer counters than its CPU.
    #[test]
    fn a_group_that_does_not_fit_is_divided_and_nothing_of_it_lost() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 100, most: 4, denies: false };
        let mut planned = plan(&[&[1, 2, 4, 5, 20, 21, 22], &[1, 2, 30, 31], &[1, 2, 3]]);
        planned.groups[1].name = "group_2".into();
        let probed = probe(&planned, &online, &machine).unwrap();
        assert_eq!(
            configs(&probed),
            [vec![1, 2, 4, 5], vec![1, 20, 21, 22], vec![1, 2, 30, 31], vec![1, 2, 3]]
        );
        let names: Vec<_> = probed.groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["group", "group_3", "group_2", "group"]);
        assert!(probed.absent.is_empty(), "{:?}", probed.absent);
        let small = Machine { most: 1, ..machine };
        let alone = probe(&plan(&[&[1, 2, 4]]), &online, &small).unwrap();
        assert_eq!(configs(&alone), [[1], [2], [4]], "without cycles where there is no room for them");
    }

    #[test]
    fn a_part_is_never_taken_for_the_whole() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 35, most: 4, denies: false };
        let mut planned = plan(&[&[1, 2, 4, 20], &[1, 30, 31, 36], &[2, 5]]);
        // Another kind of core counts it.
        planned.groups.push(Group {
            cpus: cpu_topology::CpuSet::parse(b"4-7").ok(),
            name: "other".into(),
            ..plan(&[&[1, 32]]).groups.remove(0)
        });
        planned.groups[1].events[3].quantity = quantity(30);
        planned.flops = Some("retired".into());
        planned.limits.flops_per_cycle = Some(32.0);
        let probed = probe(&planned, &online, &machine).unwrap();
        assert_eq!(configs(&probed), [vec![1, 2, 4, 20], vec![2, 5], vec![1]]);
        assert!(probed.flops.is_some() && probed.limits.flops_per_cycle.is_some());
        let absent: Vec<_> = probed.absent.iter().map(|absent| (&*absent.what, &*absent.why)).collect();
        assert_eq!(
            absent,
            [
                ("event36", "no PMU of this machine counts it (ENOENT)"),
                (Topic::of(quantity(30)).as_str(), "without event36 the rest would look like the whole"),
            ]
        );
        let probed = probe(&planned, &online, &Machine { kinds: 20, ..machine }).unwrap();
        assert_eq!(configs(&probed), [vec![1, 2], vec![1]], "no FLOPs of some widths only");
        assert_eq!((probed.flops, probed.limits.flops_per_cycle), (None, None));
    }
}
