//! The sensors of a GPU (Documentation/hwmon/sysfs-interface.rst): `hwmon/hwmonN/` below its device.

use kernel_files::Dir;

use super::{Attributes, parse_signed};
use crate::{Fact, families};

/// The sensors of one device.
pub(crate) struct Hwmon(Dir);

impl Hwmon {
    /// The device's hwmon of this name: i915 has others (`i915_gt0`) for parts of it.
    pub(crate) fn find(device: &Dir, name: &str, files: &mut Attributes<'_>) -> Option<Self> {
        let list = device.open_dir("hwmon").and_then(|dir| dir.directories()).unwrap_or_default();
        list.iter().find_map(|entry| {
            let dir = device.open_dir(&format!("hwmon/{}", entry.name)).ok()?;
            (files.line(&dir, "name")? == name).then_some(Self(dir))
        })
    }

    /// A number, in hwmon's units: microwatts, microjoules, millidegrees, hertz.
    pub(crate) fn number(&self, file: &str, files: &mut Attributes<'_>) -> Option<u64> {
        files.number(&self.0, file)
    }
}

/// A whole number as the floating point that base units take.
#[expect(clippy::cast_precision_loss, reason = "sensors have a few digits")]
fn scaled(value: u64, per_unit: f64) -> f64 {
    value as f64 / per_unit
}

/// Temperatures, power, limits and fans. `sensors` names those that have no label.
pub(crate) fn facts(
    hwmon: &Hwmon,
    sensors: &[(u32, &'static str)],
    limits: &[(&'static str, &'static str)],
    files: &mut Attributes<'_>,
    facts: &mut Vec<Fact>,
) {
    for number in 1..=10u32 {
        let Some(value) = files.parsed(&hwmon.0, &format!("temp{number}_input"), parse_signed) else {
            continue;
        };
        let known = sensors.iter().find(|(sensor, _)| *sensor == number).map(|(_, name)| (*name).to_owned());
        let label = files.line(&hwmon.0, &format!("temp{number}_label"));
        let name = label.or(known).unwrap_or_else(|| format!("temp{number}"));
        #[expect(clippy::cast_precision_loss, reason = "millidegrees have a few digits")]
        let celsius = value as f64 / 1000.0;
        facts.push(Fact::with(&families::TEMPERATURE, "sensor", name, celsius));
    }
    for (kind, file) in limits {
        // 0 is a limit that is off (Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon).
        if let Some(microwatts) = hwmon.number(file, files).filter(|limit| *limit > 0) {
            facts.push(Fact::with(&families::POWER_LIMIT, "limit", *kind, scaled(microwatts, 1e6)));
        }
    }
    for fan in 1..=4u32 {
        let Some(pwm) = hwmon.number(&format!("pwm{fan}"), files) else { continue };
        facts.push(Fact::with(&families::FAN, "fan", fan.to_string(), scaled(pwm.min(255), 255.0)));
    }
}
