//! Whose a job is: by its name, its slurmstepd, the prolog, its environment; and its labels.

use super::*;

#[test]
fn a_sluid_is_resolved_by_the_title_of_roots_slurmstepd_alone() {
    let mut node = Node::new();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
    node.make_job("sEKNKTV3WPV500", "batch", Some((50, 51)));
    node.process(50, 1, 1001, "slurmstepd: [666.batch]");
    node.settle();
    let (snapshot, _) = node.scrape();
    assert_eq!(
        (snapshot.jobs.len(), snapshot.pending.len()),
        (0, 1),
        "a title that a user wrote is no title"
    );
    node.process(50, 1, me, "slurmstepd: [123.batch]");
    node.process(51, 50, 1001, "/bin/bash script");
    let (snapshot, _) = node.scrape();
    let job = only(&snapshot);
    assert_eq!(
        (job.id.unwrap().0, job.uid, job.sluid.unwrap().to_string()),
        (123, Some(1001), "sEKNKTV3WPV500".to_owned())
    );
    assert_eq!(job.labels[0], ("jobid", "123".to_owned()));
}

#[test]
fn a_sluid_that_nobody_resolves_is_in_the_residual_and_is_counted() {
    let mut node = Node::new();
    node.scrape();
    node.make_job("sEKNKTV3WPV500", "batch", None);
    node.spend("sEKNKTV3WPV500", 700_000, 700_000);
    let (_, text) = node.scrape();
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0), "not yet");
    node.machine.remove(format!("{SCOPE}/sEKNKTV3WPV500"));
    node.settle();
    let (snapshot, text) = node.scrape();
    assert_eq!((snapshot.jobs.len(), snapshot.table.lost_total), (0, 1));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.7));
}

#[test]
fn the_prologs_file_resolves_a_sluid_at_the_last_moment() {
    let mut node = Node::new();
    node.make_job("sEKNKTV3WPV500", "batch", None);
    node.settle();
    node.machine.write("run/jobledger/jobs/55", "job_id=55\nsluid=sEKNKTV3WPV500\nuid=1002\n");
    node.machine.remove(format!("{SCOPE}/sEKNKTV3WPV500"));
    node.settle();
    let (snapshot, _) = node.scrape();
    assert_eq!((ids(&snapshot), only(&snapshot).uid), (vec![55], Some(1002)));
}

#[test]
fn a_task_that_is_still_slurmstepd_is_not_roots() {
    let mut node = Node::new();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
    node.make_job("job_7", "0", Some((50, 51)));
    node.process(50, 1, me, "slurmstepd: [7.0]");
    node.process(51, 50, 0, "slurmstepd: [7.0]");
    node.settle();
    assert_eq!(only(&node.scrape().0).uid, None);
    node.process(51, 50, 1001, "./a.out");
    assert_eq!(only(&node.scrape().0).uid, Some(1001));
}

#[test]
fn a_file_left_from_another_users_job_of_this_id_says_nothing() {
    let mut node = Node::new();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
    node.machine.write("run/jobledger/jobs/7", "job_id=7\nuid=1002\naccount=theirs\n");
    node.make_job("job_7", "0", Some((50, 51)));
    node.process(50, 1, me, "slurmstepd: [7.0]");
    node.process(51, 50, 1001, "./a.out");
    let job = only(&node.scrape().0);
    assert_eq!((job.uid, job.metadata.account.as_deref()), (Some(1001), None));
}

#[test]
fn the_environment_gives_names_only_when_allowed_and_never_identity() {
    for allowed in [false, true] {
        let mut node = Node::over(empty_machine(), |options| options.environment_hints = allowed);
        let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
        node.make_scope();
        node.table.verify();
        node.process(50, 1, me, "slurmstepd: [7.0]");
        node.process(51, 50, 1001, "./a.out");
        node.machine.write("proc/51/environ", "SLURM_JOB_ID=666\0SLURM_JOB_UID=0\0SLURM_JOB_NAME=mine\0");
        node.make_job("job_7", "0", Some((50, 51)));
        let job = only(&node.scrape().0);
        assert_eq!((job.id.unwrap().0, job.uid), (7, Some(1001)));
        assert_eq!(job.metadata.name.as_deref(), allowed.then_some("mine"));
    }
}

/// What the prolog writes of a job, without and with what only the controller knows.
const EARLY: &str = "job_id=7\nuid=1001\naccount=physics\n";
const WHOLE: &str = "job_id=7\nuid=1001\naccount=physics\nname=late\n";

fn prolog_writes(node: &Node, content: &str) {
    node.machine.write("run/jobledger/jobs/.7.1", content);
    node.machine.rename("run/jobledger/jobs/.7.1", "run/jobledger/jobs/7");
}

/// The controller was busy: the prolog's file is there at once, and has the job's name later.
#[test]
fn a_file_that_is_written_again_is_read_again() {
    let mut node = Node::new();
    prolog_writes(&node, EARLY);
    node.table.verify();
    node.make_job("job_7", "0", None);
    // More scrapes than an absent file is looked for.
    for _ in 0..8 {
        assert_eq!(only(&node.scrape().0).metadata.name, None);
    }
    prolog_writes(&node, WHOLE);
    node.settle();
    let job = only(&node.scrape().0);
    assert_eq!(
        (job.metadata.name.as_deref(), job.metadata.account.as_deref()),
        (Some("late"), Some("physics"))
    );
}

#[test]
fn a_file_that_comes_long_after_the_job_or_with_its_directory_is_read() {
    for directory_is_there in [true, false] {
        let mut node = Node::new();
        if directory_is_there {
            node.machine.mkdir("run/jobledger/jobs");
        }
        // Its owner is known: nothing else asks for it again.
        let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
        node.process(50, 1, me, "slurmstepd: [7.0]");
        node.process(51, 50, 1001, "./a.out");
        node.make_job("job_7", "0", Some((50, 51)));
        for _ in 0..8 {
            assert_eq!(only(&node.scrape().0).metadata.account, None);
        }
        prolog_writes(&node, WHOLE);
        node.settle();
        assert_eq!(
            only(&node.scrape().0).metadata.account.as_deref(),
            Some("physics"),
            "{directory_is_there}"
        );
    }
}

#[test]
fn running_jobs_without_the_prologs_file_are_counted_where_there_is_its_directory() {
    let mut node = Node::new();
    let count = |node: &mut Node| node.scrape().0.table.without_metadata;
    assert_eq!(count(&mut node), Some(0));
    node.make_job("job_7", "0", None);
    node.make_job("job_8", "0", None);
    node.settle();
    assert_eq!(count(&mut node), Some(2));
    node.machine.write("run/jobledger/jobs/8", "job_id=8\nuid=1001\n");
    prolog_writes(&node, WHOLE);
    node.settle();
    assert_eq!(count(&mut node), Some(0));
    node.make_job("job_9", "0", None);
    node.settle();
    assert_eq!(count(&mut node), Some(1));
    node.machine.remove(format!("{SCOPE}/job_9"));
    node.settle();
    assert_eq!(count(&mut node), Some(0), "it ended");
    node.machine.remove("run/jobledger");
    assert_eq!(count(&mut node), None);
}

#[test]
fn a_file_of_a_job_that_ended_is_read_while_the_job_is_exported() {
    let mut node = Node::over(empty_machine(), |options| options.retention = Duration::from_secs(3600));
    node.make_scope();
    node.table.verify();
    prolog_writes(&node, EARLY);
    node.make_job("job_7", "0", None);
    node.scrape();
    node.machine.remove("run/jobledger/jobs/7").remove(format!("{SCOPE}/job_7"));
    node.settle();
    assert_eq!(only(&node.scrape().0).metadata.name, None);
    prolog_writes(&node, WHOLE);
    node.settle();
    node.machine.remove("run/jobledger/jobs/7");
    let job = only(&node.scrape().0);
    assert!(job.ended.is_some());
    assert_eq!(job.metadata.name.as_deref(), Some("late"));
}

/// What the epilog adds to the prolog's file, of the run with this start.
fn epilog_writes(node: &Node, start: u32, exit_code: u8) {
    let text =
        format!("job_id=7\nuid=1001\nstart_time={start}\nrestarts=0\nexit_code={exit_code}\nsignal=0\n");
    node.machine.write("run/jobledger/jobs/.7.2", text);
    node.machine.rename("run/jobledger/jobs/.7.2", "run/jobledger/jobs/7.ended");
}

fn exit_code(job: &Job) -> Option<u8> {
    job.metadata.ending.exit_code
}

const FIRST: &str = "job_id=7\nuid=1001\nstart_time=1000\nrestarts=0\n";

fn node_that_retains() -> Node {
    let mut node = Node::over(empty_machine(), |options| options.retention = Duration::from_secs(3600));
    node.make_scope();
    node.table.verify();
    node
}

#[test]
fn how_a_job_ended_is_read_when_the_epilog_writes_it_before_or_after_the_end() {
    for epilog_is_first in [false, true] {
        let mut node = node_that_retains();
        prolog_writes(&node, FIRST);
        node.make_job("job_7", "0", None);
        assert_eq!(exit_code(&only(&node.scrape().0)), None);
        if epilog_is_first {
            epilog_writes(&node, 1000, 3);
            node.settle();
        }
        node.machine.remove(format!("{SCOPE}/job_7"));
        node.settle();
        if !epilog_is_first {
            assert_eq!(exit_code(&only(&node.scrape().0)), None, "the epilog runs");
            epilog_writes(&node, 1000, 3);
            node.settle();
        }
        let job = only(&node.scrape().0);
        assert_eq!((exit_code(&job), job.ended.is_some()), (Some(3), true), "{epilog_is_first}");
        // The controller's late answer says nothing of the end.
        prolog_writes(&node, &format!("{FIRST}name=late\n"));
        node.settle();
        let job = only(&node.scrape().0);
        assert_eq!((exit_code(&job), job.metadata.name.as_deref()), (Some(3), Some("late")));
    }
}

#[test]
fn the_end_of_another_run_of_the_job_is_not_taken() {
    let mut node = node_that_retains();
    // An earlier run's file is still there.
    epilog_writes(&node, 900, 9);
    prolog_writes(&node, FIRST);
    node.make_job("job_7", "0", None);
    node.scrape();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    assert_eq!(exit_code(&only(&node.scrape().0)), None);
    // Nor does an ended run take the file of the next one, or its end.
    prolog_writes(&node, "job_id=7\nuid=1001\nstart_time=2000\nrestarts=1\n");
    node.settle();
    assert_eq!(only(&node.scrape().0).metadata.restarts, Some(0));
    epilog_writes(&node, 2000, 4);
    node.settle();
    assert_eq!(exit_code(&only(&node.scrape().0)), None);
    epilog_writes(&node, 1000, 3);
    node.settle();
    assert_eq!(exit_code(&only(&node.scrape().0)), Some(3));
}

#[test]
fn without_start_and_restarts_nothing_says_which_run_ended() {
    let mut node = node_that_retains();
    prolog_writes(&node, EARLY);
    node.make_job("job_7", "0", None);
    node.scrape();
    node.machine.write("run/jobledger/jobs/7.ended", format!("{EARLY}exit_code=3\nsignal=0\n"));
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    assert_eq!(exit_code(&only(&node.scrape().0)), None);
}

#[test]
fn chosen_labels_are_on_every_series_of_a_job() {
    let mut node =
        Node::over(empty_machine(), |options| options.job_labels = vec![JobLabel::User, JobLabel::Account]);
    node.make_scope();
    node.table.verify();
    node.machine.write("run/jobledger/jobs/7", "job_id=7\nuid=1001\nuser=alice\naccount=physics\n");
    node.make_job("job_7", "0", None);
    let (_, text) = node.scrape();
    let series =
        "jobledger_job_cpu_seconds_total{jobid=\"7\",user=\"alice\",account=\"physics\",mode=\"user\"}";
    assert_eq!(value(&text, series), Some(0.0), "{text}");
}
