//! Which processes have a device open: the descriptors of every process of the node.
//!
//! `/proc/PID/fd` (proc(5)): where a link leads is asked for with statx(2) and not read as text, so that a node of another name
//! or in a container's own `/dev` counts. AT_STATX_DONT_SYNC keeps a file of a server that hangs from being asked for.

use kernel_files::processes::{FD, FIX, check_hidden, each_process};
use kernel_files::{Buffer, Dir, ReadError, Roots};
use slurm_jobs::process::PIDS_OF_THE_HOST;

use super::super::CollectError;

/// A process that has a device open.
pub(super) struct Holder {
    /// Number of the device.
    pub(super) number: u64,
    /// File system and inode of the node through which.
    pub(super) identity: (u64, u64),
    /// Its `cgroup` file; `None` when the process is gone meanwhile.
    pub(super) cgroup: Option<Vec<u8>>,
}

/// Every process that has one of these devices open. An error when not every process could be seen.
pub(super) fn scan(roots: &Roots, numbers: &[u64], buffer: &mut Buffer) -> Result<Vec<Holder>, CollectError> {
    let failed = |file| move |error| CollectError::reading(file, "procfs and statx (Linux 4.11)", FIX)(error);
    let proc = Dir::open(&roots.proc("")).map_err(failed("/proc"))?;
    check_hidden(&proc)?;
    if proc.read_link("1/ns/pid").map_err(failed("/proc/1/ns/pid"))? != PIDS_OF_THE_HOST {
        return Err(CollectError::Unsupported { needs: "the host's PID namespace".to_owned() });
    }
    let mut holders = Vec::new();
    each_process(&proc, |_, fds, names| {
        let mut seen: Vec<(u64, (u64, u64))> = Vec::new();
        for name in names {
            match fds.stat_through(name) {
                Ok((number, identity))
                    if numbers.contains(&number) && !seen.contains(&(number, identity)) =>
                {
                    seen.push((number, identity));
                }
                // Closed meanwhile; or of a file system that is broken, and so no device of this node's.
                Ok(_) | Err(ReadError::Gone | ReadError::Io(_) | ReadError::TooLarge) => {}
                Err(error) => return Err(failed(FD)(error)),
            }
        }
        if !seen.is_empty() {
            // Through the descriptor of the directory: another process of the same id would not answer.
            let cgroup = fds.read("../cgroup", buffer).ok().map(<[u8]>::to_vec);
            holders.extend(seen.iter().map(|(number, identity)| Holder {
                number: *number,
                identity: *identity,
                cgroup: cgroup.clone(),
            }));
        }
        Ok(())
    })?;
    Ok(holders)
}
