//! What jobstats keeps of a job in the field AdminComment of SLURM's accounting: `JS1:`, and base64 of gzip of JSON. It reads this back, and so do
//! reportseff and Job Defense Shield.

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use job_report::metric::{self, Metric};
use job_report::{Gpu, Node, Report};
use serde::{Serialize, Serializer};

/// A job as jobstats has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Stats {
    /// By name.
    pub(super) nodes: BTreeMap<String, NodeStats>,
    /// Seconds that the job ran.
    pub(super) total_time: Number,
    /// How many GPUs it had; 0 if it had none, and where that is not known.
    pub(super) gpus: u64,
}

/// A node. Readers divide by what it has, and refuse what is used beyond that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NodeStats {
    pub(super) total_memory: Number,
    pub(super) used_memory: Number,
    /// CPU seconds used.
    pub(super) total_time: Number,
    pub(super) cpus: Number,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) gpu_total_memory: BTreeMap<String, Number>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) gpu_used_memory: BTreeMap<String, Number>,
    /// Per cent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) gpu_utilization: BTreeMap<String, Number>,
}

/// A number that is not negative, to one digit after the point.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Number(pub(super) f64);

impl Number {
    fn new(value: f64) -> Self {
        Self((value.max(0.0) * 10.0).round() / 10.0)
    }

    fn whole(value: f64) -> Self {
        Self(value.max(0.0).round())
    }

    fn at_most(self, most: f64) -> Self {
        Self(self.0.min(most))
    }
}

impl Serialize for Number {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "is a whole number that fits")]
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // In full: jobstats takes a number with a point for one with a fraction.
        if self.0.fract() == 0.0 && self.0 < 2f64.powi(53) {
            to.serialize_u64(self.0 as u64)
        } else {
            to.serialize_f64(self.0)
        }
    }
}

impl Stats {
    pub(super) fn of(report: &Report) -> Self {
        let total_time = Number::whole(report.numbers.elapsed_seconds);
        let mut nodes = BTreeMap::new();
        for node in &report.job.nodes {
            if let Some(stats) = NodeStats::of(node, total_time) {
                let name = unused([&node.name], |name| nodes.contains_key(name));
                nodes.insert(name, stats);
            }
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of GPUs")]
        let gpus = report.numbers.gpus.map_or(0, |gpus| gpus as u64);
        Self { nodes, total_time, gpus }
    }

    fn without_gpus(&self) -> Self {
        let mut stats = self.clone();
        for node in stats.nodes.values_mut() {
            node.gpu_total_memory.clear();
            node.gpu_used_memory.clear();
            node.gpu_utilization.clear();
        }
        stats
    }

    fn encoded(&self) -> io::Result<String> {
        let json = serde_json::to_string(self)?;
        // No time and no name: the same job gives the same bytes.
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        gzip.write_all(ascii(&json).as_bytes())?;
        Ok(STANDARD.encode(gzip.finish()?))
    }
}

impl NodeStats {
    /// `None` if something is missing that readers need of every node.
    fn of(node: &Node, elapsed: Number) -> Option<Self> {
        let get = |metric: &Metric| node.values.get(metric);
        // Without a limit it may use all of the node.
        let limit = get(&metric::MEMORY_LIMIT_BYTES).or(node.hardware.memory_bytes);
        let total_memory = Number::whole(limit?);
        let cpus = Number::whole(get(&metric::CPUS)?);
        if total_memory.0 <= 0.0 || cpus.0 <= 0.0 {
            return None;
        }
        let used = node.memory_held_bytes.or_else(|| node.memory_peak())?;
        let mut stats = Self {
            total_memory,
            used_memory: Number::whole(used).at_most(total_memory.0),
            total_time: Number::new(get(&metric::CPU_SECONDS)?).at_most(cpus.0 * elapsed.0),
            cpus,
            gpu_total_memory: BTreeMap::new(),
            gpu_used_memory: BTreeMap::new(),
            gpu_utilization: BTreeMap::new(),
        };
        node.gpus.iter().for_each(|gpu| stats.add(gpu));
        Some(stats)
    }

    fn add(&mut self, gpu: &Gpu) {
        // Parts of a GPU have its minor number in common.
        let minor = Some(&gpu.minor).filter(|minor| !minor.is_empty() && gpu.profile.is_empty());
        let key = unused(minor.into_iter().chain([&gpu.index, &gpu.uuid]), |name| {
            self.gpu_total_memory.contains_key(name) || self.gpu_utilization.contains_key(name)
        });
        let get = |metric: &Metric| gpu.values.get(metric);
        if let (Some(used), Some(total)) = (
            get(&metric::GPU_MEMORY_PEAK_BYTES),
            get(&metric::GPU_MEMORY_LIMIT_BYTES).filter(|all| *all >= 1.0),
        ) {
            let total = Number::whole(total);
            self.gpu_used_memory.insert(key.clone(), Number::whole(used).at_most(total.0));
            self.gpu_total_memory.insert(key.clone(), total);
        }
        if let Some(part) = gpu.utilization() {
            self.gpu_utilization.insert(key, Number::new(part * 100.0).at_most(100.0));
        }
    }

    /// CPU time used, of what its CPUs had.
    pub(super) fn cpu_efficiency(&self, elapsed: Number) -> Option<f64> {
        let held = self.cpus.0 * elapsed.0;
        (held > 0.0).then(|| self.total_time.0 / held)
    }

    /// The mean of its GPUs, 0 to 1.
    pub(super) fn gpu_use(&self) -> Option<f64> {
        super::mean(self.gpu_utilization.values().map(|part| part.0 / 100.0))
    }
}

/// The first of the names that no other has.
fn unused<'a>(names: impl IntoIterator<Item = &'a String>, is_taken: impl Fn(&str) -> bool) -> String {
    let mut last = String::new();
    for name in names {
        if !is_taken(name) {
            return name.clone();
        }
        last.clone_from(name);
    }
    (2..).map(|number: u32| format!("{last}_{number}")).find(|name| !is_taken(name)).unwrap_or(last)
}

/// JSON as Python writes it: other characters stand in strings alone, which have escapes for them.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

/// `jobstats --json`: an indent of four, and keys in their order.
pub fn json(report: &Report) -> Result<Vec<u8>, serde_json::Error> {
    // A Value has its keys sorted.
    let value = serde_json::to_value(Stats::of(report))?;
    let mut bytes = Vec::new();
    let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, indent))?;
    let mut text = ascii(&String::from_utf8_lossy(&bytes));
    text.push('\n');
    Ok(text.into_bytes())
}

/// What AdminComment is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// One line.
    pub text: String,
    /// What was left out.
    pub remark: Option<&'static str>,
}

/// jobstats keeps nothing of shorter jobs: twice the time between its scrapes.
const LEAST_SECONDS: f64 = 60.0;
/// MySQL's `text`, which the column admin_comment is, has 65,535 bytes (accounting_storage_mysql.c).
const MOST_BYTES: usize = 60_000;

/// For `sacctmgr update job ... set AdminComment=`.
pub fn blob(report: &Report) -> io::Result<Blob> {
    let stats = Stats::of(report);
    let of = |content: &str, remark| Blob { text: format!("JS1:{content}"), remark };
    if stats.total_time.0 < LEAST_SECONDS {
        return Ok(of("Short", None));
    }
    if stats.nodes.is_empty() {
        return Ok(of("None", None));
    }
    let whole = stats.encoded()?;
    if whole.len() <= MOST_BYTES {
        return Ok(of(&whole, None));
    }
    let without = stats.without_gpus().encoded()?;
    if without.len() <= MOST_BYTES {
        return Ok(of(
            &without,
            Some("AdminComment has no room for the GPUs of so many nodes: they are left out"),
        ));
    }
    Ok(of("None", Some("AdminComment has no room for so many nodes: it says that there is no data")))
}
