use super::*;

fn run(arguments: &[&str]) -> Result<Config, clap::Error> {
    let line = std::iter::once("jobledger-exporter").chain(arguments.iter().copied()).map(Into::into);
    match parse(line)? {
        Invocation::Run(config) => Ok(*config),
        Invocation::Generate(_) => panic!("not a run"),
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
fn unknown_and_contradictory_flags_are_refused() {
    for bad in [
        &["--collector.nonsense"][..],
        &["--collector.cpu", "--no-collector.cpu"],
        &["--once", "--check"],
        &["--jobs.tasks"],
        &["--jobs.retention=soon"],
        &["--web.listen-address=nowhere"],
        &["--metric.job-labels=home"],
        &["--log.level=loud"],
        &["--demo.speed=2"],
        &["--demo", "--demo.speed=0"],
        &["--demo", "--path.procfs=/proc"],
        &["stray"],
    ] {
        assert!(run(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn looking_for_holders_of_ports_is_looking_into_processes() {
    use crate::collector::capabilities;
    let needed = |arguments: &[&str]| {
        let config = run(arguments).unwrap();
        capabilities(&config.enabled, config.looks_into_processes())
    };
    let ptrace = rustix::thread::CapabilitySet::SYS_PTRACE;
    assert!(!needed(&[]).contains(ptrace));
    assert!(needed(&["--collector.infiniband.holders"]).contains(ptrace));
    assert!(!needed(&["--collector.infiniband.holders", "--no-collector.infiniband"]).contains(ptrace));
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
