//! Whose scrape is enough for the end of a job to be dropped. A GET by anybody is not.

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::http;

use crate::support::*;

const NONE: &str = "192.0.2.1";

/// An exporter on a node whose job 1 has just ended, whose end was collected and whose retention is over.
struct Ended {
    node: Node,
    exporter: Exporter,
}

impl Ended {
    fn new(flags: &[&str]) -> Self {
        let node = Node::with_jobs([1]);
        let exporter = node.start(&[&["--jobs.retention=1ms"], flags].concat());
        let ended = Self { node, exporter };
        assert_eq!(user_seconds(&ended.get("", &[]), 1), Some(1.0));
        ended.node.remove_job(1);
        until("its end", || ended.has_end().then_some(()).ok_or_else(String::new));
        ended
    }

    fn get(&self, query: &str, headers: &[(&str, &str)]) -> Exposition {
        let answer = http::get(self.exporter.address(), &format!("/metrics{query}"), headers, QUIET).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        parse(&answer.body, Format::Text).unwrap()
    }

    /// Whether a GET by anybody has the end of the job.
    fn has_end(&self) -> bool {
        of_job(&self.get("?collect[]=job", &[]), "jobledger_job_end_time_seconds", 1).is_some()
    }

    /// Waits until no page has the end.
    fn end_goes(&self) {
        until("the end to go", || (!self.has_end()).then_some(()).ok_or_else(String::new));
    }

    fn dropped(&self) -> Option<f64> {
        self.get("", &[]).value("jobledger_exporter_retained_jobs_dropped_total", &[])
    }
}

#[test]
fn a_get_by_anybody_does_not_take_the_end_of_a_job_from_its_reader() {
    // This test's own address is the scraper's if it logs in from there.
    let ended = Ended::new(&["--web.scrapers=127.0.0.2"]);
    for _ in 0..5 {
        assert!(ended.has_end());
        assert!(user_seconds(&ended.get("", &[]), 1).is_some(), "a GET by anybody");
        ended.get("", &[("X-Prometheus-Scrape-Timeout-Seconds", "10")]);
    }
    let from_scraper = |path: &str, method: &str| {
        http::request_from([127, 0, 0, 2].into(), ended.exporter.address(), method, path, &[], QUIET).unwrap()
    };
    from_scraper("/metrics?collect[]=job", "GET");
    from_scraper("/metrics?exclude[]=cpu", "GET");
    from_scraper("/metrics", "HEAD");
    assert!(ended.has_end() && ended.has_end(), "a part of the page, or none of it, is no delivery");
    let page = from_scraper("/metrics", "GET");
    assert!(page.text().contains("jobledger_job_end_time_seconds{jobid=\"1\"}"));
    ended.end_goes();
    assert_eq!(ended.dropped(), Some(0.0));
}

#[test]
fn with_two_readers_both_get_the_end_of_a_job() {
    let ended = Ended::new(&["--web.scrapers=127.0.0.2/31", "--jobs.readers=2"]);
    let scrape_from = |last: u8| {
        http::request_from([127, 0, 0, last].into(), ended.exporter.address(), "GET", "/metrics", &[], QUIET)
            .unwrap()
    };
    for _ in 0..3 {
        scrape_from(2);
        assert!(ended.has_end());
    }
    assert!(scrape_from(3).text().contains("jobledger_job_end_time_seconds{jobid=\"1\"}"));
    ended.end_goes();
    assert_eq!(ended.dropped(), Some(0.0));
}

#[test]
fn scrapes_over_loopback_are_no_readers_where_the_site_says_nothing_and_that_is_logged_once() {
    let ended = Ended::new(&["--web.scrapers=", "--log.level=warn"]);
    for _ in 0..5 {
        let now = ended.get("", &[("X-Prometheus-Scrape-Timeout-Seconds", "10")]);
        assert!(of_job(&now, "jobledger_job_end_time_seconds", 1).is_some());
    }
    let log = ended.exporter.log();
    assert_eq!(log.matches("set --web.scrapers").count(), 1, "{log}");
}

#[test]
fn an_end_that_nobody_reads_is_dropped_after_the_longest_retention_and_counted() {
    let ended = Ended::new(&[&format!("--web.scrapers={NONE}"), "--jobs.retention-max=2s"]);
    ended.end_goes();
    assert_eq!(ended.dropped(), Some(1.0));
}

/// A page without a collector of jobs would lose what that collector knows of the job.
#[test]
fn a_page_that_lacks_a_collector_of_jobs_delivers_no_end() {
    let ended = Ended::new(&["--web.scrapers=127.0.0.2"]);
    ended.node.add_job(2, 2);
    ended.node.0.fifo(format!("{}/memory.stat", job(2)));
    let page = || {
        http::request_from([127, 0, 0, 2].into(), ended.exporter.address(), "GET", "/metrics", &[], LONGEST)
            .unwrap()
    };
    for _ in 0..3 {
        assert!(page().text().contains("jobledger_job_end_time_seconds{jobid=\"1\"}"));
    }
    assert!(ended.has_end());
}
