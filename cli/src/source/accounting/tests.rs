use std::path::Path;
use std::time::Instant;

use job_report::metric;

use super::*;
use crate::testing;

const DELIMITER: &str = "|17f|";

fn line(fields: &[&str]) -> String {
    fields.iter().map(|field| format!("{field}{DELIMITER}")).collect::<String>() + "\n"
}

fn fields<'a>(start: &'a str, end: &'a str, state: &'a str) -> [&'a str; 18] {
    [
        "39798795",
        "della",
        "1912",
        "aturing",
        "math",
        "gpu",
        "normal",
        "1646394000",
        "1646394900",
        start,
        end,
        "67316",
        "00:00:00",
        state,
        "1:0",
        "5760",
        "3",
        "ordinals",
    ]
}

/// The run of the job of [`testing`].
fn this_run() -> [&'static str; 18] {
    fields("1646394958", "1646462277", "FAILED")
}

fn filled(job: Job, lines: &str) -> Job {
    let mut job = Job { ended: None, time_limit: None, nodes_allocated: None, queued_seconds: None, ..job };
    let mut records = parse(lines, DELIMITER);
    records.iter_mut().for_each(|record| record.is_of_cluster = true);
    fill(&mut job, &records);
    job
}

#[test]
fn a_line_fills_what_no_node_knows() {
    let job = filled(testing::job(), &line(&this_run()));
    let ended = job.ended.unwrap();
    assert_eq!((ended.state.as_str(), ended.origin), ("FAILED", Origin::Accounting));
    assert_eq!((ended.exit_code, ended.signal), (Some(1), None));
    assert_eq!((job.time_limit, job.nodes_allocated), (Some(345_600.0), Some(3)));
    assert_eq!(job.queued_seconds, Some(58.0), "from when on it might have run");
    assert_eq!(job.identity.qos, "della-gpu", "what the node knows goes first");
}

#[test]
fn it_goes_before_what_is_derived_and_leaves_what_it_does_not_say() {
    let mut job = testing::job();
    job.identity.account.clear();
    job.ended =
        Some(Ended { state: "FAILED".to_owned(), origin: Origin::Derived, exit_code: None, signal: None });
    let mut fields = this_run();
    (fields[13], fields[14], fields[15], fields[16]) = ("CANCELLED by 1000", "0:15", "UNLIMITED", "");
    let mut records = parse(&line(&fields), DELIMITER);
    records.iter_mut().for_each(|record| record.is_of_cluster = true);
    fill(&mut job, &records);
    let ended = job.ended.unwrap();
    assert_eq!((ended.state.as_str(), ended.origin), ("CANCELLED", Origin::Accounting));
    assert_eq!((ended.exit_code, ended.signal), (Some(0), Some(15)));
    assert_eq!((job.time_limit, job.nodes_allocated), (Some(345_600.0), Some(2)));
    assert_eq!(job.identity.account, "math");
}

#[test]
fn of_several_runs_the_one_of_that_time_counts() {
    let runs = line(&fields("1646300000", "1646394900", "REQUEUED"))
        + &line(&this_run())
        + &line(&fields("1646470000", "Unknown", "RUNNING"));
    assert_eq!(filled(testing::job(), &runs).ended.unwrap().state, "FAILED");
    let running = line(&fields("1646394958", "Unknown", "RUNNING"));
    let job = filled(testing::job(), &running);
    assert_eq!((job.ended, job.time_limit), (None, Some(345_600.0)));
    let pending = line(&fields("Unknown", "Unknown", "PENDING"));
    assert_eq!(filled(testing::job(), &pending).time_limit, None);
}

#[test]
fn a_job_of_another_cluster_with_this_number_is_another() {
    let mut other = this_run();
    (other[2], other[3]) = ("1913", "eve");
    assert_eq!(filled(testing::job(), &line(&other)).ended, None);
    other[0] = "39798796";
    (other[2], other[3]) = ("1912", "aturing");
    assert_eq!(filled(testing::job(), &line(&other)).ended, None);
    // The exporter has a number of a user without a name.
    let mut job = testing::job();
    job.identity.user = "1912".to_owned();
    assert!(filled(job, &line(&this_run())).ended.is_some());
}

#[test]
fn a_name_makes_no_run() {
    let mut fields = this_run();
    let name = format!("a|b\n{}", line(&this_run()).replace(DELIMITER, "|").replace("FAILED", "COMPLETED"));
    fields[17] = &name;
    let records = parse(&line(&fields), DELIMITER);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].state, "FAILED");
    assert!(records[0].name.starts_with("a|b\u{fffd}39798795|della|1912|aturing"), "{}", records[0].name);
}

#[test]
fn what_is_no_run_is_left_out() {
    let mut wrong = this_run();
    wrong[0] = "39798795.batch";
    for text in [String::new(), "\n".to_owned(), line(&this_run()[..17]), line(&wrong)] {
        assert!(parse(&text, DELIMITER).is_empty(), "{text}");
    }
    for state in ["", "\u{1b}[31mFAILED", "completed"] {
        assert!(parse(&line(&fields("1", "2", state)), DELIMITER).is_empty(), "{state}");
    }
    let record = &parse(&line(&fields("0", "99999999999999", "FAILED")), DELIMITER)[0];
    assert_eq!((record.start, record.end), (None, None));
}

fn fake(name: &str, timeout: Duration) -> Sacct {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sacct").join(name).into();
    Sacct { program, named: true, timeout, failure: Arc::default(), clusters: BTreeMap::new() }
}

#[tokio::test]
async fn it_is_asked_as_sacct_understands() {
    let records = fake("answers", Duration::from_secs(60)).records("7", None).await.unwrap();
    let [first, last] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((first.id, first.state.as_str(), first.start), (7, "REQUEUED", Some(1100.0)));
    assert_eq!((last.state.as_str(), last.signal, last.end), ("CANCELLED", Some(15), Some(2000.0)));
    assert_eq!(last.name, "a|b\u{fffd}c");
}

#[tokio::test]
async fn that_it_fails_or_hangs_is_said() {
    let said = async |name, patience| {
        let sacct = fake(name, patience);
        assert_eq!((sacct.failure(), sacct.records("7", None).await), (None, None), "{name}");
        sacct.failure().unwrap().to_owned()
    };
    let minute = Duration::from_secs(60);
    assert!(said("fails", minute).await.ends_with("tests/sacct/fails: Slurm accounting storage is disabled"));
    assert!(said("none", minute).await.contains("tests/sacct/none: No such file"));
    let unnamed = Sacct { named: false, ..fake("none", minute) };
    assert_eq!((unnamed.records("7", None).await, unnamed.failure()), (Some(Vec::new()), None));

    let said = said("hangs", Duration::from_millis(300)).await;
    assert!(said.ends_with("tests/sacct/hangs: no answer in 0.3 s"), "{said}");
    let begun = Instant::now();
    while waiting() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the child still waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a child of this process still does what `hangs` does.
fn waiting() -> bool {
    let own = format!("PPid:\t{}\n", std::process::id());
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        read("status").contains(&own) && read("cmdline").contains("7777")
    })
}

#[test]
fn the_configuration_says_which() {
    let configured = |text: &str| Sacct::configured(&config::parse(text).unwrap().slurm);
    assert_eq!(configured("[slurm]\nsacct = \"never\"\n"), None);
    let named = configured("[slurm]\nsacct = \"/opt/slurm/bin/sacct\"\n").unwrap();
    assert_eq!(named.program, "/opt/slurm/bin/sacct");
    assert_eq!(configured("").unwrap().timeout, Duration::from_secs(10));
}

/// The records of one run that began and ended then, of a cluster that is asked without being named.
fn local(start: &str, end: &str, change: impl Fn(&mut [&str; 18])) -> Vec<Record> {
    let mut fields = fields(start, end, "TIMEOUT");
    change(&mut fields);
    parse(&line(&fields), DELIMITER)
}

#[test]
fn a_record_that_may_be_of_another_cluster_has_to_be_alike() {
    let known = |records: &[Record]| record_of(&testing::job(), records).is_some();
    let alike = |fields: &mut [&str; 18]| (fields[6], fields[17]) = ("", "");
    assert!(known(&local("1646394958", "1646462277", alike)));
    // It began seven hours before, and there is no late cgroup for it.
    assert!(!known(&local("1646369758", "1646462277", alike)));
    assert!(!known(&local("1646394958", "1646462277", |fields| fields[5] = "cpu")), "another partition");
    assert!(!known(&local("1646394958", "1646462277", |fields| fields[17] = "other")), "another name");
    let mut own = local("1646394958", "1646462277", |fields| fields[6] = "");
    own[0].name = testing::job().identity.name;
    assert!(known(&own));
    let mut late = local("1646369758", "1646462277", alike);
    late[0].is_of_cluster = true;
    assert!(known(&late), "the first step of an allocation came late");
}

#[test]
fn suspended_time_is_neither_elapsed_nor_held() {
    let mut fields = this_run();
    (fields[11], fields[12]) = ("53316", "03:53:20");
    let mut job = filled(testing::job(), &line(&fields));
    assert_eq!((job.suspended_seconds(), job.elapsed()), (Some(14_000.0), 53_316.0));
    assert_eq!(job.nodes[0].values.get(&metric::CPU_ALLOCATED_SECONDS), Some(24.0 * 53_316.0));
    let (gpu, whole) = (&job.nodes[1].gpus[0].values, 67_316.0);
    assert_eq!(gpu.get(&metric::GPU_IDLE_SECONDS), Some(whole - 14_000.0));
    // Of a node that was lost it is not known which part of its time that was.
    job = testing::job();
    job.nodes[0].end = None;
    let job = filled(job, &line(&fields));
    assert_eq!(job.nodes[0].values.get(&metric::CPU_ALLOCATED_SECONDS), Some(24.0 * whole));
}

#[test]
fn times_without_a_day_and_with_one_are_read() {
    let texts = ["00:01:19", "2-01:00:00", "01:19", "", "-1:00:00", "00:00:xx"];
    assert_eq!(texts.map(clock), [Some(79.0), Some(176_400.0), None, None, None, None]);
}
