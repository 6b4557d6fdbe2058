//! What bears on whether the totals of a run are exact.

/// What a source found out about a run besides its numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// Nodes on which a counter of the job fell. `None` if that was not looked for.
    pub resets: Option<usize>,
    /// The number of its CPUs on a node changed.
    pub cpus_changed: bool,
    /// Seconds between scrapes. `None` if that is not known.
    pub interval: Option<f64>,
    /// The same user had a run of this number before, and nothing says whether that was another job, or a part of this run.
    pub may_be_a_part: bool,
    /// What SLURM's accounting has of the run. `None` without a record that fits.
    pub accounted: Option<Accounted>,
}

/// A run in SLURM's accounting (sacct). Times are seconds since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Accounted {
    /// When it was submitted, or requeued.
    pub submit: Option<f64>,
    /// When it started.
    pub start: f64,
    /// When it ended; `None` while it runs.
    pub end: Option<f64>,
    /// Seconds that it ran, without those in which it was suspended.
    pub elapsed: Option<f64>,
    /// Seconds in which it was suspended.
    pub suspended: Option<f64>,
}
