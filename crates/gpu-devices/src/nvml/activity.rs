//! Activity of the multiprocessors (GPM, Hopper and later): two samples, at least 100 ms apart (nvml.h,
//! nvmlGpmMetricsGet), give the true mean of the time between them. It is counted as active time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nvml_wrapper::error::NvmlError;

use super::busy::nanoseconds;
use super::counts::Counts;
use super::raw::{ActivitySample, Handle, Library};
use crate::Quantity;
use crate::peaks::Peak;

/// Samples closer together carry no information.
const CLOSEST: Duration = Duration::from_millis(100);
/// GRAPHICS_UTIL: whether anything ran.
const GRAPHICS: u32 = 1;

/// Metrics that are counted as time (nvml.h, nvmlGpmMetricId_t), percent of the time between the samples.
const TIMES: [(u32, &Quantity); 10] = [
    (2, Quantity::SM_ACTIVE),
    (3, Quantity::SM_OCCUPANCY),
    (4, Quantity::INTEGER),
    (5, Quantity::TENSOR),
    (6, Quantity::TENSOR_FP64),
    (7, Quantity::TENSOR_HALF),
    (9, Quantity::TENSOR_INTEGER),
    (10, Quantity::DRAM_ACTIVE),
    (11, Quantity::FP64),
    (12, Quantity::FP32),
];
const HALF: (u32, &Quantity) = (13, Quantity::FP16);

/// Metrics that are counted as bytes where the driver has no counter of them: MiB per second (nvml.h; the wrapper
/// says bytes).
const RATES: [(u32, &Quantity); 4] = [
    (20, Quantity::PCIE_TRANSMITTED),
    (21, Quantity::PCIE_RECEIVED),
    (60, Quantity::NVLINK_RECEIVED),
    (61, Quantity::NVLINK_TRANSMITTED),
];

/// The pipe that an estimate of operations is made of.
const ESTIMATES: [(&Quantity, &Quantity); 5] = [
    (Quantity::FP64, Quantity::FLOPS_FP64),
    (Quantity::FP32, Quantity::FLOPS_FP32),
    (Quantity::FP16, Quantity::FLOPS_FP16),
    (Quantity::TENSOR_FP64, Quantity::FLOPS_TENSOR_FP64),
    (Quantity::TENSOR_HALF, Quantity::FLOPS_TENSOR_HALF),
];

/// A fraction of the time, from percent; anything else (an idle unit's is NaN on some drivers) is nothing.
pub(super) fn part(percent: f64) -> Option<f64> {
    // Slightly more than all is a matter of when the counters were read.
    (percent.is_finite() && (0.0..=110.0).contains(&percent)).then(|| percent.min(100.0) / 100.0)
}

/// What happened between two samples.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// How far apart they are.
    pub(super) time: Duration,
    /// Part of the time in which anything ran.
    pub(super) graphics: Option<f64>,
    times: Vec<(&'static Quantity, f64)>,
    bytes: Vec<(&'static Quantity, f64)>,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive, and saturates beyond 64 bits"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// A part of a time, nanoseconds.
pub(super) fn portion(time: u64, part: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 nanoseconds are 104 days")]
    let time = time as f64;
    whole(part * time)
}

impl Activity {
    fn new(time: Duration, samples: &[(u32, f64)], peak: Option<&Peak>) -> Self {
        let of = |metric: u32| samples.iter().find(|(id, _)| *id == metric).map(|(_, value)| *value);
        let times = TIMES.into_iter().chain([HALF]);
        let vector = of(HALF.0).and_then(part).filter(|_| peak.is_some_and(Peak::counts_fp16_as_tensor));
        let times = times.filter_map(|(id, quantity)| {
            let active = part(of(id)?)?;
            let both = [Quantity::TENSOR, Quantity::TENSOR_HALF].contains(&quantity);
            let counted_twice = vector.filter(|_| both).unwrap_or(0.0);
            Some((quantity, (active - counted_twice).max(0.0)))
        });
        let bytes = RATES.into_iter().filter_map(|(id, quantity)| {
            let rate = of(id).filter(|rate| rate.is_finite() && *rate >= 0.0)?;
            Some((quantity, rate * 1_048_576.0 * time.as_secs_f64()))
        });
        Self { time, graphics: of(GRAPHICS).and_then(part), times: times.collect(), bytes: bytes.collect() }
    }

    /// Adds it to the counts: times, bytes where the driver has no counter for them.
    pub(super) fn count(&self, counts: &mut Counts) {
        for (quantity, part) in &self.times {
            counts.add(quantity, portion(nanoseconds(self.time), *part));
        }
        for (quantity, bytes) in &self.bytes {
            if !counts.is_counted(quantity) {
                counts.add(quantity, whole(*bytes));
            }
        }
    }

    /// Adds up the operations that the pipes could have done: part of the time × multiprocessors × operations per clock ×
    /// clock, in millions.
    pub(super) fn estimate(&self, peak: &Peak, multiprocessors: u32, clock: f64, counts: &mut Counts) {
        for (pipe, estimate) in ESTIMATES {
            let active = self.times.iter().find(|(quantity, _)| *quantity == pipe);
            if let (Some((_, part)), Some(per_clock)) = (active, peak.of(estimate)) {
                let clocks = part * self.time.as_secs_f64() * clock;
                counts.add(estimate, whole(clocks * f64::from(multiprocessors) * f64::from(per_clock) / 1e6));
            }
        }
    }
}

/// Two samples, the earlier of which is kept until there is one far enough from it.
#[derive(Debug)]
pub(super) struct Pair {
    earlier: ActivitySample,
    later: ActivitySample,
    taken: Option<Instant>,
}

impl Pair {
    /// The driver's memory for them.
    pub(super) fn new(library: &Arc<Library>) -> Result<Self, NvmlError> {
        let (earlier, later) = (ActivitySample::new(library)?, ActivitySample::new(library)?);
        Ok(Self { earlier, later, taken: None })
    }

    /// What happened since the last call that gave something; `None` at first and when that is too short ago. The row of
    /// peaks says which pipes the driver counts as one.
    pub(super) fn read(
        &mut self,
        library: &Library,
        handle: Handle,
        gpu_instance: Option<u32>,
        peak: Option<&Peak>,
    ) -> Result<Option<Activity>, NvmlError> {
        let Some(taken) = self.taken else {
            library.activity(handle, gpu_instance, &mut self.earlier)?;
            self.taken = Some(Instant::now());
            return Ok(None);
        };
        if taken.elapsed() < CLOSEST {
            return Ok(None);
        }
        library.activity(handle, gpu_instance, &mut self.later)?;
        // After the call, which may have hung.
        let now = Instant::now();
        let time = now.saturating_duration_since(taken);
        let mut metrics = vec![GRAPHICS, HALF.0];
        metrics.extend(TIMES.iter().chain(&RATES).map(|(id, _)| *id));
        let samples = library.activity_between(&self.earlier, &self.later, &metrics);
        // Whatever came of it, the time until now is over.
        std::mem::swap(&mut self.earlier, &mut self.later);
        self.taken = Some(now);
        let samples: Vec<(u32, f64)> =
            metrics.into_iter().zip(samples?).filter_map(|(id, value)| Some((id, value.ok()?))).collect();
        Ok(Some(Activity::new(time, &samples, peak)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peaks::Peaks;

    #[test]
    fn percentages_become_active_time_and_what_is_none_is_left_out() {
        let samples = [
            (1, 80.0),
            (2, 50.0),
            (3, f64::NAN),
            (12, 25.0),
            (11, 0.0),
            (7, -1.0),
            (5, 101.0),
            (10, 1e9),
            (20, 2.0),
        ];
        let activity = Activity::new(Duration::from_secs(10), &samples, None);
        assert_eq!(activity.graphics, Some(0.8));
        let mut counts = Counts::new();
        activity.count(&mut counts);
        let mut counted = counts.take();
        counted.sort_by_key(|(_, value)| *value);
        assert_eq!(
            counted,
            [
                (Quantity::FP64, 0),
                (Quantity::PCIE_TRANSMITTED, 20 * 1_048_576),
                (Quantity::FP32, 2_500_000_000),
                (Quantity::SM_ACTIVE, 5_000_000_000),
                (Quantity::TENSOR, 10_000_000_000),
            ]
        );
    }

    #[test]
    fn bytes_of_the_drivers_counters_are_not_counted_twice() {
        let activity = Activity::new(Duration::from_secs(1), &[(20, 1.0), (21, 1.0)], None);
        let mut counts = Counts::new();
        counts.add(Quantity::PCIE_TRANSMITTED, 5);
        activity.count(&mut counts);
        assert_eq!(counts.take(), [(Quantity::PCIE_TRANSMITTED, 5), (Quantity::PCIE_RECEIVED, 1_048_576)]);
    }

    #[test]
    fn a_full_pipe_does_what_the_data_sheet_says() {
        let peaks = Peaks::built_in();
        let h100 = peaks.find("9.0", "NVIDIA H100 80GB HBM3").unwrap();
        let samples = [(12, 100.0), (7, 50.0), (5, 100.0)];
        let activity = Activity::new(Duration::from_secs(2), &samples, Some(h100));
        let mut counts = Counts::new();
        activity.estimate(h100, 132, 1.98e9, &mut counts);
        // 2 s × 66.9 TFLOPS, and half of 2 s × 132 × 4096 × 1.98 GHz.
        assert_eq!(
            counts.take(),
            [(Quantity::FLOPS_FP32, 133_816_320), (Quantity::FLOPS_TENSOR_HALF, 1_070_530_560)]
        );
    }

    #[test]
    fn vector_operations_of_16_bits_are_not_those_of_tensor_cores() {
        let peaks = Peaks::built_in();
        let count = |capability, samples: &[(u32, f64)]| {
            let peak = peaks.find(capability, "any").unwrap();
            let activity = Activity::new(Duration::from_secs(1), samples, Some(peak));
            let mut counts = Counts::new();
            activity.count(&mut counts);
            activity.estimate(peak, 100, 1e9, &mut counts);
            counts.take()
        };
        // As a H200 counts a kernel of nothing else.
        let alone = count("9.0", &[(5, 96.41), (7, 96.41), (13, 96.41)]);
        let of = |counts: &[(&'static Quantity, u64)], wanted| {
            counts.iter().find(|(quantity, _)| *quantity == wanted).map(|(_, value)| *value)
        };
        assert_eq!(of(&alone, Quantity::FP16), Some(964_100_000));
        assert_eq!((of(&alone, Quantity::TENSOR), of(&alone, Quantity::TENSOR_HALF)), (Some(0), Some(0)));
        assert_eq!(of(&alone, Quantity::FLOPS_TENSOR_HALF), Some(0));
        // Beside products of matrices of both precisions.
        let mixed = count("9.0", &[(5, 75.0), (6, 12.5), (7, 62.5), (13, 25.0)]);
        assert_eq!(of(&mixed, Quantity::TENSOR), Some(500_000_000));
        assert_eq!(of(&mixed, Quantity::TENSOR_HALF), Some(375_000_000));
        assert_eq!(of(&mixed, Quantity::TENSOR_FP64), Some(125_000_000));
        // Of others it is not known.
        let other = count("10.0", &[(5, 75.0), (7, 62.5), (13, 25.0)]);
        assert_eq!(of(&other, Quantity::TENSOR_HALF), Some(625_000_000));
    }
}
