//! Processes below procfs: lists of them, and the descriptors that each has (`/proc/PID/fd`, proc(5)).

use crate::error::SourceError;
use crate::file::{Dir, ReadError};
use crate::parse::{ParseError, integer, lines};

/// Parses a list of processes, an id per line.
pub fn parse_pids(bytes: &[u8], mut f: impl FnMut(u32)) -> Result<(), ParseError> {
    for line in lines(bytes) {
        let (number, line) = line?;
        let pid = integer(line).and_then(|v| u32::try_from(v).ok());
        f(pid.ok_or(ParseError::new(number, "no process id"))?);
    }
    Ok(())
}

/// When no process of several was there: with hidepid=2 every process of others looks like one that is gone.
pub fn check_hidden(proc: &Dir) -> Result<(), SourceError> {
    if proc.has("1") {
        return Ok(());
    }
    Err(SourceError::Denied { what: "/proc (hidepid)".to_owned() })
}

/// Calls `f` with each process, the directory of its descriptors and their names. An error when not every process could
/// be seen.
pub fn each_process(
    proc: &Dir,
    mut f: impl FnMut(u32, &Dir, &[String]) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    const FD: &str = "/proc/PID/fd";
    let failed = |file| move |error| SourceError::reading(file, "procfs and statx (Linux 4.11)")(error);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_are_whole_lines_of_digits() {
        let mut pids = Vec::new();
        parse_pids(b"0\n12\n4194304\n", |pid| pids.push(pid)).unwrap();
        assert_eq!(pids, [0, 12, 4_194_304]);
        for bad in [&b"12\n13"[..], b"x\n", b"-1\n", b"\n", b"99999999999\n"] {
            assert!(parse_pids(bad, |_| ()).is_err());
        }
    }
}
