//! Intel's GPUs from the files of a whole node, and their faults.

use std::time::Duration;

use jobledger_testkit::machine::Machine;

use super::*;
use crate::drm::testing::{check, count, fact, roots, unit};
use crate::{Process, ProcessKind};

const XE: &str = "0000:4d:00.0";
const I915: &str = "0000:9a:00.0";
const XE_DEVICE: &str = "sys/devices/pci0000:4d/0000:4d:00.0";

fn sample(intel: &mut Intel, now: Instant, wanted: Wanted) -> Sample {
    let sample = intel.sample_at(now, wanted).unwrap();
    assert_eq!(sample.failed, []);
    check(&sample);
    sample
}

#[test]
fn both_drivers_report_energy_clocks_and_limits() {
    let machine = Machine::fixture("gpu-intel-xe");
    let mut intel = Intel::new(&roots(&machine));
    assert!(intel.is_present());
    let sample = sample(&mut intel, Instant::now(), Wanted::default());
    assert_eq!(sample.units.len(), 2);
    let xe = unit(&sample, XE);
    assert_eq!(
        xe.counts,
        [(Quantity::ENERGY, 7_654_321_000_000)],
        "of the card, and no time: it is not reported"
    );
    assert_eq!((xe.unit.model.as_ref(), xe.unit.index), ("Intel Data Center GPU Flex 170", Some(0)));
    assert_eq!(xe.unit.nodes, [DeviceNode { major: 226, minor: 128 }]);
    let expected: &[(&'static exposition::Family, &[&str], Option<f64>)] = &[
        (&families::TEMPERATURE, &["package"], Some(52.0)),
        (&families::TEMPERATURE, &["mem"], Some(60.0)),
        (&families::POWER_LIMIT, &["current"], Some(150.0)),
        (&families::POWER_LIMIT, &["default"], Some(150.0)),
        (&families::POWER_LIMIT, &["critical"], None),
        (&families::CLOCK, &["gt0"], Some(1.95e9)),
        (&families::CLOCK, &["gt1"], Some(0.0)),
        (&families::CLOCK_MAX, &["gt0"], Some(2.05e9)),
        (&families::THROTTLE, &["power"], Some(1.0)),
        (&families::THROTTLE, &["thermal"], Some(0.0)),
        (&families::PCIE_GENERATION, &["current"], Some(4.0)),
    ];
    for (family, labels, value) in expected {
        assert_eq!(fact(xe, family, labels), *value, "{} {labels:?}", family.name);
    }
    assert_eq!(xe.memory, None, "xe does not show what is free");
    let i915 = unit(&sample, I915);
    assert_eq!(i915.counts, [(Quantity::ENERGY, 1_111_000_000)], "of the card and not of a tile");
    let gib = 1 << 30;
    assert_eq!(i915.memory, Some(Memory { total: 48 * gib, used: 8 * gib, free: 40 * gib, reserved: None }));
    assert_eq!(fact(i915, &families::CLOCK, &["gt0"]), Some(1.55e9));
    assert_eq!(fact(i915, &families::THROTTLE, &["power"]), Some(0.0));
    assert_eq!(fact(i915, &families::THROTTLE, &["external"]), None, "not reported");
}

#[test]
fn processes_report_time_and_memory() {
    let machine = Machine::fixture("gpu-intel-xe");
    let mut intel = Intel::new(&roots(&machine));
    let (now, wanted) = (Instant::now(), Wanted { processes: true });
    let first = sample(&mut intel, now, wanted);
    let one = unit(&first, XE).processes.clone().unwrap();
    let pid = one[0].pid;
    let expected = Process { pid, kind: ProcessKind::Compute, memory: Some(23992 << 10), busy_ns: Some(0) };
    assert_eq!(one, [expected], "ticks from before are not time yet");
    let two = unit(&first, I915).processes.clone().unwrap();
    assert_eq!(
        (two.len(), two[0].busy_ns, two[0].memory),
        (1, Some(3_000_000_000), Some(512 << 20)),
        "8 s of four engines are 2 s"
    );

    let file = format!("proc/{pid}/fdinfo/4");
    let later = machine
        .read(&file)
        .replace("ccs:\t400000000\n", "ccs:\t784000000\n")
        .replace("\t5000000000\n", "\t5192000000\n");
    machine.write(&file, later);
    let second = sample(&mut intel, now + Duration::from_secs(10), wanted);
    let busy = unit(&second, XE).processes.clone().unwrap()[0].busy_ns;
    assert_eq!(busy, Some(5_000_000_000), "384e6 ticks of four engines, of 192e6 in ten seconds");
}

#[test]
fn energy_of_the_package_stands_in_for_that_of_the_card() {
    let machine = Machine::fixture("gpu-intel-xe");
    machine.remove(format!("{XE_DEVICE}/hwmon/hwmon2/energy1_input"));
    let sample = sample(&mut Intel::new(&roots(&machine)), Instant::now(), Wanted::default());
    assert_eq!(count(unit(&sample, XE), Quantity::ENERGY), Some(6_000_000_000_000));
}

#[test]
fn a_counter_that_goes_back_and_a_gpu_that_comes_back_begin_anew() {
    let machine = Machine::fixture("gpu-intel-xe");
    let mut intel = Intel::new(&roots(&machine));
    let mut epoch = || {
        let sample = sample(&mut intel, Instant::now(), Wanted::default());
        let xe = unit(&sample, XE);
        (xe.epoch, xe.down)
    };
    let (first, _) = epoch();
    assert_eq!(epoch(), (first, None));
    machine.write(format!("{XE_DEVICE}/hwmon/hwmon2/energy1_input"), "5\n");
    let (reset, _) = epoch();
    assert_ne!(reset, first);
    let link = "sys/class/drm/card1";
    let target = std::fs::read_link(machine.path(link)).unwrap();
    std::fs::remove_file(machine.path(link)).unwrap();
    assert_eq!(epoch(), (reset, Some("lost")));
    machine.symlink(link, target);
    let (back, down) = epoch();
    assert!(back != reset && down.is_none());
}

#[test]
fn a_gpu_of_the_cpu_is_marked_and_a_display_is_none() {
    let machine = Machine::fixture("gpu-intel-xe");
    std::fs::rename(machine.path("sys/devices/pci0000:4d"), machine.path("sys/devices/pci0000:00")).unwrap();
    std::fs::rename(
        machine.path("sys/devices/pci0000:00/0000:4d:00.0"),
        machine.path("sys/devices/pci0000:00/0000:00:02.0"),
    )
    .unwrap();
    for name in ["card1", "renderD128"] {
        std::fs::remove_file(machine.path(format!("sys/class/drm/{name}"))).unwrap();
        let at = format!("devices/pci0000:00/0000:00:02.0/drm/{name}");
        machine.symlink(format!("sys/class/drm/{name}"), format!("../../{at}"));
        std::fs::remove_file(machine.path(format!("sys/{at}/device"))).unwrap();
        machine.symlink(format!("sys/{at}/device"), "../../../0000:00:02.0");
    }
    machine.write("sys/devices/pci0000:00/0000:00:02.0/device", "0x4680\n");
    std::fs::remove_file(machine.path("sys/class/drm/renderD129")).unwrap();
    let sample = sample(&mut Intel::new(&roots(&machine)), Instant::now(), Wanted::default());
    let models: Vec<_> = sample.units.iter().map(|unit| unit.unit.model.as_ref()).collect();
    assert_eq!(models, ["Intel 0x4680 (integrated)"]);
}
