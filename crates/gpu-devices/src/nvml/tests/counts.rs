//! What only grows: busy time, energy, bytes, activity, operations.

use super::*;

#[test]
fn busy_time_is_the_drivers_samples() {
    // The driver's time is its own; that of the samples is what counts, and no more than what passed.
    let fake = FakeNvml::new("gpu 0 sample 1000000 90\n");
    let mut backend = backend(&fake);
    let first = backend.sample(LITTLE).unwrap();
    assert_eq!(count(unit(&first, "0000"), Quantity::BUSY), Some(0), "history is unattributed");
    fake.set("gpu 0 sample 1000000 90\ngpu 0 sample 1200000 50\ngpu 0 sample 1400000 100\ngpu 0 sample 1600000 0\n");
    let second = backend.sample(LITTLE).unwrap();
    assert_eq!(count(unit(&second, "0000"), Quantity::BUSY), Some(300_000_000));
    let third = backend.sample(LITTLE).unwrap();
    assert_eq!(count(unit(&third, "0000"), Quantity::BUSY), None, "nothing new is not idle");
    assert_eq!(unit(&first, "0000").epoch, unit(&third, "0000").epoch);
}

#[test]
fn a_gap_in_the_samples_is_filled_by_the_rate_and_never_idle() {
    let fake = FakeNvml::new("gpu 0 gpm 0\ngpu 0 util 40 0\ngpu 0 sample 1000000 90\n");
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    fake.set(
        "gpu 0 gpm 0\ngpu 0 util 40 0\ngpu 0 sample 2400000 100\ngpu 0 sample 2500000 100\ngpu 0 sample 2600000 100\n",
    );
    let sample = backend.sample(LITTLE).unwrap();
    // 0.3 s of samples, and 40 % of the 1.3 s to which they do not reach back.
    assert_eq!(count(unit(&sample, "0000"), Quantity::BUSY), Some(300_000_000 + 520_000_000));
    let epoch = unit(&sample, "0000").epoch;
    fake.set("gpu 0 gpm 0\ncode nvmlDeviceGetUtilizationRates 999\ngpu 0 sample 3900000 100\ngpu 0 sample 4000000 100\n");
    let sample = backend.sample(LITTLE).unwrap();
    assert!(unit(&sample, "0000").epoch != epoch, "nothing is known of the gap");
    assert_eq!(count(unit(&sample, "0000"), Quantity::BUSY), Some(0));
}

#[test]
fn without_samples_busy_time_is_measured_activity_or_the_rate() {
    for (gpm, expected) in [("gpu 0 gpm 1\ngpu 0 activity 1 25\n", 0.25), ("gpu 0 gpm 0\n", 0.6)] {
        let fake = FakeNvml::new(&format!("gpu 0 buffer -1\ngpu 0 util 60 0\n{gpm}"));
        let mut backend = backend(&fake);
        assert_eq!(count(unit(&backend.sample(LITTLE).unwrap(), "0000"), Quantity::BUSY), Some(0));
        let mut backend = self::backend(&fake);
        let between = Between::samples(&mut backend, LITTLE);
        let busy = count(unit(&between.second, "0000"), Quantity::BUSY);
        assert!(between.gives(busy, expected * 1e9), "{gpm} {busy:?}");
    }
}

#[test]
fn energy_is_the_counter_and_one_that_falls_begins_anew() {
    let fake = FakeNvml::new("gpu 0 energy 5000\n");
    let mut backend = backend(&fake);
    let energy = |backend: &mut NvmlBackend| {
        let sample = backend.sample(LITTLE).unwrap();
        let unit = unit(&sample, "0000");
        (count(unit, Quantity::ENERGY), unit.epoch)
    };
    let (first, epoch) = energy(&mut backend);
    assert_eq!(first, Some(0));
    fake.set("gpu 0 energy 7500\n");
    assert_eq!(energy(&mut backend), (Some(2_500_000), epoch), "millijoules are a thousand microjoules");
    fake.set("gpu 0 energy 100\n");
    let (reset, next) = energy(&mut backend);
    assert!(next != epoch && reset == Some(0));
    fake.set("gpu 0 energy 150\n");
    assert_eq!(energy(&mut backend), (Some(50_000), next));
    fake.set("gpu 0 field 83 0 code 3\ngpu 0 energy 160\n");
    assert_eq!(energy(&mut backend), (Some(60_000), next), "the call instead of the field");
}

#[test]
fn bytes_are_the_drivers_counters_with_their_wraps() {
    let at = |pcie: u64, links: u64| {
        format!(
            "gpu 0 pcie 1 1 1 1\ngpu 0 field 197 0 uint {pcie}\ngpu 0 field 198 0 ullong {pcie}\n\
             gpu 0 field 138 all ullong {links}\ngpu 0 field 139 all ullong {links}\n\
             gpu 0 activity 20 1000000\ngpu 0 activity 60 1000000\n"
        )
    };
    let fake = FakeNvml::new(&at(4_294_967_290, 10));
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    wait(120);
    // 64 bits that fall are a reset, so only those of 32 bits go back here.
    fake.set(
        &at(4_294_967_290, 10)
            .replace("197 0 uint 4294967290", "197 0 uint 4")
            .replace("ullong 10", "ullong 13"),
    );
    let sample = backend.sample(LITTLE).unwrap();
    let unit = unit(&sample, "0000");
    assert_eq!(count(unit, Quantity::PCIE_TRANSMITTED), Some(10), "and not what GPM says");
    assert_eq!(count(unit, Quantity::PCIE_RECEIVED), Some(0));
    assert_eq!(count(unit, Quantity::NVLINK_TRANSMITTED), Some(3 * 1024));
    assert_eq!(count(unit, Quantity::NVLINK_RECEIVED), Some(3 * 1024));
}

#[test]
fn activity_is_counted_as_time_and_odd_values_are_left_out() {
    let fake = FakeNvml::new(
        "gpu 0 activity 2 50\ngpu 0 activity 3 nan\ngpu 0 activity 5 20\ngpu 0 activity 7 10\ngpu 0 activity 10 -4\n\
         gpu 0 activity 12 100\ngpu 0 activity 21 2\ngpu 0 activity 61 1\ngpu 0 clocks 1000 1000 1000 1000\n",
    );
    let mut backend = backend(&fake);
    let first = backend.sample(LITTLE).unwrap();
    assert_eq!(count(unit(&first, "0000"), Quantity::SM_ACTIVE), None);
    let mut backend = self::backend(&fake);
    let began = Instant::now();
    let between = Between::samples(&mut backend, LITTLE);
    let one = unit(&between.second, "0000");
    for (quantity, a_second) in [
        (Quantity::SM_ACTIVE, 0.5e9),
        (Quantity::TENSOR, 0.2e9),
        (Quantity::TENSOR_HALF, 0.1e9),
        (Quantity::FP32, 1e9),
        // MiB, not bytes.
        (Quantity::PCIE_RECEIVED, 2.0 * 1_048_576.0),
        (Quantity::NVLINK_TRANSMITTED, 1_048_576.0),
        // 132 multiprocessors at 1 GHz, 256 operations a clock, in millions; and a tenth of 4096.
        (Quantity::FLOPS_FP32, 132.0 * 256.0 * 1e3),
        (Quantity::FLOPS_TENSOR_HALF, 132.0 * 409.6 * 1e3),
    ] {
        assert!(between.gives(count(one, quantity), a_second), "{quantity:?}: {:?}", count(one, quantity));
    }
    for absent in [Quantity::SM_OCCUPANCY, Quantity::DRAM_ACTIVE, Quantity::FP64, Quantity::PCIE_TRANSMITTED]
    {
        assert_eq!(count(one, absent), None, "{absent:?}");
    }
    wait(150);
    let least = began.elapsed().as_secs_f64() * 0.5e9;
    let later = count(unit(&backend.sample(LITTLE).unwrap(), "0000"), Quantity::SM_ACTIVE);
    assert!(later > count(one, Quantity::SM_ACTIVE), "it goes on");
    #[expect(clippy::cast_precision_loss)]
    let later = later.unwrap() as f64;
    assert!(later <= began.elapsed().as_secs_f64() * 0.5e9 && later >= least * 0.3, "{later} {least}");
}

#[test]
fn samples_of_activity_that_are_too_close_are_one() {
    let fake = FakeNvml::new("gpu 0 activity 2 50\n");
    let mut backend = backend(&fake);
    let first = Between::samples(&mut backend, LITTLE);
    let before = count(unit(&first.second, "0000"), Quantity::SM_ACTIVE);
    let (soon, calls) = fake.calls(|| backend.sample(LITTLE).unwrap());
    // On a machine that others keep busy it may be late.
    if !calls.contains_key("nvmlGpmSampleGet") {
        assert_eq!(count(unit(&soon, "0000"), Quantity::SM_ACTIVE), None);
    }
    let next = Between::samples(&mut backend, LITTLE);
    let after = count(unit(&next.second, "0000"), Quantity::SM_ACTIVE);
    let gained = after.zip(before).map(|(after, before)| after - before);
    #[expect(clippy::cast_precision_loss)]
    let gained = gained.unwrap() as f64;
    assert!(gained >= next.least * 0.5e9, "nothing is lost: {gained}");
}

#[test]
fn an_unknown_gpu_has_no_estimate() {
    let fake = FakeNvml::new("gpu 0 capability 12 0\ngpu 0 activity 12 100\n");
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    wait(120);
    let sample = backend.sample(LITTLE).unwrap();
    assert!(count(unit(&sample, "0000"), Quantity::FP32).is_some());
    assert_eq!(count(unit(&sample, "0000"), Quantity::FLOPS_FP32), None);
}
