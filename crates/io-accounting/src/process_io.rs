//! `/proc/PID/io` (Documentation/filesystems/proc.rst, 3.3; `CONFIG_TASK_IO_ACCOUNTING`).

use kernel_files::parse::{ParseError, integer, lines};

use crate::{COUNTERS, Counters};

/// `/proc/PID/io`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Bytes that read calls returned.
    pub rchar: Option<u64>,
    /// Bytes that write calls took.
    pub wchar: Option<u64>,
    /// Read calls.
    pub syscr: Option<u64>,
    /// Write calls.
    pub syscw: Option<u64>,
    /// Bytes fetched from storage.
    pub read_bytes: Option<u64>,
    /// Bytes sent to storage.
    pub write_bytes: Option<u64>,
    /// Bytes of those that were truncated in time.
    pub cancelled_write_bytes: Option<u64>,
}

impl ProcessIo {
    /// The counters, if all are there, as they have been since 2.6.20.
    pub fn counters(&self) -> Option<Counters> {
        let fields: [Option<u64>; COUNTERS] = [
            self.rchar,
            self.wchar,
            self.syscr,
            self.syscw,
            self.read_bytes,
            self.write_bytes,
            self.cancelled_write_bytes,
        ];
        let mut counters = Counters::default();
        for (counter, field) in counters.0.iter_mut().zip(fields) {
            *counter = field?;
        }
        Some(counters)
    }
}

/// Parses `/proc/PID/io`.
pub fn parse_process_io(bytes: &[u8]) -> Result<ProcessIo, ParseError> {
    let mut io = ProcessIo::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        let at = line.iter().position(|b| *b == b':').ok_or(ParseError::new(number, "no colon"))?;
        let (key, value) = line.split_at(at);
        let value = value.get(1..).map(<[u8]>::trim_ascii).and_then(integer);
        let value = value.ok_or(ParseError::new(number, "not an unsigned integer"))?;
        match key {
            b"rchar" => io.rchar = Some(value),
            b"wchar" => io.wchar = Some(value),
            b"syscr" => io.syscr = Some(value),
            b"syscw" => io.syscw = Some(value),
            b"read_bytes" => io.read_bytes = Some(value),
            b"write_bytes" => io.write_bytes = Some(value),
            b"cancelled_write_bytes" => io.cancelled_write_bytes = Some(value),
            _ => {}
        }
    }
    Ok(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO: &[u8] = b"rchar: 323934931\nwchar: 323934931\nsyscr: 7\nsyscw: 8\nread_bytes: 323934931\nwrite_bytes: 4096\ncancelled_write_bytes: 512\n";

    #[test]
    fn the_file_is_read_exactly_and_absent_is_none_not_zero() {
        let parsed = parse_process_io(IO).unwrap();
        assert_eq!(
            (parsed.rchar, parsed.syscw, parsed.cancelled_write_bytes),
            (Some(323_934_931), Some(8), Some(512))
        );
        assert!(parsed.counters().is_some());
        let few = parse_process_io(b"rchar: 1\nfuture: 2\n").unwrap();
        assert_eq!((few.rchar, few.wchar, few.counters()), (Some(1), None, None));
    }

    #[test]
    fn malformed_and_torn_are_errors() {
        for bad in [&b"rchar 1\n"[..], b"rchar: x\n", b"rchar: -1\n", b"rchar: 1\nwchar: 2", b"rchar:\n"] {
            assert!(parse_process_io(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
