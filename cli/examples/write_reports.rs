//! Writes reports of invented jobs below a directory: `cargo run -p jobledger --features testing --example write_reports -- DIR`. tests/report
//! reads them with other programs.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use jiff::tz::TimeZone;
use job_files::{atomic, json};
use job_report::{Job, Thresholds};
use jobledger::formats::{html, pdf};
use jobledger::testing;

#[allow(clippy::print_stderr, reason = "how long it took")]
fn main() -> Result<(), Box<dyn Error>> {
    let to = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: write_reports DIR")?);
    std::fs::create_dir_all(&to)?;
    let thresholds = Thresholds::shipped()?;
    let options = html::Options {
        zone: TimeZone::UTC,
        link: Some("https://grafana.example/d/x?var-jobid=7".to_owned()),
    };
    let jobs: [(&str, Job); 7] = [
        ("known", testing::job()),
        ("one", testing::large(1, 0)),
        ("gpus", testing::large(1, 4)),
        ("many", testing::large(64, 4)),
        ("short", testing::short()),
        ("bare", testing::bare()),
        ("hostile", testing::named("</style><script>alert(1)</script>\u{202e}]]>\"'&<svg onload=x>")),
    ];
    for (name, job) in jobs {
        let mut report = testing::report(job);
        let file = |ending: &str| to.join(format!("{name}.{ending}"));
        std::fs::write(file("html"), html::render(&report, &thresholds, &options))?;
        let start = Instant::now();
        std::fs::write(file("pdf"), pdf::render(&report, &thresholds, &options)?)?;
        // Of 64 nodes they are 90 MB.
        report.job.curves = None;
        atomic::write(&file("json"), |to| json::write(&report, to))?;
        eprintln!("{name}: PDF in {:.2} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
