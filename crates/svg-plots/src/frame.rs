//! What is around the data: axes, grid, legend, and where labels have room.

use crate::axis::{Axis, Extent, Scale, Tick, ValueAxis, drawable, value_axis};
use crate::path::{Path, Point};
use crate::svg::{Anchor, Canvas, Colour, Rect, SMALL, Svg, outline};
use crate::text::{clean, fitted, text_width};
use crate::time::{TimeAxis, time_axis};

/// The horizontal axis.
#[derive(Debug, Clone, Copy)]
pub enum XAxis<'a> {
    /// Time, in seconds.
    Time {
        /// How it is shown.
        axis: TimeAxis<'a>,
        /// From and to; what is outside is not drawn. Without a range all is.
        range: Option<(f64, f64)>,
    },
    /// Any values.
    Value(ValueAxis<'a>),
}

impl<'a> XAxis<'a> {
    pub(crate) fn scale(&self) -> Scale {
        match self {
            Self::Value(axis) => axis.scale,
            Self::Time { .. } => Scale::LinearWithoutZero,
        }
    }

    /// Whether something at this place is drawn.
    pub(crate) fn shows(&self, value: f64) -> bool {
        match self {
            Self::Time { range: Some((from, to)), .. } => (*from..=*to).contains(&value),
            _ => drawable(value).is_some(),
        }
    }

    /// What is in sight of a part of the axis; all of it where nothing is.
    pub(crate) fn clipped(&self, from: f64, to: f64) -> (f64, f64) {
        match self {
            Self::Time { range: Some((first, last)), .. } if from <= *last && to >= *first => {
                (from.max(*first), to.min(*last))
            }
            _ => (from, to),
        }
    }

    fn label(&self) -> &'a str {
        match self {
            Self::Value(axis) => axis.label,
            Self::Time { .. } => "",
        }
    }

    fn axis(&self, data: Extent, fits: impl Fn(&[Tick]) -> bool) -> Axis {
        match self {
            Self::Time { axis, range } => time_axis(*axis, range.or(data.range()), fits),
            Self::Value(spec) => value_axis(spec, data, fits),
        }
    }
}

/// Where the data are drawn, and the axes around.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) rect: Rect,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
}

/// Between two labels of an axis.
const GAP: f64 = 20.0;
/// Between two lines of a grid, at least.
const APART: f64 = 24.0;
/// Under the data: ticks and their labels.
pub(crate) const BELOW: f64 = 18.0;
/// A line of small text.
pub(crate) const LINE: f64 = 15.0;
/// To the right of the data.
pub(crate) const MARGIN: f64 = 12.0;

impl Frame {
    /// A frame in a drawing whose data begin at this height.
    pub(crate) fn new(
        canvas: &Canvas<'_>,
        top: f64,
        x: (&XAxis<'_>, Extent),
        y: (&ValueAxis<'_>, Extent),
    ) -> Self {
        let (width, height) = canvas.size();
        let top = if y.0.label.is_empty() { top } else { top + LINE + 3.0 };
        let bottom = height - BELOW - if x.0.label().is_empty() { 0.0 } else { LINE };
        let fits = |ticks: &[Tick]| ticks.len() < 2 || steps(ticks) * (bottom - top) >= APART;
        let y = value_axis(y.0, y.1, fits);
        let widest = y.ticks.iter().map(|tick| text_width(&clean(&tick.label), SMALL)).fold(0.0, f64::max);
        let rect = Rect { left: canvas.data_left(widest + 14.0, 0.4), top, right: width - MARGIN, bottom };
        Self { x: x.0.axis(x.1, |ticks| fit_below(ticks, rect, width)), rect, y }
    }

    pub(crate) fn across(&self, x: f64) -> Option<f64> {
        Some(self.rect.left + self.x.place(x)? * self.rect.width())
    }

    pub(crate) fn up(&self, y: f64) -> Option<f64> {
        Some(self.rect.bottom - self.y.place(y)? * self.rect.height())
    }

    pub(crate) fn point(&self, (x, y): Point) -> Option<Point> {
        Some((self.across(x)?, self.up(y)?))
    }

    /// Lines through the ticks, over areas and under lines.
    pub(crate) fn draw_grid(&self, svg: &mut Svg, x: &XAxis<'_>) {
        let Rect { left, top, right, bottom } = self.rect;
        let mut grid = Path::default();
        for tick in &self.y.ticks {
            let at = bottom - tick.at * self.rect.height();
            grid.run(&[(left, at), (right, at)]);
        }
        for tick in self.x.ticks.iter().filter(|_| matches!(x, XAxis::Value(_))) {
            let at = left + tick.at * self.rect.width();
            grid.run(&[(at, top), (at, bottom)]);
        }
        svg.thin(grid, 0.15, false);
    }

    pub(crate) fn draw_axes(&self, svg: &mut Svg, width: f64, x: &XAxis<'_>, y: &ValueAxis<'_>) {
        let Rect { left, top, bottom, .. } = self.rect;
        for tick in &self.y.ticks {
            let at = bottom - tick.at * self.rect.height();
            svg.quiet_text(&tick.label, left - 10.0, (left - 6.0, at + 3.5), Anchor::End);
        }
        draw_x_axis(svg, &self.x, self.rect, width);
        svg.quiet_text(y.label, width - 16.0, (8.0, top - 10.0), Anchor::Start);
        let middle = left + self.rect.width() / 2.0;
        svg.quiet_text(x.label(), self.rect.width(), (middle, bottom + BELOW + 10.0), Anchor::Middle);
    }
}

/// The least distance of two ticks, of the whole axis.
fn steps(ticks: &[Tick]) -> f64 {
    ticks.iter().zip(ticks.iter().skip(1)).map(|(a, b)| b.at - a.at).fold(1.0, f64::min)
}

/// The middle of a label of the horizontal axis: under its tick, or as near as the drawing's edge lets it.
fn label_middle(tick: &Tick, rect: Rect, width: f64) -> (f64, f64) {
    let half = text_width(&clean(&tick.label), SMALL) / 2.0;
    let at = rect.left + tick.at * rect.width();
    (at.min(width - 2.0 - half).max(2.0 + half), half)
}

/// Whether labels have room side by side under this part of a drawing.
pub(crate) fn fit_below(ticks: &[Tick], rect: Rect, width: f64) -> bool {
    let labels = ticks.iter().map(|tick| label_middle(tick, rect, width));
    let next = labels.clone().skip(1);
    labels.clone().all(|(_, half)| half * 2.0 + 4.0 <= width)
        && labels.zip(next).all(|((a, half_a), (b, half_b))| a + half_a + GAP <= b - half_b)
}

/// The line under the data, ticks and their labels.
pub(crate) fn draw_x_axis(svg: &mut Svg, axis: &Axis, rect: Rect, width: f64) {
    let mut path = Path::default();
    path.run(&[(rect.left, rect.bottom), (rect.right, rect.bottom)]);
    for tick in &axis.ticks {
        let at = rect.left + tick.at * rect.width();
        path.run(&[(at, rect.bottom), (at, rect.bottom + 4.0)]);
    }
    svg.thin(path, 0.6, false);
    for tick in &axis.ticks {
        let (middle, _) = label_middle(tick, rect, width);
        svg.quiet_text(&tick.label, width, (middle, rect.bottom + 14.5), Anchor::Middle);
    }
}

/// Places that labels have taken.
#[derive(Debug)]
pub(crate) struct Labels {
    bounds: Rect,
    taken: Vec<Rect>,
    /// Where upright lines are.
    lines: Vec<f64>,
}

impl Labels {
    pub(crate) fn new(bounds: Rect, lines: Vec<f64>) -> Self {
        Self { bounds, taken: Vec::new(), lines }
    }

    /// Writes a label at the first place that is free, if there is one without an upright line. Where no place is free, the
    /// drawing goes without it.
    pub(crate) fn put(
        &mut self,
        svg: &mut Svg,
        label: &str,
        places: impl Iterator<Item = (Point, Anchor)> + Clone,
    ) {
        let label = fitted(label, SMALL, self.bounds.width() * 0.5);
        let rect = |(at, anchor): (Point, Anchor)| Rect::of_text(&label, SMALL, at, anchor);
        let mut free = places.filter(|place| {
            let rect = rect(*place);
            self.bounds.holds(&rect) && !self.taken.iter().any(|other| other.meets(&rect))
        });
        let unmarked = free.clone().find(|place| {
            let rect = rect(*place);
            !self.lines.iter().any(|x| (rect.left..rect.right).contains(x))
        });
        if let Some((at, anchor)) = unmarked.or_else(|| free.next()) {
            svg.text_above(&label, at, anchor);
            self.taken.push(rect((at, anchor)));
        }
    }
}

/// What a legend shows of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Swatch {
    Line,
    Band,
    Area,
    Mark,
}

/// An entry of a legend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) swatch: Swatch,
    pub(crate) index: usize,
    pub(crate) name: &'a str,
}

/// A sample, and the space to its text; the space to the next entry.
const SAMPLE: f64 = 22.0;
const NEXT: f64 = 14.0;

/// Draws a legend in rows, and returns its height. What finds no room is counted at its end.
pub(crate) fn draw_legend(
    svg: &mut Svg,
    entries: &[Entry<'_>],
    top: f64,
    width: f64,
    most_rows: usize,
) -> f64 {
    // Two beside each other have room always.
    let room = if entries.len() > 1 { (width - 16.0) / 2.0 } else { width - 16.0 } - SAMPLE - NEXT;
    let texts: Vec<String> = entries.iter().map(|entry| fitted(entry.name, SMALL, room)).collect();
    let mut shown = entries.len();
    let (places, more) = loop {
        let rest = entries.len() - shown;
        let more = if rest > 0 { format!("and {rest} more") } else { String::new() };
        let widths = texts.iter().take(shown).map(|text| SAMPLE + text_width(text, SMALL));
        let places = rows(widths.chain((rest > 0).then(|| text_width(&more, SMALL))), width);
        if shown == 0 || places.last().is_none_or(|(_, row)| *row < most_rows) {
            break (places, more);
        }
        shown -= 1;
    };
    let height = |row: usize| top + row as f64 * LINE + 10.0;
    for ((entry, text), (x, row)) in entries.iter().zip(&texts).take(shown).zip(&places) {
        let (x, y) = (*x, height(*row));
        draw_swatch(svg, *entry, Rect { left: x, top: y - 8.0, right: x + 16.0, bottom: y });
        svg.text(text, SMALL, f64::INFINITY, (x + SAMPLE, y), Anchor::Start);
    }
    if let Some((x, row)) = places.get(shown) {
        svg.quiet_text(&more, f64::INFINITY, (*x, height(*row)), Anchor::Start);
    }
    places.last().map_or(0.0, |(_, row)| (*row as f64 + 1.0) * LINE)
}

/// Where things of these widths begin, and in which row.
fn rows(widths: impl Iterator<Item = f64>, width: f64) -> Vec<(f64, usize)> {
    let (mut x, mut row) = (8.0, 0);
    widths
        .map(|wide| {
            if x > 8.0 && x + wide > width - 8.0 {
                (x, row) = (8.0, row + 1);
            }
            let place = (x, row);
            x += wide + NEXT;
            place
        })
        .collect()
}

fn draw_swatch(svg: &mut Svg, entry: Entry<'_>, rect: Rect) {
    let Entry { swatch, index, .. } = entry;
    let middle = f64::midpoint(rect.top, rect.bottom);
    match swatch {
        Swatch::Area => svg.area(outline(rect), Colour::Series(index), 1.0),
        Swatch::Mark => {
            let mut path = Path::default();
            mark(&mut path, index, (rect.left + 8.0, middle));
            svg.area(path, Colour::Series(index), 1.0);
        }
        Swatch::Line | Swatch::Band => {
            if matches!(swatch, Swatch::Band) {
                svg.area(outline(rect), Colour::Series(index), BAND);
            }
            let mut path = Path::default();
            path.run(&[(rect.left, middle), (rect.right, middle)]);
            svg.curve(path, index, 1.5);
        }
    }
}

/// The opacity of a band.
pub(crate) const BAND: f64 = 0.25;
/// Half the size of a mark.
pub(crate) const MARK: f64 = 2.8;

/// A mark of a series: round, square, a triangle, or a diamond.
pub(crate) fn mark(path: &mut Path, index: usize, (x, y): Point) {
    const R: f64 = MARK;
    const S: f64 = 0.4 * MARK;
    let corners: &[Point] = match index % 4 {
        0 => &[(-S, -R), (S, -R), (R, -S), (R, S), (S, R), (-S, R), (-R, S), (-R, -S)],
        1 => &[(-R, -R), (R, -R), (R, R), (-R, R)],
        2 => &[(0.0, -R), (R, R), (-R, R)],
        _ => &[(0.0, -R), (R, 0.0), (0.0, R), (-R, 0.0)],
    };
    let corners: Vec<Point> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    path.run(&corners);
    path.close();
}
