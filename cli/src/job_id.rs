//! How users name a job.

use std::fmt;
use std::str::FromStr;

use job_report::Identity;

/// A name of a job, or of several: an array, a heterogeneous job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobId {
    /// `123`: a job, or an array.
    Number(u64),
    /// `123_4`: an element of an array.
    Element {
        /// The array's number.
        array: u64,
        /// The index.
        task: u64,
    },
    /// `123+1`: a component of a heterogeneous job.
    Component {
        /// The number of the first component.
        leader: u64,
        /// Which one.
        offset: u64,
    },
    /// `sEKNKTV3WPV500`: SLURM 26.05's unique id (src/common/sluid.c).
    Sluid(String),
}

impl JobId {
    /// Whether it names this job, alone or with others.
    pub fn is_of(&self, number: u64, identity: &job_report::Identity) -> bool {
        let same = |text: &str, number: u64| text.parse() == Ok(number);
        match self {
            JobId::Number(id) => *id == number || same(&identity.array_job_id, *id),
            JobId::Element { array, task } => {
                same(&identity.array_job_id, *array) && same(&identity.array_task_id, *task)
            }
            JobId::Component { leader, offset } => {
                number == component(*leader, *offset) && same(&identity.het_job_id, *leader)
            }
            JobId::Sluid(sluid) => identity.sluid == *sluid,
        }
    }
}

/// The number of a component. SLURM gives components numbers in a row (job_mgr.c, _job_create of each).
pub(crate) fn component(leader: u64, offset: u64) -> u64 {
    leader + offset
}

/// Why a text names no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no job: 123, 123_4, 123+1, 123.0, an SLUID, or a file such as slurm-123.out")]
pub struct NotAJob(String);

impl FromStr for JobId {
    type Err = NotAJob;

    fn from_str(text: &str) -> Result<Self, NotAJob> {
        parse(text).ok_or_else(|| NotAJob(text.chars().filter(|c| !c.is_control()).take(80).collect()))
    }
}

fn parse(text: &str) -> Option<JobId> {
    if is_sluid(text) {
        return Some(JobId::Sluid(text.to_owned()));
    }
    let file = text.rsplit('/').next()?;
    // sbatch's default names: slurm-%j.out, slurm-%A_%a.out; others end in .out as well.
    let name = match file.strip_suffix(".out").or_else(|| file.strip_suffix(".err")) {
        Some(stem) => stem.rsplit_once('-').map_or(stem, |(_, id)| id),
        None => text,
    };
    // A step of it: 123.0, 123.batch.
    let (name, _step) = name.split_once('.').unwrap_or((name, ""));
    if let Some((array, task)) = name.split_once('_') {
        return Some(JobId::Element { array: number(array)?, task: number(task)? });
    }
    if let Some((leader, offset)) = name.split_once('+') {
        return Some(JobId::Component { leader: number(leader)?, offset: number(offset)? });
    }
    Some(JobId::Number(number(name)?))
}

/// `s` and 13 digits of Crockford's base 32.
fn is_sluid(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    text.strip_prefix('s').is_some_and(|rest| rest.len() == 13 && rest.bytes().all(digit))
}

/// Decimal digits alone; SLURM's numbers have 32 bits.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse::<u32>().ok().map(u64::from))?
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobId::Number(id) => write!(f, "{id}"),
            JobId::Element { array, task } => write!(f, "{array}_{task}"),
            JobId::Component { leader, offset } => write!(f, "{leader}+{offset}"),
            JobId::Sluid(id) => f.write_str(id),
        }
    }
}

/// The number that users know: that of an element of an array has its index.
pub(crate) fn shown(id: u64, who: &Identity) -> String {
    if who.array_job_id.is_empty() || who.array_task_id.is_empty() {
        id.to_string()
    } else {
        format!("{}_{}", who.array_job_id, who.array_task_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_one_alone() {
        let identity = Identity { het_job_id: "100".to_owned(), ..Identity::default() };
        let named = |id: &str| {
            (99..104)
                .filter(|number| id.parse::<JobId>().unwrap().is_of(*number, &identity))
                .collect::<Vec<_>>()
        };
        assert_eq!((named("100+0"), named("100+1"), named("100+2")), (vec![100], vec![101], vec![102]));
        assert_eq!((named("101+0"), named("102")), (vec![], vec![102]));
    }

    #[test]
    fn all_forms_that_slurm_prints_are_understood() {
        let element = JobId::Element { array: 123, task: 4 };
        for (text, id) in [
            ("123", JobId::Number(123)),
            ("123.0", JobId::Number(123)),
            ("123.batch", JobId::Number(123)),
            ("123_4", element.clone()),
            ("123_4.0", element.clone()),
            ("123+1", JobId::Component { leader: 123, offset: 1 }),
            ("sEKNKTV3WPV500", JobId::Sluid("sEKNKTV3WPV500".to_owned())),
            ("slurm-123.out", JobId::Number(123)),
            ("../run/slurm-123_4.out", element.clone()),
            ("my-job-123.err", JobId::Number(123)),
        ] {
            assert_eq!(text.parse(), Ok(id), "{text}");
        }
        for text in
            ["", "abc", "-1", "12 3", "123_", "123_x", "4294967296", "slurm-.out", "sEKNKTV3WPV50I", "123\"}"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        assert_eq!("a\x1b[2Jb".parse::<JobId>().unwrap_err().to_string().matches('\x1b').count(), 0);
    }
}
