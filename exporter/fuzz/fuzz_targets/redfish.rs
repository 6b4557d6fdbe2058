//! Answers of a Redfish service, held against the plainest way to read the same JSON.

use readings::LARGEST_POWER;
use redfish::{Quantity, parse_answer};
use serde_json::Value;

pub fn fuzz(bytes: &[u8]) {
    let answer = match parse_answer(bytes) {
        Ok(answer) => answer,
        Err(error) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&error.line) && !error.reason.is_empty());
            return;
        }
    };
    let Ok(best) = answer.best() else { return };
    let value = answer.value(best).expect("the best quantity has a value");
    assert!(value > 0);
    assert!(best.counts() || value <= LARGEST_POWER);
    // A number that no float holds, or text that is no UTF-8 in what is passed over.
    let Ok(plain) = serde_json::from_slice::<Value>(bytes) else { return };
    let (excerpt, unit) = match best {
        Quantity::Joules => ("EnergyJoules", 1e6),
        Quantity::KilowattHours => ("EnergykWh", 3.6e12),
        Quantity::Watts => ("PowerWatts", 1e6),
    };
    let members = plain["PowerControl"].as_array().into_iter().flatten().map(|member| &member["PowerConsumedWatts"]);
    let mut numbers = members.chain([&plain[excerpt]["Reading"], &plain["Reading"]]).filter_map(Value::as_f64);
    let near = |number: f64| (number * unit - value as f64).abs() <= 1.0 + number * unit * 1e-12;
    assert!(numbers.any(near), "{value} of {}", String::from_utf8_lossy(bytes));
}
