//! What a node is, as far as results depend on it.

use cpu_topology::microarchitecture::{Microarchitectures, parse_cpuinfo};
use cpu_topology::{count_packages, numa_nodes, online};
use kernel_files::{NodeFiles, label_text};

use crate::Facts;

/// Reads them. What a file does not say is not known.
pub fn read(files: &mut NodeFiles) -> Facts {
    let cpu = files.read_start("proc/cpuinfo").map(parse_cpuinfo).unwrap_or_default();
    let online = online(files).ok().flatten().unwrap_or_default();
    let text = |text: Option<String>| text.map(|text| label_text(text.as_bytes()));
    Facts {
        microarchitecture: Microarchitectures::built_in().name(&cpu).map(str::to_owned),
        architecture: std::env::consts::ARCH.to_owned(),
        kernel: files
            .read("proc/sys/kernel/osrelease")
            .map(|release| label_text(release.trim_ascii()))
            .unwrap_or_default(),
        cpus: online.len(),
        sockets: count_packages(files, &online).ok().flatten(),
        numa_nodes: numa_nodes(files).ok().flatten().map(|nodes| nodes.len()),
        cpu_model: text(cpu.model_name),
        microcode: text(cpu.microcode),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_node_is_described_without_its_name() {
        let machine = test_machine::Machine::new();
        machine.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\nmicrocode\t: 0xa0011d5\nmodel name\t: AMD EPYC\n\n");
        machine.write("proc/sys/kernel/osrelease", "6.18.44\n").write("proc/sys/kernel/hostname", "secret\n");
        machine.write("sys/devices/system/cpu/online", "0-7\n");
        let facts = read(&mut NodeFiles::new(&Arc::new(machine.roots())));
        assert_eq!(facts.microarchitecture.as_deref(), Some("Zen 3"));
        assert_eq!(facts.microcode.as_deref(), Some("0xa0011d5"));
        assert_eq!((facts.kernel.as_str(), facts.cpus, facts.sockets), ("6.18.44", 8, None));
        assert!(!format!("{facts:?}").contains("secret"));
    }
}
