//! The simulated GPUs as the exporter reads them, in place of NVIDIA's driver.
//!
//! All values are of one moment, which is part of the sample: times and energy agree to the microsecond.

use std::sync::Arc;
use std::time::Instant;

use gpu_devices::{
    Backend, DeviceNode, Memory, Part, Process, ProcessKind, Quantity, Sample, Unit, UnitSample, Vendor,
    Wanted,
};
use jobledger_exporter::collector::SourceError;
use parking_lot::{Mutex, MutexGuard};

use super::facts::{driver, facts};
use super::node_gpus::{
    BOARDS, Device, MEMORY, MULTIPROCESSORS, NodeGpus, PARTS, RESERVED, SLICES, Spent, WHOLE,
};
use crate::barrier::Barrier;

const MODEL: &str = "NVIDIA H100 80GB HBM3";
/// Majors of `/dev/nvidia<minor>` and of `/dev/nvidia-caps`.
const NVIDIA: u32 = 195;
const CAPABILITIES: u32 = 236;
/// Operations of a multiprocessor per clock: double and single precision, and half on tensor cores without sparsity (NVIDIA
/// H100 Tensor Core GPU Architecture).
const PER_CLOCK: [(&Quantity, u64); 3] =
    [(Quantity::FLOPS_FP64, 128), (Quantity::FLOPS_FP32, 256), (Quantity::FLOPS_TENSOR_HALF, 4_096)];

/// A quantity, and where it was counted.
type Count = (&'static Quantity, fn(&Spent) -> u64);

/// What is counted as time; what was counted is in microseconds.
const TIMES: [Count; 11] = [
    (Quantity::BUSY, |spent| spent.busy),
    (Quantity::SM_ACTIVE, |spent| spent.sm),
    (Quantity::SM_OCCUPANCY, |spent| spent.occupancy),
    (Quantity::TENSOR, |spent| spent.tensor),
    (Quantity::TENSOR_HALF, |spent| spent.tensor),
    (Quantity::FP64, |spent| spent.fp64),
    (Quantity::FP32, |spent| spent.fp32),
    (Quantity::FP16, |spent| spent.fp16),
    (Quantity::INTEGER, |spent| spent.integer),
    (Quantity::DRAM_ACTIVE, |spent| spent.dram),
    (Quantity::TENSOR_FP64, |_| 0),
];

/// What is counted as bytes.
const BYTES: [Count; 4] = [
    (Quantity::PCIE_RECEIVED, |spent| spent.pcie[0]),
    (Quantity::PCIE_TRANSMITTED, |spent| spent.pcie[1]),
    (Quantity::NVLINK_RECEIVED, |spent| spent.nvlink[0]),
    (Quantity::NVLINK_TRANSMITTED, |spent| spent.nvlink[1]),
];

/// The GPUs as they were at a moment.
#[derive(Debug)]
struct Shown {
    at: Instant,
    node_gpus: NodeGpus,
}

/// Where the simulation shows its GPUs.
#[derive(Debug, Clone)]
pub(crate) struct GpuView(Arc<Mutex<Shown>>);

impl GpuView {
    pub(crate) fn new(at: Instant, node_gpus: NodeGpus) -> Self {
        Self(Arc::new(Mutex::new(Shown { at, node_gpus })))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock()
    }

    /// Shows them as they are at a moment.
    pub(crate) fn show(&self, at: Instant, node_gpus: &NodeGpus) {
        let mut shown = self.shown();
        shown.at = at;
        shown.node_gpus.clone_from(node_gpus);
    }

    /// Reads them when the simulation does not write.
    pub(crate) fn backend(&self, gate: Barrier) -> Box<dyn Backend> {
        let shown = self.shown();
        let units = units(&shown.node_gpus).into_iter().map(Arc::new).collect();
        let rows = shown.node_gpus.boards.map(|board| board.rows);
        drop(shown);
        Box::new(Simulated { view: self.clone(), gate, units, rows })
    }
}

/// The boards, and then the parts of the last.
fn units(node_gpus: &NodeGpus) -> Vec<Unit> {
    let board = |at: usize, uuid: &Arc<str>| {
        let minor = u32::try_from(at).ok();
        Unit {
            vendor: Vendor::Nvidia,
            uuid: uuid.clone(),
            index: minor,
            minor,
            pci: Some(format!("0000:{:02x}:00.0", 0x19 + 0x11 * at).into()),
            model: MODEL.into(),
            nodes: minor.map(|minor| DeviceNode { major: NVIDIA, minor }).into_iter().collect(),
            part: None,
            divided: at == WHOLE,
        }
    };
    let uuids = node_gpus.units.iter().take(WHOLE).map(|device| &device.uuid).chain([&node_gpus.divided]);
    let mut units: Vec<Unit> = uuids.enumerate().map(|(at, uuid)| board(at, uuid)).collect();
    for (device, part) in node_gpus.units.iter().skip(WHOLE).zip(PARTS) {
        // `/proc/driver/nvidia/capabilities` has two for each: of the GPU instance and of the compute instance.
        let access = 1_000 + part.gpu_instance * 9;
        let nodes = [access, access + 1].map(|minor| DeviceNode { major: CAPABILITIES, minor });
        let nodes = nodes.into_iter().chain(board(WHOLE, &node_gpus.divided).nodes).collect();
        let instance = Part {
            parent: node_gpus.divided.clone(),
            gpu_instance: part.gpu_instance,
            compute_instance: 0,
            profile: part.profile.into(),
            slices: Some((part.slices, SLICES)),
        };
        let whole = board(WHOLE, &device.uuid);
        units.push(Unit { nodes, part: Some(instance), divided: false, ..whole });
    }
    units
}

/// Activity of a unit with so many multiprocessors.
fn activity(spent: &Spent, multiprocessors: u32) -> Vec<(&'static Quantity, u64)> {
    let times = TIMES.iter().map(|(quantity, of)| (*quantity, of(spent) * 1000));
    let millions = |clocks: u64, per_clock: u64| {
        let operations = u128::from(clocks) * u128::from(u64::from(multiprocessors) * per_clock);
        u64::try_from(operations / 1_000_000).unwrap_or(u64::MAX)
    };
    let estimates = PER_CLOCK.iter().zip(spent.clocks);
    let estimates =
        estimates.map(|((quantity, per_clock), clocks)| (*quantity, millions(clocks, *per_clock)));
    times.chain(estimates).collect()
}

fn bytes(spent: &Spent) -> impl Iterator<Item = (&'static Quantity, u64)> {
    BYTES.iter().map(|(quantity, of)| (*quantity, of(spent)))
}

fn memory(total: u64, used: u64, reserved: Option<u64>) -> Memory {
    Memory { total, used, free: total.saturating_sub(used + reserved.unwrap_or(0)), reserved }
}

fn processes(device: &Device) -> Vec<Process> {
    let process = |pid, client: &super::node_gpus::Client| Process {
        pid,
        kind: ProcessKind::Compute,
        memory: Some(client.memory),
        busy_ns: Some(client.busy * 1000),
    };
    let clients = device.clients.iter().filter_map(|client| Some((u32::try_from(client.pid).ok()?, client)));
    clients.map(|(pid, client)| process(pid, client)).collect()
}

struct Simulated {
    view: GpuView,
    gate: Barrier,
    units: Vec<Arc<Unit>>,
    /// Rows that had been replaced when it began to read.
    rows: [u64; BOARDS],
}

impl Simulated {
    fn read(&self, node_gpus: &NodeGpus, wanted: Wanted) -> Vec<UnitSample> {
        let mut samples: Vec<UnitSample> =
            self.units.iter().map(|unit| UnitSample::new(unit.clone(), 0)).collect();
        let (boards, parts) = samples.split_at_mut(BOARDS);
        let (wholes, divided) = node_gpus.units.split_at(WHOLE.min(node_gpus.units.len()));
        let asked = |device: &Device| wanted.processes.then(|| processes(device));
        for ((sample, board), rows) in boards.iter_mut().zip(&node_gpus.boards).zip(self.rows) {
            sample.counts.push((Quantity::ENERGY, board.energy));
            sample.facts = facts(board, sample.unit.divided, rows);
        }
        for (sample, device) in boards.iter_mut().zip(wholes) {
            sample.counts.extend(activity(&device.spent, MULTIPROCESSORS));
            sample.counts.extend(bytes(&device.spent));
            sample.memory = Some(memory(MEMORY, device.used(), Some(RESERVED)));
            sample.processes = asked(device);
        }
        // What leaves and enters a divided GPU is counted of all of it alone.
        if let Some(sample) = boards.last_mut() {
            let mut spent = Spent::default();
            divided.iter().for_each(|device| spent += device.spent);
            sample.counts.extend(bytes(&spent));
            let used = divided.iter().map(Device::used).sum();
            sample.memory = Some(memory(MEMORY, used, Some(RESERVED)));
        }
        for ((sample, device), part) in parts.iter_mut().zip(divided).zip(PARTS) {
            sample.counts = activity(&device.spent, part.multiprocessors);
            sample.memory = Some(memory(part.memory, device.used(), None));
            sample.processes = asked(device);
        }
        samples
    }
}

impl Backend for Simulated {
    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }

    fn is_present(&self) -> bool {
        true
    }

    fn sample(&mut self, wanted: Wanted) -> Result<Sample, SourceError> {
        let (began, units) = self.gate.read_gpus(|| {
            let shown = self.view.shown();
            (shown.at, self.read(&shown.node_gpus, wanted))
        });
        let (facts, failed) = (vec![driver()], Vec::new());
        Ok(Sample { vendor: Vendor::Nvidia, began, ended: Instant::now(), units, facts, failed })
    }

    fn release(&mut self) {}
}
