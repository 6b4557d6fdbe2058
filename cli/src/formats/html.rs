//! The report as one HTML file: no script, nothing from elsewhere, light and dark, and fit for paper.

use job_report::{Advice, Report, Severity, Thresholds};
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use super::document::Options;
use super::document::{Block, Document, Section, Table};

/// Nothing is loaded, and the page's own styles alone apply.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = include_str!("html/style.css");

/// The page.
pub fn render(report: &Report, thresholds: &Thresholds, options: &Options) -> String {
    let document = Document::new(report, thresholds, options);
    let title = format!("{} {}", document.title, document.name);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="description" content=(document.summary);
                meta name="generator" content=(concat!("jobledger ", env!("CARGO_PKG_VERSION")));
                title { (title.trim()) }
                style { (PreEscaped(svg_plots::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                (header(&document))
                main {
                    @for (at, each) in document.sections.iter().enumerate() { (section(at, each)) }
                }
                footer {
                    @if let Some(link) = &document.link {
                        // Another scheme than these could be a script.
                        @if link.starts_with("https://") || link.starts_with("http://") {
                            p { a href=(link) rel="noreferrer" { "The job in Grafana" } }
                        } @else { p { (link) } }
                    }
                }
            }
        }
    };
    page.into_string()
}

fn header(document: &Document) -> Markup {
    html! {
        header {
            h1 { (document.title) @if !document.name.is_empty() { " " span.name { (document.name) } } }
            p.verdict.(class(document.verdict.0)) { (document.verdict.1) }
            dl.facts {
                @for (name, value) in &document.facts { div { dt { (name) } dd { (value) } } }
            }
        }
    }
}

fn class(severity: Option<Severity>) -> &'static str {
    match severity {
        Some(Severity::Bad) => "bad",
        Some(Severity::Warning) => "warning",
        Some(Severity::Hint) => "hint",
        None => "good",
    }
}

fn section(at: usize, section: &Section) -> Markup {
    let id = format!("s{}", at + 1);
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (section.title) }
            // Drawings beside each other are one grid.
            @for group in section.blocks.chunk_by(|a, b| is_drawing(a) && is_drawing(b)) {
                @if group.iter().all(is_drawing) {
                    div.drawings { @for each in group { (block(each)) } }
                } @else {
                    @for each in group { (block(each)) }
                }
            }
        }
    }
}

fn is_drawing(block: &Block) -> bool {
    matches!(block, Block::Drawing(_))
}

fn block(block: &Block) -> Markup {
    html! {
        @match block {
            Block::Lines(lines) => ul.lines { @for line in lines { li { (line) } } },
            Block::Advice(all) => ol.advice { @for each in all { (advice(each)) } },
            // It says itself what it shows: title and description are in it.
            Block::Drawing(drawing) => figure { (PreEscaped(&drawing.svg)) },
            Block::Table(each) => (table(each)),
        }
    }
}

fn advice(advice: &Advice) -> Markup {
    html! {
        li.(class(Some(advice.severity))) {
            h3 { span.mark { (super::words::severity(advice.severity)) } " " (advice.what) }
            p { (advice.change) "." }
            @if let Some(option) = &advice.sbatch { pre { code { "#SBATCH " (option) } } }
            p.why { "Measured: " (advice.measured) ". Applies: " (advice.threshold) "." }
        }
    }
}

fn table(table: &Table) -> Markup {
    // Most cells hold numbers: the others have the class.
    let words = |at: usize| table.heads.get(at).filter(|head| !head.number).map(|_| "w");
    html! {
        // A wide table is scrolled, also with the keyboard.
        div.scroll tabindex="0" role="region" aria-label=(table.caption) {
            table {
                caption { (table.caption) }
                thead { tr { @for (at, head) in table.heads.iter().enumerate() { th class=[words(at)] scope="col" { (head.name) } } } }
                tbody { @for row in &table.rows { (cells(row, words)) } }
                @if let Some(total) = &table.total { tfoot { (cells(total, words)) } }
            }
        }
    }
}

fn cells(row: &[Option<String>], words: impl Fn(usize) -> Option<&'static str>) -> Markup {
    html! {
        tr {
            @for (at, cell) in row.iter().enumerate() {
                @let text = cell.as_deref().unwrap_or("-");
                @if at == 0 { th scope="row" { (text) } } @else { td class=[words(at)] { (text) } }
            }
        }
    }
}

#[cfg(test)]
mod tests;
