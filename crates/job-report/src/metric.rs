//! The quantities of a report, and the exporter's series that they are read from (docs/metrics.md).

/// How a series is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A counter from the job's start on: its last value is the total, its slope the curve.
    Counter,
    /// A state: the curve is the value itself, and there is no total.
    Gauge,
    /// A state whose last value is worth a total: a limit, or a highest value so far.
    Last,
}

/// What a quantity is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The job on a node.
    Node,
    /// A GPU of the job.
    Gpu,
    /// A GPU that the job has, whoever uses it: the exporter's series names no job.
    Device,
    /// A node of the job with all that runs there: the exporter's series names no job.
    Host,
}

/// The unit of a quantity. A counter's curve is this per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds; of a counter's curve: how many at once.
    Seconds,
    /// Bytes.
    Bytes,
    /// Joules; of a counter's curve: watts.
    Joules,
    /// Cycles for each second.
    Hertz,
    /// Degrees.
    Celsius,
    /// A part of a whole, 0 to 1.
    Ratio,
    /// A number of things.
    Count,
}

impl Unit {
    /// The word in files and headings, as OpenMetrics writes it.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::Joules => "joules",
            Unit::Hertz => "hertz",
            Unit::Celsius => "celsius",
            Unit::Ratio => "ratio",
            Unit::Count => "",
        }
    }
}

/// A quantity of a job on a node, or of one of its GPUs.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in files: a contract.
    pub key: &'static str,
    /// The exporter's series.
    pub series: &'static str,
    /// Which of its series; those that remain are added up.
    pub labels: &'static [(&'static str, &'static str)],
    /// How it is read.
    pub kind: Kind,
    /// What it is of.
    pub level: Level,
    /// Its unit.
    pub unit: Unit,
    /// What it is, in a few words.
    pub help: &'static str,
}

impl Metric {
    /// Whether a series with these labels is a part of it. `get` gives a label's value, empty if it has none.
    pub fn matches<'a>(&self, series: &str, get: impl Fn(&str) -> &'a str) -> bool {
        self.series == series && self.labels.iter().all(|(name, value)| get(name) == *value)
    }

    /// Whether those of several nodes or GPUs can be added up. Of the others the highest counts: peaks come at different times.
    pub fn adds_up(&self) -> bool {
        let peaks = [&MEMORY_PEAK_BYTES, &GPU_MEMORY_PEAK_BYTES];
        self.level != Level::Device && !peaks.contains(&self)
    }

    /// Whether its series are the job's own. Of others a counter began before the job did.
    pub fn is_of_job(&self) -> bool {
        matches!(self.level, Level::Node | Level::Gpu)
    }

    /// Whether it is in reports, and not in exports alone.
    pub fn is_usual(&self) -> bool {
        self.is_of_job() && !IN_EXPORTS_ALONE.contains(&self)
    }
}

macro_rules! metrics {
    ($($level:ident { $($name:ident $key:literal $series:literal [$($label:literal = $value:literal),*] $kind:ident $unit:ident $help:literal;)* })*) => {
        $($(
            #[doc = $help]
            pub static $name: Metric = Metric {
                key: $key, series: $series, labels: &[$(($label, $value)),*], kind: Kind::$kind,
                level: Level::$level, unit: Unit::$unit, help: $help,
            };
        )*)*
        /// All of them, in the order of reports.
        pub static ALL: &[&Metric] = &[$($(&$name,)*)*];
    };
}

metrics! {
    Node {
        CPU_SECONDS "cpu_seconds" "jobledger_job_cpu_seconds_total" [] Counter Seconds "CPU time used";
        CPU_USER_SECONDS "cpu_user_seconds" "jobledger_job_cpu_seconds_total" ["mode" = "user"] Counter Seconds "CPU time used in user mode";
        CPU_SYSTEM_SECONDS "cpu_system_seconds" "jobledger_job_cpu_seconds_total" ["mode" = "system"] Counter Seconds "CPU time used in the kernel";
        CPU_ALLOCATED_SECONDS "cpu_allocated_seconds" "jobledger_job_allocated_cpu_seconds_total" [] Counter Seconds "CPU time held";
        CPU_THROTTLED_SECONDS "cpu_throttled_seconds" "jobledger_job_cpu_throttled_seconds_total" [] Counter Seconds "CPU time for which a bandwidth limit held tasks back";
        CPUS "cpus" "jobledger_job_cpus" [] Last Count "CPUs (hardware threads) held";
        MEMORY_PEAK_BYTES "memory_peak_bytes" "jobledger_job_memory_peak_bytes" [] Last Bytes "Most memory charged, page cache included";
        MEMORY_LIMIT_BYTES "memory_limit_bytes" "jobledger_job_memory_limit_bytes" [] Last Bytes "Memory that may be used";
        MEMORY_USED_BYTES "memory_used_bytes" "jobledger_job_memory_used_bytes" [] Gauge Bytes "Memory charged, page cache included";
        MEMORY_ANON_BYTES "memory_anon_bytes" "jobledger_job_memory_anon_bytes" [] Gauge Bytes "Anonymous memory";
        MEMORY_SHMEM_BYTES "memory_shmem_bytes" "jobledger_job_memory_shmem_bytes" [] Gauge Bytes "Shared memory and tmpfs";
        SWAP_USED_BYTES "swap_used_bytes" "jobledger_job_swap_used_bytes" [] Gauge Bytes "Swap space used";
        OOM_KILLS "oom_kills" "jobledger_job_oom_kills_total" [] Counter Count "Processes that the out-of-memory killer killed";
        PAGE_FAULTS_MAJOR "page_faults_major" "jobledger_job_page_faults_total" ["type" = "major"] Counter Count "Page faults that read from a device";
        PROCESSES "processes" "jobledger_job_processes" [] Gauge Count "Processes";
        THREADS "threads" "jobledger_job_threads" [] Gauge Count "Threads";
        IO_READ_BYTES "io_read_bytes" "jobledger_job_io_read_bytes_total" [] Counter Bytes "Read from block devices";
        IO_WRITTEN_BYTES "io_written_bytes" "jobledger_job_io_written_bytes_total" [] Counter Bytes "Written to block devices";
        IO_READS "io_reads" "jobledger_job_io_operations_total" ["direction" = "read"] Counter Count "Read operations on block devices";
        IO_WRITES "io_writes" "jobledger_job_io_operations_total" ["direction" = "write"] Counter Count "Write operations on block devices";
        SYSCALL_READ_BYTES "syscall_read_bytes" "jobledger_job_process_syscall_read_bytes_total" [] Counter Bytes "Returned by read calls, of any file";
        SYSCALL_WRITTEN_BYTES "syscall_written_bytes" "jobledger_job_process_syscall_written_bytes_total" [] Counter Bytes "Taken by write calls, to any file";
        LUSTRE_READ_BYTES "lustre_read_bytes" "jobledger_job_lustre_read_bytes_total" [] Counter Bytes "Read from Lustre while alone on the node";
        LUSTRE_WRITTEN_BYTES "lustre_written_bytes" "jobledger_job_lustre_written_bytes_total" [] Counter Bytes "Written to Lustre while alone on the node";
        NFS_READ_BYTES "nfs_read_bytes" "jobledger_job_nfs_read_bytes_total" [] Counter Bytes "Read from NFS while alone on the node";
        NFS_WRITTEN_BYTES "nfs_written_bytes" "jobledger_job_nfs_written_bytes_total" [] Counter Bytes "Written to NFS while alone on the node";
        NETWORK_RECEIVED_BYTES "network_received_bytes" "jobledger_job_network_received_bytes_total" [] Counter Bytes "Received by IP";
        NETWORK_TRANSMITTED_BYTES "network_transmitted_bytes" "jobledger_job_network_transmitted_bytes_total" [] Counter Bytes "Sent by IP";
        INFINIBAND_RECEIVED_BYTES "infiniband_received_bytes" "jobledger_job_infiniband_received_bytes_total" [] Counter Bytes "Received by InfiniBand while alone on the node";
        INFINIBAND_TRANSMITTED_BYTES "infiniband_transmitted_bytes" "jobledger_job_infiniband_transmitted_bytes_total" [] Counter Bytes "Sent by InfiniBand while alone on the node";
        ALONE_SECONDS "alone_seconds" "jobledger_job_alone_seconds_total" [] Counter Seconds "Time for which it was the only job on the node";
        ENERGY_JOULES "energy_joules" "jobledger_job_energy_joules_total" [] Counter Joules "Energy of CPUs, memory and overhead";
        ENERGY_PACKAGE_JOULES "energy_package_joules" "jobledger_job_energy_joules_total" ["domain" = "package"] Counter Joules "Energy of CPU packages";
        ENERGY_CORE_JOULES "energy_core_joules" "jobledger_job_core_energy_joules_total" [] Counter Joules "Energy of cores, as the CPU measures it: a part of that of packages";
        ENERGY_DRAM_JOULES "energy_dram_joules" "jobledger_job_energy_joules_total" ["domain" = "dram"] Counter Joules "Energy of memory";
        ENERGY_OVERHEAD_JOULES "energy_overhead_joules" "jobledger_job_energy_joules_total" ["domain" = "overhead"] Counter Joules "Energy of the rest of the node: board, fans, losses";
        INSTRUCTIONS "instructions" "jobledger_job_instructions_total" [] Counter Count "Instructions retired";
        CYCLES "cycles" "jobledger_job_cycles_total" [] Counter Count "CPU cycles";
        FLOPS "flops" "jobledger_job_flops_total" [] Counter Count "Floating-point operations";
        FLOPS_DOUBLE "flops_double" "jobledger_job_flops_total" ["precision" = "double"] Counter Count "Floating-point operations in double precision";
        FLOPS_SCALAR "flops_scalar" "jobledger_job_flops_total" ["width" = "scalar"] Counter Count "Floating-point operations that were not in vectors";
        FLOPS_ANY_WIDTH "flops_any_width" "jobledger_job_flops_total" ["width" = "any"] Counter Count "Floating-point operations that the CPU counts as one, in vectors or not";
        SLOTS "slots" "jobledger_job_pipeline_slots_total" [] Counter Count "Places for operations in the cycles of the CPUs";
        SLOTS_RETIRING "slots_retiring" "jobledger_job_pipeline_slots_total" ["category" = "retiring"] Counter Count "Slots of operations that were done";
        SLOTS_BAD_SPECULATION "slots_bad_speculation" "jobledger_job_pipeline_slots_total" ["category" = "bad_speculation"] Counter Count "Slots of operations that were given up";
        SLOTS_FRONTEND "slots_frontend" "jobledger_job_pipeline_slots_total" ["category" = "frontend"] Counter Count "Slots that waited for instructions";
        SLOTS_BACKEND "slots_backend" "jobledger_job_pipeline_slots_total" ["category" = "backend"] Counter Count "Slots that waited for data or units, on CPUs that count both as one";
        SLOTS_MEMORY "slots_backend_memory" "jobledger_job_pipeline_slots_total" ["category" = "backend_memory"] Counter Count "Slots that waited for memory";
        SLOTS_CORE "slots_backend_core" "jobledger_job_pipeline_slots_total" ["category" = "backend_core"] Counter Count "Slots that waited for the core's own units";
        MEMORY_LOAD_BYTES "memory_load_bytes" "jobledger_job_memory_load_bytes_total" [] Counter Bytes "Loaded from memory, as the cores count";
        MEMORY_TRAFFIC_BYTES "memory_traffic_bytes" "jobledger_job_memory_traffic_bytes_total" ["kind" = "dram"] Counter Bytes "Moved by the controllers of DRAM while the job had the socket alone";
        HBM_TRAFFIC_BYTES "hbm_traffic_bytes" "jobledger_job_memory_traffic_bytes_total" ["kind" = "hbm"] Counter Bytes "Moved by the controllers of HBM while the job had the socket alone";
        L3_EXTERNAL_BYTES "l3_external_bytes" "jobledger_job_memory_traffic_bytes_total" ["kind" = "l3_external"] Counter Bytes "Moved past the L3 caches, as resctrl counts the job";
        COUNTED_CPU_SECONDS "counted_cpu_seconds" "jobledger_job_counted_cpu_seconds_total" [] Counter Seconds "CPU time in which hardware counters counted";
        BUSIEST_CPU_INSTRUCTIONS "busiest_cpu_instructions" "jobledger_job_busiest_cpu_instructions_total" [] Counter Count "Instructions of the CPU that retired the most, found anew in each interval";
        CPUS_IDLE_SECONDS "cpus_idle_seconds" "jobledger_job_cpus_idle_seconds_total" [] Counter Seconds "Time of CPUs that did next to nothing, over all CPUs";
        WAITED_CPU_SECONDS "waited_cpu_seconds" "jobledger_job_pressure_seconds_total" ["resource" = "cpu", "kind" = "some"] Counter Seconds "Time in which a task waited for a CPU";
        WAITED_MEMORY_SECONDS "waited_memory_seconds" "jobledger_job_pressure_seconds_total" ["resource" = "memory", "kind" = "some"] Counter Seconds "Time in which a task waited for memory";
        WAITED_IO_SECONDS "waited_io_seconds" "jobledger_job_pressure_seconds_total" ["resource" = "io", "kind" = "some"] Counter Seconds "Time in which a task waited for storage";
        MEMORY_FILE_BYTES "memory_file_bytes" "jobledger_job_memory_file_bytes" [] Gauge Bytes "Page cache, and tmpfs";
        VIRTUAL_MEMORY_BYTES "virtual_memory_bytes" "jobledger_job_virtual_memory_bytes" [] Gauge Bytes "Virtual memory of its processes";
        UNIQUE_MEMORY_BYTES "unique_memory_bytes" "jobledger_job_unique_memory_bytes" [] Gauge Bytes "Memory that its processes share with nobody";
        OPEN_FILES "open_files" "jobledger_job_open_files" [] Gauge Count "Open files of its processes";
        CONTEXT_SWITCHES "context_switches" "jobledger_job_context_switches_total" [] Counter Count "Context switches";
        SYSCALL_READS "syscall_reads" "jobledger_job_process_io_syscalls_total" ["direction" = "read"] Counter Count "Read calls";
        SYSCALL_WRITES "syscall_writes" "jobledger_job_process_io_syscalls_total" ["direction" = "write"] Counter Count "Write calls";
        FLOPS_SINGLE "flops_single" "jobledger_job_flops_total" ["precision" = "single"] Counter Count "Floating-point operations in single precision";
        CPU_MIGRATIONS "cpu_migrations" "jobledger_job_cpu_migrations_total" [] Counter Count "Moves of a task to another CPU";
        BRANCHES "branches" "jobledger_job_branches_total" [] Counter Count "Branches";
        BRANCH_MISSES "branch_misses" "jobledger_job_branch_misses_total" [] Counter Count "Branches that were predicted wrongly";
        L1D_REFERENCES "l1d_references" "jobledger_job_cache_references_total" ["level" = "l1d"] Counter Count "Accesses to the L1 data caches";
        L1D_MISSES "l1d_misses" "jobledger_job_cache_misses_total" ["level" = "l1d"] Counter Count "Accesses to the L1 data caches that missed";
        L2_REFERENCES "l2_references" "jobledger_job_cache_references_total" ["level" = "l2"] Counter Count "Accesses to the L2 caches";
        L2_MISSES "l2_misses" "jobledger_job_cache_misses_total" ["level" = "l2"] Counter Count "Accesses to the L2 caches that missed";
        L3_REFERENCES "l3_references" "jobledger_job_cache_references_total" ["level" = "l3"] Counter Count "Accesses to the L3 caches";
        L3_MISSES "l3_misses" "jobledger_job_cache_misses_total" ["level" = "l3"] Counter Count "Accesses to the L3 caches that missed";
        NETWORK_RECEIVED_PACKETS "network_received_packets" "jobledger_job_network_received_packets_total" [] Counter Count "Packets received by IP";
        NETWORK_TRANSMITTED_PACKETS "network_transmitted_packets" "jobledger_job_network_transmitted_packets_total" [] Counter Count "Packets sent by IP";
        INFINIBAND_RECEIVED_PACKETS "infiniband_received_packets" "jobledger_job_infiniband_received_packets_total" [] Counter Count "Packets received by InfiniBand while alone on the node";
        INFINIBAND_TRANSMITTED_PACKETS "infiniband_transmitted_packets" "jobledger_job_infiniband_transmitted_packets_total" [] Counter Count "Packets sent by InfiniBand while alone on the node";
        SLINGSHOT_RECEIVED_BYTES "slingshot_received_bytes" "jobledger_job_slingshot_received_bytes_total" [] Counter Bytes "Received by Slingshot while alone on the node";
        SLINGSHOT_TRANSMITTED_BYTES "slingshot_transmitted_bytes" "jobledger_job_slingshot_transmitted_bytes_total" [] Counter Bytes "Sent by Slingshot while alone on the node";
    }
    Gpu {
        GPU_ALLOCATED_SECONDS "gpu_allocated_seconds" "jobledger_job_gpu_allocated_seconds_total" [] Counter Seconds "Time for which the job had the GPU";
        GPU_BUSY_SECONDS "gpu_busy_seconds" "jobledger_job_gpu_busy_seconds_total" [] Counter Seconds "Time in which a kernel ran";
        GPU_IDLE_SECONDS "gpu_idle_seconds" "jobledger_job_gpu_idle_seconds_total" [] Counter Seconds "Time in which none was seen to run";
        GPU_SM_ACTIVE_SECONDS "gpu_sm_active_seconds" "jobledger_job_gpu_sm_active_seconds_total" [] Counter Seconds "Time in which multiprocessors had work, mean over them";
        GPU_SM_OCCUPANCY_SECONDS "gpu_sm_occupancy_seconds" "jobledger_job_gpu_sm_occupancy_seconds_total" [] Counter Seconds "Time times the part of the warps that were there";
        GPU_TENSOR_ACTIVE_SECONDS "gpu_tensor_active_seconds" "jobledger_job_gpu_pipe_active_seconds_total" ["pipe" = "tensor"] Counter Seconds "Time in which tensor cores worked, mean over them";
        GPU_DRAM_ACTIVE_SECONDS "gpu_dram_active_seconds" "jobledger_job_gpu_dram_active_seconds_total" [] Counter Seconds "Time in which the GPU's memory moved data";
        GPU_MEMORY_USED_BYTES "gpu_memory_used_bytes" "jobledger_job_gpu_memory_used_bytes" [] Gauge Bytes "GPU memory used";
        GPU_MEMORY_PEAK_BYTES "gpu_memory_peak_bytes" "jobledger_job_gpu_memory_peak_bytes" [] Last Bytes "Most GPU memory used";
        GPU_MEMORY_LIMIT_BYTES "gpu_memory_limit_bytes" "jobledger_job_gpu_memory_limit_bytes" [] Last Bytes "GPU memory that there is";
        GPU_ENERGY_JOULES "gpu_energy_joules" "jobledger_job_gpu_energy_joules_total" [] Counter Joules "Energy of the GPU's board";
        GPU_PCIE_RECEIVED_BYTES "gpu_pcie_received_bytes" "jobledger_job_gpu_pcie_received_bytes_total" [] Counter Bytes "Received over PCIe";
        GPU_PCIE_TRANSMITTED_BYTES "gpu_pcie_transmitted_bytes" "jobledger_job_gpu_pcie_transmitted_bytes_total" [] Counter Bytes "Sent over PCIe";
        GPU_LINK_RECEIVED_BYTES "gpu_link_received_bytes" "jobledger_job_gpu_link_received_bytes_total" [] Counter Bytes "Received over links to other GPUs";
        GPU_LINK_TRANSMITTED_BYTES "gpu_link_transmitted_bytes" "jobledger_job_gpu_link_transmitted_bytes_total" [] Counter Bytes "Sent over links to other GPUs";
        GPU_PROCESSES "gpu_processes" "jobledger_job_gpu_processes" [] Gauge Count "Processes of the job that have the GPU open";
    }
    Device {
        GPU_SM_CLOCK_HERTZ "gpu_sm_clock_hertz" "jobledger_gpu_clock_hertz" ["clock" = "sm"] Gauge Hertz "Clock of the multiprocessors";
        GPU_MEMORY_CLOCK_HERTZ "gpu_memory_clock_hertz" "jobledger_gpu_clock_hertz" ["clock" = "memory"] Gauge Hertz "Clock of the GPU's memory";
        GPU_TEMPERATURE_CELSIUS "gpu_temperature_celsius" "jobledger_gpu_temperature_celsius" ["sensor" = "gpu"] Gauge Celsius "Temperature of the GPU";
        GPU_MEMORY_TEMPERATURE_CELSIUS "gpu_memory_temperature_celsius" "jobledger_gpu_temperature_celsius" ["sensor" = "memory"] Gauge Celsius "Temperature of the GPU's memory";
        GPU_GRAPHICS_CLOCK_HERTZ "gpu_graphics_clock_hertz" "jobledger_gpu_clock_hertz" ["clock" = "graphics"] Gauge Hertz "Clock of the graphics engine";
        GPU_MEMORY_UTILIZATION_RATIO "gpu_memory_utilization_ratio" "jobledger_gpu_utilization_ratio" ["engine" = "memory"] Gauge Ratio "Part of the driver's last sampling period in which memory was read or written";
        GPU_ENCODER_UTILIZATION_RATIO "gpu_encoder_utilization_ratio" "jobledger_gpu_utilization_ratio" ["engine" = "encoder"] Gauge Ratio "The same for the encoder of video";
        GPU_DECODER_UTILIZATION_RATIO "gpu_decoder_utilization_ratio" "jobledger_gpu_utilization_ratio" ["engine" = "decoder"] Gauge Ratio "The same for the decoder of video";
        GPU_FAN_SPEED_RATIO "gpu_fan_speed_ratio" "jobledger_gpu_fan_speed_ratio" ["fan" = "0"] Gauge Ratio "Speed that the first fan is to have, of its highest";
        GPU_BAR1_USED_BYTES "gpu_bar1_used_bytes" "jobledger_gpu_bar1_bytes" ["state" = "used"] Gauge Bytes "The window through which others reach the GPU's memory, used";
        GPU_POWER_THROTTLE_SECONDS "gpu_power_throttle_seconds" "jobledger_gpu_throttle_seconds_total" ["reason" = "sw_power_cap"] Counter Seconds "Time in which the power limit held the clocks down";
        GPU_THERMAL_THROTTLE_SECONDS "gpu_thermal_throttle_seconds" "jobledger_gpu_throttle_seconds_total" ["reason" = "thermal"] Counter Seconds "Time in which the temperature held the clocks down";
        GPU_ECC_CORRECTED "gpu_ecc_corrected" "jobledger_gpu_ecc_errors_total" ["since" = "load", "type" = "corrected"] Counter Count "Errors of the GPU's memories that were corrected";
        GPU_ECC_UNCORRECTED "gpu_ecc_uncorrected" "jobledger_gpu_ecc_errors_total" ["since" = "load", "type" = "uncorrected"] Counter Count "Errors of the GPU's memories that were not corrected";
    }
    Host {
        NODE_CPU_IDLE_SECONDS "node_cpu_idle_seconds" "jobledger_node_cpu_seconds_total" ["mode" = "idle"] Counter Seconds "Time of the node's CPUs without a task";
        NODE_CPU_IOWAIT_SECONDS "node_cpu_iowait_seconds" "jobledger_node_cpu_seconds_total" ["mode" = "iowait"] Counter Seconds "The same, while a task waited for storage";
        NODE_MEMORY_AVAILABLE_BYTES "node_memory_available_bytes" "jobledger_node_memory_available_bytes" [] Gauge Bytes "Memory of the node that programs could still have";
        NODE_HWMON_ENERGY_JOULES "node_hwmon_energy_joules" "jobledger_node_energy_joules_total" ["domain" = "node", "source" = "hwmon"] Counter Joules "Energy of the node by a power meter under hwmon";
        NODE_CRAY_ENERGY_JOULES "node_cray_energy_joules" "jobledger_node_energy_joules_total" ["domain" = "node", "source" = "cray_pm_counters"] Counter Joules "Energy of the node by Cray's node controller";
        NODE_IPMI_ENERGY_JOULES "node_ipmi_energy_joules" "jobledger_node_energy_joules_total" ["domain" = "node", "source" = "ipmi"] Counter Joules "Energy of the node by its BMC over IPMI";
        NODE_REDFISH_ENERGY_JOULES "node_redfish_energy_joules" "jobledger_node_energy_joules_total" ["domain" = "node", "source" = "redfish"] Counter Joules "Energy of the node by a Redfish service";
    }
}

/// Those that files have and reports do not, so that these ask a server for less.
static IN_EXPORTS_ALONE: [&Metric; 24] = [
    &MEMORY_FILE_BYTES,
    &VIRTUAL_MEMORY_BYTES,
    &UNIQUE_MEMORY_BYTES,
    &OPEN_FILES,
    &CONTEXT_SWITCHES,
    &SYSCALL_READS,
    &SYSCALL_WRITES,
    &FLOPS_SINGLE,
    &CPU_MIGRATIONS,
    &BRANCHES,
    &BRANCH_MISSES,
    &L1D_REFERENCES,
    &L1D_MISSES,
    &L2_REFERENCES,
    &L2_MISSES,
    &L3_REFERENCES,
    &L3_MISSES,
    &NETWORK_RECEIVED_PACKETS,
    &NETWORK_TRANSMITTED_PACKETS,
    &INFINIBAND_RECEIVED_PACKETS,
    &INFINIBAND_TRANSMITTED_PACKETS,
    &SLINGSHOT_RECEIVED_BYTES,
    &SLINGSHOT_TRANSMITTED_BYTES,
    &GPU_PROCESSES,
];

/// The one with this name in files.
pub fn by_key(key: &str) -> Option<&'static Metric> {
    ALL.iter().copied().find(|metric| metric.key == key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_units_are_in_them() {
        let keys: BTreeSet<_> = ALL.iter().map(|metric| metric.key).collect();
        assert_eq!(keys.len(), ALL.len());
        for metric in ALL {
            assert!(metric.key.ends_with(metric.unit.word()), "{}", metric.key);
            assert_eq!(metric.kind == Kind::Counter, metric.series.ends_with("_total"), "{}", metric.key);
            let prefix = ["gpu_", "node_"].into_iter().find(|prefix| metric.key.starts_with(prefix));
            let expected = match metric.level {
                Level::Node => None,
                Level::Gpu | Level::Device => Some("gpu_"),
                Level::Host => Some("node_"),
            };
            assert_eq!(prefix, expected, "{}", metric.key);
            // A number of its own follows from no label of a job alone.
            assert_eq!(metric.is_of_job(), metric.series.starts_with("jobledger_job_"), "{}", metric.key);
        }
    }

    #[test]
    fn the_exporter_has_the_series_and_their_labels() {
        let documented = include_str!("../../../docs/metrics.md");
        for metric in ALL {
            let row = documented.lines().find(|line| line.starts_with(&format!("| `{}` |", metric.series)));
            let row = row.unwrap_or_else(|| panic!("{} is in docs/metrics.md", metric.series));
            for (label, _) in metric.labels {
                assert!(row.contains(&format!("`{label}`")), "{}: {label}", metric.series);
            }
        }
    }

    #[test]
    fn the_documentation_has_all_columns() {
        let documented = include_str!("../../../docs/export.md");
        for metric in ALL {
            let per_second = if metric.kind == Kind::Counter { "_per_second" } else { "" };
            let row = format!("| `{}{per_second}` | {} |\n", metric.key, metric.help);
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_series_is_a_part_of_the_metrics_whose_labels_it_has() {
        let mode = |name: &str| if name == "mode" { "user" } else { "" };
        let parts: Vec<_> = ALL
            .iter()
            .filter(|m| m.matches("jobledger_job_cpu_seconds_total", mode))
            .map(|m| m.key)
            .collect();
        assert_eq!(parts, ["cpu_seconds", "cpu_user_seconds"]);
    }
}
