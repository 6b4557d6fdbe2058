//! Whatever the data and the names, a drawing can be read, and all of it is in sight.

use proptest::prelude::*;
use svg_plots::{
    Bar, Bars, Canvas, HeatMap, Layer, Limit, Marker, Plot, Row, Scale, Sparkline, Spread, TimeAxis, Tone,
    Unit, ValueAxis, XAxis,
};

use crate::LOCAL;
use crate::reader::{holds, read};

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0..1e4_f64,
        2 => proptest::num::f64::ANY,
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, 1e99, 1.795e9]),
    ]
}

/// Constant, one, none, and any.
fn values() -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        prop::collection::vec(value(), 0..40),
        (value(), 1..20_usize).prop_map(|(value, count)| vec![value; count]),
        (1e-6..1e12_f64, prop::collection::vec(0.0..1.0_f64, 1..200))
            .prop_map(|(size, parts)| parts.iter().map(|part| part * size).collect()),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,12}",
        prop::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
        Just("</text></svg><script>\u{202e}\u{0}\"'&".to_owned()),
        "[W界]{100,200}",
    ]
}

fn unit(index: usize) -> Unit<'static> {
    [Unit::Number, Unit::Percent, Unit::Si("W"), Unit::Binary("B/s")][index % 4]
}

fn canvas() -> impl Strategy<Value = Canvas<'static>> {
    (prop_oneof![160.0..900.0_f64, value()], prop_oneof![100.0..500.0_f64, value()])
        .prop_map(|(width, height)| Canvas { width, height, font: "a\"<b", ..Canvas::default() })
}

fn scale() -> impl Strategy<Value = Scale> {
    prop::sample::select(vec![Scale::Linear, Scale::LinearWithoutZero, Scale::Log])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_plot(
        (xs, ys, more) in (values(), values(), values()),
        (title, label, axis_label) in (name(), name(), name()),
        (kind, unit_index, x_scale, y_scale) in (0..3, 0..4_usize, scale(), scale()),
        at_least in prop::option::of((value(), value())),
        canvas in canvas(),
    ) {
        let points: Vec<(f64, f64)> = xs.iter().copied().zip(ys.iter().copied()).collect();
        let spread: Vec<Spread> = points.iter().zip(&more).map(|((x, min), max)| Spread { x: *x, min: *min, mean: *max, max: min + max }).collect();
        let parts: [(&str, &[f64]); 2] = [(&label, &ys), (&title, &more)];
        let x = match kind {
            0 => XAxis::Time { axis: LOCAL, range: at_least },
            1 => XAxis::Time { axis: TimeAxis::Elapsed, range: at_least },
            _ => XAxis::Value(ValueAxis { label: &axis_label, scale: x_scale, ..ValueAxis::of(unit(unit_index + 1)) }),
        };
        let plot = Plot {
            title: &title,
            description: &label,
            x,
            y: ValueAxis { label: &label, unit: unit(unit_index), scale: y_scale, at_least },
            layers: vec![
                Layer::Stack { xs: &xs, parts: &parts },
                Layer::Line { name: &label, points: &points },
                Layer::Steps { name: "steps", points: &points },
                Layer::Band { name: &title, points: &spread },
                Layer::Points { name: &axis_label, points: &points },
                Layer::Slope { label: &label, slope: ys.first().copied().unwrap_or(1.0), until: more.first().copied().unwrap_or(5.0) },
            ],
            limits: more.iter().take(3).map(|value| Limit { value: *value, label: &label }).collect(),
            markers: xs.iter().take(9).map(|at| Marker { at: *at, label: &title }).collect(),
        };
        let svg = plot.svg(&canvas);
        holds(&svg);
        prop_assert_eq!(svg, plot.svg(&canvas));
    }

    #[test]
    fn any_bars(
        rows in prop::collection::vec((name(), value(), name()), 0..8),
        (title, unit_index, at_least) in (name(), 0..4_usize, prop::option::of((value(), value()))),
        (low, high) in (value(), value()),
        canvas in canvas(),
    ) {
        let targets = [(low, Tone::Bad), (high, Tone::Good), (1.0, Tone::Fair)];
        let rows = rows.iter().map(|(label, value, note)| Bar { label, value: *value, note, targets: &targets }).collect();
        holds(&Bars { title: &title, description: "", unit: unit(unit_index), at_least, rows }.svg(&canvas));
    }

    #[test]
    fn any_heat_map(
        rows in prop::collection::vec((name(), values()), 0..8),
        (title, unit_index, at_least, many) in (name(), 0..4_usize, prop::option::of((value(), value())), any::<bool>()),
        span in (value(), value()),
        canvas in canvas(),
    ) {
        let rows: Vec<Row<'_>> = rows.iter().map(|(label, values)| Row { label, values }).collect();
        let rows = rows.repeat(if many { 20 } else { 1 });
        holds(&HeatMap { title: &title, description: &title, axis: LOCAL, span, unit: unit(unit_index), at_least, rows }.svg(&canvas));
    }

    #[test]
    fn any_sparkline(values in values(), title in name(), top in prop::option::of(value()), canvas in canvas()) {
        read(&Sparkline { title: &title, values: &values, top }.svg(&canvas));
    }
}
