//! Text of users on its way into labels: the prolog's file and the environment of a job's processes.

use kernel_files::label_text;
use slurm_jobs::environment::parse_hints;
use slurm_jobs::metadata::{Ending, Metadata, parse_metadata};

fn texts(m: &Metadata) -> [(&'static str, &Option<String>); 6] {
    [
        ("user", &m.user),
        ("account", &m.account),
        ("partition", &m.partition),
        ("qos", &m.qos),
        ("name", &m.name),
        ("node", &m.node),
    ]
}

fn is_label(text: &str) {
    assert!(!text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control), "{text:?}");
    assert_eq!(label_text(text.as_bytes()), text);
}

pub fn fuzz(bytes: &[u8]) {
    let metadata = parse_metadata(bytes);
    let mut printed = String::new();
    for (key, value) in texts(&metadata) {
        if let Some(value) = value {
            is_label(value);
            printed += &format!("{key}={value}\n");
        }
    }
    let numbers = [
        ("job_id", metadata.job_id.map(|v| v.to_string())),
        ("sluid", metadata.sluid.map(|v| v.to_string())),
        ("uid", metadata.uid.map(|v| v.to_string())),
        ("array_job_id", metadata.array_job_id.map(|v| v.to_string())),
        ("array_task_id", metadata.array_task_id.map(|v| v.to_string())),
        ("het_job_id", metadata.het_job_id.map(|v| v.to_string())),
        ("start_time", metadata.start_time.map(|v| v.to_string())),
        ("time_limit", metadata.time_limit.map(|v| v.to_string())),
        ("nodes", metadata.nodes.map(|v| v.to_string())),
        ("restarts", metadata.restarts.map(|v| v.to_string())),
        ("elapsed", metadata.ending.elapsed.map(|v| v.to_string())),
        ("exit_code", metadata.ending.exit_code.map(|v| v.to_string())),
        ("signal", metadata.ending.signal.map(|v| v.to_string())),
        ("derived_exit_code", metadata.ending.derived_exit_code.map(|v| v.to_string())),
        ("derived_signal", metadata.ending.derived_signal.map(|v| v.to_string())),
        ("gpus", metadata.gpus.as_ref().map(|v| v.iter().map(u32::to_string).collect::<Vec<_>>().join(","))),
        ("gpu_uuids", metadata.gpu_ids.as_ref().map(|v| v.join(","))),
    ];
    for (key, value) in numbers {
        printed += &value.map(|value| format!("{key}={value}\n")).unwrap_or_default();
    }
    assert_eq!(parse_metadata(printed.as_bytes()), metadata, "printed, it is itself");

    let hints = parse_hints(bytes);
    for (_, value) in texts(&hints) {
        value.iter().for_each(|value| is_label(value));
    }
    assert_eq!((&hints.gpus, &hints.gpu_ids), (&None, &None), "nor who has which GPU");
    let identity = (hints.job_id, hints.uid, hints.sluid, &hints.user, &hints.node, hints.start_time);
    assert_eq!(identity, (None, None, None, &None, &None, None), "the environment decides nothing");
    let facts = (hints.time_limit, hints.nodes, hints.restarts, hints.ending);
    assert_eq!(facts, (None, None, None, Ending::default()), "nor how the job ended");
    let text = label_text(bytes);
    assert!(text.is_empty() == bytes.is_empty());
}
