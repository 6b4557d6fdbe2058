use job_report::metric::{FLOPS, FLOPS_DOUBLE, MEMORY_TRAFFIC_BYTES};
use job_report::{Curve, Metric};
use serde_json::{Value, json};

use super::*;
use crate::sample::{self, NODE, START};

/// A job of which all that is demanded is known.
fn whole_job() -> Job {
    let mut job = sample::job();
    job.cluster = Some("alpha".to_owned());
    for (metric, value) in [(&FLOPS, 3e9), (&FLOPS_DOUBLE, 1e9), (&MEMORY_TRAFFIC_BYTES, 5e9)] {
        add(&mut job, metric, 0, value);
    }
    job
}

fn add(job: &mut Job, metric: &'static Metric, node: usize, value: f64) {
    let curve = Curve { metric, node: Some(node), gpu: None, part: None, values: vec![value; 5] };
    job.curves.as_mut().unwrap().curves.push(curve);
}

fn options(force: bool) -> Options {
    Options { sub_cluster: "a100".to_owned(), exclusive: Some(1), force }
}

fn files(job: &Job, options: &Options) -> Result<(Value, Value), Error> {
    let record = Record::new(job, options)?;
    let (mut meta, mut data) = (Vec::new(), Vec::new());
    record.write_meta(&mut meta)?;
    record.write_data(&mut data)?;
    Ok((serde_json::from_slice(&meta)?, serde_json::from_slice(&data)?))
}

fn missing(job: &Job, options: &Options) -> Vec<&'static str> {
    match files(job, options) {
        Err(Error::Missing(names)) => names,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_of_a_job_of_which_all_is_known() {
    let (meta, data) = files(&whole_job(), &options(false)).unwrap();
    for (key, value) in [
        ("jobId", json!(12345)),
        ("user", json!(sample::USER)),
        ("project", json!("@physics")),
        ("cluster", json!("alpha")),
        ("subCluster", json!("a100")),
        ("partition", json!("gpu")),
        ("arrayJobId", json!(12300)),
        ("numNodes", json!(2)),
        ("numHwthreads", json!(8)),
        ("numAcc", json!(3)),
        ("exclusive", json!(1)),
        ("walltime", json!(3600)),
        ("jobState", json!("completed")),
        ("startTime", json!(1_700_000_000)),
        ("duration", json!(270)),
        ("tags", json!([])),
        ("metaData", json!({"jobName": sample::NAME})),
    ] {
        assert_eq!(meta[key], value, "{key}");
    }
    assert_eq!(meta["resources"][0], json!({"hostname": "b01", "accelerators": ["GPU-0", "GPU-1"]}));
    // 240 CPU seconds in 270 seconds, and 270 in 270.
    let load = &meta["statistics"]["cpu_load"];
    assert!((load["avg"].as_f64().unwrap() - f64::midpoint(240.0 / 270.0, 1.0)).abs() < 1e-12, "{load}");
    assert_eq!((&load["min"], &load["max"]), (&json!(0.0), &json!(2.0)));
    assert_eq!(load["unit"], json!({"base": ""}));
    // In user mode 24 of 60 seconds of 4 CPUs: 10 %.
    let user = &data["cpu_user"]["node"];
    assert!((user["series"][0]["data"][0].as_f64().unwrap() - 10.0).abs() < 1e-9, "{user}");
    assert_eq!(user["timestep"], 60);
    let used = &data["mem_used"]["node"];
    assert_eq!(used["unit"], json!({"base": "B", "prefix": "G"}));
    assert_eq!((&used["series"][1]["hostname"], &used["series"][1]["data"][1]), (&json!(NODE), &Value::Null));
    assert!((used["series"][0]["data"][1].as_f64().unwrap() - 2.0).abs() < 1e-12);
    // 3 GFLOP/s, of which one is in double precision.
    let flops = &meta["statistics"]["flops_any"];
    assert!((flops["avg"].as_f64().unwrap() - 4.0).abs() < 1e-12, "{flops}");
    assert!((meta["statistics"]["mem_bw"]["max"].as_f64().unwrap() - 5.0).abs() < 1e-12);
    let power = &data["cpu_power"]["node"]["series"];
    assert_eq!((power.as_array().unwrap().len(), &power[0]["statistics"]["avg"]), (1, &json!(100.0)));
    let gpus = &data["acc_utilization"]["accelerator"]["series"];
    assert_eq!((&gpus[1]["id"], &gpus[1]["data"]), (&json!("GPU-1"), &json!([0.0, 0.0, 50.0, 50.0, 0.0])));
    assert!(data.get("mem_power").is_none(), "not measured");
}

#[test]
fn what_is_not_known_is_named_and_not_made_up() {
    let job = sample::job();
    assert_eq!(missing(&job, &options(false)), ["flops_any", "mem_bw"]);
    assert_eq!(
        missing(&Job { ended: None, ..whole_job() }, &Options { exclusive: None, ..options(false) }),
        ["jobState", "exclusive"]
    );
    let mut nobody = whole_job();
    nobody.identity = job_report::Identity::default();
    assert_eq!(
        missing(&nobody, &Options { exclusive: Some(0), ..Options::default() }),
        ["user", "project", "subCluster"]
    );
    // Precisions that are counted as one do not make flops_any.
    let mut one_precision = sample::job();
    add(&mut one_precision, &FLOPS, 0, 3e9);
    add(&mut one_precision, &MEMORY_TRAFFIC_BYTES, 0, 5e9);
    assert_eq!(missing(&one_precision, &options(false)), ["flops_any"]);
    let error = files(&job, &options(false)).unwrap_err().to_string();
    assert_eq!(error, "the format demands what is not known of this job: flops_any, mem_bw");
}

#[test]
fn forced_zeroes_are_tagged_and_not_among_the_data() {
    let (meta, data) = files(&Job { ended: None, ..sample::job() }, &options(true)).unwrap();
    let tag = |name| json!({"type": "missing", "name": name});
    assert_eq!(meta["tags"], json!([tag("flops_any"), tag("jobState"), tag("mem_bw")]));
    assert_eq!(meta["jobState"], "stopped");
    let zero = json!({"unit": {"base": "F/s", "prefix": "G"}, "avg": 0.0, "min": 0.0, "max": 0.0});
    assert_eq!(meta["statistics"]["flops_any"], zero);
    assert!(data.get("flops_any").is_none());
}

#[test]
fn states_are_slurms() {
    for (slurm, state) in [
        ("COMPLETED", Some("completed")),
        ("NODE_FAIL", Some("failed")),
        ("CANCELLED", Some("cancelled")),
        ("PREEMPTED", Some("cancelled")),
        ("OUT_OF_MEMORY", Some("out_of_memory")),
        ("TIMEOUT", Some("timeout")),
        ("SOMETHING", None),
    ] {
        let mut job = sample::job();
        job.ended.as_mut().unwrap().state = slurm.to_owned();
        assert_eq!(job_state(&job), state);
    }
    let mut running = sample::job();
    running.nodes[0].running = true;
    assert_eq!(job_state(&running), None);
}

#[test]
fn a_job_is_in_the_directory_of_its_number_and_start() {
    let archive = tempfile::tempdir().unwrap();
    let at = write(&whole_job(), &options(false), archive.path()).unwrap();
    assert_eq!(at, archive.path().join(format!("alpha/12/345/{START}")));
    let mut names: Vec<_> = std::fs::read_dir(&at)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["data.json", "meta.json"]);
    let at = directory(&Job { id: 1_000_007, ..whole_job() }).unwrap();
    assert_eq!(at, Path::new("alpha/1000/007/1700000000"));
}

#[test]
fn a_record_that_cannot_be_replaced_is_as_it_was() {
    let archive = tempfile::tempdir().unwrap();
    let at = write(&whole_job(), &options(false), archive.path()).unwrap();
    let size = |name| std::fs::metadata(at.join(name)).unwrap().len();
    let before = size("meta.json");
    std::fs::remove_file(at.join("data.json")).unwrap();
    std::fs::create_dir(at.join("data.json")).unwrap();
    write(&sample::job(), &options(true), archive.path()).unwrap_err();
    assert_eq!(size("meta.json"), before);
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 2, "nothing is left beside them");
}

#[test]
fn a_cluster_that_leads_elsewhere_is_refused() {
    for name in ["..", ".", "a/b", "/etc", "a\0b"] {
        let error = directory(&Job { cluster: Some(name.to_owned()), ..whole_job() }).unwrap_err();
        assert!(matches!(error, Error::Directory(of) if of == name));
    }
    for name in [None, Some(String::new())] {
        let error = directory(&Job { cluster: name, ..whole_job() }).unwrap_err();
        assert!(matches!(error, Error::Missing(of) if of == ["cluster"]));
    }
}

#[test]
fn nothing_is_written_of_a_job_that_is_refused() {
    let archive = tempfile::tempdir().unwrap();
    write(&sample::job(), &options(false), archive.path()).unwrap_err();
    assert_eq!(std::fs::read_dir(archive.path()).unwrap().count(), 0);
    let mut job = whole_job();
    job.curves.as_mut().unwrap().step = 0.5;
    assert!(matches!(files(&job, &options(true)), Err(Error::Step(_))));
    job.curves = None;
    assert!(matches!(files(&job, &options(true)), Err(Error::NoCurves)));
}
