//! The formats of jobstats (github.com/PrincetonUniversity/jobstats): its page, and what it stores. The layout is its own; the notes are advice.

mod stats;

use jiff::tz::TimeZone;
use job_report::show::time;
use job_report::{Job, Numbers, Report, State, metric};

use super::{moment, words};
use crate::job_id::shown;
use crate::text::wrapped;
use stats::{NodeStats, Number, Stats};

pub use stats::{Blob, blob, json};

/// How the page is drawn.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most nodes of a list.
    pub node_rows: usize,
    /// Of times.
    pub zone: TimeZone,
}

const WIDTH: usize = 80;
/// Columns between the brackets of a bar.
const BAR: usize = 50;

/// The page, without colours.
pub fn render(report: &Report, options: &Options) -> String {
    let stats = Stats::of(report);
    let mut page = Page(String::new());
    page.title("Slurm Job Statistics");
    page.head(report, &options.zone);
    page.title("Overall Utilization");
    page.overall(&stats);
    page.title("Detailed Utilization");
    page.detailed(&stats, options.node_rows);
    page.title("Notes");
    page.notes(report, &stats);
    page.0
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

/// A page in the making.
struct Page(String);

impl Page {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn title(&mut self, title: &str) {
        let line = "=".repeat(WIDTH);
        let centred = format!("{title:^WIDTH$}");
        if self.0.is_empty() {
            self.line("");
            self.line(&line);
        } else {
            self.line("");
        }
        self.line(centred.trim_end());
        self.line(&line);
    }

    fn field(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.line(&format!("{name:>15}: {value}"));
        }
    }

    fn head(&mut self, report: &Report, zone: &TimeZone) {
        let (job, numbers) = (&report.job, &report.numbers);
        let who = &job.identity;
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let user = some(&who.user).or_else(|| some(&who.uid));
        self.field("Job ID", Some(shown(job.id, &job.identity)));
        self.field("User/Account", pair(user.as_deref().unwrap_or_default(), &who.account));
        self.field("Job Name", some(&who.name));
        self.field("State", Some(words::slurm_state(job).to_owned()));
        self.field(
            "Nodes",
            Some(job.nodes_allocated.map_or(job.nodes.len().to_string(), |nodes| nodes.to_string())),
        );
        self.field("CPU Cores", numbers.cpus.map(|cpus| format!("{cpus:.0}")));
        self.field("CPU Memory", memory(job, numbers));
        self.field("GPUs", numbers.gpus.filter(|gpus| *gpus > 0.0).map(|gpus| format!("{gpus:.0}")));
        self.field("QOS/Partition", pair(&who.qos, &who.partition));
        self.field("Cluster", job.cluster.clone());
        self.field("Start Time", some(&moment(job.began(), zone, "%a %b %-d, %Y at %-I:%M %p")));
        let progress = if job.state() == State::Running { " (in progress)" } else { "" };
        self.field("Run Time", Some(format!("{}{progress}", time(numbers.elapsed_seconds))));
        self.field("Time Limit", job.time_limit.map(time));
    }

    fn overall(&mut self, stats: &Stats) {
        let (used, held) = cpu_time(stats);
        self.bar("CPU utilization", (held > 0.0).then(|| (100.0 * used / held).floor()));
        let (used, total) = sums(stats, |node| (node.used_memory, node.total_memory));
        self.bar("CPU memory usage", (total > 0.0).then(|| (100.0 * used / total).round()));
        if stats.gpus == 0 {
            return;
        }
        let each = stats.nodes.values().flat_map(|node| node.gpu_utilization.values().map(|part| part.0));
        self.bar("GPU utilization", mean(each).map(f64::round));
        let add = |of: fn(&NodeStats) -> &std::collections::BTreeMap<String, Number>| -> f64 {
            stats.nodes.values().flat_map(|node| of(node).values()).map(|number| number.0).sum()
        };
        let (used, total) = (add(|node| &node.gpu_used_memory), add(|node| &node.gpu_total_memory));
        self.bar("GPU memory usage", (total > 0.0).then(|| (100.0 * used / total).round()));
    }

    fn bar(&mut self, name: &str, percent: Option<f64>) {
        let Some(percent) = percent else { return self.line(&format!("  {name:<16} unknown")) };
        let number = format!("{percent}%");
        let room = BAR - number.len().min(BAR);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let bars = "|".repeat(((percent / 2.0) as usize).min(room));
        self.line(&format!("  {name:<16} [{bars:<room$}{number}]"));
    }

    fn detailed(&mut self, stats: &Stats, most: usize) {
        let mut nodes: Vec<(&String, &NodeStats)> = stats.nodes.iter().collect();
        if nodes.len() > most {
            let use_of = |node: &NodeStats| {
                node.gpu_use().or_else(|| node.cpu_efficiency(stats.total_time)).unwrap_or(1.0)
            };
            nodes.sort_by(|(_, a), (_, b)| use_of(a).total_cmp(&use_of(b)));
            nodes.truncate(most);
        }
        let more = stats.nodes.len() - nodes.len();
        let rows = |page: &mut Self, title: &str, of: &dyn Fn(&str, &NodeStats) -> Vec<String>| {
            let lines: Vec<String> = nodes.iter().flat_map(|(name, node)| of(name, node)).collect();
            if lines.is_empty() {
                return false;
            }
            page.line(&format!("  {title}"));
            lines.iter().for_each(|line| page.line(&format!("      {line}")));
            if more > 0 {
                page.line(&format!("      and {more} nodes that were used more"));
            }
            true
        };
        let elapsed = stats.total_time;
        rows(self, "CPU utilization per node (CPU time used/run time)", &|name, node| {
            let Some(part) = node.cpu_efficiency(elapsed) else { return Vec::new() };
            let unused = if node.total_time.0 == 0.0 { " <-- CPU node was not used" } else { "" };
            let (used, held) = (time(node.total_time.0), time(node.cpus.0 * elapsed.0));
            vec![format!("{name}: {used}/{held} (efficiency={:.1}%){unused}", part * 100.0)]
        });
        let several = stats.nodes.len() > 1;
        let (used, held) = cpu_time(stats);
        if several && held > 0.0 {
            self.line(&format!(
                "  Total used/runtime: {}/{}, efficiency={:.1}%",
                time(used),
                time(held),
                100.0 * used / held
            ));
        }
        self.line("");
        let shares = |used: f64, total: f64, cpus: f64| {
            format!(
                "{}/{} ({}/{} per core of {cpus})",
                size(used),
                allocated(total),
                size(used / cpus),
                allocated(total / cpus)
            )
        };
        rows(self, "CPU memory usage per node - used/allocated", &|name, node| {
            vec![format!("{name}: {}", shares(node.used_memory.0, node.total_memory.0, node.cpus.0))]
        });
        if several {
            let (used, total) = sums(stats, |node| (node.used_memory, node.total_memory));
            let (cpus, _) = sums(stats, |node| (node.cpus, node.cpus));
            self.line(&format!("  Total used/allocated: {}", shares(used, total, cpus)));
        }
        if stats.gpus == 0 {
            return;
        }
        self.line("");
        let known = rows(self, "GPU utilization per node", &|name, node| {
            let line = |(gpu, Number(part)): (&String, &Number)| {
                let unused = if *part == 0.0 { " <-- GPU was not used" } else { "" };
                format!("{name} (GPU {gpu}): {part}%{unused}")
            };
            node.gpu_utilization.iter().map(line).collect()
        });
        if known {
            self.line("");
        }
        rows(self, "GPU memory usage per node - maximum used/total", &|name, node| {
            let line = |(gpu, Number(total)): (&String, &Number)| {
                let Number(used) = node.gpu_used_memory.get(gpu)?;
                Some(format!(
                    "{name} (GPU {gpu}): {}/{} ({:.1}%)",
                    size(*used),
                    allocated(*total),
                    100.0 * used / total
                ))
            };
            node.gpu_total_memory.iter().filter_map(line).collect()
        });
    }

    fn notes(&mut self, report: &Report, stats: &Stats) {
        for advice in &report.advice {
            self.note(&format!("{}: {}. {}", advice.what, advice.measured, advice.change));
            if let Some(option) = &advice.sbatch {
                self.line(&format!("      #SBATCH {option}"));
            }
        }
        let missing = report.job.nodes.len().saturating_sub(stats.nodes.len());
        if missing > 0 {
            self.note(&format!(
                "Of {missing} of the nodes something is not known that this format needs: they are left out."
            ));
        }
        self.note(&format!("Data: {}.", words::data(report)));
        report.quality.notes.iter().for_each(|note| self.note(note));
    }

    fn note(&mut self, text: &str) {
        for (at, line) in wrapped(text, WIDTH - 6).iter().enumerate() {
            self.line(&format!("  {} {line}", if at == 0 { '*' } else { ' ' }));
        }
    }
}

/// `alice/physics`; `-` for what is not known.
fn pair(one: &str, two: &str) -> Option<String> {
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    (!one.is_empty() || !two.is_empty()).then(|| format!("{}/{}", shown(one), shown(two)))
}

fn memory(job: &Job, numbers: &Numbers) -> Option<String> {
    let limit = job.total(&metric::MEMORY_LIMIT_BYTES)?;
    let each = numbers.cpus.filter(|cpus| *cpus > 1.0);
    let each = each.map(|cpus| format!(" ({} per CPU-core)", allocated(limit / cpus))).unwrap_or_default();
    Some(format!("{}{each}", allocated(limit)))
}

fn sums(stats: &Stats, of: impl Fn(&NodeStats) -> (Number, Number)) -> (f64, f64) {
    stats.nodes.values().map(of).fold((0.0, 0.0), |(one, two), (Number(a), Number(b))| (one + a, two + b))
}

/// CPU time used, and held.
fn cpu_time(stats: &Stats) -> (f64, f64) {
    let (used, cpus) = sums(stats, |node| (node.total_time, node.cpus));
    (used, cpus * stats.total_time.0)
}

/// `337.1MB`: powers of 1024.
fn size(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, "B");
    for next in ["KB", "MB", "GB", "TB", "PB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.1}{unit}")
}

fn allocated(bytes: f64) -> String {
    size(bytes).replace(".0", "")
}

#[cfg(test)]
mod tests;
