//! Drawings of known data, and of any.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod goldens;
mod properties;
mod reader;
mod shapes;

use svg_plots::{ClockUnit, LocalTime, TimeAxis, Unit, ValueAxis, XAxis};

/// An hour east of UTC.
pub(crate) const LOCAL: TimeAxis<'static> = TimeAxis::Local(LocalTime {
    offset: &|_| 3600,
    label: &|at, unit| {
        let second = (at + 3600).rem_euclid(86_400);
        match unit {
            ClockUnit::Day => format!("day {}", (at + 3600).div_euclid(86_400)),
            ClockUnit::Minute => format!("{:02}:{:02}", second / 3600, second % 3600 / 60),
            ClockUnit::Second => format!("{:02}:{:02}:{:02}", second / 3600, second % 3600 / 60, second % 60),
        }
    },
});

/// A plot of nothing yet.
pub(crate) fn plot<'a>(title: &'a str, unit: Unit<'a>) -> svg_plots::Plot<'a> {
    svg_plots::Plot {
        title,
        description: "",
        x: XAxis::Time { axis: TimeAxis::Elapsed, range: None },
        y: ValueAxis::of(unit),
        layers: Vec::new(),
        limits: Vec::new(),
        markers: Vec::new(),
    }
}
