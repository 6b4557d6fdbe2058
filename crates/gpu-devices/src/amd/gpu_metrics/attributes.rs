//! `gpu_metrics` of revision 1.9: a list of attributes, each with what it is, its unit and its type
//! (drivers/gpu/drm/amd/include/kgd_pp_interface.h, `AMDGPU_METRICS_ENC_ATTR`; packed, pm/swsmu/smu_cmn.h).

use kernel_files::parse::ParseError;

use super::GpuMetrics;

/// Content revision of format 1.
pub(super) const REVISION: u8 = 9;
const TORN: ParseError = ParseError { line: 1, reason: "an attribute beyond the table's end" };

// `enum amdgpu_metrics_attr_unit`.
const NONE: u8 = 0;
const MHZ: u8 = 1;
const CELSIUS: u8 = 2;
const WATTS: u8 = 3;
const NANOSECONDS: u8 = 4;
const TEN_NANOSECONDS: u8 = 5;
const TENTH_OF_GT: u8 = 7;
const KIB: u8 = 9;
const PERCENT: u8 = 10;

/// An attribute: its values, those that are all ones left out.
struct Attribute {
    id: u16,
    unit: u8,
    /// Bytes of a value.
    width: usize,
    values: Vec<u64>,
}

impl Attribute {
    /// Its only value.
    fn one(&self) -> Option<u64> {
        self.values.first().copied()
    }

    fn short(&self) -> Option<u16> {
        self.one().and_then(|value| u16::try_from(value).ok())
    }

    /// One that wraps at 32 bits.
    fn wrapping(&self) -> Option<u32> {
        self.one().filter(|_| self.width == 4).and_then(|value| u32::try_from(value).ok())
    }

    fn sum(&self) -> Option<u64> {
        self.values.iter().copied().reduce(u64::wrapping_add)
    }
}

/// The attribute at the beginning, and what comes after it.
fn next(bytes: &[u8]) -> Result<(Attribute, &[u8]), ParseError> {
    let (code, rest) = bytes.split_at_checked(8).ok_or(TORN)?;
    let code = u64::from_le_bytes(code.try_into().map_err(|_| TORN)?);
    let bits = |shift: u32, width: u32| (code >> shift) & ((1 << width) - 1);
    // Types come in pairs, unsigned and signed, each twice as wide as the one before.
    let width = match bits(20, 4) {
        0 | 1 => 1,
        2 | 3 => 2,
        4 | 5 => 4,
        6 | 7 => 8,
        _ => return Err(ParseError::new(1, "an attribute of an unknown type")),
    };
    let count = usize::try_from(bits(0, 10)).unwrap_or_default();
    let (values, rest) = rest.split_at_checked(width * count).ok_or(TORN)?;
    let values = values.chunks_exact(width).filter(|value| value.iter().any(|byte| *byte != 0xff));
    let number = |value: &[u8]| value.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    let id = u16::try_from(bits(10, 10)).unwrap_or(u16::MAX);
    let unit = u8::try_from(bits(24, 8)).unwrap_or(u8::MAX);
    Ok((Attribute { id, unit, width, values: values.map(number).collect() }, rest))
}

/// Parses a whole table. The ids are those of `enum amdgpu_metrics_attr_id`; one of another unit is passed over.
pub(super) fn parse(table: &[u8]) -> Result<GpuMetrics, ParseError> {
    let (head, mut rest) = table.split_at_checked(8).ok_or(TORN)?;
    let count = head.get(4..).and_then(|count| count.try_into().ok()).map(u32::from_le_bytes).ok_or(TORN)?;
    let mut metrics = GpuMetrics { revision: REVISION, ..GpuMetrics::default() };
    for _ in 0..count {
        let (attribute, after) = next(rest)?;
        rest = after;
        take(&mut metrics, &attribute);
    }
    if rest.is_empty() { Ok(metrics) } else { Err(ParseError::new(1, "more than its attributes")) }
}

fn take(metrics: &mut GpuMetrics, a: &Attribute) {
    match (a.id, a.unit) {
        (0, CELSIUS) => metrics.temperatures.extend(a.short().map(|celsius| ("junction", celsius))),
        (1, CELSIUS) => metrics.temperatures.extend(a.short().map(|celsius| ("mem", celsius))),
        (2, CELSIUS) => metrics.temperatures.extend(a.short().map(|celsius| ("vr_soc", celsius))),
        (3, WATTS) => metrics.socket_power = a.short(),
        (4, PERCENT) => metrics.gfx_activity = a.short(),
        (5, PERCENT) => metrics.memory_activity = a.short(),
        (7, NONE) => metrics.energy = a.one(),
        (8, NANOSECONDS) => metrics.system_clock = a.one(),
        (9, NONE) => metrics.cycles = a.one().and_then(|cycles| u32::try_from(cycles & 0xffff_ffff).ok()),
        (16, NONE) => metrics.pcie_width = a.short(),
        (17, TENTH_OF_GT) => metrics.pcie_speed = a.short(),
        (20, PERCENT) => metrics.gfx_activity_sum = a.wrapping(),
        (21, PERCENT) => metrics.memory_activity_sum = a.wrapping(),
        (25, NONE) => metrics.pcie_replays = a.one(),
        (29, KIB) => metrics.xgmi_read = a.sum(),
        (30, KIB) => metrics.xgmi_written = a.sum(),
        (32, TEN_NANOSECONDS) => metrics.firmware_clock = a.one(),
        (33, MHZ) => clock(metrics, "gfx", a),
        (34, MHZ) => clock(metrics, "soc", a),
        (37, MHZ) => clock(metrics, "memory", a),
        _ => {}
    }
}

fn clock(metrics: &mut GpuMetrics, domain: &'static str, a: &Attribute) {
    let mean = a.sum().and_then(|sum| sum.checked_div(a.values.len() as u64));
    metrics.clocks.extend(mean.map(|mhz| (domain, mhz)));
}
