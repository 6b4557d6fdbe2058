//! The parts (MIG devices) of a divided GPU: their list, memory, and activity where one has a GPU instance for
//! itself. Power, energy, clocks and PCIe exist for the whole GPU alone.

use std::sync::Arc;

use kernel_files::{Roots, label_text};
use nvml_wrapper::error::NvmlError;

use super::activity::Pair;
use super::ask::{Asker, Notes, Stop};
use super::busy::nanoseconds;
use super::capabilities::Capabilities;
use super::counts::Counts;
use super::processes::Found;
use super::raw::{Handle, Library};
use super::whole::read_memory;
use crate::peaks::Peak;
use crate::{Part, Quantity, Unit, UnitSample};

/// A MIG device.
#[derive(Debug)]
pub(super) struct MigDevice {
    handle: Handle,
    pub(super) unit: Arc<Unit>,
    /// GPU instance and compute instance.
    pub(super) instance: (u32, u32),
    /// Whether it is the only one in its GPU instance, and has the instance's activity.
    alone: bool,
    multiprocessors: Option<u32>,
    counts: Counts,
    asker: Asker,
    pair: Option<Pair>,
}

/// What a part needs to know of its GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent<'a> {
    pub(super) library: &'a Arc<Library>,
    pub(super) handle: Handle,
    /// Whether activity can be measured.
    pub(super) measures: bool,
    pub(super) peak: Option<&'a Peak>,
    /// Mean clock since the last sample, Hz.
    pub(super) clock: Option<f64>,
}

/// `1g.10gb` of `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
pub(super) fn profile(name: &str) -> Option<&str> {
    name.rsplit_once("MIG ").map(|(_, profile)| profile.trim()).filter(|profile| !profile.is_empty())
}

/// Every part that there is now; those that were there before keep their counts.
pub(super) fn enumerate(
    library: &Library,
    handle: Handle,
    whole: &Unit,
    before: Vec<MigDevice>,
    roots: &Roots,
    notes: &mut Notes,
) -> Result<Vec<MigDevice>, Stop> {
    let gpu = library.device(handle);
    let slots = match gpu.mig_device_count() {
        Ok(slots) => slots,
        Err(error) => {
            notes.note(super::error::failed("nvmlDeviceGetMaxMigDeviceCount", &Stop::of(error)?));
            return Ok(before);
        }
    };
    let mut capabilities = Capabilities::read(roots);
    let mut before = before;
    let mut parts: Vec<MigDevice> = Vec::new();
    for slot in 0..slots {
        let found = gpu.mig_device_by_index(slot).and_then(|device| {
            let handle = Library::handle(&device);
            let instance = (library.gpu_instance(handle)?, library.compute_instance(handle)?);
            let uuid = label_text(device.uuid()?.as_bytes());
            Ok((handle, uuid, device.name().ok(), instance, device.attributes().ok()))
        });
        let (handle, uuid, name, instance, attributes) = match found {
            Ok(found) => found,
            // An empty slot.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
            Err(error) => {
                notes.note(super::error::failed("nvmlDeviceGetMigDeviceHandleByIndex", &Stop::of(error)?));
                continue;
            }
        };
        if parts.iter().any(|part| *part.unit.uuid == uuid) {
            continue;
        }
        let built = attributes
            .as_ref()
            .map(|a| format!("{}g.{}gb", a.gpu_instance_slice_count, a.memory_size_mb.div_ceil(1024)));
        let named = name.as_deref().and_then(profile).map(|profile| label_text(profile.as_bytes()));
        let profile = named.or(built).unwrap_or_default();
        let (gpu_instance, compute_instance) = instance;
        let unit = Unit {
            vendor: whole.vendor,
            uuid: uuid.into(),
            index: whole.index,
            minor: whole.minor,
            pci: whole.pci.clone(),
            model: whole.model.clone(),
            nodes: whole.minor.map(|minor| capabilities.nodes(roots, minor, instance)).unwrap_or_default(),
            part: Some(Part {
                parent: whole.uuid.clone(),
                gpu_instance,
                compute_instance,
                profile: profile.into(),
                // As many devices as there are slices is what a GPU can be divided into at most.
                slices: attributes.as_ref().map(|a| (a.compute_instance_slice_count, slots)),
            }),
            divided: false,
        };
        let multiprocessors = attributes.map(|a| a.multiprocessor_count);
        let known = before.iter().position(|part| part.unit.uuid == unit.uuid && part.instance == instance);
        parts.push(match known.map(|at| before.swap_remove(at)) {
            Some(known) => {
                let unit = if *known.unit == unit { known.unit } else { Arc::new(unit) };
                let mut asker = known.asker;
                asker.forget();
                MigDevice { handle, unit, multiprocessors, asker, ..known }
            }
            None => MigDevice {
                handle,
                unit: Arc::new(unit),
                instance,
                alone: false,
                multiprocessors,
                counts: Counts::new(),
                asker: Asker::default(),
                pair: None,
            },
        });
    }
    let instances: Vec<u32> = parts.iter().map(|part| part.instance.0).collect();
    for part in &mut parts {
        let alone = instances.iter().filter(|instance| **instance == part.instance.0).count() == 1;
        if alone != part.alone {
            part.pair = None;
            part.alone = alone;
        }
    }
    Ok(parts)
}

impl MigDevice {
    /// Its unit while its GPU does not answer.
    pub(super) fn down(&mut self, why: &'static str) -> UnitSample {
        UnitSample { down: Some(why), ..UnitSample::new(self.unit.clone(), self.counts.epoch()) }
    }

    /// Nothing is known of the time since the last sample.
    pub(super) fn restart(&mut self) {
        self.counts.restart();
        self.pair = None;
    }

    /// Reads it; `None` when the handle is another part's, since the GPU was divided again.
    pub(super) fn sample(
        &mut self,
        parent: Parent<'_>,
        found: Option<&[Found]>,
        notes: &mut Notes,
    ) -> Result<Option<UnitSample>, Stop> {
        self.counts.take();
        // Handles are used again for other parts (nvml.h, nvmlDeviceGetMigDeviceHandleByIndex).
        match parent.library.device(self.handle).uuid() {
            Ok(uuid) if *label_text(uuid.as_bytes()) == *self.unit.uuid => {}
            Ok(_) => return Ok(None),
            Err(error) => {
                Stop::of(error)?;
                return Ok(None);
            }
        }
        let memory = read_memory(parent.library, self.handle, &mut self.asker, notes)?;
        if self.alone && parent.measures {
            self.read_activity(parent, notes)?;
        }
        let of_it = |found: &&Found| found.part == (Some(self.instance.0), Some(self.instance.1));
        let processes = found.map(|all| all.iter().filter(of_it).map(|f| f.process.clone()).collect());
        let counts = self.counts.take();
        Ok(Some(UnitSample {
            counts,
            memory,
            processes,
            ..UnitSample::new(self.unit.clone(), self.counts.epoch())
        }))
    }

    fn read_activity(&mut self, parent: Parent<'_>, notes: &mut Notes) -> Result<(), Stop> {
        if self.pair.is_none() {
            self.pair = self.asker.ask("nvmlGpmSampleAlloc", notes, || Pair::new(parent.library))?;
        }
        let (Some(pair), instance) = (&mut self.pair, self.instance.0) else { return Ok(()) };
        let read = || pair.read(parent.library, parent.handle, Some(instance), parent.peak);
        let Some(Some(activity)) = self.asker.ask("nvmlGpmMigSampleGet", notes, read)? else { return Ok(()) };
        activity.count(&mut self.counts);
        if let Some(part) = activity.graphics {
            self.counts.add(Quantity::BUSY, super::activity::portion(nanoseconds(activity.time), part));
        }
        if let (Some(peak), Some(multiprocessors), Some(clock)) =
            (parent.peak, self.multiprocessors, parent.clock)
        {
            activity.estimate(peak, multiprocessors, clock, &mut self.counts);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::profile;

    #[test]
    fn a_profile_is_what_follows_mig() {
        assert_eq!(profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), Some("1g.10gb"));
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"), Some("1c.3g.20gb"));
        assert_eq!(profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me"), Some("1g.10gb+me"));
        assert_eq!(profile("NVIDIA H100"), None);
        assert_eq!(profile("MIG "), None);
    }
}
