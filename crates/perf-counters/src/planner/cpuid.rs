//! How many counters an x86 CPU has, as CPUID says, which needs no privilege. In a guest it says what the guest is given.

use cpu_topology::microarchitecture::CpuInfo;
use kernel_files::NodeFiles;

/// EAX and EBX that CPUID gives.
type Registers = (u32, u32);

/// General-purpose counters of a hardware thread; `None` where the CPU does not say, or where procfs is not this machine's.
#[cfg(target_arch = "x86_64")]
pub(super) fn general_counters(files: &mut NodeFiles, cpu: &CpuInfo) -> Option<u32> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if !files.open("proc/sys").is_ok_and(|proc| proc.is_proc_or_sys()) {
        return None;
    }
    let highest = |base| __cpuid(base).eax;
    parse(cpu.vendor.as_deref()?, |leaf| {
        let known = leaf <= highest(leaf & 0x8000_0000);
        let registers = __cpuid_count(leaf, 0);
        known.then_some((registers.eax, registers.ebx))
    })
}

/// ARM's count, PMCR_EL0.N, cannot be read in user mode: what does not fit is found when it is opened.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn general_counters(_files: &mut NodeFiles, _cpu: &CpuInfo) -> Option<u32> {
    None
}

/// Intel's SDM, volume 2A, CPUID leaf 0x0a: EAX bits 15-8, where bits 7-0, the version, are not 0. AMD's APM, volume 3, leaf
/// 0x80000022: EBX bits 3-0, where EAX bit 0, performance monitoring version 2, is set.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86 has CPUID"))]
fn parse(vendor: &str, leaf: impl Fn(u32) -> Option<Registers>) -> Option<u32> {
    let counters = match vendor {
        "GenuineIntel" => leaf(0x0a).filter(|(eax, _)| eax & 0xff != 0).map(|(eax, _)| eax >> 8 & 0xff),
        "AuthenticAMD" => leaf(0x8000_0022).filter(|(eax, _)| eax & 1 != 0).map(|(_, ebx)| ebx & 0xf),
        _ => None,
    };
    counters.filter(|counters| (1..=16).contains(counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_tells_its_counters() {
        let only = |leaf: u32, registers: Registers| move |asked| (asked == leaf).then_some(registers);
        // Cascade Lake with SMT, version 4: four counters of 48 bits; the same without.
        assert_eq!(parse("GenuineIntel", only(0x0a, (0x0730_0404, 0))), Some(4));
        assert_eq!(parse("GenuineIntel", only(0x0a, (0x0730_0804, 0))), Some(8));
        // Zen 4: six counters of the core, and others behind bit 10.
        assert_eq!(parse("AuthenticAMD", only(0x8000_0022, (0b11, 0x0001_0106))), Some(6));
    }

    #[test]
    fn what_the_cpu_does_not_say_is_not_known() {
        let nothing = |_| Some((0, 0));
        assert_eq!(parse("GenuineIntel", nothing), None, "a guest without a PMU");
        assert_eq!(parse("AuthenticAMD", nothing), None, "before Zen 4");
        assert_eq!(parse("GenuineIntel", |_| None), None);
        assert_eq!(parse("HygonGenuine", |_| Some((u32::MAX, u32::MAX))), None);
        assert_eq!(parse("GenuineIntel", |_| Some((0x0000_ff04, 0))), None, "more than there are");
    }
}
