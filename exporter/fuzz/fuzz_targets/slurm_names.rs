//! Names of SLURM's directories and the title of its slurmstepd: a name is read whole, and printed it is itself.

use slurm_jobs::names::{self, JobName};
use slurm_jobs::{JobId, Sluid, StepId, TaskId};

fn decimal(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

pub fn fuzz(bytes: &[u8]) {
    if let Some(id) = JobId::parse(bytes) {
        assert!(decimal(bytes) && id.0 != 0);
        assert_eq!(JobId::parse(id.to_string().as_bytes()), Some(id));
    }
    if let Some(sluid) = Sluid::parse(bytes) {
        assert_eq!(sluid.as_str().as_bytes(), bytes);
    }
    if let Some(step) = StepId::parse(bytes) {
        assert_eq!(StepId::parse(step.to_string().as_bytes()), Some(step));
    }
    if let Some(task) = TaskId::parse(bytes) {
        assert_eq!(TaskId::parse(task.to_string().as_bytes()), Some(task));
    }
    if let Some((job, step)) = names::stepd_title(bytes) {
        for title in [format!("slurmstepd: [{job}.{step}]\0"), format!("slurmstepd: [{job}.{step} stepmgr]")] {
            assert_eq!(names::stepd_title(title.as_bytes()), Some((job, step)));
        }
        let shell = [b"sh -c ", bytes].concat();
        assert_eq!(names::stepd_title(&shell), None, "a user's own command line is no title");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match names::job(text) {
        Some(JobName::Id(id)) => assert_eq!(names::job(&format!("job_{id}")), Some(JobName::Id(id))),
        Some(JobName::Sluid(sluid)) => assert_eq!(sluid.as_str(), text),
        None => {}
    }
    for read in [names::v2_scope, names::v1_root] {
        let whole = read(text);
        assert!(whole.is_none_or(|node| node.is_none_or(|node| !node.is_empty() && text.contains(node))));
    }
    if let Some(Some(node)) = names::v2_scope(text) {
        assert_eq!(format!("{node}_slurmstepd.scope"), text);
    }
    if let Some(Some(node)) = names::v1_root(text) {
        assert_eq!(format!("slurm_{node}"), text);
    }
    // Kinds of names exclude each other.
    let kinds = [
        names::job(text).is_some(),
        names::step(text).is_some(),
        names::task(text).is_some(),
        names::v1_user(text).is_some(),
        names::v2_scope(text).is_some(),
    ];
    assert!(kinds.iter().filter(|kind| **kind).count() <= 1, "{text:?}");
}
