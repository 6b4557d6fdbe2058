//! The device nodes that let a process into a part of a GPU (MIG user guide, "Device nodes and capabilities"): major of
//! `nvidia-caps` from `/proc/devices`, minors from `/proc/driver/nvidia/capabilities/` or, where that is hidden, from
//! `/proc/driver/nvidia-caps/mig-minors`.

use kernel_files::parse::{ParseError, colon_keyed, fields, integer, lines};
use kernel_files::{Buffer, Dir, Roots};

use crate::DeviceNode;

/// Major of `/dev/nvidia<minor>` (nv-linux.h, NV_MAJOR_DEVICE_NUMBER).
pub(super) const NVIDIA: u32 = 195;

/// What a part belongs to: `gpu<minor>`, GPU instance, compute instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigMinor {
    /// Minor of the GPU.
    pub gpu: u32,
    /// Number of the GPU instance.
    pub gpu_instance: u32,
    /// Number of the compute instance; `None` for the GPU instance's own node.
    pub compute_instance: Option<u32>,
    /// Minor of `/dev/nvidia-caps/nvidia-cap<minor>`.
    pub minor: u32,
}

fn number(bytes: &[u8]) -> Option<u32> {
    u32::try_from(integer(bytes)?).ok()
}

/// Major of a driver's character devices in `/proc/devices` (fs/proc/devices.c).
pub fn parse_character_major(bytes: &[u8], driver: &str) -> Option<u32> {
    let mut characters = false;
    for line in bytes.split(|byte| *byte == b'\n') {
        match line.trim_ascii() {
            b"Character devices:" => characters = true,
            b"Block devices:" => characters = false,
            line if characters => {
                let mut words = fields(line);
                if let (Some(major), Some(name)) = (words.next().and_then(number), words.next())
                    && name == driver.as_bytes()
                {
                    return Some(major);
                }
            }
            _ => {}
        }
    }
    None
}

/// `gpu0/gi1/ci0/access 12`; lines of another kind (`config 1`, `monitor 2`) are passed over.
pub fn parse_mig_minors(bytes: &[u8]) -> Result<Vec<MigMinor>, ParseError> {
    let mut found = Vec::new();
    for line in lines(bytes) {
        let (at, line) = line?;
        let mut words = fields(line);
        let (Some(name), Some(minor)) = (words.next(), words.next()) else { continue };
        let mut parts = name.split(|byte| *byte == b'/').peekable();
        let mut part = |prefix: &[u8]| {
            let number = number(parts.peek()?.strip_prefix(prefix)?)?;
            parts.next();
            Some(number)
        };
        let (Some(gpu), Some(gpu_instance)) = (part(b"gpu"), part(b"gi")) else { continue };
        let compute_instance = part(b"ci");
        if parts.next() == Some(b"access") && parts.next().is_none() {
            let minor = number(minor).ok_or(ParseError::new(at, "no minor"))?;
            found.push(MigMinor { gpu, gpu_instance, compute_instance, minor });
        }
    }
    Ok(found)
}

/// `DeviceFileMinor` of an `access` file.
pub fn parse_capability(bytes: &[u8]) -> Option<u32> {
    let mut minor = None;
    colon_keyed(bytes, |key, value| {
        if key == b"DeviceFileMinor" {
            minor = number(value);
        }
    });
    minor
}

/// Reads them for the parts that there are.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    major: Option<u32>,
    minors: Vec<MigMinor>,
    buffer: Buffer,
}

impl Capabilities {
    /// Reads what all parts share. What cannot be read leaves the parts without nodes.
    pub(super) fn read(roots: &Roots) -> Self {
        let mut buffer = Buffer::default();
        let Ok(proc) = Dir::open(&roots.proc("")) else { return Self::default() };
        let major = proc.read("devices", &mut buffer).ok();
        let major = major.and_then(|bytes| parse_character_major(bytes, "nvidia-caps"));
        let minors = proc.read("driver/nvidia-caps/mig-minors", &mut buffer).ok();
        let minors = minors.and_then(|bytes| parse_mig_minors(bytes).ok()).unwrap_or_default();
        Self { major, minors, buffer }
    }

    /// Whoever may open all of these may use the part: the GPU, its GPU instance and the compute instance. Empty unless all
    /// three are known.
    pub(super) fn nodes(&mut self, roots: &Roots, gpu: u32, part: (u32, u32)) -> Vec<DeviceNode> {
        let Some(major) = self.major else { return Vec::new() };
        let (gpu_instance, compute_instance) = part;
        let instance = format!("driver/nvidia/capabilities/gpu{gpu}/mig/gi{gpu_instance}");
        let gi = self.minor(roots, &format!("{instance}/access"), (gpu, gpu_instance, None));
        let file = format!("{instance}/ci{compute_instance}/access");
        let ci = self.minor(roots, &file, (gpu, gpu_instance, Some(compute_instance)));
        let (Some(gi), Some(ci)) = (gi, ci) else { return Vec::new() };
        let cap = |minor| DeviceNode { major, minor };
        vec![DeviceNode { major: NVIDIA, minor: gpu }, cap(gi), cap(ci)]
    }

    fn minor(&mut self, roots: &Roots, file: &str, key: (u32, u32, Option<u32>)) -> Option<u32> {
        let listed = self.minors.iter().find(|m| (m.gpu, m.gpu_instance, m.compute_instance) == key);
        let from_capability = Dir::open(&roots.proc(""))
            .ok()
            .and_then(|proc| proc.read(file, &mut self.buffer).ok().and_then(parse_capability));
        from_capability.or(listed.map(|m| m.minor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &[u8] =
        b"Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n237 nvidia-caps-imex-channels\n\
        238 nvidia-caps\n\nBlock devices:\n  8 sd\n239 nvidia-caps\n";

    #[test]
    fn the_major_is_that_of_the_character_devices() {
        assert_eq!(parse_character_major(DEVICES, "nvidia-caps"), Some(238));
        assert_eq!(parse_character_major(DEVICES, "nvidia"), Some(195));
        assert_eq!(parse_character_major(DEVICES, "sd"), None, "a block device");
        assert_eq!(parse_character_major(b"", "nvidia-caps"), None);
        assert_eq!(parse_character_major(b"Character devices:\nx nvidia-caps\n", "nvidia-caps"), None);
    }

    #[test]
    fn minors_are_those_of_instances_and_the_rest_is_passed_over() {
        let file =
            b"config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\ngpu12/gi14/ci7/access 2141\n\
            gpu0/gi0/ci0/other 9\ngpu0/access 8\n";
        let minor = |gpu, gpu_instance, compute_instance, minor| MigMinor {
            gpu,
            gpu_instance,
            compute_instance,
            minor,
        };
        let expected = [minor(0, 0, None, 3), minor(0, 0, Some(0), 4), minor(12, 14, Some(7), 2141)];
        assert_eq!(parse_mig_minors(file).unwrap(), expected);
        assert!(parse_mig_minors(b"gpu0/gi0/access x\n").is_err());
        assert!(parse_mig_minors(b"gpu0/gi0/access 3\ngpu0/gi0/ci0/acc").is_err(), "torn");
        assert_eq!(parse_mig_minors(b"").unwrap(), []);
    }

    #[test]
    fn a_capability_reports_its_minor() {
        let file = b"DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n";
        assert_eq!(parse_capability(file), Some(12));
        assert_eq!(parse_capability(b"DeviceFileMode: 292\n"), None);
        assert_eq!(parse_capability(b"DeviceFileMinor: -1\n"), None);
    }

    #[test]
    fn a_part_has_three_nodes_or_none() {
        let scratch = jobledger_testkit::scratch::Scratch::new("capabilities");
        let proc = scratch.path();
        let roots = Roots::new(proc, "/nowhere", "/nowhere", "/nowhere");
        let at = |path: &str, text: &str| {
            let path = proc.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let nodes = |part| Capabilities::read(&roots).nodes(&roots, 2, part);
        assert_eq!(nodes((1, 0)), [], "nothing is there");
        at("devices", std::str::from_utf8(DEVICES).unwrap());
        assert_eq!(nodes((1, 0)), []);
        at("driver/nvidia-caps/mig-minors", "gpu2/gi1/access 30\ngpu2/gi1/ci0/access 31\n");
        let three =
            |gi, ci| [(195, 2), (238, gi), (238, ci)].map(|(major, minor)| DeviceNode { major, minor });
        assert_eq!(nodes((1, 0)), three(30, 31));
        assert_eq!(nodes((1, 1)), [], "its own node is not known");
        at("driver/nvidia/capabilities/gpu2/mig/gi1/ci0/access", "DeviceFileMinor: 41\n");
        assert_eq!(nodes((1, 0)), three(30, 41), "what the driver shows comes before the list");
    }
}
