//! The sources of a job's GPUs: files of prologs, lists of GPUs, and the environment of its processes.

use gpu_binding::files::{parse_gpustat, parse_job_mapping};
use slurm_jobs::environment::parse_gpu_hints;
use slurm_jobs::gpus::{parse_gpu_ids, parse_gpu_indices};

pub fn fuzz(bytes: &[u8]) {
    if let Some(named) = parse_gpustat(bytes) {
        let text = std::str::from_utf8(bytes.trim_ascii()).expect("digits");
        let words: Vec<u32> = text.split_ascii_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert_eq!(words, [named.id.0].into_iter().chain(named.uid).collect::<Vec<_>>());
        assert!(!text.contains('\n') && named.id.0 > 0);
    }
    // Each line is a job's by itself: whatever else is in the file, it adds and takes away nothing.
    let whole = parse_job_mapping(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').flat_map(parse_job_mapping);
    assert_eq!(whole, lines.take(whole.len().max(1024)).collect::<Vec<_>>());

    if let Some(indices) = parse_gpu_indices(bytes) {
        assert!(!indices.is_empty() && indices.len() <= 256);
        assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order");
        let plain: Vec<String> = indices.iter().map(u32::to_string).collect();
        assert_eq!(parse_gpu_indices(plain.join(",").as_bytes()), Some(indices));
    }
    if let Some(ids) = parse_gpu_ids(bytes) {
        let text = std::str::from_utf8(bytes.trim_ascii()).expect("ASCII");
        assert_eq!(ids.join(","), text, "the whole list or none of it");
        let id = |id: &str| id.len() > 4 && (id.starts_with("GPU-") || id.starts_with("MIG-"));
        assert!(ids.iter().all(|one| id(one) && !one.contains(|c: char| c.is_control() || c.is_whitespace() || c == '.')));
    }

    let hints = parse_gpu_hints(bytes);
    let mut printed = String::new();
    let list = |indices: &Vec<u32>| indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    for (name, value) in [
        ("SLURM_JOB_GPUS", hints.job.as_ref().map(list)),
        ("SLURM_STEP_GPUS", hints.step.as_ref().map(list)),
        ("CUDA_VISIBLE_DEVICES", hints.ids.as_ref().map(|ids| ids.join(","))),
    ] {
        printed += &value.map(|value| format!("{name}={value}\0")).unwrap_or_default();
    }
    assert_eq!(parse_gpu_hints(printed.as_bytes()), hints, "printed, it is itself");
}
