//! The report on a terminal: of two nodes, 50 lines of at most 80 columns.

mod chart;
mod nodes;

use anstyle::{AnsiColor, Style};
use jiff::tz::TimeZone;
use job_report::metric;
use job_report::show::{bytes, digits, percent, short_time, si, time};
use job_report::{Job, Report, Severity, Thresholds};

use super::rows::{self, Used};
use super::{moment, words};
use crate::job_id::shown;
use crate::text::{left, right, width, wrapped};

/// How it is drawn.
#[derive(Debug, Clone)]
pub struct Options {
    /// Columns, 60 at least.
    pub width: usize,
    /// No characters beyond ASCII.
    pub ascii: bool,
    /// With colours.
    pub colour: bool,
    /// Most rows of the table of nodes.
    pub node_rows: usize,
    /// Of times.
    pub zone: TimeZone,
    /// A link to the dashboard.
    pub link: Option<String>,
}

/// Columns of names, and of the longest bar; beside a bar its words have so many.
const NAME: usize = 14;
const BAR: usize = 26;
const WORDS: usize = 28;
/// The most advice that is shown.
const MOST_ADVICE: usize = 6;

/// A curve's name, its values, and how they are written.
type Line<'a> = (&'a str, Option<Vec<f64>>, &'a dyn Fn(f64) -> String);

/// A page in the making.
struct Page<'a> {
    options: &'a Options,
    text: String,
}

/// The report as text.
pub fn render(report: &Report, thresholds: &Thresholds, options: &Options) -> String {
    let mut page = Page { options, text: String::new() };
    page.header(report);
    page.used(report, thresholds);
    page.over_time(report);
    nodes::table(&mut page, report);
    page.sums(report);
    page.advice(report);
    page.quality(report);
    if options.ascii {
        page.text.chars().map(|c| if c.is_ascii() { c } else { ascii(c) }).collect()
    } else {
        page.text
    }
}

fn ascii(c: char) -> char {
    match c {
        '→' => '>',
        '·' => '.',
        '…' => '~',
        '×' | '✗' => 'x',
        '₂' => '2',
        _ => '?',
    }
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Lines that are no longer than the page is wide. After the first one they are indented.
    fn lines(&mut self, first: &str, indent: usize, text: &str) {
        let mut begin = first.to_owned();
        for line in wrapped(text, self.options.width.saturating_sub(indent)) {
            self.line(&format!("{begin}{line}"));
            begin = " ".repeat(indent);
        }
    }

    fn bar_columns(&self) -> usize {
        self.options.width.saturating_sub(2 + NAME + 1 + 6 + 3 + WORDS).min(BAR)
    }

    fn blank(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn painted(&self, text: &str, style: Style) -> String {
        if self.options.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.painted(text, Style::new().bold())
    }

    fn half(&self) -> usize {
        self.options.width.saturating_sub(4) / 2
    }

    /// Two columns.
    fn pair(&mut self, one: &str, two: &str) {
        let half = self.half();
        self.line(&format!("  {}  {}", left(one, half), crate::text::cut(two, half)));
    }

    fn header(&mut self, report: &Report) {
        let (job, numbers) = (&report.job, &report.numbers);
        let who = &job.identity;
        let title = format!("Job {}  {}", name_of(job), who.name);
        let half = self.half();
        let user = [&who.user, &who.account]
            .into_iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" / ");
        let user = if user.is_empty() { format!("uid {}", who.uid) } else { user };
        let title = self.bold(&left(&title, half));
        let user = crate::text::cut(&user, half);
        self.line(&format!("{title}    {user}"));
        let cluster =
            job.cluster.as_deref().map(|cluster| format!(", cluster {cluster}")).unwrap_or_default();
        let queue = [&who.partition, &who.qos]
            .into_iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" / ");
        let run = if job.runs > 1 { format!(", run {} of {}", job.run, job.runs) } else { String::new() };
        self.pair(
            &format!("{}{cluster}", if queue.is_empty() { "partition not known" } else { &queue }),
            &format!("{}{run}", words::state(job)),
        );
        let zone = &self.options.zone;
        let (start, until) = (job.began(), job.ended_at());
        let day = |seconds| moment(seconds, zone, "%F");
        let last = if day(start) == day(until) { "%H:%M" } else { "%d %b %H:%M" };
        let zone_of = if words::zone_changes(job, zone) { " %Z" } else { "" };
        let times = [(start, "%a %d %b %Y %H:%M"), (until, last)]
            .map(|(at, clock)| moment(at, zone, &format!("{clock}{zone_of}")))
            .join(" → ");
        let limit = job.time_limit.map(|limit| format!(" of {}", time(limit))).unwrap_or_default();
        let waited =
            job.queued_seconds.map(|seconds| format!(", waited {}", short_time(seconds))).unwrap_or_default();
        let elapsed = format!("{}{limit}{waited}", time(numbers.elapsed_seconds));
        if crate::text::width(&times) <= self.half() {
            self.pair(&times, &elapsed);
        } else {
            self.line(&format!("  {times}"));
            self.pair("", &elapsed);
        }
        if let Some(suspended) = job.suspended_seconds().filter(|seconds| *seconds > 0.0) {
            self.pair("", &format!("suspended for {}", short_time(suspended)));
        }
        let memory = job
            .total(&metric::MEMORY_LIMIT_BYTES)
            .map(|limit| format!(", {}", bytes(limit)))
            .unwrap_or_default();
        let nodes = words::count_of(job.nodes.len(), "node");
        let cpus = numbers.cpus.map(|cpus| format!(", {}", words::count(cpus, "CPU"))).unwrap_or_default();
        self.pair(&format!("{nodes}{cpus}{memory}"), &words::gpus(job, numbers));
    }

    fn used(&mut self, report: &Report, thresholds: &Thresholds) {
        self.blank();
        self.line(&format!("  {}{}of what it had", left("used", NAME), " ".repeat(self.bar_columns() + 2)));
        for Used { name, part, of, bounds } in rows::used(report) {
            let bounds = bounds.map(|(low, fair)| (thresholds.get(low), thresholds.get(fair)));
            self.bar(name, part, &of, bounds.unwrap_or_default());
        }
    }

    /// A bar, its number in words, and a colour by what is low and what is fair.
    fn bar(&mut self, name: &str, part: Option<f64>, words: &str, (low, fair): (Option<f64>, Option<f64>)) {
        let columns = self.bar_columns();
        let Some(part) = part else {
            return self.line(&format!("  {}{}{words}", left(name, NAME), " ".repeat(columns + 10)));
        };
        let bar = chart::bar(part, columns, self.options.ascii);
        let colour = match (low, fair) {
            (Some(low), _) if part < low => Some(AnsiColor::Red),
            (_, Some(fair)) if part < fair => Some(AnsiColor::Yellow),
            (_, Some(_)) => Some(AnsiColor::Green),
            _ => None,
        };
        let bar = match colour {
            Some(colour) => self.painted(&bar, Style::new().fg_color(Some(colour.into()))),
            None => bar,
        };
        let begin = format!("  {}{bar} {}   ", left(name, NAME), right(&percent(part), 6));
        self.lines(&begin, 2 + NAME + columns + 1 + 6 + 3, words);
    }

    fn over_time(&mut self, report: &Report) {
        let (job, Some(curves)) = (&report.job, &report.job.curves) else { return };
        if curves.bins() < 3 {
            return;
        }
        let memory = |curves: &job_report::Curves| {
            let (anon, shmem) =
                (curves.sum(&metric::MEMORY_ANON_BYTES)?, curves.sum(&metric::MEMORY_SHMEM_BYTES)?);
            Some(anon.iter().zip(&shmem).map(|(anon, shmem)| anon + shmem).collect::<Vec<f64>>())
        };
        let power = |curves: &job_report::Curves| {
            let cpus = curves.sum(&metric::ENERGY_JOULES)?;
            match curves.sum(&metric::GPU_ENERGY_JOULES) {
                Some(gpus) => Some(cpus.iter().zip(&gpus).map(|(cpus, gpus)| cpus + gpus).collect()),
                // Without its GPUs' power it is not that of the job.
                None => job.gpus().next().is_none().then_some(cpus),
            }
        };
        let rows: [Line<'_>; 4] = [
            ("CPUs used", curves.sum(&metric::CPU_SECONDS), &digits),
            ("GPUs busy", curves.gpus_busy(), &digits),
            ("Memory held", memory(curves), &bytes),
            ("Power", power(curves), &|value| si(value, "W")),
        ];
        self.blank();
        let columns = self.options.width.saturating_sub(NAME + 2 + 2 + 27).min(curves.bins().max(24));
        let head = format!("over {}", time(curves.end - curves.start));
        self.line(&format!(
            "  {}  {}{}{}",
            left(&head, NAME + columns),
            right("min", 8),
            right("mean", 9),
            right("max", 9)
        ));
        for (name, values, show) in rows {
            let Some(values) = values else { continue };
            let Some(summary) = curves.summary(&values) else { continue };
            // What is shown as 0 at its most is flat.
            let scale = if show(summary.max) == show(0.0) { 0.0 } else { 1.0 };
            let values: Vec<f64> = values.iter().map(|value| value * scale).collect();
            let line = chart::sparkline(&values, columns, self.options.ascii);
            let numbers = format!(
                "{}{}{}",
                right(&show(summary.min), 8),
                right(&show(summary.mean), 9),
                right(&show(summary.max), 9)
            );
            self.line(&format!("  {}{}  {numbers}", left(name, NAME), left(&line, columns)));
        }
        let numbers = &report.numbers;
        if let (Some(seconds), Some(start)) = (numbers.longest_idle_seconds, numbers.longest_idle_start) {
            let what = if job.gpus().next().is_some() { "all GPUs" } else { "all CPUs" };
            let line = format!(
                "  {what} idle for {} from {}",
                time(seconds),
                moment(start, &self.options.zone, "%d %b %H:%M")
            );
            self.line(&line);
        }
    }

    fn sums(&mut self, report: &Report) {
        self.blank();
        let lines = rows::sums(report);
        for pair in lines.chunks(2) {
            match pair {
                [one, two] if width(one) <= self.half() && width(two) <= self.half() => self.pair(one, two),
                some => some.iter().for_each(|line| self.lines("  ", 4, line)),
            }
        }
    }

    fn advice(&mut self, report: &Report) {
        self.blank();
        let advice = &report.advice;
        if advice.is_empty() {
            let nothing = format!("Advice: {}.", words::nothing_to_change(report));
            for line in wrapped(&nothing, self.options.width.saturating_sub(2)) {
                self.line(&format!("  {line}"));
            }
            return;
        }
        let title = self.bold("Advice");
        self.line(&format!("  {title}"));
        for each in advice.iter().take(MOST_ADVICE) {
            let (mark, colour) = match each.severity {
                Severity::Bad => ("✗", AnsiColor::Red),
                Severity::Warning => ("!", AnsiColor::Yellow),
                Severity::Hint => ("·", AnsiColor::Cyan),
            };
            let mark = self.painted(mark, Style::new().fg_color(Some(colour.into())).bold());
            self.lines(&format!("  {mark} "), 4, &format!("{}: {}", each.what, each.measured));
            // A line of a script has no second one: each option can have its own.
            let options = each.sbatch.as_deref().map(|options| self.sbatch(options));
            for option in options.into_iter().flatten() {
                self.line(&format!("      #SBATCH {option}"));
            }
            self.lines("      ", 6, &each.change);
        }
        if let Some(more) = advice.len().checked_sub(MOST_ADVICE).filter(|more| *more > 0) {
            self.line(&format!("    and {more} more: --format=json has all"));
        }
    }

    fn sbatch(&self, options: &str) -> Vec<String> {
        if width(options) + 14 <= self.options.width {
            return vec![options.to_owned()];
        }
        options
            .split(" --")
            .enumerate()
            .map(|(at, option)| if at == 0 { option.to_owned() } else { format!("--{option}") })
            .collect()
    }

    fn quality(&mut self, report: &Report) {
        self.blank();
        let data = format!("Data: {}.", words::data(report));
        for text in std::iter::once(&data).chain(&report.quality.notes) {
            self.lines("  ", 2, text);
        }
        // It would be none in two lines.
        if let Some(link) = &self.options.link {
            self.line(&format!("  {link}"));
        }
    }
}

/// The number that users know, and SLURM's own of an element of an array.
fn name_of(job: &Job) -> String {
    let number = shown(job.id, &job.identity);
    if job.id.to_string() == number { number } else { format!("{number} ({})", job.id) }
}

#[cfg(test)]
mod tests;
