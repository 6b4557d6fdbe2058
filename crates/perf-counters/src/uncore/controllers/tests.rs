use std::collections::BTreeSet;
use std::sync::Arc;

use perf_events::OpenError;
use test_machine::Machine;

use super::super::testing::{DF, Hardware, IMC, amd, ice_lake, intel, pmu, sockets};
use super::super::{Direction, Kind};
use super::*;

fn find(machine: &Machine, hardware: &Hardware) -> Result<Controllers, SourceError> {
    let mut files = NodeFiles::new(&Arc::new(machine.roots()));
    let topology = Topology::current(&mut files);
    Controllers::find(&mut files, &topology, Box::new(hardware.clone()))
}

type Readings = BTreeMap<(Option<u32>, &'static str, &'static str), Result<Reading, SourceError>>;

fn read(controllers: &mut Controllers) -> Readings {
    let mut readings = BTreeMap::new();
    controllers.read(&|| true, &mut |place, reading| {
        readings.insert((place.socket, place.kind.as_str(), place.direction.as_str()), reading);
    });
    readings
}

/// Opens, and reads for the first time.
fn begin(machine: &Machine) -> (Hardware, Controllers) {
    let hardware = Hardware::default();
    *hardware.still.lock().unwrap() = true;
    let mut controllers = find(machine, &hardware).unwrap();
    read(&mut controllers);
    hardware.runs(1000);
    (hardware, controllers)
}

fn grown(bytes: u64) -> Result<Reading, SourceError> {
    Ok(Reading::Grown { bytes, running: 1.0 })
}

#[test]
fn ice_lake_has_two_events_per_channel_and_socket() {
    let machine = Machine::new();
    ice_lake(&machine, 8);
    let (hardware, mut controllers) = begin(&machine);
    assert_eq!(hardware.are_open(), 32);
    let expected: Vec<_> = (20..28)
        .flat_map(|kind| [(kind, 0x0f04, 0), (kind, 0x0f04, 4), (kind, 0x3004, 0), (kind, 0x3004, 4)])
        .collect();
    assert_eq!(BTreeSet::from_iter(hardware.specs()), BTreeSet::from_iter(expected));
    hardware.counts(20, 0x0f04, 0, 10).counts(27, 0x0f04, 0, 1).counts(21, 0x3004, 4, 3);
    let readings = read(&mut controllers);
    assert_eq!(readings.len(), 4);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(11 * 64));
    assert_eq!(readings[&(Some(0), "dram", "write")], grown(0));
    assert_eq!(readings[&(Some(1), "dram", "write")], grown(192));
    let found: Vec<_> = controllers.found().cloned().collect();
    assert_eq!((found[0].events, found[0].counters, found[0].unverified.as_deref()), (2, Some(4), None));
    controllers.close();
    assert_eq!(hardware.are_open(), 0);
    assert_eq!(controllers.found().count(), 0);
}

/// Its names are those of later kernels; the codes are the same without them.
#[test]
fn sapphire_rapids_has_hbm_in_boxes_of_their_own() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    intel(&machine, 0x8f, 8);
    pmu(&machine, "uncore_imc_0", 30, "0", &IMC, &[]);
    pmu(&machine, "uncore_hbm_0", 40, "0", &IMC, &[]);
    pmu(&machine, "uncore_hbm_15", 41, "0", &IMC, &[]);
    let (hardware, mut controllers) = begin(&machine);
    hardware
        .counts(30, 0xcf05, 0, 1)
        .counts(40, 0xcf05, 0, 2)
        .counts(41, 0xcf05, 0, 3)
        .counts(41, 0xf005, 0, 7);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(64));
    assert_eq!(readings[&(Some(0), "hbm", "read")], grown(5 * 64));
    assert_eq!(readings[&(Some(0), "hbm", "write")], grown(7 * 64));
    assert_eq!(readings.len(), 4, "no Optane without its modules");
    let verified: Vec<_> =
        controllers.found().map(|found| (found.kind.as_str(), found.unverified.is_none())).collect();
    assert_eq!(
        verified,
        [("dram", true), ("hbm", false)],
        "how many bytes a count of HBM is worth is disputed"
    );
    // With modules of Optane the DRAM's boxes count it, too.
    machine.write("sys/bus/nd/devices/nmem0/devtype", "nvdimm\n");
    let (hardware, mut controllers) = begin(&machine);
    hardware.counts(30, 0x00e3, 0, 2).counts(30, 0x00e7, 0, 1);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "pmem", "read")], grown(128));
    assert_eq!(readings[&(Some(0), "pmem", "write")], grown(64));
}

/// Kernels before February 2026 name the first sub-channel's events as if they were all.
#[test]
fn granite_rapids_adds_up_both_sub_channels_whatever_the_names_say() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    intel(&machine, 0xad, 1);
    let half = [("cas_count_read", "event=0x05,umask=0xcf"), ("cas_count_write", "event=0x05,umask=0xf0")];
    pmu(&machine, "uncore_imc_0", 30, "0", &IMC, &half);
    let (hardware, mut controllers) = begin(&machine);
    hardware
        .counts(30, 0xcf05, 0, 10)
        .counts(30, 0xcf06, 0, 9)
        .counts(30, 0xf005, 0, 4)
        .counts(30, 0xf006, 0, 4);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(19 * 64));
    assert_eq!(readings[&(Some(0), "dram", "write")], grown(8 * 64));
    assert_eq!(controllers.found().next().unwrap().events, 4);
}

#[test]
fn zen_3_counts_both_ways_as_one_with_more_channels_than_counters() {
    let machine = Machine::new();
    sockets(&machine, 2, 4);
    amd(&machine, 0x19, 0x01);
    pmu(&machine, "amd_df", 12, "0,4", &DF, &[]);
    let (hardware, mut controllers) = begin(&machine);
    let configs: BTreeSet<u64> = hardware.specs().into_iter().map(|(_, config, _)| config).collect();
    let expected =
        [0x3807, 0x3847, 0x3887, 0x38c7, 0x1_0000_3807, 0x1_0000_3847, 0x1_0000_3887, 0x1_0000_38c7];
    assert_eq!(
        configs,
        BTreeSet::from(expected),
        "bits 8 to 11 of the event are 32 to 35 of the configuration"
    );
    read(&mut controllers);
    hardware.turns(1000, 500);
    expected.iter().for_each(|config| {
        hardware.counts(12, *config, 4, 1000);
    });
    let readings = read(&mut controllers);
    assert_eq!(readings.len(), 2);
    let scaled = Reading::Grown { bytes: 8 * 1000 * 64 * 2, running: 0.5 };
    assert_eq!(readings[&(Some(1), "dram", "both")], Ok(scaled));
}

#[test]
fn zen_4_has_a_pmu_per_channel_and_without_those_the_fabric() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    amd(&machine, 0x19, 0x11);
    let fabric = [("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")];
    pmu(&machine, "amd_df", 12, "0", &fabric, &[]);
    let (hardware, mut controllers) = begin(&machine);
    assert_eq!((hardware.are_open(), controllers.found().next().unwrap().pmu.as_str()), (24, "amd_df"));
    hardware.counts(12, 0x0f00_fe1f, 0, 1).counts(12, 0x2_0f00_ffdf, 0, 2);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(64));
    assert_eq!(readings[&(Some(0), "dram", "write")], grown(128), "channel 11: event 0x1f + 0x2c0");
    for channel in 0..12 {
        let format = [("event", "config:0-7"), ("rdwrmask", "config:8-9")];
        pmu(&machine, &format!("amd_umc_{channel}"), 20 + channel, "0", &format, &[]);
    }
    let (hardware, mut controllers) = begin(&machine);
    assert_eq!(hardware.are_open(), 24);
    hardware.counts(31, 0x10a, 0, 5).counts(20, 0x20a, 0, 6);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(320));
    assert_eq!(readings[&(Some(0), "dram", "write")], grown(384));
}

/// Two NUMA nodes in each socket, as in NPS2.
fn divides(machine: &Machine) {
    machine.write("sys/devices/system/node/online", "0-3\n");
    for (node, cpus) in ["0-1", "2-3", "4-5", "6-7"].iter().enumerate() {
        machine.write(&format!("sys/devices/system/node/node{node}/cpulist"), format!("{cpus}\n"));
    }
}

/// perf and LIKWID have AMD's sum of channels for NPS1 only.
#[test]
fn zen_3_is_not_counted_where_its_sockets_are_divided() {
    let machine = Machine::new();
    sockets(&machine, 2, 4);
    amd(&machine, 0x19, 0x01);
    pmu(&machine, "amd_df", 12, "0,4", &DF, &[]);
    assert_eq!(begin(&machine).0.are_open(), 16);
    divides(&machine);
    let why = find(&machine, &Hardware::default()).err().unwrap();
    assert_eq!(why.reason(), "unsupported");
    assert!(why.to_string().contains("NPS1") && why.to_string().contains("NPS4"), "{why}");
}

#[test]
fn zen_5_says_that_its_bytes_are_not_certain_where_its_sockets_are_divided() {
    let machine = Machine::new();
    sockets(&machine, 2, 4);
    amd(&machine, 0x1a, 0x02);
    let format = [("event", "config:0-7"), ("rdwrmask", "config:8-9")];
    pmu(&machine, "amd_umc_0", 20, "0", &format, &[]);
    let unverified = |machine: &Machine| begin(machine).1.found().next().unwrap().unverified.clone();
    assert_eq!(unverified(&machine), None);
    divides(&machine);
    assert!(unverified(&machine).is_some_and(|why| why.contains("NPS4")));
}

/// Its channels look like those of Zen 4 and are HBM3, which GPUs use too: a job would be charged with what nobody knows.
#[test]
fn mi300_has_the_channels_of_zen_4_and_none_of_its_numbers() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    let format = [("event", "config:0-7"), ("rdwrmask", "config:8-9")];
    pmu(&machine, "amd_umc_0", 20, "0", &format, &[]);
    let fabric = [("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")];
    pmu(&machine, "amd_df", 12, "0", &fabric, &[]);
    amd(&machine, 0x19, 0x11);
    assert_eq!(begin(&machine).0.are_open(), 2, "as these of Genoa are counted");
    amd(&machine, 0x19, 0x90);
    let why = find(&machine, &Hardware::default()).err().unwrap();
    assert_eq!(why.reason(), "unsupported");
    assert!(why.to_string().contains("Zen 4 MI300's are not"), "{why}");
}

#[test]
fn grace_counts_reads_by_32_bytes_and_writes_by_one() {
    let machine = Machine::new();
    sockets(&machine, 2, 4);
    machine.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n");
    let aliases = [("cmem_rd_data", "event=0x1a5"), ("cmem_wr_total_bytes", "event=0x1db")];
    for socket in 0..2 {
        let mask = (socket * 4).to_string();
        let name = format!("nvidia_scf_pmu_{socket}");
        pmu(&machine, &name, 50 + socket, &mask, &[("event", "config:0-31")], &aliases);
    }
    let (hardware, mut controllers) = begin(&machine);
    hardware.counts(51, 0x1a5, 4, 3).counts(51, 0x1db, 4, 100);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(1), "dram", "read")], grown(96));
    assert_eq!(readings[&(Some(1), "dram", "write")], grown(100));
}

#[test]
fn vera_counts_bytes_of_its_own_memory_whoever_moves_them() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    machine.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x4e\nCPU part\t: 0x010\n\n");
    let format = [("event", "config:0-31"), ("dst_loc_cmem", "config1:8"), ("dst_rem", "config1:11")];
    pmu(&machine, "nvidia_ucf_pmu_0", 50, "0", &format, &[]);
    let (hardware, mut controllers) = begin(&machine);
    let specs: Vec<_> = hardware.events.lock().unwrap().keys().map(|spec| spec.attr).collect();
    assert!(specs.iter().all(|attr| attr.config1 == 1 << 8), "{specs:?}");
    for (event, attr) in hardware.events.lock().unwrap().iter_mut().zip([3, 4]) {
        event.1.gains(attr);
    }
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(3));
    assert_eq!(readings[&(Some(0), "dram", "write")], grown(4));
}

#[test]
fn broadwell_is_counted_by_its_codes_where_the_names_are_missing() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    intel(&machine, 0x4f, 1);
    pmu(&machine, "uncore_imc_0", 30, "0", &IMC, &[]);
    pmu(&machine, "uncore_imc_1", 31, "0", &IMC, &[]);
    let (hardware, mut controllers) = begin(&machine);
    hardware.counts(30, 0x0304, 0, 3).counts(31, 0x0c04, 0, 4);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(0), "dram", "read")], grown(192));
    assert_eq!(readings[&(Some(0), "dram", "write")], grown(256));
}

#[test]
fn ice_lake_without_its_boxes_has_the_free_running_counters_whose_factor_is_not_believed() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    intel(&machine, 0x6a, 6);
    let format = [("event", "config:0-7"), ("umask", "config:8-15")];
    let aliases = [("read", "event=0xff,umask=0x20"), ("write", "event=0xff,umask=0x30")];
    pmu(&machine, "uncore_imc_free_running_0", 60, "0", &format, &aliases);
    machine.write(
        "sys/bus/event_source/devices/uncore_imc_free_running_0/events/read.scale",
        "3.814697266e-6\n",
    );
    let (hardware, mut controllers) = begin(&machine);
    hardware.counts(60, 0x20ff, 0, 2);
    assert_eq!(read(&mut controllers)[&(Some(0), "dram", "read")], grown(128));
    assert_eq!(controllers.found().next().unwrap().counters, None);
}

#[test]
fn a_box_that_cannot_be_opened_costs_its_socket_and_no_other() {
    let machine = Machine::new();
    ice_lake(&machine, 2);
    let hardware = Hardware::default();
    let offline = Spec { attr: Attr::new(21, 0x0f04), cpu: 4 };
    hardware.refuses.lock().unwrap().insert(offline, OpenError::Unfit);
    let mut controllers = find(&machine, &hardware).unwrap();
    let readings = read(&mut controllers);
    assert_eq!(readings[&(Some(1), "dram", "read")].as_ref().unwrap_err().reason(), "io");
    assert_eq!(readings[&(Some(0), "dram", "read")], Ok(Reading::First));
    assert_eq!(readings[&(Some(1), "dram", "write")], Ok(Reading::First));
    // It is tried again each time.
    hardware.refuses.lock().unwrap().clear();
    hardware.runs(1000);
    assert_eq!(read(&mut controllers)[&(Some(1), "dram", "read")], Ok(Reading::First));
    hardware.runs(1000).counts(21, 0x0f04, 4, 1);
    assert_eq!(read(&mut controllers)[&(Some(1), "dram", "read")], grown(64));
}

#[test]
fn without_the_capability_it_is_denied() {
    let machine = Machine::new();
    ice_lake(&machine, 2);
    let hardware = Hardware::default();
    *hardware.refused.lock().unwrap() = Some(OpenError::Denied);
    let readings = read(&mut find(&machine, &hardware).unwrap());
    let error = readings[&(Some(0), "dram", "read")].clone().unwrap_err();
    assert_eq!(error.to_string(), "denied: memory controllers' perf events");
}

#[test]
fn what_is_not_known_or_not_there_is_unsupported() {
    let machine = Machine::new();
    sockets(&machine, 1, 4);
    let why = || find(&machine, &Hardware::default()).err().unwrap().to_string();
    assert!(why().contains("microarchitecture is known"), "{}", why());
    machine.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n");
    assert!(why().contains("Neoverse N1's are not"), "{}", why());
    intel(&machine, 0x6a, 6);
    assert!(why().contains("virtual machines"), "{}", why());
    // A PMU without the fields that an event needs cannot be asked for it.
    pmu(&machine, "uncore_imc_0", 30, "0", &[("event", "config:0-7")], &[]);
    assert!(why().contains("uncore_imc_"), "{}", why());
}

#[test]
fn firmware_that_numbers_no_sockets_leaves_the_sum_of_all() {
    let machine = Machine::new();
    ice_lake(&machine, 1);
    for cpu in [0, 4] {
        machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "-1\n");
    }
    let (hardware, mut controllers) = begin(&machine);
    hardware.counts(20, 0x0f04, 0, 1).counts(20, 0x0f04, 4, 2);
    let readings = read(&mut controllers);
    assert_eq!(readings[&(None, "dram", "read")], grown(192));
    let place = Place { socket: None, kind: Kind::Dram, direction: Direction::Read };
    assert_eq!((place.kind.as_str(), place.direction.as_str()), ("dram", "read"));
}

/// The kernel's own events under the names of a box: found, opened, read and closed as those of a real one are.
#[test]
fn the_kernels_events_are_counted_by_the_names_that_sysfs_has() {
    let machine = Machine::new();
    sockets(&machine, 1, 1);
    intel(&machine, 0x6a, 6);
    // cpu-clock and task-clock.
    let clocks = [("cas_count_read", "event=0x00"), ("cas_count_write", "event=0x01")];
    pmu(&machine, "uncore_imc_0", Attr::SOFTWARE, "0", &[("event", "config:0-7")], &clocks);
    let mut files = NodeFiles::new(&Arc::new(machine.roots()));
    let topology = Topology::current(&mut files);
    let mut controllers = Controllers::find(&mut files, &topology, Box::new(perf_events::Kernel)).unwrap();
    let place = (Some(0), "dram", "read");
    let first = read(&mut controllers)[&place].clone();
    if first.is_err() {
        jobledger_testkit::skip("perf-events", format!("{first:?}"));
        return;
    }
    assert_eq!(first, Ok(Reading::First));
    let Ok(Reading::Grown { bytes, running }) = read(&mut controllers)[&place] else { panic!("not counted") };
    // Nanoseconds, 64 bytes each.
    assert!(bytes > 0 && bytes % 64 == 0 && running == 1.0, "{bytes} {running}");
    controllers.close();
    assert_eq!(read(&mut controllers)[&place], Ok(Reading::First), "opened anew");
}
