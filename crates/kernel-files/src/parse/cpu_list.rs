//! `0-3,8,10-11` (lib/bitmap.c `bitmap_print_to_pagebuf`).

use super::{ParseError, integer};

/// A set of CPUs (or memory nodes) as sorted, disjoint ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// How many CPUs are in it.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(*last) - u64::from(*first) + 1).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&cpu))
    }
}

/// As the kernel writes it.
impl std::fmt::Display for CpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

/// Parses a CPU list; an empty file is an empty set. Strides (`0-31:2/4`) are written by no kernel file.
pub fn parse_cpu_list(bytes: &[u8]) -> Result<CpuList, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not a CPU list" };
    let text = bytes.trim_ascii();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    if text.is_empty() {
        return Ok(CpuList(ranges));
    }
    for part in text.split(|b| *b == b',') {
        let mut ends = part.splitn(2, |b| *b == b'-');
        let number = |bytes: &[u8]| integer(bytes).and_then(|v| u32::try_from(v).ok()).ok_or(BAD);
        let first = number(ends.next().unwrap_or_default())?;
        let last = ends.next().map_or(Ok(first), number)?;
        let follows = ranges.last().is_none_or(|(_, before)| *before < first);
        if last < first || !follows {
            return Err(BAD);
        }
        ranges.push((first, last));
    }
    Ok(CpuList(ranges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_not_expanded() {
        let list = parse_cpu_list(b"0-3,8,10-11\n").unwrap();
        assert_eq!(list.len(), 7);
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8, 10, 11]);
        assert!(list.contains(8) && !list.contains(9));
        assert_eq!(list.to_string(), "0-3,8,10-11");
        assert_eq!(parse_cpu_list(b"0-4294967295").unwrap().len(), 1 << 32);
        assert!(parse_cpu_list(b"\n").unwrap().is_empty());
    }

    #[test]
    fn disorder_is_refused() {
        for bad in [&b"3-1"[..], b"1,1", b"2,1", b"a", b"1-", b"-1", b"1,", b"1-2-3", b"5000000000"] {
            assert!(parse_cpu_list(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
