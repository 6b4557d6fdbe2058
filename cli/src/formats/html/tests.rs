use jiff::tz::TimeZone;

use super::*;
use crate::testing;

fn page(job: job_report::Job, link: Option<&str>) -> String {
    let options = Options { zone: TimeZone::UTC, link: link.map(str::to_owned) };
    render(&testing::report(job), &Thresholds::shipped().unwrap(), &options)
}

#[test]
fn names_are_no_markup() {
    for name in ["</style><script>x</script>", "\"'><svg onload=x>", "&lt;a href=http://e&gt;", "--></title>"]
    {
        let page = page(testing::named(name), None);
        let plain = page_of_plain_names();
        // As many elements as with other names.
        assert_eq!(page.matches('<').count(), plain.matches('<').count(), "{name}");
        assert!(!page.contains(name), "{name}");
    }
}

fn page_of_plain_names() -> String {
    page(testing::named("n"), None)
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = page(testing::large(2, 2), Some("https://grafana.example/d/x?a=1&b=2"));
    assert!(page.contains(&format!("content=\"{}\"", "default-src 'none'; style-src 'unsafe-inline'")));
    assert_eq!((page.matches("href=").count(), page.matches("src=").count()), (1, 0));
    assert!(page.contains("<a href=\"https://grafana.example/d/x?a=1&amp;b=2\""));
    for word in ["<script", "<link", "<img", "url(", "@import", " onload"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_link_of_another_scheme_is_no_link() {
    let page = page(testing::job(), Some("java\nscript:alert(1)"));
    assert!(page.contains("javascript:alert(1)") && !page.contains("<a "));
}

#[test]
fn pages_are_small() {
    assert!(page(testing::large(64, 4), None).len() < 300_000);
    assert!(page(testing::bare(), None).len() < 10_000);
}
