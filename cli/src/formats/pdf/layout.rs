//! Where everything is on the pages: pure, so that their number is known before one is drawn.

use svg_plots::text_width;

use super::super::document::{Block, Document, Drawing, Section, Table};
use super::super::words;
use crate::text::wrapped;
use job_report::{Advice, Severity};

/// A4 in points.
pub(super) const PAGE: (f64, f64) = (595.28, 841.89);
const LEFT: f64 = 40.0;
const RIGHT: f64 = PAGE.0 - LEFT;
const TOP: f64 = 52.0;
const BOTTOM: f64 = PAGE.1 - 44.0;

/// Sizes of text.
const TITLE: f64 = 16.0;
const HEADING: f64 = 11.5;
const BODY: f64 = 8.5;
const CELL: f64 = 7.0;
/// A row of a table, of the size of its text.
const ROW: f64 = 1.6;
/// Smaller is not read.
const LEAST_CELL: f64 = 4.5;

/// Sums of widths are not exact.
const ROUNDING: f64 = 0.01;

/// A colour of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Text,
    Quiet,
    Line,
    Raised,
    Bad,
    Warning,
    Hint,
    Good,
}

/// What is drawn.
#[derive(Debug)]
pub(super) enum Shape<'a> {
    /// From its left end, on its base line.
    Text { text: String, size: f64, bold: bool },
    /// Of this width and height.
    Rect(f64, f64),
    /// Of this width and height.
    Svg(&'a str, f64, f64),
}

/// Something at a place.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) at: (f64, f64),
    pub(super) ink: Ink,
    pub(super) shape: Shape<'a>,
    /// Of which part of the document it is; none of what repeats or decorates.
    pub(super) part: Option<usize>,
}

/// What a part of the document is, for readers that do not see the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Heading(u16),
    Paragraph,
    Figure(String),
    Table,
    Row,
    Head,
    Cell,
}

/// A part of the document.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    /// What it is in.
    pub(super) parent: Option<usize>,
}

/// Pages, and the parts in their order.
#[derive(Debug, Default)]
pub(super) struct Layout<'a> {
    pub(super) pages: Vec<Vec<Item<'a>>>,
    pub(super) parts: Vec<Part>,
    y: f64,
}

/// The whole document.
pub(super) fn layout(document: &Document) -> Layout<'_> {
    let mut layout = Layout::default();
    layout.header(document);
    for section in &document.sections {
        layout.section(section);
    }
    if let Some(link) = &document.link {
        layout.paragraph(link, Ink::Quiet, BODY, 0.0);
    }
    layout.margins(document);
    layout
}

/// Bold letters are wider: DejaVu Sans Bold has digits of 0.696 of its size, DejaVu Sans of 0.636.
fn width(text: &str, size: f64, bold: bool) -> f64 {
    text_width(text, size) * if bold { 1.13 } else { 1.0 }
}

/// As much of a text as has room.
fn fitted(text: &str, size: f64, bold: bool, room: f64) -> String {
    if width(text, size, bold) <= room {
        return text.to_owned();
    }
    let mut cut = text.to_owned();
    while cut.pop().is_some() {
        let shown = format!("{}…", cut.trim_end());
        if width(&shown, size, bold) <= room {
            return shown;
        }
    }
    String::new()
}

/// Lines that have room: by the width of a mean letter, then each by its own.
fn lines(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut columns = 200;
    loop {
        #[allow(clippy::cast_precision_loss, reason = "at most 200")]
        let lines = wrapped(text, columns);
        if columns <= 8 || lines.iter().all(|line| text_width(line, size) <= room) {
            return lines.iter().map(|line| fitted(line, size, false, room)).collect();
        }
        columns = columns * 9 / 10;
    }
}

pub(super) fn ink(severity: Option<Severity>) -> Ink {
    match severity {
        Some(Severity::Bad) => Ink::Bad,
        Some(Severity::Warning) => Ink::Warning,
        Some(Severity::Hint) => Ink::Hint,
        None => Ink::Good,
    }
}

impl<'a> Layout<'a> {
    fn part(&mut self, kind: Kind, parent: Option<usize>) -> usize {
        self.parts.push(Part { kind, parent });
        self.parts.len() - 1
    }

    /// A page that has so much room, the present one if it can be.
    fn need(&mut self, height: f64) {
        if self.pages.is_empty() || self.y + height > BOTTOM {
            self.pages.push(Vec::new());
            self.y = TOP;
        }
    }

    /// Room that is not worth a page.
    fn space(&mut self, height: f64) {
        if self.y > TOP {
            self.y += height;
        }
    }

    fn put(&mut self, at: (f64, f64), ink: Ink, shape: Shape<'a>, part: Option<usize>) {
        if let Some(page) = self.pages.last_mut() {
            page.push(Item { at, ink, shape, part });
        }
    }

    fn text(
        &mut self,
        (x, y): (f64, f64),
        (text, size, bold): (&str, f64, bool),
        ink: Ink,
        part: Option<usize>,
    ) {
        let text = fitted(text, size, bold, RIGHT - x);
        if !text.trim().is_empty() {
            self.put((x, y), ink, Shape::Text { text, size, bold }, part);
        }
    }

    fn paragraph(&mut self, text: &str, ink: Ink, size: f64, indent: f64) {
        let part = self.part(Kind::Paragraph, None);
        for line in lines(text, size, RIGHT - LEFT - indent) {
            self.need(size * 1.4);
            self.text((LEFT + indent, self.y + size), (&line, size, false), ink, Some(part));
            self.y += size * 1.4;
        }
    }

    fn heading(&mut self, text: &str, level: u16, size: f64) {
        let part = self.part(Kind::Heading(level), None);
        self.text((LEFT, self.y + size), (text, size, true), Ink::Text, Some(part));
        self.y += size * 1.5;
    }

    fn header(&mut self, document: &Document) {
        self.need(0.0);
        let title = format!("{}  {}", document.title, document.name);
        self.heading(title.trim_end(), 1, TITLE);
        let (severity, text) = &document.verdict;
        let part = self.part(Kind::Paragraph, None);
        self.put((LEFT, self.y - 2.0), Ink::Raised, Shape::Rect(RIGHT - LEFT, 20.0), None);
        self.put((LEFT, self.y - 2.0), ink(*severity), Shape::Rect(3.0, 20.0), None);
        self.text((LEFT + 9.0, self.y + 11.5), (text, 10.0, true), ink(*severity), Some(part));
        self.y += 28.0;
        let (columns, room) = (3, (RIGHT - LEFT) / 3.0);
        for row in document.facts.chunks(columns) {
            let (mut x, mut most) = (LEFT, 1.0_f64);
            for (name, value) in row {
                let part = self.part(Kind::Paragraph, None);
                let name = fitted(name, 6.5, false, room - 8.0);
                self.text((x, self.y + 6.5), (&name, 6.5, false), Ink::Quiet, Some(part));
                let mut y = self.y + 16.5;
                for line in lines(value, BODY, room - 8.0) {
                    self.text((x, y), (&line, BODY, false), Ink::Text, Some(part));
                    y += BODY * 1.25;
                }
                most = most.max((y - self.y - 16.5) / (BODY * 1.25));
                x += room;
            }
            self.y += 12.4 + most * BODY * 1.25;
        }
    }

    fn section(&mut self, section: &'a Section) {
        self.space(8.0);
        // A heading is on the page of what follows it.
        let follows = section.blocks.first().map_or(0.0, least_height);
        self.need(HEADING * 1.5 + 4.0 + follows);
        self.heading(section.title, 2, HEADING);
        self.put((LEFT, self.y - 3.0), Ink::Line, Shape::Rect(RIGHT - LEFT, 0.6), None);
        self.y += 3.0;
        for block in &section.blocks {
            match block {
                Block::Lines(lines) => {
                    lines.iter().for_each(|line| self.paragraph(line, Ink::Text, BODY, 0.0));
                }
                Block::Advice(all) => all.iter().for_each(|each| self.advice(each)),
                Block::Drawing(drawing) => self.drawing(drawing),
                Block::Table(table) => self.table(table),
            }
        }
    }

    fn advice(&mut self, advice: &Advice) {
        self.need(50.0);
        let ink = ink(Some(advice.severity));
        let title = format!("{} {}: {}", words::severity(advice.severity), advice.what, advice.measured);
        let part = self.part(Kind::Heading(3), None);
        self.text((LEFT, self.y + BODY), (&title, BODY, true), ink, Some(part));
        self.y += BODY * 1.4;
        if let Some(option) = &advice.sbatch {
            self.paragraph(&format!("#SBATCH {option}"), Ink::Text, BODY, 12.0);
        }
        self.paragraph(&format!("{}.", advice.change), Ink::Text, BODY, 12.0);
        self.paragraph(&format!("Applies: {}.", advice.threshold), Ink::Quiet, CELL, 12.0);
        self.space(4.0);
    }

    fn drawing(&mut self, drawing: &'a Drawing) {
        let (width, height) = drawing_size(drawing);
        self.need(height);
        let part = self.part(Kind::Figure(drawing.description.clone()), None);
        let x = LEFT + (RIGHT - LEFT - width) / 2.0;
        self.put((x, self.y), Ink::Text, Shape::Svg(&drawing.svg, width, height), Some(part));
        self.y += height + 4.0;
    }

    fn table(&mut self, table: &Table) {
        self.space(4.0);
        let columns = Columns::of(table);
        let row = columns.size * ROW;
        self.need(CELL * 1.6 + row * 3.0);
        let caption = self.part(Kind::Paragraph, None);
        self.text((LEFT, self.y + BODY), (table.caption, BODY, true), Ink::Text, Some(caption));
        self.y += BODY * 1.6;
        let part = self.part(Kind::Table, None);
        self.heads(table, &columns, Some(part));
        let rows = table.rows.iter().map(|row| (row, false));
        for (cells, bold) in rows.chain(table.total.iter().map(|row| (row, true))) {
            let cells: Vec<Vec<String>> = columns.wrapped(cells);
            let most = cells.iter().map(Vec::len).max().unwrap_or(1);
            #[allow(clippy::cast_precision_loss, reason = "some lines")]
            let height = row * most as f64;
            if self.y + height > BOTTOM {
                self.need(height);
                // The heads once more, for those who see.
                self.heads(table, &columns, None);
            }
            let in_row = self.part(Kind::Row, Some(part));
            self.cells(&columns, &cells, (bold, Ink::Text), |layout, at| {
                Some(layout.part(if at == 0 { Kind::Head } else { Kind::Cell }, Some(in_row)))
            });
            self.y += height;
            self.put((LEFT, self.y), Ink::Line, Shape::Rect(columns.width(), 0.3), None);
        }
        self.y += 8.0;
    }

    fn heads(&mut self, table: &Table, columns: &Columns, part: Option<usize>) {
        let row = part.map(|part| self.part(Kind::Row, Some(part)));
        let cells: Vec<Vec<String>> = table.heads.iter().map(|head| vec![head.name.to_owned()]).collect();
        self.cells(columns, &cells, (true, Ink::Quiet), |layout, _| {
            row.map(|row| layout.part(Kind::Head, Some(row)))
        });
        self.y += columns.size * ROW;
        self.put((LEFT, self.y), Ink::Quiet, Shape::Rect(columns.width(), 0.6), None);
    }

    fn cells(
        &mut self,
        columns: &Columns,
        cells: &[Vec<String>],
        (bold, ink): (bool, Ink),
        mut part: impl FnMut(&mut Self, usize) -> Option<usize>,
    ) {
        let mut x = LEFT;
        for (at, (lines, (room, number))) in cells.iter().zip(&columns.columns).enumerate() {
            let part = part(self, at);
            let mut y = self.y + columns.size * 1.15;
            for line in lines {
                let line = fitted(line, columns.size, bold, room - columns.gap() + ROUNDING);
                let used = width(&line, columns.size, bold);
                let x = if *number { x + room - columns.gap() - used } else { x };
                self.text((x, y), (&line, columns.size, bold), ink, part);
                y += columns.size * ROW;
            }
            x += room;
        }
    }

    /// The line above each page, and its number.
    fn margins(&mut self, document: &Document) {
        let of = self.pages.len();
        let title = format!("{}  {}", document.title, document.name);
        for (at, page) in self.pages.iter_mut().enumerate() {
            let mut put = |at, ink, shape| page.push(Item { at, ink, shape, part: None });
            let mut text = |x: f64, y, text: &str, right: bool| {
                let text = fitted(text, CELL, false, (RIGHT - LEFT) / 2.0 - 10.0);
                let x = if right { x - width(&text, CELL, false) } else { x };
                if !text.is_empty() {
                    put((x, y), Ink::Quiet, Shape::Text { text, size: CELL, bold: false });
                }
            };
            text(LEFT, 32.0, title.trim_end(), false);
            text(RIGHT, 32.0, &document.summary, true);
            text(RIGHT, PAGE.1 - 26.0, &format!("page {} of {of}", at + 1), true);
            text(LEFT, PAGE.1 - 26.0, "Jobledger", false);
            put((LEFT, 37.0), Ink::Line, Shape::Rect(RIGHT - LEFT, 0.5));
        }
    }
}

/// Of a drawing on a page: as wide as it, but not higher.
fn drawing_size(drawing: &Drawing) -> (f64, f64) {
    let (width, height) = svg_size(&drawing.svg).unwrap_or((1.0, 1.0));
    let most = BOTTOM - TOP - HEADING * 1.5 - 12.0;
    let scale = ((RIGHT - LEFT) / width).min(most / height);
    (width * scale, height * scale)
}

/// The first `width` and `height`, which are the drawing's.
fn svg_size(svg: &str) -> Option<(f64, f64)> {
    let of = |name: &str| svg.split_once(name)?.1.split('"').next()?.parse().ok().filter(|size| *size > 0.0);
    Some((of(" width=\"")?, of(" height=\"")?))
}

/// What a heading wants to have under it on its page.
fn least_height(block: &Block) -> f64 {
    match block {
        Block::Drawing(drawing) => drawing_size(drawing).1,
        Block::Lines(_) => BODY * 1.4,
        Block::Advice(_) | Block::Table(_) => 60.0,
    }
}

/// Widths of the columns of a table, and the size of its text.
struct Columns {
    size: f64,
    /// Width with the gap, and whether it holds numbers.
    columns: Vec<(f64, bool)>,
}

impl Columns {
    fn of(table: &Table) -> Self {
        let room = RIGHT - LEFT;
        let all = || table.rows.iter().chain(&table.total);
        let widest = |at: usize, size: f64| {
            let head = table.heads.get(at).map_or(0.0, |head| width(head.name, size, true));
            let bold = |row: &Vec<_>| table.total.as_ref().is_some_and(|total| std::ptr::eq(total, row));
            let cells = all().map(|row| (row.get(at).and_then(Option::as_deref).unwrap_or("-"), bold(row)));
            cells.map(|(cell, bold)| width(cell, size, bold)).fold(head, f64::max)
        };
        let mut columns = Self { size: CELL, columns: Vec::new() };
        loop {
            let gap = columns.gap();
            columns.columns = table
                .heads
                .iter()
                .enumerate()
                .map(|(at, head)| (widest(at, columns.size) + gap, head.number))
                .collect();
            let over = columns.width() - room;
            if over <= 0.0 {
                return columns;
            }
            // Sentences are broken into lines; numbers are written smaller.
            let words = columns.columns.iter_mut().filter(|(_, number)| !number);
            if let Some((widest, _)) = words.max_by(|(a, _), (b, _)| a.total_cmp(b))
                && *widest - over >= 120.0
            {
                *widest -= over;
                return columns;
            }
            if columns.size <= LEAST_CELL {
                let scale = room / columns.width();
                columns.columns.iter_mut().for_each(|(width, _)| *width *= scale);
                return columns;
            }
            columns.size -= 0.25;
        }
    }

    fn gap(&self) -> f64 {
        self.size
    }

    fn width(&self) -> f64 {
        self.columns.iter().map(|(width, _)| width).sum()
    }

    fn wrapped(&self, row: &[Option<String>]) -> Vec<Vec<String>> {
        let cells = row.iter().map(|cell| cell.as_deref().unwrap_or("-"));
        cells
            .zip(&self.columns)
            .map(|(cell, (room, number))| match number {
                true => vec![cell.to_owned()],
                false => lines(cell, self.size, room - self.gap() + ROUNDING),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
