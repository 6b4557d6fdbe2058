//! data/memory_controllers.yaml: which PMUs count memory traffic, and what their events mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

/// What kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// DDR.
    Dram,
    /// HBM beside the CPU.
    Hbm,
    /// Optane.
    Pmem,
    /// The memory in the package of Knights Landing.
    Mcdram,
}

impl Kind {
    /// The `kind` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::Hbm => "hbm",
            Self::Pmem => "pmem",
            Self::Mcdram => "mcdram",
        }
    }
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From memory.
    Read,
    /// To memory.
    Write,
    /// The hardware counts the two as one.
    Both,
}

impl Direction {
    /// The `direction` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Both => "both",
        }
    }
}

/// One count: memory of a kind at a socket, in a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which socket; `None` where the firmware numbers none.
    pub socket: Option<u32>,
    /// What kind of memory.
    pub kind: Kind,
    /// Which way.
    pub direction: Direction,
}

/// One event of a source.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) direction: Direction,
    /// Bytes per count.
    pub(super) bytes: u64,
    pub(super) alias: Option<String>,
    fields: Option<BTreeMap<String, u64>>,
    channels: Option<u64>,
    step: Option<u64>,
}

impl Event {
    /// The fields of each channel's event; none where it has but a name.
    pub(super) fn encodings(&self) -> Vec<BTreeMap<&str, u64>> {
        let Some(fields) = &self.fields else { return Vec::new() };
        let of = |channel: u64| {
            let raised = |name: &str, value: u64| {
                let by = if name == "event" { self.step.unwrap_or(0) } else { 0 };
                value.saturating_add(by.saturating_mul(channel))
            };
            fields.iter().map(|(name, value)| (name.as_str(), raised(name, *value))).collect()
        };
        (0..self.channels.unwrap_or(1)).map(of).collect()
    }
}

/// PMUs of one name pattern that count one kind of memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) pmu: String,
    pub(super) kind: Kind,
    pub(super) counters: Option<u32>,
    #[serde(rename = "where")]
    pub(super) needs: Option<String>,
    pub(super) events: Vec<Event>,
    /// Why its bytes are not certain.
    unverified: Option<Arc<str>>,
    /// The same where a socket is several NUMA nodes.
    unverified_if_divided: Option<Arc<str>>,
    /// Why it is not taken there.
    pub(super) undivided: Option<String>,
}

impl Source {
    /// Why its bytes are not certain on a machine whose sockets are one NUMA node each, or more (`divided`).
    pub(super) fn why_unverified(&self, divided: bool) -> Option<&Arc<str>> {
        self.unverified_if_divided.as_ref().filter(|_| divided).or(self.unverified.as_ref())
    }

    /// Whether a PMU's name is of the pattern.
    pub(super) fn is(&self, name: &str) -> bool {
        const DIGITS: &str = "[0-9]+";
        let mut parts = self.pmu.split(DIGITS);
        let Some(mut left) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        for part in parts {
            let digits = left.len() - left.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let after = left.get(digits..).and_then(|rest| rest.strip_prefix(part));
            match after {
                Some(rest) if digits > 0 => left = rest,
                _ => return false,
            }
        }
        left.is_empty()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    names: Vec<String>,
    counted: Vec<Source>,
}

/// The table.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct MemoryControllers(Vec<Row>);

impl MemoryControllers {
    /// The table that is built in.
    pub fn built_in() -> Self {
        // It is data of this crate and a test parses it; without it nothing is counted and all else works.
        serde_yaml::from_str(include_str!("../../data/memory_controllers.yaml")).unwrap_or_default()
    }

    /// The sources of a microarchitecture, by kind, the one to be preferred first.
    pub(super) fn of(&self, microarchitecture: &str) -> BTreeMap<Kind, Vec<&Source>> {
        let row = self.0.iter().find(|row| row.names.iter().any(|name| name == microarchitecture));
        let mut kinds: BTreeMap<Kind, Vec<&Source>> = BTreeMap::new();
        for source in row.into_iter().flat_map(|row| &row.counted) {
            kinds.entry(source.kind).or_default().push(source);
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::pmu::Pmu;

    fn table() -> MemoryControllers {
        serde_yaml::from_str(include_str!("../../data/memory_controllers.yaml")).unwrap()
    }

    #[test]
    fn every_row_is_well_formed_and_every_name_known() {
        let known = include_str!("../../../cpu-topology/data/microarchitectures.yaml");
        let mut seen = BTreeSet::new();
        for row in &table().0 {
            assert!(!row.names.is_empty() && !row.counted.is_empty());
            for name in &row.names {
                assert!(known.contains(&format!("{{name: {name},")), "{name} is no microarchitecture");
                assert!(seen.insert(name.clone()), "{name} twice");
            }
            for source in &row.counted {
                let plain = source.pmu.replace("[0-9]+", "");
                assert!(plain.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", source.pmu);
                assert!(!source.events.is_empty() && source.counters != Some(0), "{}", source.pmu);
                let directions: BTreeSet<_> = source.events.iter().map(|event| event.direction).collect();
                let both = BTreeSet::from([Direction::Both]);
                let split = BTreeSet::from([Direction::Read, Direction::Write]);
                assert!(directions == both || directions == split, "{}: {directions:?}", source.pmu);
                for event in &source.events {
                    assert!(matches!(event.bytes, 1 | 32 | 64), "{event:?}");
                    assert!(event.alias.is_some() || event.fields.is_some(), "{event:?}");
                    assert_eq!(event.channels.is_some(), event.step.is_some(), "{event:?}");
                    assert!(event.channels.is_none_or(|n| (2..=16).contains(&n)), "{event:?}");
                    // An alias is one event, so it cannot stand for channels.
                    assert!(event.alias.is_none() || event.channels.is_none(), "{event:?}");
                }
            }
        }
        assert_eq!(MemoryControllers::built_in().0.len(), table().0.len());
    }

    /// The fields of the boxes as the kernel describes them: arch/x86/events/intel/uncore_snbep.c, arch/x86/events/amd/uncore.c,
    /// drivers/perf/arm_cspmu/nvidia_cspmu.c. Where the kernel's own names are asked for it takes none.
    fn fields(microarchitecture: &str, pmu: &str) -> &'static [(&'static str, &'static str)] {
        match pmu {
            "amd_df" if microarchitecture.starts_with("Zen 4") || microarchitecture == "Zen 5" => {
                &[("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")]
            }
            "amd_df" => &[("event", "config:0-7,32-35,59-60"), ("umask", "config:8-15")],
            "amd_umc_[0-9]+" => &[("event", "config:0-7"), ("rdwrmask", "config:8-9")],
            "nvidia_scf_pmu_[0-9]+" => &[("event", "config:0-31")],
            "nvidia_ucf_pmu_[0-9]+" => &[("event", "config:0-31"), ("dst_loc_cmem", "config1:8")],
            "uncore_imc_[0-9]+" | "uncore_hbm_[0-9]+" | "uncore_edc_eclk_[0-9]+" => {
                &[("event", "config:0-7"), ("umask", "config:8-15")]
            }
            _ => &[],
        }
    }

    fn row(name: &str, source: &Source, event: &Event) -> String {
        let pmu = Pmu::described(&source.pmu, 0, fields(name, &source.pmu));
        let (kind, direction) = (source.kind.as_str(), event.direction.as_str());
        let alias = event.alias.as_deref().unwrap_or("-");
        let rest = format!(
            "counters={} where={}{}",
            source.counters.map_or_else(|| "-".to_owned(), |counters| counters.to_string()),
            source.needs.as_deref().unwrap_or("-"),
            if source.unverified.is_none() { "" } else { " unverified" }
        );
        let boxes = source.pmu.replace("[0-9]+", "N");
        let line = |config: String| {
            format!("{boxes} {kind} {direction} {} bytes alias={alias} config={config} {rest}\n", event.bytes)
        };
        let encodings = event.encodings();
        if encodings.is_empty() {
            return line("-".to_owned());
        }
        let code = |terms| {
            let attr = pmu.encode(terms).unwrap();
            let filter =
                if attr.config1 == 0 { String::new() } else { format!(" config1={:#x}", attr.config1) };
            line(format!("{:#x}{filter}", attr.config))
        };
        encodings.into_iter().map(code).collect()
    }

    /// tests/pmu_oracle asks others about these codes.
    #[test]
    fn the_events_of_memory_controllers_are_as_committed() {
        let mut rows: BTreeMap<String, String> = BTreeMap::new();
        for Row { names, counted } in table().0 {
            for name in names {
                let events = counted.iter().flat_map(|source| source.events.iter().map(move |e| (source, e)));
                let text = events.map(|(source, event)| row(&name, source, event)).collect();
                rows.insert(name, text);
            }
        }
        let mut text = "# Every event of the memory controllers: PMU, memory, direction, bytes per count, the kernel's name for it, its code, hardware\n\
            # counters of a box, and what has to be there. Rewritten by JOBLEDGER_BLESS=1 cargo test -p perf-counters memory_controllers; each change is\n\
            # to be looked up at the vendor's.\n"
            .to_owned();
        for (name, events) in rows {
            text += &format!("\n{name}\n{events}");
        }
        jobledger_testkit::golden::assert_golden(
            &std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../tests/fixtures/pmu/memory_controllers.txt"),
            &text,
        );
    }

    #[test]
    fn granite_rapids_never_takes_the_alias_that_counts_half() {
        let table = table();
        for name in
            ["Granite Rapids", "Sierra Forest", "Clearwater Forest", "Grand Ridge", "Granite Rapids-D"]
        {
            let events = &table.of(name)[&Kind::Dram][0].events;
            assert!(events.iter().all(|event| event.alias.is_none()), "{name}");
            let read = events.iter().filter(|event| event.direction == Direction::Read);
            let codes: Vec<_> = read.flat_map(Event::encodings).map(|fields| fields["event"]).collect();
            assert_eq!(codes, [0x05, 0x06], "{name}: both sub-channels");
        }
    }

    #[test]
    fn names_are_matched_whole() {
        let source = |pmu: &str| Source {
            pmu: pmu.to_owned(),
            kind: Kind::Dram,
            counters: None,
            needs: None,
            events: Vec::new(),
            unverified: None,
            unverified_if_divided: None,
            undivided: None,
        };
        let imc = source("uncore_imc_[0-9]+");
        assert!(imc.is("uncore_imc_0") && imc.is("uncore_imc_15"));
        for other in
            ["uncore_imc", "uncore_imc_", "uncore_imc_free_running_0", "uncore_imc_0x", "xuncore_imc_0"]
        {
            assert!(!imc.is(other), "{other}");
        }
        assert!(source("amd_df").is("amd_df") && !source("amd_df").is("amd_df_1"));
        let hisi = source("hisi_sccl[0-9]+_ddrc[0-9]+");
        assert!(hisi.is("hisi_sccl3_ddrc1") && !hisi.is("hisi_sccl3_ddrc1_0") && !hisi.is("hisi_sccl_ddrc1"));
    }

    #[test]
    fn channels_are_an_event_each() {
        let events = &table().of("Zen 3")[&Kind::Dram][0].events.clone();
        let codes: Vec<_> = events[0].encodings().iter().map(|fields| fields["event"]).collect();
        assert_eq!(codes, [0x07, 0x47, 0x87, 0xc7, 0x107, 0x147, 0x187, 0x1c7]);
        assert!(events[0].encodings().iter().all(|fields| fields["umask"] == 0x38));
    }

    #[test]
    fn the_one_to_be_preferred_comes_first() {
        let table = table();
        let pmus = |name: &str, kind| -> Vec<String> {
            table.of(name)[&kind].iter().map(|source| source.pmu.clone()).collect()
        };
        assert_eq!(pmus("Ice Lake-SP", Kind::Dram), ["uncore_imc_[0-9]+", "uncore_imc_free_running_[0-9]+"]);
        assert_eq!(pmus("Zen 4", Kind::Dram), ["amd_umc_[0-9]+", "amd_df"]);
        assert_eq!(pmus("Sapphire Rapids", Kind::Hbm), ["uncore_hbm_[0-9]+"]);
        assert!(table.of("Neoverse N1").is_empty(), "unknown is unknown");
    }
}
