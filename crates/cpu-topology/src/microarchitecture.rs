//! Which microarchitecture a CPU is: what `/proc/cpuinfo` says of it, and the table in
//! data/microarchitectures.yaml. A CPU that the table does not have is unknown, never the nearest one.

use kernel_files::parse::{colon_keyed, integer};
use serde::Deserialize;

/// One record of `/proc/cpuinfo` (arch/x86/kernel/cpu/proc.c, arch/arm64/kernel/cpuinfo.c,
/// arch/powerpc/kernel/setup-common.c).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// x86: `vendor_id`.
    pub vendor: Option<String>,
    /// x86: `model name`.
    pub model_name: Option<String>,
    /// x86: `cpu family`.
    pub family: Option<u32>,
    /// x86: `model`.
    pub model: Option<u32>,
    /// x86: `stepping`; the kernel writes `unknown` where the CPU has none.
    pub stepping: Option<u32>,
    /// x86: `microcode`, the revision.
    pub microcode: Option<String>,
    /// ARM: `CPU implementer`.
    pub implementer: Option<u32>,
    /// ARM: `CPU part`.
    pub part: Option<u32>,
    /// ARM: `CPU variant`, the n of rnpm.
    pub variant: Option<u32>,
    /// ARM: `CPU revision`, the m of rnpm.
    pub revision: Option<u32>,
    /// POWER: `cpu`, up to a comma.
    pub cpu: Option<String>,
}

/// Parses the first record, which is the first CPU online. Values of another form than expected are absent.
pub fn parse_cpuinfo(bytes: &[u8]) -> CpuInfo {
    let end = bytes.windows(2).position(|w| w == b"\n\n").unwrap_or(bytes.len());
    let mut info = CpuInfo::default();
    colon_keyed(bytes.get(..end).unwrap_or_default(), |key, value| {
        let text = || (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned());
        let number = || u32::try_from(integer(value)?).ok();
        match key {
            b"vendor_id" => info.vendor = text(),
            b"model name" => info.model_name = text(),
            b"cpu family" => info.family = number(),
            b"model" => info.model = number(),
            b"stepping" => info.stepping = number(),
            b"microcode" => info.microcode = text(),
            b"CPU implementer" => info.implementer = hexadecimal(value),
            b"CPU part" => info.part = hexadecimal(value),
            b"CPU variant" => info.variant = hexadecimal(value),
            b"CPU revision" => info.revision = number(),
            b"cpu" => info.cpu = text().and_then(|text| Some(text.split(',').next()?.trim_end().to_owned())),
            _ => {}
        }
    });
    info
}

/// Parses MIDR_EL1 (`regs/identification/midr_el1`): implementer in bits 31 to 24, part in bits 15 to 4.
pub fn parse_midr(bytes: &[u8]) -> Option<(u32, u32)> {
    let midr = hexadecimal(bytes.trim_ascii())?;
    Some((midr >> 24, (midr >> 4) & 0xfff))
}

fn hexadecimal(bytes: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(bytes.strip_prefix(b"0x")?).ok()?;
    let plain = !digits.starts_with(['+', '-']);
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// A number, or an inclusive range of them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Numbers {
    One(u32),
    Range(u32, u32),
}

impl Numbers {
    fn contain(self, number: u32) -> bool {
        match self {
            Self::One(one) => one == number,
            Self::Range(first, last) => (first..=last).contains(&number),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct X86 {
    name: String,
    vendor: String,
    family: u32,
    models: Vec<Numbers>,
    /// Any stepping when there is no such key.
    steppings: Option<Vec<Numbers>>,
}

impl X86 {
    fn fits(&self, vendor: &str, family: u32, model: u32, stepping: Option<u32>) -> bool {
        let stepping_fits = self
            .steppings
            .as_ref()
            .is_none_or(|all| stepping.is_some_and(|s| all.iter().any(|numbers| numbers.contain(s))));
        self.vendor == vendor
            && self.family == family
            && self.models.iter().any(|numbers| numbers.contain(model))
            && stepping_fits
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arm {
    name: String,
    implementer: u32,
    parts: Vec<u32>,
    /// The first of these cores, as the variant in bits 4 to 7 and the revision below; any when there is no such key.
    since: Option<u32>,
    /// The first that is not one of them.
    before: Option<u32>,
}

impl Arm {
    fn fits(&self, implementer: u32, part: u32, cpu: &CpuInfo) -> bool {
        let known = cpu.variant.zip(cpu.revision).map(|(variant, revision)| variant << 4 | revision);
        self.implementer == implementer
            && self.parts.contains(&part)
            && self.since.is_none_or(|since| known.is_some_and(|known| known >= since))
            && self.before.is_none_or(|before| known.is_some_and(|known| known < before))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Power {
    name: String,
    cpu: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Implementer {
    id: u32,
    name: String,
}

/// The table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Microarchitectures {
    x86: Vec<X86>,
    arm: Vec<Arm>,
    power: Vec<Power>,
    implementers: Vec<Implementer>,
}

impl Microarchitectures {
    /// The table that is built in.
    pub fn built_in() -> Self {
        // It is data of this crate and a test parses it; without it CPUs have no names and all else works.
        serde_yaml::from_str(include_str!("../data/microarchitectures.yaml")).unwrap_or_default()
    }

    /// The name of a CPU's microarchitecture.
    pub fn name(&self, cpu: &CpuInfo) -> Option<&str> {
        if let (Some(vendor), Some(family), Some(model)) = (&cpu.vendor, cpu.family, cpu.model) {
            let row = self.x86.iter().find(|row| row.fits(vendor, family, model, cpu.stepping));
            return row.map(|row| row.name.as_str());
        }
        if let Some(cpu) = &cpu.cpu {
            return self.power.iter().find(|row| row.cpu == *cpu).map(|row| row.name.as_str());
        }
        let (implementer, part) = (cpu.implementer?, cpu.part?);
        let row = self.arm.iter().find(|row| row.fits(implementer, part, cpu));
        row.map(|row| row.name.as_str())
    }

    /// Every name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let x86 = self.x86.iter().map(|row| row.name.as_str());
        let arm = self.arm.iter().map(|row| row.name.as_str());
        x86.chain(arm).chain(self.power.iter().map(|row| row.name.as_str()))
    }

    /// The CPU's vendor: as an x86 CPU reports it, or the name of an ARM implementer.
    pub fn vendor<'a>(&'a self, cpu: &'a CpuInfo) -> Option<&'a str> {
        cpu.vendor.as_deref().or_else(|| {
            let id = cpu.implementer?;
            self.implementers.iter().find(|row| row.id == id).map(|row| row.name.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Microarchitectures {
        serde_yaml::from_str(include_str!("../data/microarchitectures.yaml")).unwrap()
    }

    fn x86(vendor: &str, family: u32, model: u32, stepping: u32) -> CpuInfo {
        CpuInfo {
            vendor: Some(vendor.to_owned()),
            family: Some(family),
            model: Some(model),
            stepping: Some(stepping),
            ..Default::default()
        }
    }

    /// A core of ARM's own.
    fn arm(part: u32, variant: u32, revision: u32) -> CpuInfo {
        CpuInfo {
            implementer: Some(0x41),
            part: Some(part),
            variant: Some(variant),
            revision: Some(revision),
            ..Default::default()
        }
    }

    #[test]
    fn every_row_is_well_formed() {
        let table = table();
        let ordered = |numbers: &[Numbers]| {
            !numbers.is_empty()
                && numbers.iter().all(|n| !matches!(n, Numbers::Range(first, last) if first >= last))
        };
        for row in &table.x86 {
            assert!(!row.name.is_empty() && row.name.is_ascii(), "{row:?}");
            assert!(matches!(row.vendor.as_str(), "GenuineIntel" | "AuthenticAMD"), "{row:?}");
            assert!(ordered(&row.models) && row.steppings.as_deref().is_none_or(ordered), "{row:?}");
        }
        for row in &table.arm {
            assert!(!row.parts.is_empty() && row.parts.iter().all(|p| *p <= 0xfff), "{row:?}");
            assert!(table.implementers.iter().any(|i| i.id == row.implementer), "{row:?}");
        }
    }

    #[test]
    fn no_cpu_fits_two_rows_and_no_name_stands_twice() {
        let table = table();
        for vendor in ["GenuineIntel", "AuthenticAMD"] {
            for family in 0..=0x30 {
                for (model, stepping) in (0..=0xff).flat_map(|m| (0..=0xf).map(move |s| (m, s))) {
                    let fits: Vec<_> = table
                        .x86
                        .iter()
                        .filter(|row| row.fits(vendor, family, model, Some(stepping)))
                        .map(|row| &row.name)
                        .collect();
                    assert!(fits.len() <= 1, "{vendor} {family:#x} {model:#x} {stepping}: {fits:?}");
                }
            }
        }
        for (implementer, part) in
            table.arm.iter().flat_map(|row| row.parts.iter().map(|p| (row.implementer, *p)))
        {
            for (variant, revision) in (0..=0xf).flat_map(|v| (0..=0xf).map(move |r| (v, r))) {
                let fits =
                    table.arm.iter().filter(|row| row.fits(implementer, part, &arm(part, variant, revision)));
                assert_eq!(fits.count(), 1, "{implementer:#x} {part:#x} r{variant}p{revision}");
            }
        }
        let mut names: Vec<_> = table.names().collect();
        let mut ids: Vec<_> = table.implementers.iter().map(|row| row.id).collect();
        let (names_before, ids_before) = (names.len(), ids.len());
        names.sort_unstable();
        names.dedup();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((names.len(), ids.len()), (names_before, ids_before));
    }

    #[test]
    fn known_cpus_have_their_names() {
        let table = table();
        for (cpu, name) in [
            (x86("GenuineIntel", 6, 0x2d, 7), "Sandy Bridge-EP"),
            (x86("GenuineIntel", 6, 0x55, 4), "Skylake-SP"),
            (x86("GenuineIntel", 6, 0x55, 7), "Cascade Lake-SP"),
            (x86("GenuineIntel", 6, 0x55, 11), "Cooper Lake-SP"),
            (x86("GenuineIntel", 6, 0x8f, 8), "Sapphire Rapids"),
            (x86("GenuineIntel", 6, 0xad, 1), "Granite Rapids"),
            (x86("GenuineIntel", 6, 0xaf, 3), "Sierra Forest"),
            (x86("AuthenticAMD", 0x17, 0x01, 2), "Zen"),
            (x86("AuthenticAMD", 0x17, 0x31, 0), "Zen 2"),
            (x86("AuthenticAMD", 0x19, 0x01, 1), "Zen 3"),
            (x86("AuthenticAMD", 0x19, 0x30, 0), "Zen 3"), // Trento: perf's own map says Zen 4
            (x86("AuthenticAMD", 0x19, 0x8f, 0), "Zen 4"),
            (x86("AuthenticAMD", 0x19, 0x90, 0), "Zen 4 MI300"), // MI300A: other memory than Zen 4's
            (x86("AuthenticAMD", 0x19, 0x9f, 0), "Zen 4 MI300"),
            (x86("AuthenticAMD", 0x19, 0xa0, 0), "Zen 4"), // Bergamo
            (arm(0xd49, 0, 2), "Neoverse N2"),
            (arm(0xd49, 0, 3), "Neoverse N2 r0p3"),
            (arm(0xd49, 1, 0), "Neoverse N2 r0p3"),
            (arm(0xd4f, 0, 0), "Neoverse V2"),
            (x86("AuthenticAMD", 0x1a, 0x11, 0), "Zen 5"),
        ] {
            assert_eq!(table.name(&cpu), Some(name), "{cpu:?}");
        }
    }

    #[test]
    fn unknown_cpus_have_none() {
        let table = table();
        for cpu in [
            x86("GenuineIntel", 6, 0xfe, 0),
            x86("GenuineIntel", 19, 1, 0),
            x86("GenuineIntel", 6, 0x55, 9),
            x86("AuthenticAMD", 0x19, 0xff, 0),
            x86("AuthenticAMD", 6, 0x8f, 8),
            x86("HygonGenuine", 0x18, 0, 2),
            CpuInfo { stepping: None, ..x86("GenuineIntel", 6, 0x55, 0) },
            CpuInfo { implementer: Some(0x41), part: Some(0xfff), ..Default::default() },
            CpuInfo { variant: None, ..arm(0xd49, 0, 0) },
            CpuInfo::default(),
        ] {
            assert_eq!(table.name(&cpu), None, "{cpu:?}");
        }
    }

    #[test]
    fn an_x86_record_and_the_next_one_does_not_leak_into_it() {
        let cpu = parse_cpuinfo(
            b"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\
              stepping\t: 1\nmicrocode\t: 0x1000065\npower management:\n\n\
              processor\t: 1\nvendor_id\t: GenuineIntel\nmodel\t\t: 1\n\n",
        );
        assert_eq!(
            cpu,
            CpuInfo {
                model_name: Some("AMD EPYC".to_owned()),
                microcode: Some("0x1000065".to_owned()),
                ..x86("AuthenticAMD", 25, 17, 1)
            }
        );
        let odd = parse_cpuinfo(b"vendor_id\t: \ncpu family\t: x\nmodel\t: -1\nstepping\t: unknown\n");
        assert_eq!(odd, CpuInfo::default(), "absent is none, not zero");
        assert_eq!(parse_cpuinfo(b""), CpuInfo::default());
    }

    #[test]
    fn a_power_record_names_the_cpu() {
        let cpu = parse_cpuinfo(
            b"processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\nrevision\t: 2.3 (pvr 004e 1203)\n\n",
        );
        assert_eq!(cpu, CpuInfo { cpu: Some("POWER9".to_owned()), ..Default::default() });
        assert_eq!(table().name(&cpu), Some("POWER9"));
        assert_eq!(table().name(&CpuInfo { cpu: Some("POWER4".to_owned()), ..Default::default() }), None);
    }

    #[test]
    fn an_arm_record_names_implementer_and_part() {
        // NVIDIA Grace, as posted to the kernel's mailing list; the features are cut.
        let cpu = parse_cpuinfo(
            b"processor\t: 71\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes\nCPU implementer\t: 0x41\n\
              CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n\n",
        );
        assert_eq!(cpu, arm(0xd4f, 0, 0));
        let table = table();
        assert_eq!((table.name(&cpu), table.vendor(&cpu)), (Some("Neoverse V2"), Some("ARM")));
        assert_eq!(parse_midr(b"0x00000000410fd4f0\n"), Some((0x41, 0xd4f)));
        assert_eq!(parse_midr(b"0x00000000461f0010\n"), Some((0x46, 0x001)), "A64FX");
        for bad in [&b""[..], b"410fd4f0", b"0x", b"0x+41", b"0x1ffffffff"] {
            assert_eq!(parse_midr(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
