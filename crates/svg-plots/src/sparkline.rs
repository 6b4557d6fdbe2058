//! A curve as small as a word.

use crate::axis::{Extent, Scale, ValueAxis, value_axis};
use crate::path::{Path, runs, thinned};
use crate::svg::{Canvas, Svg};
use crate::unit::Unit;

/// A curve without axes, for a cell of a table.
#[derive(Debug, Clone, Copy)]
pub struct Sparkline<'a> {
    /// What it is, for a screen reader and as a tooltip.
    pub title: &'a str,
    /// Values at equal distances, from zero up. What is not finite is a gap.
    pub values: &'a [f64],
    /// The top of the cell is this at least, such as the limit.
    pub top: Option<f64>,
}

impl Sparkline<'_> {
    /// The curve as an SVG document. It may be as small as 20 by 8 pixels.
    pub fn svg(&self, canvas: &Canvas<'_>) -> String {
        let within = |size: f64, least: f64| if size.is_finite() { size.clamp(least, 1000.0) } else { least };
        let (width, height) = (within(canvas.width, 20.0), within(canvas.height, 8.0));
        let mut extent = Extent::on(Scale::Linear);
        self.values.iter().copied().chain(self.top).for_each(|value| extent.add(value));
        // With as many ticks as there can be, the top is at most a twentieth above the largest value.
        let axis = value_axis(&ValueAxis::of(Unit::Number), extent, |_| true);
        let last = self.values.len().saturating_sub(1).max(1) as f64;
        let points = self.values.iter().enumerate().map(|(index, value)| {
            let up = axis.place(*value)?;
            Some((1.0 + index as f64 / last * (width - 2.0), height - 1.5 - up * (height - 3.0)))
        });
        let mut path = Path::default();
        for run in runs(points, width - 1.0) {
            path.run(&thinned(&run));
        }
        let mut svg = Svg::new((width, height), canvas.font, self.title, "");
        svg.curve(path, 0, 1.25);
        svg.finish()
    }
}
