//! The file that the prolog snippet leaves for a job, `<dir>/<jobid>`, and the one that the epilog snippet makes of it,
//! `<dir>/<jobid>.ended`: `key=value` lines (docs/metadata.md).
//!
//! The prolog runs as root before the job starts and the directory is root's, so its content is trusted like SLURM
//! itself. Names in it (job name, account) are still the users' text: they become labels with care.

use std::sync::Arc;

use kernel_files::parse::integer;
use kernel_files::{Buffer, Dir, ReadError, label_text};
use serde::{Deserialize, Serialize};

use super::gpus::{parse_gpu_ids, parse_gpu_indices};
use super::{JobId, Sluid};

/// What the name of the file ends with after the job's end.
pub(crate) const ENDED: &str = ".ended";

/// A job's metadata beyond its cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Numeric id, as the file says.
    pub job_id: Option<JobId>,
    /// SLUID.
    pub sluid: Option<Sluid>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owner's name.
    pub user: Option<String>,
    /// Account that is charged.
    pub account: Option<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Job name.
    pub name: Option<String>,
    /// Array's id, for its elements.
    pub array_job_id: Option<JobId>,
    /// Index in the array.
    pub array_task_id: Option<u32>,
    /// Leader's id, for the components of a heterogeneous job.
    pub het_job_id: Option<JobId>,
    /// Start, seconds since the epoch.
    pub start_time: Option<u64>,
    /// Time limit at the start, seconds.
    pub time_limit: Option<u64>,
    /// Nodes that SLURM gave the job.
    pub nodes: Option<u32>,
    /// How often the job was requeued before.
    pub restarts: Option<u32>,
    /// Its GPUs by their indices in SLURM's list of the node's, also of a job that has shards of them.
    pub gpus: Option<Vec<u32>>,
    /// All its GPUs by their ids, where SLURM knows these.
    pub gpu_ids: Option<Vec<Arc<str>>>,
    /// SLURM's name of the node.
    pub node: Option<String>,
    /// What the epilog wrote.
    pub ending: Ending,
}

/// How a run ended, by SLURM's own numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Time from its start to its end, seconds.
    pub elapsed: Option<u64>,
    /// Exit code of the batch script, or of what `srun` or `salloc` ran.
    pub exit_code: Option<u8>,
    /// The signal that ended it, 0 for none.
    pub signal: Option<u8>,
    /// Highest exit code of its steps.
    pub derived_exit_code: Option<u8>,
    /// The signal of that step, 0 for none.
    pub derived_signal: Option<u8>,
}

impl Metadata {
    /// The run that this is about, as far as SLURM says which: a requeued job starts later and has another count.
    pub(crate) fn run(&self) -> (Option<u64>, Option<u32>) {
        (self.start_time, self.restarts)
    }
}

/// Parses a metadata file. Lines without `=`, unknown keys and values of the wrong form are passed over, empty
/// values are absent; the last of a repeated key counts.
pub fn parse_metadata(bytes: &[u8]) -> Metadata {
    let mut m = Metadata::default();
    for line in bytes.split(|b| *b == b'\n') {
        let Some(at) = line.iter().position(|b| *b == b'=') else { continue };
        let (key, value) = line.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        if value.is_empty() {
            continue;
        }
        let text = || Some(label_text(value));
        let number = || integer(value).and_then(|v| u32::try_from(v).ok());
        let byte = || integer(value).and_then(|v| u8::try_from(v).ok());
        match key {
            b"job_id" => m.job_id = JobId::parse(value),
            b"sluid" => m.sluid = Sluid::parse(value),
            b"uid" => m.uid = number(),
            b"user" => m.user = text(),
            b"account" => m.account = text(),
            b"partition" => m.partition = text(),
            b"qos" => m.qos = text(),
            b"name" => m.name = text(),
            b"array_job_id" => m.array_job_id = JobId::parse(value),
            b"array_task_id" => m.array_task_id = number(),
            b"het_job_id" => m.het_job_id = JobId::parse(value),
            b"start_time" => m.start_time = integer(value),
            b"time_limit" => m.time_limit = integer(value),
            b"nodes" => m.nodes = number(),
            b"restarts" => m.restarts = number(),
            b"gpus" => m.gpus = parse_gpu_indices(value),
            b"gpu_uuids" => m.gpu_ids = parse_gpu_ids(value),
            b"node" => m.node = text(),
            b"elapsed" => m.ending.elapsed = integer(value),
            b"exit_code" => m.ending.exit_code = byte(),
            b"signal" => m.ending.signal = byte(),
            b"derived_exit_code" => m.ending.derived_exit_code = byte(),
            b"derived_signal" => m.ending.derived_signal = byte(),
            _ => {}
        }
    }
    m
}

/// Reads the file of a job from the prolog's directory. `owner` is its required owner: root, or the owner of the
/// cgroup tree (in fixtures, the user who unpacked them).
pub fn read_metadata(dir: &Dir, name: &str, owner: u32, buffer: &mut Buffer) -> Result<Metadata, ReadError> {
    dir.read_owned(name, owner, buffer).map(parse_metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file() {
        let m = parse_metadata(
            b"version=1\njob_id=12\nsluid=sDNHM7VZHTTA00\nuid=1001\nuser=alice\naccount=physics\npartition=main\nqos=normal\n\
              name=run=1 \"x\"\narray_job_id=10\narray_task_id=2\nhet_job_id=\nstart_time=1700000000\ntime_limit=3600\nnodes=2\nrestarts=1\ngpus=0,2\ngpu_uuids=GPU-a-b,MIG-c\n\
              node=node1\nelapsed=42\nexit_code=3\nsignal=0\nderived_exit_code=0\nderived_signal=11\nfuture=1\n",
        );
        assert_eq!(m.job_id, Some(JobId(12)));
        assert_eq!(m.sluid.unwrap().as_str(), "sDNHM7VZHTTA00");
        assert_eq!(m.uid, Some(1001));
        assert_eq!(m.name.as_deref(), Some("run=1 \"x\""));
        assert_eq!((m.array_job_id, m.array_task_id), (Some(JobId(10)), Some(2)));
        assert_eq!(m.het_job_id, None, "empty is absent");
        assert_eq!(m.start_time, Some(1_700_000_000));
        assert_eq!(m.gpus, Some(vec![0, 2]));
        assert_eq!(m.gpu_ids, Some(vec!["GPU-a-b".into(), "MIG-c".into()]));
        assert_eq!((m.time_limit, m.nodes, m.restarts), (Some(3600), Some(2), Some(1)));
        let ending = Ending {
            elapsed: Some(42),
            exit_code: Some(3),
            signal: Some(0),
            derived_exit_code: Some(0),
            derived_signal: Some(11),
        };
        assert_eq!(m.ending, ending);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let m =
            parse_metadata(b"\n=\nuid=-1\njob_id=abc\nuser\xff=x\nuser=\xff\ngpus=all\ngpu_uuids=GPU-1,0\n\
              time_limit=1-00\nnodes=4294967296\nrestarts=-1\nexit_code=256\nsignal=0x9\nderived_exit_code=1:0\n");
        assert_eq!(m.uid, None);
        assert_eq!(m.job_id, None);
        assert_eq!(m.user.as_deref(), Some("\u{fffd}"));
        assert_eq!((m.gpus, m.gpu_ids), (None, None), "not a part of a list either");
        assert_eq!((m.time_limit, m.nodes, m.restarts, m.ending), (None, None, None, Ending::default()));
    }
}
