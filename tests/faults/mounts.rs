//! File systems of the network, which may hang for hours. Row 14.

use std::collections::BTreeSet;
use std::path::Path;

use jobledger_testkit::machine::Machine;
use jobledger_testkit::strace::{self, Call};

use crate::support::*;

/// Calls that name a file, or ask its file system.
const NAMING: [&str; 14] = [
    "openat",
    "open",
    "statx",
    "newfstatat",
    "stat",
    "lstat",
    "statfs",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getxattr",
    "openat2",
];

/// What the C library reads of its own accord: names of users, time zones, its own parts.
const OF_LIBC: [&str; 5] = ["/etc", "/usr/lib", "/lib", "/usr/share/zoneinfo", "/var/lib/sss"];

/// The node has file systems of NFS, which are measured by files of the kernel. Neither their mount points nor
/// anything else outside the kernel's file systems is named in any call.
#[test]
fn no_file_outside_of_the_kernels_file_systems_is_touched() {
    if !strace::is_there() {
        return;
    }
    let node = Node(Machine::fixture("v2-nfs"));
    let mounted: BTreeSet<String> = node
        .0
        .read("proc/self/mountstats")
        .lines()
        .filter(|line| line.contains("with fstype nfs"))
        .filter_map(|line| Some(line.split(" mounted on ").nth(1)?.split(' ').next()?.to_owned()))
        .collect();
    assert!(!mounted.is_empty(), "a node with NFS");
    let exporter = node.start(&["--jobs.steps", "--jobs.tasks"]);
    let in_kernel = |path: &str| {
        let path = Path::new(path);
        let roots = [node.0.root(), Path::new("/proc"), Path::new("/sys"), Path::new("/dev")];
        roots.into_iter().chain(OF_LIBC.map(Path::new)).any(|root| path.starts_with(root))
    };
    let named = |call: &Call| {
        let quoted = call.arguments.split('"').nth(1).map(str::to_owned);
        let file = call.file().filter(|file| file.starts_with('/'));
        file.or(quoted).filter(|path| path.starts_with('/'))
    };
    let calls = strace::during(
        exporter.pid(),
        || drop(scrape(&exporter)),
        |call| call.opens_content() && call.file().is_some_and(|file| file.ends_with("/mountstats")),
    );
    let touched: BTreeSet<String> =
        calls.iter().filter(|call| NAMING.contains(&&*call.name)).filter_map(named).collect();
    assert!(touched.len() > 50, "{touched:?}");
    let foreign: Vec<_> = touched.iter().filter(|path| !in_kernel(path)).collect();
    assert!(foreign.is_empty(), "{foreign:?}; mounted are {mounted:?}");
    let now = scrape(&exporter);
    assert!(now.named("jobledger_node_nfs_read_bytes_total").next().is_some(), "NFS is measured");
}
