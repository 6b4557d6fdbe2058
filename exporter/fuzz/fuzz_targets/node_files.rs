//! Files of the node.

use cpu_topology::parse_node_memory;
use jobledger_exporter::collector::devices::energy::parse_cpu_idle;
use jobledger_exporter::collector::node::cpu::parse_proc_stat;
use jobledger_exporter::collector::node::load::parse_load_average;
use jobledger_exporter::collector::node::memory::parse_meminfo;
use jobledger_exporter::collector::node::network::{Device, parse_net_dev, parse_operstate, parse_speed};
use cpu_topology::microarchitecture::{Microarchitectures, parse_cpuinfo, parse_midr};
use jobledger_exporter_fuzz::{last_value, prefixes_are_read};

/// A line as the kernel writes it; columns that are not there are the last ones.
fn net_dev_line(device: &Device) -> String {
    let columns: Vec<String> = device.columns.iter().flatten().map(u64::to_string).collect();
    format!("{:>6}: {}\n", device.name, columns.join(" "))
}

pub fn fuzz(bytes: &[u8]) {
    prefixes_are_read(bytes, parse_proc_stat);
    prefixes_are_read(bytes, parse_meminfo);
    if let Ok(stat) = parse_proc_stat(bytes) {
        assert!(stat.cpus.is_none_or(|cpus| cpus > 0 && cpus <= bytes.len() as u64));
        if let Some(boot) = last_value(bytes, "btime") {
            assert_eq!(stat.boot_time, Some(boot));
        }
    }
    if let Ok(info) = parse_meminfo(bytes) {
        assert!(info.huge_page_size.is_none_or(|size| size % 1024 == 0));
    }
    if let Ok(load) = parse_load_average(bytes) {
        assert!(load.load.iter().all(|load| load.is_finite() && *load >= 0.0));
        let [one, five, fifteen] = load.load;
        let printed = format!("{one:.2} {five:.2} {fifteen:.2} {}/{} 1\n", load.running, load.threads);
        assert_eq!(parse_load_average(printed.as_bytes()), Ok(load));
    }
    prefixes_are_read(bytes, parse_cpu_idle);
    prefixes_are_read(bytes, parse_node_memory);
    if let (Ok(idle), Ok(stat)) = (parse_cpu_idle(bytes), parse_proc_stat(bytes)) {
        assert!(idle.len() as u64 <= stat.cpus.unwrap_or(0), "each CPU once at most");
    }
    if let Ok(memory) = parse_node_memory(bytes) {
        assert!([memory.total, memory.used].into_iter().flatten().all(|bytes| bytes % 1024 == 0));
    }
    let (devices, _) = parse_net_dev(bytes);
    let printed: String = devices.iter().map(net_dev_line).collect();
    assert_eq!(parse_net_dev(printed.as_bytes()), (devices, None));
    if let Some(speed) = parse_speed(bytes) {
        assert!(speed > 0 && speed % 125_000 == 0 && parse_operstate(bytes).is_none());
    }
    let info = parse_cpuinfo(bytes);
    let known = Microarchitectures::built_in();
    if let Some(name) = known.name(&info) {
        assert!(known.vendor(&info).is_some() && !name.is_empty(), "a named CPU has a vendor");
    }
    if let Some((implementer, part)) = parse_midr(bytes) {
        assert!(implementer <= 0xff && part <= 0xfff);
        let printed = format!("0x{:08x}\n", implementer << 24 | part << 4);
        assert_eq!(parse_midr(printed.as_bytes()), Some((implementer, part)));
    }
}
