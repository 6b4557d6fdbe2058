//! `jobledger snapshot`

use job_files::json;

use super::node::Node;
use super::surroundings::{Surroundings, now};
use crate::source::recordings::Recordings;
use crate::source::{Parts, Wanted, WhichRun};
use crate::{Failure, Kind, output};

/// The report of the job on this node as one line of JSON.
pub(super) async fn run(node: &mut Node, here: &Surroundings<()>) -> Result<(), Failure> {
    let batch = node.batch().await?;
    if batch.of_job == 0 {
        return Err(Failure::new(Kind::NotFound, node.shows_nothing()));
    }
    let recordings = Recordings::new([batch.text.as_str()], here.thresholds.clone(), now());
    let id = recordings.job()?;
    let wanted =
        Wanted { id: &id, run: WhichRun::Last, bins: 0, step: None, curves: &[], parts: Parts::None };
    let report = here.report_by(&recordings, &wanted).await?;
    let mut line = Vec::new();
    json::write(&report, &mut line).map_err(|error| Failure::other(error.to_string()))?;
    output::write(None, &line)
}
