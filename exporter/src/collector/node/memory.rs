//! Memory of the node by use.
//!
//! `/proc/meminfo` (Documentation/filesystems/proc.rst), any kernel, no privilege, one read. `kB` in it are KiB.
//! Kernels differ in which lines they have; what a kernel does not say is absent here.

use exposition::{Family, Profile, Section, SubjectId};
use kernel_files::NodeFiles;
use kernel_files::parse::{ParseError, fields, integer, lines};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static TOTAL: Family = Family::gauge("jobledger_node_memory_total_bytes")
    .help("Memory that the kernel manages: installed less reserved");
static FREE: Family =
    Family::gauge("jobledger_node_memory_free_bytes").help("Memory used for nothing at all");
static AVAILABLE: Family = Family::gauge("jobledger_node_memory_available_bytes")
    .help("The kernel's estimate of what new programs can use without swapping");
static BUFFERS: Family = Family::gauge("jobledger_node_memory_buffers_bytes")
    .profile(Profile::Full)
    .help("Page cache of block devices");
static CACHED: Family = Family::gauge("jobledger_node_memory_cached_bytes")
    .help("Page cache of files, shared memory and tmpfs included");
static SHMEM: Family =
    Family::gauge("jobledger_node_memory_shmem_bytes").profile(Profile::Full).help("Shared memory and tmpfs");
static ANON: Family = Family::gauge("jobledger_node_memory_anon_bytes").help("Anonymous memory of processes");
static ANON_HUGE: Family = Family::gauge("jobledger_node_memory_anon_huge_bytes")
    .profile(Profile::Full)
    .help("Anonymous memory in transparent huge pages");
static DIRTY: Family =
    Family::gauge("jobledger_node_memory_dirty_bytes").help("Page cache that waits to be written");
static WRITEBACK: Family =
    Family::gauge("jobledger_node_memory_writeback_bytes").help("Page cache that is being written");
static SLAB: Family = Family::gauge("jobledger_node_memory_slab_bytes").help("Kernel objects");
static SLAB_RECLAIMABLE: Family = Family::gauge("jobledger_node_memory_slab_reclaimable_bytes")
    .profile(Profile::Full)
    .help("Kernel objects that can be given up, such as cached directory entries");
static KERNEL_STACK: Family = Family::gauge("jobledger_node_memory_kernel_stack_bytes")
    .profile(Profile::Full)
    .help("Kernel stacks of threads");
static PAGE_TABLES: Family =
    Family::gauge("jobledger_node_memory_page_tables_bytes").help("Page tables of processes");
static SWAP_TOTAL: Family = Family::gauge("jobledger_node_memory_swap_total_bytes").help("Swap space");
static SWAP_FREE: Family = Family::gauge("jobledger_node_memory_swap_free_bytes").help("Swap space not used");
static HUGETLB: Family = Family::gauge("jobledger_node_memory_hugetlb_bytes")
    .profile(Profile::Full)
    .help("Memory set aside as huge pages of all sizes, used or not; jobs' memory counters do not see it");
static HUGETLB_FREE: Family = Family::gauge("jobledger_node_memory_hugetlb_free_bytes")
    .profile(Profile::Full)
    .help("Unused huge pages of the default size, within the memory set aside");

/// Lines of the file in kB and what they become.
static LINES: [(&str, &Family); 17] = [
    ("MemTotal", &TOTAL),
    ("MemFree", &FREE),
    ("MemAvailable", &AVAILABLE),
    ("Buffers", &BUFFERS),
    ("Cached", &CACHED),
    ("Shmem", &SHMEM),
    ("AnonPages", &ANON),
    ("AnonHugePages", &ANON_HUGE),
    ("Dirty", &DIRTY),
    ("Writeback", &WRITEBACK),
    ("Slab", &SLAB),
    ("SReclaimable", &SLAB_RECLAIMABLE),
    ("KernelStack", &KERNEL_STACK),
    ("PageTables", &PAGE_TABLES),
    ("SwapTotal", &SWAP_TOTAL),
    ("SwapFree", &SWAP_FREE),
    ("Hugetlb", &HUGETLB),
];

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_memory",
    summary: "Memory of the node by use, swap and huge pages",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || LINES.iter().map(|(_, family)| *family).chain([&HUGETLB_FREE]).collect(),
    build: |context| Built::plain(NodeMemory { files: NodeFiles::new(&context.roots) }),
};

/// `/proc/meminfo`, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// In the order of the table of lines.
    bytes: [Option<u64>; LINES.len()],
    /// `HugePages_Free`, a count.
    pub huge_pages_free: Option<u64>,
    /// `Hugepagesize`.
    pub huge_page_size: Option<u64>,
}

/// Parses `/proc/meminfo`.
pub fn parse_meminfo(bytes: &[u8]) -> Result<MemInfo, ParseError> {
    let mut info = MemInfo::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        let Some(key) = parts.next().and_then(|key| key.strip_suffix(b":")) else { continue };
        let kib = match key {
            b"HugePages_Free" => {
                info.huge_pages_free = parts.next().and_then(integer);
                continue;
            }
            b"Hugepagesize" => &mut info.huge_page_size,
            _ => {
                let slots = LINES.iter().zip(&mut info.bytes);
                let Some((_, slot)) = slots.into_iter().find(|((name, _), _)| name.as_bytes() == key) else {
                    continue;
                };
                slot
            }
        };
        let value = parts.next().and_then(integer).and_then(|v| v.checked_mul(1024));
        let value = value.ok_or(ParseError::new(number, "not an unsigned integer"))?;
        if parts.next() != Some(b"kB") {
            return Err(ParseError::new(number, "not in kB"));
        }
        *kib = Some(value);
    }
    Ok(info)
}

/// The source.
#[derive(Debug)]
struct NodeMemory {
    files: NodeFiles,
}

impl Collector for NodeMemory {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let bytes = self.files.need("proc/meminfo", "a procfs with /proc/meminfo")?;
        let info = parse_meminfo(bytes).map_err(SourceError::parsing("proc/meminfo"))?;
        for ((_, family), bytes) in LINES.iter().zip(info.bytes) {
            if let Some(bytes) = bytes {
                out.push(family, SubjectId::NODE, &[], bytes);
            }
        }
        let free = info.huge_pages_free.zip(info.huge_page_size).and_then(|(n, size)| n.checked_mul(size));
        if let Some(free) = free {
            out.push(&HUGETLB_FREE, SubjectId::NODE, &[], free);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, collect, snapshot_of};

    // Recorded: Linux 6.18, lines that are not read among those that are.
    const LINUX_6_18: &[u8] = b"MemTotal:       24684084 kB\nMemFree:        20727780 kB\nMemAvailable:   23597472 kB\n\
        Buffers:           30272 kB\nCached:          2959196 kB\nSwapCached:            0 kB\nActive(anon):       1560 kB\n\
        SwapTotal:             0 kB\nSwapFree:              0 kB\nZswap:                 0 kB\nDirty:           1296428 kB\n\
        Writeback:             0 kB\nAnonPages:        564448 kB\nShmem:              8872 kB\nKReclaimable:     192732 kB\n\
        Slab:             226488 kB\nSReclaimable:     192732 kB\nSUnreclaim:        33756 kB\nKernelStack:        1744 kB\n\
        PageTables:         3892 kB\nSecPageTables:         0 kB\nVmallocTotal:   34359738367 kB\nAnonHugePages:    425984 kB\n\
        HugePages_Total:       4\nHugePages_Free:        3\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n\
        Hugepagesize:       2048 kB\nHugetlb:            8192 kB\nDirectMap4k:       26624 kB\n";

    fn value(info: &MemInfo, line: &str) -> Option<u64> {
        LINES.iter().zip(info.bytes).find(|((name, _), _)| *name == line).unwrap().1
    }

    #[test]
    fn kib_become_bytes_and_a_zero_is_a_zero() {
        let info = parse_meminfo(LINUX_6_18).unwrap();
        assert_eq!(value(&info, "MemTotal"), Some(24_684_084 << 10));
        assert_eq!(value(&info, "Cached"), Some(2_959_196 << 10), "and not SwapCached");
        assert_eq!(value(&info, "SwapTotal"), Some(0));
        assert_eq!(value(&info, "Hugetlb"), Some(8192 << 10));
        assert_eq!((info.huge_pages_free, info.huge_page_size), (Some(3), Some(2048 << 10)));
        assert!(info.bytes.iter().all(Option::is_some));
    }

    #[test]
    fn absent_is_none_not_zero() {
        // A kernel without huge pages, and one of 4.18 for 64 KiB pages whose huge pages are 512 MiB.
        let none = parse_meminfo(b"MemTotal:       16 kB\nSlab:            8 kB\n").unwrap();
        assert_eq!(value(&none, "MemAvailable"), None);
        assert_eq!((none.huge_pages_free, none.huge_page_size), (None, None));
        let arm = parse_meminfo(b"HugePages_Free:        0\nHugepagesize:     524288 kB\n").unwrap();
        assert_eq!((arm.huge_pages_free, arm.huge_page_size), (Some(0), Some(512 << 20)));
        assert_eq!(parse_meminfo(b"").unwrap(), MemInfo::default());
    }

    #[test]
    fn malformed_and_torn_are_errors_and_unknown_lines_are_not() {
        assert_eq!(
            parse_meminfo(b"MemTotal:       x kB\n"),
            Err(ParseError::new(1, "not an unsigned integer"))
        );
        assert_eq!(parse_meminfo(b"MemTotal:\n"), Err(ParseError::new(1, "not an unsigned integer")));
        assert_eq!(parse_meminfo(b"MemTotal:       1 MB\n"), Err(ParseError::new(1, "not in kB")));
        assert_eq!(parse_meminfo(b"Slab: 1 kB\nMemTotal:       246"), Err(ParseError::new(2, "torn line")));
        assert!(parse_meminfo(b"MemTotal:  18446744073709551615 kB\n").is_err(), "no overflow");
        assert!(parse_meminfo(b"\nno colon\nFuture: ? x\n").is_ok());
    }

    #[test]
    fn a_missing_file_is_unsupported_and_values_are_exported_in_bytes() {
        let machine = Machine::new();
        let (outcome, _) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome.unwrap_err().to_string(), "unsupported: needs a procfs with /proc/meminfo");
        machine.write("proc/meminfo", LINUX_6_18);
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        assert!(text.contains("\njobledger_node_memory_total_bytes 25276502016\n"), "{text}");
        assert!(text.contains("\njobledger_node_memory_hugetlb_free_bytes 6291456\n"), "{text}");
    }

    #[test]
    fn the_live_host_agrees_with_sysinfo() {
        let mut files = NodeFiles::new(&Default::default());
        let info = parse_meminfo(files.read("proc/meminfo").unwrap()).unwrap();
        let other = rustix::system::sysinfo();
        let unit = u64::from(other.mem_unit);
        assert_eq!(value(&info, "MemTotal"), Some(other.totalram * unit));
        assert_eq!(value(&info, "SwapTotal"), Some(other.totalswap * unit));
        let free = value(&info, "MemFree").unwrap();
        assert!(free.abs_diff(other.freeram * unit) < 1 << 30, "{free}");
        assert!(value(&info, "MemAvailable").unwrap() <= other.totalram * unit);
    }
}
