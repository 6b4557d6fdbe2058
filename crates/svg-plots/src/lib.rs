//! Plots as SVG for HTML pages and PDF: data in, a `String` out.
//!
//! [`Plot`] has two axes: lines, steps, bands, stacks, points, a roofline. [`Bars`], [`HeatMap`] and [`Sparkline`] are by
//! themselves. Each has a method `svg`, which takes a [`Canvas`].
//!
//! A drawing is the same for a page and for a PDF. Colours are attributes, which a style sheet overrides: [`STYLE`] is that
//! of a page in light and dark. Series differ in dashes and shapes of marks, too, so they are different in grey.
//! There is no script, no font, no `id` and no reference in it. Text of others is shown without controls and marks of
//! direction, and cut where it has no room. Labels are placed by the widths of DejaVu Sans ([`text_width`]).
//!
//! What is not finite, or larger than 1e100, is a gap. Nothing is drawn between the points beside it.
//!
//! ```
//! use svg_plots::{Canvas, Layer, Limit, Plot, TimeAxis, Unit, ValueAxis, XAxis};
//!
//! const GIB: f64 = 1073741824.0;
//! let plot = Plot {
//!     title: "Memory",
//!     description: "From 2 to 6 GiB of 8 GiB.",
//!     x: XAxis::Time { axis: TimeAxis::Elapsed, range: None },
//!     y: ValueAxis::of(Unit::Binary("B")),
//!     layers: vec![Layer::Line { name: "", points: &[(0.0, 2.0 * GIB), (60.0, 6.0 * GIB)] }],
//!     limits: vec![Limit { value: 8.0 * GIB, label: "limit 8 GiB" }],
//!     markers: Vec::new(),
//! };
//! let svg = plot.svg(&Canvas::default());
//! assert!(svg.starts_with("<svg ") && svg.contains(">limit 8 GiB</text>"));
//! ```
//!
//! A script that the font of a PDF does not have is shown as boxes: with DejaVu Sans that is Chinese, for one.
//!
//! # Why not a crate of others
//!
//! Looked at in November 2026. kuva 0.6 (MIT) is the best of them: it is maintained, and has three small dependencies. But
//! it writes `NaN` into a path where a value is missing, and control characters as they are, which no XML parser reads.
//! Its ground is white and its colours have no classes, so a dark page cannot have it. It has no bytes in powers of two,
//! and thins no curve. plotters 0.3 has no release since 2024 and guesses the widths of text. charming needs a script in
//! the page. plotlib is abandoned.
#![forbid(unsafe_code)]

mod axis;
mod bars;
mod frame;
mod heat_map;
mod path;
mod plot;
mod sparkline;
mod svg;
mod text;
mod time;
mod unit;

pub use axis::{Scale, ValueAxis};
pub use bars::{Bar, Bars, Tone};
pub use frame::XAxis;
pub use heat_map::{HeatMap, MOST_ROWS, Row};
pub use plot::{Layer, Limit, Marker, Plot, Spread};
pub use sparkline::Sparkline;
pub use svg::{Canvas, STYLE};
pub use text::text_width;
pub use time::{ClockUnit, LocalTime, TimeAxis};
pub use unit::Unit;
