//! AMD's GPUs through the files of amdgpu (Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst), without a library.
//!
//! A unit is what has a render node. A GPU with several partitions (MI300) is a divided unit with its parts. So is a
//! board with several GPUs (MI250, whose two dies are a PCI device each and share one energy meter).

mod activity;
mod boards;
mod facts;
mod gpu_metrics;
mod kfd;
mod state;
mod survey;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use facts::link;
pub use facts::{Errors, parse_errors};
pub use gpu_metrics::{GpuMetrics, parse_gpu_metrics, parse_header};
use kernel_files::{Buffer, Roots, SourceError};
pub use kfd::{Properties, parse_properties};
use state::State;
use survey::{SOCKETS, Surveyed};

use super::drm::{Attributes, Busy, Engines, cards, is_present, scan};
use super::{Backend, Process, ProcessKind, Sample, Unit, UnitSample, Vendor, Wanted};

const DRIVERS: [&str; 1] = ["amdgpu"];
/// Of amdgpu's fdinfo (drivers/gpu/drm/amd/amdgpu/amdgpu_fdinfo.c): its other engines copy, encode and decode.
const ENGINES: Engines = Engines { classes: &["gfx", "compute"], drawing: &["gfx"], memory: &["vram"] };

/// Reads AMD's GPUs.
#[derive(Debug)]
pub struct Amd {
    roots: Arc<Roots>,
    buffer: Buffer,
    /// By PCI address.
    states: HashMap<Arc<str>, State>,
    /// Units of the last samples, by `uuid`, to report those that are lost.
    known: HashMap<Arc<str>, Arc<Unit>>,
    busy: Busy,
    /// How often a GPU came back.
    epochs: u64,
}

impl Amd {
    /// Nothing is read yet.
    pub fn new(roots: &Arc<Roots>) -> Self {
        Self {
            roots: roots.clone(),
            buffer: Buffer::default(),
            states: HashMap::new(),
            known: HashMap::new(),
            busy: Busy::default(),
            epochs: 0,
        }
    }

    /// What [`Backend::sample`] gives, at a moment.
    pub(super) fn sample_at(&mut self, now: Instant, wanted: Wanted) -> Result<Sample, SourceError> {
        let began = Instant::now();
        let mut failed = Vec::new();
        let mut files = Attributes { buffer: &mut self.buffer, failed: &mut failed };
        let cards = cards(&self.roots, &DRIVERS, &mut files)?;
        let nodes = kfd::nodes(&self.roots, &mut files);
        let mut gpus = Vec::new();
        for (index, card) in cards.iter().enumerate() {
            let parts: Vec<_> = nodes.iter().filter(|node| *node.pci == *card.pci).cloned().collect();
            let surveyed = Surveyed::new(u32::try_from(index).ok(), card, parts, &mut files);
            let epochs = &mut self.epochs;
            let state = self.states.entry(card.pci.clone()).or_insert_with(|| {
                *epochs += 1;
                State::new(*epochs)
            });
            gpus.push(state.read(now, card, surveyed, &mut files));
        }
        if wanted.processes {
            match scan(&self.roots, files.buffer) {
                Ok(holders) => {
                    let addresses: Vec<_> = cards.iter().map(|card| card.pci.clone()).collect();
                    let mut drm = self.busy.add(now, &holders, &addresses, &ENGINES);
                    let kfd = kfd::processes(&self.roots, &mut files);
                    gpus.iter_mut()
                        .for_each(|gpu| gpu.set_processes(drm.remove(&gpu.pci).unwrap_or_default(), &kfd));
                }
                Err(error) => files.fail(error),
            }
        }
        let units = boards::join(gpus);
        self.states.retain(|pci, _| cards.iter().any(|card| card.pci == *pci));
        let units = self.with_lost(units);
        Ok(Sample { vendor: Vendor::Amd, began, ended: Instant::now(), units, facts: Vec::new(), failed })
    }

    /// Adds GPUs that were there and are not any more. A partition of one that is there was done away with.
    fn with_lost(&mut self, mut units: Vec<UnitSample>) -> Vec<UnitSample> {
        let pcis: Vec<_> = units.iter().filter_map(|sample| sample.unit.pci.clone()).collect();
        self.known.retain(|uuid, unit| {
            let there = units.iter().any(|sample| sample.unit.uuid == *uuid);
            there || unit.pci.as_ref().is_some_and(|pci| !pcis.contains(pci))
        });
        for sample in &units {
            self.known.insert(sample.unit.uuid.clone(), sample.unit.clone());
        }
        let mut lost: Vec<_> = self
            .known
            .values()
            .filter(|unit| !units.iter().any(|sample| sample.unit.uuid == unit.uuid))
            .collect();
        lost.sort_by_key(|unit| (unit.index, unit.minor));
        let lost: Vec<_> = lost
            .into_iter()
            .cloned()
            .map(|unit| {
                let mut sample = UnitSample::new(unit, self.epochs);
                sample.down = Some("lost");
                sample
            })
            .collect();
        units.extend(lost);
        units
    }
}

impl Backend for Amd {
    fn vendor(&self) -> Vendor {
        Vendor::Amd
    }

    fn is_present(&self) -> bool {
        is_present(&self.roots, &DRIVERS)
    }

    fn counts_sockets(&self) -> bool {
        let (mut buffer, mut failed) = (Buffer::default(), Vec::new());
        let mut files = Attributes { buffer: &mut buffer, failed: &mut failed };
        let cards = cards(&self.roots, &DRIVERS, &mut files).unwrap_or_default();
        cards.iter().any(|card| SOCKETS.contains(&card.device_id))
    }

    fn sample(&mut self, wanted: Wanted) -> Result<Sample, SourceError> {
        self.sample_at(Instant::now(), wanted)
    }

    /// Nothing is held open; GPUs that are away are not missed any more.
    fn release(&mut self) {
        self.known.clear();
    }
}

/// A GPU as it was read, before dies of a board are joined.
#[derive(Debug)]
struct Gpu {
    pci: Arc<str>,
    /// Of the board, where it has one; dies of a board have the same.
    serial: Option<String>,
    /// Whether it is one of two dies of a board.
    of_two: bool,
    sample: UnitSample,
    parts: Vec<UnitSample>,
    /// Ids among KFD's files, of it or of its parts.
    kfd: Vec<u64>,
    /// The board's energy, microjoules, and power.
    energy: Option<u64>,
    power: Vec<super::Fact>,
}

impl Gpu {
    /// Adds the processes to the units: with KFD to a part, with DRM alone to the whole. The time of KFD's queues is
    /// not counted anywhere, so its processes have none.
    fn set_processes(&mut self, drm: Vec<Process>, kfd: &HashMap<u64, Vec<(u32, u64)>>) {
        let of = |id: &u64| kfd.get(id).into_iter().flatten().copied();
        let through_kfd: Vec<u32> = self.kfd.iter().flat_map(of).map(|(pid, _)| pid).collect();
        let process =
            |(pid, memory)| Process { pid, kind: ProcessKind::Compute, memory: Some(memory), busy_ns: None };
        let others = drm.into_iter().filter(|process| !through_kfd.contains(&process.pid));
        let mut whole: Vec<Process> = others.collect();
        if self.parts.is_empty() {
            whole.extend(self.kfd.iter().flat_map(of).map(process));
        }
        for (part, id) in self.parts.iter_mut().zip(&self.kfd) {
            part.processes = Some(of(id).map(process).collect());
        }
        whole.sort_by_key(|process| process.pid);
        self.sample.processes = Some(whole);
    }
}

#[cfg(test)]
mod tests;
