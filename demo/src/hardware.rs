//! The files and links of the simulated machine in procfs and sysfs that never change.

use std::fmt::Write;

use slurm_jobs::process::PIDS_OF_THE_HOST;

use super::counters::PAGE;
use super::files::cpu_list;
use super::layout::{CPUS, SOCKETS};
use super::{devices, nfs};

const RELEASE: &str = "6.12.48";

/// Path and content of the files that never change.
pub(super) fn fixed_files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = vec![
        ("proc/cpuinfo".to_owned(), cpu_info()),
        (
            "proc/version".to_owned(),
            format!("Linux version {RELEASE} (demo@jobledger) #1 SMP PREEMPT_DYNAMIC\n"),
        ),
    ];
    let mut add = |path: &str, content: String| files.push((path.to_owned(), content));
    let line = |value: &str| format!("{value}\n");
    for (name, value) in [
        ("osrelease", RELEASE),
        ("ostype", "Linux"),
        ("hostname", "demo1"),
        ("arch", "x86_64"),
        ("perf_event_paranoid", "2"),
        ("nmi_watchdog", "0"),
    ] {
        add(&format!("proc/sys/kernel/{name}"), line(value));
    }
    let all: Vec<u32> = (0..CPUS).collect();
    let each = CPUS / SOCKETS;
    for name in ["online", "possible", "present"] {
        add(&format!("sys/devices/system/cpu/{name}"), line(&cpu_list(&all)));
    }
    add("sys/devices/system/cpu/offline", "\n".to_owned());
    add("sys/devices/system/cpu/smt/active", line("0"));
    add("sys/bus/event_source/devices/cpu/type", line("4"));
    for (field, bits) in [
        ("event", "config:0-7"),
        ("umask", "config:8-15"),
        ("edge", "config:18"),
        ("inv", "config:23"),
        ("cmask", "config:24-31"),
        ("offcore_rsp", "config1:0-63"),
    ] {
        add(&format!("sys/bus/event_source/devices/cpu/format/{field}"), line(bits));
    }
    for (event, code) in [
        ("slots", "event=0x00,umask=0x4"),
        ("topdown-retiring", "event=0x00,umask=0x80"),
        ("topdown-bad-spec", "event=0x00,umask=0x81"),
        ("topdown-fe-bound", "event=0x00,umask=0x82"),
        ("topdown-be-bound", "event=0x00,umask=0x83"),
        ("topdown-mem-bound", "event=0x00,umask=0x87"),
    ] {
        add(&format!("sys/bus/event_source/devices/cpu/events/{event}"), line(code));
    }
    for name in ["online", "possible", "has_cpu", "has_memory"] {
        add(&format!("sys/devices/system/node/{name}"), line("0-1"));
    }
    for (socket, cpus) in (0..SOCKETS).zip(all.chunks_exact(24)) {
        let node = format!("sys/devices/system/node/node{socket}");
        add(&format!("{node}/cpulist"), line(&cpu_list(cpus)));
        add(&format!("{node}/distance"), line(if socket == 0 { "10 21" } else { "21 10" }));
        for cpu in cpus {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            for (name, value) in [
                ("core_id", (cpu % each).to_string()),
                ("physical_package_id", socket.to_string()),
                ("die_id", "0".to_owned()),
                ("core_cpus_list", cpu.to_string()),
                ("thread_siblings_list", cpu.to_string()),
                ("core_siblings_list", cpu_list(cpus)),
                ("package_cpus_list", cpu_list(cpus)),
            ] {
                add(&format!("{dir}/topology/{name}"), line(&value));
            }
            for (name, value) in [
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "3600000"),
                ("scaling_min_freq", "800000"),
                ("scaling_max_freq", "3600000"),
                ("scaling_driver", "intel_pstate"),
                ("scaling_governor", "performance"),
            ] {
                add(&format!("{dir}/cpufreq/{name}"), line(value));
            }
        }
    }
    add("sys/devices/virtual/dmi/id/sys_vendor", line("Jobledger"));
    add("sys/devices/virtual/dmi/id/product_name", line("Simulated node"));
    add("proc/self/mountinfo", nfs::mountinfo());
    files.extend(devices::fixed_files());
    files
}

/// Symbolic links: path and target.
pub(super) fn links() -> Vec<(String, String)> {
    let mut links = devices::links();
    links.push(("sys/class/dmi/id".to_owned(), "../../devices/virtual/dmi/id".to_owned()));
    // Processes have the host's pids.
    links.push(("proc/self/ns/pid".to_owned(), PIDS_OF_THE_HOST.to_owned()));
    links
}

fn cpu_info() -> String {
    let mut text = String::new();
    for cpu in 0..CPUS {
        let each = CPUS / SOCKETS;
        let _ = write!(
            text,
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n\
             model name\t: INTEL(R) XEON(R) GOLD 6542Y\nstepping\t: 2\nmicrocode\t: 0x21000283\n\
             cpu MHz\t\t: 2900.000\ncache size\t: 61440 KB\nphysical id\t: {}\nsiblings\t: {each}\ncore id\t\t: {}\n\
             cpu cores\t: {each}\nfpu\t\t: yes\nflags\t\t: fpu tsc msr sse2 avx2 avx512f constant_tsc arch_perfmon\n\
             clflush size\t: {}\naddress sizes\t: 46 bits physical, 57 bits virtual\npower management:\n\n",
            cpu / each,
            cpu % each,
            PAGE / 64
        );
    }
    text
}
