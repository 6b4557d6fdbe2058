//! The table of nodes.

use job_report::Report;

use super::Page;
use crate::formats::nodes::{columns, rows};
use crate::text::{left, right};

/// Adds it for a job of several nodes.
pub(super) fn table(page: &mut Page<'_>, report: &Report) {
    let all = &report.job.nodes;
    if all.len() < 2 {
        return;
    }
    let columns = columns(&report.job);
    let name = all.iter().map(|node| crate::text::width(&node.name)).max().unwrap_or(0).clamp(4, 20);
    page.blank();
    let heads: String = columns.iter().map(|(head, width, _)| right(head, *width)).collect();
    page.line(&format!("  {}{heads}", left("node", name)));
    let (shown, others) = rows(&report.job, page.options.node_rows);
    for node in &shown {
        let cells: String = columns
            .iter()
            .map(|(_, width, cell)| right(&cell(node).unwrap_or_else(|| "-".to_owned()), *width))
            .collect();
        page.line(&format!("  {}{cells}", left(&node.name, name)));
    }
    if let Some(others) = others {
        page.line(&format!("  … {others}"));
    }
}
