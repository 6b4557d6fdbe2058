//! The backend against a fake library: what it reports, and the states it goes through.

mod counts;
mod faults;
mod parts;
mod recorded;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobledger_testkit::nvml::FakeNvml;
use jobledger_testkit::scratch::Scratch;
use kernel_files::{Roots, SourceError};

use super::{NvmlBackend, Options};
use crate::{Backend, DeviceNode, Memory, ProcessKind, Quantity, Sample, UnitSample, Vendor, Wanted};

const ALL: Wanted = Wanted { processes: true };
const LITTLE: Wanted = Wanted { processes: false };

fn nowhere() -> Arc<Roots> {
    Arc::new(Roots::new("/nowhere", "/nowhere", "/nowhere", "/nowhere"))
}

fn options(library: &Path) -> Options {
    Options { library: Some(library.to_owned()), first_pause: Duration::ZERO, ..Options::default() }
}

fn backend(fake: &FakeNvml) -> NvmlBackend {
    NvmlBackend::new(nowhere(), options(&fake.library()))
}

/// One that leaves a driver that fails alone for as long as it ever does.
fn patient(fake: &FakeNvml) -> NvmlBackend {
    NvmlBackend::new(
        nowhere(),
        Options { first_pause: Duration::from_secs(3600), ..options(&fake.library()) },
    )
}

/// One that looks at everything in each sample.
fn curious(fake: &FakeNvml) -> NvmlBackend {
    NvmlBackend::new(nowhere(), Options { look_every: Duration::ZERO, ..options(&fake.library()) })
}

fn unit<'a>(sample: &'a Sample, uuid: &str) -> &'a UnitSample {
    let found = sample.units.iter().find(|unit| unit.unit.uuid.ends_with(uuid));
    found.expect(uuid)
}

fn count(unit: &UnitSample, quantity: &'static Quantity) -> Option<u64> {
    unit.counts.iter().find(|(q, _)| *q == quantity).map(|(_, value)| *value)
}

/// Facts of a unit as `name{label values}`, without the common beginning.
fn facts(unit: &UnitSample) -> BTreeMap<String, f64> {
    let facts = unit.facts.iter().map(|fact| {
        let labels: Vec<_> = fact.labels.iter().map(|(_, value)| value.as_ref()).collect();
        let name = fact.family.name.trim_start_matches("jobledger_gpu_");
        let value = fact.value.to_f64();
        assert_eq!(fact.family.labels.len(), 2 + labels.len(), "{name}");
        for ((key, _), declared) in fact.labels.iter().zip(fact.family.labels.iter().skip(2)) {
            assert_eq!(key, declared, "{name}");
        }
        (format!("{name}{{{}}}", labels.join(",")), value)
    });
    let listed: Vec<_> = facts.collect();
    let map: BTreeMap<_, _> = listed.iter().cloned().collect();
    assert_eq!(map.len(), listed.len(), "twice: {listed:?}");
    map
}

fn wait(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Two samples, and the time between them as precisely as it can be known on a machine that others keep busy.
struct Between {
    second: Sample,
    least: f64,
    most: f64,
}

impl Between {
    fn samples(backend: &mut NvmlBackend, wanted: Wanted) -> Self {
        let began = Instant::now();
        backend.sample(wanted).unwrap();
        let read = Instant::now();
        wait(150);
        let least = read.elapsed().as_secs_f64();
        let second = backend.sample(wanted).unwrap();
        Self { second, least, most: began.elapsed().as_secs_f64() }
    }

    /// Whether a count is what the time gives at so much a second.
    fn gives(&self, value: Option<u64>, a_second: f64) -> bool {
        #[expect(clippy::cast_precision_loss)]
        let fits =
            |value: u64| (self.least * a_second - 2.0..=self.most * a_second + 2.0).contains(&(value as f64));
        value.is_some_and(fits)
    }
}

#[test]
fn a_gpu_is_named_by_everything_it_has() {
    let fake = FakeNvml::new("gpus 2\ngpu 1 pci 12 ab 0\ngpu 1 minor 5\ngpu 1 name Tesla V100\n");
    let mut backend = backend(&fake);
    assert!(backend.is_present() && backend.vendor() == Vendor::Nvidia);
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!((sample.units.len(), &sample.failed[..]), (2, &[][..]));
    let second = &unit(&sample, "0001").unit;
    assert_eq!(&*second.uuid, "GPU-00000000-0000-0000-0000-000000000001");
    assert_eq!((second.index, second.minor, &*second.model), (Some(1), Some(5), "Tesla V100"));
    assert_eq!(second.pci.as_deref(), Some("0012:ab:00.0"));
    assert_eq!(second.nodes, [DeviceNode { major: 195, minor: 5 }]);
    assert!(second.part.is_none() && !second.divided);
    let driver: Vec<_> =
        sample.facts.iter().flat_map(|f| f.labels.clone()).map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(driver, ["vendor=nvidia", "version=550.54.15", "library=12.550.54.15", "cuda=12.4"]);
    assert!(sample.began <= sample.ended);
}

#[test]
fn everything_is_exported_in_base_units_and_what_is_not_there_is_absent() {
    let fake = FakeNvml::new(
        "gpus 2\n\
         gpu 0 util 80 30 5 6 7 8\ngpu 0 memory 1000 600 100\ngpu 0 power 350500\ngpu 0 clocks 1500 1600 2619 1200\n\
         gpu 0 temperature 61\ngpu 0 margin -3\ngpu 0 throttle 0x44\ngpu 0 pstate 2\ngpu 0 fans 2 45\n\
         gpu 0 pcie 4 8 5 16\ngpu 0 mode 3 1\ngpu 0 bar1 5000 2000\n\
         gpu 0 field 185 1 uint 900000\ngpu 0 field 194 0 sint -5\ngpu 0 field 74 0 ullong 1500000000\n\
         gpu 0 field 251 0 ullong 250000000\n\
         gpu 0 field 3 0 ullong 4\ngpu 0 field 6 0 ulong 9\ngpu 0 field 142 0 uint 2\ngpu 0 field 144 0 uint 1\n\
         gpu 0 field 29 0 ullong 3\ngpu 0 field 94 0 uint 11\ngpu 0 field 230 0 uint 2\ngpu 0 field 38 0 ullong 6\n\
         gpu 0 field 91 0 uint 2\ngpu 0 field 165 0 uint 1\ngpu 0 field 165 1 uint 1\ngpu 0 field 161 0 ullong 5\n\
         gpu 0 field 161 1 ullong 6\n\
         gpu 1 fans 0 0\ngpu 1 field 1 0 code 3\ngpu 1 field 82 0 code 3\n",
    );
    let mut backend = backend(&fake);
    let sample = backend.sample(LITTLE).unwrap();
    let first = unit(&sample, "0000");
    assert_eq!(first.memory, Some(Memory { total: 1000, used: 600, free: 300, reserved: Some(100) }));
    let listed = facts(first);
    for (name, value) in [
        ("utilization_ratio{gpu}", 0.8),
        ("utilization_ratio{memory}", 0.3),
        ("utilization_ratio{encoder}", 0.05),
        ("utilization_ratio{decoder}", 0.06),
        ("utilization_ratio{jpeg}", 0.07),
        ("utilization_ratio{optical_flow}", 0.08),
        ("power_watts{gpu}", 350.5),
        ("power_watts{module}", 900.0),
        ("power_instant_watts{gpu}", 350.5),
        ("power_limit_watts{enforced}", 700.0),
        ("power_limit_watts{current}", 650.0),
        ("power_limit_watts{default}", 700.0),
        ("power_limit_watts{min}", 200.0),
        ("power_limit_watts{max}", 700.0),
        ("clock_hertz{graphics}", 1.5e9),
        ("clock_hertz{sm}", 1.6e9),
        ("clock_hertz{memory}", 2.619e9),
        ("clock_hertz{video}", 1.2e9),
        ("clock_max_hertz{sm}", 1.98e9),
        ("temperature_celsius{gpu}", 61.0),
        ("temperature_celsius{memory}", 69.0),
        ("temperature_margin_celsius{}", -3.0),
        ("temperature_margin_limit_celsius{slowdown}", -5.0),
        ("throttle_active{sw_power_cap}", 1.0),
        ("throttle_active{hw_thermal}", 1.0),
        ("throttle_active{idle}", 0.0),
        ("throttle_seconds_total{sw_power_cap}", 1.5),
        ("throttle_seconds_total{sw_thermal}", 0.25),
        ("ecc_errors_total{load,corrected,}", 4.0),
        ("ecc_errors_total{life,uncorrected,}", 9.0),
        ("ecc_enabled{}", 1.0),
        ("retired_pages{corrected}", 3.0),
        ("remapped_rows{corrected}", 2.0),
        ("remapped_rows_pending{}", 1.0),
        ("pcie_replays_total{}", 11.0),
        ("pcie_link_generation{current}", 4.0),
        ("pcie_link_generation{max}", 5.0),
        ("pcie_link_lanes{current}", 8.0),
        ("pcie_link_lanes{max}", 16.0),
        ("recovery_action{node_reboot}", 1.0),
        ("recovery_action{none}", 0.0),
        ("nvlink_errors_total{crc_flit}", 6.0),
        ("nvlink_errors_total{replay}", 11.0),
        ("nvlink_active_links{}", 2.0),
        ("fan_speed_ratio{1}", 0.45),
        ("performance_state{}", 2.0),
        ("compute_mode_info{exclusive_process}", 1.0),
        ("persistence_mode{}", 1.0),
        ("mig_mode{}", 0.0),
        ("bar1_bytes{used}", 2000.0),
        ("bar1_bytes{free}", 3000.0),
    ] {
        assert_eq!(listed.get(name), Some(&value), "{name}");
    }
    let second = facts(unit(&sample, "0001"));
    for absent in [
        "fan_speed",
        "temperature_celsius{memory}",
        "ecc_",
        "retired",
        "remapped",
        "nvlink",
        "recovery",
        "pcie_replays",
        "throttle_seconds",
    ] {
        assert!(!second.keys().any(|name| name.starts_with(absent)), "{absent}");
    }
}

#[test]
fn renumbered_fields_are_asked_for_by_the_drivers_numbers() {
    let fake =
        FakeNvml::new("driver 580.95.05\ngpu 0 field 269 0 ullong 3000000000\ngpu 0 field 251 0 ullong 77\n");
    let listed = facts(unit(&backend(&fake).sample(LITTLE).unwrap(), "0000"));
    assert_eq!(listed.get("throttle_seconds_total{sw_thermal}"), Some(&3.0));
    let fake = FakeNvml::new(
        "driver 580.65.06\ngpu 0 field 269 0 ullong 3000000000\ngpu 0 field 251 0 ullong 1000000000\n",
    );
    let listed = facts(unit(&backend(&fake).sample(LITTLE).unwrap(), "0000"));
    assert_eq!(listed.get("throttle_seconds_total{sw_thermal}"), Some(&1.0));
}
