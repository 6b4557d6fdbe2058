//! How counters are given to groups where their users do that: the mode `mbm_event` of Linux 6.18, on AMD's CPUs with ABMC
//! (Documentation/filesystems/resctrl.rst, `mbm_assign_mode`, `mbm_L3_assignments`).

use std::collections::BTreeMap;

use kernel_files::parse::{ParseError, fields, integer, lines};

/// The mode in which a group counts only what a counter was assigned to.
pub(super) const BY_ASSIGNMENT: &str = "mbm_event";

/// Parses `info/L3_MON/mbm_assign_mode`: the word in brackets, `[mbm_event]`.
pub fn parse_assign_mode(bytes: &[u8]) -> Option<&str> {
    let chosen = fields(bytes).find_map(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"))?;
    std::str::from_utf8(chosen).ok().filter(|mode| !mode.is_empty())
}

/// `0=32;1=e`: what each domain has, by a parser of it.
fn by_domain<T>(
    list: &[u8],
    line: usize,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<BTreeMap<u32, T>, ParseError> {
    let one = |part: &[u8]| {
        let at = part.iter().position(|byte| *byte == b'=')?;
        let (domain, value) = part.split_at(at);
        Some((u32::try_from(integer(domain)?).ok()?, parse(value.strip_prefix(b"=")?)?))
    };
    let parts = list.split(|byte| *byte == b';');
    parts.map(|part| one(part.trim_ascii()).ok_or(ParseError::new(line, "not domain=value"))).collect()
}

/// Parses `info/L3_MON/num_mbm_cntrs` or `available_mbm_cntrs`: counters by domain.
pub fn parse_counters(bytes: &[u8]) -> Result<BTreeMap<u32, u64>, ParseError> {
    by_domain(bytes.trim_ascii(), 1, integer)
}

/// Parses `mbm_L3_assignments`: whether a group has a counter for all of its bytes, by domain.
pub fn parse_assignments(bytes: &[u8]) -> Result<BTreeMap<u32, bool>, ParseError> {
    for line in lines(bytes) {
        let (number, line) = line?;
        if let Some(list) = line.strip_prefix(b"mbm_total_bytes:") {
            let state = |state: &[u8]| match state {
                b"e" => Some(true),
                b"_" => Some(false),
                _ => None,
            };
            return by_domain(list, number, state);
        }
    }
    Ok(BTreeMap::new())
}

/// Parses `info/L3_MON/event_configs/mbm_total_bytes/event_filter`: the kinds of transactions that are counted, in order.
pub fn parse_event_filter(bytes: &[u8]) -> Option<Vec<&str>> {
    let word = |word: &'_ [u8]| word.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let words = bytes.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|part| !part.is_empty());
    let mut kinds = words
        .map(|part| std::str::from_utf8(part).ok().filter(|_| word(part)))
        .collect::<Option<Vec<_>>>()?;
    kinds.sort_unstable();
    Some(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_the_word_in_brackets() {
        assert_eq!(parse_assign_mode(b"[mbm_event]\ndefault\n"), Some("mbm_event"));
        assert_eq!(parse_assign_mode(b"mbm_event\n[default]\n"), Some("default"));
        assert_eq!(parse_assign_mode(b"default\n"), None);
        assert_eq!(parse_assign_mode(b"[]\n"), None);
    }

    /// The examples of the kernel's document.
    #[test]
    fn counters_and_assignments_are_by_domain() {
        assert_eq!(parse_counters(b"0=32;1=30\n"), Ok([(0, 32), (1, 30)].into()));
        let assignments = |text: &str| parse_assignments(text.as_bytes());
        let both = "mbm_total_bytes:0=e;1=e\nmbm_local_bytes:0=e;1=_\n";
        assert_eq!(assignments(both), Ok([(0, true), (1, true)].into()));
        assert_eq!(
            assignments("mbm_local_bytes:0=e\nmbm_total_bytes:0=_;1=e\n"),
            Ok([(0, false), (1, true)].into())
        );
        assert_eq!(assignments("mbm_local_bytes:0=e\n"), Ok(BTreeMap::new()));
        for bad in ["", "\n", "0\n", "0=\n", "=3\n", "a=3\n", "0=3;\n", "0=-1\n"] {
            assert!(parse_counters(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in
            ["mbm_total_bytes:\n", "mbm_total_bytes:0=x\n", "mbm_total_bytes:*=e\n", "mbm_total_bytes:0=e"]
        {
            assert!(assignments(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_counted_is_a_list_of_kinds() {
        let kinds = parse_event_filter(b"local_reads,remote_reads,dirty_victim_writes_all\n");
        assert_eq!(kinds, Some(vec!["dirty_victim_writes_all", "local_reads", "remote_reads"]));
        assert_eq!(parse_event_filter(b"\n"), Some(Vec::new()));
        assert_eq!(parse_event_filter(b"local reads\n"), None);
        assert_eq!(parse_event_filter(b"\xff\n"), None);
    }
}
