use std::collections::BTreeMap;

use jobledger_testkit::nvml::{FakeNvml, RecordedNvml};
use test_machine::Machine;

use super::*;
use crate::recording::Line;

const H200: &str = include_str!("../../../../tests/fixtures/nvml/h200-580.159.txt");

fn machine(nodes: &[&str]) -> (Machine, Arc<Roots>) {
    let machine = Machine::new();
    for node in nodes {
        machine.write(&format!("dev/{node}"), "");
    }
    let roots = Arc::new(machine.roots());
    (machine, roots)
}

/// What a reading writes: of a job or of a GPU, without the id and the model.
fn read(gpus: &mut Gpus) -> BTreeMap<String, f64> {
    let mut page = Page { text: String::new(), job: "jobid=\"7\"".to_owned() };
    gpus.write(&mut page);
    let one = |line: &str| {
        let line = Line::parse(line).unwrap();
        let labels: Vec<_> = line
            .labels
            .split(',')
            .filter(|label| {
                !["jobid", "uuid", "vendor", "minor", "profile", "parent"]
                    .iter()
                    .any(|key| label.starts_with(key))
            })
            .collect();
        (
            format!("{}{{{}}}", line.name.trim_start_matches("jobledger_"), labels.join(",")),
            line.value.parse().unwrap(),
        )
    };
    page.text.lines().map(one).collect()
}

#[test]
fn a_real_gpu_is_recorded_with_what_it_did() {
    let (_machine, roots) = machine(&["nvidia0"]);
    let recorded = RecordedNvml::new(H200);
    let mut gpus = Gpus::new(&roots, Visible::default(), Some(recorded.library()));
    // The samples of `fma_fp32`, as tests/fixtures/nvml says.
    let at = |word: &str| {
        let line = H200.lines().find(|line| line.starts_with("# phase fma_fp32 |")).unwrap();
        line.split(' ').find_map(|text| text.strip_prefix(word)).unwrap().parse::<u32>().unwrap()
    };
    recorded.select(at("first="));
    let first = read(&mut gpus);
    assert_eq!(first["job_gpus{source=\"opened\"}"], 1.0, "{first:?}");
    assert_eq!(first["job_gpu_info{gpu=\"0\",model=\"NVIDIA H200\",source=\"opened\"}"], 1.0);
    assert_eq!(first["job_gpu_allocated_seconds_total{gpu=\"0\"}"], 0.0);
    assert_eq!(first["job_gpu_energy_joules_total{gpu=\"0\",method=\"whole\"}"], 0.0);
    assert_eq!(first["job_gpu_memory_limit_bytes{gpu=\"0\"}"], 150_754_820_096.0);
    assert_eq!(first["gpu_clock_hertz{gpu=\"0\",clock=\"sm\"}"], 1.98e9);
    std::thread::sleep(Duration::from_millis(300));
    recorded.select(at("first=") + 1);
    let second = read(&mut gpus);
    // A second of the recording: 261 W.
    let joules = second["job_gpu_energy_joules_total{gpu=\"0\",method=\"whole\"}"];
    assert!((255.0..270.0).contains(&joules), "{joules}");
    let busy = second["job_gpu_busy_seconds_total{gpu=\"0\",method=\"whole\"}"];
    assert!((0.95..1.05).contains(&busy), "{busy}");
    assert_eq!(second["job_gpu_utilization_ratio{gpu=\"0\"}"], 1.0);
    let (allocated, idle) = (
        second["job_gpu_allocated_seconds_total{gpu=\"0\"}"],
        second["job_gpu_idle_seconds_total{gpu=\"0\"}"],
    );
    assert!(allocated >= 0.3 && idle < allocated * 0.1, "{allocated} {idle}");
    // Activity is of the time that passed here.
    let flops = second["job_gpu_estimated_flops_total{gpu=\"0\",pipe=\"fp32\",assumption=\"fma\"}"];
    assert!((5.0e13..8.0e13).contains(&(flops / allocated)), "{flops} {allocated}");
    assert_eq!(gpus.take_problems(), Vec::<String>::new());
}

#[test]
fn gpus_of_other_jobs_are_left_out() {
    let fake = FakeNvml::new("gpus 4\n");
    let read = |nodes: &[&str], visible: Option<&str>| {
        let (_machine, roots) = machine(nodes);
        let visible = Visible { nvidia: visible.map(str::to_owned), ..Visible::default() };
        let mut gpus = Gpus::new(&roots, visible, Some(fake.library()));
        let page = self::read(&mut gpus);
        let allocated = page.keys().filter_map(|name| {
            let labels = name.strip_prefix("job_gpu_allocated_seconds_total{gpu=\"")?;
            labels.split('"').next()?.parse::<u32>().ok()
        });
        (page["job_gpus{source=\"opened\"}"], allocated.collect::<Vec<_>>())
    };
    let all = ["nvidia0", "nvidia1", "nvidia2", "nvidia3"];
    assert_eq!(read(&all, None), (4.0, vec![0, 1, 2, 3]));
    // The device cgroup lets it open two.
    assert_eq!(read(&["nvidia1", "nvidia3"], None), (2.0, vec![1, 3]));
    // The numbers are those of what it may open.
    assert_eq!(read(&["nvidia1", "nvidia3"], Some("1")), (1.0, vec![3]));
    assert_eq!(read(&all, Some("2, 0")), (2.0, vec![0, 2]));
    assert_eq!(read(&all, Some("GPU-00000000-0000-0000-0000-000000000003")), (1.0, vec![3]));
    assert_eq!(read(&all, Some("")), (0.0, vec![]));
    assert_eq!(read(&all, Some("1,9,2")), (1.0, vec![1]), "nothing behind one that is not there");
    assert_eq!(read(&[], None), (0.0, vec![]));
}

#[test]
fn a_gpu_that_the_driver_denies_is_not_missed() {
    let (_machine, roots) = machine(&["nvidia0", "nvidia1"]);
    // NVML_ERROR_NO_PERMISSION
    let fake = FakeNvml::new("gpus 2\ngpu 0 lost 4\n");
    let mut gpus = Gpus::new(&roots, Visible::default(), Some(fake.library()));
    assert_eq!(read(&mut gpus)["job_gpus{source=\"opened\"}"], 1.0);
    assert_eq!(gpus.take_problems(), Vec::<String>::new());
}

#[test]
fn without_a_driver_nothing_is_said_of_gpus() {
    let (_machine, roots) = machine(&[]);
    let mut gpus = Gpus::new(&roots, Visible::default(), None);
    assert_eq!(read(&mut gpus), BTreeMap::new());
    assert_eq!(gpus.take_problems(), Vec::<String>::new());
}

#[test]
fn a_driver_that_does_not_answer_is_said_once() {
    let (_machine, roots) = machine(&["nvidia0"]);
    let fake = FakeNvml::new("init 9\n");
    let mut gpus = Gpus::new(&roots, Visible::default(), Some(fake.library()));
    assert_eq!(read(&mut gpus), BTreeMap::new());
    let problems = gpus.take_problems();
    assert!(problems.len() == 1 && problems[0].starts_with("GPUs (nvidia): "), "{problems:?}");
    read(&mut gpus);
    assert_eq!(gpus.take_problems(), Vec::<String>::new());
}

#[test]
fn a_driver_that_hangs_costs_its_gpus_alone_and_comes_back() {
    let (_machine, roots) = machine(&["nvidia0"]);
    let fake = FakeNvml::new("gpu 0 energy 5000\n");
    let mut gpus = Gpus::new(&roots, Visible::default(), Some(fake.library()));
    assert_eq!(read(&mut gpus)["job_gpus{source=\"opened\"}"], 1.0);
    fake.set("gpu 0 energy 6000\nhang nvmlDeviceGetTemperature\n");
    assert_eq!((read(&mut gpus), gpus.is_stuck()), (BTreeMap::new(), true));
    assert_eq!(gpus.take_problems().len(), 1);
    assert_eq!((read(&mut gpus), gpus.take_problems()), (BTreeMap::new(), Vec::new()), "said once");
    fake.set("gpu 0 energy 7000\n");
    jobledger_testkit::eventually("the driver answers", || {
        read(&mut gpus).contains_key("job_gpus{source=\"opened\"}")
    });
    assert!(!gpus.is_stuck());
    let joules = read(&mut gpus)["job_gpu_energy_joules_total{gpu=\"0\",method=\"whole\"}"];
    assert_eq!(joules, 2.0, "with those of the time in between");
}

#[test]
fn counts_go_on_when_the_driver_begins_anew() {
    let (_machine, roots) = machine(&["nvidia0"]);
    let fake = FakeNvml::new("gpu 0 energy 5000\n");
    let mut gpus = Gpus::new(&roots, Visible::default(), Some(fake.library()));
    let mut joules = |energy: u32| {
        fake.set(&format!("gpu 0 energy {energy}\n"));
        read(&mut gpus)["job_gpu_energy_joules_total{gpu=\"0\",method=\"whole\"}"]
    };
    assert_eq!([5000, 7500, 100, 400].map(&mut joules), [0.0, 2.5, 2.5, 2.8]);
}

#[test]
fn amounts_are_written_to_their_last_digit() {
    assert_eq!(decimal(1_500_000_007, 1_000_000_000), "1.500000007");
    assert_eq!(decimal(2_000_001, 1_000_000), "2.000001");
    assert_eq!(decimal(42, 1), "42");
}

#[test]
fn the_variable_of_each_vendor_counts() {
    let get = |name: &str| match name {
        "CUDA_VISIBLE_DEVICES" => Some(String::new()),
        "HIP_VISIBLE_DEVICES" => Some("1".to_owned()),
        _ => None,
    };
    let visible = Visible::of(get);
    assert_eq!(visible.named(Vendor::Nvidia), Some(""));
    assert_eq!(visible.named(Vendor::Amd), Some("1"));
    assert_eq!(visible.named(Vendor::Intel), None);
}
