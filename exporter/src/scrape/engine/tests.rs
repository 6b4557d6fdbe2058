use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::channel;

use exposition::{Family, SubjectId};
use jobledger_testkit::wait::{quiet_time, until};
use rustix::thread::CapabilitySet;
use slurm_jobs::Users;
use slurm_jobs::table::{MOST_RETAINED, Table, TableOptions};

use super::*;
use crate::collector::testing::Machine;

static FIRST: Family = Family::gauge("jobledger_node_first").help("First");
static MIDDLE: Family = Family::counter("jobledger_node_middle_total").labels(&["value"]).help("Middle");
static LAST: Family = Family::gauge("jobledger_node_last").help("Last");

const SOON: Duration = Duration::from_millis(800);
const LATER: Duration = Duration::from_secs(20);

fn entry(name: &'static str) -> &'static Entry {
    Box::leak(Box::new(Entry {
        name,
        summary: "a double",
        default_on: true,
        cost: None,
        capabilities: CapabilitySet::empty(),
        families: Vec::new,
        build: |_| Built::plain(Constant(&FIRST)),
    }))
}

struct Constant(&'static Family);

impl Collector for Constant {
    fn collect(&mut self, _: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        out.push(self.0, SubjectId::NODE, &[], 1);
        Ok(())
    }
}

/// Panics after its first words, every time.
struct Panics;

impl Collector for Panics {
    fn collect(&mut self, _: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        out.push(&MIDDLE, SubjectId::NODE, &[("value", "half")], 1);
        panic!("a bug");
    }
}

/// Hangs once, until it is released.
struct Hangs(Receiver<()>);

impl Collector for Hangs {
    fn collect(&mut self, _: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let _ = self.0.recv();
        out.push(&MIDDLE, SubjectId::NODE, &[("value", "at last")], 1);
        Ok(())
    }
}

struct Nonsense;

impl Collector for Nonsense {
    fn collect(&mut self, _: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        for (name, value) in
            [("nan", f64::NAN), ("inf", f64::INFINITY), ("minus inf", f64::NEG_INFINITY), ("negative", -1.0)]
        {
            out.push(&MIDDLE, SubjectId::NODE, &[("value", name)], value);
        }
        out.push(&MIDDLE, SubjectId::NODE, &[("value", "good")], 2);
        Ok(())
    }
}

struct Bench {
    engine: Engine,
    runtime: tokio::runtime::Runtime,
    _machine: Machine,
}

impl Bench {
    /// An engine with a double between two that work.
    fn new(middle: impl Collector + 'static) -> Self {
        let machine = Machine::new();
        let options = TableOptions {
            retention: LATER,
            most_retained: MOST_RETAINED,
            stale_after: LATER,
            levels: Default::default(),
            job_labels: Vec::new(),
            jobs_dir: None,
            environment_hints: false,
        };
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let table = Table::new(Arc::new(machine.roots()), options, users, Vec::new()).unwrap();
        let collectors = vec![
            (entry("first"), Built::plain(Constant(&FIRST))),
            (entry("middle"), Built::plain(middle)),
            (entry("last"), Built::plain(Constant(&LAST))),
        ];
        let engine = Engine::new(collectors, Vec::new(), Follower::start(table).unwrap(), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { engine, runtime, _machine: machine }
    }

    fn scrape(&self, limit: Duration) -> String {
        self.select(Selection::default(), limit)
    }

    fn select(&self, selection: Selection, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        text(self.runtime.block_on(self.engine.scrape(selection, Format::OpenMetrics, deadline)))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn text(answer: Result<Bytes, ScrapeError>) -> String {
    String::from_utf8(answer.unwrap().to_vec()).unwrap()
}

fn has(text: &str, sample: &str) {
    assert!(text.contains(&format!("{sample}\n")), "{sample} is not in\n{text}");
}

fn others_are_there(text: &str) {
    has(text, "jobledger_node_first 1");
    has(text, "jobledger_node_last 1");
    has(text, "jobledger_exporter_collector_success{collector=\"last\"} 1");
}

/// Row 35 of the fault table.
#[test]
fn a_panicking_collector_is_counted_and_costs_only_itself() {
    let bench = Bench::new(Panics);
    for round in 1..=3 {
        let text = bench.scrape(LATER);
        others_are_there(&text);
        assert!(!text.contains("half"), "what it said before is not served: {text}");
        has(&text, "jobledger_exporter_collector_success{collector=\"middle\"} 0");
        has(
            &text,
            &format!(
                "jobledger_exporter_collector_errors_total{{collector=\"middle\",reason=\"panic\"}} {round}"
            ),
        );
        has(&text, "jobledger_exporter_stuck_collectors 0");
    }
}

/// Rows 10 and 15: the kernel's answer does not come.
#[test]
fn a_hanging_collector_is_late_alone_and_is_back_when_it_is_released() {
    let (release, hang) = channel();
    let bench = Bench::new(Hangs(hang));
    let begun = Instant::now();
    let text = bench.scrape(SOON);
    assert!(begun.elapsed() >= SOON, "{:?}", begun.elapsed());
    others_are_there(&text);
    has(&text, "jobledger_exporter_collector_errors_total{collector=\"middle\",reason=\"timeout\"} 1");
    has(&text, "jobledger_exporter_stuck_collectors 1");
    for _ in 0..5 {
        let (slept, text) = quiet_time(|| bench.scrape(LATER));
        assert!(slept < LATER / 4, "the next ones do not wait for it: {slept:?}");
        others_are_there(&text);
        has(&text, "jobledger_exporter_collector_success{collector=\"middle\"} 0");
    }
    release.send(()).unwrap();
    drop(release);
    let text = until("its answer", || {
        let text = bench.scrape(LATER);
        others_are_there(&text);
        if text.contains("at last") { Ok(text) } else { Err(text) }
    });
    has(&text, "jobledger_exporter_collector_success{collector=\"middle\"} 1");
    has(&text, "jobledger_exporter_stuck_collectors 0");
}

#[test]
fn a_scrape_that_waits_behind_a_hanging_collector_of_another_is_served_by_its_deadline() {
    let (release, hang) = channel();
    let bench = Bench::new(Hangs(hang));
    let last = Selection { collect: BTreeSet::from(["last"]), ..Default::default() };
    let begun = Instant::now();
    let (all, one) = bench.runtime.block_on(async {
        let all =
            tokio::spawn(bench.engine.scrape(Selection::default(), Format::Text, Instant::now() + SOON));
        tokio::task::yield_now().await;
        let one = bench.engine.scrape(last, Format::Text, Instant::now() + LATER).await;
        let waited = begun.elapsed();
        (all.await.unwrap(), (one, waited))
    });
    others_are_there(&text(all));
    has(&text(one.0), "jobledger_node_last 1");
    assert!(one.1 < LATER / 4, "{:?}", one.1);
    drop(release);
}

/// Row 16.
#[test]
fn fifty_scrapes_at_once_are_one_collection_in_each_format() {
    let (release, hang) = channel();
    let bench = Bench::new(Hangs(hang));
    let texts = bench.runtime.block_on(async {
        let deadline = Instant::now() + LATER;
        let formats = [Format::Text, Format::OpenMetrics];
        let all: Vec<_> = formats
            .iter()
            .cycle()
            .take(50)
            .map(|format| tokio::spawn(bench.engine.scrape(Selection::default(), *format, deadline)))
            .collect();
        tokio::task::yield_now().await;
        drop(release);
        let mut texts = BTreeSet::new();
        for one in all {
            texts.insert(text(one.await.unwrap()));
        }
        texts
    });
    assert_eq!(texts.len(), 2);
    assert_eq!(texts.iter().filter(|text| text.ends_with("# EOF\n")).count(), 1);
    for text in &texts {
        has(text, "jobledger_exporter_scrapes_total 1");
    }
}

/// Row 28.
#[test]
fn values_that_are_no_numbers_are_left_out_and_counted() {
    let bench = Bench::new(Nonsense);
    let text = bench.scrape(LATER);
    others_are_there(&text);
    assert_eq!(text.matches("jobledger_node_middle_total{").count(), 1, "{text}");
    has(&text, "jobledger_node_middle_total{value=\"good\"} 2");
    has(&text, "jobledger_exporter_bad_values_total{collector=\"middle\"} 4");
}
