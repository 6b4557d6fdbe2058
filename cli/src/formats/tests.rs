//! Each format of a report whose numbers are known, whole.

use std::path::Path;

use jiff::tz::TimeZone;
use job_report::metric;
use jobledger_testkit::golden::assert_golden;

use super::*;
use crate::testing;

fn zone() -> TimeZone {
    TimeZone::get("Europe/Berlin").unwrap()
}

fn golden(name: &str, text: &str) {
    assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats").join(name), text);
}

fn markdown(job: job_report::Job) -> String {
    let link = Some("https://grafana.example/d/jobledger-job-report?var-jobid=7".to_owned());
    markdown::render(&testing::report(job), &markdown::Options { node_rows: 8, zone: zone(), link })
}

#[test]
fn formats_are_as_committed() {
    let report = testing::report(testing::job());
    let options =
        text::Options { width: 80, ascii: false, colour: false, node_rows: 8, zone: zone(), link: None };
    golden("report.txt", &text::render(&report, &testing::THRESHOLDS, &options));
    let counted = testing::report(testing::counted());
    golden("report.counted.txt", &text::render(&counted, &testing::THRESHOLDS, &options));
    golden("report.md", &markdown(testing::job()));
    golden("report.seff", &seff::render(&report));
    golden("report.jobstats", &jobstats::render(&report, &jobstats::Options { node_rows: 8, zone: zone() }));
    golden("report.jobstats.json", &String::from_utf8(jobstats::json(&report).unwrap()).unwrap());
    golden("report.jobstats.blob", &(jobstats::blob(&report).unwrap().text + "\n"));
}

/// Nodes may have different limits: then the highest peak, the lowest limit and the largest part are of several nodes.
#[test]
fn a_row_of_memory_is_of_one_node() {
    let mut job = testing::job();
    let gib = 1024f64.powi(3);
    for (node, [limit, peak, held]) in job.nodes.iter_mut().zip([[64.0, 20.0, 19.0], [16.0, 15.0, 2.0]]) {
        node.values.set(&metric::MEMORY_LIMIT_BYTES, limit * gib);
        node.values.set(&metric::MEMORY_PEAK_BYTES, peak * gib);
        node.memory_held_bytes = Some(held * gib);
    }
    let used = rows::used(&testing::report(job));
    let memory: Vec<_> =
        used.iter().skip(1).take(2).map(|row| (row.name, row.part, row.of.as_str())).collect();
    assert_eq!(
        memory,
        [
            ("Memory, peak", Some(15.0 / 16.0), "15 GiB of 16 GiB on node2"),
            ("  held", Some(19.0 / 64.0), "19 GiB on node1, without page cache")
        ]
    );
}

/// Every name of the job is code on its page, or its markup is escaped.
#[test]
fn names_are_no_markup() {
    for name in [
        "<img src=x onerror=y>",
        "@all `<b>` ``",
        "[x](http://e)",
        "a|b\\|c",
        "*x* _y_ # z",
        "$(x) &lt; ~~z~~",
    ] {
        let page = markdown(testing::named(name));
        let outside = without_code(&page);
        for markup in ["<img", "<b>", "@all", "](", "*x*", "~~z"] {
            assert!(!outside.contains(markup), "{markup} of {name}:\n{page}");
        }
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        for table in page.split("\n\n").filter(|part| part.starts_with('|')) {
            let first = table.lines().next().map(cells);
            assert!(table.lines().all(|line| Some(cells(line)) == first), "{name}:\n{table}");
        }
    }
}

/// What is left of a page without its code, which is runs of backticks of equal length and what is between them, and without what is escaped.
fn without_code(page: &str) -> String {
    let mut left = String::new();
    for line in page.lines() {
        let mut rest = line;
        while let Some(at) = rest.find('`') {
            if rest[..at].ends_with('\\') {
                left.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            }
            left.push_str(&rest[..at]);
            let run = rest[at..].chars().take_while(|c| *c == '`').count();
            let inside = &rest[at + run..];
            let mut from = 0;
            rest = loop {
                let Some(next) = inside[from..].find('`') else { break "" };
                let start = from + next;
                let length = inside[start..].chars().take_while(|c| *c == '`').count();
                if length == run {
                    break &inside[start + length..];
                }
                from = start + length;
            };
        }
        left.push_str(rest);
        left.push('\n');
    }
    let mut plain = String::new();
    let mut characters = left.chars();
    while let Some(c) = characters.next() {
        if c == '\\' {
            characters.next();
        } else {
            plain.push(c);
        }
    }
    plain
}

#[test]
fn seff_says_what_it_knows() {
    let mut job = testing::job();
    (job.ended, job.cluster) = (None, None);
    job.identity.user.clear();
    for node in &mut job.nodes {
        (node.running, node.end) = (true, None);
        node.values = job_report::Values::default();
    }
    job.nodes[0].values.set(&job_report::metric::CPU_SECONDS, 59.6);
    job.nodes.iter_mut().for_each(|node| node.memory_held_bytes = None);
    assert_eq!(
        seff::render(&testing::report(job)),
        "Job ID: 39798795\nUser/Group: 1912/\nState: RUNNING\nNodes: 2\nCPU Utilized: 00:01:00\nJob Wall-clock time: 18:41:56\n\
         WARNING: Efficiency statistics may be misleading for RUNNING jobs.\n"
    );
}

#[test]
fn seff_has_the_lines_of_arrays_single_cores_and_jobs_seen_in_part() {
    let mut job = testing::job();
    job.nodes.truncate(1);
    (job.identity.array_job_id, job.identity.array_task_id) = ("39798790".to_owned(), "5".to_owned());
    job.nodes[0].values.set(&job_report::metric::CPUS, 1.0);
    (job.nodes[0].end, job.ended) = (None, None);
    let text = seff::render(&testing::report(job));
    for line in [
        "Array Job ID: 39798790_5\n",
        "State: UNKNOWN\nCores: 1\n",
        "WARNING: Totals may not be exact: its end was not seen; 1 of 2 nodes were seen.\n",
        "Memory Efficiency: 10.08% of 128.00 GB (128.00 GB/node)\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}
