//! Events into groups that fit, the most important first.

use super::Chosen;
use super::fit::Counters;
use crate::catalogue::{Bundle, Topic};
use crate::{Quantity, SlotPart};

/// Groups under construction.
struct Packing<'c> {
    counters: &'c Counters,
    cycles: Option<Chosen>,
    groups: Vec<Vec<Chosen>>,
}

impl Packing<'_> {
    fn fits(&self, group: &[Chosen], more: &[Chosen]) -> bool {
        // The same code twice would have to be the same count.
        let doubled = more.iter().enumerate().any(|(at, event)| {
            group.iter().chain(more.iter().take(at)).any(|there| there.attr == event.attr)
        });
        !doubled && self.counters.fit(group.iter().chain(more).map(|chosen| &chosen.event))
    }

    /// FLOPs and instructions are divided by cycles, and there are so many slots in one: their groups have these.
    fn cycles_for(&self, bundle: &[Chosen]) -> Option<Chosen> {
        self.cycles.clone().filter(|_| bundle.iter().any(is_divided))
    }

    /// Into the first group with room for all of them.
    fn place_in_room(&mut self, bundle: &[Chosen]) -> bool {
        let cycles = self.cycles_for(bundle);
        let room = |group: &[Chosen]| {
            let divides = |cycles: &Chosen| group.iter().any(|there| there.attr == cycles.attr);
            cycles.as_ref().is_none_or(divides) && self.fits(group, bundle)
        };
        if let Some(at) = self.groups.iter().position(|group| room(group)) {
            if let Some(group) = self.groups.get_mut(at) {
                group.extend_from_slice(bundle);
            }
            return true;
        }
        false
    }

    /// There, or into a new group; `false` when they never fit together.
    fn place(&mut self, bundle: &[Chosen]) -> bool {
        if self.place_in_room(bundle) {
            return true;
        }
        let mut group: Vec<Chosen> = self.cycles_for(bundle).into_iter().collect();
        if !self.fits(&group, bundle) {
            // One that takes all there is can be counted without.
            group.clear();
        }
        let alone = group.is_empty() && bundle.len() > 1 && bundle.iter().any(is_divided);
        let fits = !alone && self.fits(&group, bundle);
        if fits {
            group.extend_from_slice(bundle);
            self.groups.push(group);
        }
        fits
    }

    /// Where there is room, so that more can be divided by it.
    fn fill_with(&mut self, event: &Chosen) {
        for at in 0..self.groups.len() {
            let fits = self.groups.get(at).is_some_and(|group| self.fits(group, std::slice::from_ref(event)));
            if let Some(group) = self.groups.get_mut(at).filter(|_| fits) {
                group.push(event.clone());
            }
        }
    }
}

fn is_divided(chosen: &Chosen) -> bool {
    matches!(chosen.event.topic(), Topic::Flops | Topic::Instructions | Topic::TopDown)
}

/// The events of a core, those together that belong together.
struct Bundled {
    cycles: Option<Chosen>,
    /// The most important first.
    bundles: Vec<(Bundle, Vec<Chosen>)>,
}

impl Bundled {
    fn new(events: Vec<Chosen>) -> Self {
        let mut bundled = Self { cycles: None, bundles: Vec::new() };
        for event in events {
            let Some(bundle) = Bundle::of(event.event.quantity) else {
                bundled.cycles = Some(event);
                continue;
            };
            match bundled.bundles.iter_mut().find(|(known, _)| *known == bundle) {
                Some((_, events)) => events.push(event),
                None => bundled.bundles.push((bundle, vec![event])),
            }
        }
        bundled.bundles.sort_by_key(|(bundle, _)| *bundle);
        bundled
    }
}

/// Groups of a core's events, and what is in none of them.
type Packed = (Vec<Vec<Chosen>>, Vec<Chosen>);

/// One group of what matters most: cycles, instructions and FLOPs, then each bundle that still fits; the others come back beside it.
/// Where the FLOPs alone are too many, all take turns in as few groups as possible.
pub(super) fn essential(counters: &Counters, events: Vec<Chosen>) -> Packed {
    let Bundled { cycles, bundles } = Bundled::new(events.clone());
    let packing = Packing { counters, cycles: None, groups: Vec::new() };
    let first =
        |bundle: &Bundle| matches!(bundle, Bundle::FlopsTogether | Bundle::Flops(_) | Bundle::Instructions);
    let (begin, rest): (Vec<_>, Vec<_>) = bundles.into_iter().partition(|(bundle, _)| first(bundle));
    let begin: Vec<Chosen> =
        cycles.into_iter().chain(begin.into_iter().flat_map(|(_, events)| events)).collect();
    if !packing.fits(&[], &begin) {
        return pack(counters, events);
    }
    let (mut group, mut left) = (begin, Vec::new());
    for (_, bundle) in rest {
        if packing.fits(&group, &bundle) {
            group.extend(bundle);
        } else {
            left.extend(bundle);
        }
    }
    group.sort_by_key(rank);
    (vec![group], left)
}

/// Groups of a core's events. Those that fit into none by themselves come back beside them.
pub(super) fn pack(counters: &Counters, events: Vec<Chosen>) -> Packed {
    let Bundled { cycles, bundles } = Bundled::new(events);
    let instructions = bundles.iter().find(|(bundle, _)| *bundle == Bundle::Instructions);
    let instructions = instructions.and_then(|(_, events)| events.first()).cloned();
    let mut packing = Packing { counters, cycles, groups: Vec::new() };
    let mut homeless = Vec::new();
    for (kind, bundle) in &bundles {
        if *kind == Bundle::FlopsOfAllTypes {
            // Worth no group of its own.
            if !packing.place_in_room(bundle) {
                homeless.extend(bundle.iter().cloned());
            }
            continue;
        }
        if packing.place(bundle) {
            continue;
        }
        // A difference is of the same moments, or it is none; without one of its readings nothing is known of slots.
        if *kind == Bundle::TopDown || bundle.iter().any(|chosen| chosen.event.minus) {
            homeless.extend_from_slice(bundle);
            continue;
        }
        for event in bundle {
            if !packing.place(std::slice::from_ref(event)) {
                homeless.push(event.clone());
            }
        }
    }
    for event in packing.cycles.clone().into_iter().chain(instructions) {
        packing.fill_with(&event);
    }
    for group in &mut packing.groups {
        group.sort_by_key(rank);
    }
    (packing.groups, homeless)
}

/// Cycles come first, then what is divided by them. Before them is what others are derived from: the kernel wants `slots` to lead a
/// group with `topdown-*` (arch/x86/events/intel/core.c, `intel_pmu_hw_config`).
fn rank(chosen: &Chosen) -> u8 {
    match chosen.event.topic() {
        Topic::TopDown if matches!(chosen.event.quantity, Quantity::TopDown { part: SlotPart::All, .. }) => 0,
        Topic::Cycles => 1,
        Topic::Instructions => 2,
        Topic::ReferenceCycles => 3,
        _ => 4,
    }
}
