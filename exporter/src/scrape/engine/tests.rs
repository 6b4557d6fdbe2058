use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::channel;

use exposition::{Family, SubjectId};
use jobledger_testkit::wait::{LONGEST, quiet_time, until};
use rustix::thread::CapabilitySet;
use slurm_jobs::Users;
use slurm_jobs::table::{MOST_RETAINED, Table, TableOptions};

use super::*;
use crate::collector::testing::Machine;

static FIRST: Family = Family::gauge("jobledger_node_first").help("First");
static MIDDLE: Family = Family::counter("jobledger_node_middle_total").labels(&["value"]).help("Middle");
static LAST: Family = Family::gauge("jobledger_node_last").help("Last");

/// Long enough for all but what hangs.
const SOON: Duration = Duration::from_secs(2);
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

/// Takes a while each time.
struct Slow(Duration);

impl Collector for Slow {
    fn collect(&mut self, _: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        std::thread::sleep(self.0);
        out.push(&MIDDLE, SubjectId::NODE, &[("value", "slow")], 1);
        Ok(())
    }
}

/// Hangs at each run until it is released, or the sender is dropped.
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

/// Each request is answered with a collection of its own.
const EACH: Limits = Limits { min_interval: Duration::ZERO, longest: LONGEST, patience: PATIENCE };
/// One collection answers all requests of a test, however long it takes.
const ONE: Limits = Limits { min_interval: LONGEST, longest: LONGEST, patience: PATIENCE };
const PATIENCE: Duration = Duration::from_millis(20);

impl Bench {
    /// An engine with a double between two that work.
    fn new(middle: impl Collector + 'static, limits: Limits) -> Self {
        let machine = Machine::new();
        let options = TableOptions {
            retention: LATER,
            retention_max: LATER,
            readers: 1,
            most_retained: MOST_RETAINED,
            stale_after: LATER,
            levels: Default::default(),
            job_labels: Vec::new(),
            jobs_dir: None,
            environment_hints: false,
        };
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let table = Table::new(Arc::new(machine.roots()), options, users, Vec::new());
        let per_job = Built { observer: Some(Arc::new(Observer)), ..Built::plain(middle) };
        let collectors = vec![
            (entry("first"), Built::plain(Constant(&FIRST))),
            (entry("middle"), per_job),
            (entry("last"), Built::plain(Constant(&LAST))),
        ];
        let engine = Engine::new(collectors, Vec::new(), Follower::start(table).unwrap(), 0, limits);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { engine, runtime, _machine: machine }
    }

    fn scrape(&self, limit: Duration) -> String {
        self.select(Selection::default(), limit)
    }

    fn select(&self, selection: Selection, limit: Duration) -> String {
        text(self.page(selection, limit))
    }

    fn page(&self, selection: Selection, limit: Duration) -> Result<Page, ScrapeError> {
        let deadline = Instant::now() + limit;
        self.runtime.block_on(self.engine.scrape(selection, Format::OpenMetrics, deadline))
    }
}

/// What a collector of jobs has.
struct Observer;

impl slurm_jobs::JobObserver for Observer {}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn text(answer: Result<Page, ScrapeError>) -> String {
    String::from_utf8(answer.unwrap().body.to_vec()).unwrap()
}

fn only(name: &'static str) -> Selection {
    Selection { collect: BTreeSet::from([name]), ..Selection::default() }
}

fn without(name: &'static str) -> Selection {
    Selection { exclude: BTreeSet::from([name]), ..Selection::default() }
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
    let bench = Bench::new(Panics, EACH);
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
    let bench = Bench::new(Hangs(hang), Limits { longest: SOON, ..EACH });
    let begun = Instant::now();
    let text = bench.scrape(LATER);
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

/// Row 16. A scraper with a short timeout, and one that waits longer for the same collection.
#[test]
fn a_short_deadline_costs_its_client_alone() {
    let (release, hang) = channel();
    let bench = Bench::new(Hangs(hang), ONE);
    let (short, long) = bench.runtime.block_on(async {
        let deadline = Instant::now() + LONGEST;
        let long = tokio::spawn(bench.engine.scrape(Selection::default(), Format::Text, deadline));
        tokio::task::yield_now().await;
        // Until the collectors behind the one that hangs are done.
        let short = loop {
            let soon = Instant::now() + 2 * PATIENCE;
            let page = bench.engine.scrape(Selection::default(), Format::Text, soon).await;
            match page {
                Ok(page) if text(Ok(page.clone())).contains("node_last 1") => break page,
                Ok(_) | Err(ScrapeError::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
        };
        drop(release);
        (short, long.await.unwrap())
    });
    assert!(!short.is_whole);
    let short = text(Ok(short));
    others_are_there(&short);
    assert!(!short.contains("jobledger_node_middle_total"), "what is not complete is absent: {short}");
    assert!(!short.contains("collector=\"middle\""), "nothing is known of it yet: {short}");
    has(&short, "jobledger_exporter_scrapes_total 0");
    let long = long.unwrap();
    assert!(long.is_whole);
    let long = text(Ok(long));
    others_are_there(&long);
    has(&long, "jobledger_node_middle_total{value=\"at last\"} 1");
    has(&long, "jobledger_exporter_collector_success{collector=\"middle\"} 1");
    assert!(!long.contains("collector_errors_total"), "{long}");
    has(&long, "jobledger_exporter_scrapes_total 1");
}

/// Scrapes with these selections and no time at all, again and again, beside one that has time.
fn beside_clients_without_patience(selections: &[Selection]) {
    let bench = Bench::new(Slow(3 * PATIENCE), EACH);
    let pages: Vec<_> = bench.runtime.block_on(async {
        let clients: Vec<_> = selections
            .iter()
            .map(|selection| {
                let (engine, selection) = (bench.engine.clone(), selection.clone());
                tokio::spawn(async move {
                    loop {
                        let soon = Instant::now() + Duration::from_millis(1);
                        let _ = engine.scrape(selection.clone(), Format::Text, soon).await;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
            })
            .collect();
        let mut pages = Vec::new();
        for _ in 0..8 {
            let deadline = Instant::now() + LONGEST;
            pages.push(bench.engine.scrape(Selection::default(), Format::Text, deadline).await);
        }
        clients.iter().for_each(tokio::task::JoinHandle::abort);
        pages
    });
    for page in pages {
        let text = text(page);
        others_are_there(&text);
        has(&text, "jobledger_node_middle_total{value=\"slow\"} 1");
        assert_eq!(text.matches("collector_success{").count(), 3, "{text}");
        assert!(!text.contains("} 0\n") && !text.contains("collector_errors_total"), "{text}");
    }
}

/// Row 16.
#[test]
fn clients_without_patience_cost_a_scrape_nothing() {
    beside_clients_without_patience(&vec![Selection::default(); 4]);
}

/// Row 16.
#[test]
fn clients_without_patience_that_select_collectors_cost_a_scrape_nothing() {
    let selections = [without("first"), without("last"), only("middle"), only("last")];
    beside_clients_without_patience(&selections);
}

#[test]
fn a_filtered_request_gets_its_part_of_the_collection_and_of_its_health() {
    let bench = Bench::new(Slow(Duration::ZERO), ONE);
    assert!(bench.page(Selection::default(), LATER).unwrap().is_whole);
    for selection in
        [only("last"), Selection { exclude: BTreeSet::from(["first", "middle"]), ..Selection::default() }]
    {
        let page = bench.page(selection, LATER).unwrap();
        assert!(!page.is_whole);
        let text = text(Ok(page));
        has(&text, "jobledger_node_last 1");
        has(&text, "jobledger_exporter_collector_success{collector=\"last\"} 1");
        has(&text, "jobledger_exporter_scrapes_total 1");
        for absent in ["first", "middle"] {
            assert!(!text.contains(absent), "{text}");
        }
    }
}

#[test]
fn requests_within_the_interval_share_a_collection_and_later_ones_get_another() {
    let bench = Bench::new(Slow(Duration::ZERO), ONE);
    for _ in 0..3 {
        has(&bench.scrape(LATER), "jobledger_exporter_scrapes_total 1");
    }
    let bench = Bench::new(Slow(Duration::ZERO), EACH);
    for round in 1..=3 {
        has(&bench.scrape(LATER), &format!("jobledger_exporter_scrapes_total {round}"));
    }
}

/// Row 16.
#[test]
fn fifty_scrapes_at_once_are_one_collection_in_each_format() {
    let (release, hang) = channel();
    let bench = Bench::new(Hangs(hang), ONE);
    let texts = bench.runtime.block_on(async {
        let deadline = Instant::now() + LONGEST;
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

/// Row 22.
#[test]
fn a_collection_goes_on_when_all_its_clients_have_left() {
    let (release, hang) = channel();
    let bench = Bench::new(Hangs(hang), ONE);
    bench.runtime.block_on(async {
        let deadline = Instant::now() + LONGEST;
        let client = tokio::spawn(bench.engine.scrape(Selection::default(), Format::Text, deadline));
        tokio::task::yield_now().await;
        client.abort();
        assert!(client.await.is_err());
    });
    drop(release);
    let text = bench.scrape(LONGEST);
    others_are_there(&text);
    has(&text, "jobledger_exporter_scrapes_total 1");
    assert_eq!(bench.engine.0.state.lock().desk.waiting(), 0);
}

/// Row 28.
#[test]
fn values_that_are_no_numbers_are_left_out_and_counted() {
    let bench = Bench::new(Nonsense, EACH);
    let text = bench.scrape(LATER);
    others_are_there(&text);
    assert_eq!(text.matches("jobledger_node_middle_total{").count(), 1, "{text}");
    has(&text, "jobledger_node_middle_total{value=\"good\"} 2");
    has(&text, "jobledger_exporter_bad_values_total{collector=\"middle\"} 4");
}
