//! How a simulated board is, in the words of NVIDIA's driver.

use std::borrow::Cow;

use exposition::{Family, Value};
use gpu_devices::{Fact, families as f};

use super::node_gpus::{Board, FAST, SLOW_AT};
use crate::random::real;

/// What may hold clocks down, and whether it does.
type Reason = (&'static str, fn(&Board) -> bool);

const REASONS: [Reason; 9] = [
    ("idle", Board::is_idle),
    ("applications_clocks", |_| false),
    ("sw_power_cap", |_| false),
    ("hw_slowdown", |_| false),
    ("sync_boost", |_| false),
    ("sw_thermal", |board| board.slow),
    ("hw_thermal", |_| false),
    ("hw_power_brake", |_| false),
    ("display_clocks", |_| false),
];

const ACTIONS: [&str; 5] = ["none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"];
/// Xid 63: a row of memory is to be replaced.
const REMAPPING: &str = "63";
/// Corrected errors of a GPU's run before.
const EARLIER: u64 = 41;

/// What differs from board to board: row, its label, and the value.
type Reading = (&'static Family, &'static [(&'static str, &'static str)], fn(&Board) -> Value);

fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

const READINGS: [Reading; 20] = [
    (&f::TEMPERATURE, &[("sensor", "gpu")], |board| board.degrees.round().into()),
    (&f::TEMPERATURE, &[("sensor", "memory")], |board| (board.degrees + 6.0).round().into()),
    (&f::TEMPERATURE_MARGIN, &[], |board| (SLOW_AT - board.degrees).round().into()),
    (&f::POWER, &[("scope", "gpu")], |board| tenth(board.watts).into()),
    (&f::CLOCK, &[("clock", "sm")], |board| (board.clock() * 1_000_000).into()),
    (&f::CLOCK, &[("clock", "memory")], |_| 2_619_000_000_u64.into()),
    (&f::CLOCK_MAX, &[("clock", "sm")], |_| (FAST * 1_000_000).into()),
    (&f::CLOCK_MAX, &[("clock", "memory")], |_| 2_619_000_000_u64.into()),
    (&f::THROTTLE_SECONDS, &[("reason", "sw_thermal")], |board| (real(board.slowed) / 1e6).into()),
    (&f::THROTTLE_SECONDS, &[("reason", "hw_thermal")], |_| 0.0.into()),
    (&f::THROTTLE_SECONDS, &[("reason", "sw_power_cap")], |_| 0.0.into()),
    (&f::ECC_ERRORS, &[("since", "load"), ("type", "corrected")], |board| board.errors.into()),
    (&f::ECC_ERRORS, &[("since", "load"), ("type", "uncorrected")], |_| 0_u64.into()),
    (&f::ECC_ERRORS, &[("since", "life"), ("type", "corrected")], |board| (board.errors + EARLIER).into()),
    (&f::ECC_ERRORS, &[("since", "life"), ("type", "uncorrected")], |_| 0_u64.into()),
    (&f::REMAPPED_ROWS, &[("cause", "corrected")], |board| board.rows.into()),
    (&f::REMAPPED_ROWS, &[("cause", "uncorrected")], |_| 0_u64.into()),
    (&f::REMAPPED_ROWS_PENDING, &[], |board| u64::from(board.rows > 0).into()),
    (&f::REMAPPED_ROWS_FAILED, &[], |_| 0_u64.into()),
    (&f::NVLINK_ERRORS, &[("type", "replay")], |_| 0_u64.into()),
];

/// What is the same of all boards.
const SETTINGS: [Reading; 13] = [
    (&f::POWER_LIMIT, &[("limit", "enforced")], |_| 700.0.into()),
    (&f::POWER_LIMIT, &[("limit", "current")], |_| 700.0.into()),
    (&f::POWER_LIMIT, &[("limit", "default")], |_| 700.0.into()),
    (&f::POWER_LIMIT, &[("limit", "min")], |_| 200.0.into()),
    (&f::POWER_LIMIT, &[("limit", "max")], |_| 700.0.into()),
    (&f::ECC_ENABLED, &[], |_| 1_u64.into()),
    (&f::PCIE_REPLAYS, &[], |_| 0_u64.into()),
    (&f::PCIE_GENERATION, &[("state", "current")], |_| 5_u64.into()),
    (&f::PCIE_GENERATION, &[("state", "max")], |_| 5_u64.into()),
    (&f::PCIE_WIDTH, &[("state", "current")], |_| 16_u64.into()),
    (&f::PCIE_WIDTH, &[("state", "max")], |_| 16_u64.into()),
    (&f::NVLINK_ACTIVE, &[], |_| 18_u64.into()),
    (&f::PERFORMANCE_STATE, &[], |_| 0_u64.into()),
];

/// The driver.
pub(super) fn driver() -> Fact {
    let labels = [("vendor", "nvidia"), ("version", "570.0"), ("library", "570.0"), ("cuda", "12.8")];
    let labels = labels.map(|(key, value)| (key, Cow::Borrowed(value)));
    Fact { labels: labels.into(), ..Fact::plain(&f::DRIVER, 1_u64) }
}

/// How a board is, of which so many rows had been replaced when it was read first.
pub(super) fn facts(board: &Board, divided: bool, rows: u64) -> Vec<Fact> {
    let readings = READINGS.iter().chain(&SETTINGS).map(|(family, labels, value)| Fact {
        labels: labels.iter().map(|(key, label)| (*key, Cow::Borrowed(*label))).collect(),
        ..Fact::plain(family, value(board))
    });
    let mut facts: Vec<Fact> = readings.collect();
    facts.push(Fact::plain(&f::MIG_MODE, u64::from(divided)));
    facts.extend(
        ACTIONS.map(|action| Fact::with(&f::RECOVERY_ACTION, "action", action, u64::from(action == "none"))),
    );
    if board.rows > rows {
        facts.push(Fact::with(&f::XID_ERRORS, "code", REMAPPING, board.rows - rows));
    }
    let active = |(reason, is): Reason| Fact::with(&f::THROTTLE, "reason", reason, u64::from(is(board)));
    facts.extend(REASONS.map(active));
    // A divided GPU does not report it.
    if !divided {
        for (engine, part) in [("gpu", board.busy), ("memory", board.dram)] {
            facts.push(Fact::with(&f::UTILIZATION, "engine", engine, (part * 100.0).round() / 100.0));
        }
    }
    facts
}
