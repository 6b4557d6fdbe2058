//! `/proc/PID/stat` (Documentation/filesystems/proc.rst, table 1-4; `man 5 proc_pid_stat`).

use super::{ParseError, fields, integer};

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidStat {
    /// `R`, `S`, `D`, `Z` and so on.
    pub state: u8,
    /// Parent.
    pub ppid: u32,
    /// Start, ticks since the boot: with the pid, the identity of the process.
    pub start_ticks: u64,
    /// Virtual memory, bytes.
    pub vsize: u64,
}

/// Parses `/proc/PID/stat`. The name in its second field is the user's: it may have blanks, parentheses and
/// newlines, so the fields are counted from the last `)`.
pub fn parse_pid_stat(bytes: &[u8]) -> Result<PidStat, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not a process's stat" };
    let record = bytes.strip_suffix(b"\n").ok_or(ParseError::new(1, "torn line"))?;
    let end = record.iter().rposition(|b| *b == b')').ok_or(BAD)?;
    let mut rest = fields(record.split_at(end).1.get(1..).unwrap_or_default());
    let state = match rest.next() {
        Some([state]) => *state,
        _ => return Err(BAD),
    };
    let ppid = rest.next().and_then(integer).and_then(|v| u32::try_from(v).ok()).ok_or(BAD)?;
    // Fields count from 1; `ppid` is the 4th.
    let start_ticks = rest.nth(22 - 5).and_then(integer).ok_or(BAD)?;
    let vsize = rest.next().and_then(integer).ok_or(BAD)?;
    Ok(PidStat { state, ppid, start_ticks, vsize })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SLURM 26.05's slurmstepd.
    const STAT: &str = "349 (slurmstepd) S 1 348 348 0 -1 4194560 517 0 2 0 4 11 0 0 20 0 9 0 7514 480743424 1582 18446744073709551615 94419691106304 0\n";

    #[test]
    fn a_process_has_its_parent_and_start() {
        let expected = PidStat { state: b'S', ppid: 1, start_ticks: 7514, vsize: 480_743_424 };
        assert_eq!(parse_pid_stat(STAT.as_bytes()), Ok(expected));
        let hostile = STAT.replace("slurmstepd", "a) Z 0 (\n1) R 2");
        assert_eq!(parse_pid_stat(hostile.as_bytes()), Ok(expected), "the name is the user's");
    }

    #[test]
    fn what_is_cut_or_nonsense_is_refused() {
        for bad in [
            "",
            "\n",
            "1 (x) S 1\n",
            "1 (x) SS 1 2\n",
            "1 x S 1\n",
            STAT.trim_end(),
            &STAT.replace("7514", "-1"),
        ] {
            assert!(parse_pid_stat(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
