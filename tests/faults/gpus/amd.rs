//! GPUs that are read from files. Rows 5, 10 and 11.

use super::*;

const GPU: &str = "sys/devices/pci0000:9f/0000:9f:00.0";
const CLASS: &str = "sys/class/drm/card1";

fn start(node: &Node) -> Exporter {
    node.start(&["--collector.gpu.period=1s", "--security.no-device-helper"])
}

fn is_up(now: &Exposition) -> BTreeMap<String, bool> {
    let of =
        |s: &jobledger_testkit::exposition::Sample| (s.label("uuid").unwrap().to_owned(), s.value == 1.0);
    now.named("jobledger_gpu_up").map(of).collect()
}

/// Row 11: a card that is unplugged is down, the others are served, and it comes back.
#[test]
fn a_card_that_is_unplugged_costs_itself() {
    let node = machine("gpu-mi300");
    let exporter = start(&node);
    let mut accounts = Accounts::default();
    let before =
        eventually(&exporter, "GPUs", |now| !is_up(now).is_empty() && is_up(now).values().all(|up| *up));
    accounts.check(&before);
    let target = fs::read_link(node.0.path(CLASS)).unwrap();
    node.0.remove(CLASS);
    let now = eventually(&exporter, "unplugged", |now| is_up(now).values().any(|up| !up));
    accounts.check(&now);
    assert_eq!(is_up(&now).keys().collect::<Vec<_>>(), is_up(&before).keys().collect::<Vec<_>>());
    assert!(is_up(&now).values().any(|up| *up) && gpus_in(&now, TEMPERATURE) == ["0"], "{:?}", is_up(&now));
    node.0.symlink(CLASS, target);
    let now = eventually(&exporter, "plugged", |now| is_up(now).values().all(|up| *up));
    accounts.check(&now);
}

/// Rows 5 and 10: a file that fails costs what is in it, one that hangs the vendor's thread and nothing else.
#[test]
fn a_file_that_fails_costs_itself_and_one_that_hangs_one_thread() {
    let node = machine("gpu-mi300");
    let exporter = start(&node);
    let mut accounts = Accounts::default();
    let all = |now: &Exposition| !is_up(now).is_empty() && is_up(now).values().all(|up| *up);
    eventually(&exporter, "GPUs", |now| all(now) && success(now, "gpu") == Some(1.0));
    let file = format!("{GPU}/mem_info_vram_used");
    let content = node.0.read(&file);
    node.0.remove(&file).mkdir(&file);
    let now = eventually(&exporter, "an error", |now| success(now, "gpu") == Some(0.0));
    accounts.check(&now);
    assert!(all(&now) && now.family(TEMPERATURE).is_some(), "{}", detail(&now, "gpu"));

    node.0.remove(&file).fifo(&file);
    let now = eventually(&exporter, "hanging", |now| state(now, "amd") == "hanging");
    accounts.check(&now);
    assert_eq!(threads(&exporter).iter().filter(|name| name.starts_with("gpu-")).count(), 1);
    assert!(now.family(TEMPERATURE).is_none() && is_up(&now).values().all(|up| !up));
    let (slept, _) = quiet_time(|| scrape(&exporter));
    assert!(slept < std::time::Duration::from_secs(2), "{slept:?}");

    node.0.rename(&file, "released");
    node.0.write(&file, &content);
    let mut writer = fs::OpenOptions::new().write(true).open(node.0.path("released")).unwrap();
    std::io::Write::write_all(&mut writer, content.as_bytes()).unwrap();
    drop(writer);
    accounts.check(&eventually(&exporter, "recovery", |now| all(now) && success(now, "gpu") == Some(1.0)));
}

/// Row 28: what no sensor can have is absent and counted, and the others are exported.
#[test]
fn impossible_values_of_sensors_are_left_out_and_counted() {
    const POWER: &str = "jobledger_gpu_power_instant_watts";
    let node = machine("gpu-mi300");
    let exporter = start(&node);
    let on = |now: &Exposition, name: &str| now.named(name).filter(|s| s.label("gpu") == Some("1")).count();
    let before = eventually(&exporter, "sensors", |now| on(now, TEMPERATURE) >= 2 && on(now, POWER) == 1);
    let bad = |now: &Exposition| {
        now.value("jobledger_exporter_bad_values_total", &[("collector", "gpu")]).unwrap_or(0.0)
    };
    assert_eq!(bad(&before), 0.0);
    let device = fs::canonicalize(node.0.path(CLASS)).unwrap();
    let device = fs::canonicalize(device.join("device")).unwrap_or(device);
    let hwmon = fs::read_dir(device.join("hwmon")).unwrap().flatten().next().unwrap().path();
    for (temperature, power) in [("65535000\n", "65535000000\n"), ("-273000\n", "4294967295000000\n")] {
        let counted = bad(&scrape(&exporter));
        fs::write(hwmon.join("temp2_input"), temperature).unwrap();
        fs::write(hwmon.join("power1_input"), power).unwrap();
        let gone = on(&before, TEMPERATURE) - 1;
        let now =
            eventually(&exporter, temperature, |now| on(now, TEMPERATURE) == gone && on(now, POWER) == 0);
        assert!(bad(&now) >= counted + 2.0, "{} after {counted}", bad(&now));
        fs::write(hwmon.join("temp2_input"), "41000\n").unwrap();
        fs::write(hwmon.join("power1_input"), "263000000\n").unwrap();
        eventually(&exporter, "sensors again", |now| on(now, TEMPERATURE) > gone && on(now, POWER) == 1);
    }
}
