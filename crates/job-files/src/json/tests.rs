use job_report::Thresholds;
use serde_json::Value;

use super::*;
use crate::sample;

fn document(job: Job) -> Value {
    let mut bytes = Vec::new();
    write(&Report::new(job, &Thresholds::shipped().unwrap(), vec!["a note".to_owned()]), &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn the_document_has_the_report_and_the_curves() {
    let document = document(sample::job());
    let keys: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["advice", "curves", "job", "numbers", "quality", "schema"]);
    assert_eq!(document["schema"], 1);
    assert_eq!(
        (&document["job"]["id"], &document["job"]["state"]),
        (&Value::from(12345), &Value::from("ended"))
    );
    assert_eq!(document["job"]["start"], 1_700_000_000.0);
    assert_eq!(document["job"]["until"], 1_700_000_270.0);
    assert_eq!(document["job"]["nodes"][0]["values"]["cpu_seconds"], 240.0);
    assert_eq!(document["job"]["identity"]["name"], sample::NAME);
    assert!(document["job"].get("curves").is_none());
    assert_eq!(document["numbers"]["elapsed_seconds"], 270.0);
    assert_eq!(document["quality"]["notes"][0], "a note");
    let curves = &document["curves"];
    assert_eq!((&curves["step"], curves["ends"].as_array().unwrap().len()), (&Value::from(60.0), 5));
    assert_eq!(curves["ends"][4], 1_700_000_270.0);
    let used = &curves["metrics"]["memory_used_bytes"];
    assert_eq!((&used["unit"], used["series"].as_array().unwrap().len()), (&Value::from("bytes"), 2));
    assert_eq!(used["series"][1]["node"], sample::NODE);
    assert_eq!(used["series"][1]["values"], serde_json::json!([4e9, null, null, 4.1e9, 1e9 / 3.0]));
    let busy = &curves["metrics"]["gpu_busy_seconds_per_second"];
    assert_eq!(busy["unit"], "seconds_per_second");
    assert_eq!(
        (&busy["series"][1]["gpu"], &busy["series"][1]["values"][2]),
        (&Value::from("1"), &Value::from(0.5))
    );
    assert_eq!(curves["metrics"].as_object().unwrap().len(), 8);
}

#[test]
fn steps_and_tasks_are_apart_from_nodes() {
    let document = document(sample::with_steps());
    let parts = &document["job"]["nodes"][0]["parts"];
    assert_eq!(parts[0], serde_json::json!({"step": "batch", "task": null, "values": {}}));
    assert_eq!(parts[3], serde_json::json!({"step": "0", "task": "1", "values": {"cpu_seconds": 35.0}}));
    let curves = &document["curves"];
    assert_eq!(curves["metrics"]["cpu_seconds_per_second"]["series"].as_array().unwrap().len(), 2);
    let series = &curves["of_parts"]["cpu_seconds_per_second"]["series"];
    assert_eq!(series[4]["task"], "2");
    assert_eq!(
        series[0],
        serde_json::json!({"node": "b01", "gpu": null, "step": "0", "values": [null, 0.25, 1.5, 0.5, null]})
    );
    let without = self::document(sample::job());
    assert!(without["curves"].get("of_parts").is_none() && without["job"]["nodes"][0].get("parts").is_none());
}

#[test]
fn a_job_without_curves_has_none() {
    let document = document(Job { curves: None, ..sample::job() });
    assert_eq!(document["curves"], Value::Null);
}
