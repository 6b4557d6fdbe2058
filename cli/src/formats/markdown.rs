//! Markdown as GitHub and GitLab read it (github.github.com/gfm), for tickets and wikis. Names are code: in it nothing is a link, a mention or HTML.

use jiff::tz::TimeZone;
use job_report::show::{bytes, percent, time};
use job_report::{Report, metric};

use super::{moment, nodes, rows, words};
use crate::job_id::shown;

/// How it is written.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most rows of the table of nodes.
    pub node_rows: usize,
    /// Of times.
    pub zone: TimeZone,
    /// A link to the dashboard.
    pub link: Option<String>,
}

/// The report.
pub fn render(report: &Report, options: &Options) -> String {
    let mut page = Page(String::new());
    page.line(&format!("## Job {}", plain(&shown(report.job.id, &report.job.identity))));
    page.line("");
    page.who(report, &options.zone);
    page.used(report);
    page.nodes(report, options.node_rows);
    page.advice(report);
    page.line("");
    page.line(&plain(&format!("Data: {}.", words::data(report))));
    for note in &report.quality.notes {
        page.line("");
        page.line(&plain(note));
    }
    if let Some(link) = &options.link {
        page.line("");
        page.line(&format!("<{}>", address(link)));
    }
    page.0
}

/// A page in the making.
struct Page(String);

impl Page {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn item(&mut self, name: &str, value: &str) {
        self.line(&format!("- {name}: {value}"));
    }

    fn row(&mut self, cells: &[String]) {
        self.line(&format!("| {} |", cells.join(" | ")));
    }

    fn who(&mut self, report: &Report, zone: &TimeZone) {
        let (job, numbers) = (&report.job, &report.numbers);
        let who = &job.identity;
        let cluster = job.cluster.clone().unwrap_or_default();
        for (name, value) in [
            ("Name", &who.name),
            ("User", if who.user.is_empty() { &who.uid } else { &who.user }),
            ("Account", &who.account),
            ("Partition", &who.partition),
            ("QOS", &who.qos),
            ("Cluster", &cluster),
        ] {
            if !value.is_empty() {
                self.item(name, &code(value));
            }
        }
        let run = if job.runs > 1 { format!(", run {} of {}", job.run, job.runs) } else { String::new() };
        self.item("State", &plain(&format!("{}{run}", words::state(job))));
        let limit = job.time_limit.map(|limit| format!(" of {}", time(limit))).unwrap_or_default();
        let waited =
            job.queued_seconds.map(|waited| format!(", waited {}", time(waited))).unwrap_or_default();
        let (start, until) = (moment(job.began(), zone, "%F %R"), moment(job.ended_at(), zone, "%F %R %Z"));
        let elapsed = time(numbers.elapsed_seconds);
        self.item("Time", &plain(&format!("{start} to {until}, {elapsed}{limit}{waited}")));
        let mut had = vec![words::count_of(job.nodes.len(), "node")];
        had.extend(numbers.cpus.map(|cpus| words::count(cpus, "CPU")));
        had.extend(job.total(&metric::MEMORY_LIMIT_BYTES).map(bytes));
        self.item("Had", &had.join(", "));
        self.item("GPUs", &code(&words::gpus(job, numbers)));
    }

    fn used(&mut self, report: &Report) {
        let used = rows::used(report);
        if !used.is_empty() {
            self.line("");
            self.line("| used | part | of what it had |");
            self.line("|---|--:|---|");
        }
        for row in used {
            self.row(&[row.name.trim().to_owned(), percent(row.part), plain(&row.of)]);
        }
        let sums = rows::sums(report);
        if !sums.is_empty() {
            self.line("");
        }
        for line in sums {
            self.line(&format!("- {}", plain(&line)));
        }
    }

    fn nodes(&mut self, report: &Report, most: usize) {
        if report.job.nodes.len() < 2 {
            return;
        }
        let columns = nodes::columns(&report.job);
        let (shown, others) = nodes::rows(&report.job, most);
        self.line("");
        let heads = std::iter::once("node").chain(columns.iter().map(|(head, ..)| *head));
        self.row(&heads.map(str::to_owned).collect::<Vec<_>>());
        self.line(&format!("|---|{}", "--:|".repeat(columns.len())));
        for node in shown {
            let cells = columns.iter().map(|(_, _, of)| of(node).unwrap_or_else(|| "-".to_owned()));
            self.row(&std::iter::once(cell(&node.name)).chain(cells).collect::<Vec<_>>());
        }
        if let Some(others) = others {
            self.line("");
            self.line(&plain(&others));
        }
    }

    fn advice(&mut self, report: &Report) {
        self.line("");
        if report.advice.is_empty() {
            return self.line("Advice: nothing to change, of what is known.");
        }
        self.line("### Advice");
        for advice in &report.advice {
            self.line("");
            self.line(&format!(
                "- {}: {}. {}",
                plain(&advice.what),
                plain(&advice.measured),
                plain(&advice.change)
            ));
            if let Some(option) = &advice.sbatch {
                self.line("");
                self.line("  ```sh");
                self.line(&format!("  #SBATCH {option}"));
                self.line("  ```");
            }
        }
    }
}

/// A text of others, as code.
fn code(text: &str) -> String {
    // The fence has to be longer than any run of backticks inside.
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // One space at each end is no part of the code.
    let space = if longest > 0 || text.trim() != text { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// The same in a table: cells end at a `|` even in code, and a backslash may hide one.
fn cell(text: &str) -> String {
    code(&text.replace(['|', '\\'], "\u{fffd}"))
}

/// Text without markup.
fn plain(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if "\\`*_{}[]<>#|~@!&$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A link that is a link and no more.
fn address(link: &str) -> String {
    let ends_one = |c: char| c.is_whitespace() || c.is_control() || "<>\"`\\|".contains(c);
    link.chars().map(|c| if ends_one(c) { "%20".to_owned() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_code_whatever_is_in_it() {
        for (text, expected) in [
            ("lattice", "`lattice`"),
            ("a`b``c", "``` a`b``c ```"),
            (" a ", "`  a  `"),
            ("<b>@all [x](y)", "`<b>@all [x](y)`"),
        ] {
            assert_eq!(code(text), expected);
        }
        assert_eq!(cell("a|b\\"), "`a\u{fffd}b\u{fffd}`");
        assert_eq!(plain("a_b #1"), "a\\_b \\#1");
        assert_eq!(address("https://g/d?a=b&c=\u{a0}<x>"), "https://g/d?a=b&c=%20%20x%20");
    }
}
