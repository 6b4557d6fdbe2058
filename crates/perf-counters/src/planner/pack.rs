//! Events into groups that fit, the most important first.

use super::Chosen;
use super::fit::Counters;
use crate::catalogue::{Bundle, Topic};

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

    /// Into the first group with room for all of them, or into a new one; `false` when they never fit together.
    fn place(&mut self, bundle: &[Chosen]) -> bool {
        // FLOPs and instructions are divided by cycles: their groups begin with these.
        let divided = |chosen: &Chosen| matches!(chosen.event.topic(), Topic::Flops | Topic::Instructions);
        let cycles = self.cycles.clone().filter(|_| bundle.iter().any(divided));
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
        let mut group: Vec<Chosen> = cycles.into_iter().collect();
        if !self.fits(&group, bundle) {
            // One that takes all there is can be counted without.
            group.clear();
        }
        let alone = group.is_empty() && bundle.len() > 1 && bundle.iter().any(divided);
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

/// Groups of a core's events. Those that fit into none by themselves come back beside them.
pub(super) fn pack(counters: &Counters, events: Vec<Chosen>) -> (Vec<Vec<Chosen>>, Vec<Chosen>) {
    let mut bundles: Vec<(Bundle, Vec<Chosen>)> = Vec::new();
    let (mut cycles, mut instructions) = (None, None);
    for event in events {
        if event.event.topic() == Topic::Instructions {
            instructions = Some(event.clone());
        }
        let Some(bundle) = Bundle::of(event.event.quantity) else {
            cycles = Some(event);
            continue;
        };
        match bundles.iter_mut().find(|(known, _)| *known == bundle) {
            Some((_, events)) => events.push(event),
            None => bundles.push((bundle, vec![event])),
        }
    }
    bundles.sort_by_key(|(bundle, _)| *bundle);
    let mut packing = Packing { counters, cycles, groups: Vec::new() };
    let mut homeless = Vec::new();
    for (_, bundle) in &bundles {
        if packing.place(bundle) {
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
    // Cycles come first, then what is divided by them.
    let rank = |chosen: &Chosen| match chosen.event.topic() {
        Topic::Cycles => 0,
        Topic::Instructions => 1,
        Topic::ReferenceCycles => 2,
        _ => 3,
    };
    for group in &mut packing.groups {
        group.sort_by_key(rank);
    }
    (packing.groups, homeless)
}
