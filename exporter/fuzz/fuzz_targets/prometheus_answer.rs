//! Answers of Prometheus, held against the plainest way to read the same JSON. Their pieces do not matter.

use std::io::{BufReader, Read};

use prometheus_api::{QueryResult, parse_answer};
use serde_json::Value;

const MOST_SERIES: usize = 50;

pub fn fuzz(bytes: &[u8]) {
    let read = |from: &mut dyn Read| parse_answer::<QueryResult>(from, MOST_SERIES);
    let whole = read(&mut &*bytes);
    // A buffer of one byte takes one byte at a time.
    let parts = read(&mut BufReader::with_capacity(1, bytes));
    assert_eq!(
        whole.as_ref().map(|answer| format!("{answer:?}")).map_err(ToString::to_string),
        parts.map(|answer| format!("{answer:?}")).map_err(|error| error.to_string())
    );
    let Ok(answer) = whole else { return };
    assert!(answer.series <= MOST_SERIES);
    // Text that is no UTF-8 in what is passed over.
    let Ok(plain) = serde_json::from_slice::<Value>(bytes) else { return };
    assert_eq!(plain["status"], if answer.success { "success" } else { "error" });
    let Some(data) = answer.data else { return };
    let result = plain["data"]["result"].as_array().expect("a list");
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok()).expect("a number");
    let same = |found: f64, wanted: f64| assert!(found == wanted || found.is_nan() && wanted.is_nan());
    let series: Vec<_> = result.iter().filter_map(|one| one["values"].as_array()).filter(|values| !values.is_empty()).collect();
    let with_both = result.iter().any(|one| !one["value"].is_null() && !one["values"].is_null());
    if !with_both {
        assert_eq!(data.series.len(), series.len());
        for (found, wanted) in data.series.iter().zip(series) {
            assert_eq!(found.points.len(), wanted.len());
            found.points.iter().zip(wanted).for_each(|(found, wanted)| same(found.1, number(&wanted[1])));
        }
    }
    let values = result.iter().filter(|one| one["value"].is_array()).map(|one| number(&one["value"][1]));
    let values: Vec<_> = values.collect();
    if result.iter().all(Value::is_object) {
        assert_eq!(data.samples.len(), values.len());
        data.samples.iter().zip(values).for_each(|(found, wanted)| same(found.value, wanted));
    }
    for labels in data.samples.iter().map(|one| &one.labels).chain(data.series.iter().map(|one| &one.labels)) {
        let pairs: Vec<_> = labels.iter().collect();
        assert!(pairs.iter().all(|(_, value)| !value.is_empty()));
        assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0), "{labels}");
        assert!(!labels.to_string().contains(char::is_control));
    }
}
