//! One row of the catalogue of metric families. HELP, docs/metrics.md and the name lint derive from it.

use std::borrow::Cow;

use super::Profile;

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
    /// Grams.
    Grams,
}

impl Unit {
    const ALL: [Self; 8] = [
        Self::Seconds,
        Self::Bytes,
        Self::Ratio,
        Self::Hertz,
        Self::Joules,
        Self::Watts,
        Self::Celsius,
        Self::Grams,
    ];

    /// As the name of a family spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
            Self::Hertz => "hertz",
            Self::Joules => "joules",
            Self::Watts => "watts",
            Self::Celsius => "celsius",
            Self::Grams => "grams",
        }
    }

    /// Whether hardware can have this value. Firmware that does not know says all ones (65535), a sensor that is not
    /// there absolute zero. The bounds are far from what is: 250 degrees, 50 kW for the largest node, 1 THz.
    pub fn can_be(self, value: f64) -> bool {
        match self {
            Self::Celsius => (-90.0..=250.0).contains(&value),
            Self::Watts => (0.0..=50_000.0).contains(&value),
            Self::Hertz => (0.0..=1e12).contains(&value),
            Self::Seconds | Self::Bytes | Self::Ratio | Self::Joules | Self::Grams => true,
        }
    }

    /// The unit that is the last word of a name without its suffix.
    const fn of(name: &[u8]) -> Option<Self> {
        let mut units: &[Self] = &Self::ALL;
        while let [unit, others @ ..] = units {
            if let Some([.., b'_']) = strip_suffix(name, unit.as_str().as_bytes()) {
                return Some(*unit);
            }
            units = others;
        }
        None
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

impl Level {
    /// The level that a name begins with.
    const fn of(name: &str) -> Self {
        if begins(name, "jobledger_job_") {
            Self::Job
        } else if begins(name, "jobledger_step_") {
            Self::Step
        } else if begins(name, "jobledger_task_") {
            Self::Task
        } else if begins(name, "jobledger_exporter_") || begins(name, "process_") {
            Self::Exporter
        } else {
            Self::Node
        }
    }
}

/// A metric family. Its name is a public contract, and the unit and the level follow from it.
///
/// Declared as a `static` with its whole name, so that a search for the name ends at the row. A name that contradicts
/// the kind does not compile:
///
/// ```compile_fail
/// # use exposition::Family;
/// static SPENT: Family = Family::counter("jobledger_job_spent_seconds").help("Time spent");
/// ```
#[derive(Debug)]
pub struct Family {
    /// The whole exposed name.
    pub name: &'static str,
    /// What its samples are.
    pub kind: Kind,
    /// Its base unit, which its name ends in.
    pub unit: Option<Unit>,
    help: &'static str,
    help_suffix: &'static str,
    /// Labels beyond those of the level.
    pub labels: &'static [&'static str],
    /// What a sample belongs to.
    pub level: Level,
    /// Whether samples are still exported while an ended job is retained: counters, peaks and what identifies or
    /// bounds the job are, other gauges are not.
    pub outlives_job: bool,
    /// Version that brought it.
    pub since: &'static str,
    /// The smallest profile that has it.
    pub profile: Profile,
}

impl Family {
    /// A family of counters; its name ends in `_total`.
    pub const fn counter(name: &'static str) -> Self {
        Self { outlives_job: true, ..Self::new(name, Kind::Counter) }
    }

    /// A family of gauges.
    pub const fn gauge(name: &'static str) -> Self {
        Self::new(name, Kind::Gauge)
    }

    /// A family whose labels are the content; its name ends in `_info`.
    pub const fn info(name: &'static str) -> Self {
        Self::new(name, Kind::Info)
    }

    const fn new(name: &'static str, kind: Kind) -> Self {
        let base = match (strip_suffix(name.as_bytes(), b"_total"), strip_suffix(name.as_bytes(), b"_info")) {
            (Some(base), _) => {
                assert!(matches!(kind, Kind::Counter), "only a counter's name ends in _total");
                base
            }
            (_, Some(base)) => {
                assert!(matches!(kind, Kind::Info), "only an info's name ends in _info");
                base
            }
            (None, None) => {
                assert!(matches!(kind, Kind::Gauge), "a counter's name ends in _total, an info's in _info");
                name.as_bytes()
            }
        };
        Self {
            name,
            kind,
            unit: Unit::of(base),
            help: "",
            help_suffix: "",
            labels: &[],
            level: Level::of(name),
            outlives_job: false,
            since: "0.1.0",
            profile: Profile::Standard,
        }
    }

    /// With labels beyond those of the level.
    pub const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// With its meaning: one sentence without a full stop.
    pub const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// With an end of its meaning that several families share.
    pub const fn help_suffix(self, help_suffix: &'static str) -> Self {
        Self { help_suffix, ..self }
    }

    /// In this profile and those that have more; without it from [`Profile::Standard`] on. Parts of one sum have the same.
    pub const fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Samples are exported while an ended job is retained, like those of counters.
    pub const fn retained(self) -> Self {
        Self { outlives_job: true, ..self }
    }

    /// With the same family for steps and tasks.
    pub const fn per_cgroup(self, step: &'static str, task: &'static str) -> PerCgroup {
        let job = (self.name, "jobledger_job_");
        assert!(same_but_prefix(job, (step, "jobledger_step_")), "the step's name is another");
        assert!(same_but_prefix(job, (task, "jobledger_task_")), "the task's name is another");
        PerCgroup {
            step: Self { name: step, level: Level::Step, ..self },
            task: Self { name: task, level: Level::Task, ..self },
            job: self,
        }
    }

    /// Its meaning.
    pub fn help_text(&self) -> Cow<'static, str> {
        match self.help_suffix {
            "" => Cow::Borrowed(self.help),
            suffix => Cow::Owned([self.help, suffix].concat()),
        }
    }

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

// `str` has these, but not as `const fn`.

const fn strip_suffix<'a>(mut text: &'a [u8], mut suffix: &[u8]) -> Option<&'a [u8]> {
    while let [wanted_before @ .., wanted] = suffix {
        match text {
            [before @ .., last] if *last == *wanted => (text, suffix) = (before, wanted_before),
            _ => return None,
        }
    }
    Some(text)
}

const fn strip_prefix<'a>(mut text: &'a [u8], mut prefix: &[u8]) -> Option<&'a [u8]> {
    while let [wanted, wanted_after @ ..] = prefix {
        match text {
            [first, after @ ..] if *first == *wanted => (text, prefix) = (after, wanted_after),
            _ => return None,
        }
    }
    Some(text)
}

const fn begins(text: &str, prefix: &str) -> bool {
    strip_prefix(text.as_bytes(), prefix.as_bytes()).is_some()
}

/// Whether two names are the same but for their prefixes. For assertions about rows that belong together.
pub const fn same_but_prefix((a, prefix_a): (&str, &str), (b, prefix_b): (&str, &str)) -> bool {
    match (strip_prefix(a.as_bytes(), prefix_a.as_bytes()), strip_prefix(b.as_bytes(), prefix_b.as_bytes())) {
        (Some(a), Some(b)) => matches!(strip_prefix(a, b), Some([])),
        _ => false,
    }
}
