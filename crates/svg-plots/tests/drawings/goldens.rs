//! Small drawings, letter by letter. `JOBLEDGER_BLESS=1` rewrites them; look at them in a browser.

use std::path::Path;

use jobledger_testkit::golden::assert_golden;
use svg_plots::{
    Bar, Bars, Canvas, HeatMap, Layer, Limit, Marker, Plot, Row, Scale, Sparkline, Spread, Tone, Unit,
    ValueAxis, XAxis,
};

use crate::{LOCAL, plot, reader::holds};

const GIB: f64 = 1_073_741_824.0;
const CANVAS: Canvas<'static> =
    Canvas { width: 320.0, height: 160.0, font: "DejaVu Sans, sans-serif", left: 24.0 };

fn golden(name: &str, svg: &str) {
    holds(svg);
    assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/drawings/{name}.svg")), svg);
}

#[test]
fn lines_with_a_gap_a_limit_and_an_oom_kill() {
    let first =
        [(0.0, 1.0 * GIB), (60.0, 3.0 * GIB), (120.0, f64::NAN), (180.0, 6.0 * GIB), (240.0, 7.5 * GIB)];
    let second = [(0.0, 2.0 * GIB), (240.0, 2.0 * GIB)];
    let plot = Plot {
        description: "b01 grows to 7.5 GiB and is killed.",
        layers: vec![
            Layer::Line { name: "b01", points: &first },
            Layer::Line { name: "b02 </svg>", points: &second },
        ],
        limits: vec![Limit { value: 8.0 * GIB, label: "limit 8 GiB" }],
        markers: vec![Marker { at: 240.0, label: "OOM kill" }],
        ..plot("Memory", Unit::Binary("B"))
    };
    golden("lines", &plot.svg(&CANVAS));
}

#[test]
fn steps_and_a_band_by_the_clock() {
    let steps = [(1_795_426_260.0, 0.2), (1_795_428_000.0, 0.8), (1_795_430_000.0, 0.8)];
    let spread = |x, min, mean, max| Spread { x, min, mean, max };
    let band = [
        spread(1_795_426_260.0, 0.1, 0.3, 0.4),
        spread(1_795_428_000.0, 0.2, 0.5, 1.0),
        spread(1_795_430_000.0, 0.3, 0.4, 0.5),
    ];
    let plot = Plot {
        x: XAxis::Time { axis: LOCAL, range: Some((1_795_426_260.0, 1_795_430_000.0)) },
        layers: vec![
            Layer::Steps { name: "b01", points: &steps },
            Layer::Band { name: "all, least to most", points: &band },
        ],
        ..plot("CPU use", Unit::Percent)
    };
    golden("steps_and_band", &plot.svg(&CANVAS));
}

#[test]
fn a_stack() {
    let parts: [(&str, &[f64]); 2] = [("CPU", &[100.0, 120.0, 110.0]), ("GPU", &[300.0, 250.0, 900.0])];
    let plot = Plot {
        layers: vec![Layer::Stack { xs: &[0.0, 10.0, 20.0], parts: &parts }],
        ..plot("Power", Unit::Si("W"))
    };
    golden("stack", &plot.svg(&CANVAS));
}

#[test]
fn a_roofline() {
    let log = |unit, label| ValueAxis { label, scale: Scale::Log, ..ValueAxis::of(unit) };
    let plot = Plot {
        x: XAxis::Value(log(Unit::Number, "FLOP/byte")),
        y: log(Unit::Si("FLOP/s"), ""),
        layers: vec![
            Layer::Points { name: "b01", points: &[(0.2, 2e10), (3.0, 4e11)] },
            Layer::Slope { label: "200 GB/s", slope: 2e11, until: 2e12 },
        ],
        limits: vec![Limit { value: 2e12, label: "2 TFLOP/s" }],
        ..plot("Roofline", Unit::Number)
    };
    golden("roofline", &plot.svg(&CANVAS));
}

#[test]
fn bars_over_their_targets() {
    let targets = [(0.0, Tone::Bad), (0.2, Tone::Fair), (0.65, Tone::Good)];
    let bar = |label, value, note| Bar { label, value, note, targets: &targets };
    let bars = Bars {
        title: "Used",
        description: "",
        unit: Unit::Percent,
        at_least: Some((0.0, 1.0)),
        rows: vec![bar("CPU", 0.099, "4.7 of 48"), bar("GPU busy", f64::NAN, "")],
    };
    golden("bars", &bars.svg(&CANVAS));
}

#[test]
fn a_heat_map() {
    let map = HeatMap {
        title: "CPU use",
        description: "",
        axis: LOCAL,
        span: (1_795_426_260.0, 1_795_430_000.0),
        unit: Unit::Percent,
        at_least: Some((0.0, 1.0)),
        rows: vec![
            Row { label: "b01", values: &[0.0, 0.5, 0.5, 1.0] },
            Row { label: "b02", values: &[1.0, f64::NAN, 1.0, 1.0] },
        ],
    };
    golden("heat_map", &map.svg(&CANVAS));
}

#[test]
fn a_sparkline() {
    let values = [1.0, 3.0, f64::NAN, 2.0, 2.0, 4.0];
    let svg = Sparkline { title: "CPUs used", values: &values, top: None }.svg(&Canvas {
        width: 80.0,
        height: 20.0,
        ..CANVAS
    });
    golden("sparkline", &svg);
}
