//! The driver from its opening to its closing: which GPUs there are, and what happened to them.

use std::sync::Arc;
use std::time::Instant;

use kernel_files::{Roots, SourceError, label_text};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use super::Options;
use super::ask::{Notes, Stop};
use super::error::{Meaning, denied, failed, meaning};
use super::gpu::Gpu;
use super::raw::{Event, Events, Library, MIG_CHANGED, XID};
use super::xids::Xids;
use crate::{Fact, Sample, Unit, UnitSample, Vendor, Wanted, families};

/// More events than this at once are left for the next sample.
const MOST_EVENTS: usize = 4096;

/// An open driver. What belongs to the library holds it, so that the library goes last.
#[derive(Debug)]
pub(super) struct Session {
    gpus: Vec<Gpu>,
    /// GPUs that the driver still counts and that were lost before it was opened, and why.
    lost: Vec<(Arc<Unit>, &'static str)>,
    events: Option<Events>,
    driver: Option<Fact>,
    looked: Option<Instant>,
    /// What could not be read when it was last looked.
    missing: Vec<SourceError>,
    library: Arc<Library>,
}

fn driver(library: &Library) -> Option<Fact> {
    let nvml = library.nvml();
    let version = nvml.sys_driver_version().ok()?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v)));
    let labels = vec![
        ("vendor", Vendor::Nvidia.as_str().into()),
        ("version", label_text(version.as_bytes()).into()),
        ("library", label_text(nvml.sys_nvml_version().unwrap_or_default().as_bytes()).into()),
        ("cuda", cuda.unwrap_or_default().into()),
    ];
    Some(Fact { family: &families::DRIVER, labels, value: 1u64.into() })
}

impl Session {
    /// Opens the driver.
    pub(super) fn open(options: &Options) -> Result<Self, NvmlError> {
        let library = Library::open(options.library.as_deref())?;
        let events = Events::new(&library).ok();
        let driver = driver(&library);
        Ok(Self {
            gpus: Vec::new(),
            lost: Vec::new(),
            events,
            driver,
            looked: None,
            missing: Vec::new(),
            library,
        })
    }

    /// Units of all GPUs, for the time after this session.
    pub(super) fn units(&self) -> Vec<Arc<Unit>> {
        let wholes = self.gpus.iter().map(|gpu| gpu.unit.clone());
        wholes.chain(self.lost.iter().map(|(unit, _)| unit.clone())).collect()
    }

    /// Every GPU, if none of them can be asked, and why.
    pub(super) fn lost(&self) -> Vec<(Arc<Unit>, &'static str)> {
        let down: Option<Vec<_>> = self.gpus.iter().map(|gpu| Some((gpu.unit.clone(), gpu.down?))).collect();
        down.into_iter().flatten().chain(self.lost.iter().cloned()).filter(|_| self.is_lost()).collect()
    }

    fn is_lost(&self) -> bool {
        self.gpus.iter().all(|gpu| gpu.down.is_some())
    }

    /// Which GPUs there are. Known ones keep their counts. One that does not answer keeps its place among `known`, by
    /// its index, which does not change while the driver counts it.
    fn enumerate(
        &mut self,
        options: &Options,
        known: &[Arc<Unit>],
        roots: &Roots,
        notes: &mut Notes,
    ) -> Result<(), NvmlError> {
        let library = self.library.clone();
        let mut before = std::mem::take(&mut self.gpus);
        self.lost.clear();
        for index in 0..library.nvml().device_count()? {
            let found = library.nvml().device_by_index(index);
            let found = found.and_then(|device| Ok((label_text(device.uuid()?.as_bytes()), device)));
            let (uuid, device) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.unreachable(index, error, &mut before, known, notes)?;
                    continue;
                }
            };
            if self.gpus.iter().any(|gpu| *gpu.unit.uuid == uuid) {
                continue;
            }
            let handle = Library::handle(&device);
            let there = before.iter().position(|gpu| *gpu.unit.uuid == uuid && gpu.handle == handle);
            let mut gpu = match there.map(|at| before.swap_remove(at)) {
                Some(mut gpu) => {
                    if gpu.unit.index != Some(index) {
                        gpu.unit = Arc::new(Unit { index: Some(index), ..(*gpu.unit).clone() });
                    }
                    gpu
                }
                None => {
                    if let Some(Err(error)) = self.events.as_mut().map(|events| events.add(handle)) {
                        match meaning(&error) {
                            Meaning::Denied => notes.note(denied("nvmlDeviceRegisterEvents")),
                            Meaning::Failed => notes.note(failed("nvmlDeviceRegisterEvents", &error)),
                            _ => {}
                        }
                    }
                    Gpu::new(&device, &uuid, index, &options.peaks)
                }
            };
            gpu.withheld = None;
            match gpu.look(&library, roots, notes) {
                Ok(()) => gpu.down = None,
                Err(Stop::Down(why)) => gpu.fell(why),
                Err(Stop::Reopen(error)) => return Err(error),
            }
            self.gpus.push(gpu);
        }
        Ok(())
    }

    fn unreachable(
        &mut self,
        index: u32,
        error: NvmlError,
        before: &mut Vec<Gpu>,
        known: &[Arc<Unit>],
        notes: &mut Notes,
    ) -> Result<(), NvmlError> {
        const CALL: &str = "nvmlDeviceGetHandleByIndex_v2";
        let why = match meaning(&error) {
            Meaning::Reopen => return Err(error),
            Meaning::Down(why) => why,
            Meaning::Denied => "denied",
            Meaning::Absent | Meaning::Nothing | Meaning::Failed => "lost",
        };
        if let Some(at) = before.iter().position(|gpu| gpu.unit.index == Some(index)) {
            // It may still answer by the handle that there is.
            let mut gpu = before.swap_remove(at);
            gpu.withheld = Some(why);
            self.gpus.push(gpu);
        } else if let Some(unit) = known.iter().find(|unit| unit.index == Some(index)) {
            self.lost.push((unit.clone(), why));
        } else if why == "denied" {
            notes.note(denied(CALL));
        } else {
            notes.note(failed(CALL, &error));
        }
        Ok(())
    }

    /// Counts what happened; whether the parts of a GPU changed.
    fn receive(&mut self, xids: &mut Xids) -> bool {
        let Some(events) = &mut self.events else { return false };
        let mut changed = false;
        for _ in 0..MOST_EVENTS {
            // Any answer but an event means that there is none now.
            let Ok(Some(event)) = events.next() else { break };
            changed |= event.kind == MIG_CHANGED;
            if event.kind == XID
                && let Some(unit) = unit_of(&self.gpus, &self.library, event)
            {
                xids.count(&unit.uuid, event.data);
            }
        }
        changed
    }

    /// Reads everything; after an error the driver has to be opened again.
    pub(super) fn sample(
        &mut self,
        options: &Options,
        known: &[Arc<Unit>],
        roots: &Roots,
        wanted: Wanted,
        xids: &mut Xids,
    ) -> Result<Sample, NvmlError> {
        let began = Instant::now();
        let mut notes = Notes::default();
        let changed = self.receive(xids);
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= options.look_every);
        if due || changed {
            self.enumerate(options, known, roots, &mut notes)?;
            self.looked = Some(began);
            self.missing = std::mem::take(&mut notes).into_errors();
        }
        self.missing.iter().cloned().for_each(|error| notes.note(error));
        let mut units = Vec::new();
        let mut divided_anew = false;
        let library = self.library.clone();
        for gpu in &mut self.gpus {
            let read = match gpu.sample(&library, wanted, &mut divided_anew, xids, &mut notes) {
                Ok(samples) => {
                    gpu.down = None;
                    samples
                }
                Err(Stop::Down(why)) => {
                    gpu.fell(why);
                    gpu.known(why, xids)
                }
                Err(Stop::Reopen(error)) => return Err(error),
            };
            units.extend(read);
        }
        if divided_anew {
            self.looked = None;
        }
        units.extend(self.lost.iter().map(|(unit, why)| lost(unit, why, xids)));
        let facts = self.driver.iter().cloned().collect();
        let failed = notes.into_errors();
        Ok(Sample { vendor: Vendor::Nvidia, began, ended: Instant::now(), units, facts, failed })
    }
}

/// The unit of a GPU that was lost before.
pub(super) fn lost(unit: &Arc<Unit>, why: &'static str, xids: &Xids) -> UnitSample {
    UnitSample { down: Some(why), facts: xids.of(&unit.uuid).collect(), ..UnitSample::new(unit.clone(), 0) }
}

/// The part that an event names, else the GPU.
fn unit_of<'a>(gpus: &'a [Gpu], library: &Library, event: Event) -> Option<&'a Arc<Unit>> {
    let gpu = gpus.iter().find(|gpu| gpu.handle == event.device).or_else(|| {
        // Nothing says that there is one handle to a GPU.
        let uuid = library.device(event.device).uuid().ok()?;
        gpus.iter().find(|gpu| *gpu.unit.uuid == uuid)
    })?;
    let (Some(gpu_instance), Some(compute_instance)) = event.part else { return Some(&gpu.unit) };
    let part = gpu.parts.iter().find(|part| part.instance == (gpu_instance, compute_instance));
    Some(part.map_or(&gpu.unit, |part| &part.unit))
}
