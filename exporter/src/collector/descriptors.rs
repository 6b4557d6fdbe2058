//! The descriptors of every process of the node (`/proc/PID/fd`, proc(5)).

use super::CollectError;
use super::proc_pid::{FIX, check_hidden};
use crate::kernel_file::{Dir, ReadError};

/// Their directory, in messages.
pub(crate) const FD: &str = "/proc/PID/fd";

/// Calls `f` with each process, the directory of its descriptors and their names. An error when not every process could
/// be seen.
pub(crate) fn each_process(
    proc: &Dir,
    mut f: impl FnMut(u32, &Dir, &[String]) -> Result<(), CollectError>,
) -> Result<(), CollectError> {
    let failed = |file| move |error| CollectError::reading(file, "procfs and statx (Linux 4.11)", FIX)(error);
    check_hidden(proc)?;
    let mut pids: Vec<u32> = Vec::new();
    let note = |name: &[u8]| std::str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok());
    proc.for_each(|name, _, _| pids.extend(note(name))).map_err(failed("/proc"))?;
    let mut names: Vec<String> = Vec::new();
    for pid in pids {
        names.clear();
        let listed = proc.open_link(&format!("{pid}/fd")).and_then(|fds| {
            fds.for_each(|name, _, _| names.extend(std::str::from_utf8(name).map(str::to_owned)))?;
            Ok(fds)
        });
        match listed {
            Ok(fds) => f(pid, &fds, &names)?,
            Err(ReadError::Gone) => {}
            Err(error) => return Err(failed(FD)(error)),
        }
    }
    Ok(())
}
