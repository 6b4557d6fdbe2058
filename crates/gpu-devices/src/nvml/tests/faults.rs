//! Lost GPUs, drivers that come, go, deny, hang or are old.

use super::*;

#[test]
fn a_lost_gpu_keeps_its_name_and_the_others_go_on() {
    let fake = FakeNvml::new("gpus 2\ngpu 0 energy 5\ngpu 1 energy 5\n");
    let mut backend = backend(&fake);
    let before = backend.sample(LITTLE).unwrap();
    for (code, why) in [(15, "lost"), (16, "reset_required"), (28, "lost")] {
        fake.set(&format!("gpus 2\ngpu 0 lost {code}\ngpu 1 energy 9\n"));
        let sample = backend.sample(LITTLE).unwrap();
        let (lost, other) = (unit(&sample, "0000"), unit(&sample, "0001"));
        assert_eq!(lost.down, Some(why));
        assert_eq!(lost.unit, unit(&before, "0000").unit);
        assert!(lost.counts.is_empty() && lost.facts.is_empty() && lost.memory.is_none());
        assert_eq!((other.down, count(other, Quantity::ENERGY)), (None, Some(4000)));
    }
    fake.set("gpus 2\ngpu 0 energy 90\ngpu 1 energy 9\n");
    let sample = backend.sample(LITTLE).unwrap();
    let back = unit(&sample, "0000");
    assert_eq!((back.down, count(back, Quantity::ENERGY)), (None, Some(0)));
    assert!(back.epoch != unit(&before, "0000").epoch, "nothing is known of the time in between");
    assert_eq!(unit(&sample, "0001").epoch, unit(&before, "0001").epoch);
}

#[test]
fn a_gpu_that_cannot_be_opened_any_more_is_known_from_before() {
    let fake = FakeNvml::new("gpus 2\n");
    let mut backend = curious(&fake);
    let before = backend.sample(LITTLE).unwrap();
    fake.set("gpus 2\ngpu 1 lost 15\n");
    backend.release();
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(sample.units.len(), 2, "also by a driver that was opened since");
    assert_eq!((unit(&sample, "0000").down, unit(&sample, "0001").down), (None, Some("lost")));
    assert_eq!(unit(&sample, "0001").unit, unit(&before, "0001").unit);
    fake.set("gpus 2\ncode nvmlDeviceGetHandleByIndex_v2 4\n");
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(unit(&sample, "0000").down, None, "it answers by the handle that there is");
    fake.set("gpus 2\ncode nvmlDeviceGetHandleByIndex_v2 4\ncode nvmlDeviceGetMemoryInfo_v2 2\ncode nvmlDeviceGetMemoryInfo 2\n");
    assert_eq!(unit(&backend.sample(LITTLE).unwrap(), "0000").down, Some("denied"));
    backend.release();
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(sample.units.iter().map(|u| u.down).collect::<Vec<_>>(), [Some("denied"); 2]);
}

#[test]
fn when_every_gpu_is_lost_the_driver_is_opened_anew() {
    let fake = FakeNvml::new("gpus 1\n");
    let mut backend = patient(&fake);
    backend.sample(LITTLE).unwrap();
    fake.set("gpus 1\ngpu 0 lost 15\n");
    let (sample, calls) = fake.calls(|| backend.sample(LITTLE).unwrap());
    assert_eq!(unit(&sample, "0000").down, Some("lost"));
    assert_eq!(calls.get("nvmlShutdown"), Some(&1), "released");
    let (sample, calls) = fake.calls(|| backend.sample(LITTLE).unwrap());
    assert_eq!((unit(&sample, "0000").down, calls.len()), (Some("lost"), 0), "left alone for a while");

    fake.set("gpus 1\n");
    let mut backend = self::backend(&fake);
    backend.sample(LITTLE).unwrap();
    fake.set("gpus 1\ngpu 0 lost 15\n");
    backend.sample(LITTLE).unwrap();
    let (sample, calls) = fake.calls(|| backend.sample(LITTLE).unwrap());
    assert_eq!((unit(&sample, "0000").down, calls.get("nvmlInit_v2")), (Some("lost"), Some(&1)));
    fake.set("gpus 1\n");
    assert_eq!(unit(&backend.sample(LITTLE).unwrap(), "0000").down, None);
}

#[test]
fn a_driver_that_cannot_be_opened_says_why_and_is_left_alone_for_a_while() {
    let fake = FakeNvml::new("");
    for (code, reason, says) in [
        (9, "unsupported", "modprobe nvidia"),
        (18, "io", "different versions"),
        (4, "denied", "NVIDIA's driver"),
        (17, "denied", "NVIDIA's driver"),
        (12, "unsupported", "libnvidia-ml.so.1"),
        (13, "unsupported", "newer NVIDIA driver"),
        (999, "io", "internal driver error"),
        (33, "io", "error 33"),
        (15, "io", "fell off the bus"),
    ] {
        let mut backend = patient(&fake);
        fake.set(&format!("init {code}\n"));
        let error = backend.sample(LITTLE).unwrap_err();
        assert_eq!(error.reason(), reason, "{code}: {error}");
        assert!(error.to_string().contains(says), "{code}: {error}");
        let (again, calls) = fake.calls(|| backend.sample(LITTLE).unwrap_err());
        assert!(again == error && calls.is_empty(), "{code} {calls:?}");
        let mut backend = self::backend(&fake);
        backend.sample(LITTLE).unwrap_err();
        let (_, calls) = fake.calls(|| backend.sample(LITTLE).unwrap_err());
        assert_eq!(calls.get("nvmlInit_v2"), Some(&1), "{code}: the pause is over");
        fake.set("gpus 1\n");
        assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 1, "{code}: the driver was loaded");
    }
}

#[test]
fn a_library_that_is_missing_or_lacks_what_is_needed_is_refused() {
    let mut backend = NvmlBackend::new(nowhere(), options(Path::new("/nowhere/libnvidia-ml.so.1")));
    let error = backend.sample(LITTLE).unwrap_err();
    assert!(
        matches!(&error, SourceError::Unsupported { needs } if needs.contains("/nowhere/libnvidia-ml.so.1")),
        "{error}"
    );
    for lacking in ["NO_SHUTDOWN", "NO_INIT"] {
        let fake = FakeNvml::variant(&[lacking], "");
        let (error, calls) = fake.calls(|| self::backend(&fake).sample(LITTLE).unwrap_err());
        assert_eq!(error.reason(), "unsupported", "{lacking}: {error}");
        assert!(calls.is_empty(), "{lacking}: {calls:?}");
    }
}

#[test]
fn an_old_driver_reports_what_it_can() {
    let fake =
        FakeNvml::variant(&["OLD_DRIVER"], "gpu 0 power 99000\ngpu 0 energy 3\ngpu 0 memory 900 300 0\n");
    let mut backend = backend(&fake);
    backend.sample(ALL).unwrap();
    fake.set("gpu 0 power 99000\ngpu 0 energy 5\ngpu 0 memory 900 300 0\n");
    let sample = backend.sample(ALL).unwrap();
    assert_eq!(sample.failed, [], "what a driver does not have is no failure");
    let unit = unit(&sample, "0000");
    assert_eq!(count(unit, Quantity::ENERGY), Some(2000));
    assert_eq!(unit.memory, Some(Memory { total: 900, used: 300, free: 600, reserved: None }));
    assert!(unit.processes.is_none());
    let facts_now = facts(unit);
    assert_eq!(
        (facts_now.get("power_watts{gpu}"), facts_now.get("power_limit_watts{default}")),
        (Some(&99.0), Some(&700.0))
    );
    assert!(!facts_now.contains_key("mig_mode{}") && !facts_now.contains_key("temperature_margin_celsius{}"));
}

#[test]
fn what_is_denied_is_absent_and_noted_once() {
    let fake = FakeNvml::new("gpus 2\ncode nvmlGpmSampleGet 4\ncode nvmlDeviceGetBAR1MemoryInfo 4\n");
    let mut backend = backend(&fake);
    for _ in 0..2 {
        let sample = backend.sample(LITTLE).unwrap();
        let noted: Vec<_> = sample.failed.iter().map(|e| (e.reason(), e.to_string())).collect();
        assert!(noted.iter().all(|(reason, _)| *reason == "denied"), "{noted:?}");
        assert_eq!(
            noted.iter().filter(|(_, text)| text.contains("nvmlGpmSampleGet")).count(),
            1,
            "{noted:?}"
        );
        assert!(!facts(unit(&sample, "0000")).contains_key("bar1_bytes{used}"));
        assert_eq!(unit(&sample, "0001").down, None);
    }
    fake.set("gpus 2\ncode nvmlDeviceGetHandleByIndex_v2 4\n");
    let mut stranger = self::backend(&fake);
    let sample = stranger.sample(LITTLE).unwrap();
    assert!(sample.units.is_empty());
    assert_eq!(sample.failed.iter().map(SourceError::reason).collect::<Vec<_>>(), ["denied"]);
}

#[test]
fn a_call_that_fails_costs_itself_alone() {
    let fake = FakeNvml::new("code nvmlDeviceGetTemperature 999\ngpu 0 field 82 0 code 999\n");
    let sample = backend(&fake).sample(LITTLE).unwrap();
    let noted: Vec<_> = sample.failed.iter().map(ToString::to_string).collect();
    assert_eq!(noted, ["failed: nvmlDeviceGetTemperature: an internal driver error occurred"]);
    let facts_now = facts(unit(&sample, "0000"));
    assert!(
        !facts_now.keys().any(|name| name.starts_with("temperature_celsius"))
            && facts_now.contains_key("power_watts{gpu}")
    );
}

#[test]
fn a_driver_that_is_unloaded_under_way_is_opened_anew() {
    let fake = FakeNvml::new("gpu 0 energy 10\n");
    let mut backend = backend(&fake);
    let before = backend.sample(LITTLE).unwrap();
    fake.set("code nvmlDeviceGetFieldValues 1\ngpu 0 energy 3\n");
    let (error, calls) = fake.calls(|| backend.sample(LITTLE).unwrap_err());
    assert_eq!(
        (error.reason(), calls.get("nvmlShutdown"), calls.get("nvmlGpmSampleFree")),
        ("io", Some(&1), Some(&2))
    );
    assert_eq!(calls.get("nvmlEventSetFree"), Some(&1));
    fake.set("gpu 0 energy 3\n");
    let after = backend.sample(LITTLE).unwrap();
    assert!(unit(&after, "0000").epoch != unit(&before, "0000").epoch);
    assert_eq!(count(unit(&after, "0000"), Quantity::ENERGY), Some(0));
}

#[test]
fn a_released_driver_is_opened_by_the_next_sample() {
    let fake = FakeNvml::new("");
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    let ((), calls) = fake.calls(|| backend.release());
    assert_eq!(calls.get("nvmlShutdown"), Some(&1));
    let (_, calls) = fake.calls(|| backend.release());
    assert!(calls.is_empty());
    assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 1);
}

#[test]
fn a_call_that_hangs_is_over_when_it_returns() {
    let fake = FakeNvml::new("hang nvmlDeviceGetTemperature\n");
    let mut backend = backend(&fake);
    let sample = std::thread::scope(|scope| {
        let sampling = scope.spawn(|| backend.sample(LITTLE));
        wait(300);
        assert!(!sampling.is_finished());
        fake.set("");
        sampling.join().unwrap().unwrap()
    });
    assert_eq!(facts(unit(&sample, "0000")).get("temperature_celsius{gpu}"), Some(&30.0));
    assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 1);
}

#[test]
fn a_sample_is_few_calls() {
    let fake = FakeNvml::new("gpus 1\n");
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    wait(110);
    let (sample, calls) = fake.calls(|| backend.sample(LITTLE).unwrap());
    assert!(!unit(&sample, "0000").facts.is_empty());
    assert_eq!(calls.get("nvmlDeviceGetFieldValues"), Some(&1), "one batch");
    assert_eq!(calls.get("nvmlDeviceGetPcieThroughput"), None, "blocks for 20 ms");
    assert_eq!(calls.get("nvmlGpmSampleAlloc"), None, "memory is used again");
    assert!(
        calls.keys().all(|name| !name.contains("RunningProcesses") && !name.contains("BAR1")),
        "{calls:?}"
    );
    let all: u32 = calls.values().sum();
    assert!(all <= 24, "{all}: {calls:?}");
    // What it does not have is not asked for again.
    let asked = ["nvmlDeviceGetNumFans", "nvmlDeviceGetMigMode", "nvmlDeviceGetPowerUsage"];
    assert!(asked.iter().all(|name| !calls.contains_key(*name)), "{calls:?}");
}

#[test]
fn gpus_that_come_and_go_are_found() {
    let fake = FakeNvml::new("gpus 1\n");
    let mut backend = curious(&fake);
    assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 1);
    fake.set("gpus 8\n");
    assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 8);
    fake.set("gpus 0\n");
    assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 0, "none is no failure");
}

#[test]
fn a_node_with_the_driver_has_its_files() {
    let root = Scratch::new("nvml-present");
    let roots =
        Arc::new(Roots::new(root.path().join("proc"), "/nowhere", "/nowhere", root.path().join("dev")));
    let present = || NvmlBackend::new(roots.clone(), Options::default()).is_present();
    assert!(!present());
    std::fs::create_dir_all(root.path().join("dev")).unwrap();
    std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
    assert!(present());
    std::fs::remove_file(root.path().join("dev/nvidiactl")).unwrap();
    assert!(!present());
    std::fs::create_dir_all(root.path().join("proc/driver/nvidia")).unwrap();
    std::fs::write(root.path().join("proc/driver/nvidia/version"), "").unwrap();
    assert!(present());
}

#[test]
fn the_library_of_this_machine_answers_or_says_what_is_missing() {
    // Without an NVIDIA driver there is no library, or it finds no driver; with one, its GPUs are listed.
    let mut backend = NvmlBackend::new(nowhere(), Options::default());
    match backend.sample(ALL) {
        Ok(sample) => assert_eq!(sample.vendor, Vendor::Nvidia),
        Err(error) => {
            println!("{error}");
            assert!(matches!(error.reason(), "unsupported" | "denied" | "io"), "{error}");
        }
    }
}
