//! GPUs that fall off the bus, and counters that wrap and begin anew. Rows 11, 26 and 27.

use super::*;

/// NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED.
#[test]
fn a_lost_gpu_costs_itself_and_comes_back() {
    let gpus = Gpus::new(EIGHT);
    let exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    let before = eventually(&exporter, "GPUs", all_up);
    accounts.check(&before);
    let series = before.named("jobledger_gpu_info").count();
    for (code, reason) in [(15, "lost"), (16, "reset_required")] {
        gpus.fake.set(&format!("{EIGHT}gpu 3 lost {code}\ngpu 3 xid 1 79\n"));
        let now = eventually(&exporter, reason, |now| up(now).get("3") == Some(&false));
        accounts.check(&now);
        assert!(up(&now).iter().all(|(gpu, up)| *up == (gpu != "3")), "{:?}", up(&now));
        assert_eq!(now.value("jobledger_gpu_down_info", &[("gpu", "3"), ("reason", reason)]), Some(1.0));
        assert_eq!(gpus_in(&now, TEMPERATURE), ["0", "1", "2", "4", "5", "6", "7"], "the others are served");
        assert_eq!(now.named("jobledger_gpu_info").count(), series, "what it was is known");
        gpus.fake.set(EIGHT);
        let now = eventually(&exporter, "recovery", all_up);
        accounts.check(&now);
        assert_eq!(gpus_in(&now, TEMPERATURE).len(), 8);
        assert!(now.family("jobledger_gpu_down").is_none());
    }
    let now = read_anew(&exporter);
    accounts.check(&now);
    assert!(of_gpu(&now, "jobledger_gpu_energy_joules_total", 3) > Some(0.0), "it is counted on");
}

#[test]
fn when_every_gpu_is_lost_the_driver_is_opened_anew_with_pauses() {
    let gpus = Gpus::new(EIGHT);
    let exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    accounts.check(&eventually(&exporter, "GPUs", all_up));
    let lost: String = (0..8).map(|gpu| format!("gpu {gpu} lost 15\n")).collect();
    let (now, calls) = gpus.fake.calls(|| {
        gpus.fake.set(&format!("{EIGHT}{lost}"));
        let now = eventually(&exporter, "all lost", |now| {
            up(now).values().all(|up| !up) && success(now, "gpu") == Some(0.0)
        });
        for _ in 0..100 {
            accounts.check(&scrape(&exporter));
        }
        now
    });
    assert_eq!((up(&now).len(), now.named("jobledger_gpu_down_info").count()), (8, 8));
    assert!(calls.get("nvmlInit_v2").copied().unwrap_or(0) <= 1, "{calls:?}");
    gpus.fake.set(EIGHT);
    accounts.check(&eventually(&exporter, "recovery", all_up));
}

/// Rows 26 and 27: 32 bits of bytes wrap and go on; energy that falls is a GPU that was reset, of which nothing is known.
#[test]
fn counters_wrap_and_begin_anew() {
    let fake_state = |energy: u64, bytes: u64| {
        format!("gpus 1\ngpu 0 pcie 1 1 1 1\ngpu 0 energy {energy}\ngpu 0 field 198 0 uint {bytes}\n")
    };
    let gpus = Gpus::new(&fake_state(1_000_000, 4_294_967_000));
    let exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    let joules = |now: &Exposition| of_gpu(now, "jobledger_gpu_energy_joules_total", 0);
    let bytes = |now: &Exposition| of_gpu(now, "jobledger_gpu_pcie_received_bytes_total", 0);
    eventually(&exporter, "counters", |now| joules(now) == Some(0.0) && bytes(now) == Some(0.0));
    accounts.check(&read_anew(&exporter));
    gpus.fake.set(&fake_state(3_000_000, 704));
    let now = eventually(&exporter, "a wrap", |now| joules(now) == Some(2000.0));
    accounts.check(&now);
    assert_eq!(bytes(&now), Some(1000.0), "widened");
    assert_eq!(of_job_and_gpu(&now, "jobledger_job_gpu_energy_joules_total", 1, 0), Some(2000.0));

    gpus.fake.set(&fake_state(500_000, 9_704));
    accounts.check(&read_anew(&exporter));
    gpus.fake.set(&fake_state(700_000, 10_704));
    let now = eventually(&exporter, "a reset", |now| joules(now) == Some(2200.0));
    accounts.check(&now);
    assert_eq!(bytes(&now), Some(2000.0), "neither clamped nor guessed: all of it begins anew");
}
