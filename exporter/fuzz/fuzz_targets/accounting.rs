//! Answers of sacct and sacctmgr: what is read is itself when it is printed, does nothing to a terminal, and leaves a job as it can be.

use jobledger::digest::coordinators;
use jobledger::source::accounting::{Record, fill, parse};
use jobledger::testing;

fn printed(record: &Record, delimiter: &str) -> String {
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let time = |value: Option<f64>| value.map_or("Unknown".to_owned(), |value| format!("{value:.0}"));
    let exit = match (record.exit_code, record.signal) {
        (None, None) => String::new(),
        (code, signal) => format!("{}:{}", number(code), number(signal)),
    };
    [
        record.id.to_string(),
        record.cluster.clone(),
        record.uid.clone(),
        record.user.clone(),
        record.account.clone(),
        record.partition.clone(),
        record.qos.clone(),
        time(record.submit),
        time(record.eligible),
        time(record.start),
        time(record.end),
        record.elapsed.map(|seconds| format!("{seconds:.0}")).unwrap_or_default(),
        record.suspended.map(|seconds| format!("0-0:0:{seconds:.0}")).unwrap_or_default(),
        record.state.clone(),
        exit,
        record.time_limit.map_or("UNLIMITED".to_owned(), |seconds| format!("{:.0}", seconds / 60.0)),
        number(record.nodes),
        record.name.clone(),
    ]
    .map(|field| field + delimiter)
    .concat()
        + "\n"
}

pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let records = parse(&text, "|");
    for record in &records {
        for text in [&record.cluster, &record.uid, &record.user, &record.account, &record.partition, &record.qos, &record.name] {
            assert!(text.chars().count() <= 64 * 4 && !text.chars().any(char::is_control), "{text:?}");
        }
        assert!(
            !record.state.is_empty() && record.state.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
        );
        // No text that was read has a control character.
        assert_eq!(
            parse(&printed(record, "\u{1}\u{2}"), "\u{1}\u{2}"),
            std::slice::from_ref(record)
        );
    }
    for (account, users) in coordinators::parse(&text) {
        assert!(!users.is_empty());
        for name in users.iter().chain([&account]) {
            assert!(!name.chars().any(char::is_control), "{name:?}");
        }
    }
    let mut job = testing::job();
    let before = job.clone();
    if let Some(first) = records.first() {
        job.id = first.id;
    }
    fill(&mut job, &records);
    assert!(job.queued_seconds.is_none_or(|seconds| seconds >= 0.0));
    assert_eq!(job.identity.name, before.identity.name, "the node knows more");
    for (node, before) in job.nodes.iter().zip(&before.nodes) {
        let held = |node: &job_report::Node| node.values.get(&job_report::metric::CPU_ALLOCATED_SECONDS);
        assert!(held(node) >= Some(0.0) && held(node) <= held(before), "suspended time is left out");
    }
}
