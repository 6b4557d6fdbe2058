//! Facts about an AMD GPU's present state.

use kernel_files::Dir;
use kernel_files::parse::{ParseError, colon_keyed, integer};

use super::gpu_metrics::GpuMetrics;
use crate::drm::{Attributes, Hwmon, hwmon_facts, link_generation};
use crate::{Fact, Memory, families};

/// Limits of the whole board (Documentation/gpu/amdgpu/thermal.rst).
const LIMITS: [(&str, &str); 4] = [
    ("current", "power1_cap"),
    ("default", "power1_cap_default"),
    ("min", "power1_cap_min"),
    ("max", "power1_cap_max"),
];
/// Bits of what holds clocks down, whatever the GPU (drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h): power, current,
/// temperature by where, and the host's own signal.
const REASONS: [(&str, u64); 6] = [
    ("power", 0x0000_0000_0000_00ff),
    ("current", 0x0000_0000_00ff_0000),
    ("thermal", 0x0000_0c3b_0000_0000),
    ("memory_thermal", 0x0000_0004_0000_0000),
    ("voltage_regulator_thermal", 0x0000_33c0_0000_0000),
    ("external", 0x0000_c000_0000_0000),
];

/// Errors of a block of the GPU since the driver was loaded (`ras/umc_err_count`; amdgpu_ras.c): uncorrected, corrected,
/// and deferred: found, and handled when it is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Errors {
    /// `ue`
    pub uncorrected: Option<u64>,
    /// `ce`
    pub corrected: Option<u64>,
    /// `de`
    pub deferred: Option<u64>,
}

/// Parses `*_err_count`.
pub fn parse_errors(bytes: &[u8]) -> Result<Errors, ParseError> {
    let mut errors = Errors::default();
    let mut bad = bytes.last().is_some_and(|last| *last != b'\n');
    colon_keyed(bytes, |key, value| {
        let field = match key {
            b"ue" => &mut errors.uncorrected,
            b"ce" => &mut errors.corrected,
            b"de" => &mut errors.deferred,
            _ => return,
        };
        *field = integer(value);
        bad |= field.is_none();
    });
    if bad { Err(ParseError::new(1, "not a count of errors")) } else { Ok(errors) }
}

/// Errors of every block that counts them. Each is asked of the hardware, so not at every reading.
pub(super) fn errors(device: &Dir, files: &mut Attributes<'_>) -> Vec<Fact> {
    let mut facts = Vec::new();
    for file in device.open_dir("ras").and_then(|dir| dir.list()).unwrap_or_default() {
        let Some(block) = file.name.strip_suffix("_err_count") else { continue };
        let Some(errors) = files.parsed(device, &format!("ras/{}", file.name), parse_errors) else {
            continue;
        };
        for (kind, count) in [
            ("uncorrected", errors.uncorrected),
            ("corrected", errors.corrected),
            ("deferred", errors.deferred),
        ] {
            facts.extend(count.map(|count| Fact {
                labels: vec![
                    ("since", "load".into()),
                    ("type", kind.into()),
                    ("location", block.to_owned().into()),
                ],
                ..Fact::plain(&families::ECC_ERRORS, count)
            }));
        }
    }
    facts
}

/// Memory of the GPU (Documentation/gpu/amdgpu/driver-misc.rst).
pub(super) fn memory(device: &Dir, files: &mut Attributes<'_>) -> Option<Memory> {
    let total = files.number(device, "mem_info_vram_total")?;
    let used = files.number(device, "mem_info_vram_used")?;
    Some(Memory { total, used, free: total.saturating_sub(used), reserved: None })
}

/// Power of the board, watts: the mean and the present value, each where the GPU has it.
pub(super) fn power(
    hwmon: Option<&Hwmon>,
    metrics: Option<&GpuMetrics>,
    files: &mut Attributes<'_>,
) -> Vec<Fact> {
    let sensor = |file: &str, files: &mut Attributes<'_>| hwmon.and_then(|hwmon| hwmon.number(file, files));
    #[expect(clippy::cast_precision_loss, reason = "a board draws less than a gigawatt")]
    let watts = |microwatts: u64| microwatts as f64 / 1e6;
    let (old, new) = match metrics {
        Some(metrics) if metrics.revision < 4 => (metrics.socket_power, None),
        Some(metrics) => (None, metrics.socket_power),
        None => (None, None),
    };
    let average = sensor("power1_average", files).map(watts).or(old.map(f64::from));
    let instant = sensor("power1_input", files).map(watts).or(new.map(f64::from));
    let both = [(&families::POWER, average), (&families::POWER_INSTANT, instant)];
    // A die whose board is measured by another die reports 0 W (aldebaran_ppt.c).
    let there =
        both.into_iter().filter_map(|(family, watts)| Some((family, watts.filter(|watts| *watts > 0.0)?)));
    there.map(|(family, watts)| Fact::with(family, "scope", "gpu", watts)).collect()
}

/// Everything else.
pub(super) fn others(
    device: &Dir,
    hwmon: Option<&Hwmon>,
    metrics: Option<&GpuMetrics>,
    files: &mut Attributes<'_>,
) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(hwmon) = hwmon {
        hwmon_facts(hwmon, &[], &LIMITS, files, &mut facts);
    }
    from_metrics(hwmon, metrics, files, &mut facts);
    for (engine, file) in
        [("gfx", "gpu_busy_percent"), ("memory", "mem_busy_percent"), ("video", "vcn_busy_percent")]
    {
        #[expect(clippy::cast_precision_loss, reason = "percent")]
        let ratio = files
            .number(device, file)
            .filter(|percent| *percent <= 100)
            .map(|percent| percent as f64 / 100.0);
        facts.extend(ratio.map(|ratio| Fact::with(&families::UTILIZATION, "engine", engine, ratio)));
    }
    for (state, file) in [("total", "mem_info_gtt_total"), ("used", "mem_info_gtt_used")] {
        let bytes = files.number(device, file);
        facts.extend(bytes.map(|bytes| Fact::with(&families::HOST_MEMORY, "state", state, bytes)));
    }
    link(device, files, &mut facts);
    let replays = files.number(device, "pcie_replay_count").or(metrics.and_then(|m| m.pcie_replays));
    facts.extend(replays.map(|count| Fact::plain(&families::PCIE_REPLAYS, count)));
    facts
}

/// The PCIe link (Documentation/ABI/testing/sysfs-bus-pci).
pub(crate) fn link(device: &Dir, files: &mut Attributes<'_>, facts: &mut Vec<Fact>) {
    for (kind, speed, width) in
        [("current", "current_link_speed", "current_link_width"), ("max", "max_link_speed", "max_link_width")]
    {
        let generation = files.bytes(device, speed).and_then(|text| link_generation(&text));
        facts.extend(generation.map(|g| Fact::with(&families::PCIE_GENERATION, "state", kind, g)));
        let width = files.number(device, width).filter(|width| (1..=32).contains(width));
        facts.extend(width.map(|lanes| Fact::with(&families::PCIE_WIDTH, "state", kind, lanes)));
    }
}

fn from_metrics(
    hwmon: Option<&Hwmon>,
    metrics: Option<&GpuMetrics>,
    files: &mut Attributes<'_>,
    facts: &mut Vec<Fact>,
) {
    let hertz = |mhz: u64| mhz.saturating_mul(1_000_000);
    let Some(metrics) = metrics else {
        for (domain, file) in [("gfx", "freq1_input"), ("memory", "freq2_input")] {
            let clock = hwmon.and_then(|hwmon| hwmon.number(file, files));
            facts.extend(clock.map(|hertz| Fact::with(&families::CLOCK, "clock", domain, hertz)));
        }
        return;
    };
    // hwmon has edge, junction and mem with more digits.
    let has = |facts: &[Fact], name: &str| {
        facts.iter().any(|f| {
            std::ptr::eq(f.family, &families::TEMPERATURE) && f.labels.iter().any(|(_, label)| label == name)
        })
    };
    for (sensor, celsius) in &metrics.temperatures {
        if !has(facts, sensor) && (1..1000).contains(celsius) {
            facts.push(Fact::with(&families::TEMPERATURE, "sensor", *sensor, f64::from(*celsius)));
        }
    }
    facts
        .extend(metrics.clocks.iter().map(|(d, mhz)| Fact::with(&families::CLOCK, "clock", *d, hertz(*mhz))));
    if let Some(status) = metrics.throttle {
        let active = |bits: u64| u64::from(status & bits != 0);
        let reasons =
            REASONS.iter().map(|(why, bits)| Fact::with(&families::THROTTLE, "reason", *why, active(*bits)));
        facts.extend(reasons);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_by_kind() {
        let old = Errors { uncorrected: Some(1), corrected: Some(22), deferred: None };
        assert_eq!(parse_errors(b"ue: 1\nce: 22\n"), Ok(old));
        let deferred = Some(3);
        assert_eq!(parse_errors(b"ue: 1\nce: 22\nde: 3\n"), Ok(Errors { deferred, ..old }));
        assert_eq!(parse_errors(b"Query currently inaccessible\n"), Ok(Errors::default()));
        assert!(parse_errors(b"ue: 1\nce: 2").is_err());
        assert!(parse_errors(b"ue: -1\n").is_err());
    }
}
