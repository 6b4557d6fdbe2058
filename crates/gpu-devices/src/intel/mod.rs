//! Intel's GPUs through the files of i915 and xe (Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon,
//! sysfs-driver-intel-xe-hwmon), without a library.
//!
//! The busy time of such a GPU is known by process alone: the device's files count the time that it was not asleep,
//! which is something else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kernel_files::{Buffer, Dir, Roots, SourceError};

use super::amd::link;
use super::drm::{Attributes, Busy, Card, Engines, Hwmon, MAJOR, cards, hwmon_facts, is_present, scan};
use super::{
    Backend, DeviceNode, Fact, Memory, Quantity, Sample, Unit, UnitSample, Vendor, Wanted, families,
};

const DRIVERS: [&str; 2] = ["i915", "xe"];
/// `render` and `compute` of i915 (Documentation/gpu/i915.rst), `rcs` and `ccs` of xe (drivers/gpu/drm/xe/xe_drm_client.c).
const ENGINES: Engines = Engines {
    classes: &["render", "compute", "rcs", "ccs"],
    drawing: &["render", "rcs"],
    memory: &["vram", "local"],
};
/// Sensors without labels, by the ABI's document.
const SENSORS: [(u32, &str); 2] = [(2, "package"), (3, "mem")];
/// The limits over seconds, over milliseconds and at once, and the card's design value.
const LIMITS: [(&str, &str); 4] = [
    ("current", "power1_max"),
    ("burst", "power1_cap"),
    ("critical", "power1_crit"),
    ("default", "power1_rated_max"),
];
/// Names by PCI's device id (include/drm/intel/pciids.h; the PCI ID database).
const MODELS: [(u32, &str); 4] = [
    (0x0bd5, "Intel Data Center GPU Max 1550"),
    (0x0bda, "Intel Data Center GPU Max 1100"),
    (0x56c0, "Intel Data Center GPU Flex 170"),
    (0x56c1, "Intel Data Center GPU Flex 140"),
];
/// What holds clocks down, by what its file ends in (drivers/gpu/drm/xe/xe_gt_throttle.c, i915/gt/intel_gt_sysfs_pm.c): power
/// over seconds, over milliseconds, peaks of current, temperature, and the host's own signal.
const REASONS: [(&str, &str); 5] = [
    ("power", "pl1"),
    ("power_burst", "pl2"),
    ("current", "pl4"),
    ("thermal", "thermal"),
    ("external", "prochot"),
];
/// Where a GPU that is part of the CPU is.
const INTEGRATED: &str = "0000:00:02.0";

/// The state of a GPU between samples.
#[derive(Debug)]
struct State {
    unit: Arc<Unit>,
    epoch: u64,
    energy: Option<u64>,
    there: bool,
}

/// Reads Intel's GPUs.
#[derive(Debug)]
pub struct Intel {
    roots: Arc<Roots>,
    buffer: Buffer,
    /// By PCI address.
    states: HashMap<Arc<str>, State>,
    busy: Busy,
}

impl Intel {
    /// Nothing is read yet.
    pub fn new(roots: &Arc<Roots>) -> Self {
        Self {
            roots: roots.clone(),
            buffer: Buffer::default(),
            states: HashMap::new(),
            busy: Busy::default(),
        }
    }

    /// What [`Backend::sample`] gives, at a moment.
    fn sample_at(&mut self, now: Instant, wanted: Wanted) -> Result<Sample, SourceError> {
        let began = Instant::now();
        let mut failed = Vec::new();
        let mut files = Attributes { buffer: &mut self.buffer, failed: &mut failed };
        let cards = cards(&self.roots, &DRIVERS, &mut files)?;
        let mut units = Vec::new();
        for (index, card) in cards.iter().enumerate() {
            let hwmon = Hwmon::find(&card.device, &card.driver, &mut files);
            let energy = hwmon.as_ref().and_then(|hwmon| energy(hwmon, &mut files));
            let unit = unit(u32::try_from(index).ok(), card);
            let fresh = State { unit: Arc::new(unit), epoch: 0, energy: None, there: true };
            let state = self.states.entry(card.pci.clone()).or_insert(fresh);
            let back = matches!((energy, state.energy), (Some(now), Some(before)) if now < before);
            state.epoch += u64::from(back || !state.there);
            state.there = true;
            state.energy = energy.or(state.energy);
            let mut sample = UnitSample::new(state.unit.clone(), state.epoch);
            sample.counts.extend(energy.map(|energy| (Quantity::ENERGY, energy)));
            sample.standing.clone_from(&sample.counts);
            sample.memory = memory(&card.card, &mut files);
            if let Some(hwmon) = &hwmon {
                hwmon_facts(hwmon, &SENSORS, &LIMITS, &mut files, &mut sample.facts);
            }
            clocks(card, &mut files, &mut sample.facts);
            if card.pci.as_ref() != INTEGRATED {
                link(&card.device, &mut files, &mut sample.facts);
            }
            units.push(sample);
        }
        if wanted.processes {
            match scan(&self.roots, files.buffer) {
                Ok(holders) => {
                    let addresses: Vec<_> = cards.iter().map(|card| card.pci.clone()).collect();
                    let mut found = self.busy.add(now, &holders, &addresses, &ENGINES);
                    for (card, sample) in cards.iter().zip(&mut units) {
                        sample.processes = Some(found.remove(&card.pci).unwrap_or_default());
                    }
                }
                Err(error) => files.fail(error),
            }
        }
        let mut lost: Vec<_> =
            self.states.iter_mut().filter(|(pci, _)| !cards.iter().any(|c| c.pci == **pci)).collect();
        lost.sort_by_key(|(_, state)| state.unit.index);
        for (_, state) in lost {
            state.there = false;
            let mut sample = UnitSample::new(state.unit.clone(), state.epoch);
            sample.down = Some("lost");
            units.push(sample);
        }
        Ok(Sample { vendor: Vendor::Intel, began, ended: Instant::now(), units, facts: Vec::new(), failed })
    }
}

impl Backend for Intel {
    fn vendor(&self) -> Vendor {
        Vendor::Intel
    }

    fn is_present(&self) -> bool {
        is_present(&self.roots, &DRIVERS)
    }

    fn sample(&mut self, wanted: Wanted) -> Result<Sample, SourceError> {
        self.sample_at(Instant::now(), wanted)
    }

    /// Nothing is held open; GPUs that are away are not missed any more.
    fn release(&mut self) {
        self.states.retain(|_, state| state.there);
    }
}

fn unit(index: Option<u32>, card: &Card) -> Unit {
    let known = MODELS.iter().find(|(id, _)| *id == card.device_id).map(|(_, name)| (*name).to_owned());
    let model = known.unwrap_or_else(|| {
        let integrated = if card.pci.as_ref() == INTEGRATED { " (integrated)" } else { "" };
        format!("Intel {:#06x}{integrated}", card.device_id)
    });
    Unit {
        vendor: Vendor::Intel,
        // The drivers do not show the board's serial number.
        uuid: card.pci.clone(),
        index,
        minor: Some(card.render),
        pci: Some(card.pci.clone()),
        model: model.into(),
        nodes: vec![DeviceNode { major: MAJOR, minor: card.render }],
        part: None,
        divided: false,
    }
}

/// Microjoules of the card; of its package alone where the card is not measured.
fn energy(hwmon: &Hwmon, files: &mut Attributes<'_>) -> Option<u64> {
    hwmon.number("energy1_input", files).or_else(|| hwmon.number("energy2_input", files))
}

/// The card's own memory, where the driver shows what is free.
fn memory(card: &Dir, files: &mut Attributes<'_>) -> Option<Memory> {
    let total = files.number(card, "lmem_total_bytes")?;
    let free = files.number(card, "lmem_avail_bytes").filter(|free| *free <= total)?;
    Some(Memory { total, used: total - free, free, reserved: None })
}

/// Clocks of the graphics tiles, and what holds them down.
fn clocks(card: &Card, files: &mut Attributes<'_>, facts: &mut Vec<Fact>) {
    let mut held = [None; REASONS.len()];
    for (domain, dir) in gts(card) {
        let files_of = [("act_freq", "rp0_freq"), ("rps_act_freq_mhz", "rps_RP0_freq_mhz")];
        for (now, max) in files_of {
            for (family, file) in [(&families::CLOCK, now), (&families::CLOCK_MAX, max)] {
                let mhz = files.number(&dir, file);
                facts.extend(
                    mhz.map(|mhz| Fact::with(family, "clock", domain.clone(), mhz.saturating_mul(1_000_000))),
                );
            }
        }
        for ((_, file), active) in REASONS.iter().zip(&mut held) {
            let xe = files.number(&dir, &format!("throttle/reason_{file}"));
            let here = xe.or_else(|| files.number(&dir, &format!("throttle_reason_{file}")));
            *active = here.map(|here| here.min(1)).max(*active);
        }
    }
    for ((reason, _), active) in REASONS.iter().zip(held) {
        facts.extend(active.map(|active| Fact::with(&families::THROTTLE, "reason", *reason, active)));
    }
}

/// Directories with the files of each tile: `tile0/gt0/freq0` of the device with xe, `gt/gt0` of the card with i915.
fn gts(card: &Card) -> Vec<(String, Dir)> {
    let named = |dir: &Dir, prefix: &str| {
        let mut names: Vec<String> =
            dir.directories().unwrap_or_default().into_iter().map(|e| e.name).collect();
        names.retain(|name| name.strip_prefix(prefix).is_some_and(|n| n.parse::<u32>().is_ok()));
        names
    };
    let mut found = Vec::new();
    for tile in named(&card.device, "tile") {
        let Ok(dir) = card.device.open_dir(&tile) else { continue };
        for gt in named(&dir, "gt") {
            found.extend(dir.open_dir(&format!("{gt}/freq0")).ok().map(|dir| (gt, dir)));
        }
    }
    if let Ok(dir) = card.card.open_dir("gt") {
        for gt in named(&dir, "gt") {
            found.extend(dir.open_dir(&gt).ok().map(|dir| (gt, dir)));
        }
    }
    found
}

#[cfg(test)]
mod tests;
