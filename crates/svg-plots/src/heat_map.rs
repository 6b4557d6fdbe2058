//! Rows over time, a colour for each value.

use crate::axis::{Extent, Scale, drawable};
use crate::frame::{BELOW, LINE, MARGIN, draw_x_axis, fit_below};
use crate::path::Path;
use crate::svg::{Anchor, Canvas, Colour, HEATS, Rect, SMALL, Svg};
use crate::text::{clean, text_width};
use crate::time::{TimeAxis, time_axis};
use crate::unit::Unit;

/// Rows over time.
#[derive(Debug, Clone)]
pub struct HeatMap<'a> {
    /// Its title, which is also what a screen reader says.
    pub title: &'a str,
    /// What is to be seen, for those who do not see it.
    pub description: &'a str,
    /// How time is shown.
    pub axis: TimeAxis<'a>,
    /// From when to when. The values of the longest row are spread over it evenly; a shorter row ends before.
    pub span: (f64, f64),
    /// Unit of the values.
    pub unit: Unit<'a>,
    /// Colours are of this range at least, and of zero and all data always.
    pub at_least: Option<(f64, f64)>,
    /// From the top. Up to [`MOST_ROWS`] are drawn one by one, more in bins.
    pub rows: Vec<Row<'a>>,
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its name.
    pub label: &'a str,
    /// Its values. What is not finite is left blank.
    pub values: &'a [f64],
}

/// So many rows are drawn one by one.
pub const MOST_ROWS: usize = 64;
/// Of more rows there are so many bins: each has two lanes.
const MOST_BINS: usize = MOST_ROWS / 2;
/// Cells are not narrower.
const NARROWEST: f64 = 4.0;
/// The height of a row with its gap.
const ROW: f64 = 14.0;
const ROW_GAP: f64 = 2.0;

/// A row or a bin as it is drawn: one lane, or that of the largest values and that of the smallest.
struct Band {
    label: String,
    lanes: Vec<Vec<Option<f64>>>,
}

impl HeatMap<'_> {
    /// The heat map as an SVG document, as wide as the canvas and as high as its rows need.
    pub fn svg(&self, canvas: &Canvas<'_>) -> String {
        let (width, _) = canvas.size();
        let longest = self.rows.iter().map(|row| row.values.len()).max().unwrap_or(0);
        let rows_each = if self.rows.len() > MOST_ROWS { self.rows.len().div_ceil(MOST_BINS) } else { 1 };
        let labels: Vec<String> = self.rows.chunks(rows_each).map(bin_label).collect();
        let widest = labels.iter().map(|label| text_width(label, SMALL)).fold(0.0, f64::max);
        let left = canvas.data_left(widest + 14.0, 0.35);
        let columns = whole((width - MARGIN - left) / NARROWEST).max(1);
        let values_each = longest.div_ceil(columns).max(1);
        let bins = self.rows.chunks(rows_each);
        let bands: Vec<Band> = bins.zip(labels).map(|(rows, label)| band(rows, label, values_each)).collect();

        let note = self.note(rows_each, values_each);
        let top = if self.title.is_empty() { 8.0 } else { 27.0 }
            + LINE
            + if note.is_empty() { 0.0 } else { LINE }
            + 4.0;
        let bottom = top + bands.len() as f64 * ROW;
        let rect = Rect { left, top, right: width - MARGIN, bottom };
        let description = if note.is_empty() {
            self.description.to_owned()
        } else {
            format!("{} {note}", self.description)
        };
        let mut svg = Svg::new((width, bottom + BELOW + 2.0), canvas.font, self.title, description.trim());
        svg.title(self.title, width);
        svg.quiet_text(&note, width - 16.0, (8.0, top - 9.0), Anchor::Start);

        let range = self.range(&bands);
        let legend = top - 4.0 - if note.is_empty() { 0.0 } else { LINE };
        self.draw_legend(&mut svg, range, (width, legend - 4.0));
        self.draw_bands(&mut svg, &bands, rect, range, longest as f64 / values_each as f64);
        for (index, band) in bands.iter().enumerate() {
            let middle = top + (index as f64 + 0.5) * ROW;
            svg.quiet_text(&band.label, left - 10.0, (left - 6.0, middle + 3.0), Anchor::End);
        }
        let axis = time_axis(self.axis, Some(self.span), |ticks| fit_below(ticks, rect, width));
        draw_x_axis(&mut svg, &axis, rect, width);
        svg.finish()
    }

    /// What was merged, in words.
    fn note(&self, rows_each: usize, values_each: usize) -> String {
        let mut parts = Vec::new();
        if rows_each > 1 {
            let (rows, bins) = (self.rows.len(), self.rows.len().div_ceil(rows_each));
            parts.push(format!(
                "{rows} rows in {bins} bins of up to {rows_each}: largest value above, smallest below"
            ));
        }
        if values_each > 1 {
            parts.push(format!("each cell is the mean of up to {values_each} values"));
        }
        parts.join("; ")
    }

    /// The range of the colours; none without data.
    fn range(&self, bands: &[Band]) -> Option<(f64, f64)> {
        let mut extent = Extent::on(Scale::Linear);
        bands.iter().flat_map(|band| &band.lanes).flatten().flatten().for_each(|value| extent.add(*value));
        extent.range()?;
        extent.add(0.0);
        if let Some((low, high)) = self.at_least {
            extent.add(low);
            extent.add(high);
        }
        extent.range()
    }

    /// The colours with the ends of their range, and what is blank.
    fn draw_legend(&self, svg: &mut Svg, range: Option<(f64, f64)>, (width, y): (f64, f64)) {
        let Some((low, high)) = range else {
            svg.quiet_text("no data", width, (8.0, y), Anchor::Start);
            return;
        };
        let mut x = 8.0;
        let write = |svg: &mut Svg, text: &str, x: f64| {
            let text = clean(text);
            svg.quiet_text(&text, width - 8.0 - x, (x, y), Anchor::Start);
            x + text_width(&text, SMALL)
        };
        x = write(svg, &self.unit.show(low), x) + 6.0;
        let swatch = ((width - x - 60.0) / HEATS as f64).clamp(2.0, 14.0);
        for level in 0..HEATS {
            svg.rect(Rect { left: x, top: y - 8.0, right: x + swatch, bottom: y }, Colour::Heat(level), 1.0);
            x += swatch;
        }
        x = write(svg, &self.unit.show(high), x + 6.0);
        write(svg, "blank: no data", x + 16.0);
    }

    /// The cells, those of one colour side by side as one rectangle.
    fn draw_bands(&self, svg: &mut Svg, bands: &[Band], rect: Rect, range: Option<(f64, f64)>, columns: f64) {
        let Some(range) = range else { return };
        for lanes in 1..=2 {
            let height = (ROW - ROW_GAP) / f64::from(lanes);
            for level in 0..HEATS {
                let mut path = Path::default();
                for (index, band) in
                    bands.iter().enumerate().filter(|(_, band)| band.lanes.len() == whole(lanes.into()))
                {
                    let top = rect.top + index as f64 * ROW;
                    for (lane, cells) in band.lanes.iter().enumerate() {
                        let y = top + (lane as f64 + 0.5) * height;
                        for (from, to) in level_runs(cells, range, level) {
                            let across =
                                |cell: usize| rect.left + (cell as f64 / columns).min(1.0) * rect.width();
                            path.run(&[(across(from), y), (across(to), y)]);
                        }
                    }
                }
                svg.lanes(path, Colour::Heat(level), height);
            }
        }
    }
}

/// The name of a bin, by its first and last row.
fn bin_label(rows: &[Row<'_>]) -> String {
    match rows {
        [first, .., last] => format!("{} … {}", clean(first.label), clean(last.label)),
        [row] => clean(row.label),
        [] => String::new(),
    }
}

fn band(rows: &[Row<'_>], label: String, values_each: usize) -> Band {
    let mut means = rows.iter().map(|row| row.values.chunks(values_each).map(mean).collect::<Vec<_>>());
    let Some(first) = means.next() else { return Band { label, lanes: Vec::new() } };
    if rows.len() == 1 {
        return Band { label, lanes: vec![first] };
    }
    let (mut most, mut least) = (first.clone(), first);
    for row in means {
        merge(&mut most, &row, f64::max);
        merge(&mut least, &row, f64::min);
    }
    Band { label, lanes: vec![most, least] }
}

/// The mean of what can be drawn.
fn mean(values: &[f64]) -> Option<f64> {
    let known = values.iter().filter_map(|value| drawable(*value));
    let count = known.clone().count();
    (count > 0).then(|| known.sum::<f64>() / count as f64)
}

fn merge(cells: &mut Vec<Option<f64>>, others: &[Option<f64>], pick: fn(f64, f64) -> f64) {
    cells.resize(cells.len().max(others.len()), None);
    for (cell, other) in cells.iter_mut().zip(others) {
        *cell = match (*cell, *other) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
    }
}

/// Where cells of a colour are side by side: from, and to before.
fn level_runs(cells: &[Option<f64>], range: (f64, f64), wanted: usize) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut at = 0;
    for run in cells.chunk_by(|a, b| a.map(|v| level(v, range)) == b.map(|v| level(v, range))) {
        if run.first().copied().flatten().is_some_and(|value| level(value, range) == wanted) {
            runs.push((at, at + run.len()));
        }
        at += run.len();
    }
    runs
}

/// The colour of a value: the range in equal parts.
fn level(value: f64, (low, high): (f64, f64)) -> usize {
    (1..HEATS).filter(|part| high > low && value >= low + (high - low) * *part as f64 / HEATS as f64).count()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(value: f64) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_part_the_range_evenly() {
        let levels = [0.0, 0.99, 1.0, 4.5, 8.0, 9.0].map(|value| level(value, (0.0, 9.0)));
        assert_eq!(levels, [0, 0, 1, 4, 8, 8]);
        assert_eq!(level(0.0, (0.0, 0.0)), 0);
    }

    #[test]
    fn cells_of_one_colour_are_one_rectangle() {
        let cells = [Some(0.0), Some(0.5), None, Some(9.0), Some(8.5), Some(0.1)];
        assert_eq!(level_runs(&cells, (0.0, 9.0), 0), [(0, 2), (5, 6)]);
        assert_eq!(level_runs(&cells, (0.0, 9.0), 8), [(3, 5)]);
        assert_eq!(level_runs(&cells, (0.0, 9.0), 4), []);
    }

    #[test]
    fn a_cell_is_the_mean_of_what_is_there_and_a_bin_its_largest_and_smallest_row() {
        let rows = [
            Row { label: "a", values: &[1.0, 3.0, f64::NAN, 5.0, f64::NAN] },
            Row { label: "b", values: &[4.0, 6.0, f64::NAN, f64::INFINITY] },
        ];
        let bin = band(&rows, bin_label(&rows), 2);
        assert_eq!(bin.label, "a … b");
        assert_eq!(bin.lanes, [[Some(5.0), Some(5.0), None], [Some(2.0), Some(5.0), None]]);
    }
}
