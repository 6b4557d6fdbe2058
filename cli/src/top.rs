//! The screen of `jobledger top`: what it shows, and what keys do. Nothing here asks a server or reads a terminal.

use job_report::Thresholds;
use job_report::show::{bytes, digits, percent, si, time};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::arguments::TopSort;
use crate::formats::table::Head;
use crate::job_id::shown;
use crate::source::prometheus::RunningJob;
use crate::text::cut;

/// The columns, and the least that each has on the screen.
const COLUMNS: [(Head, u16); 11] = [
    (Head { name: "job", number: false }, 10),
    (Head { name: "user", number: false }, 10),
    (Head { name: "name", number: false }, 12),
    (Head { name: "time", number: true }, 10),
    (Head { name: "nodes", number: true }, 5),
    (Head { name: "cores", number: true }, 6),
    (Head { name: "cpu", number: true }, 5),
    (Head { name: "memory", number: true }, 6),
    (Head { name: "gpus", number: true }, 4),
    (Head { name: "gpu", number: true }, 5),
    (Head { name: "power", number: true }, 8),
];
const NAME: usize = 24;
const KEYS: &str =
    "q quit  Enter report  r look now  sort: i idle  c cores  m memory  p power  t time  j job";

/// The heads of the table.
pub(crate) fn heads() -> Vec<Head> {
    COLUMNS.iter().map(|(head, _)| *head).collect()
}

/// A row of it; `None` is not known.
pub fn row(job: &RunningJob, now: f64) -> Vec<Option<String>> {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    vec![
        Some(shown(job.id, &job.identity)),
        text(&job.identity.user),
        text(&cut(&job.identity.name, NAME)),
        Some(time(now - job.start)),
        Some(digits(job.nodes)),
        job.cores.map(digits),
        cpu_use(job).map(percent),
        memory_use(job).map(percent),
        job.gpus.map(digits),
        gpu_use(job).map(percent),
        watts(job).map(|watts| si(watts, "W")),
    ]
}

/// Cores kept busy of those that it has.
fn cpu_use(job: &RunningJob) -> Option<f64> {
    let cores = job.cores.filter(|cores| *cores > 0.0)?;
    Some((job.cores_used? / cores).min(1.0))
}

/// Memory held of what it may use.
fn memory_use(job: &RunningJob) -> Option<f64> {
    Some(job.memory_held? / job.memory_limit.filter(|limit| *limit > 0.0)?)
}

/// Busy of the time in which its GPUs were seen.
fn gpu_use(job: &RunningJob) -> Option<f64> {
    let (busy, idle) = (job.gpus_busy.unwrap_or(0.0), job.gpus_idle?);
    (busy + idle > 0.0).then(|| busy / (busy + idle))
}

/// Of a job with GPUs only with theirs.
fn watts(job: &RunningJob) -> Option<f64> {
    let watts = job.watts?;
    if job.gpus.is_some_and(|gpus| gpus > 0.0) { Some(watts + job.gpu_watts?) } else { Some(watts) }
}

fn idle_cores(job: &RunningJob) -> Option<f64> {
    job.cores.zip(job.cores_used).map(|(cores, used)| (cores - used).max(0.0))
}

fn idle_gpus(job: &RunningJob) -> f64 {
    job.gpus_idle.unwrap_or(0.0)
}

/// Sorts them. What is not known is last.
pub fn sort(jobs: &mut [RunningJob], by: TopSort) {
    let most = |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
    // A hundredth of a GPU is noise.
    let hundredths = |gpus: f64| (gpus * 100.0).round();
    jobs.sort_by(|a, b| {
        let order = match by {
            TopSort::Idle => hundredths(idle_gpus(b))
                .total_cmp(&hundredths(idle_gpus(a)))
                .then(most(idle_cores(a), idle_cores(b))),
            TopSort::Cores => most(idle_cores(a), idle_cores(b)),
            TopSort::Memory => most(a.memory_held, b.memory_held),
            TopSort::Power => most(watts(a), watts(b)),
            TopSort::Time => a.start.total_cmp(&b.start),
            TopSort::Job => a.id.cmp(&b.id),
        };
        order.then(a.id.cmp(&b.id))
    });
}

/// All jobs in a line: `12 jobs: 3.1 of 8 GPUs idle, 310 of 1200 cores idle, 512 GiB held, 24.1 kW`. What is not known of some is no part of a sum,
/// and the line says so.
pub fn summary(jobs: &[RunningJob]) -> String {
    let sum = |of: fn(&RunningJob) -> Option<f64>| jobs.iter().filter_map(of).sum::<f64>();
    let idle = |name: &str, idle: fn(&RunningJob) -> Option<f64>, of: fn(&RunningJob) -> Option<f64>| {
        let unknown: f64 = jobs.iter().filter(|job| idle(job).is_none()).filter_map(of).sum();
        let unknown = if unknown > 0.0 { format!(", {} not known", digits(unknown)) } else { String::new() };
        format!("{} of {} {name} idle{unknown}", digits(sum(idle)), digits(sum(of)))
    };
    let mut parts = Vec::new();
    if sum(|job| job.gpus) > 0.0 {
        parts.push(idle("GPUs", |job| job.gpus_idle, |job| job.gpus));
    }
    parts.push(idle("cores", idle_cores, |job| job.cores));
    parts.push(format!("{} held", bytes(sum(|job| job.memory_held))));
    let plural = |count: usize| format!("{count} job{}", if count == 1 { "" } else { "s" });
    match jobs.iter().filter_map(watts).count() {
        0 => {}
        known if known == jobs.len() => parts.push(si(sum(watts), "W")),
        known => parts.push(format!("{} of {}", si(sum(watts), "W"), plural(known))),
    }
    format!("{}: {}", plural(jobs.len()), parts.join(", "))
}

/// What a key asks of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// The end.
    Quit,
    /// A look at the jobs now.
    Look,
    /// The report of the job with this name.
    Report(String),
}

/// A report that covers the table.
#[derive(Debug, Clone)]
struct Page {
    text: String,
    first_line: u16,
}

/// What is on the screen.
#[derive(Debug)]
pub struct Screen {
    jobs: Vec<RunningJob>,
    by: TopSort,
    state: TableState,
    page: Option<Page>,
    /// What is said at the left of the last line but one, such as a failure.
    note: String,
    /// When the jobs were looked at: seconds, and as text.
    at: (f64, String),
    colour: bool,
    limits: [f64; 4],
}

impl Screen {
    /// An empty one.
    pub fn new(by: TopSort, colour: bool, thresholds: &Thresholds) -> Self {
        let names = ["cpu_low_ratio", "cpu_fair", "gpu_low_use_ratio", "gpu_fair"];
        let limits = names.map(|name| thresholds.get(name).unwrap_or(0.0));
        let state = TableState::default().with_selected(0);
        Self {
            jobs: Vec::new(),
            by,
            state,
            page: None,
            note: String::new(),
            at: (0.0, String::new()),
            colour,
            limits,
        }
    }

    /// Shows these jobs, with the same one selected wherever it is now.
    pub fn show(&mut self, jobs: Vec<RunningJob>, at: (f64, String)) {
        let selected = self.selected().map(|job| (job.id, job.start));
        (self.jobs, self.at) = (jobs, at);
        self.note.clear();
        self.order(selected);
    }

    /// Says something until the next look.
    pub fn say(&mut self, note: String) {
        self.note = note;
    }

    /// Covers the table with a report.
    pub fn cover(&mut self, text: String) {
        self.page = Some(Page { text, first_line: 0 });
    }

    fn selected(&self) -> Option<&RunningJob> {
        self.jobs.get(self.state.selected()?)
    }

    fn order(&mut self, selected: Option<(u64, f64)>) {
        sort(&mut self.jobs, self.by);
        let is_it = |job: &RunningJob| Some((job.id, job.start)) == selected;
        let last = self.jobs.len().saturating_sub(1);
        let at = self.jobs.iter().position(is_it).or(self.state.selected().map(|at| at.min(last)));
        self.state.select(at.or(Some(0)));
    }

    /// Does what a key means, and says what is asked of the program.
    pub fn key(&mut self, key: KeyEvent) -> Option<Ask> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Ask::Quit);
        }
        if let Some(page) = &mut self.page {
            let lines = u16::try_from(page.text.lines().count()).unwrap_or(u16::MAX);
            page.first_line = match key.code {
                KeyCode::Down => page.first_line.saturating_add(1).min(lines.saturating_sub(1)),
                KeyCode::PageDown => page.first_line.saturating_add(10).min(lines.saturating_sub(1)),
                KeyCode::Up => page.first_line.saturating_sub(1),
                KeyCode::PageUp => page.first_line.saturating_sub(10),
                _ => {
                    self.page = None;
                    return None;
                }
            };
            return None;
        }
        let by = match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Ask::Quit),
            KeyCode::Char('r') => return Some(Ask::Look),
            KeyCode::Enter => {
                return self.selected().map(|job| Ask::Report(shown(job.id, &job.identity)));
            }
            KeyCode::Down => {
                self.state.select_next();
                return None;
            }
            KeyCode::Up => {
                self.state.select_previous();
                return None;
            }
            KeyCode::PageDown => {
                self.state.scroll_down_by(10);
                return None;
            }
            KeyCode::PageUp => {
                self.state.scroll_up_by(10);
                return None;
            }
            KeyCode::Home => {
                self.state.select_first();
                return None;
            }
            KeyCode::End => {
                self.state.select_last();
                return None;
            }
            KeyCode::Char('i') => TopSort::Idle,
            KeyCode::Char('c') => TopSort::Cores,
            KeyCode::Char('m') => TopSort::Memory,
            KeyCode::Char('p') => TopSort::Power,
            KeyCode::Char('t') => TopSort::Time,
            KeyCode::Char('j') => TopSort::Job,
            _ => return None,
        };
        self.by = by;
        // The first ones are what somebody who sorts wants to see.
        self.state.select_first();
        sort(&mut self.jobs, by);
        None
    }

    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1), Constraint::Length(1)];
        let [head, middle, note, keys] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Line::from(format!("{}  {}", self.at.1, summary(&self.jobs))), head);
        match &self.page {
            Some(page) => {
                let text = Paragraph::new(Text::from(page.text.as_str())).scroll((page.first_line, 0));
                frame.render_widget(text, middle);
            }
            None => {
                let table = self.table();
                frame.render_stateful_widget(table, middle, &mut self.state);
            }
        }
        frame.render_widget(Line::from(self.note.as_str()), note);
        let help = if self.page.is_some() { "Up, Down scroll  any other key: back" } else { KEYS };
        frame.render_widget(Line::from(help).style(Style::new().add_modifier(Modifier::DIM)), keys);
    }

    fn table(&self) -> Table<'static> {
        let cell = |(text, (head, _)): (Option<String>, &(Head, u16))| {
            let text = Text::from(text.unwrap_or_else(|| "-".to_owned()));
            if head.number { text.right_aligned() } else { text }
        };
        let head = Row::new(COLUMNS.iter().map(|column| cell((Some(column.0.name.to_uppercase()), column))));
        let rows = self.jobs.iter().map(|job| {
            let styles = [
                (6, cpu_use(job), self.limits.first_chunk::<2>()),
                (9, gpu_use(job), self.limits.last_chunk::<2>()),
            ];
            let cells = row(job, self.at.0).into_iter().zip(&COLUMNS).map(cell).enumerate();
            Row::new(cells.map(|(at, text)| {
                let style = styles.iter().find(|(column, ..)| *column == at);
                let style = style.and_then(|(_, part, limits)| Some(self.style(*part, (*limits)?)));
                Cell::from(text).style(style.unwrap_or_default())
            }))
        });
        let widths = COLUMNS.iter().map(|(head, least)| match head.name {
            "name" => Constraint::Min(*least),
            _ => Constraint::Length(*least),
        });
        Table::new(rows, widths)
            .header(head.style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn style(&self, part: Option<f64>, limits: &[f64; 2]) -> Style {
        let [low, fair] = *limits;
        match part.filter(|_| self.colour) {
            Some(part) if part < low => Style::new().fg(Color::Red),
            Some(part) if part < fair => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use job_report::Identity;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::testing::THRESHOLDS;

    const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

    fn job(id: u64, cores_used: f64, gpus: Option<(f64, f64)>) -> RunningJob {
        let identity =
            Identity { user: "alice".to_owned(), name: "train x".to_owned(), ..Identity::default() };
        RunningJob {
            id,
            identity,
            start: 1000.0 - 60.0 * f64::from(u32::try_from(id).unwrap()),
            nodes: 1.0,
            cores: Some(8.0),
            cores_used: Some(cores_used),
            memory_held: Some(3.0 * GIB),
            memory_limit: Some(12.0 * GIB),
            gpus: Some(gpus.map_or(0.0, |(busy, idle)| (busy + idle).round())),
            gpus_busy: gpus.map(|(busy, _)| busy),
            gpus_idle: gpus.map(|(_, idle)| idle),
            watts: Some(200.0),
            gpu_watts: gpus.map(|_| 300.0),
        }
    }

    fn jobs() -> Vec<RunningJob> {
        vec![
            job(1, 7.9, None),
            job(2, 1.0, None),
            job(3, 4.0, Some((1.9, 0.1))),
            job(4, 7.0, Some((0.0, 4.0))),
        ]
    }

    fn screen() -> Screen {
        let mut screen = Screen::new(TopSort::Idle, true, &THRESHOLDS);
        screen.show(jobs(), (1000.0, "21:00:00".to_owned()));
        screen
    }

    fn drawn(screen: &mut Screen) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(90, 9)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal
    }

    fn lines(screen: &mut Screen) -> Vec<String> {
        let terminal = drawn(screen);
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(buffer.area.width));
        rows.map(|row| {
            row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
        })
        .collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Option<Ask> {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn order(screen: &mut Screen) -> Vec<u64> {
        screen.jobs.iter().map(|job| job.id).collect()
    }

    #[test]
    fn jobs_with_idle_gpus_are_first() {
        let expected = [
            "21:00:00  4 jobs: 4.1 of 6 GPUs idle, 12.1 of 32 cores idle, 12 GiB held, 1.4 kW",
            "JOB        USER       NAME               TIME NODES CORES   CPU MEMORY GPUS   GPU    POWER",
            "4          alice      train x        00:04:00     1     8  88 %   25 %    4   0 %    500 W",
            "3          alice      train x        00:03:00     1     8  50 %   25 %    2  95 %    500 W",
            "2          alice      train x        00:02:00     1     8  12 %   25 %    0     -    200 W",
            "1          alice      train x        00:01:00     1     8  99 %   25 %    0     -    200 W",
            "",
            "",
            "q quit  Enter report  r look now  sort: i idle  c cores  m memory  p power  t time  j job",
        ];
        assert_eq!(lines(&mut screen()), expected);
    }

    #[test]
    fn the_head_says_what_its_sums_lack() {
        let mut jobs = jobs();
        jobs[0].cores_used = None;
        jobs[2].gpus_idle = None;
        jobs[2].gpu_watts = None;
        assert_eq!(
            summary(&jobs),
            "4 jobs: 4 of 6 GPUs idle, 2 not known, 12 of 32 cores idle, 8 not known, 12 GiB held, 900 W of 3 jobs"
        );
        sort(&mut jobs, TopSort::Cores);
        assert_eq!(jobs.last().unwrap().id, 1);
    }

    #[test]
    fn what_is_low_is_coloured_as_in_reports() {
        let mut screen = screen();
        let colour = |terminal: &Terminal<TestBackend>, row: u16, text: &str| {
            let buffer = terminal.backend().buffer();
            let cells = || (0..90).map(|at| &buffer[(at, row)]);
            let line: String = cells().map(ratatui::buffer::Cell::symbol).collect();
            let at = line.rfind(text).unwrap();
            cells().nth(line[..at].chars().count()).unwrap().fg
        };
        let terminal = drawn(&mut screen);
        assert_eq!(colour(&terminal, 2, "0 %    500"), Color::Red);
        assert_eq!(colour(&terminal, 3, "50 %"), Color::Yellow);
        assert_eq!(colour(&terminal, 4, "12 %"), Color::Red);
        assert_eq!(colour(&terminal, 5, "99 %"), Color::Reset);
        screen.colour = false;
        assert_eq!(colour(&drawn(&mut screen), 4, "12 %"), Color::Reset);
    }

    #[test]
    fn keys_sort_and_move() {
        let mut screen = screen();
        for (key, expected) in [
            ('c', [2, 3, 4, 1]),
            ('p', [3, 4, 1, 2]),
            ('t', [4, 3, 2, 1]),
            ('j', [1, 2, 3, 4]),
            ('m', [1, 2, 3, 4]),
            ('i', [4, 3, 2, 1]),
        ] {
            assert_eq!(press(&mut screen, KeyCode::Char(key)), None);
            assert_eq!(order(&mut screen), expected, "{key}");
        }
        press(&mut screen, KeyCode::Down);
        assert_eq!(press(&mut screen, KeyCode::Enter), Some(Ask::Report("3".to_owned())));
        // The job is still the one when others come and go.
        let mut now = jobs();
        now.push(job(5, 0.0, Some((0.0, 8.0))));
        screen.show(now, (1030.0, String::new()));
        assert_eq!(press(&mut screen, KeyCode::Enter), Some(Ask::Report("3".to_owned())));
        screen.show(vec![job(9, 1.0, None)], (1060.0, String::new()));
        assert_eq!(press(&mut screen, KeyCode::Enter), Some(Ask::Report("9".to_owned())));
        screen.show(Vec::new(), (1090.0, String::new()));
        assert_eq!(press(&mut screen, KeyCode::Enter), None);
        assert_eq!(press(&mut screen, KeyCode::Char('r')), Some(Ask::Look));
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Some(Ask::Quit));
        assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Ask::Quit));
    }

    #[test]
    fn a_report_covers_the_table_until_a_key() {
        let mut screen = screen();
        screen.cover((1..=30).map(|line| format!("line {line}\n")).collect());
        assert_eq!(lines(&mut screen)[1], "line 1");
        for (key, first) in [
            (KeyCode::Down, 2),
            (KeyCode::PageDown, 12),
            (KeyCode::PageDown, 22),
            (KeyCode::PageDown, 30),
            (KeyCode::PageUp, 20),
            (KeyCode::Up, 19),
        ] {
            assert_eq!(press(&mut screen, key), None);
            assert_eq!(lines(&mut screen)[1], format!("line {first}"));
        }
        assert_eq!(press(&mut screen, KeyCode::Char('q')), None);
        assert!(lines(&mut screen)[1].starts_with("JOB"));
        screen.say("the server does not answer".to_owned());
        assert_eq!(lines(&mut screen)[7], "the server does not answer");
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn_on() {
        let mut screen = screen();
        for (width, height) in [(1, 1), (0, 0), (20, 3), (400, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
        }
    }
}
