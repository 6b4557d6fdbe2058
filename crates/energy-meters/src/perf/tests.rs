//! The PMU as sysfs describes it, and events that answer from a script.

use std::collections::VecDeque;
use std::sync::Mutex;

use perf_events::{Counters, On, OpenError, Reading};
use test_machine::Machine;

use super::*;

/// Opens whatever it is asked for. All its events read from one list, in the order in which they are read.
#[derive(Clone, Default)]
pub(in super::super) struct Script {
    pub(in super::super) opened: Arc<Mutex<Vec<Spec>>>,
    pub(in super::super) refuse: Arc<Mutex<Option<OpenError>>>,
    pub(in super::super) counts: Arc<Mutex<VecDeque<Result<Count, ReadError>>>>,
}

impl Open for Script {
    fn open(&self, _on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        if let Some(error) = *self.refuse.lock().unwrap() {
            return Err(error);
        }
        let opened = group.iter().map(|attr| Spec { attr: *attr, cpu });
        self.opened.lock().unwrap().extend(opened);
        Ok(Box::new(self.clone()))
    }
}

impl Counters for Script {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        let count = self.counts.lock().unwrap().pop_front().unwrap_or(Err(ReadError::Gone))?;
        *into = Reading { enabled: count.enabled, running: count.running, counts: vec![count.value] };
        Ok(())
    }
}

impl Script {
    pub(in super::super) fn count(&self, joules: f64, seconds: u64) -> &Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test's small numbers")]
        let value = (joules * 4_294_967_296.0) as u64;
        self.counts.lock().unwrap().push_back(Ok(Count {
            value,
            enabled: seconds * 1_000_000_000,
            running: seconds * 1_000_000_000,
        }));
        self
    }
}

const SCALE: &str = "2.3283064365386962890625e-10\n";

/// The PMU with these events; `cpus` of each socket.
pub(in super::super) fn pmu(machine: &Machine, mask: &str, events: &[(&str, &str)]) {
    let at = |file: &str| format!("{PMU}/{file}");
    machine.write(&at("type"), "12\n").write(&at("cpumask"), format!("{mask}\n"));
    machine.write(&at("format/event"), "config:0-7\n");
    for (name, spec) in events {
        machine.write(&at(&format!("events/{name}")), format!("{spec}\n"));
        machine.write(&at(&format!("events/{name}.scale")), SCALE);
        machine.write(&at(&format!("events/{name}.unit")), "Joules\n");
    }
}

pub(in super::super) fn sockets(machine: &Machine, vendor: &str, sockets: u32, cpus: u32) {
    const CPU: &str = "sys/devices/system/cpu";
    machine.write(&format!("{CPU}/online"), format!("0-{}\n", sockets * cpus - 1));
    machine.write("proc/cpuinfo", format!("processor\t: 0\nvendor_id\t: {vendor}\n\n"));
    for cpu in 0..sockets * cpus {
        let file = format!("{CPU}/cpu{cpu}/topology/physical_package_id");
        machine.write(&file, format!("{}\n", cpu / cpus));
    }
}

pub(in super::super) const PKG: (&str, &str) = ("energy-pkg", "event=0x02");
pub(in super::super) const RAM: (&str, &str) = ("energy-ram", "event=0x03");
const CORES: (&str, &str) = ("energy-cores", "event=0x01");

fn find(machine: &Machine, script: &Script) -> (Option<PerfRapl>, Vec<SourceError>) {
    let roots = Arc::new(machine.roots());
    let topology = Topology::current(&mut NodeFiles::new(&roots));
    PerfRapl::find(&roots, &topology, Box::new(script.clone()))
}

fn read(meter: &mut PerfRapl) -> Vec<(usize, Result<Sample, SourceError>)> {
    let mut readings = Vec::new();
    meter.read(Instant::now(), &mut |zone, reading| readings.push((zone, reading)));
    readings
}

#[test]
fn every_domain_is_opened_once_per_socket_with_what_sysfs_says() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 2, 4);
    pmu(&machine, "0,4", &[PKG, RAM, CORES]);
    let script = Script::default();
    let (meter, refused) = find(&machine, &script);
    let mut meter = meter.unwrap();
    assert_eq!(refused, []);
    let zones: Vec<_> = meter.zones().iter().map(|z| (z.domain, z.socket, z.name.as_str())).collect();
    assert_eq!(
        zones,
        [
            (Domain::Package, Some(0), "energy-pkg"),
            (Domain::Package, Some(1), "energy-pkg"),
            (Domain::Memory, Some(0), "energy-ram"),
            (Domain::Memory, Some(1), "energy-ram"),
            (Domain::Core, Some(0), "energy-cores"),
            (Domain::Core, Some(1), "energy-cores"),
        ]
    );
    let spec = |config, cpu| Spec { attr: Attr::new(12, config), cpu };
    assert_eq!(
        *script.opened.lock().unwrap(),
        [spec(2, 0), spec(2, 4), spec(3, 0), spec(3, 4), spec(1, 0), spec(1, 4)]
    );
    assert_eq!(meter.at_least_every(), Some(Duration::from_secs(60)));

    for zone in [1, 3, 4, 5] {
        meter.skip(zone);
    }
    script.count(1.5, 1).count(0.25, 1);
    let range = Range::Wraps { at: 4_294_967_296_000_000 };
    let sample = |energy_uj| Sample { energy_uj, range, epoch: 0, power_uw: None };
    assert_eq!(read(&mut meter), [(0, Ok(sample(1_500_000))), (2, Ok(sample(250_000)))]);
}

#[test]
fn chiplets_that_the_kernel_took_for_dies_share_their_sockets_counter() {
    let machine = Machine::new();
    sockets(&machine, "AuthenticAMD", 2, 8);
    pmu(&machine, "0,4,8,12", &[PKG]);
    let script = Script::default();
    let meter = find(&machine, &script).0.unwrap();
    assert_eq!(meter.zones().len(), 2, "the mask has a CPU for each chiplet");
    assert_eq!(script.opened.lock().unwrap().iter().map(|s| s.cpu).collect::<Vec<_>>(), [0, 8]);
    // Intel's dies have counters of their own.
    sockets(&machine, "GenuineIntel", 2, 8);
    let meter = find(&machine, &Script::default()).0.unwrap();
    let of: Vec<_> = meter.zones().iter().map(|z| (z.socket, z.name.as_str())).collect();
    let (first, second) = ("energy-pkg", "energy-pkg-1");
    assert_eq!(of, [(Some(0), first), (Some(0), second), (Some(1), first), (Some(1), second)]);
}

#[test]
fn without_the_capability_it_is_denied_and_reported_once() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    pmu(&machine, "0", &[PKG, RAM]);
    let script = Script::default();
    *script.refuse.lock().unwrap() = Some(OpenError::Denied);
    let (meter, refused) = find(&machine, &script);
    assert!(meter.is_none());
    let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["denied: RAPL's perf events"]);
}

#[test]
fn odd_descriptions_cost_their_own_event_only() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    pmu(&machine, "0", &[PKG, RAM, CORES]);
    machine.write(&format!("{PMU}/events/energy-ram.unit"), "Bananas\n");
    machine.write(&format!("{PMU}/events/energy-cores"), "event=0x01,umask=0x1\n");
    let (meter, refused) = find(&machine, &Script::default());
    assert_eq!(meter.unwrap().zones().len(), 1);
    let reasons: Vec<_> = refused.iter().map(SourceError::reason).collect();
    assert_eq!(reasons, ["malformed", "malformed"], "{refused:?}");
}

#[test]
fn no_pmu_is_no_error() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    let (meter, refused) = find(&machine, &Script::default());
    assert!(meter.is_none() && refused.is_empty());
    pmu(&machine, "", &[PKG]);
    let (meter, refused) = find(&machine, &Script::default());
    assert!(meter.is_none() && refused.is_empty(), "no socket of it is online");
}

#[test]
fn an_event_that_stopped_is_opened_anew_in_a_new_epoch() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    pmu(&machine, "0", &[PKG]);
    let script = Script::default();
    let mut meter = find(&machine, &script).0.unwrap();
    let mut one = || {
        let (_, reading) = read(&mut meter).pop().unwrap();
        reading.map(|sample| (sample.energy_uj, sample.epoch))
    };
    script.count(5.0, 10);
    assert_eq!(one(), Ok((5_000_000, 0)));
    // No time passed for it: it was taken off its CPU with the whole socket.
    script.count(5.0, 10).count(0.5, 1);
    assert_eq!(one(), Ok((500_000, 1)));
    assert_eq!(script.opened.lock().unwrap().len(), 2);
    script.count(1.0, 2);
    assert_eq!(one(), Ok((1_000_000, 1)));
    // As long as the socket is offline it cannot be opened.
    script.count(1.0, 2);
    *script.refuse.lock().unwrap() = Some(OpenError::Offline);
    assert_eq!(one().unwrap_err().reason(), "unsupported");
    script.counts.lock().unwrap().push_back(Err(ReadError::Io(5)));
    assert_eq!(one().unwrap_err().reason(), "io");
    script.count(1.0, 2).count(0.125, 1);
    *script.refuse.lock().unwrap() = None;
    assert_eq!(one(), Ok((125_000, 2)));
}

const PSYS: (&str, &str) = ("energy-psys", "event=0x05");

#[test]
fn psys_is_a_zone_once_it_has_moved() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    pmu(&machine, "0", &[PKG, PSYS]);
    let script = Script::default();
    let mut meter = find(&machine, &script).0.unwrap();
    let names = |meter: &PerfRapl| meter.zones().iter().map(|zone| zone.name.clone()).collect::<Vec<_>>();
    script.count(0.0, 1);
    assert!(!meter.has_other_zones());
    assert_eq!(names(&meter), ["energy-pkg"]);
    script.count(2.0, 2);
    assert!(meter.has_other_zones());
    assert_eq!(names(&meter), ["energy-pkg", "energy-psys"]);
    assert!(!meter.has_other_zones(), "it is one already");
    script.count(9.0, 3).count(3.0, 3);
    let joules: Vec<_> =
        read(&mut meter).into_iter().map(|(_, reading)| reading.unwrap().energy_uj).collect();
    assert_eq!(joules, [9_000_000, 3_000_000]);
}

#[test]
fn psys_that_stands_still_is_closed_after_a_while() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    pmu(&machine, "0", &[PKG, PSYS]);
    let script = Script::default();
    let mut meter = find(&machine, &script).0.unwrap();
    meter.still_until = Instant::now();
    script.count(0.0, 61).count(5.0, 62);
    assert!(!meter.has_other_zones() && meter.still.is_empty());
    assert!(!meter.has_other_zones(), "it is not read any more");
}

/// A virtual machine on Linux 6.18 with a CPU of Intel's family 6, model 207: this PMU has psys alone.
#[test]
fn a_pmu_with_psys_alone_is_none() {
    let machine = Machine::new();
    sockets(&machine, "GenuineIntel", 1, 2);
    pmu(&machine, "0", &[PSYS]);
    let (meter, refused) = find(&machine, &Script::default());
    assert!(meter.is_none() && refused.is_empty());
}
