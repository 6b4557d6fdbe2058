//! Rows of words, for a terminal and for scripts.

use crate::text::{left, right, width};

/// A column: its name, and whether it holds numbers, which stand at its right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) name: &'static str,
    pub(crate) number: bool,
}

/// What a row has in each column; `None` is not known.
pub(crate) type Row = Vec<Option<String>>;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// For people, with few digits and a unit.
    Shown,
    /// For programs: times are seconds, memory is bytes, energy is joules, a ratio is 0 to 1.
    Raw,
}

impl Numbers {
    /// A cell.
    pub(crate) fn cell(self, value: f64, show: fn(f64) -> String) -> String {
        match self {
            Numbers::Shown => show(value),
            Numbers::Raw => value.to_string(),
        }
    }
}

/// With heads in capitals, and columns as wide as they need to be.
pub(crate) fn text(heads: &[Head], rows: &[Row]) -> String {
    let rows: Vec<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect()).collect();
    let names: Vec<String> = heads.iter().map(|head| head.name.to_uppercase()).collect();
    let widest = |(at, name): (usize, &String)| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell));
        cells.chain([width(name)]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = names.iter().enumerate().map(widest).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(heads).zip(&widths);
        let cells: Vec<String> = cells
            .map(|((cell, head), width)| if head.number { right(cell, *width) } else { left(cell, *width) })
            .collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    let first = line(&mut names.iter().map(String::as_str));
    rows.into_iter().fold(first, |text, row| text + &line(&mut row.into_iter()))
}

/// As sacct's --parsable2: `|` between fields, none at the end. One in a field is replaced.
pub(crate) fn parsable(heads: &[Head], rows: &[Row]) -> String {
    let names = heads.iter().map(|head| head.name.to_owned()).collect::<Vec<_>>().join("|");
    let field = |cell: &Option<String>| cell.as_deref().unwrap_or_default().replace('|', "\u{fffd}");
    let rows = rows.iter().map(|row| row.iter().map(field).collect::<Vec<_>>().join("|"));
    std::iter::once(names).chain(rows).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use job_report::show::percent;

    use super::*;

    #[test]
    fn numbers_are_for_people_or_for_programs() {
        let cells = |value| [Numbers::Shown, Numbers::Raw].map(|numbers| numbers.cell(value, percent));
        assert_eq!(cells(0.7519), ["75 %", "0.7519"]);
        assert_eq!(
            [1e21, 1e-7, 3.0].map(|value| Numbers::Raw.cell(value, percent)),
            ["1000000000000000000000", "0.0000001", "3"]
        );
    }

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let heads = [Head { name: "job", number: false }, Head { name: "cpu", number: true }];
        let row = |job: &str, cpu: Option<&str>| vec![Some(job.to_owned()), cpu.map(str::to_owned)];
        let rows = [row("12345", Some("9 %")), row("計算|", None)];
        assert_eq!(text(&heads, &rows), "JOB    CPU\n12345  9 %\n計算|    -\n");
        assert_eq!(parsable(&heads, &rows), "job|cpu\n12345|9 %\n計算\u{fffd}|\n");
    }
}
