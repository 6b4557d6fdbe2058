use jiff::tz::TimeZone;
use job_report::Thresholds;

use super::super::super::document::Options;
use super::*;
use crate::testing;

fn with(job: job_report::Job, check: impl Fn(&Layout<'_>)) {
    let options = Options { zone: TimeZone::UTC, link: Some("https://grafana.example/x".to_owned()) };
    let document = Document::new(&testing::report(job), &Thresholds::shipped().unwrap(), &options);
    check(&layout(&document));
}

fn jobs() -> Vec<job_report::Job> {
    let long = testing::named(&"W".repeat(64));
    vec![testing::job(), testing::large(40, 2), testing::bare(), testing::short(), long]
}

fn texts<'a>(page: &'a [Item<'_>]) -> impl Iterator<Item = (&'a str, f64)> {
    page.iter().filter_map(|item| match &item.shape {
        Shape::Text { text, .. } => Some((text.as_str(), item.at.1)),
        _ => None,
    })
}

#[test]
fn everything_is_on_the_paper() {
    for job in jobs() {
        with(job, |layout| {
            for item in layout.pages.iter().flatten() {
                let (x, y) = item.at;
                let (right, top, bottom) = match &item.shape {
                    Shape::Text { text, size, bold } => (x + width(text, *size, *bold), y - size, y),
                    Shape::Rect(width, height) | Shape::Svg(_, width, height) => (x + width, y, y + height),
                };
                assert!(x >= LEFT - 0.1 && right <= RIGHT + 0.1, "{item:?}");
                let margin = item.part.is_none();
                let (least, most) = if margin { (20.0, PAGE.1 - 20.0) } else { (TOP - 0.1, BOTTOM + 4.0) };
                assert!(top >= least && bottom <= most, "{item:?}");
            }
        });
    }
}

#[test]
fn no_page_is_empty_and_each_says_which_it_is() {
    for job in jobs() {
        with(job, |layout| {
            let of = layout.pages.len();
            for (at, page) in layout.pages.iter().enumerate() {
                assert!(page.iter().any(|item| item.part.is_some()), "page {at}");
                let number = format!("page {} of {of}", at + 1);
                assert!(texts(page).any(|(text, _)| text == number));
                assert!(texts(page).any(|(text, y)| y == 32.0 && text.starts_with("Job 39798795")));
            }
        });
    }
}

#[test]
fn every_part_is_drawn() {
    with(testing::large(3, 1), |layout| {
        let mut drawn: Vec<bool> = vec![false; layout.parts.len()];
        layout.pages.iter().flatten().filter_map(|item| item.part).for_each(|part| drawn[part] = true);
        for (at, part) in layout.parts.iter().enumerate() {
            assert!(part.parent.is_none_or(|parent| parent < at));
            let leaf = !matches!(part.kind, Kind::Table | Kind::Row);
            // A cell of a total may be empty.
            assert!(drawn[at] == leaf || part.kind == Kind::Cell, "{part:?}");
        }
    });
}

#[test]
fn tables_have_their_heads_on_each_page() {
    with(testing::large(200, 0), |layout| {
        let rows = |page: &[Item<'_>]| texts(page).filter(|(text, _)| text.starts_with("node")).count();
        let pages: Vec<_> = layout.pages.iter().filter(|page| rows(page) > 10).collect();
        assert!(pages.len() >= 3);
        assert!(pages.iter().all(|page| texts(page).any(|(text, _)| text == "CPU used")));
        let rows: Vec<&str> =
            layout.pages.iter().flat_map(|page| texts(page)).map(|(text, _)| text).collect();
        assert!((1..=200).all(|node| rows.contains(&format!("node{node:03}").as_str())));
    });
}

#[test]
fn lines_are_broken_where_they_have_room() {
    let text = "All GPUs, or without any all CPUs, did nothing at one stretch, after they had worked";
    let broken = lines(text, 7.0, 120.0);
    assert_eq!(broken.join(" "), text);
    assert!(broken.iter().all(|line| text_width(line, 7.0) <= 120.0));
    assert_eq!(fitted("abc", 10.0, false, 1.0), "");
}
