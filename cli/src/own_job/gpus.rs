//! The GPUs of the job that this process is in, read as the exporter reads them (crate `gpu-devices`).
//!
//! They are those that this process may open: SLURM's device cgroup (`ConstrainDevices=yes`) refuses the others
//! (Documentation/admin-guide/cgroup-v2.rst, "Device controller"). Where all may be opened, they are those that the variables of
//! the vendors' runtimes name, if these are set (CUDA C++ Programming Guide, "CUDA Environment Variables").
//! What is counted begins with the first reading.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_devices::amd::Amd;
use gpu_devices::intel::Intel;
use gpu_devices::nvml::{NvmlBackend, Options};
use gpu_devices::{
    Backend, DeviceNode, Quantity, Sample, Sampler, SamplerState, Unit, UnitSample, Vendor, Wanted,
};
use kernel_files::{Roots, SourceError};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::Page;
use crate::recording::escaped;

/// The driver's number of `/dev/nvidia0`: Documentation/admin-guide/devices.txt.
const NVIDIA: u32 = 195;

/// Which GPUs programs are to use, as the environment says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    nvidia: Option<String>,
    amd: Option<String>,
    intel: Option<String>,
}

impl Visible {
    /// By the variables of CUDA, ROCm and Level Zero. An empty one names no GPU.
    pub fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            nvidia: get("CUDA_VISIBLE_DEVICES"),
            amd: get("ROCR_VISIBLE_DEVICES").or_else(|| get("HIP_VISIBLE_DEVICES")),
            intel: get("ZE_AFFINITY_MASK"),
        }
    }

    fn named(&self, vendor: Vendor) -> Option<&str> {
        match vendor {
            Vendor::Nvidia => self.nvidia.as_deref(),
            Vendor::Amd => self.amd.as_deref(),
            Vendor::Intel => self.intel.as_deref(),
        }
    }
}

/// The positions that a list of GPUs names: numbers, or the beginnings of ids. What is behind one that is not there is not used.
fn named(list: &str, units: &[&UnitSample]) -> Vec<usize> {
    let mut found = Vec::new();
    for name in list.split(',').map(str::trim) {
        // Level Zero has `DEVICE.SUBDEVICE`.
        let number = name.split('.').next().unwrap_or_default().parse().ok();
        let at = match number {
            Some(number) => Some(number).filter(|number| *number < units.len()),
            None if name.is_empty() => None,
            None => units.iter().position(|sample| sample.unit.uuid.starts_with(name)),
        };
        let Some(at) = at else { break };
        if !found.contains(&at) {
            found.push(at);
        }
    }
    found
}

/// A GPU since its first reading.
#[derive(Debug)]
struct Held {
    uuid: Arc<str>,
    since: Instant,
    epoch: u64,
    /// What the backend had counted at the last reading.
    last: Vec<(&'static Quantity, u64)>,
    totals: Vec<(&'static Quantity, u64)>,
    /// When it was last known how busy it was.
    busy_read: Option<Instant>,
    /// For how much of the time before that it was.
    utilization: Option<f64>,
    idle: Duration,
    peak: u64,
}

fn slot<'a>(
    counts: &'a mut Vec<(&'static Quantity, u64)>,
    quantity: &'static Quantity,
) -> Option<&'a mut u64> {
    let at = counts.iter().position(|(known, _)| *known == quantity).unwrap_or_else(|| {
        counts.push((quantity, 0));
        counts.len() - 1
    });
    counts.get_mut(at).map(|(_, count)| count)
}

impl Held {
    fn new(uuid: Arc<str>, epoch: u64, now: Instant) -> Self {
        Self {
            uuid,
            since: now,
            epoch,
            last: Vec::new(),
            totals: Vec::new(),
            busy_read: None,
            utilization: None,
            idle: Duration::ZERO,
            peak: 0,
        }
    }

    fn take(&mut self, sample: &UnitSample, now: Instant) {
        if sample.epoch != self.epoch {
            // What was counted in between is not known.
            (self.epoch, self.last, self.busy_read) = (sample.epoch, Vec::new(), None);
        }
        for (quantity, count) in &sample.counts {
            let before = slot(&mut self.last, quantity).map(|last| std::mem::replace(last, *count));
            let gain = count.saturating_sub(before.unwrap_or(0));
            if let Some(total) = slot(&mut self.totals, quantity) {
                *total = total.saturating_add(gain);
            }
            if *quantity == Quantity::BUSY
                && let Some(read) = self.busy_read.replace(now)
            {
                let (passed, busy) = (now.saturating_duration_since(read), Duration::from_nanos(gain));
                self.idle += passed.saturating_sub(busy);
                self.utilization = Some((busy.as_secs_f64() / passed.as_secs_f64().max(1e-9)).min(1.0));
            }
        }
        self.peak = sample.memory.map_or(0, |memory| memory.used).max(self.peak);
    }
}

/// How long a reading is waited for. A driver that hangs costs the recording its GPUs, and the command nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for the first one, which opens the driver.
const FIRST: Duration = Duration::from_secs(5);
/// Readings beyond those that are asked for are at most so far apart: while the driver fails, it is tried again.
const PERIOD: Duration = Duration::from_secs(60);

/// What a vendor's thread read and nobody took yet.
type Read = Arc<Mutex<Vec<Result<Sample, SourceError>>>>;

/// A vendor's thread.
#[derive(Debug)]
struct Reader {
    sampler: Sampler,
    read: Read,
    /// The last reading did not come in time.
    is_late: bool,
}

impl Reader {
    fn start(make: impl Fn() -> Box<dyn Backend> + Send + 'static) -> std::io::Result<Option<Self>> {
        let backend = make();
        if !backend.is_present() {
            return Ok(None);
        }
        let read = Read::default();
        let delivered = read.clone();
        let deliver = Box::new(move |sample| delivered.lock().push(sample));
        let sampler = Sampler::start(backend.vendor(), PERIOD, Box::new(make), deliver)?;
        sampler.want(Wanted::default());
        Ok(Some(Self { sampler, read, is_late: false }))
    }

    /// Reads now; all that came since the last time.
    fn read(&mut self) -> Vec<Result<Sample, SourceError>> {
        let failed = match self.sampler.sampler_state() {
            SamplerState::Starting => {
                self.sampler.settle(FIRST);
                false
            }
            SamplerState::Running => {
                self.sampler.read_now(PATIENCE);
                false
            }
            SamplerState::Failed(_) => true,
            SamplerState::Hanging | SamplerState::Released => false,
        };
        let mut read = std::mem::take(&mut *self.read.lock());
        self.is_late = read.is_empty() && !failed;
        if self.is_late {
            read.push(Err(SourceError::TimedOut));
        }
        read
    }
}

/// Reads them, on a thread for each vendor.
#[derive(Debug)]
pub(super) struct Gpus {
    roots: Arc<Roots>,
    readers: Vec<Reader>,
    visible: Visible,
    /// Whether this process may open each, by id.
    opens: HashMap<Arc<str>, bool>,
    held: Vec<Held>,
    /// What could not be read, each once.
    said: Vec<String>,
    problems: Vec<String>,
}

impl Gpus {
    pub(super) fn new(roots: &Arc<Roots>, visible: Visible, library: Option<PathBuf>) -> Self {
        let mut gpus = Self {
            roots: roots.clone(),
            readers: Vec::new(),
            visible,
            opens: HashMap::new(),
            held: Vec::new(),
            said: Vec::new(),
            problems: Vec::new(),
        };
        let [nvidia, amd, intel] = [roots.clone(), roots.clone(), roots.clone()];
        let started = [
            Reader::start(move || {
                let options = Options { library: library.clone(), ..Options::default() };
                Box::new(NvmlBackend::new(nvidia.clone(), options))
            }),
            Reader::start(move || Box::new(Amd::new(&amd))),
            Reader::start(move || Box::new(Intel::new(&intel))),
        ];
        for reader in started {
            match reader {
                Ok(reader) => gpus.readers.extend(reader),
                Err(error) => gpus.note(format!("no thread to read GPUs on: {error}")),
            }
        }
        gpus
    }

    /// What could not be read since this was asked before, and was not said yet.
    pub(super) fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// Whether a call of a driver did not return.
    pub(super) fn is_stuck(&self) -> bool {
        self.readers.iter().any(|reader| reader.is_late)
    }

    fn note(&mut self, problem: String) {
        if !self.said.contains(&problem) {
            self.said.push(problem.clone());
            self.problems.push(problem);
        }
    }

    /// Reads all, and writes what is the job's. Without a driver it has none and nothing is written.
    pub(super) fn write(&mut self, page: &mut Page) {
        let read: Vec<_> =
            self.readers.iter_mut().map(|reader| (reader.sampler.vendor, reader.read())).collect();
        let (mut number, mut all) = (0, !read.is_empty());
        for (vendor, mut samples) in read {
            let last = samples.pop();
            for earlier in samples.into_iter().flatten() {
                for unit in self.own(&earlier) {
                    self.take(unit, earlier.ended);
                }
            }
            let problems: Vec<SourceError> = match last {
                Some(Ok(sample)) => {
                    let own = self.own(&sample);
                    number += own.len();
                    own.into_iter().for_each(|unit| self.write_unit(unit, sample.ended, page));
                    // The driver lists GPUs of other jobs as denied (nvml.h, nvmlDeviceGetCount_v2).
                    let is_other = |error: &SourceError| matches!(error, SourceError::Denied { .. });
                    sample.failed.into_iter().filter(|error| !is_other(error)).collect()
                }
                Some(Err(error)) => {
                    all = false;
                    vec![error]
                }
                None => {
                    all = false;
                    Vec::new()
                }
            };
            for error in problems {
                self.note(format!("GPUs ({}): {error}", vendor.as_str()));
            }
        }
        if all {
            page.of_job("jobledger_job_gpus", ",source=\"opened\"", number);
        }
    }

    /// The job's GPUs of a sample.
    fn own<'a>(&mut self, sample: &'a Sample) -> Vec<&'a UnitSample> {
        let mut units: Vec<&UnitSample> = sample.units.iter().filter(|unit| !unit.unit.divided).collect();
        units.retain(|unit| self.may_open(&unit.unit));
        match self.visible.named(sample.vendor) {
            Some(list) => named(list, &units).into_iter().filter_map(|at| units.get(at).copied()).collect(),
            None => units,
        }
    }

    fn may_open(&mut self, unit: &Unit) -> bool {
        let path = |node: &DeviceNode| match unit.vendor {
            Vendor::Nvidia if node.major == NVIDIA => format!("nvidia{}", node.minor),
            Vendor::Nvidia => format!("nvidia-caps/nvidia-cap{}", node.minor),
            Vendor::Amd | Vendor::Intel => format!("dri/renderD{}", node.minor),
        };
        // Any other error is the driver's, and not a refusal.
        let is_refused = |node: &DeviceNode| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let opened = open(self.roots.dev(&path(node)), flags, Mode::empty());
            matches!(opened, Err(Errno::PERM | Errno::ACCESS | Errno::NOENT))
        };
        // A job's devices do not change.
        *self.opens.entry(unit.uuid.clone()).or_insert_with(|| !unit.nodes.iter().any(is_refused))
    }

    fn take(&mut self, sample: &UnitSample, now: Instant) -> Option<&Held> {
        let unit = &sample.unit;
        let at = self.held.iter().position(|held| held.uuid == unit.uuid).unwrap_or_else(|| {
            self.held.push(Held::new(unit.uuid.clone(), sample.epoch, now));
            self.held.len() - 1
        });
        let held = self.held.get_mut(at)?;
        held.take(sample, now);
        Some(held)
    }

    fn write_unit(&mut self, sample: &UnitSample, now: Instant, page: &mut Page) {
        let Some(held) = self.take(sample, now) else { return };
        let unit = &sample.unit;
        let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let labels = format!(",gpu=\"{}\",uuid=\"{}\"", number(unit.index), escaped(&unit.uuid));
        let part = unit.part.as_ref();
        let kind = format!(
            "{labels},vendor=\"{}\",model=\"{}\",profile=\"{}\",parent=\"{}\",minor=\"{}\"",
            unit.vendor.as_str(),
            escaped(&unit.model),
            part.map_or(String::new(), |part| escaped(&part.profile)),
            part.map_or(String::new(), |part| escaped(&part.parent)),
            number(unit.minor),
        );
        page.of_job("jobledger_job_gpu_info", &format!("{kind},source=\"opened\""), 1);
        page.plain("jobledger_gpu_info", &kind, 1);
        let allocated = now.saturating_duration_since(held.since);
        page.time("jobledger_job_gpu_allocated_seconds_total", &labels, allocated);
        for (quantity, total) in &held.totals {
            let mut labels = labels.clone();
            for (key, value) in quantity.labels {
                labels.push_str(&format!(",{key}=\"{value}\""));
            }
            if [Quantity::BUSY, Quantity::ENERGY].contains(quantity) {
                labels.push_str(",method=\"whole\"");
            }
            let counter = quantity.counter;
            let amount = total.saturating_mul(counter.times);
            page.of_job(counter.job.name, &labels, decimal(amount, counter.per_unit));
        }
        if held.busy_read.is_some() {
            page.time("jobledger_job_gpu_idle_seconds_total", &labels, held.idle);
        }
        if let Some(part) = held.utilization.filter(|_| sample.down.is_none()) {
            page.of_job("jobledger_job_gpu_utilization_ratio", &labels, format_args!("{part:.3}"));
        }
        if let Some(memory) = sample.memory {
            page.of_job("jobledger_job_gpu_memory_used_bytes", &labels, memory.used);
            page.of_job("jobledger_job_gpu_memory_peak_bytes", &labels, held.peak);
            page.of_job("jobledger_job_gpu_memory_limit_bytes", &labels, memory.total);
        }
        for fact in &sample.facts {
            let mut labels = labels.clone();
            for (key, value) in &fact.labels {
                labels.push_str(&format!(",{key}=\"{}\"", escaped(value)));
            }
            page.plain(fact.family.name, &labels, fact.value.to_f64());
        }
    }
}

/// An amount of parts, of which so many, a power of ten, make one.
fn decimal(amount: u64, per_unit: u64) -> String {
    let places = usize::try_from(per_unit.max(1).ilog10()).unwrap_or(0);
    if places == 0 {
        amount.to_string()
    } else {
        format!("{}.{:0places$}", amount / per_unit, amount % per_unit)
    }
}

#[cfg(test)]
mod tests;
