//! Drivers that are loaded anew, old, closed to the exporter, or none at all. Rows 6 and 12.

use std::os::unix::process::CommandExt;

use super::*;

/// Row 12: the reason is reported with the remedy, no counter falls, and the driver is opened again.
#[test]
fn a_driver_that_is_loaded_anew_is_opened_again() {
    let gpus = Gpus::new(&format!("{EIGHT}gpu 0 energy 9000000\n"));
    let exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    eventually(&exporter, "GPUs", all_up);
    gpus.fake.set(&format!("{EIGHT}gpu 0 energy 9500000\n"));
    let energy = |now: &Exposition| of_gpu(now, "jobledger_gpu_energy_joules_total", 0);
    accounts.check(&eventually(&exporter, "energy", |now| energy(now) == Some(500.0)));

    // Unloaded; then loaded in another version than the library's.
    gpus.fake.set(&format!("{EIGHT}init 9\ncode nvmlDeviceGetTemperature 9\n"));
    let now = eventually(&exporter, "unloaded", |now| state(now, NVIDIA) == "failed");
    accounts.check(&now);
    assert_eq!(success(&now, "gpu"), Some(0.0));
    assert!(detail(&now, "gpu").contains("modprobe nvidia"), "{}", detail(&now, "gpu"));
    assert!(up(&now).len() == 8 && up(&now).values().all(|up| !up), "{:?}", up(&now));
    assert!(now.family(TEMPERATURE).is_none());
    gpus.fake.set(&format!("{EIGHT}init 18\n"));
    let now = eventually(&exporter, "mismatch", |now| detail(now, "gpu").contains("different versions"));
    assert!(detail(&now, "gpu").contains("reboot"), "{}", detail(&now, "gpu"));

    // The counter begins anew with the driver: what was between is not known.
    gpus.fake.set(&format!("{EIGHT}driver 560.1\ngpu 0 energy 1000000\n"));
    let now = eventually(&exporter, "loaded anew", all_up);
    accounts.check(&now);
    assert_eq!(energy(&now), Some(500.0));
    assert_eq!(
        now.value("jobledger_gpu_driver_info", &[("vendor", NVIDIA), ("version", "560.1")]),
        Some(1.0)
    );
    gpus.fake.set(&format!("{EIGHT}driver 560.1\ngpu 0 energy 1100000\n"));
    accounts.check(&eventually(&exporter, "energy", |now| energy(now) == Some(600.0)));
}

/// Row 12: nothing is loaded until there is a driver, and then it is found without a restart.
#[test]
fn a_driver_that_is_loaded_later_is_found() {
    let gpus = Gpus::new(EIGHT);
    gpus.node.0.remove("dev/nvidiactl");
    let found_by_the_linker = gpus.fake.library().parent().unwrap().to_owned();
    let exporter = Exporter::prepared(BINARY, &gpus.flags_without_library(&[]), |command| {
        command.env("LD_LIBRARY_PATH", found_by_the_linker);
    });
    let ((), calls) = gpus.fake.calls(|| {
        for _ in 0..5 {
            let now = scrape(&exporter);
            assert_eq!(success(&now, "gpu"), Some(0.0));
            assert!(detail(&now, "gpu").contains("a GPU with its driver"), "{}", detail(&now, "gpu"));
            assert!(now.samples().all(|s| !s.name.contains("_gpu_")));
        }
    });
    assert!(calls.is_empty() && !threads(&exporter).iter().any(|name| name.starts_with("gpu-")));
    gpus.node.0.write("dev/nvidiactl", "");
    let now = eventually(&exporter, "a driver", |now| {
        all_up(now) && of_job(now, "jobledger_job_gpus", 1).is_some()
    });
    assert_eq!(success(&now, "gpu"), Some(1.0), "{}", detail(&now, "gpu"));
}

/// Row 12: what an old library lacks is absent, and one that lacks what must be there is not used.
#[test]
fn libraries_that_lack_functions_never_end_the_process() {
    let old = Gpus::with(FakeNvml::variant(&["OLD_DRIVER"], EIGHT), 1..=2);
    let exporter = old.start(&["--collector.gpu.processes"]);
    let now = eventually(&exporter, "an old driver", |now| {
        all_up(now) && of_gpu(now, "jobledger_gpu_energy_joules_total", 0) > Some(0.0)
    });
    assert_eq!(success(&now, "gpu"), Some(1.0), "{}", detail(&now, "gpu"));
    assert_eq!(gpus_in(&now, TEMPERATURE).len(), 8);
    assert!(now.samples().all(|s| !s.name.contains("_sm_active_")), "what it does not report is absent");
    for variant in ["NO_INIT", "NO_SHUTDOWN"] {
        let broken = Gpus::with(FakeNvml::variant(&[variant], EIGHT), 1..=2);
        let exporter = broken.start(&[]);
        let now = eventually(&exporter, variant, |now| state(now, NVIDIA) == "failed");
        assert!(detail(&now, "gpu").contains("a newer NVIDIA driver"), "{}", detail(&now, "gpu"));
        assert!(now.family("jobledger_gpu_up").is_none() && user_seconds(&now, 1).is_some());
    }
}

/// Row 12.
#[test]
fn a_file_that_is_no_library_is_reported_and_skipped() {
    let gpus = Gpus::new(EIGHT);
    gpus.node.0.write("none.so", "not a library\n").mkdir("directory.so");
    let text = gpus.node.0.path("none.so");
    let directory = gpus.node.0.path("directory.so");
    for library in [text.to_str().unwrap(), directory.to_str().unwrap(), "/nowhere/at-all.so", "libc.so.6"] {
        let flag = format!("--collector.gpu.nvml-library={library}");
        let exporter = Exporter::start(BINARY, &gpus.flags_without_library(&[&flag]));
        let now = eventually(&exporter, library, |now| state(now, NVIDIA) == "failed");
        assert_eq!(success(&now, "gpu"), Some(0.0));
        assert!(detail(&now, "gpu").contains(library), "{}", detail(&now, "gpu"));
        assert!(user_seconds(&now, 1).is_some());
    }
}

/// Row 6: a denial is reported with its fix, and all else goes on.
#[test]
fn what_the_driver_denies_is_reported_with_its_fix() {
    let gpus = Gpus::new(&format!("{EIGHT}code nvmlGpmSampleGet 4\n"));
    let exporter = gpus.start(&[]);
    let now = eventually(&exporter, "denied", |now| all_up(now) && success(now, "gpu") == Some(0.0));
    let status = detail(&now, "gpu");
    assert!(status.starts_with("denied") && status.contains("CAP_SYS_ADMIN"), "{status}");
    assert_eq!(gpus_in(&now, TEMPERATURE).len(), 8);
    for _ in 0..5 {
        read_anew(&exporter);
    }
    assert_eq!(exporter.log().matches("denied").count(), 1, "{}", exporter.log());

    let closed = Gpus::new(&format!("{EIGHT}init 4\n"));
    let exporter = closed.start(&[]);
    let now = eventually(&exporter, "closed", |now| state(now, NVIDIA) == "failed");
    assert!(detail(&now, "gpu").contains("DeviceAllow=char-nvidia"), "{}", detail(&now, "gpu"));
}

/// Row 6: without privilege the kernel is not asked for device programs, and files of prologs still count.
#[test]
fn an_ordinary_user_sees_what_is_missing_and_gets_the_rest() {
    if skip_without_root() {
        return;
    }
    let gpus = Gpus::new(EIGHT);
    gpus.node.add_job(3, 3);
    let mut flags = gpus.flags(&[]);
    flags.retain(|flag| flag != "--security.no-device-helper");
    let exporter = Exporter::prepared(BINARY, &flags, |command| {
        command.uid(NOBODY).gid(NOBODY);
    });
    let now =
        eventually(&exporter, "GPUs", |now| all_up(now) && of_job(now, "jobledger_job_gpus", 1) == Some(1.0));
    assert_eq!(now.value("jobledger_job_gpus", &[("jobid", "1"), ("source", "gpustat")]), Some(1.0));
    assert_eq!(of_job(&now, "jobledger_job_gpus", 3), None, "not known is not 0");
    assert_eq!(success(&now, "gpu"), Some(0.0));
    let status = detail(&now, "gpu");
    assert!(status.starts_with("denied") && status.contains("CAP_"), "{status}");
    assert_eq!(gpus_in(&now, TEMPERATURE).len(), 8);
}
