//! Machines as their kernels show them: what `jobledger-exporter perf` says there.

use std::process::Command;
use std::sync::Arc;

use jobledger_testkit::golden;
use jobledger_testkit::machine::{Machine as Fixture, fixtures_dir};
use kernel_files::{NodeFiles, Roots};
use perf_counters::catalogue::{Catalogue, Class, Extent};
use perf_counters::planner::{Machine, plan};
use perf_counters::{Plan, Quantity};

const MACHINES: [&str; 6] =
    ["pmu-broadwell", "pmu-icelake", "pmu-sapphirerapids", "pmu-genoa", "pmu-grace", "pmu-alderlake"];

fn roots(machine: &Fixture) -> Arc<Roots> {
    Arc::new(Roots::new(
        machine.path("proc"),
        machine.path("sys"),
        machine.path("cgroup"),
        machine.path("dev"),
    ))
}

fn planned(machine: &Fixture) -> Plan {
    plan(&Machine::read(&roots(machine)), &Catalogue::built_in(), Extent::Full, &Class::ALL)
}

fn run(machine: &Fixture, more: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_jobledger-exporter"))
        .arg("perf")
        .arg(format!("--path.sysfs={}", machine.path("sys").display()))
        .arg(format!("--path.procfs={}", machine.path("proc").display()))
        .args(more)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_machine_gives_its_plan() {
    for name in MACHINES {
        let (fine, text, trouble) = run(&Fixture::fixture(name), &[]);
        assert!(fine && trouble.is_empty(), "{name}: {trouble}");
        golden::assert_golden(&fixtures_dir().join(name).join("plan.txt"), &text);
        let (fine, text, trouble) = run(&Fixture::fixture(name), &["--plan=full"]);
        assert!(fine && trouble.is_empty(), "{name}: {trouble}");
        golden::assert_golden(&fixtures_dir().join(name).join("plan-full.txt"), &text);
    }
}

/// The kernel's own names for events have the codes that are planned.
#[test]
fn generic_events_are_those_of_the_kernel() {
    let mut seen = 0;
    for name in MACHINES {
        let machine = Fixture::fixture(name);
        let mut files = NodeFiles::new(&roots(&machine));
        let read = Machine::read(&roots(&machine));
        let plan = planned(&machine);
        for (quantity, aliases) in [
            (Quantity::Cycles, ["cpu-cycles", "cpu_cycles"]),
            (Quantity::Instructions, ["instructions", "inst_retired"]),
            (Quantity::ReferenceCycles, ["ref-cycles", ""]),
            (Quantity::Branches, ["branch-instructions", "br_retired"]),
            (Quantity::BranchMisses, ["branch-misses", "br_mis_pred_retired"]),
        ] {
            for pmu in &read.pmus {
                let Some(alias) = aliases.iter().find_map(|alias| pmu.alias(&mut files, alias)) else {
                    continue;
                };
                let mut events = plan.groups.iter().flat_map(|group| &group.events);
                let event = events.find(|event| event.quantity == quantity && event.attr.kind == pmu.kind);
                if let Some(event) = event {
                    assert_eq!(event.attr, alias.attr, "{name} {quantity:?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen >= 32, "{seen}");
}

#[test]
fn a_hybrid_machine_is_counted_by_kinds_of_cores() {
    let plan = planned(&Fixture::fixture("pmu-alderlake"));
    let hardware: Vec<_> = plan.groups.iter().filter(|group| group.hardware).collect();
    let cpus = |at: usize| hardware[at].cpus.as_ref().unwrap().iter().collect::<Vec<_>>();
    assert_eq!((hardware.len(), cpus(0), cpus(1)), (3, vec![4, 5], vec![0, 1, 2, 3]));
    let kinds: Vec<u32> = hardware.iter().map(|group| group.events[0].attr.kind).collect();
    assert_eq!(kinds, [10, 4, 10]);
    let why = plan.absent.iter().find(|absent| &*absent.what == "FLOPs").unwrap().why.clone();
    assert!(why.contains("Gracemont") && why.contains("cpu_atom"), "{why}");
    assert_eq!(plan.flops, None);
    // Without E-cores nothing is missing.
    let machine = Fixture::fixture("pmu-alderlake");
    machine.remove("sys/bus/event_source/devices/cpu_atom");
    let plan = planned(&machine);
    assert_eq!((plan.flops.as_deref(), plan.groups[0].cpus.as_ref()), (Some("retired"), None));
}

/// Cores that the catalogue does not have beside those that it does: a part would look like the whole.
#[test]
fn a_third_kind_of_core_leaves_only_what_all_have() {
    let machine = Fixture::fixture("pmu-alderlake");
    let third = "sys/bus/event_source/devices/cpu_lowpower";
    machine.write(format!("{third}/type"), "11\n").write(format!("{third}/cpus"), "6-7\n");
    machine.write(format!("{third}/format/event"), "config:0-7\n");
    let plan = planned(&machine);
    let of_third = plan.groups.iter().find(|group| group.events[0].attr.kind == 0).unwrap();
    assert_eq!(of_third.events[0].attr.config, 11 << 32, "the type of the kind of core is in the upper half");
    assert!(plan.absent.iter().any(|absent| &*absent.what == "misses of L3"), "{:?}", plan.absent);
    assert_eq!((plan.microarchitecture, plan.limits.instructions_per_cycle), (None, 24.0));
}

#[test]
fn an_unknown_cpu_has_the_kernels_events_alone() {
    let machine = Fixture::fixture("pmu-icelake");
    machine.write(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 250\n\n",
    );
    let plan = planned(&machine);
    let events: Vec<_> =
        plan.groups.iter().filter(|group| group.hardware).flat_map(|group| &group.events).collect();
    assert!(events.iter().all(|event| event.attr.kind == 0 && event.attr.config < 10), "{events:?}");
    let numbers: std::collections::BTreeSet<u64> = events.iter().map(|event| event.attr.config).collect();
    assert_eq!(
        numbers.into_iter().collect::<Vec<_>>(),
        [0, 1, 4, 5],
        "no cache misses: of which cache is not known"
    );
    assert!(plan.absent.iter().any(|absent| &*absent.what == "misses of L3"));
    assert_eq!((plan.microarchitecture, plan.flops, plan.limits.flops_per_cycle), (None, None, None));
}

#[test]
fn without_a_pmu_there_is_the_software_and_the_reason() {
    let machine = Fixture::fixture("pmu-genoa");
    machine.remove("sys/bus/event_source/devices/cpu");
    let plan = planned(&machine);
    assert_eq!((plan.groups.len(), plan.events(), plan.absent.len()), (1, 4, 1));
    assert!(plan.absent[0].why.contains("no PMU of the cores"), "{:?}", plan.absent);
    machine.remove("sys/bus/event_source");
    assert!(planned(&machine).absent[0].why.contains("there is no /sys/bus/event_source/devices"));
}

#[test]
fn what_the_kernel_cannot_be_asked_for_is_absent_with_its_field() {
    let machine = Fixture::fixture("pmu-icelake");
    machine.remove("sys/devices/cpu/format/offcore_rsp");
    let absent = planned(&machine).absent;
    let why = &absent.iter().find(|absent| &*absent.what == "loads from memory").unwrap().why;
    assert_eq!(&**why, "this kernel's cpu has no field offcore_rsp, which OCR.READS_TO_CORE.DRAM needs");
    // All FLOPs go when one of their events does.
    machine.write("sys/devices/cpu/format/umask", "config:8-13\n");
    let plan = planned(&machine);
    assert_eq!(plan.flops, None);
    assert!(
        plan.absent.iter().any(|absent| &*absent.what == "FLOPs" && absent.why.contains("too large")),
        "{:?}",
        plan.absent
    );
}

/// An ARM core that says it does not have an event would count 0 of it.
#[test]
fn what_an_arm_core_does_not_have_is_absent() {
    let machine = Fixture::fixture("pmu-grace");
    machine.remove("sys/devices/armv8_pmuv3_0/events/l2d_cache_wb");
    let plan = planned(&machine);
    let why = &plan.absent.iter().find(|absent| &*absent.what == "traffic from L2 to L3").unwrap().why;
    assert_eq!(&**why, "this CPU says that it does not have L2D_CACHE_WB");
    assert_eq!(plan.flops.as_deref(), Some("speculative"), "of FP_FIXED_OPS_SPEC nothing is said there");
}

#[test]
fn counters_are_taken_as_the_firmware_divides_them() {
    let general = |control: &str| {
        let machine = Fixture::fixture("pmu-broadwell");
        machine.write("sys/devices/system/cpu/smt/control", control);
        Machine::read(&roots(&machine)).smt
    };
    for (control, shared) in [
        ("on\n", true),
        ("off\n", true),
        ("forceoff\n", true),
        ("notsupported\n", false),
        ("notimplemented\n", true),
    ] {
        assert_eq!(general(control), shared, "{control}");
    }
    let machine = Fixture::fixture("pmu-broadwell");
    machine.remove("sys/devices/system/cpu/smt").remove("proc/sys/kernel/nmi_watchdog");
    let read = Machine::read(&roots(&machine));
    assert_eq!((read.smt, read.watchdog), (true, false));
    for (content, on) in [("0\n", false), ("1\n", true), ("odd\n", true)] {
        machine.write("proc/sys/kernel/nmi_watchdog", content);
        assert_eq!(Machine::read(&roots(&machine)).watchdog, on, "{content}");
    }
}

#[test]
fn the_command_answers_people_and_tools() {
    let machine = Fixture::fixture("pmu-genoa");
    let (fine, json, _) = run(&machine, &["--format=json"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(fine && value["microarchitecture"] == "Zen 4" && value["assumed"] == false, "{json}");
    assert_eq!(value["cores"][0]["groups"][0]["events"][1]["type"], 4);
    let (fine, list, _) = run(&machine, &["--list"]);
    assert!(fine && list.lines().any(|line| line == "Skylake-SP") && list.lines().count() >= 47);
    let (_, on, _) = run(&machine, &["--microarchitecture=Skylake-SP", "--smt=on", "--nmi-watchdog=off"]);
    assert!(
        on.starts_with(
            "Skylake-SP, SMT on, NMI watchdog off\nThe essential plan; --plan=full shows the other\n"
        ) && on.contains("4 general-purpose counters"),
        "{on}"
    );
    let (_, off, _) = run(&machine, &["--smt=off", "--nmi-watchdog=off", "--microarchitecture=Skylake-SP"]);
    assert!(off.contains("8 general-purpose counters"), "{off}");
    let (fine, text, trouble) = run(&machine, &["--microarchitecture=Itanium"]);
    assert!(!fine && text.is_empty() && trouble.contains("Itanium is not in the catalogue"), "{trouble}");
    machine.write("events.yaml", "microarchitectures: [{names: [Zen 4], cores: [{pmu: cpu, events: [{name: mine, event: 0x1c7, what: branches}]}]}]\n");
    let file = format!("--events-file={}", machine.path("events.yaml").display());
    let (fine, text, trouble) = run(&machine, &[&file, "--plan=full"]);
    assert!(
        fine && text.lines().any(|line| line.contains("mine ") && line.contains("0x1000000c7")),
        "{text}{trouble}"
    );
    machine.write("events.yaml", "microarchitectures: [{names: [Zen 4], cores: [{pmu: cpu, event: []}]}]\n");
    let (fine, _, trouble) = run(&machine, &[&file]);
    assert!(!fine && trouble.contains("events.yaml") && trouble.contains("event"), "{trouble}");
}

#[test]
fn turns_that_are_short_are_told_with_what_makes_fewer_of_them() {
    let machine = Fixture::fixture("pmu-broadwell");
    let turns =
        |text: &str| text.lines().find(|line| line.starts_with("Counters take turns")).map(str::to_owned);
    let (_, full, _) = run(&machine, &["--plan=full"]);
    assert_eq!(
        turns(&full).as_deref(),
        Some(
            "Counters take turns every 4 ms, which interrupts jobs' CPUs as often: --collector.perf.plan=essential, or --collector.perf.mux-interval=100ms costs less, kernel.nmi_watchdog=0 for one counter more"
        )
    );
    machine.write("sys/devices/cpu/perf_event_mux_interval_ms", "100\n");
    assert_eq!(turns(&run(&machine, &["--plan=full"]).1), None);
    let (_, genoa, _) = run(&Fixture::fixture("pmu-genoa"), &[]);
    assert_eq!(turns(&genoa), None, "one group takes no turns");
}

/// Linux shows how many slots a cycle of an ARM core has.
#[test]
fn slots_of_an_arm_core_are_the_kernels() {
    let machine = Fixture::fixture("pmu-grace");
    machine.write("sys/devices/armv8_pmuv3_0/caps/slots", "0x0000000a\n");
    let slots = |machine: &Fixture| Machine::read(&roots(machine)).slots;
    assert_eq!(slots(&machine), Some(10));
    for none in ["0x00000000\n", "8\n", "0xffffffff\n"] {
        machine.write("sys/devices/armv8_pmuv3_0/caps/slots", none);
        assert_eq!(slots(&machine), None, "{none}");
    }
    machine.remove("sys/devices/armv8_pmuv3_0/caps/slots");
    assert_eq!(slots(&machine), None);
}

/// A fixture is no procfs: this machine's CPUID says nothing of it.
#[test]
fn the_counters_of_another_machine_are_not_asked_of_this_cpu() {
    for name in MACHINES {
        assert_eq!(Machine::read(&roots(&Fixture::fixture(name))).general, None, "{name}");
    }
}

/// The exporter itself on a machine: what it prints.
fn exporter(machine: &Fixture, more: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_jobledger-exporter"))
        .arg(format!("--path.sysfs={}", machine.path("sys").display()))
        .arg(format!("--path.procfs={}", machine.path("proc").display()))
        .arg(format!("--path.cgroupfs={}", machine.path("cgroup").display()))
        .arg(format!("--path.dev={}", machine.path("dev").display()))
        .arg(format!("--state.file={}", machine.path("state").display()))
        .args(["--security.no-drop", "--collector.perf"])
        .args(more)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout) + &text(output.stderr))
}

#[test]
fn the_length_of_turns_is_set_where_it_is_asked_for_and_suggested_where_it_is_short() {
    let machine = Fixture::fixture("pmu-broadwell");
    let turn = "sys/devices/cpu/perf_event_mux_interval_ms";
    let now = || std::fs::read_to_string(machine.path(turn)).unwrap();
    let advice = "Counters take turns every 4 ms";
    let (_, check) = exporter(&machine, &["--check", "--collector.perf.plan=full"]);
    assert!(check.contains(advice), "{check}");
    assert_eq!(now(), "4\n", "nobody asked for another");
    for bad in ["0s", "6s", "1500us", "fast"] {
        let (fine, trouble) =
            exporter(&machine, &["--once", &format!("--collector.perf.mux-interval={bad}")]);
        assert!(!fine && trouble.contains("mux-interval"), "{bad}: {trouble}");
    }
    exporter(&machine, &["--once", "--collector.perf.mux-interval=100ms"]);
    assert!(now().starts_with("100\n"), "{}", now());
    let (_, check) = exporter(&machine, &["--check", "--collector.perf.plan=full"]);
    assert!(!check.contains(advice), "{check}");
}
