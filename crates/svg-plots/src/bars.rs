//! Level bars, each over what its value should be.

use crate::axis::{Extent, ValueAxis, drawable, value_axis};
use crate::frame::{BELOW, draw_x_axis, fit_below};
use crate::svg::{Anchor, Canvas, Colour, Rect, SMALL, Svg};
use crate::text::{clean, text_width};
use crate::unit::Unit;

/// Bars side by side, on one axis from zero.
#[derive(Debug, Clone)]
pub struct Bars<'a> {
    /// Its title, which is also what a screen reader says.
    pub title: &'a str,
    /// What is to be seen, for those who do not see it.
    pub description: &'a str,
    /// Unit of all values.
    pub unit: Unit<'a>,
    /// The axis shows this range at least, and all of the data always.
    pub at_least: Option<(f64, f64)>,
    /// From the top.
    pub rows: Vec<Bar<'a>>,
}

/// A bar.
#[derive(Debug, Clone, Copy)]
pub struct Bar<'a> {
    /// Its name.
    pub label: &'a str,
    /// Its length. What is not finite has no bar, and is `no data` where there is no note.
    pub value: f64,
    /// What is written after the value.
    pub note: &'a str,
    /// How good a value is from these bounds on, in their order.
    pub targets: &'a [(f64, Tone)],
}

/// How good a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// It could be better.
    Fair,
    /// Not as it should be.
    Bad,
}

const ROW: f64 = 22.0;
/// Of a row: the ground, and the bar on it.
const GROUND: f64 = 14.0;
const BAR: f64 = 6.0;

impl Bars<'_> {
    /// The bars as an SVG document, as wide as the canvas and as high as they need.
    pub fn svg(&self, canvas: &Canvas<'_>) -> String {
        let (width, _) = canvas.size();
        let top = if self.title.is_empty() { 8.0 } else { 28.0 };
        let bottom = top + self.rows.len() as f64 * ROW;
        let mut svg = Svg::new((width, bottom + BELOW + 4.0), canvas.font, self.title, self.description);
        svg.title(self.title, width);

        let texts: Vec<String> = self.rows.iter().map(|row| clean(&row.text(self.unit))).collect();
        let widest =
            |texts: &mut dyn Iterator<Item = f64>, share: f64| texts.fold(0.0, f64::max).min(width * share);
        let before = widest(&mut self.rows.iter().map(|row| text_width(&clean(row.label), SMALL)), 0.3);
        let after = widest(&mut texts.iter().map(|text| text_width(text, SMALL)), 0.35);
        let rect = Rect { left: before + 16.0, top, right: width - after - 18.0, bottom };

        let spec = ValueAxis { at_least: self.at_least, ..ValueAxis::of(self.unit) };
        let mut extent = Extent::on(spec.scale);
        self.rows.iter().for_each(|row| extent.add(row.value));
        let axis = value_axis(&spec, extent, |ticks| fit_below(ticks, rect, width));
        let across = |value: f64| axis.place(value).map(|at| rect.left + at * rect.width());
        for (index, (row, text)) in self.rows.iter().zip(&texts).enumerate() {
            let middle = top + (index as f64 + 0.5) * ROW;
            let level = |height: f64, left: f64, right: f64| Rect {
                left: left.min(right),
                top: middle - height / 2.0,
                right: left.max(right),
                bottom: middle + height / 2.0,
            };
            svg.text(row.label, SMALL, before, (8.0, middle + 3.5), Anchor::Start);
            svg.text(text, SMALL, after, (rect.right + 10.0, middle + 3.5), Anchor::Start);
            svg.rect(level(GROUND, rect.left, rect.right), Colour::Text, 0.06);
            let ends = row.targets.iter().skip(1).map(|(from, _)| *from).chain([f64::INFINITY]);
            for ((from, tone), to) in row.targets.iter().zip(ends) {
                let (low, high) = axis.range();
                if let (Some(from), Some(to)) = (across(from.max(low)), across(to.min(high))) {
                    let (colour, opacity) = tone.ground();
                    svg.rect(level(GROUND, from, to), colour, opacity);
                }
            }
            if let (Some(zero), Some(value)) = (across(0.0), across(row.value)) {
                svg.rect(level(BAR, zero, value), Colour::Series(0), 1.0);
            }
        }
        draw_x_axis(&mut svg, &axis, rect, width);
        svg.finish()
    }
}

impl Bar<'_> {
    fn text(&self, unit: Unit<'_>) -> String {
        match (drawable(self.value), self.note) {
            (None, note) if !note.is_empty() => note.to_owned(),
            (value, "") => unit.show(value.unwrap_or(f64::NAN)),
            (value, note) => format!("{}, {note}", unit.show(value.unwrap_or(f64::NAN))),
        }
    }
}

impl Tone {
    /// Colour and opacity of the ground. In grey the worst is the darkest.
    fn ground(self) -> (Colour, f64) {
        match self {
            Self::Good => (Colour::Good, 0.25),
            Self::Fair => (Colour::Fair, 0.35),
            Self::Bad => (Colour::Bad, 0.5),
        }
    }
}
