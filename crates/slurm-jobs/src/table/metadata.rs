//! The files of prolog and epilog as they are written. The prolog's may come after a job's start or even after its end: it
//! writes again when the controller answered late. The epilog's comes when the job's cgroup is gone, or with `RunInJob` just
//! before.

use std::sync::Arc;

use super::Table;
use crate::metadata::{ENDED, Ending, Metadata};
use crate::watch::Target;
use crate::{Job, JobId, JobRunId};

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
            self.read_all_metadata();
        }
    }

    /// A file was written.
    pub(super) fn metadata_written(&mut self, name: &str) {
        if let Some(id) = JobId::parse(name.as_bytes()) {
            self.read_metadata_of(|job| job.id == Some(id));
        } else if let Some(id) = name.strip_suffix(ENDED).and_then(|id| JobId::parse(id.as_bytes())) {
            for run in self.runs_with(|job| job.id == Some(id)) {
                self.read_ending(run);
            }
        }
    }

    /// Reads the files of all jobs of which something in them is not known.
    pub(super) fn read_all_metadata(&mut self) {
        self.read_metadata_of(|job| job.id.is_some());
        for run in self.runs_with(|job| !job.is_running() && job.metadata.ending == Ending::default()) {
            self.read_ending(run);
        }
    }

    fn runs_with(&self, wanted: impl Fn(&Job) -> bool) -> Vec<JobRunId> {
        self.runs.values().filter(|tracked| wanted(&tracked.job)).map(|tracked| tracked.run()).collect()
    }

    /// Reads the prolog's file of each of these jobs that has no name yet. The name is what comes last.
    fn read_metadata_of(&mut self, wanted: impl Fn(&Job) -> bool) {
        for run in self.runs_with(|job| wanted(job) && job.metadata.name.is_none()) {
            self.find_out(run, false);
        }
    }

    /// Takes what the epilog wrote, if it is of this run: a requeued job has the same number.
    pub(super) fn read_ending(&mut self, run: JobRunId) {
        let Some(tracked) = self.runs.get_mut(&run) else { return };
        let Some(id) = tracked.job.id.filter(|_| tracked.job.metadata.run() != Metadata::default().run())
        else {
            return;
        };
        let said = self.identities.ended_metadata(id, &mut self.buffer);
        if let Some(said) = said.filter(|said| said.run() == tracked.job.metadata.run()) {
            let metadata = &mut Arc::make_mut(&mut tracked.job).metadata;
            Arc::make_mut(metadata).ending = said.ending;
        }
    }
}
