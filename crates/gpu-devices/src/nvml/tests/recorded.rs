//! What a real GPU answered while it did known work: is it counted as what was done?

use jobledger_testkit::nvml::RecordedNvml;

use super::*;

const H200: &str = include_str!("../../../../../tests/fixtures/nvml/h200-580.159.txt");

/// A kind of work: samples of it, and what was done in a second.
struct Phase {
    first: u32,
    last: u32,
    done: BTreeMap<&'static str, Vec<f64>>,
}

fn phase(name: &str) -> Phase {
    let lines = H200.lines().filter_map(|line| line.strip_prefix("# phase ")?.split_once(" | "));
    let (_, text) = lines.into_iter().find(|(phase, _)| *phase == name).expect(name);
    let words: BTreeMap<_, _> = text.split(' ').map(|word| word.split_once('=').unwrap()).collect();
    let number = |key: &str| words[key].parse().unwrap();
    let numbers = |text: &str| text.split(',').map(|value| value.parse().unwrap()).collect();
    let done = words.iter().filter(|(key, _)| !["first", "last"].contains(*key));
    Phase {
        first: number("first"),
        last: number("last"),
        done: done.map(|(key, text)| (*key, numbers(text))).collect(),
    }
}

/// Seconds between two samples of the recording.
fn apart(first: u32, last: u32) -> f64 {
    let (mut sample, mut waits, mut begins) = (0, false, BTreeMap::new());
    for line in H200.lines().filter(|line| !line.starts_with('#')) {
        let (time, call) = line.split_once(' ').unwrap();
        let waiting = call.starts_with("nvmlEventSetWait");
        if waiting && !waits {
            sample += 1;
            begins.insert(sample, time.parse::<f64>().unwrap());
        }
        waits = waiting;
    }
    begins[&last] - begins[&first]
}

/// What a rate may be, where the time is not known precisely on a machine that others keep busy.
#[derive(Debug, Clone, Copy)]
struct Rate {
    low: f64,
    high: f64,
}

impl Rate {
    fn is_within(self, least: f64, most: f64) -> bool {
        self.high >= least && self.low <= most
    }

    fn is_near(self, wanted: f64, part: f64) -> bool {
        self.is_within(wanted * (1.0 - part), wanted * (1.0 + part))
    }

    fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor }
    }
}

/// Counters of a second of this work.
struct Second {
    grown: Vec<(&'static Quantity, f64)>,
    /// Seconds of the recording.
    seconds: f64,
    /// Seconds here, at least and at most: the driver's percentages of activity are multiplied by the time that passes.
    passed: (f64, f64),
    last: UnitSample,
    processes: BTreeMap<u32, f64>,
}

impl Second {
    fn grown(&self, wanted: &'static Quantity) -> f64 {
        self.grown.iter().find(|(quantity, _)| *quantity == wanted).unwrap().1
    }

    fn recorded(&self, quantity: &'static Quantity) -> f64 {
        self.grown(quantity) / self.seconds
    }

    fn measured(&self, quantity: &'static Quantity) -> Rate {
        let (least, most) = self.passed;
        Rate { low: self.grown(quantity) / most, high: self.grown(quantity) / least }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a second's nanoseconds")]
fn second(name: &str) -> (Second, Phase) {
    let phase = phase(name);
    let recorded = RecordedNvml::new(H200);
    let mut backend = NvmlBackend::new(nowhere(), options(&recorded.library()));
    let mut samples = Vec::new();
    for sample in phase.first..=phase.last {
        recorded.select(sample);
        let began = Instant::now();
        let read = backend.sample(ALL).unwrap();
        assert_eq!(read.failed, [], "{name}");
        samples.push((began, read.units.into_iter().next().unwrap(), Instant::now()));
        // Activity needs a tenth of a second between two samples.
        wait(110);
    }
    let (last, first) = (samples.pop().unwrap(), samples.swap_remove(0));
    let passed = ((last.0 - first.2).as_secs_f64(), (last.2 - first.0).as_secs_f64());
    let (first, last) = (first.1, last.1);
    let seconds = apart(phase.first, phase.last);
    let of = |unit: &UnitSample, quantity| count(unit, quantity).unwrap_or(0) as f64;
    let all = last.counts.iter().map(|(quantity, _)| *quantity);
    let grown = all.map(|quantity| (quantity, of(&last, quantity) - of(&first, quantity))).collect();
    let busy_of = |unit: &UnitSample, pid| {
        let process = unit.processes.as_ref().unwrap().iter().find(|process| process.pid == pid);
        process.and_then(|process| process.busy_ns).unwrap_or(0)
    };
    let pids = last.processes.as_ref().unwrap().iter().map(|process| process.pid);
    let processes =
        pids.map(|pid| (pid, (busy_of(&last, pid) - busy_of(&first, pid)) as f64 / 1e9 / seconds)).collect();
    (Second { grown, seconds, passed, last, processes }, phase)
}

fn near(value: f64, wanted: f64, part: f64) -> bool {
    (value / wanted - 1.0).abs() <= part
}

const MILLION: f64 = 1e6;
const SECOND: f64 = 1e9;

#[test]
fn a_real_gpu_is_read_without_an_error() {
    let recorded = RecordedNvml::new(H200);
    let mut backend = NvmlBackend::new(nowhere(), options(&recorded.library()));
    let sample = backend.sample(ALL).unwrap();
    assert_eq!((sample.units.len(), &sample.failed[..]), (1, &[][..]));
    let one = unit(&sample, "0200");
    assert_eq!(
        (&*one.unit.model, one.unit.minor, one.unit.pci.as_deref()),
        ("NVIDIA H200", Some(0), Some("0000:00:06.0"))
    );
    let memory = one.memory.unwrap();
    assert_eq!((memory.total, memory.reserved), (143_771 << 20, Some(644_939_776)));
    assert_eq!(memory.used + memory.free + memory.reserved.unwrap(), memory.total);
    let listed = facts(one);
    for (name, value) in [
        ("temperature_celsius{gpu}", 43.0),
        ("clock_hertz{sm}", 1.98e9),
        ("clock_max_hertz{memory}", 3.201e9),
        ("power_limit_watts{enforced}", 700.0),
        ("power_limit_watts{min}", 200.0),
        ("pcie_link_generation{current}", 5.0),
        ("pcie_link_lanes{current}", 16.0),
        ("temperature_margin_limit_celsius{shutdown}", -8.0),
        ("ecc_enabled{}", 1.0),
        ("ecc_errors_total{life,uncorrected,}", 0.0),
        ("recovery_action{none}", 1.0),
        ("remapped_rows_failed{}", 0.0),
        ("persistence_mode{}", 1.0),
        ("mig_mode{}", 0.0),
        ("processes{compute}", 2.0),
    ] {
        assert_eq!(listed.get(name), Some(&value), "{name}");
    }
    // It has neither fans nor a module, and this one no links.
    for absent in ["fan_speed", "power_watts{module}", "nvlink", "retired"] {
        assert!(!listed.keys().any(|name| name.starts_with(absent)), "{absent}");
    }
}

#[test]
fn operations_of_the_vector_pipes_are_those_that_were_done() {
    for (name, pipe, estimate) in [
        ("fma_fp64", Quantity::FP64, Quantity::FLOPS_FP64),
        ("fma_fp32", Quantity::FP32, Quantity::FLOPS_FP32),
        ("fma_fp16", Quantity::FP16, Quantity::FLOPS_FP16),
        ("fma_bf16", Quantity::FP16, Quantity::FLOPS_FP16),
    ] {
        let (second, phase) = second(name);
        let estimated = second.measured(estimate).times(MILLION);
        assert!(estimated.is_near(phase.done["flops"][0], 0.01), "{name}: {estimated:?}");
        assert!(second.measured(pipe).is_near(0.95 * SECOND, 0.05), "{name}");
        assert!(second.measured(Quantity::SM_ACTIVE).is_near(SECOND, 0.01), "{name}");
        for other in
            [Quantity::TENSOR, Quantity::TENSOR_HALF, Quantity::TENSOR_FP64, Quantity::TENSOR_INTEGER]
        {
            assert!(second.measured(other).low < 0.001 * SECOND, "{name}: {other:?}");
        }
        // Joules of the counter are watts of the sensor, which is a mean of a second.
        let watts = facts(&second.last)["power_watts{gpu}"];
        assert!(near(second.recorded(Quantity::ENERGY) / MILLION, watts, 0.03), "{name}: {watts}");
    }
    let (integer, _) = second("mad_int32");
    assert!(integer.measured(Quantity::INTEGER).is_near(SECOND, 0.01));
}

#[test]
fn operations_of_tensor_cores_are_what_their_time_allows() {
    // Least and most of what was done that the estimate may be. The clock is that of the readings, and changes between them under
    // a power cap. It takes every operation for one of 16 bits, so that it is
    // twice as much for those of 19 (TF32) and half for those of 8.
    for (name, pipe, estimate, least, most) in [
        ("matmul bf16", Quantity::TENSOR_HALF, Quantity::FLOPS_TENSOR_HALF, 1.0, 1.2),
        ("matmul fp64", Quantity::TENSOR_FP64, Quantity::FLOPS_TENSOR_FP64, 0.95, 1.1),
        ("matmul tf32", Quantity::TENSOR_HALF, Quantity::FLOPS_TENSOR_HALF, 2.0, 2.4),
        ("matmul fp8", Quantity::TENSOR_HALF, Quantity::FLOPS_TENSOR_HALF, 0.5, 0.6),
    ] {
        let (second, phase) = second(name);
        let ratio = second.measured(estimate).times(MILLION / phase.done["flops"][0]);
        assert!(ratio.is_within(least, most), "{name}: {ratio:?}");
        assert!(near(second.grown(pipe), second.grown(Quantity::TENSOR), 0.001), "{name}");
        assert!(second.measured(Quantity::FP16).low < 0.001 * SECOND, "{name}");
    }
    let (integer, _) = second("matmul int8");
    assert!(integer.measured(Quantity::TENSOR_INTEGER).is_near(0.745 * SECOND, 0.02));
    assert!(integer.measured(Quantity::TENSOR_HALF).low < MILLION);
}

#[test]
fn vector_operations_of_16_bits_are_told_from_those_of_tensor_cores() {
    let (second, phase) = second("vector and tensor in turns");
    let (vector, tensor) = (second.measured(Quantity::FP16), second.measured(Quantity::TENSOR_HALF));
    // Both pipes are active for 91 to 97 % of their own time; of cycles, of which there are fewer a second under a power cap.
    assert!(vector.is_near(0.964 * SECOND * phase.done["vector"][0], 0.12), "{vector:?}");
    assert!(tensor.is_near(0.916 * SECOND * phase.done["tensor"][0], 0.14), "{tensor:?}");
}

#[test]
fn bytes_are_those_that_were_copied_and_their_packets() {
    // 6016 bits at twice 3201 MHz.
    const BANDWIDTH: f64 = 6016.0 / 8.0 * 2.0 * 3.201e9;
    let (within, phase) = second("copy d2d");
    // Each byte is read and written.
    let part = 2.0 * phase.done["bytes"][0] / BANDWIDTH;
    assert!(within.measured(Quantity::DRAM_ACTIVE).is_near(part * SECOND, 0.02), "{part}");
    for (name, quantity, other) in [
        ("copy h2d", Quantity::PCIE_RECEIVED, Quantity::PCIE_TRANSMITTED),
        ("copy d2h", Quantity::PCIE_TRANSMITTED, Quantity::PCIE_RECEIVED),
    ] {
        let (second, phase) = second(name);
        let ratio = second.measured(quantity).times(1.0 / phase.done["bytes"][0]);
        assert!(ratio.is_within(1.0, 1.2), "{name}: {ratio:?}");
        assert!(second.grown(other) < 0.1 * second.grown(quantity), "{name}");
    }
}

#[test]
fn busy_time_is_that_of_kernels_and_copies() {
    for name in
        ["half of the time, by 0.25 s", "a fifth of the time, by 0.02 s", "fma_fp32", "copy h2d", "copy d2h"]
    {
        let (second, phase) = second(name);
        let (busy, known) = (second.recorded(Quantity::BUSY), phase.done["busy"][0] * SECOND);
        assert!(near(busy, known, 0.05), "{name}: {busy} {known}");
    }
    assert!(second("idle").0.recorded(Quantity::BUSY) < MILLION);
}

#[test]
fn processes_have_the_time_of_the_gpu() {
    for name in
        ["two at once", "a tenth beside one third", "one fifth beside all the time", "MPS: two at once"]
    {
        let (second, _) = second(name);
        let sum: f64 = second.processes.values().sum();
        assert!(near(sum * SECOND, second.recorded(Quantity::BUSY), 0.03), "{name}: {:?}", second.processes);
    }
    // One kernel of a tenth of a second in each second, beside three of the other: in 7 s, of which five samples a second are
    // of one process each.
    let (second, phase) = second("a tenth beside one third");
    let full = self::second("fma_fp32").1.done["flops"][0];
    let known: Vec<f64> = phase.done["flops"].iter().map(|flops| flops / full).collect();
    let (first, other) = (second.processes[&450], second.processes[&451]);
    assert!((first - known[0]).abs() < 0.05 && (other - known[1]).abs() < 0.05, "{first} {other} {known:?}");
}

#[test]
fn the_time_of_clients_of_mps_is_their_servers() {
    let (second, _) = second("MPS: two at once");
    let listed = second.last.processes.as_ref().unwrap();
    for process in listed {
        let expected = if process.kind == ProcessKind::Mps { 0.0 } else { 1.0 };
        assert!((second.processes[&process.pid] - expected).abs() < 0.02, "{process:?}");
    }
    assert_eq!(listed.iter().filter(|process| process.kind == ProcessKind::Mps).count(), 2);
}

#[test]
fn a_write_to_nowhere_is_an_xid() {
    let phase = phase("a write where nothing is");
    let recorded = RecordedNvml::new(H200);
    let mut backend = NvmlBackend::new(nowhere(), options(&recorded.library()));
    backend.sample(ALL).unwrap();
    recorded.select(phase.last);
    let sample = backend.sample(ALL).unwrap();
    assert_eq!(facts(unit(&sample, "0200")).get("xid_errors_total{31}"), Some(&1.0));
    let again = backend.sample(ALL).unwrap();
    assert_eq!(facts(unit(&again, "0200")).get("xid_errors_total{31}"), Some(&1.0), "once");
}
