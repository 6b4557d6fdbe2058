//! What each `--metric.profile` costs: series and bytes of a page, and the CPU time of a scrape.

use std::io::Write;

use exposition::Profile;
use flate2::Compression;
use flate2::write::GzEncoder;
use jobledger_testkit::crowd::Crowd;

use super::stats::{cost, median, row};
use super::{Asked, config};

const JOBS: u32 = 100;
const ROUNDS: usize = 200;

pub(crate) fn measure(groups: bool) {
    if groups {
        table("real cgroup v2 directories", Crowd::real().expect("a cgroup2 mount"));
    }
    table("recorded files on tmpfs, all controllers on", Crowd::recorded());
}

fn table(place: &str, mut crowd: Crowd) {
    println!("\n## Profiles: {JOBS} jobs, {place}\n");
    println!("OpenMetrics; median CPU time of a scrape, microseconds.\n");
    row(&[
        "profile",
        "series of a job",
        "bytes of a job",
        "other series",
        "page, KiB",
        "gzip, KiB",
        "scrape",
        "ratio",
    ]);
    row(&["---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"]);
    crowd.grow_to(JOBS);
    let asked = Profile::ALL.map(|profile| {
        let mut flags = crowd.flags();
        flags.retain(|flag| !flag.starts_with("--metric.profile"));
        flags.push(format!("--metric.profile={}", profile.as_str()));
        Asked::new(&config(&flags))
    });
    let mut costs = Profile::ALL.map(|_| Vec::new());
    for round in 0..10 + ROUNDS {
        for (asked, costs) in asked.iter().zip(&mut costs) {
            let cost = cost(|| drop(asked.scrape()));
            if round >= 10 {
                costs.push(cost);
            }
        }
    }
    let costs = costs.map(|mut costs| median(&mut costs));
    for ((profile, asked), cost) in Profile::ALL.into_iter().zip(&asked).zip(costs) {
        let page = asked.scrape();
        let text = std::str::from_utf8(&page).unwrap();
        let samples = || text.lines().filter(|line| !line.starts_with('#'));
        let of_jobs = || samples().filter(|line| line.starts_with("jobledger_job_"));
        let bytes: usize = of_jobs().map(|line| line.len() + 1).sum();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&page).unwrap();
        let kib = |bytes: usize| format!("{:.1}", bytes as f64 / 1024.0);
        let each = |amount: usize| format!("{:.0}", amount as f64 / f64::from(JOBS));
        row(&[
            profile.as_str(),
            &each(of_jobs().count()),
            &each(bytes),
            &(samples().count() - of_jobs().count()).to_string(),
            &kib(page.len()),
            &kib(packed.finish().unwrap().len()),
            &format!("{cost:.0}"),
            &format!("{:.2}", cost / costs[2]),
        ]);
    }
}
