//! The prolog's files as they are written, which may be after a job's start or even after its end: the prolog writes again
//! when the controller answered late.

use super::Table;
use crate::watch::Target;
use crate::{JobId, JobRunId};

impl Table {
    /// Watches the prolog's directory. It may come later than the exporter, and be removed and made again.
    pub(super) fn watch_metadata(&mut self) {
        if self.metadata_watch.is_some_and(|watch| self.watches.has(watch)) {
            return;
        }
        let Some(dir) = &self.options.jobs_dir else { return };
        self.metadata_watch = self.watches.files(dir, Target::Metadata);
        if self.metadata_watch.is_some() {
            // Files from before the watch.
            self.read_metadata_of(None);
        }
    }

    /// A file was written.
    pub(super) fn metadata_written(&mut self, name: &str) {
        if let Some(id) = JobId::parse(name.as_bytes()) {
            self.read_metadata_of(Some(id));
        }
    }

    /// Reads the file of each job, or of the jobs with an id, that has no name yet. The name is what comes last.
    pub(super) fn read_metadata_of(&mut self, id: Option<JobId>) {
        let unnamed = self.runs.values().filter(|tracked| {
            let job = &tracked.job;
            job.id.is_some() && (id.is_none() || job.id == id) && job.metadata.name.is_none()
        });
        for run in unnamed.map(|tracked| tracked.run()).collect::<Vec<JobRunId>>() {
            self.find_out(run, false);
        }
    }
}
