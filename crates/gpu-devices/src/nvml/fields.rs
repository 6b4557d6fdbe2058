//! The fields that one call reads (nvmlDeviceGetFieldValues), and the use of their answers.

use std::time::Duration;

use exposition::{Family, Value};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id as id;
use readings::Range;

use super::counts::Counts;
use super::raw::{Field, Number};
use crate::{Fact, Quantity, families};

/// All links together (nvml.h, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX).
const ALL_LINKS: u32 = u32::MAX;
/// Scopes of power (nvml.h, NVML_POWER_SCOPE_GPU and its like): the GPU, the module with its CPU, the memory.
const GPU: u32 = 0;
const MODULE: u32 = 1;
const MEMORY: u32 = 2;

/// What an answer is used for.
#[derive(Debug, Clone, Copy)]
enum Use {
    /// Energy, millijoules.
    Energy,
    /// A counter; one step is this much of the quantity.
    Count(&'static Quantity, u64),
    /// A fact with a label; the value is divided by this.
    Gauge(&'static Family, &'static [(&'static str, &'static str)], f64),
    /// What the driver wants done.
    Recovery,
}

type Row = (u32, u32, Use);

const fn measured(
    id: u32,
    family: &'static Family,
    labels: &'static [(&'static str, &'static str)],
    divisor: f64,
) -> Row {
    (id, 0, Use::Gauge(family, labels, divisor))
}

const fn power(
    id: u32,
    scope: u32,
    family: &'static Family,
    labels: &'static [(&'static str, &'static str)],
) -> Row {
    (id, scope, Use::Gauge(family, labels, 1e3))
}

const NANOSECONDS: f64 = 1e9;
const WHOLE: f64 = 1.0;

/// What is asked for in each sample.
static EACH: &[Row] = &[
    (id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0, Use::Energy),
    (id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, Use::Count(Quantity::PCIE_TRANSMITTED, 1)),
    (id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, Use::Count(Quantity::PCIE_RECEIVED, 1)),
    (id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS, Use::Count(Quantity::NVLINK_TRANSMITTED, 1024)),
    (id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS, Use::Count(Quantity::NVLINK_RECEIVED, 1024)),
    power(id::NVML_FI_DEV_POWER_AVERAGE, GPU, &families::POWER, &[("scope", "gpu")]),
    power(id::NVML_FI_DEV_POWER_AVERAGE, MODULE, &families::POWER, &[("scope", "module")]),
    power(id::NVML_FI_DEV_POWER_AVERAGE, MEMORY, &families::POWER, &[("scope", "memory")]),
    power(id::NVML_FI_DEV_POWER_INSTANT, GPU, &families::POWER_INSTANT, &[("scope", "gpu")]),
    power(id::NVML_FI_DEV_POWER_INSTANT, MODULE, &families::POWER_INSTANT, &[("scope", "module")]),
    power(id::NVML_FI_DEV_POWER_INSTANT, MEMORY, &families::POWER_INSTANT, &[("scope", "memory")]),
    measured(id::NVML_FI_DEV_MEMORY_TEMP, &families::TEMPERATURE, &[("sensor", "memory")], WHOLE),
    measured(
        id::NVML_FI_DEV_PERF_POLICY_POWER,
        &families::THROTTLE_SECONDS,
        &[("reason", "sw_power_cap")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
        &families::THROTTLE_SECONDS,
        &[("reason", "sync_boost")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
        &families::THROTTLE_SECONDS,
        &[("reason", "board_limit")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION,
        &families::THROTTLE_SECONDS,
        &[("reason", "low_utilization")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_PERF_POLICY_RELIABILITY,
        &families::THROTTLE_SECONDS,
        &[("reason", "reliability")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        &families::THROTTLE_SECONDS,
        &[("reason", "sw_thermal")],
        NANOSECONDS,
    ),
];

/// What is asked for once a minute: it hardly ever changes, or only adds up, and some of it takes milliseconds (the limits of
/// temperature, and the throttling by heat and by the power brake, on an H200).
static LASTING: &[Row] = &[
    power(id::NVML_FI_DEV_POWER_CURRENT_LIMIT, MODULE, &families::POWER_LIMIT, &[("limit", "module")]),
    measured(
        id::NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT,
        &families::TEMPERATURE_MARGIN_LIMIT,
        &[("limit", "shutdown")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT,
        &families::TEMPERATURE_MARGIN_LIMIT,
        &[("limit", "slowdown")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT,
        &families::TEMPERATURE_MARGIN_LIMIT,
        &[("limit", "memory_max")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT,
        &families::TEMPERATURE_MARGIN_LIMIT,
        &[("limit", "gpu_max")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_PERF_POLICY_THERMAL,
        &families::THROTTLE_SECONDS,
        &[("reason", "thermal")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        &families::THROTTLE_SECONDS,
        &[("reason", "hw_thermal")],
        NANOSECONDS,
    ),
    measured(
        id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        &families::THROTTLE_SECONDS,
        &[("reason", "hw_power_brake")],
        NANOSECONDS,
    ),
    measured(id::NVML_FI_DEV_ECC_CURRENT, &families::ECC_ENABLED, &[], WHOLE),
    measured(
        id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
        &families::ECC_ERRORS,
        &[("since", "load"), ("type", "corrected"), ("location", "")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
        &families::ECC_ERRORS,
        &[("since", "load"), ("type", "uncorrected"), ("location", "")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
        &families::ECC_ERRORS,
        &[("since", "life"), ("type", "corrected"), ("location", "")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
        &families::ECC_ERRORS,
        &[("since", "life"), ("type", "uncorrected"), ("location", "")],
        WHOLE,
    ),
    measured(id::NVML_FI_DEV_RETIRED_SBE, &families::RETIRED_PAGES, &[("cause", "corrected")], WHOLE),
    measured(id::NVML_FI_DEV_RETIRED_DBE, &families::RETIRED_PAGES, &[("cause", "uncorrected")], WHOLE),
    measured(id::NVML_FI_DEV_RETIRED_PENDING, &families::RETIRED_PAGES_PENDING, &[], WHOLE),
    measured(id::NVML_FI_DEV_REMAPPED_COR, &families::REMAPPED_ROWS, &[("cause", "corrected")], WHOLE),
    measured(id::NVML_FI_DEV_REMAPPED_UNC, &families::REMAPPED_ROWS, &[("cause", "uncorrected")], WHOLE),
    measured(id::NVML_FI_DEV_REMAPPED_PENDING, &families::REMAPPED_ROWS_PENDING, &[], WHOLE),
    measured(id::NVML_FI_DEV_REMAPPED_FAILURE, &families::REMAPPED_ROWS_FAILED, &[], WHOLE),
    measured(id::NVML_FI_DEV_PCIE_REPLAY_COUNTER, &families::PCIE_REPLAYS, &[], WHOLE),
    measured(
        id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
        &families::NVLINK_ERRORS,
        &[("type", "crc_flit")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
        &families::NVLINK_ERRORS,
        &[("type", "crc_data")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
        &families::NVLINK_ERRORS,
        &[("type", "replay")],
        WHOLE,
    ),
    measured(
        id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
        &families::NVLINK_ERRORS,
        &[("type", "recovery")],
        WHOLE,
    ),
    (id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0, Use::Recovery),
];

/// What each link is asked for, and what its errors are called.
static OF_A_LINK: &[(u32, &str)] = &[
    (id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, "replay"),
    (id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, "recovery"),
    (id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC, "crc"),
    (id::NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, "receive"),
    (id::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, "symbol"),
    (id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, "effective"),
];

/// nvml.h, nvmlDeviceGpuRecoveryAction_t.
const ACTIONS: [&str; 5] = ["none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"];

/// The fields that this GPU may have.
#[derive(Debug)]
pub(super) struct Batch {
    rows: Vec<&'static Row>,
    fields: Vec<Field>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::of(EACH)
    }
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(super) struct FieldValues {
    pub(super) facts: Vec<Fact>,
    /// Some are not for this process.
    pub(super) denied: bool,
}

/// How long ago the last batch was, and how many bytes a second PCIe can move.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Since {
    pub(super) passed: Option<Duration>,
    pub(super) pcie: Option<u64>,
}

/// Batches are no closer together, but for those of other orders than the period's.
const CLOSEST: Duration = Duration::from_millis(500);

impl Since {
    /// The most that a counter can have grown.
    fn most(self, quantity: &'static Quantity) -> Option<u64> {
        // NVLink 5: 18 links of 50 GB/s in each direction.
        const NVLINK: u64 = 900_000_000_000;
        let pcie = [Quantity::PCIE_RECEIVED, Quantity::PCIE_TRANSMITTED].contains(&quantity);
        let rate = if pcie { self.pcie? } else { NVLINK };
        let milliseconds = u64::try_from(self.passed?.as_millis()).ok()?;
        rate.checked_mul(milliseconds)?.checked_div(1000)
    }
}

/// A number of the driver as a sample's value, divided.
fn value(number: Number, divisor: f64) -> Option<Value> {
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds and milliwatts to 15 digits")]
    let float = match number {
        Number::Unsigned(whole, _) if divisor == WHOLE => return Some(whole.into()),
        Number::Unsigned(whole, _) => whole as f64,
        Number::Signed(whole) => whole as f64,
        Number::Float(float) => float,
    };
    float.is_finite().then(|| (float / divisor).into())
}

fn unsigned(number: Number) -> Option<(u64, u32)> {
    match number {
        Number::Unsigned(value, bits) => Some((value, bits)),
        Number::Signed(value) => Some((u64::try_from(value).ok()?, 64)),
        Number::Float(_) => None,
    }
}

impl Batch {
    fn of(rows: &'static [Row]) -> Self {
        let rows: Vec<_> = rows.iter().collect();
        let fields = rows.iter().map(|(id, scope, _)| Field { id: *id, scope: *scope }).collect();
        Self { rows, fields }
    }

    /// What hardly ever changes.
    pub(super) fn lasting() -> Self {
        Self::of(LASTING)
    }

    /// What to ask for.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Uses the answers, and does not ask again for what this GPU does not have. A 32-bit counter that may have
    /// wrapped more than once since the last batch is skipped; one that always may have is not asked for again.
    pub(super) fn take(
        &mut self,
        answers: &[Result<Number, NvmlError>],
        since: Since,
        counts: &mut Counts,
    ) -> FieldValues {
        let mut values = FieldValues::default();
        let mut had = Vec::with_capacity(answers.len());
        for ((_, _, used), answer) in self.rows.iter().zip(answers) {
            had.push(match answer {
                Ok(number) => use_answer(*used, *number, since, counts, &mut values),
                Err(error) => {
                    values.denied |= matches!(error, NvmlError::NoPermission);
                    !matches!(error, NvmlError::NotSupported | NvmlError::InvalidArg)
                }
            });
        }
        if had.contains(&false) {
            let mut keep = had.iter();
            self.rows.retain(|_| keep.next().copied().unwrap_or(true));
            let mut keep = had.iter();
            self.fields.retain(|_| keep.next().copied().unwrap_or(true));
        }
        values
    }
}

/// Whether to ask again.
fn use_answer(
    used: Use,
    number: Number,
    since: Since,
    counts: &mut Counts,
    values: &mut FieldValues,
) -> bool {
    match used {
        Use::Energy => {
            if let Some((reading, _)) = unsigned(number) {
                counts.energy(reading);
            }
        }
        Use::Count(quantity, factor) => {
            let Some((reading, bits)) = unsigned(number) else { return false };
            let range = match 1u64.checked_shl(bits) {
                Some(at) => Range::Wraps { at },
                None => Range::Full,
            };
            if let Range::Wraps { at } = range {
                let covers = |since: Since| since.most(quantity).map(|most| most / factor < at);
                if covers(Since { passed: Some(CLOSEST), ..since }) == Some(false) {
                    counts.without_driver(quantity);
                    return false;
                }
                if covers(since) != Some(true) {
                    counts.begin(quantity, reading, range);
                    return true;
                }
            }
            counts.advance(quantity, reading, range, factor);
        }
        Use::Gauge(family, labels, divisor) => {
            if let Some(value) = value(number, divisor) {
                let labels = labels.iter().map(|(key, value)| (*key, (*value).into())).collect();
                values.facts.push(Fact { family, labels, value });
            }
        }
        Use::Recovery => {
            let Some((action, _)) = unsigned(number) else { return false };
            for (name, at) in ACTIONS.into_iter().zip(0..) {
                values.facts.push(Fact::with(
                    &families::RECOVERY_ACTION,
                    "action",
                    name,
                    u64::from(at == action),
                ));
            }
        }
    }
    true
}

/// How many links there are.
pub(super) const LINKS: Field = Field { id: id::NVML_FI_DEV_NVLINK_LINK_COUNT, scope: 0 };

/// The answer to [`LINKS`]; `None` if it is no number of links.
pub(super) fn number_of_links(answers: &[Result<Number, NvmlError>]) -> Option<u32> {
    let (links, _) = unsigned(*answers.first()?.as_ref().ok()?)?;
    u32::try_from(links).ok().filter(|links| *links <= 64)
}

/// The fields of this many links.
pub(super) fn of_links(links: u32) -> Vec<Field> {
    let ids = std::iter::once(id::NVML_FI_DEV_NVLINK_GET_STATE).chain(OF_A_LINK.iter().map(|(id, _)| *id));
    ids.flat_map(|id| (0..links).map(move |scope| Field { id, scope })).collect()
}

/// Links that are up, and the errors of all together; a kind that some link did not answer for is left out, since the sum
/// would go back. What no link has is absent.
pub(super) fn link_facts(fields: &[Field], answers: &[Result<Number, NvmlError>]) -> Vec<Fact> {
    let sum = |id: u32| {
        let mut sum = None;
        for (_, answer) in fields.iter().zip(answers).filter(|(field, _)| field.id == id) {
            match answer {
                Ok(number) => sum = Some(sum.unwrap_or(0u64).saturating_add(unsigned(*number)?.0)),
                Err(NvmlError::NotSupported | NvmlError::InvalidArg) => {}
                Err(_) => return None,
            }
        }
        sum
    };
    let active =
        sum(id::NVML_FI_DEV_NVLINK_GET_STATE).map(|links| Fact::plain(&families::NVLINK_ACTIVE, links));
    let errors = OF_A_LINK
        .iter()
        .filter_map(|(id, kind)| Some(Fact::with(&families::NVLINK_ERRORS, "type", *kind, sum(*id)?)));
    active.into_iter().chain(errors).collect()
}

#[cfg(test)]
mod tests;
