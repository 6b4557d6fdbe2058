//! Errors that the driver reported as Xids, counted while the exporter runs: also of a GPU that is lost, and across
//! reloads of the driver.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Fact, families};

/// By uuid and code.
#[derive(Debug, Default)]
pub(super) struct Xids(BTreeMap<Arc<str>, BTreeMap<u64, u64>>);

impl Xids {
    /// Counts one.
    pub(super) fn count(&mut self, uuid: &Arc<str>, code: u64) {
        *self.0.entry(uuid.clone()).or_default().entry(code).or_default() += 1;
    }

    /// Those of a unit.
    pub(super) fn of(&self, uuid: &str) -> impl Iterator<Item = Fact> {
        let codes = self.0.get(uuid).into_iter().flatten();
        codes.map(|(code, times)| Fact::with(&families::XID_ERRORS, "code", code.to_string(), *times))
    }
}
