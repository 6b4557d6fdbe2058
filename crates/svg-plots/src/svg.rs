//! Elements of a drawing, and its colours.

use crate::path::{Path, number};
use crate::text::{clean, escape, fitted, text_width};

/// Where plots are drawn, and with which font.
#[derive(Debug, Clone, Copy)]
pub struct Canvas<'a> {
    /// Width in pixels, 160 at least and 4000 at most.
    pub width: f64,
    /// Height in pixels, 100 at least and 4000 at most. Bars and heat maps are as high as their rows need.
    pub height: f64,
    /// The `font-family`. Widths are those of DejaVu Sans, so a font that is wider does not fit.
    pub font: &'a str,
    /// The data of plots and heat maps begin so far from the left at least. Drawings below each other that have room for
    /// their labels in it have the same time below each other.
    pub left: f64,
}

impl Default for Canvas<'_> {
    fn default() -> Self {
        Self { width: 640.0, height: 220.0, font: "DejaVu Sans, Verdana, sans-serif", left: 24.0 }
    }
}

impl Canvas<'_> {
    /// The size within its bounds.
    pub(crate) fn size(&self) -> (f64, f64) {
        let within = |size: f64, least: f64| if size.is_finite() { size.clamp(least, 4000.0) } else { least };
        (within(self.width, 160.0), within(self.height, 100.0))
    }

    /// Where data begin whose labels take so much, within a part of the width.
    pub(crate) fn data_left(&self, labels: f64, most: f64) -> f64 {
        let (width, _) = self.size();
        let least = if self.left.is_finite() { self.left.max(24.0) } else { 24.0 };
        labels.max(least).min(width * most)
    }
}

/// The style sheet of a page with plots. Without it, in a PDF, they have the colours of a light page. A page with another
/// dark background than this one's gives it as `--plot-background`.
pub const STYLE: &str = "\
.sp{color:#1f2328;max-width:100%;height:auto}\
@media screen and (prefers-color-scheme:dark){\
.sp{color:#e6e8eb}.sp .halo{stroke:var(--plot-background,#16181d)}\
.sp .c0{color:#56b4e9}.sp .c1{color:#e69f00}.sp .c2{color:#1dbb8d}.sp .c3{color:#d98fb8}\
.sp .c4{color:#3b8fd0}.sp .c5{color:#e8702e}.sp .c6{color:#a8a8a8}\
.sp .h0{color:#182c4a}.sp .h1{color:#1a3a62}.sp .h2{color:#1d4a78}.sp .h3{color:#22598f}.sp .h4{color:#3072ae}\
.sp .h5{color:#4a8fc8}.sp .h6{color:#70addc}.sp .h7{color:#9fcbec}.sp .h8{color:#d3e8f8}\
.sp .good{color:#56b4e9}.sp .fair{color:#e69f00}.sp .bad{color:#e8702e}}";

/// Okabe and Ito's colours (Color Universal Design, 2008) without yellow, which is not seen on white, and grey.
const SERIES: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#767676"];
/// Lines of the same colour, or without any, differ in their dashes.
const DASHES: [&str; 4] = ["", "6 3", "2 2", "8 2 2 2"];
/// From little to much: of one hue, ever darker, so it works in grey.
const HEAT: [&str; HEATS] =
    ["#dde8f3", "#c3d8eb", "#a5c7e3", "#84b3d9", "#5a97c9", "#377bb5", "#1d5f9e", "#0c447f", "#062a56"];
/// How many colours a heat map has.
pub(crate) const HEATS: usize = 9;

/// The colour of something: a class for the style sheet, and what it is without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Text,
    Series(usize),
    Heat(usize),
    Good,
    Fair,
    Bad,
}

impl Colour {
    /// Attributes that make it `currentColor`.
    fn attributes(self) -> String {
        let (class, colour) = match self {
            Self::Text => return String::new(),
            Self::Series(index) => (format!("c{}", index % SERIES.len()), SERIES.get(index % SERIES.len())),
            Self::Heat(level) => (format!("h{}", level.min(HEATS - 1)), HEAT.get(level.min(HEATS - 1))),
            Self::Good => ("good".to_owned(), SERIES.get(4)),
            Self::Fair => ("fair".to_owned(), SERIES.get(1)),
            Self::Bad => ("bad".to_owned(), SERIES.get(5)),
        };
        format!(" class=\"{class}\" color=\"{}\"", colour.unwrap_or(&"#000"))
    }
}

/// The dashes of a series, as an attribute.
fn dashes(index: usize) -> String {
    match DASHES.get(index % DASHES.len()) {
        Some(dashes) if !dashes.is_empty() => format!(" stroke-dasharray=\"{dashes}\""),
        _ => String::new(),
    }
}

/// Where a text is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A part of the drawing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Rect {
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub(crate) fn holds(&self, other: &Self) -> bool {
        other.left >= self.left
            && other.right <= self.right
            && other.top >= self.top
            && other.bottom <= self.bottom
    }

    /// What a text takes: nine tenths of its size above the line, a quarter below.
    pub(crate) fn of_text(text: &str, size: f64, (x, y): (f64, f64), anchor: Anchor) -> Self {
        let width = text_width(text, size);
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        Self { left, top: y - 0.9 * size, right: left + width, bottom: y + 0.25 * size }
    }
}

/// The size of nearly all text.
pub(crate) const SMALL: f64 = 10.0;
/// The size of a title.
pub(crate) const LARGE: f64 = 13.0;

/// A drawing that is being made.
#[derive(Debug)]
pub(crate) struct Svg {
    out: String,
}

/// A number of an attribute.
pub(crate) fn n(value: f64) -> String {
    number(value, 100.0)
}

impl Svg {
    pub(crate) fn new((width, height): (f64, f64), font: &str, title: &str, description: &str) -> Self {
        let (title, description, font) = (clean(title), clean(description), clean(font));
        let mut svg = Self { out: String::new() };
        let (w, h) = (n(width), n(height));
        svg.raw(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"sp\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             color=\"#1f2328\" fill=\"none\" font-size=\"{SMALL}\" font-family=\""
        ));
        escape(&mut svg.out, &font);
        svg.raw("\" role=\"img\" aria-label=\"");
        escape(&mut svg.out, &title);
        svg.raw("\"><title>");
        escape(&mut svg.out, &title);
        svg.raw("</title>");
        if !description.is_empty() {
            svg.raw("<desc>");
            escape(&mut svg.out, &description);
            svg.raw("</desc>");
        }
        svg.raw("\n");
        svg
    }

    pub(crate) fn finish(mut self) -> String {
        self.raw("</svg>\n");
        self.out
    }

    fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Text that is clean and fits.
    fn put_text(&mut self, text: &str, size: f64, (x, y): (f64, f64), anchor: Anchor, more: &str) {
        if text.is_empty() {
            return;
        }
        self.raw(&format!("<text x=\"{}\" y=\"{}\"", n(x), n(y)));
        if size != SMALL {
            self.raw(&format!(" font-size=\"{}\"", n(size)));
        }
        self.raw(match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        });
        self.raw(more);
        self.raw(" fill=\"currentColor\">");
        escape(&mut self.out, text);
        self.raw("</text>\n");
    }

    /// Any text, cut to the room that it has.
    pub(crate) fn text(&mut self, text: &str, size: f64, room: f64, at: (f64, f64), anchor: Anchor) {
        self.put_text(&fitted(text, size, room), size, at, anchor, "");
    }

    /// The same, not as dark.
    pub(crate) fn quiet_text(&mut self, text: &str, room: f64, at: (f64, f64), anchor: Anchor) {
        self.put_text(&fitted(text, SMALL, room), SMALL, at, anchor, " fill-opacity=\".75\"");
    }

    /// Text over what is drawn, with a halo.
    pub(crate) fn text_above(&mut self, text: &str, at: (f64, f64), anchor: Anchor) {
        let halo = " class=\"halo\" stroke=\"#fff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\"";
        self.put_text(text, SMALL, at, anchor, halo);
    }

    /// The title of a drawing, at its top.
    pub(crate) fn title(&mut self, title: &str, width: f64) {
        self.text(title, LARGE, width - 16.0, (8.0, 17.0), Anchor::Start);
    }

    fn path(&mut self, path: Path, attributes: &str) {
        let data = path.data();
        if !data.is_empty() {
            self.raw(&format!("<path{attributes} d=\"{data}\"/>\n"));
        }
    }

    /// A curve, with the dashes of its series.
    pub(crate) fn curve(&mut self, path: Path, index: usize, width: f64) {
        let colour = Colour::Series(index).attributes();
        let dashes = dashes(index);
        let width = n(width);
        self.path(
            path,
            &format!(
                "{colour} stroke=\"currentColor\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dashes}"
            ),
        );
    }

    /// A thin line of the text's colour with this opacity, dashed or not.
    pub(crate) fn thin(&mut self, path: Path, opacity: f64, dashed: bool) {
        let dashes = if dashed { " stroke-dasharray=\"4 3\"" } else { "" };
        self.path(path, &format!(" stroke=\"currentColor\" stroke-opacity=\"{}\"{dashes}", n(opacity)));
    }

    /// A line that warns.
    pub(crate) fn warning(&mut self, path: Path, dashed: bool) {
        let colour = Colour::Bad.attributes();
        let dashes = if dashed { " stroke-dasharray=\"4 3\"" } else { "" };
        self.path(path, &format!("{colour} stroke=\"currentColor\" stroke-width=\"1.25\"{dashes}"));
    }

    /// A filled shape.
    pub(crate) fn area(&mut self, path: Path, colour: Colour, opacity: f64) {
        let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{}\"", n(opacity)) } else { String::new() };
        self.path(path, &format!("{} fill=\"currentColor\"{opacity}", colour.attributes()));
    }

    /// Bands along level lines, so high: a rectangle for each line.
    pub(crate) fn lanes(&mut self, path: Path, colour: Colour, height: f64) {
        let (colour, height) = (colour.attributes(), n(height));
        self.path(
            path,
            &format!(
                "{colour} stroke=\"currentColor\" stroke-width=\"{height}\" shape-rendering=\"crispEdges\""
            ),
        );
    }

    pub(crate) fn rect(&mut self, rect: Rect, colour: Colour, opacity: f64) {
        self.area(outline(rect), colour, opacity);
    }
}

/// The outline of a rectangle.
pub(crate) fn outline(rect: Rect) -> Path {
    let mut path = Path::default();
    path.run(&[
        (rect.left, rect.top),
        (rect.right, rect.top),
        (rect.right, rect.bottom),
        (rect.left, rect.bottom),
    ]);
    path.close();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn colours_of_a_heat_map_are_ever_darker() {
        let steps: Vec<f64> = HEAT.iter().map(|colour| luminance(colour)).collect();
        assert!(steps.windows(2).all(|pair| pair[0] > pair[1] * 1.15), "{steps:?}");
    }

    #[test]
    fn lines_are_seen_on_white_and_on_dark() {
        let dark = STYLE.split("dark)").nth(1).unwrap();
        for (index, colour) in SERIES.iter().enumerate() {
            assert!(1.05 / (luminance(colour) + 0.05) > 2.0, "{colour} on white");
            let colour = dark.split(&format!(".c{index}{{color:")).nth(1).unwrap().split('}').next().unwrap();
            assert!((luminance(colour) + 0.05) / (luminance("#16181d") + 0.05) > 4.5, "{colour} on dark");
        }
    }

    #[test]
    fn a_drawing_without_anything_is_whole() {
        let svg = Svg::new((10.0, 20.5), "a\"b", "x<y", "").finish();
        let expected = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"sp\" width=\"10\" height=\"20.5\" viewBox=\"0 0 10 20.5\" \
             color=\"#1f2328\" fill=\"none\" font-size=\"10\" font-family=\"a&quot;b\" role=\"img\" aria-label=\"x&lt;y\">\
             <title>x&lt;y</title>\n</svg>\n";
        assert_eq!(svg, expected);
    }
}
