//! Names from the environment of a job's processes: the last hint, off by default, never identity.
//!
//! SLURM sets these variables (src/common/env.c), and the user can set them to anything: what comes from here is
//! shown as a name and decides nothing.

use super::JobId;
use super::metadata::Metadata;
use crate::metric::label_text;
use crate::parse::integer;

/// Parses an environment block (`/proc/PID/environ`: `NAME=value`, NUL after each). Only a name as a whole counts,
/// the first of a repeated one, as getenv(3) has it; a torn last entry is passed over.
pub fn parse_hints(environ: &[u8]) -> Metadata {
    let mut hints = Metadata::default();
    let mut entries: Vec<&[u8]> = environ.split(|b| *b == 0).collect();
    // After the last NUL comes nothing, or what did not fit.
    entries.pop();
    for entry in entries.into_iter().rev() {
        let Some(at) = entry.iter().position(|b| *b == b'=') else { continue };
        let (name, value) = entry.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        if value.is_empty() {
            continue;
        }
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
    }
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
    fn identity_is_never_taken_from_it() {
        let hints = parse_hints(
            b"SLURM_JOB_ID=1\0SLURM_JOB_UID=0\0SLURM_JOB_USER=root\0SLURM_JOB_SLUID=sDNHM7VZHTTA00\0",
        );
        assert_eq!(hints, Metadata::default());
    }
}
