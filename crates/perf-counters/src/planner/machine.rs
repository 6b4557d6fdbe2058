//! The properties of a machine that a plan depends on, and where the kernel shows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use cpu_topology::microarchitecture::{Microarchitectures, parse_cpuinfo};
use kernel_files::parse::parse_integer;
use kernel_files::{NodeFiles, ReadError, Roots};
use perf_events::Attr;

use super::cpuid;
use crate::catalogue::{ARMV8, Catalogue, Core};
use crate::pmu::{DEVICES, Pmu, parse_field};

/// A machine, or one that is only assumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The microarchitecture's name, where it is known.
    pub microarchitecture: Option<String>,
    /// The PMUs of its cores, by name.
    pub pmus: Vec<Pmu>,
    /// The names of all PMUs, of memory controllers among them.
    pub pmu_names: BTreeSet<String>,
    /// Whether the hardware threads of a core share its counters. Switching SMT off while the system runs does not
    /// change that; only the firmware does.
    pub smt: bool,
    /// Whether the kernel's watchdog has a counter of each CPU.
    pub watchdog: bool,
    /// General-purpose counters of a hardware thread, where the CPU itself says.
    pub general: Option<u32>,
    /// Whether the kernel has `slots` and the `topdown-*` events that Intel's CPUs derive from them (PERF_METRICS). Hypervisors
    /// often keep them back, and the codes are then those of nothing.
    pub derives_slots: bool,
    /// Slots in a cycle of an ARM core (PMMIR_EL1), where the kernel shows them.
    pub slots: Option<u32>,
    /// Codes of the common events that ARM cores implement (PMCEID0_EL0, PMCEID1_EL0), where the kernel shows them.
    /// Other events can be opened, and read 0.
    pub arm_events: Option<BTreeSet<u64>>,
    /// Why there may be no PMUs of cores, where they could not be looked for.
    pub trouble: Option<String>,
}

impl Machine {
    /// This machine. Where the kernel is silent, the careful assumption holds: threads share counters, and the
    /// watchdog uses one.
    ///
    /// Reads `/proc/cpuinfo`, `/proc/sys/kernel/nmi_watchdog` (Documentation/admin-guide/sysctl/kernel.rst),
    /// `/sys/devices/system/cpu/smt` (Documentation/ABI/testing/sysfs-devices-system-cpu), the PMUs, and on x86 what the CPU
    /// says of its counters.
    pub fn read(roots: &Arc<Roots>) -> Self {
        let mut files = NodeFiles::new(roots);
        let cpu = files.read_start("proc/cpuinfo").map(parse_cpuinfo).unwrap_or_default();
        let microarchitecture = Microarchitectures::built_in().name(&cpu).map(str::to_owned);
        let (pmus, trouble) = match core_pmus(&mut files) {
            Ok(pmus) => (pmus, None),
            Err(ReadError::Gone) => (Vec::new(), Some(format!("there is no /{DEVICES}"))),
            Err(error) => {
                (Vec::new(), Some(format!("/{DEVICES}: {error}; let the exporter's service read it")))
            }
        };
        let arm_events = pmus.iter().find(|pmu| is_arm(pmu)).and_then(|pmu| events(&mut files, pmu));
        let derives = |files: &mut NodeFiles, pmu: &Pmu| {
            ["slots", "topdown-retiring"].iter().all(|event| pmu.alias(files, event).is_some())
        };
        let derives_slots = pmus.iter().any(|pmu| derives(&mut files, pmu));
        let slots = pmus.iter().find(|pmu| is_arm(pmu)).and_then(|pmu| slots(&mut files, pmu));
        // A process asks the CPU that it runs on: of several kinds of cores that may be any.
        let general = if pmus.len() == 1 { cpuid::general_counters(&mut files, &cpu) } else { None };
        let (smt, watchdog) = (smt(&mut files), watchdog(&mut files));
        let pmu_names = Pmu::names(&mut files).unwrap_or_default().into_iter().collect();
        Self {
            microarchitecture,
            pmus,
            pmu_names,
            smt,
            watchdog,
            general,
            derives_slots,
            slots,
            arm_events,
            trouble,
        }
    }

    /// A machine with cores of the catalogue and PMUs as the kernel makes them for these.
    pub fn assumed(catalogue: &Catalogue, name: &str, smt: bool, watchdog: bool) -> Option<Self> {
        let pmus = catalogue.cores(name)?.iter().map(|core| usual_pmu(core, name)).collect();
        Some(Self {
            microarchitecture: Some(name.to_owned()),
            pmus,
            pmu_names: BTreeSet::new(),
            smt,
            watchdog,
            general: None,
            derives_slots: true,
            slots: None,
            arm_events: None,
            trouble: None,
        })
    }
}

/// `arch/x86/events/intel/core.c` (`intel_arch3_formats_attr`), `arch/x86/events/amd/core.c` (`amd_format_attr`).
const INTEL: &[(&str, &str)] = &[
    ("cmask", "config:24-31"),
    ("edge", "config:18"),
    ("event", "config:0-7"),
    ("inv", "config:23"),
    ("offcore_rsp", "config1:0-63"),
    ("umask", "config:8-15"),
];
const AMD: &[(&str, &str)] = &[
    ("cmask", "config:24-31"),
    ("edge", "config:18"),
    ("event", "config:0-7,32-35"),
    ("inv", "config:23"),
    ("umask", "config:8-15"),
];
/// `drivers/perf/arm_pmuv3.c`.
const ARM: &[(&str, &str)] = &[("event", ARM_EVENT)];
const ARM_EVENT: &str = "config:0-15";

/// PMUs other than the first of x86 get their type when they are registered: 10 and 8 are the usual ones.
fn usual_pmu(core: &Core, microarchitecture: &str) -> Pmu {
    let amd = microarchitecture.starts_with("Zen");
    match &*core.pmu {
        ARMV8 => Pmu::described("armv8_pmuv3_0", 8, ARM),
        "cpu_atom" => Pmu::described("cpu_atom", 10, INTEL),
        name => Pmu::described(name, 4, if amd { AMD } else { INTEL }),
    }
}

/// Whether a PMU's cores are those of the catalogue's entry.
pub(super) fn is_of(pmu: &Pmu, core: &Core) -> bool {
    if &*core.pmu == ARMV8 { is_arm(pmu) } else { pmu.name == *core.pmu }
}

/// Other PMUs of ARM systems have no such event, or a `cpumask`.
fn is_arm(pmu: &Pmu) -> bool {
    pmu.name.starts_with(ARMV8) && pmu.field("event") == parse_field(ARM_EVENT.as_bytes()).ok().as_ref()
}

fn core_pmus(files: &mut NodeFiles) -> Result<Vec<Pmu>, ReadError> {
    let core = |name: &String| name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv");
    let mut pmus = Vec::new();
    for name in Pmu::names(files)?.iter().filter(|name| core(name)) {
        match Pmu::read(files, name) {
            Ok(pmu) => pmus.push(pmu),
            Err(ReadError::Gone) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(pmus)
}

/// The codes of what sysfs names (`armv8pmu_event_attr_is_visible` leaves out what the cores do not have).
fn events(files: &mut NodeFiles, pmu: &Pmu) -> Option<BTreeSet<u64>> {
    let mut names = Vec::new();
    let dir = files.open(&format!("{DEVICES}/{}/events", pmu.name)).ok()?;
    dir.for_each(|name, _, _| names.extend(std::str::from_utf8(name).map(str::to_owned))).ok()?;
    let codes: BTreeSet<u64> =
        names.iter().filter_map(|name| Some(pmu.alias(files, name)?.attr.config)).collect();
    (!codes.is_empty()).then_some(codes)
}

/// Documentation/ABI/testing/sysfs-bus-event_source-devices-caps; drivers/perf/arm_pmuv3.c, `slots_show`. 0 is of a core that does
/// not say.
fn slots(files: &mut NodeFiles, pmu: &Pmu) -> Option<u32> {
    let text = std::str::from_utf8(files.read(&format!("{DEVICES}/{}/caps/slots", pmu.name)).ok()?).ok()?;
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok().filter(|slots| (1..=32).contains(slots))
}

/// Whether ARM cores that list their events lack this one. They list the first 64 codes. The kernel has had names for
/// all of these since 4.19, except those of traces and chains, which are not counted here.
pub(super) fn lacks(machine: &Machine, pmu: &Pmu, attr: Attr) -> bool {
    let implemented = machine.arm_events.as_ref().filter(|_| is_arm(pmu) && attr.config < 0x40);
    implemented.is_some_and(|codes| !codes.contains(&attr.config))
}

fn smt(files: &mut NodeFiles) -> bool {
    // "off" and "forceoff" are SMT that the firmware has left on: the counters are still divided.
    files
        .read("sys/devices/system/cpu/smt/control")
        .map_or(true, |state| state.trim_ascii() != b"notsupported")
}

fn watchdog(files: &mut NodeFiles) -> bool {
    match files.read("proc/sys/kernel/nmi_watchdog") {
        Ok(bytes) => parse_integer(bytes) != Ok(0),
        Err(error) => error != ReadError::Gone,
    }
}
