//! AMD's GPUs from the files of whole nodes, and their faults.

use std::time::Duration;

use jobledger_testkit::machine::Machine;

use super::*;
use crate::drm::testing::{check, count, fact, roots, unit};
use crate::{DeviceNode, Memory, Quantity, families};

const GIB: u64 = 1 << 30;
const BOARD: &str = "692218000555";
const DIES: [&str; 4] = ["39f9e7d2aa1b5000", "39f9e7d2aa1b5001", "39f9e7d2aa1b5002", "39f9e7d2aa1b5003"];
const WHOLE: &str = "a1b2c3d400000010";
const DIVIDED: &str = "a1b2c3d400000011";
const PROCESSES: Wanted = Wanted { processes: true };

fn device(machine: &Machine, address: &str) -> String {
    let at = format!("sys/devices/pci{}:{}/{address}", &address[..4], &address[5..7]);
    assert!(machine.path(&at).exists());
    at
}

fn sample(amd: &mut Amd, now: Instant) -> Sample {
    let sample = amd.sample_at(now, Wanted::default()).unwrap();
    assert_eq!(sample.failed, []);
    check(&sample);
    sample
}

/// Rewrites 8 bytes of a table at each place.
fn put(machine: &Machine, file: &str, put: &[(usize, u64, usize)]) {
    let mut bytes = std::fs::read(machine.path(file)).unwrap();
    for (at, value, width) in put {
        bytes[*at..*at + width].copy_from_slice(&value.to_le_bytes()[..*width]);
    }
    machine.write(file, bytes);
}

#[test]
fn a_board_of_two_dies_is_a_divided_unit_with_the_energy() {
    let machine = Machine::fixture("gpu-mi250");
    let mut amd = Amd::new(&roots(&machine));
    assert!(amd.is_present());
    let sample = sample(&mut amd, Instant::now());
    let uuids: Vec<_> = sample.units.iter().map(|unit| unit.unit.uuid.as_ref()).collect();
    assert_eq!(uuids, [DIES[0], DIES[1], DIES[2], DIES[3], BOARD]);
    let board = unit(&sample, BOARD);
    assert!(board.unit.divided && board.unit.nodes.is_empty() && board.unit.part.is_none());
    assert_eq!(board.counts, [(Quantity::ENERGY, 123_456_000_000)], "2^-16 J each");
    assert_eq!(fact(board, &families::POWER, &["gpu"]), Some(287.0));
    for (die, minor) in DIES.iter().zip(128..) {
        let die = unit(&sample, die);
        assert_eq!(die.unit.nodes, [DeviceNode { major: 226, minor }]);
        assert_eq!((die.unit.index, die.unit.divided), (Some(minor - 128), false));
        assert_eq!(count(die, Quantity::ENERGY), None);
        let used = GIB * u64::from(9 + minor - 128);
        assert_eq!(die.memory, Some(Memory { total: 64 * GIB, used, free: 64 * GIB - used, reserved: None }));
    }
    let part = unit(&sample, DIES[1]).unit.part.clone().unwrap();
    assert_eq!((part.parent.as_ref(), part.gpu_instance, part.slices), (BOARD, 1, Some((1, 2))));
    let alone = unit(&sample, DIES[2]);
    assert_eq!(alone.unit.part, None, "nothing says that these two are one board");
    assert_eq!(fact(alone, &families::POWER, &["gpu"]), Some(287.0));
    assert_eq!(fact(unit(&sample, DIES[3]), &families::POWER, &["gpu"]), None, "0 W is no measurement");
    assert_eq!(unit(&sample, DIES[0]).unit.model.as_ref(), "AMD INSTINCT MI250 (MCM) OAM AC MBA");
    assert_eq!(unit(&sample, DIES[1]).unit.model.as_ref(), "AMD Instinct MI250X/MI250");
}

#[test]
fn facts_are_in_base_units() {
    let machine = Machine::fixture("gpu-mi250");
    let sample = sample(&mut Amd::new(&roots(&machine)), Instant::now());
    let die = unit(&sample, DIES[0]);
    let expected: &[(&'static exposition::Family, &[&str], f64)] = &[
        (&families::TEMPERATURE, &["edge"], 41.0),
        (&families::TEMPERATURE, &["junction"], 44.0),
        (&families::TEMPERATURE, &["mem"], 47.0),
        (&families::TEMPERATURE, &["vr_gfx"], 40.0),
        (&families::TEMPERATURE, &["vr_soc"], 36.0),
        (&families::POWER_LIMIT, &["current"], 500.0),
        (&families::POWER_LIMIT, &["max"], 500.0),
        (&families::CLOCK, &["gfx"], 1.65e9),
        (&families::CLOCK, &["soc"], 1.09e9),
        (&families::CLOCK, &["memory"], 1.6e9),
        (&families::UTILIZATION, &["gfx"], 0.37),
        (&families::UTILIZATION, &["memory"], 0.12),
        (&families::HOST_MEMORY, &["total"], 274_877_906_944.0),
        (&families::HOST_MEMORY, &["used"], 14_680_064.0),
        (&families::PCIE_GENERATION, &["current"], 4.0),
        (&families::PCIE_WIDTH, &["max"], 16.0),
        (&families::PCIE_REPLAYS, &[], 2.0),
        (&families::ECC_ERRORS, &["load", "corrected", "umc"], 7.0),
        (&families::ECC_ERRORS, &["load", "uncorrected", "gfx"], 0.0),
        (&families::THROTTLE, &["memory_thermal"], 1.0),
        (&families::THROTTLE, &["thermal"], 0.0),
        (&families::THROTTLE, &["power"], 0.0),
    ];
    for (family, labels, value) in expected {
        assert_eq!(fact(die, family, labels), Some(*value), "{} {labels:?}", family.name);
    }
    assert_eq!(fact(die, &families::POWER_LIMIT, &["min"]), None, "0 is no limit");
}

/// Where MI200's table has its sums and the firmware's clock.
const SUMS: usize = 80;
const CLOCK: usize = 96;

#[test]
fn sums_without_cycles_are_percents_of_milliseconds() {
    let machine = Machine::fixture("gpu-mi250");
    let table = device(&machine, "0000:c1:00.0") + "/gpu_metrics";
    let mut amd = Amd::new(&roots(&machine));
    let now = Instant::now();
    let first = sample(&mut amd, now);
    assert_eq!(count(unit(&first, DIES[0]), Quantity::BUSY), Some(0));
    // Busy for 0.5 s of ten and idle again before the reading; gpu_busy_percent is still 37.
    let later = |ticks: u64, gfx: u64, memory: u64| {
        put(&machine, &table, &[(SUMS, gfx, 4), (SUMS + 4, memory, 4), (CLOCK, ticks, 8)]);
    };
    let (ticks, gfx, memory) = (8_641_100_000_000, 912_345_678, 81_234_567);
    later(ticks + 1_000_000_000, gfx + 50_000, memory + 20_000);
    let second = sample(&mut amd, now + Duration::from_secs(11));
    let die = unit(&second, DIES[0]);
    assert_eq!(
        count(die, Quantity::BUSY),
        Some(500_000_000),
        "by the firmware's clock, not by when it was read"
    );
    assert_eq!(count(die, Quantity::DRAM_ACTIVE), Some(200_000_000));
    assert_eq!(count(unit(&second, DIES[1]), Quantity::BUSY), Some(0), "its table is still the same");

    // A table that cannot be read for once: the next one has what was missed.
    let bytes = std::fs::read(machine.path(&table)).unwrap();
    machine.write(&table, [8, 0, 7, 7, 0, 0, 0, 0]);
    let none = sample(&mut amd, now + Duration::from_secs(21));
    assert_eq!(count(unit(&none, DIES[0]), Quantity::BUSY), None);
    machine.write(&table, bytes);
    later(ticks + 3_000_000_000, gfx + 50_000 + 1_000_000, memory + 20_000);
    let third = sample(&mut amd, now + Duration::from_secs(31));
    assert_eq!(count(unit(&third, DIES[0]), Quantity::BUSY), Some(10_500_000_000), "half of 20 s more");
    assert_eq!(unit(&third, DIES[0]).epoch, unit(&first, DIES[0]).epoch);
}

#[test]
fn sums_of_more_than_the_time_are_not_used() {
    let machine = Machine::fixture("gpu-mi250");
    let table = device(&machine, "0000:c1:00.0") + "/gpu_metrics";
    let mut amd = Amd::new(&roots(&machine));
    let now = Instant::now();
    let epoch = unit(&sample(&mut amd, now), DIES[0]).epoch;
    put(&machine, &table, &[(SUMS, 912_345_678 + 2_000_000, 4), (CLOCK, 8_642_100_000_000, 8)]);
    let second = sample(&mut amd, now + Duration::from_secs(10));
    assert_eq!(count(unit(&second, DIES[0]), Quantity::BUSY), Some(0), "200 %");
    assert_ne!(unit(&second, DIES[0]).epoch, epoch);
    let third = sample(&mut amd, now + Duration::from_secs(20));
    assert_eq!(count(unit(&third, DIES[0]), Quantity::BUSY), Some(3_700_000_000), "gpu_busy_percent");
    assert_eq!(unit(&third, DIES[0]).epoch, unit(&second, DIES[0]).epoch);
    assert_eq!(count(unit(&third, DIES[1]), Quantity::BUSY), Some(0), "the other die's are used");
}

#[test]
fn without_sums_the_percent_is_held_until_the_next_reading() {
    let machine = Machine::fixture("gpu-mi250");
    let at = device(&machine, "0000:c1:00.0");
    let none = u64::from(u32::MAX);
    put(&machine, &format!("{at}/gpu_metrics"), &[(SUMS, none, 4), (SUMS + 4, none, 4)]);
    let mut amd = Amd::new(&roots(&machine));
    let now = Instant::now();
    let first = sample(&mut amd, now);
    assert_eq!(count(unit(&first, DIES[0]), Quantity::BUSY), Some(0));
    let second = sample(&mut amd, now + Duration::from_secs(10));
    assert_eq!(count(unit(&second, DIES[0]), Quantity::BUSY), Some(3_700_000_000), "37 % of 10 s");
    assert_eq!(count(unit(&second, DIES[0]), Quantity::DRAM_ACTIVE), Some(1_200_000_000));
    machine.write(format!("{at}/gpu_busy_percent"), "100\n");
    let third = sample(&mut amd, now + Duration::from_secs(20));
    assert_eq!(
        count(unit(&third, DIES[0]), Quantity::BUSY),
        Some(3_700_000_000 + 6_850_000_000),
        "half way between"
    );
}

#[test]
fn processes_are_on_the_die_whose_memory_they_have() {
    let machine = Machine::fixture("gpu-mi250");
    let sample = Amd::new(&roots(&machine)).sample(PROCESSES).unwrap();
    assert_eq!(sample.failed, []);
    let on = |uuid: &str| unit(&sample, uuid).processes.clone().unwrap();
    let rocm = Process { pid: 2142, kind: ProcessKind::Compute, memory: Some(8 * GIB), busy_ns: None };
    assert_eq!(on(DIES[0]), [rocm], "the time of KFD's queues is not counted");
    assert_eq!(on(DIES[1]), [], "merely opened");
    let drm = Process {
        pid: 2184,
        kind: ProcessKind::Compute,
        memory: Some(4 << 20),
        busy_ns: Some(62_500_000_000),
    };
    assert_eq!(on(DIES[2]), [drm], "one client, though it has two descriptors");
    assert_eq!(on(DIES[3]), []);
    assert_eq!(unit(&sample, BOARD).processes, None);
}

#[test]
fn partitions_have_their_own_nodes_time_and_processes() {
    let machine = Machine::fixture("gpu-mi300");
    let mut amd = Amd::new(&roots(&machine));
    let now = Instant::now();
    let first = sample(&mut amd, now);
    let whole = unit(&first, WHOLE);
    assert!(!whole.unit.divided);
    assert_eq!(count(whole, Quantity::ENERGY), Some(5_000_000_000_000));
    assert_eq!(count(whole, Quantity::XGMI_RECEIVED), Some(7000 * 1024));
    assert_eq!(count(whole, Quantity::XGMI_TRANSMITTED), Some(14_000 * 1024));
    assert_eq!(fact(whole, &families::CLOCK, &["gfx"]), Some(1.925e9), "the mean of eight dies");
    assert_eq!(fact(whole, &families::POWER_INSTANT, &["gpu"]), Some(612.0));
    let divided = unit(&first, DIVIDED);
    assert!(divided.unit.divided);
    assert_eq!(count(divided, Quantity::ENERGY), Some(4_000_000_000_000));
    for n in 0..4u32 {
        let part = unit(&first, &format!("{DIVIDED}/{n}"));
        assert_eq!(part.unit.nodes, [DeviceNode { major: 226, minor: 132 + n }]);
        let what = part.unit.part.as_ref().unwrap();
        assert_eq!((what.gpu_instance, what.profile.as_ref(), what.slices), (n, "qpx", Some((304, 1216))));
        assert_eq!(part.counts, [(Quantity::BUSY, 0)]);
        assert_eq!(part.memory, None, "not known of a partition");
    }

    // Ten seconds later: 25 % of the whole, 10 % of its memory, half of partition 2.
    let table = device(&machine, "0000:9f:00.0") + "/gpu_metrics";
    let third = 344 + 2 * 440 + 120;
    let later = [
        (40, 86_410_000, 4),
        (76, 2_160_250_000, 4),
        (80, 432_100_000, 4),
        (288, 8_641_000_000_000, 8),
        (third + 8, 1_000_000, 8),
    ];
    put(&machine, &table, &later);
    let second = sample(&mut amd, now + Duration::from_secs(10));
    let divided = unit(&second, DIVIDED);
    assert_eq!(count(divided, Quantity::BUSY), Some(2_500_000_000));
    assert_eq!(count(divided, Quantity::DRAM_ACTIVE), Some(1_000_000_000));
    let busy = |n: u32| count(unit(&second, &format!("{DIVIDED}/{n}")), Quantity::BUSY);
    assert_eq!([busy(0), busy(1), busy(2), busy(3)], [Some(0), Some(0), Some(5_000_000_000), Some(0)]);
    assert_eq!(count(unit(&second, WHOLE), Quantity::BUSY), Some(0), "its table is still the same");

    let third = amd.sample_at(now + Duration::from_secs(20), PROCESSES).unwrap();
    let on = |uuid: &str| {
        unit(&third, uuid).processes.clone().unwrap().iter().map(|p| (p.pid, p.memory)).collect::<Vec<_>>()
    };
    assert_eq!(on(WHOLE), [(2142, Some(96 * GIB))]);
    assert_eq!(on(DIVIDED), []);
    assert_eq!(on(&format!("{DIVIDED}/2")), [(2184, Some(30 * GIB))]);
    assert_eq!(on(&format!("{DIVIDED}/1")), []);
}

#[test]
fn a_gpu_with_cpu_cores_counts_its_socket() {
    for (name, sockets) in
        [("energy-mi300a", true), ("gpu-mi300", false), ("gpu-mi250", false), ("v2-no-slurm", false)]
    {
        assert_eq!(Amd::new(&roots(&Machine::fixture(name))).counts_sockets(), sockets, "{name}");
    }
    let machine = Machine::fixture("energy-mi300a");
    let sample = sample(&mut Amd::new(&roots(&machine)), Instant::now());
    let first = unit(&sample, "a1b2c3d400000020");
    assert_eq!(count(first, Quantity::ENERGY), Some(2_500_000_000_000));
    assert_eq!(first.unit.pci.as_deref(), Some("0000:01:00.0"));
}

#[test]
fn counters_that_go_back_begin_anew() {
    let machine = Machine::fixture("gpu-mi300");
    let mut amd = Amd::new(&roots(&machine));
    let now = Instant::now();
    let first = sample(&mut amd, now);
    let table = device(&machine, "0000:9f:00.0") + "/gpu_metrics";
    put(&machine, &table, &[(24, 65_536, 8), (40, 100, 4), (76, 500, 4), (288, 10_000, 8)]);
    let second = sample(&mut amd, now + Duration::from_secs(10));
    assert_ne!(unit(&second, DIVIDED).epoch, unit(&first, DIVIDED).epoch);
    assert_eq!(unit(&second, WHOLE).epoch, unit(&first, WHOLE).epoch, "the other GPU goes on");
    assert_eq!(count(unit(&second, DIVIDED), Quantity::ENERGY), Some(1_000_000));
    assert_eq!(count(unit(&second, DIVIDED), Quantity::BUSY), Some(0));
    let third = sample(&mut amd, now + Duration::from_secs(20));
    assert_eq!(unit(&third, DIVIDED).epoch, unit(&second, DIVIDED).epoch);
}

#[test]
fn a_lost_gpu_is_exported_until_it_is_released_and_comes_back_anew() {
    let machine = Machine::fixture("gpu-mi300");
    let mut amd = Amd::new(&roots(&machine));
    let now = Instant::now();
    let before = unit(&sample(&mut amd, now), WHOLE).epoch;
    let links = ["sys/class/drm/card0", "sys/class/drm/renderD128"];
    let targets = links.map(|link| std::fs::read_link(machine.path(link)).unwrap());
    for link in links {
        std::fs::remove_file(machine.path(link)).unwrap();
    }
    let lost = sample(&mut amd, now);
    assert_eq!(unit(&lost, WHOLE).down, Some("lost"));
    assert_eq!((unit(&lost, WHOLE).counts.len(), unit(&lost, WHOLE).memory), (0, None));
    assert_eq!(unit(&lost, DIVIDED).down, None);
    amd.release();
    assert!(!sample(&mut amd, now).units.iter().any(|unit| unit.unit.uuid.as_ref() == WHOLE));
    for (link, target) in links.iter().zip(targets) {
        machine.symlink(link, target);
    }
    let back = sample(&mut amd, now);
    assert_eq!(unit(&back, WHOLE).down, None);
    assert_ne!(unit(&back, WHOLE).epoch, before, "what it did meanwhile is not known");
}

#[test]
fn partitions_that_are_joined_again_are_not_lost() {
    let machine = Machine::fixture("gpu-mi300");
    let mut amd = Amd::new(&roots(&machine));
    sample(&mut amd, Instant::now());
    for node in 4..7 {
        machine.remove(format!("sys/class/kfd/kfd/topology/nodes/{node}"));
    }
    let joined = sample(&mut amd, Instant::now());
    assert_eq!(joined.units.len(), 2);
    assert!(!unit(&joined, DIVIDED).unit.divided);
}

#[test]
fn files_that_are_not_there_are_absent_and_nothing_else_suffers() {
    let machine = Machine::fixture("gpu-mi250");
    let at = device(&machine, "0000:c1:00.0");
    for file in [
        "gpu_metrics",
        "unique_id",
        "serial_number",
        "product_name",
        "mem_info_vram_used",
        "ras",
        "gpu_busy_percent",
    ] {
        machine.remove(format!("{at}/{file}"));
    }
    let sample = sample(&mut Amd::new(&roots(&machine)), Instant::now());
    let die = unit(&sample, "0000:c1:00.0");
    assert_eq!((die.memory, count(die, Quantity::BUSY), die.down), (None, None, None));
    assert_eq!(fact(die, &families::TEMPERATURE, &["edge"]), Some(41.0));
    assert_eq!(fact(die, &families::CLOCK, &["gfx"]), Some(1.65e9), "of hwmon");
    assert_eq!(die.unit.model.as_ref(), "AMD Instinct MI250X/MI250");
    assert!(!sample.units.iter().any(|unit| unit.unit.uuid.as_ref() == BOARD), "one die alone is no board");
}

#[test]
fn what_is_malformed_is_said_and_a_form_that_is_not_known_is_absent() {
    let machine = Machine::fixture("gpu-mi250");
    let at = device(&machine, "0000:c1:00.0");
    machine.write(format!("{at}/mem_info_vram_used"), "many\n");
    let mut amd = Amd::new(&roots(&machine));
    let sample = amd.sample(Wanted::default()).unwrap();
    assert_eq!(sample.failed.iter().map(SourceError::reason).collect::<Vec<_>>(), ["malformed"]);
    assert_eq!(unit(&sample, DIES[0]).memory, None);
    machine
        .write(format!("{at}/mem_info_vram_used"), "1\n")
        .write(format!("{at}/gpu_metrics"), [8, 0, 7, 7, 0, 0, 0, 0]);
    let sample = amd.sample(Wanted::default()).unwrap();
    assert_eq!(sample.failed, []);
    assert_eq!(count(unit(&sample, BOARD), Quantity::ENERGY), None);
}

#[test]
fn what_is_denied_is_reported() {
    let machine = Machine::fixture("gpu-mi250");
    let at = device(&machine, "0000:c1:00.0");
    machine.chmod(format!("{at}/gpu_busy_percent"), 0);
    if rustix::process::geteuid().is_root() {
        return;
    }
    let sample = Amd::new(&roots(&machine)).sample(Wanted::default()).unwrap();
    let said: Vec<_> = sample.failed.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["denied: /sys/class/drm/card*/device/gpu_busy_percent"]);
    assert_eq!(count(unit(&sample, DIES[0]), Quantity::BUSY), None);
}

#[test]
fn processes_that_cannot_be_seen_are_not_exported_as_none() {
    let machine = Machine::fixture("gpu-mi250");
    machine.remove("proc/1");
    let sample = Amd::new(&roots(&machine)).sample(PROCESSES).unwrap();
    assert_eq!(sample.failed.iter().map(SourceError::reason).collect::<Vec<_>>(), ["denied"], "hidepid");
    assert!(sample.units.iter().all(|unit| unit.processes.is_none()));
}

#[test]
fn a_node_without_gpus_has_none() {
    for name in ["v2-no-slurm", "gpu-intel-xe"] {
        let mut amd = Amd::new(&roots(&Machine::fixture(name)));
        assert!(!amd.is_present());
        assert_eq!(sample(&mut amd, Instant::now()).units.len(), 0);
    }
}
