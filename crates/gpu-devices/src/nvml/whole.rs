//! The values of a whole GPU that have no field: memory, clocks, temperatures, utilisation, modes.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode, PerformanceState, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use super::ask::{Asker, Notes, Stop};
use super::raw::{Handle, Library};
use crate::{Fact, Memory, families};

const CLOCKS: [(Clock, &str, &str, &str); 4] = [
    (Clock::Graphics, "graphics", "nvmlDeviceGetClockInfo(graphics)", "nvmlDeviceGetMaxClockInfo(graphics)"),
    (Clock::SM, "sm", "nvmlDeviceGetClockInfo(sm)", "nvmlDeviceGetMaxClockInfo(sm)"),
    (Clock::Memory, "memory", "nvmlDeviceGetClockInfo(memory)", "nvmlDeviceGetMaxClockInfo(memory)"),
    (Clock::Video, "video", "nvmlDeviceGetClockInfo(video)", "nvmlDeviceGetMaxClockInfo(video)"),
];

const REASONS: [(ThrottleReasons, &str); 9] = [
    (ThrottleReasons::GPU_IDLE, "idle"),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "applications_clocks"),
    (ThrottleReasons::SW_POWER_CAP, "sw_power_cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hw_slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync_boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "sw_thermal"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hw_thermal"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "hw_power_brake"),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display_clocks"),
];

fn hertz(megahertz: u32) -> f64 {
    f64::from(megahertz) * 1e6
}

fn ratio(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// Memory of a GPU or a part of one.
pub(super) fn read_memory(
    library: &Library,
    handle: Handle,
    asker: &mut Asker,
    notes: &mut Notes,
) -> Result<Option<Memory>, Stop> {
    let answer = asker.ask("nvmlDeviceGetMemoryInfo_v2", notes, || library.device(handle).memory_info())?;
    if let Some(m) = answer {
        return Ok(Some(Memory { total: m.total, used: m.used, free: m.free, reserved: Some(m.reserved) }));
    }
    let answer = asker.ask("nvmlDeviceGetMemoryInfo", notes, || library.memory_before_510(handle))?;
    Ok(answer.map(|(total, used, free)| Memory { total, used, free, reserved: None }))
}

/// What one reading of a GPU shares.
pub(super) struct Reader<'a> {
    pub(super) library: &'a Library,
    pub(super) handle: Handle,
    pub(super) asker: &'a mut Asker,
    pub(super) notes: &'a mut Notes,
    pub(super) facts: &'a mut Vec<Fact>,
}

type Device<'a> = nvml_wrapper::Device<'a>;

impl Reader<'_> {
    fn ask<T>(
        &mut self,
        call: &'static str,
        ask: impl FnOnce(&Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, Stop> {
        let device = self.library.device(self.handle);
        self.asker.ask(call, self.notes, || ask(&device))
    }

    fn ask_raw<T>(
        &mut self,
        call: &'static str,
        ask: impl FnOnce(&Library, Handle) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, Stop> {
        let (library, handle) = (self.library, self.handle);
        self.asker.ask(call, self.notes, || ask(library, handle))
    }

    fn add_facts(&mut self, facts: impl IntoIterator<Item = Fact>) {
        self.facts.extend(facts);
    }

    /// Clocks; that of the multiprocessors is returned, Hz.
    pub(super) fn clocks(&mut self) -> Result<Option<f64>, Stop> {
        let mut sm = None;
        for (clock, name, call, _) in CLOCKS {
            let answer = self.ask(call, |device| device.clock_info(clock))?.map(hertz);
            self.add_facts(answer.map(|hertz| Fact::with(&families::CLOCK, "clock", name, hertz)));
            sm = if name == "sm" { answer } else { sm };
        }
        Ok(sm)
    }

    /// The fraction of the last sampling period in which the GPU was busy; reported together with the other engines.
    pub(super) fn utilization(&mut self) -> Result<Option<f64>, Stop> {
        let rates = self.ask("nvmlDeviceGetUtilizationRates", |device| device.utilization_rates())?;
        let encoder = self.ask("nvmlDeviceGetEncoderUtilization", |device| device.encoder_utilization())?;
        let decoder = self.ask("nvmlDeviceGetDecoderUtilization", |device| device.decoder_utilization())?;
        let jpeg = self.ask_raw("nvmlDeviceGetJpgUtilization", Library::jpeg_utilization)?;
        let flow = self.ask_raw("nvmlDeviceGetOfaUtilization", Library::optical_flow_utilization)?;
        let engines = [
            ("gpu", rates.as_ref().map(|rates| rates.gpu)),
            ("memory", rates.as_ref().map(|rates| rates.memory)),
            ("encoder", encoder.map(|encoder| encoder.utilization)),
            ("decoder", decoder.map(|decoder| decoder.utilization)),
            ("jpeg", jpeg),
            ("optical_flow", flow),
        ];
        for (engine, percent) in engines {
            let percent = percent.filter(|percent| *percent <= 100);
            self.add_facts(
                percent.map(|percent| Fact::with(&families::UTILIZATION, "engine", engine, ratio(percent))),
            );
        }
        Ok(rates.map(|rates| ratio(rates.gpu.min(100))))
    }

    /// Temperatures, power beyond the fields, throttling, performance state, fans.
    pub(super) fn condition(&mut self) -> Result<(), Stop> {
        let sensor = TemperatureSensor::Gpu;
        let gpu = self.ask("nvmlDeviceGetTemperature", |device| device.temperature(sensor))?;
        self.add_facts(
            gpu.map(|degrees| Fact::with(&families::TEMPERATURE, "sensor", "gpu", f64::from(degrees))),
        );
        let margin = self.ask_raw("nvmlDeviceGetMarginTemperature", Library::temperature_margin)?;
        self.add_facts(margin.map(|degrees| Fact::plain(&families::TEMPERATURE_MARGIN, f64::from(degrees))));
        if !self.answer(&families::POWER, "gpu") {
            let power = self.ask("nvmlDeviceGetPowerUsage", |device| device.power_usage())?;
            self.add_facts(power.map(|power| Fact::with(&families::POWER, "scope", "gpu", watts(power))));
        }
        let enforced = self.ask("nvmlDeviceGetEnforcedPowerLimit", |device| device.enforced_power_limit())?;
        self.add_facts(
            enforced.map(|power| Fact::with(&families::POWER_LIMIT, "limit", "enforced", watts(power))),
        );
        let reasons =
            self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", |d| d.current_throttle_reasons())?;
        if let Some(reasons) = reasons {
            let answer = REASONS.map(|(reason, name)| (name, u64::from(reasons.contains(reason))));
            self.add_facts(
                answer.map(|(name, active)| Fact::with(&families::THROTTLE, "reason", name, active)),
            );
        }
        let state = self.ask("nvmlDeviceGetPerformanceState", |device| device.performance_state())?;
        let state = state.filter(|state| *state != PerformanceState::Unknown);
        self.add_facts(state.map(|state| Fact::plain(&families::PERFORMANCE_STATE, u64::from(state.as_c()))));
        let fans = self.ask("nvmlDeviceGetNumFans", |device| device.num_fans())?.unwrap_or(0);
        for fan in 0..fans.min(16) {
            let speed = self.ask("nvmlDeviceGetFanSpeed_v2", |device| device.fan_speed(fan))?;
            self.add_facts(
                speed.map(|percent| Fact::with(&families::FAN, "fan", fan.to_string(), ratio(percent))),
            );
        }
        Ok(())
    }

    /// The PCIe link as it is.
    pub(super) fn pcie(&mut self) -> Result<(), Stop> {
        let generation = self.ask("nvmlDeviceGetCurrPcieLinkGeneration", |d| d.current_pcie_link_gen())?;
        let width = self.ask("nvmlDeviceGetCurrPcieLinkWidth", |d| d.current_pcie_link_width())?;
        self.add_facts(
            generation.map(|g| Fact::with(&families::PCIE_GENERATION, "state", "current", u64::from(g))),
        );
        self.add_facts(width.map(|w| Fact::with(&families::PCIE_WIDTH, "state", "current", u64::from(w))));
        Ok(())
    }

    /// What hardly ever changes. The fastest that PCIe can be, bytes a second, is returned.
    pub(super) fn lasting(&mut self) -> Result<Option<u64>, Stop> {
        for (clock, name, _, call) in CLOCKS {
            let answer = self.ask(call, |device| device.max_clock_info(clock))?;
            self.add_facts(answer.map(|max| Fact::with(&families::CLOCK_MAX, "clock", name, hertz(max))));
        }
        let generation = self.ask("nvmlDeviceGetMaxPcieLinkGeneration", |d| d.max_pcie_link_gen())?;
        let width = self.ask("nvmlDeviceGetMaxPcieLinkWidth", |d| d.max_pcie_link_width())?;
        self.add_facts(
            generation.map(|g| Fact::with(&families::PCIE_GENERATION, "state", "max", u64::from(g))),
        );
        self.add_facts(width.map(|w| Fact::with(&families::PCIE_WIDTH, "state", "max", u64::from(w))));
        let bar1 = self.ask("nvmlDeviceGetBAR1MemoryInfo", |device| device.bar1_memory_info())?;
        self.add_facts(bar1.into_iter().flat_map(|bar1| {
            [("used", bar1.used), ("free", bar1.free)]
                .map(|(s, bytes)| Fact::with(&families::BAR1, "state", s, bytes))
        }));
        let mode = self.ask("nvmlDeviceGetComputeMode", |device| device.compute_mode())?;
        let mode = mode.map(|mode| match mode {
            ComputeMode::Default => "default",
            ComputeMode::ExclusiveThread => "exclusive_thread",
            ComputeMode::Prohibited => "prohibited",
            ComputeMode::ExclusiveProcess => "exclusive_process",
        });
        self.add_facts(mode.map(|mode| Fact::with(&families::COMPUTE_MODE, "mode", mode, 1u64)));
        let persistent = self.ask("nvmlDeviceGetPersistenceMode", |device| device.is_in_persistent_mode())?;
        self.add_facts(
            persistent.map(|persistent| Fact::plain(&families::PERSISTENCE, u64::from(persistent))),
        );
        self.limits()?;
        Ok(generation.zip(width).and_then(|(generation, width)| pcie_rate(generation, width)))
    }

    /// Power limits; newer drivers have fields with the same values.
    fn limits(&mut self) -> Result<(), Stop> {
        let mut add_facts = |limit: &'static str, power: Option<u32>| {
            self.facts
                .extend(power.map(|power| Fact::with(&families::POWER_LIMIT, "limit", limit, watts(power))));
        };
        let device = self.library.device(self.handle);
        let default = self.asker.ask("nvmlDeviceGetPowerManagementDefaultLimit", self.notes, || {
            device.power_management_limit_default()
        })?;
        add_facts("default", default);
        let current = self
            .asker
            .ask("nvmlDeviceGetPowerManagementLimit", self.notes, || device.power_management_limit())?;
        add_facts("current", current);
        let range = self.asker.ask("nvmlDeviceGetPowerManagementLimitConstraints", self.notes, || {
            device.power_management_limit_constraints()
        })?;
        add_facts("min", range.as_ref().map(|range| range.min_limit));
        add_facts("max", range.as_ref().map(|range| range.max_limit));
        Ok(())
    }

    fn answer(&self, family: &exposition::Family, label: &str) -> bool {
        self.facts.iter().any(|f| std::ptr::eq(f.family, family) && f.labels.iter().any(|(_, v)| v == label))
    }
}

/// Bytes a second of a PCIe link in one direction: 2.5 GT/s of 8b/10b for the first generation, doubled with each.
fn pcie_rate(generation: u32, width: u32) -> Option<u64> {
    let lane = 250_000_000u64.checked_shl(generation.checked_sub(1)?)?;
    lane.checked_mul(width.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_moves_what_its_generation_says() {
        assert_eq!(pcie_rate(1, 1), Some(250_000_000));
        assert_eq!(pcie_rate(4, 16), Some(32_000_000_000));
        assert_eq!(pcie_rate(0, 16), None);
        assert_eq!(pcie_rate(99, 16), None);
    }
}
