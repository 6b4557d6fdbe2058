//! The binary itself, as it ships: what a scrape over HTTP costs all its threads, its memory, its size, its sleep.

use std::thread::sleep;
use std::time::Duration;

use jobledger_testkit::crowd::Crowd;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::footprint::{cpu_ns, peak_rss_kib, rss_kib, switches};
use jobledger_testkit::http;
use jobledger_testkit::scratch::Scratch;

use crate::stats::{median, row};

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const OPENMETRICS: (&str, &str) = ("accept", "application/openmetrics-text;version=1.0.0");
const GZIP: (&str, &str) = ("accept-encoding", "gzip");

const FORMS: [(&str, &[(&str, &str)]); 4] = [
    ("OpenMetrics", &[OPENMETRICS]),
    ("OpenMetrics, gzip", &[OPENMETRICS, GZIP]),
    ("text 0.0.4", &[]),
    ("text 0.0.4, gzip", &[GZIP]),
];

/// CPU time of all threads per scrape, microseconds, and the size of the answer.
fn scrapes(exporter: &Exporter, headers: &[(&str, &str)]) -> (f64, usize) {
    let mut size = 0;
    let mut costs = Vec::new();
    for _ in 0..60 {
        let before = cpu_ns(exporter.pid());
        let answer = http::get(exporter.address(), "/metrics", headers, Duration::from_secs(60)).unwrap();
        assert_eq!(answer.status, 200);
        size = answer.body.len();
        // The kernel accounts a thread's time when it goes to sleep.
        sleep(Duration::from_millis(5));
        costs.push(cpu_ns(exporter.pid()).saturating_sub(before) as f64 / 1e3);
    }
    (median(&mut costs), size)
}

/// Wake-ups of all threads in five seconds in which nothing happens.
fn idle(exporter: &Exporter) -> u64 {
    // Threads that wait for more work of the last scrape are gone by then.
    sleep(Duration::from_secs(7));
    let before = switches(exporter.pid());
    sleep(Duration::from_secs(5));
    switches(exporter.pid()) - before
}

fn idle_row(what: &str, flags: &[String], scraped: bool) {
    let flags = [flags, &["--log.level=error".to_owned()]].concat();
    let exporter = Exporter::start(BINARY, &flags);
    if scraped {
        let _ = exporter.metrics();
    }
    row(&[what, &idle(&exporter).to_string(), &rss_kib(exporter.pid()).to_string()]);
}

/// All of it; on recorded files where there are no real groups.
pub(crate) fn measure(groups: bool) {
    println!("\n## The binary\n");
    let size = std::fs::metadata(BINARY).unwrap().len();
    println!("Size: {size} bytes, {:.2} MiB\n", size as f64 / f64::from(1 << 20));
    let mut crowd = if groups { Crowd::real().expect("a cgroup2 mount") } else { Crowd::recorded() };
    row(&["jobs", "answer", "bytes", "CPU time, µs", "of a core at 15 s, %", "RSS, KiB", "peak, KiB"]);
    row(&["---:", "---", "---:", "---:", "---:", "---:", "---:"]);
    for jobs in [1, 10, 100] {
        crowd.grow_to(jobs);
        let mut flags = crowd.flags();
        flags.push("--log.level=error".to_owned());
        let exporter = Exporter::start(BINARY, &flags);
        for (name, headers) in FORMS {
            let (usec, size) = scrapes(&exporter, headers);
            let (rss, peak) = (rss_kib(exporter.pid()), peak_rss_kib(exporter.pid()));
            row(&[
                &jobs.to_string(),
                name,
                &size.to_string(),
                &format!("{usec:.0}"),
                &format!("{:.4}", usec / 15e6 * 100.0),
                &rss.to_string(),
                &peak.to_string(),
            ]);
        }
    }
    println!(
        "\nAsleep: context switches of all threads in five seconds without a scrape or a job's event.\n"
    );
    row(&["state", "switches", "RSS, KiB"]);
    row(&["---", "---:", "---:"]);
    let nowhere = Scratch::new("nothing");
    idle_row("no jobs, never scraped", &[format!("--path.cgroupfs={}", nowhere.path().display())], false);
    idle_row("100 jobs, scraped before", &crowd.flags(), true);
    let web = Scratch::new("web");
    let file = web.path().join("web.yml");
    std::fs::write(&file, "basic_auth_users: {}\nhttp_server_config: {http2: false}\n").unwrap();
    let mut flags = crowd.flags();
    flags.push(format!("--web.config.file={}", file.display()));
    idle_row("100 jobs, scraped before, with a web configuration", &flags, true);
}
