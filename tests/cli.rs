//! The command line of the real binary: errors, help and exit statuses.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes and fail by panicking"
)]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use jobledger_testkit::machine::Machine;
use jobledger_testkit::tools::for_everybody;

fn exporter() -> Command {
    let mut command = Command::new(for_everybody(Path::new(env!("CARGO_BIN_EXE_jobledger-exporter"))));
    command.stdin(Stdio::null()).env_clear();
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_wrong_command_line_is_refused_with_the_reason() {
    for (arguments, named) in [
        (&["--collector.nonsense"][..], "--collector.nonsense"),
        (&["--collector.cpu", "--no-collector.cpu"], "--no-collector.cpu"),
        (&["--web.listen-address=nowhere"], "nowhere"),
        (&["--jobs.retention=soon"], "--jobs.retention"),
    ] {
        let (code, stdout, stderr) = run(exporter().args(arguments));
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{arguments:?}");
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_bad_web_configuration_is_refused_with_its_line_before_anything_listens() {
    let machine = Machine::empty();
    machine.write("web.yml", "basic_auth_users:\n  alice: secret\n");
    let file = machine.path("web.yml");
    let (code, _, stderr) = run(exporter().arg(format!("--web.config.file={}", file.display())));
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains(&format!("{}:2:", file.display())), "{stderr}");
    assert!(!stderr.contains("secret"), "what is meant to be a secret is not logged: {stderr}");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (code, _, stderr) = run(exporter().arg(format!("--web.listen-address={address}")));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains(&address.to_string()) && stderr.contains("in use"), "{stderr}");
}

/// In a network namespace of its own, where the ports below 1024 are root's as everywhere.
#[test]
fn a_privileged_port_is_refused_to_an_ordinary_user_with_the_reason() {
    if jobledger_testkit::skip_without_root("a network namespace, and another user") {
        return;
    }
    let program = for_everybody(Path::new(env!("CARGO_BIN_EXE_jobledger-exporter")));
    let mut command = Command::new("unshare");
    command.args(["--net", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let (code, stdout, stderr) = run(command.arg(program).arg("--web.listen-address=0.0.0.0:80"));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("0.0.0.0:80") && stderr.contains("Permission denied"), "{stderr}");
}

#[test]
fn the_environment_sets_flags_and_flags_have_priority() {
    let machine = Machine::fixture("v2-steps");
    let once = |command: &mut Command| run(command.args(machine.path_flags()).arg("--once")).1;
    let without =
        once(exporter().env("JOBLEDGER_COLLECTOR_CPU", "false").env("JOBLEDGER_JOBS_STEPS", "true"));
    assert!(!without.contains("jobledger_job_cpu_seconds_total{"));
    assert!(without.contains("jobledger_step_memory_used_bytes{"));
    let with = once(exporter().env("JOBLEDGER_COLLECTOR_CPU", "false").arg("--collector.cpu"));
    assert!(with.contains("jobledger_job_cpu_seconds_total{"));
    let (code, _, stderr) = run(exporter().env("JOBLEDGER_LOG_LEVEL", "loud").arg("--once"));
    assert_eq!(code, Some(64), "{stderr}");
}

#[test]
fn check_reports_each_collector_with_the_reason() {
    let machine = Machine::fixture("v1-freezer-only");
    let (code, report, _) = run(exporter().args(machine.path_flags()).arg("--check"));
    let line =
        |name: &str| report.lines().find(|l| l.split_whitespace().next() == Some(name)).unwrap().to_owned();
    assert!(line("job").contains(" ok "), "{report}");
    assert!(line("cpu").contains("unsupported") && line("cpu").contains("jobacct_gather/cgroup"), "{report}");
    assert!(line("pressure").contains("cgroup v2"), "{report}");
    assert!(line("node_cpufreq").contains("--collector.node_cpufreq"), "{report}");
    assert_eq!(code, Some(0), "what a machine does not have is no failure");
}

/// Root can read more than the service's user.
#[test]
fn check_names_the_user_it_runs_as() {
    let machine = Machine::fixture("v2-steps");
    let looked = |command: &mut Command| {
        let (_, report, _) = run(command.args(machine.path_flags()).arg("--check"));
        report.lines().find(|line| line.starts_with("Looked as ")).unwrap().to_owned()
    };
    let uid = rustix::process::geteuid();
    assert!(looked(&mut exporter()).contains(&format!("(uid {}) with", uid.as_raw())));
    if uid.is_root() {
        assert!(looked(exporter().uid(65534).gid(65534)).contains("(uid 65534) without capabilities."));
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = exporter().args(["generate", "metrics"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert!(child.wait().unwrap().success());
}
