//! Which families of a collector are exported.

use exposition::{Family, Profile};

use super::Entry;

/// The profile of the page, and the collectors that have all of their families whatever it is. The default has all of
/// every collector.
#[derive(Debug, Clone, Default)]
pub struct Selected {
    profile: Profile,
    by_name: Vec<&'static str>,
}

impl Selected {
    /// Of a page with this profile. The collectors `by_name` were asked for one by one: they have all families.
    pub fn new(profile: Profile, by_name: impl IntoIterator<Item = &'static Entry>) -> Self {
        Self { profile, by_name: by_name.into_iter().map(|entry| entry.name).collect() }
    }

    /// Of the exporter's own account of its collectors.
    pub fn of_health(&self) -> Profile {
        self.profile
    }

    /// Of the collector with this name.
    pub fn of(&self, collector: &str) -> Profile {
        if self.by_name.contains(&collector) { Profile::Full } else { self.profile }
    }

    /// Whether any of these families of a collector is exported.
    pub fn wants<'f>(&self, collector: &str, families: impl IntoIterator<Item = &'f Family>) -> bool {
        families.into_iter().any(|family| family.profile <= self.of(collector))
    }

    /// Whether any family of a collector is exported. If not, it need not run.
    pub fn has_any_of(&self, entry: &Entry) -> bool {
        self.wants(entry.name, (entry.families)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::REGISTRY;

    fn entry(name: &str) -> &'static Entry {
        REGISTRY.iter().find(|entry| entry.name == name).unwrap()
    }

    #[test]
    fn a_collector_that_was_asked_for_by_name_has_all_families() {
        let lean = Selected::new(Profile::Lean, [entry("pressure")]);
        assert_eq!(
            (lean.of("pressure"), lean.of("memory"), lean.of_health()),
            (Profile::Full, Profile::Lean, Profile::Lean)
        );
        let runs = |name: &str| lean.has_any_of(entry(name));
        assert!(runs("pressure") && runs("memory") && !runs("processes"));
        assert!(REGISTRY.iter().all(|entry| Selected::default().has_any_of(entry)));
    }
}
