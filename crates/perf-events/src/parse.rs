//! What the kernel answers.

use kernel_files::parse::fields;

use crate::Reading;

pub(crate) const WORD: usize = size_of::<u64>();

/// Reads what the kernel answers for `PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING`: the number of events, both
/// times, and each count. `false` when it is not that of `events` events.
pub fn parse_group(bytes: &[u8], events: usize, into: &mut Reading) -> bool {
    let mut words = bytes.chunks_exact(WORD).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
    let head = (words.next(), words.next(), words.next());
    let (Some(number), Some(enabled), Some(running)) = head else { return false };
    into.enabled = enabled;
    into.running = running;
    into.counts.clear();
    into.counts.extend(words.take(events));
    bytes.len() == (3 + events) * WORD && usize::try_from(number) == Ok(events)
}

/// Whether perf events can be of cgroups of the unified hierarchy: not where `/proc/cgroups` has `perf_event` in a hierarchy of v1
/// (kernel/cgroup/cgroup-v1.c, `proc_cgroupstats_show`; kernel/events/core.c, `perf_cgroup_connect`).
pub fn parse_unified_perf(bytes: &[u8]) -> bool {
    let of_v1 = bytes.split(|b| *b == b'\n').any(|line| {
        let mut words = fields(line);
        words.next() == Some(b"perf_event") && words.next().is_some_and(|hierarchy| hierarchy != b"0")
    });
    !of_v1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_groups_answer_is_its_times_and_counts() {
        let mut reading = Reading::default();
        assert!(parse_group(&words(&[2, 100, 50, 7, 9]), 2, &mut reading));
        assert_eq!(reading, Reading { enabled: 100, running: 50, counts: vec![7, 9] });
        for bad in [words(&[]), words(&[2, 100, 50, 7]), words(&[1, 100, 50, 7]), words(&[3, 1, 1, 1, 1, 1])]
        {
            assert!(!parse_group(&bad, 2, &mut reading));
        }
        assert!(!parse_group(&words(&[2, 100, 50, 7, 9])[..39], 2, &mut reading), "torn");
        assert!(!parse_group(&words(&[2, 100, 50, 7, 1, 9, 2]), 2, &mut reading), "with ids");
    }

    #[test]
    fn where_perf_events_are_bound_to_v1_the_unified_hierarchy_has_none() {
        let head = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t4\t12\t1\n";
        assert!(parse_unified_perf(format!("{head}perf_event\t0\t85\t1\n").as_bytes()));
        assert!(!parse_unified_perf(format!("{head}perf_event\t9\t85\t1\n").as_bytes()));
        assert!(parse_unified_perf(head.as_bytes()), "a kernel that does not list it");
        assert!(parse_unified_perf(b""));
    }
}
