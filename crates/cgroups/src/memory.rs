//! Memory of a cgroup: `memory.stat` and `memory.events` (Documentation/admin-guide/cgroup-v2.rst, "Memory"), and v1's `memory.stat` and
//! `memory.oom_control` (Documentation/admin-guide/cgroup-v1/memory.rst).

use kernel_files::parse::{ParseError, flat_keyed};
use serde::{Deserialize, Serialize};

/// `memory.stat`, of both versions; v1's are its `total_` fields, which include the cgroups below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStat {
    /// `anon`, v1 `total_rss`.
    pub anon: Option<u64>,
    /// `file`, v1 `total_cache`.
    pub file: Option<u64>,
    /// `shmem`.
    pub shmem: Option<u64>,
    /// `file_mapped`, v1 `total_mapped_file`.
    pub file_mapped: Option<u64>,
    /// `kernel`, v2.
    pub kernel: Option<u64>,
    /// `slab`, v2.
    pub slab: Option<u64>,
    /// `total_swap`, v1.
    pub swap: Option<u64>,
    /// `pgfault`, major ones included.
    pub pgfault: Option<u64>,
    /// `pgmajfault`.
    pub pgmajfault: Option<u64>,
    /// `hierarchical_memory_limit`, v1.
    pub limit: Option<u64>,
    /// `hierarchical_memsw_limit`, v1: memory and swap together.
    pub memsw_limit: Option<u64>,
}

/// Parses `memory.stat` of v2.
pub fn parse_memory_stat(bytes: &[u8]) -> Result<MemoryStat, ParseError> {
    let mut s = MemoryStat::default();
    flat_keyed(bytes, |key, value| match key {
        b"anon" => s.anon = Some(value),
        b"file" => s.file = Some(value),
        b"shmem" => s.shmem = Some(value),
        b"file_mapped" => s.file_mapped = Some(value),
        b"kernel" => s.kernel = Some(value),
        b"slab" => s.slab = Some(value),
        b"pgfault" => s.pgfault = Some(value),
        b"pgmajfault" => s.pgmajfault = Some(value),
        _ => {}
    })?;
    Ok(s)
}

/// Parses `memory.stat` of v1.
pub fn parse_memory_stat_v1(bytes: &[u8]) -> Result<MemoryStat, ParseError> {
    let mut s = MemoryStat::default();
    flat_keyed(bytes, |key, value| match key {
        b"total_rss" => s.anon = Some(value),
        b"total_cache" => s.file = Some(value),
        b"total_shmem" => s.shmem = Some(value),
        b"total_mapped_file" => s.file_mapped = Some(value),
        b"total_swap" => s.swap = Some(value),
        b"total_pgfault" => s.pgfault = Some(value),
        b"total_pgmajfault" => s.pgmajfault = Some(value),
        b"hierarchical_memory_limit" => s.limit = Some(value),
        b"hierarchical_memsw_limit" => s.memsw_limit = Some(value),
        _ => {}
    })?;
    Ok(s)
}

/// `memory.events` of v2, hierarchical; `oom_kill` of v1's `memory.oom_control`, which is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEvents {
    /// Usage ran into `memory.high`.
    pub high: Option<u64>,
    /// Usage ran into `memory.max`.
    pub max: Option<u64>,
    /// The out-of-memory killer was considered.
    pub oom: Option<u64>,
    /// Processes that it killed.
    pub oom_kill: Option<u64>,
}

/// Parses `memory.events` and `memory.oom_control`.
pub fn parse_memory_events(bytes: &[u8]) -> Result<MemoryEvents, ParseError> {
    let mut e = MemoryEvents::default();
    flat_keyed(bytes, |key, value| match key {
        b"high" => e.high = Some(value),
        b"max" => e.max = Some(value),
        b"oom" => e.oom = Some(value),
        b"oom_kill" => e.oom_kill = Some(value),
        _ => {}
    })?;
    Ok(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6.12, SLURM 26.05, cut.
    const STAT_V2: &str = "anon 61636608\nfile 8658944\nkernel 2109440\nkernel_stack 344064\nshmem 8388608\nfile_mapped 208896\n\
        slab_reclaimable 112\nslab 614120\npgscan 0\npgfault 7969\npgmajfault 3\nthp_fault_alloc 39\n";
    /// 4.18 (EL8), cut: own fields first, then the hierarchical ones.
    const STAT_V1: &str = "cache 10\nrss 20\nshmem 1\nmapped_file 2\nswap 0\npgfault 30\npgmajfault 0\n\
        hierarchical_memory_limit 419430400\nhierarchical_memsw_limit 629145600\ntotal_cache 8658944\ntotal_rss 61636608\n\
        total_rss_huge 0\ntotal_shmem 8388608\ntotal_mapped_file 208896\ntotal_swap 4096\ntotal_pgpgin 5\ntotal_pgfault 7969\n\
        total_pgmajfault 3\ntotal_unevictable 0\n";

    #[test]
    fn both_versions_files_say_the_same_and_absent_is_none_not_zero() {
        let v2 = parse_memory_stat(STAT_V2.as_bytes()).unwrap();
        let v1 = parse_memory_stat_v1(STAT_V1.as_bytes()).unwrap();
        for s in [v2, v1] {
            assert_eq!((s.anon, s.file, s.shmem), (Some(61_636_608), Some(8_658_944), Some(8_388_608)));
            assert_eq!((s.file_mapped, s.pgfault, s.pgmajfault), (Some(208_896), Some(7969), Some(3)));
        }
        assert_eq!((v2.kernel, v2.slab, v2.swap, v2.limit), (Some(2_109_440), Some(614_120), None, None));
        assert_eq!((v1.kernel, v1.slab, v1.swap, v1.limit), (None, None, Some(4096), Some(419_430_400)));
        assert_eq!(parse_memory_stat(b"anon 1\nfile 2\n").unwrap().kernel, None, "5.14 has none");
        assert_eq!(parse_memory_stat(b""), Ok(MemoryStat::default()));
    }

    #[test]
    fn events_of_v2_and_the_kill_count_of_v1() {
        let e = parse_memory_events(b"low 0\nhigh 0\nmax 41\noom 2\noom_kill 1\noom_group_kill 0\n").unwrap();
        assert_eq!((e.high, e.max, e.oom, e.oom_kill), (Some(0), Some(41), Some(2), Some(1)));
        let e = parse_memory_events(b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        assert_eq!((e.oom, e.oom_kill), (None, Some(3)));
    }

    #[test]
    fn malformed_and_torn_are_errors_and_no_numbers() {
        for bad in [&b"anon x\n"[..], b"anon 1\nfile 2", b"anon 1\nfi", b"anon -1\n"] {
            assert!(parse_memory_stat(bad).is_err() && parse_memory_stat_v1(bad).is_err());
            assert!(parse_memory_events(bad).is_err());
        }
    }
}
