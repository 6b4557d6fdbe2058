//! What is found, as it is shown, sent in, and left for the exporter.

use serde::{Deserialize, Serialize};

/// The form of the file. A later one is not read.
pub const FORMAT: u32 = 1;

/// How a count compares with what is known. The later, the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the limit.
    Pass,
    /// It is not counted on this machine.
    Absent,
    /// Its group never had counters while the loop ran.
    NeverRan,
    /// It is not what it should be.
    Off,
}

impl Verdict {
    /// The `verdict` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Absent => "absent",
            Self::NeverRan => "never_ran",
            Self::Off => "off",
        }
    }
}

/// A quantity of a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which quantity.
    pub quantity: String,
    /// What counted it: `cores`, `memory_controllers`, `resctrl`.
    pub counted_by: String,
    /// Which loop.
    pub kernel: String,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// At least.
    pub known_least: f64,
    /// At most.
    pub known_most: f64,
    /// As it was counted, scaled up where counters took turns.
    pub counted: Option<f64>,
    /// The part by which it is too much, below 0 too little.
    pub off_by: Option<f64>,
    /// The part by which it may be.
    pub limit: f64,
    /// The part of the time in which it was counted.
    pub running: Option<f64>,
    /// The outcome.
    pub verdict: Verdict,
    /// Why there is no count.
    pub why: Option<String>,
}

/// The node, without anything that names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// As the table of microarchitectures has it.
    pub microarchitecture: Option<String>,
    /// The processor's name, where it has one.
    pub cpu_model: Option<String>,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// The kernel's release.
    pub kernel: String,
    /// The revision of the microcode, where the kernel shows one.
    pub microcode: Option<String>,
    /// CPUs online.
    pub cpus: u64,
    /// Sockets, where firmware numbers them.
    pub sockets: Option<u64>,
    /// NUMA nodes.
    pub numa_nodes: Option<u64>,
}

/// Operations per second of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlopsPeak {
    /// `double`, `single`.
    pub precision: String,
    /// `scalar`, or bits of a vector.
    pub width: String,
    /// Of all CPUs together.
    pub per_second: f64,
}

/// What the node did at most, all CPUs together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// Bytes per second from and to memory.
    pub memory_bytes_per_second: Option<f64>,
    /// By precision and width: the best of the loops.
    pub flops: Vec<FlopsPeak>,
}

/// How the loops were counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedAs {
    /// `cgroup` or `cpus`, as the `mode` label of jobs.
    pub mode: String,
    /// Why not by cgroup.
    pub why: Option<String>,
}

/// Something of the plan that is not counted on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the exporter.
    pub exporter: String,
    /// The day, UTC.
    pub date: String,
    /// The node.
    pub node: Facts,
    /// The worst verdict of the rows but `absent`; `None` where nothing was compared.
    pub verdict: Option<Verdict>,
    /// How it was counted.
    pub counted_as: Option<CountedAs>,
    /// What was compared.
    pub rows: Vec<Row>,
    /// What is not counted here at all.
    pub absent: Vec<Missing>,
    /// What the node can do.
    pub peaks: Option<Peaks>,
}

/// Why results of a file do not hold for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// Not of this form.
    Malformed(String),
    /// Of another processor, kernel or microcode: what, and what it was then.
    Other(&'static str, String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) => f.write_str(why),
            Self::Other(what, then) => write!(f, "it is of another {what}: {then}"),
        }
    }
}

/// The worst of what was compared.
pub fn verdict(rows: &[Row]) -> Option<Verdict> {
    rows.iter().map(|row| row.verdict).filter(|verdict| *verdict != Verdict::Absent).max()
}

impl Results {
    /// From a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        let malformed = |error: serde_json::Error| Unusable::Malformed(error.to_string());
        let results: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        if results.format != FORMAT {
            return Err(Unusable::Malformed(format!("its form is {}, not {FORMAT}", results.format)));
        }
        // Labels and samples come of it.
        let day =
            |date: &str| date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        if !day(&results.date) {
            return Err(Unusable::Malformed("its date is none".to_owned()));
        }
        let peaks = results.peaks.iter();
        let rates = peaks.flat_map(|peaks| {
            peaks.memory_bytes_per_second.into_iter().chain(peaks.flops.iter().map(|peak| peak.per_second))
        });
        if rates.into_iter().any(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(Unusable::Malformed("a peak is no positive number".to_owned()));
        }
        let word = |text: &str| {
            !text.is_empty() && text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let mut labels = results.peaks.iter().flat_map(|peaks| &peaks.flops);
        if !labels.all(|peak| word(&peak.precision) && word(&peak.width)) {
            return Err(Unusable::Malformed("a precision or width is no word".to_owned()));
        }
        Ok(results)
    }

    /// Whether they hold for a node: the processor, its microcode, the kernel and the number of CPUs are the same.
    pub fn hold_for(&self, node: &Facts) -> Result<(), Unusable> {
        let then = &self.node;
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none known".to_owned());
        let differs =
            |what, same: bool, then: String| if same { Ok(()) } else { Err(Unusable::Other(what, then)) };
        differs(
            "microarchitecture",
            then.microarchitecture == node.microarchitecture,
            or_none(&then.microarchitecture),
        )?;
        differs("processor", then.cpu_model == node.cpu_model, or_none(&then.cpu_model))?;
        differs("kernel", then.kernel == node.kernel, then.kernel.clone())?;
        differs("microcode", then.microcode == node.microcode, or_none(&then.microcode))?;
        differs("number of CPUs", then.cpus == node.cpus, then.cpus.to_string())
    }

    /// For a file, and to be sent in.
    pub fn to_json(&self) -> String {
        // Nothing in it can fail to be written: no map with keys other than texts, and no custom serializer.
        serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn results() -> Results {
        let peak = FlopsPeak { precision: "double".into(), width: "256".into(), per_second: 1e12 };
        Results {
            format: FORMAT,
            exporter: "0.1.0".into(),
            date: "2026-11-27".into(),
            node: Facts {
                microarchitecture: Some("Zen 3".into()),
                kernel: "6.18.44".into(),
                cpus: 2,
                ..Facts::default()
            },
            verdict: Some(Verdict::Pass),
            counted_as: None,
            rows: Vec::new(),
            absent: Vec::new(),
            peaks: Some(Peaks { memory_bytes_per_second: Some(2e11), flops: vec![peak] }),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(Results::parse(results().to_json().as_bytes()), Ok(results()));
    }

    #[test]
    fn results_of_another_form_or_without_sense_are_refused() {
        let refused = |change: fn(&mut Results)| {
            let mut changed = results();
            change(&mut changed);
            Results::parse(changed.to_json().as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(refused(|results| results.format = 2), "its form is 2, not 1");
        assert_eq!(refused(|results| results.date = "yesterday\"}".into()), "its date is none");
        assert_eq!(
            refused(|results| results.peaks.as_mut().unwrap().flops[0].per_second = -1.0),
            "a peak is no positive number"
        );
        assert_eq!(
            refused(|results| results.peaks.as_mut().unwrap().flops[0].width = "2 5".into()),
            "a precision or width is no word"
        );
        assert!(matches!(Results::parse(b"{}"), Err(Unusable::Malformed(_))));
    }

    #[test]
    fn results_hold_for_the_same_processor_kernel_and_microcode_alone() {
        let (results, node) = (results(), results().node);
        assert_eq!(results.hold_for(&node), Ok(()));
        let other = |change: fn(&mut Facts)| {
            let mut node = node.clone();
            change(&mut node);
            results.hold_for(&node).unwrap_err().to_string()
        };
        assert_eq!(other(|node| node.kernel = "6.19.0".into()), "it is of another kernel: 6.18.44");
        assert_eq!(
            other(|node| node.microcode = Some("0x1".into())),
            "it is of another microcode: none known"
        );
        assert_eq!(other(|node| node.cpus = 4), "it is of another number of CPUs: 2");
        assert_eq!(other(|node| node.microarchitecture = None), "it is of another microarchitecture: Zen 3");
    }

    proptest! {
        #[test]
        fn whatever_a_file_has_nothing_panics(bytes: Vec<u8>) {
            let _ = Results::parse(&bytes);
        }
    }
}
