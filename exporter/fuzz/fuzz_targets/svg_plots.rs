//! Names and values of others in drawings: what comes out is XML in which no name is markup, and its numbers are numbers.

use jobledger_exporter_fuzz::typed;
use roxmltree::Document;
use svg_plots::{
    Bar, Bars, Canvas, HeatMap, Layer, Limit, Marker, Plot, Row, Scale, Sparkline, Spread, TimeAxis, Tone,
    Unit, ValueAxis, XAxis,
};

type Input<'a> = (&'a str, &'a str, &'a str, u8, (f64, f64), Vec<(f64, f64)>, Vec<f64>);

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(title, name, font, kind, ends, points, values): Input<'_>| {
        let unit = [Unit::Number, Unit::Percent, Unit::Si(name), Unit::Binary(name)][usize::from(kind) % 4];
        let scale = [Scale::Linear, Scale::LinearWithoutZero, Scale::Log][usize::from(kind) / 4 % 3];
        let at_least = (kind & 64 != 0).then_some(ends);
        let canvas = Canvas { width: ends.0, height: ends.1, font, left: ends.0 };
        let y = ValueAxis { label: name, unit, scale, at_least };
        let x = if kind & 128 == 0 {
            XAxis::Value(y)
        } else {
            XAxis::Time { axis: TimeAxis::Elapsed, range: at_least }
        };
        let xs: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
        let spread: Vec<Spread> =
            points.iter().map(|(x, y)| Spread { x: *x, min: *y, mean: *y, max: y + ends.0 }).collect();
        let parts: [(&str, &[f64]); 2] = [(name, &values), (title, &values)];
        let targets = [(ends.0, Tone::Bad), (ends.1, Tone::Fair)];
        let plot = Plot {
            title,
            description: name,
            x,
            y,
            layers: vec![
                Layer::Line { name, points: &points },
                Layer::Steps { name: title, points: &points },
                Layer::Band { name, points: &spread },
                Layer::Stack { xs: &xs, parts: &parts },
                Layer::Points { name, points: &points },
                Layer::Slope { label: name, slope: ends.0, until: ends.1 },
            ],
            limits: vec![Limit { value: ends.0, label: name }],
            markers: values.iter().map(|at| Marker { at: *at, label: title }).collect(),
        };
        is_drawing(&plot.svg(&canvas));
        let rows =
            values.iter().map(|value| Bar { label: name, value: *value, note: title, targets: &targets });
        is_drawing(&Bars { title, description: name, unit, at_least, rows: rows.collect() }.svg(&canvas));
        let rows = values.iter().take(200).map(|_| Row { label: name, values: &values }).collect();
        is_drawing(
            &HeatMap { title, description: name, axis: TimeAxis::Elapsed, span: ends, unit, at_least, rows }
                .svg(&canvas),
        );
        is_drawing(&Sparkline { title, values: &values, top: Some(ends.0) }.svg(&canvas));
    });
}

fn is_drawing(svg: &str) {
    let document = Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
    for node in document.descendants() {
        let known = !node.is_element()
            || matches!(node.tag_name().name(), "svg" | "title" | "desc" | "text" | "path");
        assert!(known, "{:?}", node.tag_name());
        for attribute in node
            .attributes()
            .filter(|attribute| matches!(attribute.name(), "x" | "y" | "width" | "height" | "d"))
        {
            assert!(
                !attribute.value().contains("NaN") && !attribute.value().contains("inf"),
                "{}",
                attribute.value()
            );
        }
        let hidden = |c: char| {
            c != '\n' && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
        };
        assert!(!node.text().unwrap_or_default().contains(hidden), "{:?}", node.text());
    }
}
