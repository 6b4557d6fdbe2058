//! Cards on the PCI bus, whose drivers may not be loaded yet.

use kernel_files::{Buffer, Dir, Roots};

/// NVIDIA. The numbers are those of `vendor` (Documentation/ABI/testing/sysfs-bus-pci).
pub const NVIDIA: &[u8] = b"0x10de";
/// AMD.
pub const AMD: &[u8] = b"0x1002";
/// Intel.
pub const INTEL: &[u8] = b"0x8086";

/// Whether there is a display controller (class 03) of one of these; the one of a server's management is another's.
pub fn has_card(roots: &Roots, vendors: &[&[u8]]) -> bool {
    let Ok(devices) = Dir::open(&roots.sys("bus/pci/devices")) else { return false };
    let mut buffer = Buffer::default();
    devices.list().unwrap_or_default().iter().any(|entry| {
        let mut starts = |file: &str, with: &[&[u8]]| {
            let read = devices.read(&format!("{}/{file}", entry.name), &mut buffer);
            read.is_ok_and(|text| with.iter().any(|with| text.starts_with(with)))
        };
        starts("class", &[b"0x03"]) && starts("vendor", vendors)
    })
}

#[cfg(test)]
mod tests {
    use test_machine::Machine;

    use super::*;
    use crate::nvml;

    #[test]
    fn what_is_written_of_nvidias_is_its_own_nodes_or_where_they_will_be() {
        let machine = Machine::new();
        assert_eq!(nvml::devices(&machine.roots()), [] as [std::path::PathBuf; 0]);
        let card = "sys/bus/pci/devices/0000:01:00.0";
        machine.write(&format!("{card}/class"), "0x030200\n").write(&format!("{card}/vendor"), "0x10de\n");
        assert!(has_card(&machine.roots(), &[NVIDIA]) && !has_card(&machine.roots(), &[AMD, INTEL]));
        assert_eq!(nvml::devices(&machine.roots()), [machine.roots().dev("")]);
        for node in [
            "nvidiactl",
            "nvidia0",
            "nvidia12",
            "nvidia-uvm",
            "nvidia-modeset",
            "sda",
            "nvidia-caps/nvidia-cap1",
        ] {
            machine.write(&format!("dev/{node}"), "");
        }
        let mut nodes = nvml::devices(&machine.roots());
        nodes.sort();
        assert_eq!(
            nodes,
            ["nvidia-caps", "nvidia0", "nvidia12", "nvidiactl"].map(|node| machine.roots().dev(node))
        );
    }
}
