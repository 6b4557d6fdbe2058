//! Plots with two axes: lines, steps, bands, stacks, points and roofs.

use std::collections::BTreeSet;

use crate::axis::{Extent, ValueAxis, drawable};
use crate::frame::{BAND, Entry, Frame, Labels, Swatch, XAxis, draw_legend, mark};
use crate::path::{Path, Point, runs, thinned};
use crate::svg::{Anchor, Canvas, Colour, Rect, Svg};

/// A plot with two axes.
#[derive(Debug, Clone)]
pub struct Plot<'a> {
    /// Its title, which is also what a screen reader says.
    pub title: &'a str,
    /// What is to be seen, for those who do not see it.
    pub description: &'a str,
    /// The horizontal axis.
    pub x: XAxis<'a>,
    /// The vertical axis.
    pub y: ValueAxis<'a>,
    /// What is drawn, in the order of the legend.
    pub layers: Vec<Layer<'a>>,
    /// Level lines, such as the memory limit.
    pub limits: Vec<Limit<'a>>,
    /// Upright lines, such as an OOM kill.
    pub markers: Vec<Marker<'a>>,
}

/// One or more series. A value that is not finite is a gap, and so is what is outside of the axes.
/// A series with a name is in the legend.
#[derive(Debug, Clone, Copy)]
pub enum Layer<'a> {
    /// A line through points.
    Line {
        /// Its name.
        name: &'a str,
        /// The points, by their first number.
        points: &'a [(f64, f64)],
    },
    /// Each value up to the next point.
    Steps {
        /// Its name.
        name: &'a str,
        /// The points, by their first number.
        points: &'a [(f64, f64)],
    },
    /// The mean as a line, in a band from the least to the most.
    Band {
        /// Its name.
        name: &'a str,
        /// The points, by their `x`.
        points: &'a [Spread],
    },
    /// Areas on each other. Where a part has no value, or a negative one, the sum is not known: all have a gap.
    Stack {
        /// Where the values are.
        xs: &'a [f64],
        /// Names and values, from the bottom.
        parts: &'a [(&'a str, &'a [f64])],
    },
    /// Points by themselves.
    Points {
        /// Their name.
        name: &'a str,
        /// The points.
        points: &'a [(f64, f64)],
    },
    /// A line through zero that ends at a height: a roof of bandwidth in a roofline, under a [`Limit`] of peak performance.
    Slope {
        /// What is written at it.
        label: &'a str,
        /// Height for each unit to the right.
        slope: f64,
        /// Where it ends.
        until: f64,
    },
}

/// Values of many at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Where.
    pub x: f64,
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub max: f64,
}

/// A level line.
#[derive(Debug, Clone, Copy)]
pub struct Limit<'a> {
    /// Its height. The axis shows it always.
    pub value: f64,
    /// What is written at it.
    pub label: &'a str,
}

/// An upright line.
#[derive(Debug, Clone, Copy)]
pub struct Marker<'a> {
    /// Where. Outside of the axis it is not drawn.
    pub at: f64,
    /// What is written at it, at the first of those with the same text.
    pub label: &'a str,
}

/// A series as it is drawn.
#[derive(Debug)]
enum Shape<'a> {
    Line(Vec<Point>),
    /// Points, least and most.
    Band(Vec<Point>, Vec<(f64, f64)>),
    /// The upper edge.
    Area(Vec<Point>),
    Marks(&'a [Point]),
}

impl Shape<'_> {
    /// The values that have to be inside of the axes.
    fn extend(&self, x: &mut Extent, y: &mut Extent, shown: &dyn Fn(f64) -> bool) {
        let points: &[Point] = match self {
            Self::Line(points) | Self::Area(points) | Self::Band(points, _) => points,
            Self::Marks(points) => points,
        };
        let ends = if let Self::Band(_, ends) = self { ends.as_slice() } else { &[] };
        for (index, (at, value)) in points.iter().enumerate().filter(|(_, (at, _))| shown(*at)) {
            x.add(*at);
            y.add(*value);
            if let Some((min, max)) = ends.get(index) {
                y.add(*min);
                y.add(*max);
            }
        }
    }
}

/// The layers with their series one by one, as the legend has them.
fn series<'a>(layers: &'a [Layer<'a>], x: &XAxis<'_>) -> Vec<(Entry<'a>, Shape<'a>)> {
    let mut all = Vec::new();
    let mut add = |swatch, name, shape| all.push((Entry { swatch, index: all.len(), name }, shape));
    for layer in layers {
        match *layer {
            Layer::Line { name, points } => add(Swatch::Line, name, Shape::Line(points.to_vec())),
            Layer::Steps { name, points } => add(Swatch::Line, name, Shape::Line(steps(points, x))),
            Layer::Band { name, points } => {
                let mean = points.iter().map(|p| (p.x, p.mean)).collect();
                add(Swatch::Band, name, Shape::Band(mean, points.iter().map(|p| (p.min, p.max)).collect()));
            }
            Layer::Stack { xs, parts } => {
                let mut edges = vec![0.0; xs.len()];
                for (at, edge) in edges.iter_mut().enumerate() {
                    let known =
                        |value: Option<&f64>| value.is_some_and(|v| *v >= 0.0 && drawable(*v).is_some());
                    if !parts.iter().all(|(_, values)| known(values.get(at))) {
                        *edge = f64::NAN;
                    }
                }
                for (name, values) in parts {
                    edges.iter_mut().zip(*values).for_each(|(edge, value)| *edge += value);
                    let upper = xs.iter().copied().zip(edges.iter().copied()).collect();
                    add(Swatch::Area, name, Shape::Area(upper));
                }
            }
            Layer::Points { name, points } => add(Swatch::Mark, name, Shape::Marks(points)),
            Layer::Slope { .. } => {}
        }
    }
    all
}

/// The corners of steps. A step that is in sight in part ends at the edge.
fn steps(points: &[Point], axis: &XAxis<'_>) -> Vec<Point> {
    let next = points.iter().skip(1).map(Some).chain([None]);
    let corners = points.iter().zip(next).flat_map(|((x, y), next)| {
        let (from, to) = axis.clipped(*x, next.map_or(*x, |(after, _)| *after));
        [Some((from, *y)), next.map(|_| (to, *y))]
    });
    corners.flatten().collect()
}

impl Plot<'_> {
    /// The plot as an SVG document.
    pub fn svg(&self, canvas: &Canvas<'_>) -> String {
        let (width, height) = canvas.size();
        let series = series(&self.layers, &self.x);
        let (x_extent, y_extent, any) = self.extents(&series);
        let mut svg = Svg::new((width, height), canvas.font, self.title, self.description);
        svg.title(self.title, width);
        let named: Vec<Entry<'_>> =
            series.iter().map(|(entry, _)| *entry).filter(|e| !e.name.is_empty()).collect();
        let top = if self.title.is_empty() { 8.0 } else { 27.0 };
        let most_rows = if height < 200.0 { 1 } else { 3 };
        let top = top + draw_legend(&mut svg, &named, top, width, most_rows) + 5.0;
        let frame = Frame::new(canvas, top, (&self.x, x_extent), (&self.y, y_extent));

        // The whole of a stack first: what is under it covers its lower part.
        for (entry, shape) in series.iter().rev() {
            draw_areas(&mut svg, &frame, *entry, shape);
        }
        frame.draw_grid(&mut svg, &self.x);
        for (entry, shape) in &series {
            draw_lines(&mut svg, &frame, *entry, shape);
        }
        frame.draw_axes(&mut svg, width, &self.x, &self.y);
        let markers = self.markers_seen(&frame);
        self.draw_marks(&mut svg, &frame, &markers);
        self.draw_labels(&mut svg, &frame, &markers, any);
        svg.finish()
    }

    /// What the axes have to show, and whether there are data.
    fn extents(&self, series: &[(Entry<'_>, Shape<'_>)]) -> (Extent, Extent, bool) {
        let (mut x, mut y) = (Extent::on(self.x.scale()), Extent::on(self.y.scale));
        for (_, shape) in series {
            shape.extend(&mut x, &mut y, &|at| self.x.shows(at));
        }
        let any = y.range().is_some();
        self.limits.iter().for_each(|limit| y.add(limit.value));
        for layer in &self.layers {
            if let Layer::Slope { slope, until, .. } = layer {
                x.add(until / slope);
                y.add(*until);
            }
        }
        (x, y, any)
    }

    /// Where markers are in the drawing, and their labels.
    fn markers_seen(&self, frame: &Frame) -> Vec<(f64, &str)> {
        self.markers
            .iter()
            .filter_map(|marker| Some((frame.across(marker.at)?.round(), marker.label)))
            .collect()
    }

    /// The lines of limits, markers and slopes.
    fn draw_marks(&self, svg: &mut Svg, frame: &Frame, markers: &[(f64, &str)]) {
        let mut limits = Path::default();
        for y in self.limits.iter().filter_map(|limit| frame.up(limit.value)) {
            limits.run(&[(frame.rect.left, y), (frame.rect.right, y)]);
        }
        svg.warning(limits, true);
        let mut slopes = Path::default();
        for (_, from, to) in self.slopes(frame) {
            slopes.run(&[from, to]);
        }
        svg.thin(slopes, 0.8, false);
        let mut columns: Vec<f64> = markers.iter().map(|(x, _)| *x).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        let mut upright = Path::default();
        columns.iter().for_each(|x| upright.run(&[(*x, frame.rect.top), (*x, frame.rect.bottom)]));
        svg.warning(upright, false);
    }

    /// The labels of what [`Self::draw_marks`] draws, over all of it.
    fn draw_labels(&self, svg: &mut Svg, frame: &Frame, markers: &[(f64, &str)], any: bool) {
        let Rect { left, top, right, bottom } = frame.rect;
        let mut labels = Labels::new(frame.rect, markers.iter().map(|(x, _)| *x).collect());
        if !any {
            let middle = (f64::midpoint(left, right), f64::midpoint(top, bottom));
            labels.put(svg, "no data", std::iter::once((middle, Anchor::Middle)));
        }
        for limit in &self.limits {
            let Some(y) = frame.up(limit.value) else { continue };
            let ends = [((right - 4.0), Anchor::End), (left + 4.0, Anchor::Start)];
            labels.put(
                svg,
                limit.label,
                [y - 4.0, y + 11.0].into_iter().flat_map(|y| ends.map(|(x, anchor)| ((x, y), anchor))),
            );
        }
        let mut seen = BTreeSet::new();
        for (x, label) in markers.iter().filter(|(_, label)| seen.insert(*label)) {
            let rows = (0..8).map(|row| top + 11.0 + f64::from(row) * 13.0);
            let sides = [(x + 4.0, Anchor::Start), (x - 4.0, Anchor::End)];
            labels.put(svg, label, rows.flat_map(|y| sides.map(|(x, anchor)| ((x, y), anchor))));
        }
        for (label, from, to) in self.slopes(frame) {
            let part = |part: f64| (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
            let sides =
                |(x, y): Point| [((x - 5.0, y - 3.0), Anchor::End), ((x + 5.0, y + 10.0), Anchor::Start)];
            labels.put(svg, label, [0.6, 0.4, 0.8, 0.2, 0.95].into_iter().map(part).flat_map(sides));
        }
    }

    /// Labels and ends of what is in sight of the slopes.
    fn slopes(&self, frame: &Frame) -> impl Iterator<Item = (&str, Point, Point)> {
        let ((first, last), (lowest, _)) = (frame.x.range(), frame.y.range());
        self.layers.iter().filter_map(move |layer| {
            let Layer::Slope { label, slope, until } = *layer else { return None };
            let (from, to) = (first.max(lowest / slope), last.min(until / slope));
            Some((label, frame.point((from, from * slope))?, frame.point((to, to * slope))?))
        })
    }
}

fn draw_areas(svg: &mut Svg, frame: &Frame, entry: Entry<'_>, shape: &Shape<'_>) {
    let right = frame.rect.right;
    let mut path = Path::default();
    match shape {
        Shape::Area(points) => {
            for run in runs(points.iter().map(|point| frame.point(*point)), right) {
                let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
                path.move_to((first.0, frame.rect.bottom));
                thinned(&run).into_iter().for_each(|point| path.line_to(point));
                path.line_to((last.0, frame.rect.bottom));
                path.close();
            }
            svg.area(path, Colour::Series(entry.index), 1.0);
        }
        Shape::Band(points, ends) => {
            let edges = |upper: bool| {
                let value = move |(min, max): &(f64, f64)| if upper { *max } else { *min };
                // A gap of one is a gap of both.
                let both = |x: f64, end: &(f64, f64)| {
                    frame.up(end.0).and(frame.up(end.1)).and(frame.point((x, value(end))))
                };
                runs(points.iter().zip(ends).map(|((x, _), end)| both(*x, end)), right)
            };
            for (upper, lower) in edges(true).into_iter().zip(edges(false)) {
                path.run(&edge(&upper, f64::min));
                edge(&lower, f64::max).into_iter().rev().for_each(|point| path.line_to(point));
                path.close();
            }
            svg.area(path, Colour::Series(entry.index), BAND);
        }
        Shape::Line(_) | Shape::Marks(_) => {}
    }
}

/// One point for each column of a pixel: the highest of an upper edge, the lowest of a lower one. The ends are kept.
fn edge(run: &[Point], outer: fn(f64, f64) -> f64) -> Vec<Point> {
    let columns = run.chunk_by(|a, b| a.0.floor() == b.0.floor());
    let outermost = columns.filter_map(|column| {
        let y = column.iter().map(|(_, y)| *y).reduce(outer)?;
        column.first().map(|(x, _)| (*x, y))
    });
    let mut edge: Vec<Point> = outermost.collect();
    edge.extend(run.last().filter(|last| edge.last().is_some_and(|(x, _)| *x < last.0)));
    edge
}

fn draw_lines(svg: &mut Svg, frame: &Frame, entry: Entry<'_>, shape: &Shape<'_>) {
    let mut path = Path::default();
    match shape {
        Shape::Line(points) | Shape::Band(points, _) => {
            for run in runs(points.iter().map(|point| frame.point(*point)), frame.rect.right) {
                path.run(&thinned(&run));
            }
            svg.curve(path, entry.index, 1.25);
        }
        Shape::Marks(points) => {
            let mut places: Vec<Point> = points.iter().filter_map(|point| frame.point(*point)).collect();
            // What cannot be seen beside another is drawn once.
            let key = |(x, y): &Point| (x.round(), y.round());
            places.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
            places.dedup_by_key(|point| key(point));
            places.iter().for_each(|place| mark(&mut path, entry.index, *place));
            svg.area(path, Colour::Series(entry.index), 0.85);
        }
        Shape::Area(_) => {}
    }
}
