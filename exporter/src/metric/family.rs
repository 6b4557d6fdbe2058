//! One row of the catalogue of metric families. HELP, docs/metrics.md and the name lint derive from it.

/// What a family's samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1, its labels are the content; its name ends in `_info`.
    Info,
}

/// Base units, as the name spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// 0 to 1.
    Ratio,
    /// Hertz.
    Hertz,
    /// Joules.
    Joules,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
}

impl Unit {
    /// As the name of a family spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
            Self::Hertz => "hertz",
            Self::Joules => "joules",
            Self::Watts => "watts",
            Self::Celsius => "celsius",
        }
    }
}

/// What a sample of the family belongs to. Finer levels are dropped first when there are too many series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The exporter itself.
    Exporter,
    /// The node.
    Node,
    /// A job, `jobid`.
    Job,
    /// A step of a job, `jobid` and `step`; opt-in.
    Step,
    /// A task of a step, `jobid`, `step` and `task`; opt-in.
    Task,
}

/// A metric family. Its name is a public contract.
#[derive(Debug)]
pub struct Family {
    /// The whole exposed name, so that a search for it ends here.
    pub name: &'static str,
    /// What its samples are.
    pub kind: Kind,
    /// Its base unit, which its name ends in.
    pub unit: Option<Unit>,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// Labels beyond those of the level.
    pub labels: &'static [&'static str],
    /// What a sample belongs to.
    pub level: Level,
    /// Whether a sample stays while an ended job is retained: counters and peaks do, gauges do not.
    pub outlives_job: bool,
    /// Version that brought it.
    pub since: &'static str,
}

impl Family {
    /// The name as OpenMetrics' metadata lines want it: without `_total` and `_info`.
    pub fn base_name(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The base name without its unit.
    pub fn stem(&self) -> &'static str {
        let base = self.base_name();
        self.unit.and_then(|unit| base.strip_suffix(unit.as_str())?.strip_suffix('_')).unwrap_or(base)
    }
}

/// The same quantity for jobs, steps and tasks.
#[derive(Debug)]
pub struct PerCgroup {
    /// `jobledger_job_…`
    pub job: Family,
    /// `jobledger_step_…`
    pub step: Family,
    /// `jobledger_task_…`
    pub task: Family,
}

impl PerCgroup {
    /// The three rows of the catalogue.
    pub fn rows(&'static self) -> [&'static Family; 3] {
        [&self.job, &self.step, &self.task]
    }

    /// The family of a level; levels above the job have none and are taken as the job's.
    pub fn at(&'static self, level: Level) -> &'static Family {
        match level {
            Level::Step => &self.step,
            Level::Task => &self.task,
            Level::Job | Level::Node | Level::Exporter => &self.job,
        }
    }
}

/// Declares a [`PerCgroup`] static: name after the level's prefix, kind, unit, labels, help, first version.
macro_rules! per_cgroup {
    ($(#[$doc:meta])* $id:ident, $name:literal, $kind:ident, $unit:expr, $labels:expr, $help:literal, $since:literal $(, $outlives:literal)?) => {
        $(#[$doc])*
        static $id: $crate::metric::PerCgroup = $crate::metric::PerCgroup {
            job: $crate::metric::per_cgroup!(@row Job, concat!("jobledger_job_", $name), $kind, $unit, $labels, $help, $since $(, $outlives)?),
            step: $crate::metric::per_cgroup!(@row Step, concat!("jobledger_step_", $name), $kind, $unit, $labels, $help, $since $(, $outlives)?),
            task: $crate::metric::per_cgroup!(@row Task, concat!("jobledger_task_", $name), $kind, $unit, $labels, $help, $since $(, $outlives)?),
        };
    };
    (@row $level:ident, $name:expr, $kind:ident, $unit:expr, $labels:expr, $help:expr, $since:literal) => {
        $crate::metric::per_cgroup!(@row $level, $name, $kind, $unit, $labels, $help, $since,
            (matches!($crate::metric::Kind::$kind, $crate::metric::Kind::Counter)))
    };
    (@row $level:ident, $name:expr, $kind:ident, $unit:expr, $labels:expr, $help:expr, $since:literal, $outlives:expr) => {
        $crate::metric::Family {
            name: $name,
            kind: $crate::metric::Kind::$kind,
            unit: $unit,
            help: $help,
            labels: &$labels,
            level: $crate::metric::Level::$level,
            outlives_job: $outlives,
            since: $since,
        }
    };
}
pub(crate) use per_cgroup;

/// Declares a [`Family`] static of a level: level, whole name, kind, unit, labels, help, first version.
macro_rules! node_family {
    ($(#[$doc:meta])* $vis:vis $id:ident, $level:ident, $name:literal, $kind:ident, $unit:expr, $labels:expr, $help:literal, $since:literal $(, $outlives:literal)?) => {
        $(#[$doc])*
        $vis static $id: $crate::metric::Family =
            $crate::metric::per_cgroup!(@row $level, $name, $kind, $unit, $labels, $help, $since $(, $outlives)?);
    };
}
pub(crate) use node_family;
