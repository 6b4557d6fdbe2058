//! Rows of the catalogue for what a GPU is and how it is: nobody's, and told as it was read.

use crate::metric::{Family, Unit, node_family};

macro_rules! of_gpu {
    ($($(#[$doc:meta])* $id:ident, $name:literal, $kind:ident, $unit:expr, [$($label:literal),*], $help:literal;)*) => {
        $(node_family!($(#[$doc])* pub $id, Node, $name, $kind, $unit, ["gpu", "uuid" $(, $label)*], $help, "0.1.0");)*
        const OF_A_GPU: &[&Family] = &[$(&$id),*];
    };
}

of_gpu! {
    /// Temperature by sensor.
    TEMPERATURE, "jobledger_gpu_temperature_celsius", Gauge, Some(Unit::Celsius), ["sensor"],
        "Temperature by sensor";
    /// Degrees that are left.
    TEMPERATURE_MARGIN, "jobledger_gpu_temperature_margin_celsius", Gauge, Some(Unit::Celsius), [],
        "How much warmer the GPU may get before it slows itself down; below 0 it is warmer than that";
    /// Where the margin is when something happens.
    TEMPERATURE_MARGIN_LIMIT, "jobledger_gpu_temperature_margin_limit_celsius", Gauge, Some(Unit::Celsius), ["limit"],
        "The margin at which the GPU reaches its highest operating temperature, slows down or shuts down";
    /// Power by scope.
    POWER, "jobledger_gpu_power_watts", Gauge, Some(Unit::Watts), ["scope"],
        "Power as the board tells it, a mean over a second on most";
    /// Power at the moment.
    POWER_INSTANT, "jobledger_gpu_power_instant_watts", Gauge, Some(Unit::Watts), ["scope"],
        "Power at the moment of reading, as the board tells it";
    /// What power is held to.
    POWER_LIMIT, "jobledger_gpu_power_limit_watts", Gauge, Some(Unit::Watts), ["limit"],
        "Power limits: the one in force with everything taken into account (enforced), the one that was set (current), the factory's (default), and the range that may be set (min, max)";
    /// How much of a moment the engines were busy.
    UTILIZATION, "jobledger_gpu_utilization_ratio", Gauge, Some(Unit::Ratio), ["engine"],
        "Part of the driver's last sampling period, 1/6 to 1 second, in which a kernel ran (gpu), memory was read or written (memory), or the engine worked";
    /// The window of the GPU's memory that the CPU sees.
    BAR1, "jobledger_gpu_bar1_bytes", Gauge, Some(Unit::Bytes), ["state"],
        "The window through which the CPU and other devices reach the GPU's memory, used and free";
    /// Clocks.
    CLOCK, "jobledger_gpu_clock_hertz", Gauge, Some(Unit::Hertz), ["clock"],
        "Clock at the moment of reading";
    /// Highest clocks.
    CLOCK_MAX, "jobledger_gpu_clock_max_hertz", Gauge, Some(Unit::Hertz), ["clock"],
        "Highest clock that the GPU can have";
    /// What holds the clocks down.
    THROTTLE, "jobledger_gpu_throttle_active", Gauge, None, ["reason"],
        "Whether the clocks are held down for this reason at the moment of reading, 1 or 0";
    /// How long the clocks were held down.
    THROTTLE_SECONDS, "jobledger_gpu_throttle_seconds_total", Counter, Some(Unit::Seconds), ["reason"],
        "Time in which the clocks were held down for this reason, since the driver was loaded";
    /// Errors of memory.
    ECC_ERRORS, "jobledger_gpu_ecc_errors_total", Counter, None, ["since", "type", "location"],
        "Errors of memories, corrected and uncorrected, since the driver was loaded (load) and over the life of the GPU (life); location is empty where all are counted together";
    /// Whether errors are corrected.
    ECC_ENABLED, "jobledger_gpu_ecc_enabled", Gauge, None, [],
        "Whether error correction of the GPU's memory is on, 1 or 0";
    /// Pages taken out of use.
    RETIRED_PAGES, "jobledger_gpu_retired_pages", Gauge, None, ["cause"],
        "Pages of memory that are out of use for corrected or uncorrected errors; GPUs before Ampere";
    /// Pages about to be taken out of use.
    RETIRED_PAGES_PENDING, "jobledger_gpu_retired_pages_pending", Gauge, None, [],
        "Whether pages are to be taken out of use when the GPU is next reset, 1 or 0";
    /// Rows of memory replaced by spare ones.
    REMAPPED_ROWS, "jobledger_gpu_remapped_rows", Gauge, None, ["cause"],
        "Rows of memory that were replaced by spare ones for corrected or uncorrected errors; Ampere and later";
    /// Rows about to be replaced.
    REMAPPED_ROWS_PENDING, "jobledger_gpu_remapped_rows_pending", Gauge, None, [],
        "Whether rows are to be replaced when the GPU is next reset, 1 or 0";
    /// No spare row.
    REMAPPED_ROWS_FAILED, "jobledger_gpu_remapped_rows_failed", Gauge, None, [],
        "Whether a row could not be replaced, 1 or 0: the GPU has to be";
    /// Xids.
    XID_ERRORS, "jobledger_gpu_xid_errors_total", Counter, None, ["code"],
        "Errors that the driver reported by their Xid code, since this exporter first opened the driver";
    /// PCIe replays.
    PCIE_REPLAYS, "jobledger_gpu_pcie_replays_total", Counter, None, [],
        "Packets that were sent again over PCIe, since the driver was loaded";
    /// PCIe generation.
    PCIE_GENERATION, "jobledger_gpu_pcie_link_generation", Gauge, None, ["state"],
        "Generation of the PCIe link, as it is now and at most; an idle GPU may fall back to a lower one";
    /// PCIe lanes.
    PCIE_WIDTH, "jobledger_gpu_pcie_link_lanes", Gauge, None, ["state"],
        "Lanes of the PCIe link, as they are now and at most";
    /// NVLink errors.
    NVLINK_ERRORS, "jobledger_gpu_nvlink_errors_total", Counter, None, ["type"],
        "Errors on all NVLinks of the GPU together, since the driver was loaded; read once a minute where each link has its own counter";
    /// NVLinks that are up.
    NVLINK_ACTIVE, "jobledger_gpu_nvlink_active_links", Gauge, None, [],
        "NVLinks that are up, read once a minute";
    /// Fans.
    FAN, "jobledger_gpu_fan_speed_ratio", Gauge, Some(Unit::Ratio), ["fan"],
        "Speed that the fan is to have, as a part of its highest, which some may exceed";
    /// Performance state.
    PERFORMANCE_STATE, "jobledger_gpu_performance_state", Gauge, None, [],
        "Performance state: 0 is the fastest, 15 the slowest";
    /// What is to be done.
    RECOVERY_ACTION, "jobledger_gpu_recovery_action", Gauge, None, ["action"],
        "Whether the driver asks for this to bring the GPU back into order, 1 or 0; 1 for none when all is well";
    /// Processes.
    PROCESSES, "jobledger_gpu_processes", Gauge, None, ["kind"],
        "Processes on the GPU that compute, draw, or compute through an MPS server";
    /// Who may use it.
    COMPUTE_MODE, "jobledger_gpu_compute_mode_info", Info, None, ["mode"],
        "Who may compute on the GPU: any number of processes (default), one (exclusive_process), none (prohibited)";
    /// Persistence.
    PERSISTENCE, "jobledger_gpu_persistence_mode", Gauge, None, [],
        "Whether the driver stays loaded without clients, 1 or 0";
    /// Memory of the host that the GPU can reach.
    HOST_MEMORY, "jobledger_gpu_system_memory_bytes", Gauge, Some(Unit::Bytes), ["state"],
        "The host's memory that the GPU can use: all of it (total), and what is taken (used)";
    /// MIG.
    MIG_MODE, "jobledger_gpu_mig_mode", Gauge, None, [],
        "Whether the GPU can be divided into parts (MIG) now, 1 or 0";
}

node_family!(
    /// The driver.
    pub DRIVER,
    Node,
    "jobledger_gpu_driver_info",
    Info,
    None,
    ["vendor", "version", "library", "cuda"],
    "Version of the driver, of the library that asks it, and of the CUDA that it supports",
    "0.1.0"
);

/// All of them.
pub fn all() -> Vec<&'static Family> {
    OF_A_GPU.iter().copied().chain([&DRIVER]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_help_are_of_the_form_that_the_catalogue_has() {
        for family in all() {
            assert!(family.help.len() <= 240 && !family.help.ends_with('.'), "{}", family.name);
            assert!(family.name.starts_with("jobledger_gpu_"), "{}", family.name);
            assert_eq!(
                family.labels.first() == Some(&"gpu"),
                !std::ptr::eq(family, &DRIVER),
                "{}",
                family.name
            );
        }
    }
}
