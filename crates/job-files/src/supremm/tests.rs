use job_report::Curve;
use serde_json::{Value, json};

use super::*;
use crate::sample;

fn document(job: &Job) -> Value {
    let mut bytes = Vec::new();
    write(job, &Options { resource_id: 7, created: 1.7e9 }, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn near(value: &Value, expected: f64) {
    assert!(
        (value.as_f64().unwrap() - expected).abs() < 1e-12 * expected.abs().max(1.0),
        "{value}: {expected}"
    );
}

#[test]
fn numbers_by_hand() {
    let document = document(&sample::job());
    assert_eq!(document["_id"], "12345-1700000270");
    assert_eq!(
        document["acct"],
        json!({
            "id": "12345", "local_job_id": "12345", "resource_id": 7, "user": sample::USER, "uid": 1001,
            "account": "@physics", "partition": "gpu", "jobname": sample::NAME, "nodes": 2, "ncpus": 8,
            "host_list": ["b01", sample::NODE], "start_time": 1_700_000_000, "end_time": 1_700_000_270,
            "timelimit": 3600, "exit_status": "COMPLETED", "exit_code": "0:0",
        })
    );
    assert_eq!(
        (&document["summarization"]["complete"], &document["summarization"]["version"]),
        (&json!(true), &json!("1.0.6"))
    );
    // 192 and 216 of 4 × 270 seconds.
    let user = &document["cpu"]["jobcpus"]["user"];
    near(&user["avg"], 204.0 / 1080.0);
    near(&user["min"], 192.0 / 1080.0);
    near(&user["med"], 204.0 / 1080.0);
    assert_eq!((&user["cnt"], user.get("std")), (&json!(2), None));
    near(&document["cpu"]["jobcpus"]["idle"]["max"], 1.0 - 240.0 / 1080.0);
    assert_eq!(document["cpu"]["jobcpus"]["all"], json!({"cnt": 8}));
    // 1, 2, 3 and 3 GB for a minute each, 2.5 for half of one; on the other node 4 and 4.1 for a minute, a third for half of one.
    let used = &document["process_memory"]["usage"]["avg"];
    near(&used["min"], (9.0 * 60.0 + 2.5 * 30.0) / 270.0 * 1e9);
    near(&used["max"], (8.1 * 60.0 + 10.0) / 150.0 * 1e9);
    assert_eq!(document["process_memory"]["limit"], json!({"avg": 8e9, "cnt": 2}));
    near(&document["process_memory"]["usageratio"]["max"]["avg"], 4.2 / 8.0);
    // GPU 0 of both nodes: 100 and 25 %. GPU 1 of one: 60 of 270 seconds, half of the time at most.
    near(&document["gpu"]["gpu0"]["gpuactive"]["avg"], 62.5);
    near(&document["gpu"]["gpu1"]["gpuactive"]["avg"], 6000.0 / 270.0);
    assert_eq!(document["gpu"]["gpu1"]["gpuactivemax"], json!({"avg": 50.0, "cnt": 1}));
}

#[test]
fn a_plugin_without_data_has_an_error() {
    let mut job = sample::job();
    let before = document(&job);
    for plugin in ["cpuperf", "uncperf", "infiniband", "network", "lustre", "block", "gpupower"] {
        assert_eq!(before[plugin], json!({"error": 1}), "{plugin}");
    }
    // On one node of two.
    job.nodes[0].values.set(&metric::NETWORK_RECEIVED_BYTES, 5.0);
    assert_eq!(document(&job)["network"], json!({"error": 4}));
    job.nodes[1].values.set(&metric::NETWORK_RECEIVED_BYTES, 5.0);
    assert_eq!(document(&job)["network"], json!({"all": {"in-bytes": {"avg": 5.0, "cnt": 2}}}));
    job.nodes.iter_mut().for_each(|node| node.values = job_report::Values::default());
    assert_eq!(document(&job)["cpu"], json!({"error": 1}));
}

#[test]
fn totals_of_nodes_and_gpus() {
    let mut job = sample::job();
    for node in &mut job.nodes {
        node.values.set(&metric::FLOPS, 1e12);
        node.values.set(&metric::MEMORY_TRAFFIC_BYTES, 6e12);
        for gpu in &mut node.gpus {
            gpu.values.set(&metric::GPU_ENERGY_JOULES, 27e3);
        }
    }
    for (node, gpu, watts) in [(0, 0, 100.0), (0, 1, 80.0), (1, 0, 140.0)] {
        let values = vec![watts, watts, watts, watts, watts + 20.0];
        let curve = Curve {
            metric: &metric::GPU_ENERGY_JOULES,
            node: Some(node),
            gpu: Some(gpu),
            part: None,
            values,
        };
        job.curves.as_mut().unwrap().curves.push(curve);
    }
    let document = document(&job);
    // 4 of 16 CPUs are 2 of 8 cores.
    assert_eq!(document["cpuperf"]["flops"], json!({"avg": 5e11, "cnt": 2}));
    assert_eq!(document["uncperf"]["membw"], json!({"avg": 6e12, "cnt": 2}));
    assert_eq!(document["gpupower"]["gpu0"]["energy"], json!({"avg": 27e3, "cnt": 2, "total": 54e3}));
    near(&document["gpupower"]["gpu0"]["power"]["max"]["avg"], 140.0);
    // A ninth of the time with 20 watts more.
    near(&document["gpupower"]["gpu1"]["power"]["mean"]["avg"], 80.0 + 20.0 / 9.0);
}

#[test]
fn a_job_that_did_not_end_is_refused() {
    let mut job = sample::job();
    job.nodes[1].end = None;
    let error = write(&job, &Options::default(), Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Missing(of) if of == ["end"]));
    let error = write(&Job { curves: None, ..sample::job() }, &Options::default(), Vec::new()).unwrap_err();
    assert!(matches!(error, Error::NoCurves));
}
