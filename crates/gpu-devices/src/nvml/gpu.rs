//! One GPU with its parts: its identity, and its reading.

use std::sync::Arc;
use std::time::Instant;

use kernel_files::{Roots, label_text};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;

use super::activity::{Activity, Pair, portion};
use super::ask::{Asker, Notes, Stop};
use super::busy::{self, Reading, nanoseconds};
use super::capabilities::NVIDIA;
use super::counts::Counts;
use super::fields::{self, Batch};
use super::parts::{self, MigDevice, Parent};
use super::processes::{self, Found, Since};
use super::raw::{Handle, Library};
use super::whole::{Reader, read_memory};
use super::xids::Xids;
use crate::peaks::{Peak, Peaks};
use crate::{DeviceNode, Fact, ProcessKind, Quantity, Unit, UnitSample, Vendor, Wanted, families};

/// A GPU and its state between samples.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) handle: Handle,
    pub(super) unit: Arc<Unit>,
    /// Why it cannot be asked.
    pub(super) down: Option<&'static str>,
    /// Why the driver would not give it out when it was last looked for.
    pub(super) withheld: Option<&'static str>,
    pub(super) parts: Vec<MigDevice>,
    /// Its row of the table of peaks, and its multiprocessors.
    peak: Option<(Peak, u32)>,
    counts: Counts,
    asker: Asker,
    batch: Batch,
    read: Option<Instant>,
    buffer: busy::Buffer,
    measures: bool,
    pair: Option<Pair>,
    /// Clock of the multiprocessors at the last reading, Hz.
    clock: Option<f64>,
    processes: processes::Busy,
    /// What hardly ever changes, as it was when the GPU was last looked at.
    lasting: Vec<Fact>,
    pcie: Option<u64>,
}

fn identify(device: &Device<'_>, uuid: &str, index: u32) -> Unit {
    let minor = device.minor_number().ok();
    let pci = device.pci_info().ok();
    Unit {
        vendor: Vendor::Nvidia,
        uuid: uuid.into(),
        index: Some(index),
        minor,
        pci: pci.map(|pci| format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device).into()),
        model: device.name().map_or_else(|_| "unknown".into(), |name| label_text(name.as_bytes()).into()),
        nodes: minor.map(|minor| DeviceNode { major: NVIDIA, minor }).into_iter().collect(),
        part: None,
        divided: false,
    }
}

fn find_peak(device: &Device<'_>, model: &str, peaks: &Peaks) -> Option<(Peak, u32)> {
    let capability = device.cuda_compute_capability().ok()?;
    let peak = peaks.find(&format!("{}.{}", capability.major, capability.minor), model)?;
    let multiprocessors = peak.multiprocessors(device.num_cores().ok()?)?;
    Some((peak.clone(), multiprocessors))
}

impl Gpu {
    /// Of which nothing was read yet.
    pub(super) fn new(device: &Device<'_>, uuid: &str, index: u32, peaks: &Peaks) -> Self {
        let unit = identify(device, uuid, index);
        Self {
            handle: Library::handle(device),
            peak: find_peak(device, &unit.model, peaks),
            unit: Arc::new(unit),
            down: None,
            withheld: None,
            parts: Vec::new(),
            counts: Counts::new(),
            asker: Asker::default(),
            batch: Batch::default(),
            read: None,
            buffer: busy::Buffer::default(),
            measures: false,
            pair: None,
            clock: None,
            processes: processes::Busy::default(),
            lasting: Vec::new(),
            pcie: None,
        }
    }

    /// Reads what hardly ever changes, its parts among it, and forgets which calls were unsupported.
    pub(super) fn look(&mut self, library: &Library, roots: &Roots, notes: &mut Notes) -> Result<(), Stop> {
        self.asker.forget();
        self.batch = Batch::default();
        let handle = self.handle;
        let device = library.device(handle);
        let mode = self.asker.ask("nvmlDeviceGetMigMode", notes, || device.mig_mode())?;
        let divided = mode.as_ref().is_some_and(|mode| mode.current == 1);
        if divided != self.unit.divided {
            self.unit = Arc::new(Unit { divided, ..(*self.unit).clone() });
            self.restart();
        }
        let mut lasting = Vec::new();
        lasting.extend(mode.map(|mode| Fact::plain(&families::MIG_MODE, u64::from(mode.current == 1))));
        let mut reader = Reader { library, handle, asker: &mut self.asker, notes, facts: &mut lasting };
        self.pcie = reader.lasting()?;
        lasting.extend(self.look_at_fields(library, notes)?);
        lasting.extend(self.look_at_links(library, notes)?);
        self.lasting = lasting;
        let measures =
            self.asker.ask("nvmlGpmQueryDeviceSupport", notes, || library.measures_activity(handle))?;
        self.measures = measures.unwrap_or(false);
        let before = std::mem::take(&mut self.parts);
        if divided {
            self.parts = parts::enumerate(library, handle, &self.unit, before, roots, notes)?;
        }
        Ok(())
    }

    fn look_at_fields(&mut self, library: &Library, notes: &mut Notes) -> Result<Vec<Fact>, Stop> {
        const CALL: &str = "nvmlDeviceGetFieldValues(lasting)";
        let (mut batch, mut answers) = (Batch::lasting(), Vec::new());
        let asked =
            self.asker.ask(CALL, notes, || library.fields(self.handle, batch.fields(), &mut answers))?;
        if asked.is_none() {
            return Ok(Vec::new());
        }
        // Nothing of it is counted.
        let values = batch.take(&answers, fields::Since::default(), &mut Counts::new());
        if values.denied {
            notes.note(super::error::denied(CALL));
        }
        Ok(values.facts)
    }

    fn look_at_links(&mut self, library: &Library, notes: &mut Notes) -> Result<Vec<Fact>, Stop> {
        const CALL: &str = "nvmlDeviceGetFieldValues(links)";
        let mut answers = Vec::new();
        let asked =
            self.asker.ask(CALL, notes, || library.fields(self.handle, &[fields::LINKS], &mut answers))?;
        let links = fields::number_of_links(&answers).filter(|_| asked.is_some());
        let fields = fields::of_links(links.unwrap_or(0));
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let asked = self.asker.ask(CALL, notes, || library.fields(self.handle, &fields, &mut answers))?;
        Ok(asked.map(|()| fields::link_facts(&fields, &answers)).unwrap_or_default())
    }

    /// Nothing is known of the time since the last sample.
    fn restart(&mut self) {
        self.counts.restart();
        self.forget_readings();
    }

    fn forget_readings(&mut self) {
        self.pair = None;
        self.buffer = busy::Buffer::default();
        self.processes = processes::Busy::default();
        self.clock = None;
        self.read = None;
        for part in &mut self.parts {
            part.restart();
        }
    }

    /// Marks it as one that cannot be asked.
    pub(super) fn fell(&mut self, why: &'static str) {
        if self.down.replace(why).is_none() {
            self.restart();
        }
    }

    /// Its unit and parts while it does not answer.
    pub(super) fn known(&mut self, why: &'static str, xids: &Xids) -> Vec<UnitSample> {
        let whole = UnitSample {
            down: Some(why),
            facts: xids.of(&self.unit.uuid).collect(),
            ..UnitSample::new(self.unit.clone(), self.counts.epoch())
        };
        let parts = self.parts.iter_mut().map(|part| {
            let mut sample = part.down(why);
            sample.facts.extend(xids.of(&sample.unit.uuid));
            sample
        });
        std::iter::once(whole).chain(parts).collect()
    }

    /// Reads it and its parts. The flag is set when the parts are others than those that are known.
    pub(super) fn sample(
        &mut self,
        library: &Arc<Library>,
        wanted: Wanted,
        changed: &mut bool,
        xids: &Xids,
        notes: &mut Notes,
    ) -> Result<Vec<UnitSample>, Stop> {
        let before = self.clock;
        let (mut whole, found) = self.sample_whole(library, wanted, notes)?;
        whole.facts.extend(xids.of(&self.unit.uuid));
        let mut samples = vec![whole];
        let parent = Parent {
            library,
            handle: self.handle,
            measures: self.measures,
            peak: self.peak.as_ref().map(|(peak, _)| peak),
            clock: mean(before, self.clock),
        };
        for part in &mut self.parts {
            match part.sample(parent, found.as_deref(), notes)? {
                Some(mut sample) => {
                    sample.facts.extend(xids.of(&sample.unit.uuid));
                    samples.push(sample);
                }
                None => *changed = true,
            }
        }
        Ok(samples)
    }

    fn sample_whole(
        &mut self,
        library: &Arc<Library>,
        wanted: Wanted,
        notes: &mut Notes,
    ) -> Result<(UnitSample, Option<Vec<Found>>), Stop> {
        // What a sample read that was not finished.
        self.counts.take();
        self.counts.take_standing();
        let epoch = self.counts.epoch();
        let mut facts = self.read_fields(library, notes)?;
        if self.counts.epoch() != epoch {
            // It was reset.
            self.forget_readings();
        }
        let before = self.clock;
        let handle = self.handle;
        let mut reader = Reader { library, handle, asker: &mut self.asker, notes, facts: &mut facts };
        self.clock = reader.clocks()?;
        let rate = reader.utilization()?;
        reader.condition()?;
        reader.pcie()?;
        let memory = read_memory(library, handle, &mut self.asker, notes)?;
        if let (Some(why), None) = (self.withheld, memory) {
            return Err(Stop::Down(why));
        }
        let activity = if self.unit.divided { None } else { self.read_activity(library, notes)? };
        if let Some(activity) = &activity {
            activity.count(&mut self.counts);
            if let (Some((peak, multiprocessors)), Some(clock)) = (&self.peak, mean(before, self.clock)) {
                activity.estimate(peak, *multiprocessors, clock, &mut self.counts);
            }
        }
        // The driver has no utilisation on a divided GPU, nor of its processes (nvml.h, nvmlDeviceGetProcessUtilization).
        let since =
            if self.unit.divided { None } else { self.read_busy(library, activity.as_ref(), rate, notes)? };
        let found = if wanted.processes {
            let busy = since.map(|since| (&mut self.processes, since));
            processes::read(library, handle, busy, &mut self.asker, notes)?
        } else {
            self.processes = processes::Busy::default();
            None
        };
        if let Some(found) = &found {
            let numbers = found.iter().fold([0u64; 3], tally_kinds).into_iter().zip(KINDS);
            facts
                .extend(numbers.map(|(number, kind)| Fact::with(&families::PROCESSES, "kind", kind, number)));
        }
        facts.extend(self.lasting.iter().cloned());
        let processes = found.as_ref().map(|all| all.iter().map(|f| f.process.clone()).collect());
        let (counts, standing) = (self.counts.take(), self.counts.take_standing());
        let unit = UnitSample::new(self.unit.clone(), self.counts.epoch());
        Ok((UnitSample { counts, standing, memory, processes, facts, ..unit }, found))
    }

    fn read_fields(&mut self, library: &Library, notes: &mut Notes) -> Result<Vec<Fact>, Stop> {
        const CALL: &str = "nvmlDeviceGetFieldValues";
        let (handle, now) = (self.handle, Instant::now());
        let mut answers = Vec::new();
        let asked =
            self.asker.ask(CALL, notes, || library.fields(handle, self.batch.fields(), &mut answers))?;
        let mut facts = Vec::new();
        if asked.is_some() {
            // A GPU that is gone says so in each answer, on some drivers.
            if !answers.is_empty() && answers.iter().all(|answer| matches!(answer, Err(NvmlError::GpuLost))) {
                return Err(Stop::Down("lost"));
            }
            let passed = self.read.map(|read| now.saturating_duration_since(read));
            let values =
                self.batch.take(&answers, fields::Since { passed, pcie: self.pcie }, &mut self.counts);
            if values.denied {
                notes.note(super::error::denied(CALL));
            }
            facts = values.facts;
        }
        self.read = Some(now);
        if !self.counts.has(Quantity::ENERGY) {
            let call = "nvmlDeviceGetTotalEnergyConsumption";
            let device = library.device(handle);
            if let Some(energy) = self.asker.ask(call, notes, || device.total_energy_consumption())? {
                self.counts.energy(energy);
            }
        }
        Ok(facts)
    }

    fn read_activity(&mut self, library: &Arc<Library>, notes: &mut Notes) -> Result<Option<Activity>, Stop> {
        if !self.measures {
            return Ok(None);
        }
        if self.pair.is_none() {
            self.pair = self.asker.ask("nvmlGpmSampleAlloc", notes, || Pair::new(library))?;
        }
        let (Some(pair), handle) = (&mut self.pair, self.handle) else { return Ok(None) };
        let peak = self.peak.as_ref().map(|(peak, _)| peak);
        Ok(self.asker.ask("nvmlGpmSampleGet", notes, || pair.read(library, handle, None, peak))?.flatten())
    }

    /// Time in which a kernel ran: from the driver's samples. Where these do not reach back, and on drivers without
    /// them, from measured activity, else from the utilisation at this moment. Without any of them the time is not
    /// known, and the counts restart. Returned is what the samples are of, where there are any.
    fn read_busy(
        &mut self,
        library: &Library,
        activity: Option<&Activity>,
        rate: Option<f64>,
        notes: &mut Notes,
    ) -> Result<Option<Since>, Stop> {
        let (handle, last) = (self.handle, self.buffer.last());
        let device = library.device(handle);
        let values = self.asker.ask("nvmlDeviceGetSamples", notes, || {
            match device.samples(Sampling::GpuUtilization, last) {
                Err(NvmlError::NotFound) => Ok(Vec::new()),
                other => other,
            }
        })?;
        let rate = activity.and_then(|activity| activity.graphics).or(rate);
        let Some(values) = values else {
            self.counts_without_samples(rate);
            return Ok(None);
        };
        let samples: Vec<(u64, u32)> =
            values.iter().filter_map(|s| Some((s.timestamp, percent(&s.value)?))).collect();
        let mut covered = 0;
        match self.buffer.take(&samples, Instant::now()) {
            Reading::First => self.counts.add(Quantity::BUSY, 0),
            Reading::Nothing => {}
            Reading::Since(window) => {
                covered = window.covered;
                match rate {
                    _ if window.gap == 0 => self.counts.add(Quantity::BUSY, window.busy),
                    Some(rate) => self.counts.add(Quantity::BUSY, window.busy + portion(window.gap, rate)),
                    None => {
                        self.counts.restart_here();
                        self.counts.add(Quantity::BUSY, 0);
                    }
                }
            }
        }
        Ok(Some(Since { last, covered }))
    }

    fn counts_without_samples(&mut self, rate: Option<f64>) {
        let now = Instant::now();
        let since = self.buffer.since(now);
        match (since, rate) {
            (Some(since), Some(rate)) => self.counts.add(Quantity::BUSY, portion(nanoseconds(since), rate)),
            (None, Some(_)) => self.counts.add(Quantity::BUSY, 0),
            (_, None) => {}
        }
    }
}

const KINDS: [&str; 3] = ["compute", "graphics", "mps"];

fn tally_kinds(mut numbers: [u64; 3], found: &Found) -> [u64; 3] {
    let [compute, graphics, mps] = &mut numbers;
    match found.process.kind {
        ProcessKind::Compute => *compute += 1,
        ProcessKind::Graphics => *graphics += 1,
        ProcessKind::Mps => *mps += 1,
    }
    numbers
}

fn mean(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(f64::midpoint(before?, after?))
}

fn percent(value: &SampleValue) -> Option<u32> {
    match value {
        SampleValue::U32(percent) => Some(*percent),
        SampleValue::U64(percent) => u32::try_from(*percent).ok(),
        SampleValue::I64(percent) => u32::try_from(*percent).ok(),
        SampleValue::F64(_) => None,
    }
}
