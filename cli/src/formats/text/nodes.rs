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
    let name = all.iter().map(|node| crate::text::width(&node.name)).max().unwrap_or(0).clamp(4, 20);
    // What is left out of a narrow page is at the right, and is in the sums.
    let mut left_over = page.options.width.saturating_sub(2 + name);
    let columns: Vec<_> = columns(&report.job)
        .into_iter()
        .take_while(|(_, width, _)| {
            let fits = *width <= left_over;
            left_over = left_over.saturating_sub(*width);
            fits
        })
        .collect();
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
        page.lines("  … ", 4, &others);
    }
}
