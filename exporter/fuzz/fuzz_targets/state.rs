//! A state that survived a restart: the slot, its sections, the table of jobs, and what each collector makes of a section.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use durable_state::slot::{self, Identity};
use durable_state::{Sections, decode, encode};
use jobledger_exporter::collector::durable::{Before, Durable};
use jobledger_exporter::collector::{BuildContext, REGISTRY};
use kernel_files::Roots;
use slurm_jobs::table::SavedTable;
use slurm_jobs::{JobRunId, Users};

const OURS: Identity = Identity { layout: 1, boot: [7; 16] };

/// The collectors of a machine that has nothing.
static PARTS: LazyLock<Vec<Arc<dyn Durable>>> = LazyLock::new(|| {
    let nowhere = std::path::PathBuf::from("/nonexistent");
    let roots = Roots::new(nowhere.clone(), nowhere.clone(), nowhere.clone(), nowhere);
    let users = Arc::new(Users::start(Box::new(|_| None)).expect("a thread"));
    let context = BuildContext::new(Arc::new(roots), users);
    let built = REGISTRY.iter().filter_map(|entry| (entry.build)(&context).durable);
    let occupancy: Arc<dyn Durable> = context.interval_reader.clone();
    std::iter::once(occupancy).chain(built).collect()
});

pub fn fuzz(bytes: &[u8]) {
    if let Ok(slot) = slot::read(bytes, OURS) {
        assert_eq!(slot::read(&slot::write(slot.sequence, OURS, slot.payload), OURS), Ok(slot));
    }
    let written = slot::write(3, OURS, bytes);
    assert_eq!(slot::read(&written, OURS).map(|slot| slot.payload), Ok(bytes));
    if let Ok(sections) = decode::<Sections>(bytes) {
        assert!(sections.saved <= Instant::now(), "no state is from the future");
        let again: Sections = decode(&encode(&sections)).expect("what was encoded");
        assert_eq!(again.sections, sections.sections);
    }
    if let Ok(table) = decode::<SavedTable>(bytes) {
        assert_eq!(decode::<SavedTable>(&encode(&table)).map(|again| again.runs()), Ok(table.runs()));
    }
    let Some((which, section)) = bytes.split_first() else { return };
    let before = Before { runs: BTreeSet::from([JobRunId(1), JobRunId(2)]), seen: Instant::now() };
    if let Some(part) = PARTS.get(usize::from(*which) % PARTS.len().max(1)) {
        let restored = part.restore(section, &before).is_ok();
        let saved = part.save();
        assert!(!restored || saved.is_none_or(|saved| part.restore(&saved, &before).is_ok()), "what it saves it reads");
    }
}
