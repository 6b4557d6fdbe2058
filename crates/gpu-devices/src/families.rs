//! The families of what a GPU is and of its present state: of the whole GPU, exported as read.

use exposition::{Family, Profile};

/// Temperature by sensor.
pub static TEMPERATURE: Family = Family::gauge("jobledger_gpu_temperature_celsius")
    .labels(&["gpu", "uuid", "sensor"])
    .help("Temperature by sensor");
/// Degrees that are left.
pub static TEMPERATURE_MARGIN: Family = Family::gauge("jobledger_gpu_temperature_margin_celsius")
    .labels(&["gpu", "uuid"])
    .help("How much warmer the GPU may get before it slows itself down; below 0 it is warmer than that");
/// Where the margin is when something happens.
pub static TEMPERATURE_MARGIN_LIMIT: Family = Family::gauge("jobledger_gpu_temperature_margin_limit_celsius")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "limit"])
    .help("The margin at which the GPU reaches its highest operating temperature, slows down or shuts down");
/// Power by scope.
pub static POWER: Family = Family::gauge("jobledger_gpu_power_watts")
    .labels(&["gpu", "uuid", "scope"])
    .help("Power reported by the board, on most boards a mean over one second");
/// Power at the moment.
pub static POWER_INSTANT: Family = Family::gauge("jobledger_gpu_power_instant_watts")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "scope"])
    .help("Power reported by the board at the moment of reading");
/// What power is held to.
pub static POWER_LIMIT: Family =
    Family::gauge("jobledger_gpu_power_limit_watts").labels(&["gpu", "uuid", "limit"]).help(
        "Power limits: the one in force with everything taken into account (enforced), the one \
         that was set (current), the factory's (default), and the range that may be set (min, max)",
    );
/// How much of a moment the engines were busy.
pub static UTILIZATION: Family =
    Family::gauge("jobledger_gpu_utilization_ratio").labels(&["gpu", "uuid", "engine"]).help(
        "Part of the driver's last sampling period, 1/6 to 1 second, in which a \
         kernel ran (gpu), memory was read or written (memory), or the engine worked",
    );
/// The window of the GPU's memory that the CPU sees.
pub static BAR1: Family = Family::gauge("jobledger_gpu_bar1_bytes")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "state"])
    .help("The window through which the CPU and other devices reach the GPU's memory, used and free");
/// Clocks.
pub static CLOCK: Family = Family::gauge("jobledger_gpu_clock_hertz")
    .labels(&["gpu", "uuid", "clock"])
    .help("Clock at the moment of reading");
/// Highest clocks.
pub static CLOCK_MAX: Family = Family::gauge("jobledger_gpu_clock_max_hertz")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "clock"])
    .help("Highest clock that the GPU can have");
/// What holds the clocks down.
pub static THROTTLE: Family = Family::gauge("jobledger_gpu_throttle_active")
    .labels(&["gpu", "uuid", "reason"])
    .help("Whether the clocks are held down for this reason at the moment of reading, 1 or 0");
/// How long the clocks were held down.
pub static THROTTLE_SECONDS: Family = Family::counter("jobledger_gpu_throttle_seconds_total")
    .labels(&["gpu", "uuid", "reason"])
    .help("Time in which the clocks were held down for this reason, since the driver was loaded");
/// Errors of memory.
pub static ECC_ERRORS: Family = Family::counter("jobledger_gpu_ecc_errors_total")
    .labels(&["gpu", "uuid", "since", "type", "location"])
    .help(
        "Errors of memories, corrected and uncorrected, since the driver was loaded (load) and \
         over the life of the GPU (life); location is empty where all are counted together",
    );
/// Whether errors are corrected.
pub static ECC_ENABLED: Family = Family::gauge("jobledger_gpu_ecc_enabled")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid"])
    .help("Whether error correction of the GPU's memory is on, 1 or 0");
/// Pages taken out of use.
pub static RETIRED_PAGES: Family = Family::gauge("jobledger_gpu_retired_pages")
    .labels(&["gpu", "uuid", "cause"])
    .help("Pages of memory that are out of use for corrected or uncorrected errors; GPUs before Ampere");
/// Pages about to be taken out of use.
pub static RETIRED_PAGES_PENDING: Family = Family::gauge("jobledger_gpu_retired_pages_pending")
    .labels(&["gpu", "uuid"])
    .help("Whether pages are to be taken out of use when the GPU is next reset, 1 or 0");
/// Rows of memory replaced by spare ones.
pub static REMAPPED_ROWS: Family =
    Family::gauge("jobledger_gpu_remapped_rows").labels(&["gpu", "uuid", "cause"]).help(
        "Rows of memory that were replaced by spare ones for \
         corrected or uncorrected errors; Ampere and later",
    );
/// Rows about to be replaced.
pub static REMAPPED_ROWS_PENDING: Family = Family::gauge("jobledger_gpu_remapped_rows_pending")
    .labels(&["gpu", "uuid"])
    .help("Whether rows are to be replaced when the GPU is next reset, 1 or 0");
/// No spare row.
pub static REMAPPED_ROWS_FAILED: Family = Family::gauge("jobledger_gpu_remapped_rows_failed")
    .labels(&["gpu", "uuid"])
    .help("Whether a row could not be replaced, 1 or 0: the GPU has to be");
/// Xids.
pub static XID_ERRORS: Family = Family::counter("jobledger_gpu_xid_errors_total")
    .labels(&["gpu", "uuid", "code"])
    .help("Errors that the driver reported by their Xid code, since this exporter first opened the driver");
/// PCIe replays.
pub static PCIE_REPLAYS: Family = Family::counter("jobledger_gpu_pcie_replays_total")
    .labels(&["gpu", "uuid"])
    .help("Packets that were sent again over PCIe, since the driver was loaded");
/// PCIe generation.
pub static PCIE_GENERATION: Family = Family::gauge("jobledger_gpu_pcie_link_generation")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "state"])
    .help("Generation of the PCIe link, as it is now and at most; an idle GPU may fall back to a lower one");
/// PCIe lanes.
pub static PCIE_WIDTH: Family = Family::gauge("jobledger_gpu_pcie_link_lanes")
    .labels(&["gpu", "uuid", "state"])
    .help("Lanes of the PCIe link, as they are now and at most");
/// NVLink errors.
pub static NVLINK_ERRORS: Family =
    Family::counter("jobledger_gpu_nvlink_errors_total").labels(&["gpu", "uuid", "type"]).help(
        "Errors on all NVLinks of the GPU together, since the driver was \
         loaded; read once a minute where each link has its own counter",
    );
/// NVLinks that are up.
pub static NVLINK_ACTIVE: Family = Family::gauge("jobledger_gpu_nvlink_active_links")
    .labels(&["gpu", "uuid"])
    .help("NVLinks that are up, read once a minute");
/// Fans.
pub static FAN: Family = Family::gauge("jobledger_gpu_fan_speed_ratio")
    .labels(&["gpu", "uuid", "fan"])
    .help("Speed that the fan is to have, as a part of its highest, which some may exceed");
/// Performance state.
pub static PERFORMANCE_STATE: Family = Family::gauge("jobledger_gpu_performance_state")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid"])
    .help("Performance state: 0 is the fastest, 15 the slowest");
/// What is to be done.
pub static RECOVERY_ACTION: Family =
    Family::gauge("jobledger_gpu_recovery_action").labels(&["gpu", "uuid", "action"]).help(
        "Whether the driver asks for this to bring the GPU back into \
         order, 1 or 0; 1 for none when all is well",
    );
/// Processes.
pub static PROCESSES: Family = Family::gauge("jobledger_gpu_processes")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "kind"])
    .help("Processes on the GPU that compute, draw, or compute through an MPS server");
/// Who may use it.
pub static COMPUTE_MODE: Family = Family::info("jobledger_gpu_compute_mode_info")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "mode"])
    .help(
        "Who may compute on the GPU: any number of processes \
         (default), one (exclusive_process), none (prohibited)",
    );
/// Persistence.
pub static PERSISTENCE: Family = Family::gauge("jobledger_gpu_persistence_mode")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid"])
    .help("Whether the driver remains loaded without clients, 1 or 0");
/// Memory of the host that the GPU can reach.
pub static HOST_MEMORY: Family = Family::gauge("jobledger_gpu_system_memory_bytes")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid", "state"])
    .help("The host's memory that the GPU can use: all of it (total), and what is taken (used)");
/// MIG.
pub static MIG_MODE: Family = Family::gauge("jobledger_gpu_mig_mode")
    .profile(Profile::Full)
    .labels(&["gpu", "uuid"])
    .help("Whether the GPU can be divided into parts (MIG) now, 1 or 0");

/// The driver.
pub static DRIVER: Family = Family::info("jobledger_gpu_driver_info")
    .profile(Profile::Full)
    .labels(&["vendor", "version", "library", "cuda"])
    .help("Version of the driver, of the library that asks it, and of the CUDA that it supports");

/// All of them.
pub fn all() -> Vec<&'static Family> {
    let mut rows: Vec<&'static Family> =
        vec![&TEMPERATURE, &TEMPERATURE_MARGIN, &TEMPERATURE_MARGIN_LIMIT, &POWER, &POWER_INSTANT];
    rows.extend([&POWER_LIMIT, &UTILIZATION, &BAR1, &CLOCK, &CLOCK_MAX, &THROTTLE, &THROTTLE_SECONDS]);
    rows.extend([&ECC_ERRORS, &ECC_ENABLED, &RETIRED_PAGES, &RETIRED_PAGES_PENDING, &REMAPPED_ROWS]);
    rows.extend([&REMAPPED_ROWS_PENDING, &REMAPPED_ROWS_FAILED, &XID_ERRORS, &PCIE_REPLAYS]);
    rows.extend([&PCIE_GENERATION, &PCIE_WIDTH, &NVLINK_ERRORS, &NVLINK_ACTIVE, &FAN, &PERFORMANCE_STATE]);
    rows.extend([&RECOVERY_ACTION, &PROCESSES, &COMPUTE_MODE, &PERSISTENCE, &HOST_MEMORY, &MIG_MODE]);
    rows.extend([&DRIVER]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_help_are_of_the_form_that_the_catalogue_has() {
        for family in all() {
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
