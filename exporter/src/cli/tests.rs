use super::*;
use crate::control::{CounterOrder, GpuOrder};

fn run(arguments: &[&str]) -> Result<Config, clap::Error> {
    let line = std::iter::once("jobledger-exporter").chain(arguments.iter().copied()).map(Into::into);
    match parse(line)? {
        Invocation::Run(config) => Ok(*config),
        other => panic!("not a run: {other:?}"),
    }
}

#[test]
fn the_grammar_is_sound() {
    command().debug_assert();
}

#[test]
fn collectors_are_switched_as_in_node_exporter() {
    let names = |config: &Config| config.enabled.iter().map(|e| e.name).collect::<Vec<_>>();
    assert!(names(&run(&[]).unwrap()).contains(&"cpu"));
    assert!(!names(&run(&["--no-collector.cpu"]).unwrap()).contains(&"cpu"));
    assert_eq!(names(&run(&["--collector.disable-defaults", "--collector.cpu"]).unwrap()), ["cpu"]);
    assert!(names(&run(&["--collector.disable-defaults"]).unwrap()).is_empty());
}

#[test]
fn a_profile_runs_the_collectors_that_it_has_families_of_and_those_asked_for_by_name() {
    let names = |flags: &[&str]| run(flags).unwrap().enabled.iter().map(|e| e.name).collect::<Vec<_>>();
    let lean = [
        "job",
        "cpu",
        "cpuset",
        "memory",
        "energy",
        "gpu",
        "owners",
        "counters",
        "node_cpu",
        "node_hardware",
        "exporter",
    ];
    assert_eq!(names(&["--metric.profile=lean"]), lean);
    let on = |flags: &[&str], name: &str| names(flags).contains(&name);
    assert!(on(&["--metric.profile=lean", "--collector.pressure"], "pressure"));
    assert!(!on(&["--metric.profile=lean", "--collector.pressure=false"], "pressure"));
    assert!(!on(&["--metric.profile=lean", "--no-collector.cpu"], "cpu"));
    let by_default: Vec<_> =
        crate::collector::REGISTRY.iter().filter(|e| e.default_on).map(|e| e.name).collect();
    for profile in [&[][..], &["--metric.profile=standard"], &["--metric.profile=full"]] {
        assert_eq!(names(profile), by_default, "{profile:?}");
    }
    let config = run(&["--collector.procsum"]).unwrap();
    assert_eq!(
        (config.selected.of_health(), config.selected.of("memory")),
        (Profile::Standard, Profile::Standard)
    );
    assert_eq!(config.selected.of("procsum"), Profile::Full, "the switch asks for all of it");
}

#[test]
fn unknown_and_contradictory_flags_are_refused() {
    for bad in [
        &["--collector.nonsense"][..],
        &["--collector.cpu", "--no-collector.cpu"],
        &["--once", "--check"],
        &["--jobs.tasks"],
        &["--jobs.retention=soon"],
        &["--web.listen-address=nowhere"],
        &["--web.scrapers=prometheus.example.org"],
        &["--metric.job-labels=home"],
        &["--metric.profile=tiny"],
        &["--log.level=loud"],
        &["stray"],
    ] {
        assert!(run(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn scrapers_are_addresses_and_networks_of_both_families() {
    let config = run(&["--web.scrapers=10.0.0.5,fd00::/64", "--web.scrapers=192.168.0.0/16"]).unwrap();
    let shown: Vec<_> = config.web.scrapers.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.5/32", "fd00::/64", "192.168.0.0/16"]);
    assert!(run(&[]).unwrap().web.scrapers.is_empty());
}

#[test]
fn a_plan_is_asked_for_by_name_and_state() {
    let line = |more: &[&str]| {
        let line = ["jobledger-exporter", "perf"].into_iter().chain(more.iter().copied()).map(Into::into);
        parse(line)
    };
    match line(&[
        "--microarchitecture=Zen 4",
        "--smt=off",
        "--nmi-watchdog=on",
        "--format=json",
        "--path.sysfs=/s",
    ]) {
        Ok(Invocation::Perf(request)) => {
            assert_eq!(request.microarchitecture.as_deref(), Some("Zen 4"));
            assert_eq!(
                (request.smt, request.watchdog, request.json, request.list),
                (Some(false), Some(true), true, false)
            );
            assert_eq!(request.roots, Roots::new("/proc", "/s", "/sys/fs/cgroup", "/dev"));
        }
        other => panic!("not a plan: {other:?}"),
    }
    assert!(line(&["--smt=perhaps"]).is_err() && line(&["--format=xml"]).is_err());
}

#[test]
fn known_work_is_asked_for_with_where_and_how_long() {
    let line = |more: &[&str]| {
        let line = ["jobledger-exporter", "perf"].into_iter().chain(more.iter().copied()).map(Into::into);
        parse(line)
    };
    let request = |more: &[&str]| match line(more) {
        Ok(Invocation::Validate(request)) => request,
        other => panic!("no known work: {other:?}"),
    };
    let plain = request(&["--validate"]);
    assert!(plain.compares && plain.cpus.is_none() && !plain.although_busy && !plain.json);
    assert_eq!(plain.time, Duration::from_millis(250));
    assert_eq!(plain.output, Some("/var/lib/jobledger/counters.json".into()));
    assert_eq!(plain.lock, Some("/var/run/likwid.lock".into()));
    let all =
        ["--cpus=2-3", "--time=1s", "--output=", "--although-busy", "--format=json", "--counters.lock-file="];
    let full = request(&["--peaks"].into_iter().chain(all).collect::<Vec<_>>());
    assert_eq!(full.cpus.map(|cpus| cpus.to_string()).as_deref(), Some("2-3"));
    assert_eq!(
        (full.compares, full.time, full.output, full.lock),
        (false, Duration::from_secs(1), None, None)
    );
    assert!(full.although_busy && full.json);
    for wrong in [
        vec!["--cpus=2"],
        vec!["--validate", "--peaks"],
        vec!["--validate", "--microarchitecture=Zen 4"],
        vec!["--validate", "--list"],
        vec!["--validate", "--time=0s"],
        vec!["--validate", "--cpus="],
        vec!["--validate", "--output=here"],
    ] {
        assert!(line(&wrong).is_err(), "{wrong:?}");
    }
    let file = |more: &[&str]| run(more).unwrap().results_file;
    assert_eq!(file(&[]), Some("/var/lib/jobledger/counters.json".into()));
    assert_eq!(file(&["--counters.results-file="]), None);
}

#[test]
fn hints_from_the_environment_need_a_look_into_processes() {
    use crate::collector::capabilities;
    let needed = |arguments: &[&str]| {
        let config = run(arguments).unwrap();
        capabilities(&config.enabled, config.environment_hints)
    };
    let ptrace = rustix::thread::CapabilitySet::SYS_PTRACE;
    assert!(!needed(&[]).contains(ptrace));
    assert!(needed(&["--jobs.environment-hints"]).contains(ptrace));
}

#[test]
fn values_arrive() {
    let config = run(&[
        "--jobs.retention=1m30s",
        "--web.listen-address=127.0.0.1:1,[::1]:2",
        "--jobs.steps",
        "--jobs.tasks",
        "--metric.job-labels=user,account",
    ])
    .unwrap();
    assert_eq!(config.retention, Duration::from_secs(90));
    assert_eq!(config.listen.len(), 2);
    assert!(config.levels.tasks);
    assert_eq!(config.job_labels, [JobLabel::User, JobLabel::Account]);
}

#[test]
fn orders_are_given_by_a_command_of_their_own() {
    let order = |arguments: &[&str]| {
        parse(std::iter::once("jobledger-exporter").chain(arguments.iter().copied()).map(Into::into))
    };
    let Ok(Invocation::Order(socket, Order::Gpus(GpuOrder::Release))) = order(&["gpu", "release"]) else {
        panic!("no order")
    };
    assert_eq!(socket, PathBuf::from("/run/jobledger/control.sock"));
    let parsed = order(&["gpu", "resume", "--control.socket=/x"]);
    assert!(
        matches!(parsed, Ok(Invocation::Order(socket, Order::Gpus(GpuOrder::Resume))) if socket == *"/x")
    );
    assert!(order(&["gpu"]).is_err() && order(&["gpu", "reset"]).is_err());
}

#[test]
fn gpus_are_not_read_all_the_time_nor_hardly_ever() {
    for (period, fine) in [("1s", true), ("5m", true), ("999ms", false), ("6m", false), ("often", false)] {
        assert_eq!(run(&[&format!("--collector.gpu.period={period}")]).is_ok(), fine, "{period}");
    }
}

#[test]
fn counters_are_ordered_about_by_a_command_of_their_own() {
    let order = |arguments: &[&str]| {
        let line =
            ["jobledger-exporter", "counters"].into_iter().chain(arguments.iter().copied()).map(Into::into);
        match parse(line) {
            Ok(Invocation::Order(_, Order::Counters(order))) => Some(order),
            Ok(other) => panic!("no order: {other:?}"),
            Err(_) => None,
        }
    };
    assert_eq!(order(&["yield"]), Some(CounterOrder::Yield(None)));
    let hour = Duration::from_secs(3600);
    assert_eq!(
        order(&["yield", "--for", "1h", "--control.socket=/x"]),
        Some(CounterOrder::Yield(Some(hour)))
    );
    assert_eq!(order(&["resume"]), Some(CounterOrder::Resume));
    assert_eq!(order(&["status"]), Some(CounterOrder::Status));
    for bad in [
        &[][..],
        &["steal"],
        &["yield", "--for=999ms"],
        &["yield", "--for=31d"],
        &["resume", "--for=1h"],
        &["status", "--for=1h"],
    ] {
        assert_eq!(order(bad), None, "{bad:?}");
    }
}

#[test]
fn the_lock_is_likwids_another_or_none() {
    let lock = |arguments: &[&str]| run(arguments).map(|config| config.counters_lock);
    assert_eq!(lock(&[]).unwrap(), Some(PathBuf::from("/var/run/likwid.lock")));
    assert_eq!(lock(&["--counters.lock-file=/x/y"]).unwrap(), Some(PathBuf::from("/x/y")));
    assert_eq!(lock(&["--counters.lock-file="]).unwrap(), None);
    for bad in ["lock", "/", "/run/..", "/run/", "./x"] {
        assert!(lock(&[&format!("--counters.lock-file={bad}")]).is_err(), "{bad}");
    }
}

#[test]
fn a_scrape_each_second_has_a_new_collection_that_is_over_before_its_default_timeout() {
    let config = run(&[]).unwrap();
    assert_eq!(
        (config.fresh_for(), config.longest_collection()),
        (Duration::from_millis(900), Duration::from_millis(8550))
    );
    let config = run(&["--scrape.timeout=30s"]).unwrap();
    assert_eq!(config.longest_collection(), Duration::from_millis(26_550));
    assert!(run(&["--scrape.timeout=0s"]).unwrap().longest_collection() > Duration::from_millis(400));
    let config = run(&["--scrape.min-interval=0s", "--web.timeout-offset=1m"]).unwrap();
    assert_eq!(
        (config.fresh_for(), config.longest_collection()),
        (Duration::ZERO, Duration::from_millis(4500))
    );
}

#[test]
fn ends_are_kept_for_one_reader_and_an_hour_by_default() {
    let config = run(&[]).unwrap();
    assert_eq!((config.readers, config.retention_max), (1, Duration::from_secs(3600)));
    assert_eq!(run(&["--jobs.readers=2"]).unwrap().readers, 2);
    for flag in ["--jobs.readers=0", "--jobs.readers=65", "--jobs.readers=all", "--jobs.retention-max=long"] {
        assert!(run(&[flag]).is_err(), "{flag}");
    }
}

const URL: &str = "--collector.energy.redfish-url=https://169.254.0.17/redfish/v1/Chassis/1/Power";

#[test]
fn a_redfish_resource_has_a_url_and_a_certificate() {
    let flag = |name: &str, value: &str| format!("--collector.energy.redfish-{name}={value}");
    let pin = flag("certificate", &format!("sha256:{}", "0A:".repeat(32).trim_end_matches(':')));
    let (ca, credentials) = (flag("ca", "/etc/ca.pem"), flag("credentials", "/etc/bmc"));
    let options = |flags: &[&str]| run(flags).unwrap().redfish;
    assert_eq!(options(&[]), None);
    let pinned = options(&[URL, &pin, &credentials]).unwrap();
    assert_eq!((pinned.address.host.as_str(), pinned.address.port), ("169.254.0.17", 443));
    assert_eq!(pinned.credentials, Some(PathBuf::from("/etc/bmc")));
    assert_eq!(
        pinned.trust,
        Some(redfish::Trust::Certificate(format!("sha256:{}", "0a".repeat(32)).parse().unwrap()))
    );
    assert_eq!(options(&[URL, &ca]).unwrap().trust, Some(redfish::Trust::Authorities("/etc/ca.pem".into())));
    let local = flag("url", "http://127.0.0.1:8000/redfish/v1/Chassis/1/Power");
    assert!(options(&[&local]).unwrap().trust.is_none());
    let short = flag("certificate", "sha256:0a");
    for bad in [&[URL][..], &[&ca], &[&credentials], &[URL, &ca, &pin], &[URL, &short], &[&local, &ca]] {
        assert!(run(bad).is_err(), "{bad:?}");
    }
    let shown = run(&[&flag("url", "https://root:calvin@bmc/redfish"), &ca]).unwrap_err().to_string();
    assert!(shown.contains("credentials file") && !shown.contains("calvin"), "{shown}");
}
