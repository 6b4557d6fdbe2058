//! Names from the environment of a job's processes: the last hint, off by default, never identity.
//!
//! SLURM sets these variables (src/common/env.c), and the user can set them to anything: what comes from here is
//! shown as a name and decides nothing.

use std::sync::Arc;

use kernel_files::label_text;
use kernel_files::parse::integer;

use super::JobId;
use super::gpus::{parse_gpu_ids, parse_gpu_indices};
use super::metadata::Metadata;

/// Calls `f` with the names and values of an environment block (`/proc/PID/environ`: `NAME=value`, NUL after each) that are
/// not empty, from the last to the first, since of a repeated name the first counts, as getenv(3) has it. A torn last
/// entry is passed over.
fn entries<'a>(environ: &'a [u8], mut f: impl FnMut(&'a [u8], &'a [u8])) {
    let mut entries: Vec<&[u8]> = environ.split(|b| *b == 0).collect();
    // After the last NUL comes nothing, or what did not fit.
    entries.pop();
    for entry in entries.into_iter().rev() {
        let Some(at) = entry.iter().position(|b| *b == b'=') else { continue };
        let (name, value) = entry.split_at(at);
        match value.get(1..) {
            None | Some([]) => {}
            Some(value) => f(name, value),
        }
    }
}

/// Parses an environment block for names of the job. Only a variable's name as a whole counts.
pub fn parse_hints(environ: &[u8]) -> Metadata {
    let mut hints = Metadata::default();
    entries(environ, |name, value| {
        let text = || Some(label_text(value));
        match name {
            b"SLURM_JOB_ACCOUNT" => hints.account = text(),
            b"SLURM_JOB_PARTITION" => hints.partition = text(),
            b"SLURM_JOB_QOS" => hints.qos = text(),
            b"SLURM_JOB_NAME" => hints.name = text(),
            b"SLURM_ARRAY_JOB_ID" => hints.array_job_id = JobId::parse(value),
            b"SLURM_ARRAY_TASK_ID" => {
                hints.array_task_id = integer(value).and_then(|v| u32::try_from(v).ok())
            }
            _ => {}
        }
    });
    hints
}

/// GPUs that a process says it has. Unlike names these decide something, so they are asked for only where it is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuHints {
    /// Indices in SLURM's list of all GPUs of the job on this node (batch script and interactive step).
    pub job: Option<Vec<u32>>,
    /// The same of the step (`srun`).
    pub step: Option<Vec<u32>>,
    /// The GPUs it may use, if all are named by ids. Indices in the same variable are the process's own numbering.
    pub ids: Option<Vec<Arc<str>>>,
}

/// Parses an environment block for GPUs.
pub fn parse_gpu_hints(environ: &[u8]) -> GpuHints {
    let mut hints = GpuHints::default();
    entries(environ, |name, value| match name {
        b"SLURM_JOB_GPUS" => hints.job = parse_gpu_indices(value),
        b"SLURM_STEP_GPUS" => hints.step = parse_gpu_indices(value),
        b"CUDA_VISIBLE_DEVICES" => hints.ids = parse_gpu_ids(value),
        _ => {}
    });
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole_and_the_first_one_counts() {
        let hints = parse_hints(
            b"XSLURM_JOB_NAME=no\0SLURM_JOB_NAME=first\0SLURM_JOB_NAME=second\0SLURM_JOB_QOS=\0SLURM_ARRAY_TASK_ID=7\0SLURM_JOB_ACCOUNT=torn",
        );
        assert_eq!(hints.name.as_deref(), Some("first"));
        assert_eq!(hints.qos, None, "empty is absent");
        assert_eq!(hints.array_task_id, Some(7));
        assert_eq!(hints.account, None, "a torn entry is no entry");
    }

    #[test]
    fn gpus_are_indices_of_slurms_or_ids() {
        let hints = parse_gpu_hints(
            b"CUDA_VISIBLE_DEVICES=MIG-a\0SLURM_STEP_GPUS=1\0SLURM_JOB_GPUS=0-1\0SLURM_JOB_GPUS=7\0XSLURM_JOB_GPUS=8\0",
        );
        assert_eq!((hints.job, hints.step), (Some(vec![0, 1]), Some(vec![1])));
        assert_eq!(hints.ids, Some(vec!["MIG-a".into()]));
        for nothing in
            [&b"CUDA_VISIBLE_DEVICES=0,1\0"[..], b"CUDA_VISIBLE_DEVICES=\0", b"SLURM_JOB_GPUS=1", b""]
        {
            assert_eq!(parse_gpu_hints(nothing), GpuHints::default());
        }
    }

    #[test]
    fn identity_is_never_taken_from_it() {
        let hints = parse_hints(
            b"SLURM_JOB_ID=1\0SLURM_JOB_UID=0\0SLURM_JOB_USER=root\0SLURM_JOB_SLUID=sDNHM7VZHTTA00\0",
        );
        assert_eq!(hints, Metadata::default());
    }
}
