//! What a resource says of power and energy. Pure.
//!
//! Schemas of DSP0268 (dmtf.org/dsp/DSP0268), which `@odata.type` names:
//!
//! - `EnvironmentMetrics`: `EnergyJoules` (since 1.2) and `EnergykWh` count, `PowerWatts` is momentary. Each is an excerpt of
//!   a sensor with `Reading`.
//! - `Power`, deprecated since 2020.4 and still what most controllers have: `PowerControl[].PowerConsumedWatts`.
//! - `Sensor`: `Reading`, of which `ReadingType` and `ReadingUnits` say what it is.
//!
//! A null is a value that the service does not know at this time (DSP0266, "null values").

use kernel_files::parse::{ParseError, decimal};
use readings::LARGEST_POWER;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Digits after the point that a counter of kilowatt hours needs: 0.001 kWh is what a node of 360 W takes in ten seconds.
const LEAST_DECIMALS: i32 = 3;

/// A number's text, and the state of what it measures.
type Reading<'a> = (Option<&'a RawValue>, Option<&'a Status>);

/// What can be read of a resource, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// A counter of joules.
    Joules,
    /// A counter of kilowatt hours.
    KilowattHours,
    /// Momentary power.
    Watts,
}

impl Quantity {
    const ALL: [Self; 3] = [Self::Joules, Self::KilowattHours, Self::Watts];

    /// Whether it counts.
    pub fn counts(self) -> bool {
        self != Self::Watts
    }

    /// Joules or watts in one of its units.
    fn unit(self) -> u64 {
        if self == Self::KilowattHours { 3_600_000 } else { 1 }
    }
}

/// Microjoules or microwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    micro: u64,
    decimals: i32,
}

/// What a resource says of each quantity: nothing, a number, or why it is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    joules: Option<Result<Number, &'static str>>,
    kilowatt_hours: Option<Result<Number, &'static str>>,
    watts: Option<Result<Number, &'static str>>,
}

impl Answer {
    /// The best quantity that has a value: counters before power. A counter of kilowatt hours is used if it is fine enough.
    pub fn best(&self) -> Result<Quantity, ParseError> {
        let usable = |quantity: &Quantity| self.usable(*quantity).is_ok();
        if let Some(best) = Quantity::ALL.into_iter().find(usable) {
            return Ok(best);
        }
        let there = Quantity::ALL.into_iter().find(|quantity| self.of(*quantity).is_some());
        there.map_or(Err(error("no EnergyJoules, EnergykWh or PowerWatts")), |quantity| {
            self.usable(quantity).map(|_| quantity)
        })
    }

    /// Microjoules counted, or microwatts.
    pub fn value(&self, quantity: Quantity) -> Result<u64, ParseError> {
        self.number(quantity).map(|number| number.micro)
    }

    fn of(&self, quantity: Quantity) -> Option<Result<Number, &'static str>> {
        match quantity {
            Quantity::Joules => self.joules,
            Quantity::KilowattHours => self.kilowatt_hours,
            Quantity::Watts => self.watts,
        }
    }

    fn number(&self, quantity: Quantity) -> Result<Number, ParseError> {
        self.of(quantity).unwrap_or(Err("the property is not there any more")).map_err(error)
    }

    fn usable(&self, quantity: Quantity) -> Result<Number, ParseError> {
        let number = self.number(quantity)?;
        if quantity == Quantity::KilowattHours && number.decimals < LEAST_DECIMALS {
            return Err(error("EnergykWh is coarser than 0.001 kWh, and there is no power"));
        }
        Ok(number)
    }
}

fn error(reason: &'static str) -> ParseError {
    ParseError::new(1, reason)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Resource<'a> {
    #[serde(rename = "@odata.type")]
    schema: Option<String>,
    status: Option<Status>,
    #[serde(borrow)]
    energy_joules: Option<Excerpt<'a>>,
    #[serde(borrow, rename = "EnergykWh")]
    energy_kwh: Option<Excerpt<'a>>,
    #[serde(borrow)]
    power_watts: Option<Excerpt<'a>>,
    #[serde(borrow)]
    power_control: Option<Vec<Option<PowerControl<'a>>>>,
    #[serde(borrow)]
    reading: Option<&'a RawValue>,
    reading_type: Option<String>,
    reading_units: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Excerpt<'a> {
    #[serde(borrow)]
    reading: Option<&'a RawValue>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PowerControl<'a> {
    name: Option<String>,
    physical_context: Option<String>,
    #[serde(borrow)]
    power_consumed_watts: Option<&'a RawValue>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Status {
    state: Option<String>,
}

/// Parses a resource.
pub fn parse_answer(bytes: &[u8]) -> Result<Answer, ParseError> {
    let resource: Resource<'_> = serde_json::from_slice(bytes).map_err(|error| {
        let reason = match error.classify() {
            serde_json::error::Category::Data => "not of the form that DSP0268 describes",
            serde_json::error::Category::Eof => "the JSON ends too early",
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => "not JSON",
        };
        ParseError::new(error.line().max(1), reason)
    })?;
    if !is_enabled(resource.status.as_ref()) {
        return Err(error(NOT_ENABLED));
    }
    // `#Power.v1_7_1.Power`, or `#SensorCollection.SensorCollection` without a version.
    let schema = resource.schema.as_deref().and_then(|schema| schema.strip_prefix('#')?.split('.').next());
    match schema {
        Some("EnvironmentMetrics") => Ok(resource.environment_metrics()),
        Some("Power") => resource.power(),
        Some("Sensor") => resource.sensor(),
        _ => Err(error("@odata.type is not EnvironmentMetrics, Power or Sensor")),
    }
}

impl Resource<'_> {
    fn environment_metrics(&self) -> Answer {
        let read = |excerpt: &Option<Excerpt<'_>>, quantity| {
            excerpt.as_ref().map(|excerpt| number((excerpt.reading, excerpt.status.as_ref()), quantity))
        };
        Answer {
            joules: read(&self.energy_joules, Quantity::Joules),
            kilowatt_hours: read(&self.energy_kwh, Quantity::KilowattHours),
            watts: read(&self.power_watts, Quantity::Watts),
        }
    }

    fn power(&self) -> Result<Answer, ParseError> {
        let controls: Vec<_> = self.power_control.iter().flatten().flatten().collect();
        let control = of_node(&controls).map_err(error)?;
        let watts = number((control.power_consumed_watts, control.status.as_ref()), Quantity::Watts);
        Ok(Answer { watts: Some(watts), ..Answer::default() })
    }

    fn sensor(&self) -> Result<Answer, ParseError> {
        let read = |quantity| Some(number((self.reading, None), quantity));
        match (self.reading_type.as_deref(), self.reading_units.as_deref()) {
            (Some("EnergyJoules"), Some("J")) => {
                Ok(Answer { joules: read(Quantity::Joules), ..Answer::default() })
            }
            (Some("EnergykWh"), Some("kW.h")) => {
                Ok(Answer { kilowatt_hours: read(Quantity::KilowattHours), ..Answer::default() })
            }
            (Some("Power"), Some("W")) => Ok(Answer { watts: read(Quantity::Watts), ..Answer::default() }),
            _ => Err(error("a sensor of neither Power in W, EnergyJoules in J nor EnergykWh in kW.h")),
        }
    }
}

/// The member that is the node's: the only one, or else the only one that says so. Lenovo's other members are the CPUs and
/// the memory, which are in it.
fn of_node<'a, 'b>(controls: &[&'a PowerControl<'b>]) -> Result<&'a PowerControl<'b>, &'static str> {
    let only = |says: &dyn Fn(&PowerControl<'_>) -> bool| {
        let mut found = controls.iter().filter(|control| says(control));
        found.next().filter(|_| found.next().is_none()).copied()
    };
    if controls.is_empty() {
        return Err("PowerControl has no member");
    }
    only(&|_| true)
        .or_else(|| only(&|control| control.physical_context.as_deref() == Some("Chassis")))
        .or_else(|| only(&|control| control.name.as_deref().is_some_and(names_node)))
        .ok_or("PowerControl has several members, and which one is the node's is not known")
}

/// `Server Power Control` (Lenovo), `System Power Control` (Dell, Supermicro), `Chassis Power Control` (OpenBMC) and
/// `System Input Power` (DMTF's mockups); not `System Board Power`.
fn names_node(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split_ascii_whitespace();
    let whole = words.next().is_some_and(|word| matches!(word, "server" | "system" | "chassis" | "node"));
    whole
        && words.clone().any(|word| word == "power")
        && words.all(|word| matches!(word, "power" | "control" | "input" | "total" | "consumption"))
}

const NOT_ENABLED: &str = "Status.State is not Enabled";

/// Whether it says nothing else.
fn is_enabled(status: Option<&Status>) -> bool {
    status.and_then(|status| status.state.as_deref()).is_none_or(|state| state == "Enabled")
}

/// The number as the service wrote it: through a float, a counter of joules would lose digits.
fn number((text, status): Reading<'_>, quantity: Quantity) -> Result<Number, &'static str> {
    if !is_enabled(status) {
        return Err(NOT_ENABLED);
    }
    let text = text.ok_or("the reading is null or absent")?.get();
    let decimal = match text.as_bytes() {
        [b'"', ..] => return Err("the reading is text, not a number"),
        [b'-', ..] => return Err("the reading is negative"),
        bytes => decimal(bytes).ok_or("the reading is not a number, or has too many digits")?,
    };
    let micro = decimal.scaled(quantity.unit(), 6).ok_or("the reading is too large")?;
    match (quantity, micro) {
        (Quantity::Watts, 0) => Err("the reading is 0 W, which no running node takes"),
        (_, 0) => Err("the counter is 0: it does not count"),
        (Quantity::Watts, power) if power > LARGEST_POWER => Err("more power than a node can draw"),
        _ => Ok(Number { micro, decimals: decimal.exponent.saturating_neg() }),
    }
}

#[cfg(test)]
mod tests;
