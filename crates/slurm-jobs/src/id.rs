//! Identities: job, SLUID, step, task.

use std::fmt;

use kernel_files::parse::integer;
use serde::{Deserialize, Serialize};

/// Numeric SLURM job id: the key of everything. Array elements and heterogeneous components have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

impl JobId {
    /// Parses decimal digits. 0 and values from `NO_VAL` on (slurm.h: 0xfffffffe) are no job ids.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let value = u32::try_from(integer(digits)?).ok()?;
        (value > 0 && value < 0xffff_fffe).then_some(Self(value))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// SLURM's lexicographically sortable unique id of a job: `s` and 13 digits of Crockford's base 32
/// (SLURM 26.05, src/common/sluid.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sluid([u8; 14]);

impl Sluid {
    /// Parses the text form.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let bytes: [u8; 14] = text.try_into().ok()?;
        let (head, digits) = bytes.split_first()?;
        let crockford = |b: &u8| matches!(b, b'0'..=b'9' | b'A'..=b'H' | b'J' | b'K' | b'M' | b'N' | b'P'..=b'T' | b'V'..=b'Z');
        (*head == b's' && digits.iter().all(crockford)).then_some(Self(bytes))
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Sluid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which step of a job, in the spelling of its directory and of `sacct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepKind {
    /// The batch script.
    Batch,
    /// The external step that `PrologFlags=Contain` makes.
    Extern,
    /// `salloc` with `use_interactive_step`.
    Interactive,
    /// Not numbered yet: `TBD`, spelled `TDB` up to 25.11.
    Pending,
    /// An `srun`.
    Number(u32),
}

/// A step, with the component of a heterogeneous one (`0+1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId {
    /// Which step.
    pub kind: StepKind,
    /// Component of a heterogeneous step.
    pub component: Option<u32>,
}

impl StepId {
    /// Parses what follows `step_` in a directory name or the job id in a slurmstepd's title.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(2, |b| *b == b'+');
        let kind = match parts.next()? {
            b"batch" => StepKind::Batch,
            b"extern" => StepKind::Extern,
            b"interactive" => StepKind::Interactive,
            b"TBD" | b"TDB" => StepKind::Pending,
            digits => StepKind::Number(u32::try_from(integer(digits)?).ok()?),
        };
        let component = match parts.next() {
            Some(digits) => Some(u32::try_from(integer(digits)?).ok()?),
            None => None,
        };
        Some(Self { kind, component })
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StepKind::Batch => f.write_str("batch")?,
            StepKind::Extern => f.write_str("extern")?,
            StepKind::Interactive => f.write_str("interactive")?,
            StepKind::Pending => f.write_str("TBD")?,
            StepKind::Number(n) => n.fmt(f)?,
        }
        self.component.map_or(Ok(()), |c| write!(f, "+{c}"))
    }
}

/// A task of a step: its global rank, or the cgroup of processes that belong to no task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskId {
    /// Global task id (`SLURM_PROCID`).
    Rank(u32),
    /// `task_special`.
    Special,
}

impl TaskId {
    /// Parses what follows `task_`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"special" => Some(Self::Special),
            digits => u32::try_from(integer(digits)?).ok().map(Self::Rank),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => rank.fmt(f),
            Self::Special => f.write_str("special"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_what_slurm_hands_out() {
        assert_eq!(JobId::parse(b"4294967293"), Some(JobId(0xffff_fffd)));
        for bad in [&b"0"[..], b"", b"-1", b"1 ", b"4294967294", b"99999999999", b"1.0"] {
            assert_eq!(JobId::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn sluids_are_crockford() {
        assert_eq!(Sluid::parse(b"sDNHM7VZHTTA00").unwrap().as_str(), "sDNHM7VZHTTA00");
        for bad in [&b"sDNHM7VZHTTA0"[..], b"xDNHM7VZHTTA00", b"sDNHM7VZHTTA0I", b"sDNHM7VZHTTA0u", b"system"]
        {
            assert_eq!(Sluid::parse(bad), None);
        }
    }

    #[test]
    fn steps_keep_their_spelling() {
        for text in ["batch", "extern", "interactive", "TBD", "0", "17", "0+1"] {
            assert_eq!(StepId::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        assert_eq!(StepId::parse(b"TDB").unwrap().kind, StepKind::Pending);
        for bad in [&b""[..], b"x", b"1+", b"+1", b"1+1+1", b"99999999999"] {
            assert_eq!(StepId::parse(bad), None);
        }
        assert_eq!(TaskId::parse(b"special"), Some(TaskId::Special));
        assert_eq!(TaskId::parse(b"3").unwrap().to_string(), "3");
        assert_eq!(TaskId::parse(b"x"), None);
    }
}
