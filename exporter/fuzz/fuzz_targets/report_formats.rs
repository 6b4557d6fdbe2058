//! Every format of a report, of any names and numbers: no control character, no line, row, node or GPU that a name made.

use job_report::metric;
use jobledger::formats::{jobstats, markdown, seff, text};
use jobledger::testing;
use jobledger_exporter_fuzz::typed;

/// The kinds of lines, by how they begin.
fn shape(page: &str) -> Vec<&str> {
    page.lines().map(|line| line.split([':', '`']).next().unwrap_or_default()).collect()
}

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(numbers, name): (Vec<f64>, String)| {
        let with = |name: &str| {
            let mut job = testing::named(name);
            for node in &mut job.nodes {
                for (metric, value) in metric::ALL.iter().zip(&numbers) {
                    node.values.set(metric, *value);
                }
            }
            testing::report(job)
        };
        let (report, plain) = (with(&name), with("n"));
        let zone = jiff::tz::TimeZone::UTC;
        let options = text::Options {
            width: 80,
            ascii: false,
            colour: false,
            node_rows: 8,
            zone: zone.clone(),
            link: None,
        };
        let rows = jobstats::Options { node_rows: 8, zone: zone.clone() };
        let page =
            markdown::render(&report, &markdown::Options { node_rows: 8, zone, link: Some(name.clone()) });
        for page in [
            &text::render(&report, &testing::THRESHOLDS, &options),
            &jobstats::render(&report, &rows),
            &seff::render(&report),
            &page,
        ] {
            assert!(!page.chars().any(|c| c.is_control() && c != '\n'), "{page:?}");
        }
        if !name.is_empty() {
            assert_eq!(shape(&seff::render(&report)), shape(&seff::render(&plain)));
        }
        let cells = |line: &str| line.replace("\\\\", "").replace("\\|", "").matches('|').count();
        for table in page.split("\n\n").filter(|part| part.starts_with('|')) {
            let mut lines = table.lines().map(cells);
            let first = lines.next();
            assert!(lines.all(|line| Some(line) == first), "{table}");
        }
        let stored = jobstats::blob(&report).expect("memory takes it");
        assert!(stored.text == "JS1:None" || stored.text.starts_with("JS1:H4sI"), "{}", stored.text);
        let read = |bytes: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&bytes).expect("it is JSON");
        let of = |report| read(jobstats::json(report).expect("memory takes it"));
        let count = |value: &serde_json::Value| value["nodes"].as_object().map(serde_json::Map::len);
        assert_eq!(count(&of(&report)), count(&of(&plain)), "names hide no node");
        let mut bytes = Vec::new();
        job_files::json::write(&report, &mut bytes).expect("memory takes it");
        read(bytes);
    });
}
