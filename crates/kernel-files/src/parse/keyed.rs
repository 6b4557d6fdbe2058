//! `key value` and `key a=b c=d` lines (Documentation/admin-guide/cgroup-v2.rst, "Format"), and `Key: value`.

use super::{ParseError, fields, integer, lines};

/// Calls `f` for every `key value` line of a flat-keyed file. A value that is no unsigned integer is an error.
/// One pass over the bytes: `memory.stat` of every job goes through here at every scrape.
pub fn flat_keyed(bytes: &[u8], mut f: impl FnMut(&[u8], u64)) -> Result<(), ParseError> {
    const NO_NUMBER: &str = "not an unsigned integer";
    let mut rest = bytes;
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let at = rest.iter().position(|b| matches!(b, b' ' | b'\n')).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(at);
        let tail = match tail.split_first() {
            Some((b' ', tail)) => tail,
            Some(_) => return Err(ParseError::new(line, "no value")),
            None => return Err(ParseError::new(line, "torn line")),
        };
        let mut value: u64 = 0;
        let mut digits = 0;
        for digit in tail.iter().map(|b| b.wrapping_sub(b'0')).take_while(|digit| *digit <= 9) {
            let more = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit)));
            value = more.ok_or(ParseError::new(line, NO_NUMBER))?;
            digits += 1;
        }
        rest = match tail.split_at(digits).1.split_first() {
            Some((b'\n', next)) if digits > 0 => next,
            None => return Err(ParseError::new(line, "torn line")),
            Some(_) => return Err(ParseError::new(line, NO_NUMBER)),
        };
        f(key, value);
    }
    Ok(())
}

/// Calls `f(key, name, value)` for every `name=value` of a nested-keyed file (`io.stat`); values that are not
/// unsigned integers (`io.cost` adds `cost.vrate=100.00`) are passed over.
///
/// The key is the last word before the first pair: some kernels (5.15, block/blk-cgroup.c) leave the names of
/// devices without numbers at the start of the next line. `io.stat` can be cut at the end of a page by the kernel:
/// the complete lines are reported, then the torn one is an error.
pub fn nested_keyed(bytes: &[u8], mut f: impl FnMut(&[u8], &[u8], u64)) -> Result<(), ParseError> {
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut key = None;
        let mut pairs = false;
        for part in fields(line) {
            let Some(at) = part.iter().position(|b| *b == b'=') else {
                key = if pairs { key } else { Some(part) };
                continue;
            };
            pairs = true;
            let Some(key) = key else { return Err(ParseError::new(number, "no key")) };
            let (name, value) = part.split_at(at);
            if let Some(value) = value.get(1..).and_then(integer) {
                f(key, name, value);
            }
        }
    }
    Ok(())
}

/// Calls `f(key, value)` for every `Key:   value` line (`meminfo`, `status`, `cpuinfo`, `io`); blank lines
/// and lines without a colon are passed over. The value is trimmed and may be empty.
pub fn colon_keyed(bytes: &[u8], mut f: impl FnMut(&[u8], &[u8])) {
    for line in bytes.split(|b| *b == b'\n') {
        if let Some(at) = line.iter().position(|b| *b == b':') {
            let (key, value) = line.split_at(at);
            f(key.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_last_line_is_refused() {
        let mut seen = Vec::new();
        let result = flat_keyed(b"usage_usec 12\nuser_usec 7", |k, v| seen.push((k.to_vec(), v)));
        assert_eq!(result, Err(ParseError::new(2, "torn line")));
        assert_eq!(seen, [(b"usage_usec".to_vec(), 12)], "the complete line was reported");
    }

    #[test]
    fn malformed_lines_are_named() {
        assert_eq!(flat_keyed(b"a 1\nb\n", |_, _| ()), Err(ParseError::new(2, "no value")));
        for bad in [&b"a max\n"[..], b"a \n", b"a -1\n", b"a 1 2\n", b"a 18446744073709551616\n"] {
            assert_eq!(flat_keyed(bad, |_, _| ()), Err(ParseError::new(1, "not an unsigned integer")));
        }
        for torn in [&b"a 1\nkey"[..], b"a 1\nkey ", b"a 1\nkey 2"] {
            assert_eq!(flat_keyed(torn, |_, _| ()), Err(ParseError::new(2, "torn line")));
        }
    }

    #[test]
    fn io_stat_lines_are_split_and_odd_values_passed_over() {
        let mut seen = Vec::new();
        let file = b"254:0 rbytes=806912 wbytes=0 rios=16 cost.vrate=100.00 odd\n8:0 rbytes=1\n";
        nested_keyed(file, |k, n, v| seen.push((k.to_vec(), n.to_vec(), v))).unwrap();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[2], (b"254:0".to_vec(), b"rios".to_vec(), 16));
        assert_eq!(nested_keyed(b"rbytes=1\n", |_, _, _| ()), Err(ParseError::new(1, "no key")));
        nested_keyed(b"8:0 8:16 rbytes=1\n8:32 \n", |k, _, _| assert_eq!(k, b"8:16")).unwrap();
    }

    #[test]
    fn colon_keyed_trims() {
        let mut seen = Vec::new();
        colon_keyed(b"MemTotal:       16 kB\n\nnothing\nempty:\n", |k, v| {
            seen.push((k.to_vec(), v.to_vec()))
        });
        assert_eq!(seen, [(b"MemTotal".to_vec(), b"16 kB".to_vec()), (b"empty".to_vec(), b"".to_vec())]);
    }
}
