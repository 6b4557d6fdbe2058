//! Releasing the driver, so that a GPU can be reset or repartitioned.

use super::*;

/// What the process has of the library: mappings and open files.
fn held(gpus: &Gpus, exporter: &Exporter) -> Vec<String> {
    let dir = gpus.fake.library().parent().unwrap().display().to_string();
    let maps = fs::read_to_string(format!("/proc/{}/maps", exporter.pid())).unwrap();
    let files = fs::read_dir(format!("/proc/{}/fd", exporter.pid())).unwrap().flatten();
    let files = files.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string()));
    maps.lines().map(str::to_owned).chain(files).filter(|line| line.contains(&dir)).collect()
}

#[test]
fn released_is_released_until_it_is_resumed() {
    let gpus = Gpus::new(EIGHT);
    let exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    accounts.check(&eventually(&exporter, "GPUs", all_up));
    assert!(!held(&gpus, &exporter).is_empty());
    for _ in 0..3 {
        let output = gpus.order("release");
        assert!(output.status.success(), "{output:?}");
        assert!(held(&gpus, &exporter).is_empty(), "{:?}", held(&gpus, &exporter));
        let ((), calls) = gpus.fake.calls(|| {
            // Jobs that come do not open it either.
            gpus.node.add_job(9, 9);
            let now = read_anew(&exporter);
            accounts.check(&now);
            assert_eq!(state(&now, NVIDIA), "released");
            assert!(up(&now).len() == 8 && up(&now).values().all(|up| !up));
            assert!(now.family(TEMPERATURE).is_none());
            gpus.node.remove_job(9);
        });
        assert!(calls.is_empty() && held(&gpus, &exporter).is_empty(), "{calls:?}");
        assert!(gpus.order("resume").status.success());
        let now = eventually(&exporter, "read again", all_up);
        accounts.check(&now);
        assert!(!held(&gpus, &exporter).is_empty());
        gpus.node.0.remove("gone");
    }
    assert!(accounts.0.keys().any(|series| series.starts_with("jobledger_gpu_energy_joules_total")));
}
