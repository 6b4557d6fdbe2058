//! Recordings, which users may edit, and pages of whatever answers at the exporter's address.

use std::sync::LazyLock;

use job_report::metric;
use jobledger::recording::{Line, Selection, read};
use jobledger::source::recordings::Recordings;
use jobledger::source::{Parts, Source, Wanted, WhichRun};
use jobledger::testing::THRESHOLDS;
use tokio::runtime::{Builder, Runtime};

static SELECTION: LazyLock<Selection> =
    LazyLock::new(|| Selection { job: "7".to_owned(), node: "n\"1".to_owned(), whole_node: true });
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().unwrap());

pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let batch = SELECTION.of(text, 1000.0);
    // All that is written can be read again, and has a time.
    let recorded = read([batch.text.as_str()], |_| true);
    assert_eq!(recorded.odd_lines, 0, "{}", batch.text);
    for line in text.lines().filter_map(Line::parse) {
        assert!(line.labels().all(|(name, _)| !name.is_empty()));
    }
    for text in [text, batch.text.as_str()] {
        let recordings = Recordings::new([text], THRESHOLDS.clone(), 2000.0);
        let Ok(id) = recordings.job() else { continue };
        let wanted = Wanted { id: &id, run: WhichRun::Last, bins: 50, step: None, curves: metric::ALL, parts: Parts::Curves };
        let _ = RUNTIME.block_on(recordings.report(&wanted));
    }
}
