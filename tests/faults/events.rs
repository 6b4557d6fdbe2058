//! The kernel does not report what happens to cgroups. Row 17.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::scratch::Scratch;

use crate::support::*;

const LIMIT: &str = "/proc/sys/user/max_inotify_instances";
const END: &str = "jobledger_job_end_time_seconds";

/// A program that runs the exporter in a user namespace in which nobody gets an inotify instance.
fn without_instances(scratch: &Scratch) -> Option<String> {
    let able = Command::new("unshare").args(["-Ur", "sh", "-c", &format!("echo 0 > {LIMIT}")]).status();
    if !able.is_ok_and(|status| status.success()) {
        jobledger_testkit::skip("user-namespace", "a user namespace with limits of its own");
        return None;
    }
    let program = scratch.path().join("exporter");
    let script = format!(
        "#!/bin/sh\nexec unshare -Ur sh -c 'echo 0 > {LIMIT} && exec \"$0\" \"$@\"' {} \"$@\"\n",
        jobledger_testkit::tools::for_everybody(Path::new(BINARY)).display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(program.to_str().unwrap().to_owned())
}

/// Raises the limit in the exporter's namespace.
fn allow_instances(exporter: &Exporter) {
    let pid = exporter.pid().to_string();
    let raise = format!("echo 8 > {LIMIT}");
    let raised = Command::new("nsenter")
        .args(["--user", "--preserve-credentials", "--target", &pid, "sh", "-c", &raise])
        .status();
    assert!(raised.unwrap().success());
}

/// As with `fs.inotify.max_user_instances`: jobs, steps and ends are found by the walk of each scrape. When instances are
/// free, events are used again.
#[test]
fn without_an_inotify_instance_scrapes_find_the_jobs() {
    let scratch = Scratch::new("no-inotify");
    let Some(program) = without_instances(&scratch) else { return };
    let node = Node::with_jobs([1]);
    let exporter = Exporter::start(&program, &node.flags(&["--jobs.steps", "--jobs.retention=1h"]));
    let first = scrape(&exporter);
    assert_eq!((success(&first, "job"), success(&first, "cpu")), (Some(0.0), Some(1.0)));
    assert!(detail(&first, "job").contains("fs.inotify.max_user_instances"), "{}", detail(&first, "job"));
    assert_eq!(user_seconds(&first, 1), Some(1.0));
    node.add_job(2, 2);
    node.0.copy_tree(format!("{}/step_0", job(1)), format!("{}/step_1", job(1)));
    let now = scrape(&exporter);
    assert_eq!(user_seconds(&now, 2), Some(2.0));
    let step = [("jobid", "1"), ("step", "1"), ("mode", "user")];
    assert_eq!(now.value("jobledger_step_cpu_seconds_total", &step), Some(1.0));
    node.remove_job(1);
    assert_eq!(jobs_in(&scrape(&exporter), END), [1].into());

    allow_instances(&exporter);
    eventually(&exporter, "events", |e| success(e, "job") == Some(1.0));
    node.add_job(3, 3);
    // One that no walk sees.
    until("the job is followed", || {
        let held = std::fs::read_dir(format!("/proc/{}/fd", exporter.pid())).unwrap().flatten();
        let dirs = held.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        if dirs.into_iter().any(|dir| dir.ends_with("job_3")) { Ok(()) } else { Err(String::new()) }
    });
    node.remove_job(3);
    let now = eventually(&exporter, "its end", |e| jobs_in(e, END) == [1, 3].into());
    let cpu = now.value("jobledger_job_cpu_seconds_total", &[("jobid", "3"), ("mode", "user")]);
    assert!(cpu.is_none_or(|cpu| cpu == 3.0), "{cpu:?}");
    node.remove_job(2);
    eventually(&exporter, "an end of a job from before", |e| jobs_in(e, END) == [1, 2, 3].into());
}
