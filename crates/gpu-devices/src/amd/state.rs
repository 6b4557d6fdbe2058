//! The state of an AMD GPU between samples, and its reading.

use std::time::{Duration, Instant};

use readings::Integral;

use super::activity::{Activity, Reading, Taken};
use super::gpu_metrics::{GpuMetrics, parse_gpu_metrics, parse_header};
use super::survey::{MI200, OF_TWO, Surveyed};
use super::{Gpu, facts};
use crate::drm::{Attributes, Card, Hwmon};
use crate::{Fact, Quantity, UnitSample};

/// Counts of errors are asked of the hardware: every so often is enough.
const ERRORS_EVERY: Duration = Duration::from_secs(60);
/// Percent as what [`Integral`] adds up to nanoseconds of being busy.
const PERCENT: u64 = 10_000_000;

#[derive(Debug)]
pub(super) struct State {
    epoch: u64,
    activity: Activity,
    /// Its sums without a count of cycles grew by more than a percent for each millisecond: they are something else.
    refuted: bool,
    /// Where the firmware has no usable sums: the driver's percent, taken to hold until the next reading.
    sampled: [Integral; 2],
    /// Numbers of the hardware that only grow: energy, XGMI both ways.
    raw: [Option<u64>; 3],
    errors: Option<(Instant, Vec<Fact>)>,
    /// The form of its table is not known, which was said.
    unknown: Option<(u8, u8)>,
}

impl State {
    pub(super) fn new(beginning: u64) -> Self {
        Self {
            // A GPU that comes back restarts, and each of its own resets is another restart.
            epoch: beginning << 32,
            activity: Activity::default(),
            refuted: false,
            sampled: [Integral::default(), Integral::default()],
            raw: [None; 3],
            errors: None,
            unknown: None,
        }
    }

    /// Reads everything of a GPU but its processes.
    pub(super) fn read(
        &mut self,
        now: Instant,
        card: &Card,
        surveyed: Surveyed,
        files: &mut Attributes<'_>,
    ) -> Gpu {
        let metrics = self.metrics(card, files);
        let hwmon = Hwmon::find(&card.device, "amdgpu", files);
        let known_unit = |m: &&GpuMetrics| m.revision >= 4 || MI200.contains(&card.device_id);
        // A die whose board is measured by another die reports 0 (aldebaran_ppt.c).
        let energy = metrics.as_ref().filter(known_unit).and_then(|m| m.energy).filter(|counts| *counts > 0);
        let energy = energy.and_then(microjoules);
        let bytes = |kib: Option<u64>| kib.and_then(|kib| kib.checked_mul(1024));
        let received = bytes(metrics.as_ref().and_then(|m| m.xgmi_read));
        let sent = bytes(metrics.as_ref().and_then(|m| m.xgmi_written));
        let back =
            |pair: (&Option<u64>, &Option<u64>)| matches!(pair, (Some(now), Some(before)) if now < before);
        let raw = [energy, received, sent];
        let mut anew = raw.iter().zip(&self.raw).any(back);
        for (known, new) in self.raw.iter_mut().zip(raw) {
            *known = new.or(*known);
        }
        let table = metrics.as_ref().filter(|_| !self.refuted);
        let taken = table.and_then(reading).map(|reading| self.activity.add(reading));
        if taken == Some(Taken::Excessive) && table.is_some_and(|table| table.cycles.is_none()) {
            tracing::warn!(gpu = %card.pci, "activity grows by more than a percent a millisecond: gpu_busy_percent is used");
            self.refuted = true;
        }
        anew |= taken.is_some_and(|taken| taken != Taken::Continued);
        self.epoch += u64::from(anew);

        let mut sample = UnitSample::new(surveyed.unit, self.epoch);
        let [busy, memory_busy] = self.busy(now, card, taken.is_some(), files);
        let counts = [
            (Quantity::BUSY, busy),
            (Quantity::DRAM_ACTIVE, memory_busy),
            (Quantity::XGMI_RECEIVED, received),
            (Quantity::XGMI_TRANSMITTED, sent),
        ];
        sample.counts.extend(counts.into_iter().filter_map(|(quantity, value)| Some((quantity, value?))));
        sample.memory = facts::memory(&card.device, files);
        sample.facts = facts::others(&card.device, hwmon.as_ref(), metrics.as_ref(), files);
        sample.facts.extend(self.errors(now, card, files));
        let parts = surveyed.parts.into_iter().enumerate().map(|(number, unit)| {
            let mut part = UnitSample::new(unit, self.epoch);
            part.counts.extend(self.activity.busy(number + 2).map(|busy| (Quantity::BUSY, busy)));
            part
        });
        Gpu {
            pci: card.pci.clone(),
            serial: surveyed.serial,
            of_two: OF_TWO.contains(&card.device_id),
            parts: parts.collect(),
            sample,
            kfd: surveyed.nodes.iter().map(|node| node.id).collect(),
            energy,
            power: facts::power(hwmon.as_ref(), metrics.as_ref(), files),
        }
    }

    /// The firmware's table, where its form is known.
    fn metrics(&mut self, card: &Card, files: &mut Attributes<'_>) -> Option<GpuMetrics> {
        let bytes = files.bytes(&card.device, "gpu_metrics").filter(|bytes| !bytes.is_empty())?;
        let metrics = files.parsed(&card.device, "gpu_metrics", |_| parse_gpu_metrics(&bytes))?;
        if metrics.is_none() {
            let form = parse_header(&bytes).ok().map(|(_, format, content)| (format, content));
            if form != self.unknown {
                let (format, content) = form.unwrap_or_default();
                tracing::info!(gpu = %card.pci, format, content, "gpu_metrics of a form that is not known is not read");
                self.unknown = form;
            }
        }
        metrics
    }

    /// Nanoseconds in which the GPU and its memory were busy. Sums that are not read for once are absent: the next ones have
    /// what they missed.
    fn busy(
        &mut self,
        now: Instant,
        card: &Card,
        summed: bool,
        files: &mut Attributes<'_>,
    ) -> [Option<u64>; 2] {
        if !self.refuted && (summed || self.activity.is_read()) {
            let sum = |index| self.activity.busy(index).filter(|_| summed);
            return [sum(0), sum(1)];
        }
        let mut sums = [None; 2];
        for ((file, integral), sum) in
            ["gpu_busy_percent", "mem_busy_percent"].into_iter().zip(&mut self.sampled).zip(&mut sums)
        {
            match files.number(&card.device, file).filter(|percent| *percent <= 100) {
                Some(percent) => *sum = Some(integral.add(now, percent * PERCENT)),
                None => integral.interrupt(),
            }
        }
        sums
    }

    fn errors(&mut self, now: Instant, card: &Card, files: &mut Attributes<'_>) -> Vec<Fact> {
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < ERRORS_EVERY;
        match &self.errors {
            Some((at, facts)) if fresh(at) => facts.clone(),
            _ => {
                let facts = facts::errors(&card.device, files);
                self.errors = Some((now, facts.clone()));
                facts
            }
        }
    }
}

/// Counts of 2^-16 J.
fn microjoules(counts: u64) -> Option<u64> {
    u64::try_from(u128::from(counts) * 15625 / 1024).ok()
}

/// What of a table is added up.
fn reading(metrics: &GpuMetrics) -> Option<Reading> {
    let one = |sum: Option<u32>| sum.map(|sum| (u64::from(sum), 0));
    let at_ns = metrics.firmware_clock.and_then(|clock| clock.checked_mul(10)).or(metrics.system_clock)?;
    let mut sums = vec![one(metrics.gfx_activity_sum), one(metrics.memory_activity_sum)];
    sums.extend(&metrics.partitions);
    // The low 32 bits of milliseconds, as those of cycles are.
    let milliseconds = || u32::try_from((at_ns / 1_000_000) & 0xffff_ffff).ok();
    let cycles = metrics.cycles.or_else(|| metrics.gfx_activity_sum.and_then(|_| milliseconds()))?;
    Some(Reading { at_ns, cycles, sums })
}
