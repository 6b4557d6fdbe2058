//! Text that users chose. Row 19.

use std::collections::BTreeMap;
use std::time::Duration;

use jobledger_testkit::exposition::{Format, parse};
use jobledger_testkit::http;

use crate::support::*;

/// Job names of a prolog, and their label values.
fn names() -> Vec<(Vec<u8>, String)> {
    let long = "x".repeat(64 << 10);
    let same = |text: &str| (text.as_bytes().to_vec(), text.to_owned());
    vec![
        same("plain"),
        same("a\"} 1"),
        same("\\"),
        same("\\n\\\""),
        same("{}=,# EOF"),
        same("\u{202e}gnp.exe"),
        same("日本語 ✓"),
        same("a\u{2028}b"),
        (b"\xff\xfe".to_vec(), "\u{fffd}\u{fffd}".to_owned()),
        (b"bell\x07 esc\x1b[31m".to_vec(), "bell\u{fffd} esc\u{fffd}[31m".to_owned()),
        (b"cr\rlf".to_vec(), "cr\u{fffd}lf".to_owned()),
        (long.clone().into_bytes(), format!("{}…", "x".repeat(253))),
        ("ä".repeat(300).into_bytes(), format!("{}…", "ä".repeat(126))),
    ]
}

#[test]
fn a_hostile_name_is_one_label_value_and_adds_no_series() {
    let ids = 1..=u32::try_from(names().len()).unwrap();
    let node = Node::with_jobs(ids.clone());
    let mut wanted = BTreeMap::new();
    for (id, (raw, label)) in ids.clone().zip(names()) {
        let mut file = format!("job_id={id}\n").into_bytes();
        for key in ["name", "account", "partition", "qos", "user"] {
            file.extend([key.as_bytes(), b"=", &raw, b"\n"].concat());
        }
        node.0.write(format!("run/jobledger/jobs/{id}"), file);
        wanted.insert(id.to_string(), label);
    }
    let exporter = node.start(&["--metric.job-labels=user,account,partition,qos", "--jobs.steps"]);
    for (accept, format) in
        [("application/openmetrics-text;version=1.0.0", Format::OpenMetrics), ("text/plain", Format::Text)]
    {
        let answer =
            http::get(exporter.address(), "/metrics", &[("Accept", accept)], Duration::from_secs(20))
                .unwrap();
        let now = parse(&answer.body, format).unwrap();
        let found: BTreeMap<String, String> = now
            .named("jobledger_job_info")
            .map(|s| (s.label("jobid").unwrap().to_owned(), s.label("name").unwrap().to_owned()))
            .collect();
        assert_eq!(found, wanted);
        for family in ["jobledger_job_start_time_seconds", "jobledger_step_memory_used_bytes"] {
            assert_eq!(now.named(family).count(), wanted.len(), "{family}");
            for sample in now.named(family) {
                let expected = &wanted[sample.label("jobid").unwrap()];
                for label in ["account", "partition", "qos"] {
                    assert_eq!(sample.label(label), Some(&**expected));
                }
            }
        }
        assert!(now.samples().all(|s| s.name.starts_with("jobledger_") || s.name.starts_with("process_")));
    }
}

#[test]
fn a_job_directory_with_a_hostile_name_is_no_job() {
    let node = Node::with_jobs([7]);
    for name in ["job_7 ", "job_8\n", "job_\"} 1", "job_99999999999999999999", "job_-1", "job_0x9", "{"] {
        node.0.copy_tree(job(7), format!("{SCOPE}/{name}"));
    }
    let now = scrape(&node.start(&["--jobs.steps"]));
    assert_eq!(jobs_in(&now, "jobledger_job_start_time_seconds"), [7].into());
}
