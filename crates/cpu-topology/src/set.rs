//! A set of CPUs, as kernel files write it: `0-3,8,10-11` (lib/bitmap.c `bitmap_print_to_pagebuf`).

use kernel_files::parse::{ParseError, integer};

/// A set of CPUs, or of NUMA nodes: ranges in order, with a gap between any two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<(u32, u32)>);

impl CpuSet {
    /// Parses a list; an empty file is an empty set. No kernel file writes strides (`0-31:2/4`).
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        const BAD: ParseError = ParseError { line: 1, reason: "not a CPU list" };
        let text = bytes.trim_ascii();
        let mut set = Self::default();
        for part in text.split(|b| *b == b',').filter(|_| !text.is_empty()) {
            let mut ends = part.splitn(2, |b| *b == b'-');
            let number = |bytes: &[u8]| integer(bytes).and_then(|v| u32::try_from(v).ok()).ok_or(BAD);
            let first = number(ends.next().unwrap_or_default())?;
            let last = ends.next().map_or(Ok(first), number)?;
            let follows = set.0.last().is_none_or(|(_, before)| *before < first);
            if last < first || !follows {
                return Err(BAD);
            }
            set.push(first, last);
        }
        Ok(set)
    }

    /// Adds a range that lies behind all others.
    pub(crate) fn push(&mut self, first: u32, last: u32) {
        match self.0.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            _ => self.0.push((first, last)),
        }
    }

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
        let at = self.0.partition_point(|(_, last)| *last < cpu);
        self.0.get(at).is_some_and(|(first, _)| *first <= cpu)
    }

    /// The CPUs that are in both.
    pub fn and(&self, other: &Self) -> Self {
        Self(self.overlaps(other).collect())
    }

    /// Whether a CPU is in both.
    pub fn intersects(&self, other: &Self) -> bool {
        self.overlaps(other).next().is_some()
    }

    fn overlaps(&self, other: &Self) -> impl Iterator<Item = (u32, u32)> {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        std::iter::from_fn(move || {
            loop {
                let (first, last) = **ours.peek()?;
                let (other_first, other_last) = **theirs.peek()?;
                let _ = if last < other_last { ours.next() } else { theirs.next() };
                let both = (first.max(other_first), last.min(other_last));
                if both.0 <= both.1 {
                    return Some(both);
                }
            }
        })
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.push(cpu, cpu));
        set
    }
}

/// As the kernel writes it.
impl std::fmt::Display for CpuSet {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_counted_not_expanded() {
        let list = CpuSet::parse(b"0-3,8,10-11\n").unwrap();
        assert_eq!(list.len(), 7);
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8, 10, 11]);
        assert!(list.contains(8) && !list.contains(9));
        assert_eq!(list.to_string(), "0-3,8,10-11");
        assert_eq!(CpuSet::parse(b"0-4294967295").unwrap().len(), 1 << 32);
        assert!(CpuSet::parse(b"\n").unwrap().is_empty());
    }

    #[test]
    fn the_same_cpus_are_the_same_set() {
        assert_eq!(CpuSet::parse(b"0,1,2-3,8").unwrap(), CpuSet::parse(b"0-3,8").unwrap());
        assert_eq!([8, 3, 1, 0, 2, 3].into_iter().collect::<CpuSet>().to_string(), "0-3,8");
        assert_eq!(CpuSet::default().to_string(), "");
    }

    #[test]
    fn disorder_is_refused() {
        for bad in [&b"3-1"[..], b"1,1", b"2,1", b"a", b"1-", b"-1", b"1,", b"1-2-3", b"5000000000"] {
            assert!(CpuSet::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            one in prop::collection::btree_set(0..90_u32, 0..60),
            other in prop::collection::btree_set(0..90_u32, 0..60),
        ) {
            let set = |cpus: &BTreeSet<u32>| cpus.iter().copied().collect::<CpuSet>();
            let (ours, theirs) = (set(&one), set(&other));
            prop_assert_eq!(ours.len(), one.len() as u64);
            prop_assert!(ours.iter().eq(one.iter().copied()));
            prop_assert!((0..100).all(|cpu| ours.contains(cpu) == one.contains(&cpu)));
            prop_assert_eq!(ours.and(&theirs), set(&(&one & &other)));
            prop_assert_eq!(ours.intersects(&theirs), !one.is_disjoint(&other));
            prop_assert_eq!(CpuSet::parse(ours.to_string().as_bytes()), Ok(ours));
        }
    }
}
