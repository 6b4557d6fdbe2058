//! What a job does on a GPU that it has.

use crate::profile::Profile;
use crate::random::Random;

const GIB: u64 = 1 << 30;

/// What it does now: times are fractions of all time (busy), of all multiprocessors or of what they can hold; rates are per
/// second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Work {
    /// A kernel runs.
    pub(super) busy: f64,
    pub(super) sm: f64,
    pub(super) occupancy: f64,
    /// Tensor operations of half precision.
    pub(super) tensor: f64,
    pub(super) fp64: f64,
    pub(super) fp32: f64,
    pub(super) fp16: f64,
    pub(super) integer: f64,
    pub(super) dram: f64,
    /// Bytes received and sent.
    pub(super) pcie: [f64; 2],
    pub(super) nvlink: [f64; 2],
    /// Of the GPU, bytes; without any it has not opened the GPU.
    pub(super) memory: u64,
}

impl Work {
    /// What a job of some kind does at some age, in seconds. `odd` are every second of those that start together.
    pub(crate) fn of(profile: Profile, age: f64, odd: bool, chance: &mut Random) -> Self {
        let jitter = chance.between(0.97, 1.0);
        let mut work = match profile {
            // Loads its input, then computes on four GPUs that exchange gradients.
            Profile::Training if age < 10.0 => {
                Self { pcie: [9e9, 0.1e9], memory: 18 * GIB, ..Self::default() }
            }
            Profile::Training => Self {
                busy: 0.98,
                sm: 0.88,
                occupancy: 0.38,
                tensor: 0.62,
                fp32: 0.12,
                integer: 0.2,
                dram: 0.52,
                pcie: [1.2e9, 0.3e9],
                nvlink: [110e9, 110e9],
                memory: 71 * GIB,
                ..Self::default()
            },
            // Has data on the GPU, and nobody asks for anything.
            Profile::IdleGpu if age < 60.0 => Self::default(),
            Profile::IdleGpu => Self { memory: 11 * GIB, ..Self::default() },
            // Works for two minutes, then somebody forgot to end it.
            Profile::Finished if age > 120.0 => Self { memory: 16 * GIB, ..Self::default() },
            Profile::Finished => Self {
                busy: 0.9,
                sm: 0.7,
                occupancy: 0.3,
                tensor: 0.4,
                fp32: 0.1,
                integer: 0.1,
                dram: 0.35,
                pcie: [0.4e9, 0.1e9],
                memory: 16 * GIB,
                ..Self::default()
            },
            // The GPU waits for the CPU most of the time.
            Profile::LowUse => Self {
                busy: 0.07,
                sm: 0.03,
                occupancy: 0.01,
                fp32: 0.015,
                integer: 0.004,
                dram: 0.01,
                pcie: [0.2e9, 0.15e9],
                memory: 6 * GIB,
                ..Self::default()
            },
            Profile::Sharing => {
                let asked = if odd { 0.35 } else { 1.0 };
                Self {
                    busy: 0.45 * asked,
                    sm: 0.3 * asked,
                    occupancy: 0.12 * asked,
                    tensor: 0.14 * asked,
                    fp16: 0.05 * asked,
                    integer: 0.04 * asked,
                    dram: 0.28 * asked,
                    pcie: [0.05e9 * asked, 0.05e9 * asked],
                    memory: if odd { 14 * GIB } else { 27 * GIB },
                    ..Self::default()
                }
            }
            Profile::OnPart => Self {
                busy: 0.96,
                sm: 0.85,
                occupancy: 0.5,
                fp64: 0.3,
                fp32: 0.25,
                integer: 0.1,
                dram: 0.4,
                pcie: [0.1e9, 0.1e9],
                memory: 9 * GIB,
                ..Self::default()
            },
            Profile::ShortGpu => Self {
                busy: 0.85,
                sm: 0.6,
                occupancy: 0.3,
                fp32: 0.35,
                integer: 0.05,
                dram: 0.3,
                pcie: [1e9, 0.2e9],
                memory: 2 * GIB,
                ..Self::default()
            },
            _ => Self::default(),
        };
        for time in work.times_mut() {
            *time *= jitter;
        }
        work
    }

    fn times_mut(&mut self) -> [&mut f64; 9] {
        let Self { busy, sm, occupancy, tensor, fp64, fp32, fp16, integer, dram, .. } = self;
        [busy, sm, occupancy, tensor, fp64, fp32, fp16, integer, dram]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::WORKLOADS;

    #[test]
    fn no_pipe_works_without_multiprocessors_nor_these_without_a_kernel() {
        let mut chance = Random::new(1, 1);
        let mut used = 0;
        for (traits, second) in
            WORKLOADS.iter().flat_map(|traits| (0..900).map(move |second| (traits, second)))
        {
            for odd in [false, true] {
                let w = Work::of(traits.profile, f64::from(second), odd, &mut chance);
                assert!(w.busy <= 1.0 && w.sm <= w.busy && w.occupancy <= w.sm && w.dram <= w.busy);
                assert!(
                    w.tensor + w.fp64 + w.fp32 + w.fp16 + w.integer <= w.sm + 0.1,
                    "{:?}",
                    traits.profile
                );
                assert!(w.busy == 0.0 || w.memory > 0, "{:?}: a kernel without a context", traits.profile);
                used += u32::from(w.busy > 0.0);
            }
        }
        assert!(used > 5_000);
    }
}
