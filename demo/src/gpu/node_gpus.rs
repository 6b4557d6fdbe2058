//! The GPUs, who is on them, and what they have counted.

use std::ops::AddAssign;
use std::sync::Arc;

use super::work::Work;
use crate::random::{Random, real, whole};

/// GPUs, and how many of them are not divided. Units are these and then the parts of the last one.
pub(crate) const BOARDS: usize = 8;
pub(crate) const WHOLE: usize = BOARDS - 1;
/// Bytes of a GPU, and what firmware and driver keep of it.
pub(super) const MEMORY: u64 = 81_559 << 20;
pub(super) const RESERVED: u64 = 614 << 20;
/// Compute slices of a GPU.
pub(super) const SLICES: u32 = 7;
pub(super) const MULTIPROCESSORS: u32 = 132;

/// How a part is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartTraits {
    pub(super) profile: &'static str,
    pub(super) gpu_instance: u32,
    pub(super) slices: u32,
    pub(super) multiprocessors: u32,
    pub(super) memory: u64,
}

/// The parts of the last GPU; nobody has the last two.
#[rustfmt::skip]
pub(crate) const PARTS: [PartTraits; 4] = [
    PartTraits { profile: "3g.40gb", gpu_instance: 2, slices: 3, multiprocessors: 60, memory: 40_448 << 20 },
    PartTraits { profile: "2g.20gb", gpu_instance: 3, slices: 2, multiprocessors: 32, memory: 20_096 << 20 },
    PartTraits { profile: "1g.10gb", gpu_instance: 9, slices: 1, multiprocessors: 16, memory: 9_984 << 20 },
    PartTraits { profile: "1g.10gb", gpu_instance: 10, slices: 1, multiprocessors: 16, memory: 9_984 << 20 },
];

/// Watts of a GPU that does nothing, and what is added for all the time of each. Microseconds times watts are microjoules.
pub(super) const IDLE_WATTS: u64 = 70;
const BUSY_WATTS: u64 = 60;
const SM_WATTS: u64 = 180;
const PIPE_WATTS: u64 = 260;
const DRAM_WATTS: u64 = 130;

/// The board that is cooled badly, the degrees at which it slows down, and those at which it is fast again.
const WARM: usize = 2;
pub(super) const SLOW_AT: f64 = 87.0;
const FAST_AT: f64 = 82.0;
/// Megahertz of multiprocessors that are fast, slow, and have nothing to do.
pub(super) const FAST: u64 = 1_980;
const SLOW: u64 = 1_395;
const ASLEEP: u64 = 345;
/// The board whose memory is worn, and the busy time in which it corrects an error and gives up a row, microseconds.
const WORN: usize = 1;
const PER_ERROR: u64 = 20_000_000;
const PER_ROW: u64 = 600_000_000;

/// What a job asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    Whole(usize),
    /// A GPU together with those that start together with it.
    Shard,
    /// A part of this profile.
    Part(&'static str),
}

/// What was counted, microseconds and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) busy: u64,
    pub(crate) sm: u64,
    pub(crate) occupancy: u64,
    pub(crate) tensor: u64,
    pub(crate) fp64: u64,
    pub(crate) fp32: u64,
    pub(crate) fp16: u64,
    pub(crate) integer: u64,
    pub(crate) dram: u64,
    pub(crate) pcie: [u64; 2],
    pub(crate) nvlink: [u64; 2],
    /// Clocks in which the pipes of double and single precision and tensor cores worked.
    pub(crate) clocks: [u64; 3],
    /// Microjoules beyond those of a GPU that does nothing.
    pub(crate) energy: u64,
}

impl Spent {
    fn of(work: &Work, elapsed: u64, slow: bool) -> Self {
        let time = |fraction: f64| whole(fraction * real(elapsed));
        let bytes = |rates: [f64; 2]| rates.map(|rate| whole(rate * real(elapsed) / 1e6));
        let spent = Self {
            busy: time(work.busy),
            sm: time(work.sm),
            occupancy: time(work.occupancy),
            tensor: time(work.tensor),
            fp64: time(work.fp64),
            fp32: time(work.fp32),
            fp16: time(work.fp16),
            integer: time(work.integer),
            dram: time(work.dram),
            pcie: bytes(work.pcie),
            nvlink: bytes(work.nvlink),
            ..Self::default()
        };
        let Self { busy, sm, tensor, fp64, fp32, fp16, dram, .. } = spent;
        let pipes = tensor + fp64 + fp32 + fp16;
        let energy = BUSY_WATTS * busy + SM_WATTS * sm + PIPE_WATTS * pipes + DRAM_WATTS * dram;
        // At lower clocks the voltage is lower, too.
        let (megahertz, energy) = if slow { (SLOW, energy / 2) } else { (FAST, energy) };
        Self { clocks: [fp64, fp32, tensor].map(|micros| micros * megahertz), energy, ..spent }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.busy += other.busy;
        self.sm += other.sm;
        self.occupancy += other.occupancy;
        self.tensor += other.tensor;
        self.fp64 += other.fp64;
        self.fp32 += other.fp32;
        self.fp16 += other.fp16;
        self.integer += other.integer;
        self.dram += other.dram;
        self.energy += other.energy;
        let mine = self.pcie.iter_mut().chain(&mut self.nvlink).chain(&mut self.clocks);
        let theirs = other.pcie.into_iter().chain(other.nvlink).chain(other.clocks);
        mine.zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// A process on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) pid: u64,
    /// Bytes of the unit.
    pub(crate) memory: u64,
    /// Microseconds in which its kernels ran. The processes of a GPU take turns: their sum is the GPU's.
    pub(crate) busy: u64,
}

/// Something that a job can have.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) uuid: Arc<str>,
    pub(crate) spent: Spent,
    pub(crate) clients: Vec<Client>,
}

impl Device {
    fn new(uuid: String) -> Self {
        Self { uuid: uuid.into(), spent: Spent::default(), clients: Vec::new() }
    }

    pub(crate) fn used(&self) -> u64 {
        self.clients.iter().map(|client| client.memory).sum()
    }
}

/// A GPU as a thing that draws power and gets warm.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Board {
    /// Microjoules.
    pub(crate) energy: u64,
    /// Means over about a second.
    pub(crate) watts: f64,
    pub(crate) degrees: f64,
    /// Fractions of the time in which a kernel ran and memory moved data.
    pub(super) busy: f64,
    pub(super) dram: f64,
    /// The same in microseconds, up to the latest tick.
    times: [u64; 2],
    pub(crate) slow: bool,
    /// Microseconds for which it was.
    pub(crate) slowed: u64,
    /// Errors of memory that were corrected, and rows that were replaced for them.
    pub(crate) errors: u64,
    pub(crate) rows: u64,
}

impl Board {
    /// Megahertz of its multiprocessors.
    pub(super) fn clock(&self) -> u64 {
        match self.slow {
            true => SLOW,
            false if self.is_idle() => ASLEEP,
            false => FAST,
        }
    }

    /// Whether next to nothing runs on it.
    pub(super) fn is_idle(&self) -> bool {
        self.watts < real(IDLE_WATTS) + 2.0
    }
}

/// All of them.
#[derive(Debug, Clone)]
pub(crate) struct NodeGpus {
    /// Of the last GPU as a whole.
    pub(crate) divided: Arc<str>,
    pub(crate) units: Vec<Device>,
    pub(crate) boards: [Board; BOARDS],
}

/// An id as NVIDIA's driver gives them.
fn uuid(kind: &str, chance: &mut Random) -> String {
    let mut hex = |digits: i32| whole(chance.between(0.0, 16_f64.powi(digits)));
    let [a, b, c, d, e] = [8, 4, 4, 4, 12].map(&mut hex);
    format!("{kind}-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

impl NodeGpus {
    /// Those of a node that was booted `now` microseconds ago.
    pub(crate) fn new(now: u64, mut chance: Random) -> Self {
        let mut units: Vec<Device> = (0..WHOLE).map(|_| Device::new(uuid("GPU", &mut chance))).collect();
        let divided = uuid("GPU", &mut chance).into();
        units.extend(PARTS.map(|_| Device::new(uuid("MIG", &mut chance))));
        let board =
            Board { energy: IDLE_WATTS * now, watts: real(IDLE_WATTS), degrees: 35.0, ..Board::default() };
        Self { divided, units, boards: [board; BOARDS] }
    }

    /// Units for a job that asks for them; `taken` are those that jobs have.
    pub(crate) fn find(&self, ask: Ask, taken: &[usize]) -> Option<Vec<(usize, Arc<str>)>> {
        let fits = |unit: usize| match ask {
            Ask::Nothing => false,
            Ask::Whole(_) | Ask::Shard => unit < WHOLE,
            Ask::Part(profile) => unit
                .checked_sub(WHOLE)
                .and_then(|at| PARTS.get(at))
                .is_some_and(|part| part.profile == profile),
        };
        let number = match ask {
            Ask::Nothing => 0,
            Ask::Whole(number) => number,
            Ask::Shard | Ask::Part(_) => 1,
        };
        let free = self.units.iter().enumerate().filter(|(unit, _)| fits(*unit) && !taken.contains(unit));
        let free = free.map(|(unit, device)| (unit, device.uuid.clone()));
        // Who wants one takes the last: so those who want several find the first.
        let found: Vec<_> =
            if number == 1 { free.rev().take(1).collect() } else { free.take(number).collect() };
        (found.len() == number).then_some(found)
    }

    /// A process works on a unit.
    pub(crate) fn run(&mut self, unit: usize, pid: u64, work: Work, elapsed: u64) {
        let slow = self.boards.get(unit).is_some_and(|board| unit < WHOLE && board.slow);
        let Some(device) = self.units.get_mut(unit).filter(|_| work.memory > 0) else { return };
        let spent = Spent::of(&work, elapsed, slow);
        device.spent += spent;
        let at = device.clients.iter().position(|client| client.pid == pid).unwrap_or_else(|| {
            device.clients.push(Client { pid, memory: 0, busy: 0 });
            device.clients.len() - 1
        });
        if let Some(client) = device.clients.get_mut(at) {
            client.memory = work.memory;
            client.busy += spent.busy;
        }
    }

    /// Microjoules of all GPUs.
    pub(crate) fn energy(&self) -> u64 {
        self.boards.iter().map(|board| board.energy).sum()
    }

    /// A process is gone.
    pub(crate) fn leave(&mut self, pid: u64) {
        self.units.iter_mut().for_each(|device| device.clients.retain(|client| client.pid != pid));
    }

    /// Microjoules of a GPU beyond those of its idling.
    fn activity(&self, board: usize) -> u64 {
        if board < WHOLE {
            return self.units.get(board).map_or(0, |device| device.spent.energy);
        }
        let parts = self.units.iter().skip(WHOLE).zip(PARTS);
        parts.map(|(device, part)| device.spent.energy * u64::from(part.slices)).sum::<u64>()
            / u64::from(SLICES)
    }

    /// Microseconds in which a kernel ran on a board and in which its memory moved data; of the divided one nobody counts that.
    fn times(&self, board: usize) -> [u64; 2] {
        let device = self.units.get(board).filter(|_| board < WHOLE);
        device.map_or([0; 2], |device| [device.spent.busy, device.spent.dram])
    }

    /// Ends a tick.
    pub(crate) fn tick(&mut self, now: u64, elapsed: u64) {
        let now: [_; BOARDS] =
            std::array::from_fn(|at| (IDLE_WATTS * now + self.activity(at), self.times(at)));
        let rate = |now: u64, before: u64| real(now - before) / real(elapsed.max(1));
        let towards = |was: f64, is: f64, seconds: f64| {
            let keep = (-real(elapsed) / 1e6 / seconds).exp();
            was * keep + is * (1.0 - keep)
        };
        for ((at, board), (energy, [busy, dram])) in self.boards.iter_mut().enumerate().zip(now) {
            board.watts = towards(board.watts, rate(energy, board.energy), 1.0);
            board.busy = towards(board.busy, rate(busy, board.times[0]), 1.0);
            board.dram = towards(board.dram, rate(dram, board.times[1]), 1.0);
            (board.energy, board.times) = (energy, [busy, dram]);
            let per_watt = if at == WARM { 0.105 } else { 0.052 };
            board.degrees = towards(board.degrees, 31.0 + per_watt * board.watts, 15.0);
            board.slowed += if board.slow { elapsed } else { 0 };
            board.slow = board.degrees > if board.slow { FAST_AT } else { SLOW_AT };
            if at == WORN {
                (board.errors, board.rows) = (busy / PER_ERROR, busy / PER_ROW);
            }
        }
    }
}
