//! What is drawn is what was given.

use svg_plots::{Canvas, HeatMap, Layer, Limit, Marker, Plot, Row, Spread, Unit, ValueAxis};

use crate::reader::holds;
use crate::{LOCAL, plot};

/// Numbers that look measured, the same each time.
fn noise(index: usize) -> f64 {
    (index * 7919 % 997) as f64 / 997.0
}

/// The curve of a class, its parts as points.
fn curve(svg: &str, class: &str) -> Vec<Vec<(f64, f64)>> {
    holds(svg).of_class(class).iter().find(|path| path.stroke_width == 1.25).unwrap().parts.clone()
}

#[test]
fn a_day_of_minutes_is_small_and_keeps_its_extremes() {
    let mut points: Vec<(f64, f64)> = (0..1440).map(|i| (i as f64 * 60.0, 50.0 + noise(i))).collect();
    (points[700].1, points[701].1) = (100.0, 0.0);
    let svg = Plot { layers: vec![Layer::Line { name: "", points: &points }], ..plot("Noise", Unit::Number) }
        .svg(&Canvas::default());
    assert!(svg.len() < 15_000, "{} bytes", svg.len());
    let ys: Vec<f64> = curve(&svg, "c0").concat().iter().map(|(_, y)| *y).collect();
    let (top, bottom) =
        (ys.iter().copied().fold(f64::INFINITY, f64::min), ys.iter().copied().fold(0.0, f64::max));
    // 100 and 0 are at the ends of the axis.
    assert!((top - 32.0).abs() < 0.05 && (bottom - 202.0).abs() < 0.05, "{top} {bottom}");
}

#[test]
fn a_gap_is_not_bridged_and_a_point_by_itself_is_seen() {
    let points = [
        (0.0, 1.0),
        (10.0, 1.0),
        (20.0, f64::NAN),
        (30.0, 1.0),
        (40.0, f64::INFINITY),
        (50.0, 1.0),
        (100.0, 1.0),
    ];
    let svg = Plot { layers: vec![Layer::Line { name: "", points: &points }], ..plot("Gaps", Unit::Number) }
        .svg(&Canvas::default());
    let parts = curve(&svg, "c0");
    let (left, right) = (parts[0][0].0, parts[2][1].0);
    let at = |x: f64| left + (right - left) * x / 100.0;
    let expected = [(at(0.0), at(10.0)), (at(30.0), at(30.0) + 1.0), (at(50.0), at(100.0))];
    assert_eq!(parts.len(), 3);
    for (part, (from, to)) in parts.iter().zip(expected) {
        assert!(
            (part[0].0 - from).abs() < 0.2 && (part.last().unwrap().0 - to).abs() < 0.2,
            "{part:?}: {from} to {to}"
        );
    }
}

#[test]
fn parts_of_a_stack_lie_on_each_other() {
    let parts: [(&str, &[f64]); 2] = [("", &[1.0, 2.0, f64::NAN, 1.0]), ("", &[3.0, 2.0, 1.0, -1.0])];
    let plot = Plot {
        layers: vec![Layer::Stack { xs: &[0.0, 1.0, 2.0, 3.0], parts: &parts }],
        ..plot("Stack", Unit::Number)
    };
    let drawing = holds(&plot.svg(&Canvas::default()));
    let upper = |class: &str| drawing.of_class(class)[0].parts[0].clone();
    let (low, high) = (upper("c0"), upper("c1"));
    // Both parts are known at the first two places alone.
    let bottom = low[0].1;
    let heights = |part: &[(f64, f64)]| part[1..3].iter().map(|(_, y)| bottom - y).collect::<Vec<_>>();
    let (low, high) = (heights(&low), heights(&high));
    assert!((low[0] * 4.0 - high[0]).abs() < 0.5 && (low[1] * 2.0 - high[1]).abs() < 0.5, "{low:?} {high:?}");
    assert!((high[0] - high[1]).abs() < 0.05);
    assert_eq!(drawing.of_class("c1")[0].parts.len(), 1);
}

#[test]
fn a_band_reaches_from_the_least_to_the_most_of_all() {
    let points: Vec<Spread> = (0..5000)
        .map(|i| Spread { x: i as f64, min: 40.0 - 30.0 * noise(i), mean: 50.0, max: 60.0 + 40.0 * noise(i) })
        .collect();
    let svg = Plot { layers: vec![Layer::Band { name: "", points: &points }], ..plot("Band", Unit::Number) }
        .svg(&Canvas::default());
    let drawing = holds(&svg);
    let area = &drawing.of_class("c0").into_iter().find(|path| path.stroke_width == 0.0).unwrap().parts[0];
    let (top, bottom) =
        area.iter().fold((f64::INFINITY, 0.0_f64), |(top, bottom), (_, y)| (top.min(*y), bottom.max(*y)));
    // 0 is at 202 and 100 at 32.
    let value = |y: f64| (202.0 - y) / 1.7;
    assert!(
        (value(top) - 100.0).abs() < 0.2 && (value(bottom) - 10.0).abs() < 0.2,
        "{} {}",
        value(top),
        value(bottom)
    );
    assert!(svg.len() < 25_000, "{} bytes", svg.len());
}

#[test]
fn a_limit_is_in_sight_and_markers_of_one_kind_are_labelled_once() {
    let plot = Plot {
        layers: vec![Layer::Line { name: "", points: &[(0.0, 1.0), (1000.0, 2.0)] }],
        limits: vec![Limit { value: 64.0, label: "limit" }],
        markers: (0..50)
            .map(|i| Marker {
                at: f64::from(i) * 20.0,
                label: if i % 2 == 0 { "OOM kill" } else { "signal" },
            })
            .collect(),
        ..plot("Marks", Unit::Number)
    };
    let drawing = holds(&plot.svg(&Canvas::default()));
    let words = drawing.words();
    for word in ["limit", "OOM kill", "signal"] {
        assert_eq!(words.iter().filter(|shown| **shown == word).count(), 1, "{word}");
    }
    assert_eq!(drawing.of_class("bad").iter().map(|path| path.parts.len()).sum::<usize>(), 51);
}

#[test]
fn a_legend_counts_what_it_has_no_room_for() {
    let names: Vec<String> = (0..200).map(|i| format!("node{i:03}")).collect();
    let layers = names.iter().map(|name| Layer::Line { name, points: &[(0.0, 1.0), (1.0, 1.0)] }).collect();
    let drawing = holds(&Plot { layers, ..plot("Many", Unit::Number) }.svg(&Canvas::default()));
    let shown = drawing.words().iter().filter(|text| text.starts_with("node")).count();
    assert!(drawing.words().contains(&format!("and {} more", 200 - shown).as_str()) && shown > 10, "{shown}");
}

#[test]
fn nothing_is_no_data_and_no_axis() {
    let drawing = holds(&plot("Nothing", Unit::Si("W")).svg(&Canvas::default()));
    assert_eq!(drawing.words(), ["Nothing", "no data"]);
}

#[test]
fn what_is_outside_of_the_range_is_not_drawn() {
    let plot = Plot {
        x: svg_plots::XAxis::Time { axis: LOCAL, range: Some((0.0, 10.0)) },
        y: ValueAxis::of(Unit::Number),
        layers: vec![Layer::Line {
            name: "",
            points: &[(-5.0, 900.0), (0.0, 1.0), (10.0, 2.0), (11.0, 500.0)],
        }],
        ..plot("Range", Unit::Number)
    };
    let drawing = holds(&plot.svg(&Canvas::default()));
    assert!(drawing.words().contains(&"2") && !drawing.words().contains(&"500"));
}

#[test]
fn a_step_that_is_in_sight_in_part_ends_at_the_edge() {
    let points = [(-100.0, 9.0), (-50.0, 1.0), (50.0, 2.0), (500.0, 9.0), (600.0, 9.0)];
    let plot = Plot {
        x: svg_plots::XAxis::Time { axis: LOCAL, range: Some((0.0, 100.0)) },
        layers: vec![Layer::Steps { name: "", points: &points }],
        ..plot("Steps", Unit::Number)
    };
    let svg = plot.svg(&Canvas::default());
    let parts = curve(&svg, "c0");
    // From edge to edge, with its rise in the middle, at half of the height and all of it: nothing in sight is 9.
    let [left, .., right] = parts[0].as_slice() else { panic!("{parts:?}") };
    let width = right.0 - left.0;
    let expected = [(0.0, 117.0), (0.5, 117.0), (0.5, 32.0), (1.0, 32.0)];
    assert_eq!((parts.len(), parts[0].len()), (1, 4));
    for ((x, y), (part, height)) in parts[0].iter().zip(expected) {
        assert!((x - left.0 - width * part).abs() < 0.2 && (y - height).abs() < 0.1, "{parts:?}");
    }
}

/// The areas of the colours of a heat map, as parts of all of it.
fn areas(map: &HeatMap<'_>) -> Vec<(String, f64)> {
    let drawing = holds(&map.svg(&Canvas::default()));
    let mut areas = Vec::new();
    for level in 0..9 {
        let class = format!("h{level}");
        let lanes = drawing.of_class(&class).into_iter().filter(|path| path.stroke_width > 0.0);
        let area: f64 = lanes
            .flat_map(|path| path.parts.iter().map(|part| (part[1].0 - part[0].0) * path.stroke_width))
            .sum();
        if area > 0.0 {
            areas.push((class, area));
        }
    }
    areas
}

fn map<'a>(rows: Vec<Row<'a>>) -> HeatMap<'a> {
    HeatMap {
        title: "Heat",
        description: "",
        axis: LOCAL,
        span: (0.0, 3600.0),
        unit: Unit::Percent,
        at_least: Some((0.0, 1.0)),
        rows,
    }
}

#[test]
fn areas_of_a_heat_map_are_the_times_of_its_values() {
    let values: Vec<f64> = (0..1440)
        .map(|i| {
            if i < 360 {
                0.0
            } else if i < 1080 {
                1.0
            } else {
                f64::NAN
            }
        })
        .collect();
    let areas =
        areas(&map(vec![Row { label: "a", values: &values }, Row { label: "b", values: &[0.5; 720] }]));
    let names: Vec<&str> = areas.iter().map(|(class, _)| class.as_str()).collect();
    assert_eq!(names, ["h0", "h4", "h8"]);
    // A quarter of a row, half of one, half of one.
    let half = areas[1].1;
    assert!((areas[0].1 / half - 0.5).abs() < 0.01 && (areas[2].1 / half - 1.0).abs() < 0.01, "{areas:?}");
}

#[test]
fn a_thousand_rows_are_bins_of_largest_and_smallest() {
    let (idle, busy) = (vec![0.0; 500], vec![1.0; 500]);
    let names: Vec<String> = (0..1000).map(|i| format!("n{i:04}")).collect();
    let rows = names
        .iter()
        .enumerate()
        .map(|(i, label)| Row { label, values: if i == 40 { &idle } else { &busy } })
        .collect();
    let map = map(rows);
    let drawing = holds(&map.svg(&Canvas::default()));
    let note = "1000 rows in 32 bins of up to 32: largest value above, smallest below; each cell is the mean of up to 4 values";
    assert!(drawing.words().contains(&note), "{:?}", drawing.words());
    assert!(drawing.words().contains(&"n0032 … n0063") && drawing.words().contains(&"n0992 … n0999"));
    // One lane of 64 is idle.
    let areas = areas(&map);
    assert_eq!(areas.len(), 2);
    assert!((areas[1].1 / areas[0].1 - 63.0).abs() < 0.01, "{areas:?}");
}

#[test]
fn a_heat_map_of_64_nodes_and_a_day_is_small() {
    let rows: Vec<Vec<f64>> =
        (0..64).map(|row| (0..1440).map(|i| (noise(i / 45 + row) + noise(i)) / 2.0).collect()).collect();
    let svg = map(rows.iter().map(|values| Row { label: "node", values }).collect()).svg(&Canvas::default());
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
}

/// What is below each other has the same time below each other.
#[test]
fn data_begin_where_the_canvas_says() {
    let points = [(0.0, 1.0), (10.0, 1000.0)];
    let canvas = Canvas { left: 90.0, ..Canvas::default() };
    let layers = || vec![Layer::Line { name: "", points: &points }];
    for unit in [Unit::Number, Unit::Binary("B/s")] {
        let svg = Plot { layers: layers(), ..plot("", unit) }.svg(&canvas);
        assert_eq!(curve(&svg, "c0")[0][0].0, 90.0);
    }
    let map = HeatMap {
        title: "",
        description: "",
        axis: LOCAL,
        span: (0.0, 60.0),
        unit: Unit::Percent,
        at_least: None,
        rows: vec![Row { label: "n1", values: &[1.0, 1.0] }],
    };
    let svg = map.svg(&canvas);
    let drawn = holds(&svg);
    assert!(drawn.of_class("h8").iter().any(|path| path.parts[0][0].0 == 90.0), "{svg}");
}
