use jiff::tz::TimeZone;

use super::*;
use crate::testing;

fn pdf(job: job_report::Job) -> Vec<u8> {
    let options = Options { zone: TimeZone::UTC, link: None };
    render(&testing::report(job), &Thresholds::shipped().unwrap(), &options).unwrap()
}

#[test]
fn the_same_report_has_the_same_bytes() {
    let first = pdf(testing::large(2, 1));
    assert!(first.starts_with(b"%PDF-1.7"));
    assert_eq!(first, pdf(testing::large(2, 1)));
    assert_ne!(first, pdf(testing::large(2, 2)));
}

#[test]
fn any_name_is_drawn() {
    for name in ["計算機", "\u{202e}abc", "العربية", "e\u{301}\u{301}\u{301}", "🦀", "\0\u{fffd}", " "]
    {
        pdf(testing::named(name));
    }
}
