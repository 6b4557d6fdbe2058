//! Whole machines, from their files to the standing of their zones, and their faults.

mod names;

use perf_events::OpenError;
use test_machine::Machine;

use super::hsmp::{Ask, Question};
use super::perf::tests::{PKG, RAM, Script, pmu, sockets};
use super::*;

const CAP: &str = "sys/class/powercap";
const CRAY: &str = "sys/cray/pm_counters";

/// A zone as the kernel shows it (recorded from a real tree of powercap).
fn zone(machine: &Machine, directory: &str, name: &str, energy: u64) {
    machine.write(&format!("{CAP}/{directory}/name"), format!("{name}\n"));
    machine.write(&format!("{CAP}/{directory}/energy_uj"), format!("{energy}\n"));
    machine.write(&format!("{CAP}/{directory}/max_energy_range_uj"), "262143328850\n");
    machine.write(&format!("{CAP}/{directory}/enabled"), "1\n");
}

fn find_with(machine: &Machine, script: &Script) -> Discovery {
    find_again(machine, script, Discovery::default())
}

fn find_again(machine: &Machine, script: &Script, before: Discovery) -> Discovery {
    let roots = Arc::new(machine.roots());
    let bmc = || super::ipmi::find(&roots, &BmcAccess::default(), None);
    discover_with(&roots, before, Box::new(script.clone()), |_| Err(ReadError::Gone), bmc)
}

fn find(machine: &Machine) -> Discovery {
    find_with(machine, &Script::default())
}

type Reading = Result<(u64, u32), &'static str>;

/// Every zone's name with its energy and epoch, or with why there is none.
fn read(found: &mut Discovery, now: Instant) -> Vec<(String, Reading)> {
    let mut readings = Vec::new();
    for meter in &mut found.meters {
        let names: Vec<_> = meter.zones().iter().map(|zone| zone.name.clone()).collect();
        meter.read(now, &mut |zone, reading| {
            let reading = reading.map(|s| (s.energy_uj, s.epoch)).map_err(|error| error.reason());
            readings.push((names[zone].clone(), reading));
        });
    }
    readings
}

/// Each zone in a line: domain, socket, source, standing.
fn lines(found: &Discovery) -> Vec<String> {
    let zones = found.zones();
    let line = |(zone, role): (&Zone, ZoneRole)| {
        let socket = zone.socket.map_or("-".to_owned(), |socket| socket.to_string());
        format!("{} {socket} {} {role:?}", zone.domain.as_str(), zone.source.as_str())
    };
    zones.iter().zip(roles(&zones, false)).map(line).collect()
}

#[test]
fn intel_with_two_sockets_and_memory() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 2, 2);
    machine.write(&format!("{CAP}/intel-rapl/enabled"), "1\n");
    zone(&machine, "intel-rapl:0", "package-0", 2_025_286_500);
    zone(&machine, "intel-rapl:0:0", "core", 1_215_411_720);
    zone(&machine, "intel-rapl:0:1", "dram", 405_300_900);
    zone(&machine, "intel-rapl:1", "package-1", 1_824_837_840);
    zone(&machine, "intel-rapl:1:0", "dram", 7);
    let mut found = find(&machine);
    assert_eq!(found.refused, []);
    assert_eq!(
        lines(&found),
        [
            "package 0 powercap Attributed",
            "core 0 powercap Contained",
            "dram 0 powercap Attributed",
            "package 1 powercap Attributed",
            "dram 1 powercap Attributed",
        ]
    );
    assert_eq!(found.meters[0].at_least_every(), Some(Duration::from_secs(60)));
    assert!(!found.meters[0].slow());
    let names = |readings: Vec<(String, Reading)>| readings;
    assert_eq!(
        names(read(&mut found, Instant::now())),
        [
            ("package-0".to_owned(), Ok((2_025_286_500, 0))),
            ("core".to_owned(), Ok((1_215_411_720, 0))),
            ("dram".to_owned(), Ok((405_300_900, 0))),
            ("package-1".to_owned(), Ok((1_824_837_840, 0))),
            ("dram".to_owned(), Ok((7, 0))),
        ]
    );
    // With perf, the same registers are listed once.
    pmu(&machine, "0,2", &[PKG, RAM]);
    let both = lines(&find(&machine));
    assert_eq!(both.iter().filter(|line| line.ends_with("Attributed")).count(), 4);
    assert!(both.iter().filter(|line| line.contains("powercap")).all(|line| !line.ends_with("Attributed")));
    assert!(both.contains(&"core 0 powercap Contained".to_owned()), "perf had none of these: {both:?}");
}

#[test]
fn intel_with_psys_mmio_and_two_dies() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    zone(&machine, "intel-rapl:0", "package-0-die-0", 1);
    zone(&machine, "intel-rapl:0:0", "dram", 2);
    zone(&machine, "intel-rapl:1", "package-0-die-1", 3);
    zone(&machine, "intel-rapl:2", "psys", 4);
    zone(&machine, "intel-rapl-mmio:0", "package-0", 5);
    machine.write(&format!("{CAP}/dtpm/enabled"), "1\n");
    let found = find(&machine);
    assert_eq!(
        lines(&found),
        [
            "package 0 powercap Attributed",
            "dram 0 powercap Attributed",
            "package 0 powercap Attributed",
            "psys - powercap Wider",
            "package 0 powercap_mmio Duplicate",
        ]
    );
    // On AMD these dies are one register, with or without parts.
    sockets(&machine, "AuthenticAMD", 1, 2);
    zone(&machine, "intel-rapl:1:0", "core", 9);
    let found = find(&machine);
    assert_eq!(found.zones().iter().filter(|z| z.name.starts_with("package-0-die")).count(), 1);
    assert!(!found.zones().iter().any(|zone| zone.name == "core"), "a part of the one that is not read");
}

#[test]
fn a_skipped_zone_is_not_read() {
    let machine = Machine::new();
    zone(&machine, "intel-rapl:0", "package-0", 1);
    zone(&machine, "intel-rapl:0:0", "core", 2);
    let mut found = find(&machine);
    found.meters[0].skip(1);
    found.meters[0].skip(1);
    assert_eq!(read(&mut found, Instant::now()), [("package-0".to_owned(), Ok((1, 0)))]);
    assert!(found.meters[0].at_least_every().is_some());
    found.meters[0].skip(0);
    assert_eq!(found.meters[0].at_least_every(), None, "nothing to wake up for");
}

#[test]
fn amd_without_memory_and_the_port_where_nothing_else_counts() {
    let firmware = super::hsmp::tests::Firmware::default();
    for socket in 0..2 {
        firmware.says(socket, Question::Protocol, [5, 0]).says(socket, Question::SocketPower, [1000, 0]);
    }
    let machine = Machine::new();
    sockets(&machine, "AuthenticAMD", 2, 2);
    let with_port = |script: &Script| {
        let port = firmware.clone();
        let hsmp = |path: &std::path::Path| {
            assert!(path.ends_with("dev/hsmp"));
            Ok(Box::new(port) as Box<dyn Ask>)
        };
        let roots = Arc::new(machine.roots());
        discover_with(&roots, Discovery::default(), Box::new(script.clone()), hsmp, || Ok(None))
    };
    assert_eq!(
        lines(&with_port(&Script::default())),
        ["package 0 hsmp Attributed", "package 1 hsmp Attributed"]
    );
    pmu(&machine, "0,2", &[PKG]);
    let found = with_port(&Script::default());
    assert_eq!(
        lines(&found),
        ["package 0 perf Attributed", "package 1 perf Attributed"],
        "the port is not even asked"
    );
    // Without CAP_PERFMON it is the port again. That perf was denied is reported, since perf would be better.
    let script = Script::default();
    *script.refuse.lock().unwrap() = Some(OpenError::Denied);
    let found = with_port(&script);
    assert_eq!(lines(&found), ["package 0 hsmp Attributed", "package 1 hsmp Attributed"]);
    assert_eq!(found.refused.iter().map(SourceError::reason).collect::<Vec<_>>(), ["denied"]);
    let roots = Arc::new(machine.roots());
    let closed = |_: &std::path::Path| Err(ReadError::Denied);
    let closed = discover_with(&roots, Discovery::default(), Box::new(script), closed, || Ok(None));
    assert_eq!(closed.refused.len(), 2);
    assert!(closed.refused[1].to_string().contains("/dev/hsmp"), "{}", closed.refused[1]);
}

fn acpi(machine: &Machine, number: u32, info: &str, microwatts: u64) {
    let at = |file: &str| format!("sys/class/hwmon/hwmon{number}/device/{file}");
    machine.write(&at("name"), "power_meter\n").write(&at("power1_oem_info"), format!("{info}\n"));
    machine.write(&at("power1_average"), format!("{microwatts}\n"));
    machine.write(&at("power1_average_interval"), "50\n").write(&at("power1_is_battery"), "0\n");
}

#[test]
fn grace_hopper_has_power_of_sockets_that_is_added_up() {
    let machine = Machine::new();
    for (number, what) in ["Module", "Grace", "CPU", "SysIO"].iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        acpi(&machine, number, &format!("{what} Power Socket 0"), u64::from(400 - number * 100) * 1_000_000);
    }
    acpi(&machine, 7, "NVSwitch Power Socket 0", 1);
    let mut found = find(&machine);
    assert_eq!(
        lines(&found),
        [
            "module 0 hwmon Wider",
            "package 0 hwmon Attributed",
            "core 0 hwmon Contained",
            "sysio 0 hwmon Contained",
        ]
    );
    assert_eq!(found.ignored, ["power_meter"], "a part that is not known");
    assert!(found.zones().iter().all(|zone| zone.estimated));
    assert_eq!(found.meters[0].at_least_every(), Some(Duration::from_secs(10)));
    assert!(!found.meters[0].slow());
    let start = Instant::now();
    assert!(read(&mut found, start).iter().all(|(_, reading)| *reading == Ok((0, 0))));
    let readings = read(&mut found, start + Duration::from_secs(10));
    assert_eq!(readings[1], ("Grace Power Socket 0".to_owned(), Ok((3_000_000_000, 0))), "300 W for 10 s");
    // What the firmware does not know is no power.
    acpi(&machine, 1, "Grace Power Socket 0", 0xffff_ffff * 1000);
    assert_eq!(read(&mut found, start + Duration::from_secs(20))[1].1, Err("malformed"));
    acpi(&machine, 1, "Grace Power Socket 0", 300_000_000);
    assert_eq!(read(&mut found, start + Duration::from_secs(30))[1].1, Ok((3_000_000_000, 0)));
}

#[test]
fn a_server_whose_controller_measures_the_node_and_sensors_that_do_not() {
    let machine = Machine::new();
    acpi(&machine, 2, "", 512_000_000);
    for (number, name, file) in
        [(0, "nvme", "temp1_input"), (1, "amdgpu", "power1_average"), (3, "pmbus", "power1_input")]
    {
        let at = |file: &str| format!("sys/class/hwmon/hwmon{number}/{file}");
        machine.write(&at("name"), format!("{name}\n")).write(&at(file), "1\n");
    }
    let mut found = find(&machine);
    assert_eq!(lines(&found), ["node - hwmon NodeTotal"]);
    assert_eq!(found.ignored, ["amdgpu", "pmbus"], "those with power only");
    assert!(found.meters[0].slow());
    assert_eq!(found.meters[0].at_least_every(), None, "not by a timer");
    let start = Instant::now();
    read(&mut found, start);
    let readings = read(&mut found, start + Duration::from_secs(60));
    assert_eq!(readings, [("power_meter".to_owned(), Ok((30_720_000_000, 0)))]);
    // A controller that is busy: nothing is made up for the time.
    machine.write("sys/class/hwmon/hwmon2/device/power1_average", "\n");
    assert_eq!(read(&mut found, start + Duration::from_secs(90))[0].1, Err("malformed"));

    acpi(&machine, 4, "", 1);
    assert_eq!(
        lines(&find(&machine)),
        ["node - hwmon Wider", "node - hwmon Wider"],
        "which of two, nobody knows"
    );
    let at = |file: &str| format!("sys/class/hwmon/hwmon5/{file}");
    machine.write(&at("name"), "power_meter\n").write(&at("power1_cap"), "1\n");
    machine
        .write("sys/class/hwmon/hwmon6/name", "aem1\n")
        .write("sys/class/hwmon/hwmon6/power1_average", "1\n");
    let battery = |content| {
        machine.write("sys/class/hwmon/hwmon4/device/power1_is_battery", content);
    };
    battery("1\n");
    assert_eq!(lines(&find(&machine)), ["node - hwmon NodeTotal"]);
    // Newer drivers have their files in hwmon's own directory, or its name there and the rest below.
    machine.remove("sys/class/hwmon/hwmon2");
    machine.write(&at("power1_average"), "7000000\n").write(&at("power1_oem_info"), "\n");
    assert_eq!(lines(&find(&machine)), ["node - hwmon NodeTotal"]);
    machine.remove(&at("power1_average"));
    machine.write(&at("device/power1_average"), "7000000\n");
    assert_eq!(lines(&find(&machine)), ["node - hwmon NodeTotal"]);
    assert_eq!(find(&machine).ignored, ["amdgpu", "pmbus", "power_meter", "aem1"]);
}

#[test]
fn counters_under_hwmon() {
    let machine = Machine::new();
    let at = |file: &str| format!("sys/class/hwmon/hwmon0/{file}");
    machine.write(&at("name"), "amd_energy\n");
    for (number, label, energy) in [(1, "Ecore000", 5), (2, "Esocket0", 70), (3, "Esocket1", 80)] {
        machine.write(&at(&format!("energy{number}_label")), format!("{label}\n"));
        machine.write(&at(&format!("energy{number}_input")), format!("{energy}\n"));
    }
    machine.write("sys/class/hwmon/hwmon1/name", "aem1\n");
    machine.write("sys/class/hwmon/hwmon1/energy1_input", "123000\n");
    machine.write("sys/class/hwmon/hwmon1/power1_average", "never read: it sleeps\n");
    let mut found = find(&machine);
    assert_eq!(
        lines(&found),
        ["package 0 hwmon Attributed", "package 1 hwmon Attributed", "node - hwmon NodeTotal"]
    );
    let readings: Vec<_> = read(&mut found, Instant::now()).into_iter().map(|(_, reading)| reading).collect();
    assert_eq!(readings, [Ok((70, 0)), Ok((80, 0)), Ok((123_000, 0))]);
    assert_eq!(found.meters[0].at_least_every(), None);
    assert!(found.meters[1].slow());
    zone(&machine, "intel-rapl:0", "package-0", 1);
    machine.write("sys/class/hwmon/hwmon2/device/energy1_input", "1\n");
    // To be opened while that may be done: no counter of a core.
    assert_eq!(
        guarded_files(&machine.roots()),
        [
            "powercap/intel-rapl:0/energy_uj",
            "hwmon/hwmon0/energy2_input",
            "hwmon/hwmon0/energy3_input",
            "hwmon/hwmon1/energy1_input",
            "hwmon/hwmon2/device/energy1_input",
        ]
        .map(|file| format!("class/{file}"))
    );
}

#[test]
fn a_cray_blade() {
    let machine = Machine::new();
    let write = |file: &str, content: &str| {
        machine.write(&format!("{CRAY}/{file}"), content);
    };
    for (file, joules) in
        [("energy", 900), ("cpu_energy", 300), ("memory_energy", 50), ("accel0_energy", 400)]
    {
        write(file, &format!("{joules} J 1595341323456789 us\n"));
    }
    for (file, content) in
        [("freshness", "1234\n"), ("power", "105 W\n"), ("raw_scan_hz", "10\n"), ("power_cap", "0 W\n")]
    {
        write(file, content);
    }
    let mut found = find(&machine);
    assert_eq!(
        lines(&found),
        [
            "accelerator - cray_pm_counters Contained",
            "package - cray_pm_counters Attributed",
            "node - cray_pm_counters NodeTotal",
            "dram - cray_pm_counters Attributed",
        ]
    );
    let readings: Vec<_> = read(&mut found, Instant::now()).into_iter().map(|(_, reading)| reading).collect();
    assert_eq!(
        readings,
        [Ok((400_000_000, 0)), Ok((300_000_000, 0)), Ok((900_000_000, 0)), Ok((50_000_000, 0))]
    );
    write("memory_energy", "50 kJ\n");
    machine.remove(&format!("{CRAY}/cpu_energy"));
    let readings: Vec<_> = read(&mut found, Instant::now()).into_iter().map(|(_, reading)| reading).collect();
    assert_eq!(readings, [Ok((400_000_000, 0)), Err("unsupported"), Ok((900_000_000, 0)), Err("malformed")]);
    write("cpu_energy", "1 J\n");
    assert_eq!(read(&mut found, Instant::now())[1].1, Ok((1_000_000, 1)), "it may have begun anew");
}

#[test]
fn nothing_that_measures_is_no_error() {
    let machine = Machine::new();
    let found = find(&machine);
    assert!(found.meters.is_empty() && found.refused.is_empty() && found.ignored.is_empty());
    sockets(&machine, "GenuineIntel", 1, 1);
    machine.write(&format!("{CAP}/intel-rapl/enabled"), "1\n");
    let found = find(&machine);
    assert!(found.meters.is_empty() && found.refused.is_empty(), "the class without a zone");
}

#[test]
fn the_classes_are_directories_of_links() {
    let machine = Machine::new();
    let real = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0";
    machine.write(&format!("{real}/name"), "package-0\n").write(&format!("{real}/energy_uj"), "7\n");
    machine.write(&format!("{CAP}/intel-rapl/enabled"), "1\n");
    let link = machine.path.join(format!("{CAP}/intel-rapl:0"));
    std::os::unix::fs::symlink(machine.path.join(real), link).unwrap();
    let meter = machine.path.join("sys/devices/LNXSYSTM:00/ACPI000D:00/hwmon/hwmon0");
    std::fs::create_dir_all(&meter).unwrap();
    acpi(&machine, 1, "", 5);
    let device = machine.path.join("sys/class/hwmon/hwmon1/device");
    std::fs::rename(&device, meter.join("real")).unwrap();
    std::os::unix::fs::symlink(meter.join("real"), device).unwrap();
    let mut found = find(&machine);
    assert_eq!(lines(&found), ["package 0 powercap Attributed", "node - hwmon NodeTotal"]);
    let readings: Vec<_> = read(&mut found, Instant::now()).into_iter().map(|(_, reading)| reading).collect();
    assert_eq!(readings, [Ok((7, 0)), Ok((0, 0))]);
}

#[test]
fn what_the_live_host_has_can_be_read() {
    let mut found = discover(&Arc::default(), &Options::default());
    if found.meters.is_empty() {
        jobledger_testkit::skip("energy", format!("this host measures no energy: {:?}", found.refused));
    }
    for (name, reading) in read(&mut found, Instant::now()) {
        assert!(reading.is_ok(), "{name}: {reading:?}");
    }
    assert_eq!(found.zones().len(), roles(&found.zones(), false).len());
}

/// On a thread that may not read what nobody may read, also when root runs the tests.
fn without_override<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let limited = || {
            use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .unwrap();
            f()
        };
        scope.spawn(limited).join().unwrap()
    })
}

#[test]
fn perf_events_that_cannot_be_opened_again_are_kept_while_they_count() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 2, 2);
    pmu(&machine, "0,2", &[PKG]);
    let script = Script::default();
    let before = find_with(&machine, &script);
    // The capability is given up. CPU 0 goes offline: the kernel has its socket's event count on CPU 1.
    *script.refuse.lock().unwrap() = Some(OpenError::Denied);
    machine.write("sys/devices/system/cpu/online", "1-3\n");
    pmu(&machine, "1,2", &[PKG]);
    script.count(5.0, 10).count(7.0, 10);
    let mut kept = find_again(&machine, &script, before);
    assert_eq!(kept.refused, []);
    assert_eq!(lines(&kept), ["package 0 perf Attributed", "package 1 perf Attributed"]);
    script.count(6.0, 20).count(8.0, 20);
    let joules = |found: &mut Discovery| {
        let readings = read(found, Instant::now()).into_iter();
        readings
            .map(|(_, reading)| reading.map(|(energy, epoch)| (energy / 1_000_000, epoch)))
            .collect::<Vec<_>>()
    };
    assert_eq!(joules(&mut kept), [Ok((6, 0)), Ok((8, 0))], "the same counters as before");
    // All of socket 1 goes: its event stops.
    machine.write("sys/devices/system/cpu/online", "1\n");
    pmu(&machine, "1", &[PKG]);
    script.count(9.0, 30).count(8.0, 20);
    let kept = find_again(&machine, &script, kept);
    assert_eq!((kept.refused.len(), lines(&kept)), (0, vec!["package 0 perf Attributed".to_owned()]));
    // It is back, and takes the capability.
    machine.write("sys/devices/system/cpu/online", "1-3\n");
    pmu(&machine, "1,2", &[PKG]);
    script.count(9.0, 40);
    let kept = find_again(&machine, &script, kept);
    assert_eq!(lines(&kept), ["package 0 perf Attributed"]);
    assert_eq!(kept.refused.iter().map(SourceError::reason).collect::<Vec<_>>(), ["denied"]);
    // powercap may be read: there it has the socket that perf has not.
    zone(&machine, "intel-rapl:0", "package-0", 1);
    zone(&machine, "intel-rapl:1", "package-1", 1);
    script.count(9.0, 50);
    let kept = find_again(&machine, &script, kept);
    assert_eq!(
        (kept.refused.len(), lines(&kept)[1..].to_vec()),
        (0, vec!["package 0 powercap Duplicate".to_owned(), "package 1 powercap Attributed".to_owned()])
    );
    // With the capability all of it is perf's again.
    *script.refuse.lock().unwrap() = None;
    let found = find_again(&machine, &script, kept);
    assert_eq!(lines(&found)[..2], ["package 0 perf Attributed", "package 1 perf Attributed"]);
}

#[test]
fn energy_that_only_root_may_read_is_denied() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    zone(&machine, "intel-rapl:0", "package-0", 1);
    zone(&machine, "intel-rapl:0:0", "dram", 1);
    for directory in ["intel-rapl:0", "intel-rapl:0:0"] {
        let file = machine.path.join(format!("{CAP}/{directory}/energy_uj"));
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let found = without_override(|| find(&machine).refused);
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["denied: powercap energy_uj"], "once, not per zone");
    // Where perf counts, nobody needs these files.
    pmu(&machine, "0", &[PKG, RAM]);
    let refused = without_override(|| find(&machine).refused);
    assert_eq!(refused, []);
}

#[test]
fn a_bmc_that_only_root_may_ask_is_denied_where_nothing_else_measures() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    machine.write("dev/ipmi0", "");
    std::fs::set_permissions(machine.path.join("dev/ipmi0"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let refused =
        || without_override(|| find(&machine).refused).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(refused(), ["denied: /dev/ipmi0"]);
    zone(&machine, "intel-rapl:0", "package-0", 1);
    assert!(refused().is_empty(), "{:?}", refused());
}

#[test]
fn one_zone_that_fails_costs_no_other() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 2, 2);
    zone(&machine, "intel-rapl:0", "package-0", 10);
    zone(&machine, "intel-rapl:1", "package-1", 20);
    // Any errno that is not ENOENT and the like: to read a directory is EISDIR.
    let file = format!("{CAP}/intel-rapl:0/energy_uj");
    machine.remove(&file);
    std::fs::create_dir(machine.path.join(&file)).unwrap();
    let mut found = find(&machine);
    let expected =
        |first: Reading, second: Reading| [("package-0".to_owned(), first), ("package-1".to_owned(), second)];
    assert_eq!(read(&mut found, Instant::now()), expected(Err("io"), Ok((20, 0))));
    std::fs::remove_dir(machine.path.join(&file)).unwrap();
    zone(&machine, "intel-rapl:0", "package-0", 30);
    assert_eq!(
        read(&mut found, Instant::now()),
        expected(Ok((30, 0)), Ok((20, 0))),
        "the same counter as before"
    );
    machine.write(&file, "nonsense\n");
    assert_eq!(read(&mut found, Instant::now()), expected(Err("malformed"), Ok((20, 0))));
}

#[test]
fn a_zone_that_goes_and_comes_back_has_another_epoch() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 2, 2);
    zone(&machine, "intel-rapl:0", "package-0", 10);
    zone(&machine, "intel-rapl:1", "package-1", 20);
    let mut found = find(&machine);
    let mut second = || read(&mut found, Instant::now()).pop().unwrap().1;
    assert_eq!(second(), Ok((20, 0)));
    machine.remove(&format!("{CAP}/intel-rapl:1"));
    assert_eq!(second(), Err("unsupported"));
    assert_eq!(second(), Err("unsupported"));
    zone(&machine, "intel-rapl:1", "package-1", 5);
    assert_eq!(second(), Ok((5, 1)));
    assert_eq!(second(), Ok((5, 1)));
}

#[test]
fn a_wrap_is_what_max_energy_range_says() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    zone(&machine, "intel-rapl:0", "package-0", 262_143_328_800);
    let mut found = find(&machine);
    let mut sample = || {
        let mut sample = None;
        found.meters[0].read(Instant::now(), &mut |_, reading| sample = reading.ok());
        sample.unwrap()
    };
    let before = sample();
    zone(&machine, "intel-rapl:0", "package-0", 100);
    let after = sample();
    assert_eq!(before.range, Range::Wraps { at: 262_143_328_851 });
    assert_eq!(after.gain_since(&before, Duration::from_secs(1)), Some(151));
    // Without the file a fall is no energy.
    machine.remove(&format!("{CAP}/intel-rapl:0/max_energy_range_uj"));
    let mut found = find(&machine);
    found.meters[0].read(Instant::now(), &mut |_, reading| assert_eq!(reading.unwrap().range, Range::Full));
}
