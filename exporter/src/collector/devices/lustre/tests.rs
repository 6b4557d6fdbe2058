use super::*;
use crate::collector::CollectError;
use crate::collector::testing::{Bench, Machine, collect, snapshot_of, value};

/// Lustre 2.12: operations are counted.
const LLITE_2_12: &str = "\
snapshot_time             1608650613.123456789 secs.nsecs
read_bytes                6 samples [bytes] 1 1048576 3145729
write_bytes               4 samples [bytes] 4096 1048576 2101248
ioctl                     5 samples [regs]
open                      9 samples [regs]
close                     8 samples [regs]
mmap                      2 samples [regs]
seek                      7 samples [regs]
readdir                   3 samples [regs]
setattr                   1 samples [regs]
truncate                  2 samples [regs]
getattr                   20 samples [regs]
create                    1 samples [regs]
unlink                    1 samples [regs]
mkdir                     2 samples [regs]
getxattr                  4 samples [regs]
getxattr_hits             3 samples [regs]
inode_permission          500 samples [regs]
";

/// Lustre 2.15: they are timed, and the times of reading and writing have lines of their own.
const LLITE_2_15: &str = "\
snapshot_time             1700000000.000000001 secs.nsecs
start_time                1690000000.000000001 secs.nsecs
elapsed_time              10000000.000000000 secs.nsecs
read_bytes                6 samples [bytes] 1 1048576 3145729 9895604649984
write_bytes               4 samples [bytes] 4096 1048576 2101248 4398046511104
read                      6 samples [usec] 1 900 1200 99999
write                     4 samples [usec] 1 900 1300 99999
open                      9 samples [usec] 1 90 120 999
close                     8 samples [usec] 1 90 120 999
opencount                 9 samples [reqs] 1 1 9 9
getattr                   20 samples [usec] 1 90 120 999
rename                    1 samples [usec] 120 120 120 14400
";

const OSC: &str = "\
snapshot_time             1608650613.123456789 secs.nsecs
req_waittime              30 samples [usec] 30 90000 1500000 9999999
req_active                30 samples [reqs] 1 4 40 60
read_bytes                10 samples [bytes] 4096 1048576 5000000 9
write_bytes               12 samples [bytes] 4096 1048576 7000000 9
ost_setattr               1 samples [usec] 95 95 95 9025
ost_read                  10 samples [usec] 200 90000 900000 9
";

#[test]
fn stats_of_both_layouts() {
    let old = parse_lustre_stats(LLITE_2_12.as_bytes()).unwrap();
    let read = LustreStat { name: b"read_bytes", samples: 6, unit: b"bytes", sum: Some(3_145_729) };
    assert_eq!((old.len(), old[0]), (17, read));
    assert_eq!(old[3], LustreStat { name: b"open", samples: 9, unit: b"regs", sum: None });
    let new = parse_lustre_stats(LLITE_2_15.as_bytes()).unwrap();
    assert_eq!((new.len(), new[0]), (9, read));
    assert_eq!(new[4], LustreStat { name: b"open", samples: 9, unit: b"usec", sum: Some(120) });
    assert_eq!(parse_lustre_stats(b""), Ok(Vec::new()), "all counters are at 0");
}

#[test]
fn malformed_and_torn_are_errors() {
    for bad in [
        &b"open 9 samples [regs]"[..],
        b"open x samples [regs]\n",
        b"open -9 samples [regs]\n",
        b"open 9 samples regs\n",
        b"read_bytes 9 samples [bytes] 1 2 x\n",
        b"read_bytes 9 samples [bytes] 1 2 -3\n",
    ] {
        assert!(parse_lustre_stats(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}

#[test]
fn names_of_directories() {
    let [osc, mdc] = &TARGETS;
    for (layer, directory, expected) in [
        (&FILES, "scratch-ffff8b2c4c5d6000", Some("scratch")),
        (&FILES, "my-fs-ffff8b2c4c5d6000", Some("my-fs")),
        (&FILES, "scratch", None),
        (&FILES, "-ffff", None),
        (osc, "scratch-OST00a1-osc-ffff8b2c4c5d6000", Some("scratch")),
        (osc, "my-OSTfs-OST0001-osc-ffff8b2c4c5d6000", Some("my-OSTfs")),
        (osc, "scratch-OST0001-osc-MDT0000", None),
        (osc, "num_refs", None),
        (mdc, "scratch-MDT0000-mdc-ffff8b2c4c5d6000", Some("scratch")),
        (mdc, "scratch-OST0000-osc-ffff8b2c4c5d6000", None),
    ] {
        assert_eq!(filesystem(layer, directory), expected, "{directory}");
    }
}

const DEBUG: &str = "sys/kernel/debug/lustre";

fn mount(machine: &Machine, root: &str, instance: &str, llite: &str, osc: &str) {
    machine.write(&format!("{root}/llite/scratch-{instance}/stats"), llite);
    for target in ["OST0000-osc", "OST0001-osc", "MDT0000-mdc"] {
        let layer = &target[target.len() - 3..];
        machine.write(&format!("{root}/{layer}/scratch-{target}-{instance}/stats"), osc);
        machine.write(&format!("{root}/{layer}/num_refs"), "4\n");
    }
}

const READ_SERIES: &str = "jobledger_node_lustre_read_bytes_total{filesystem=\"scratch\"}";

#[test]
fn every_number_is_exported_wherever_the_version_has_it() {
    for (root, llite) in [(DEBUG, LLITE_2_12), (DEBUG, LLITE_2_15), ("proc/fs/lustre", LLITE_2_12)] {
        let machine = Machine::new();
        machine
            .write("sys/fs/lustre/jobid_var", "SLURM_JOB_ID\n")
            .write("sys/fs/lustre/jobid_name", "%e.%u\n");
        mount(&machine, root, "ffff8b2c", llite, OSC);
        let snapshot = snapshot_of(machine.roots(), Vec::new());
        let mut bench = Bench::new(&ENTRY, &snapshot);
        assert_eq!(bench.collect(&snapshot).0, Ok(()));
        let llite = llite
            .replace("3145729", "3145779")
            .replace("2101248", "2101348")
            .replace("   20 samples", "   23 samples");
        let osc = OSC
            .replace("5000000", "5000010")
            .replace("7000000", "7000020")
            .replace("30 samples", "35 samples");
        mount(
            &machine,
            root,
            "ffff8b2c",
            &llite.replace("read_bytes                6", "read_bytes   8"),
            &osc.replace("1500000", "2500000"),
        );
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        let scratch = "filesystem=\"scratch\"";
        for (name, labels, expected) in [
            ("read_bytes_total", "", 50.0),
            ("unattributed_read_bytes_total", "", 50.0),
            ("written_bytes_total", "", 100.0),
            ("operations_total", ",operation=\"read\"", 2.0),
            ("operations_total", ",operation=\"getattr\"", 3.0),
            ("operations_total", ",operation=\"rename\"", 0.0),
            ("rpc_read_bytes_total", "", 30.0),
            ("rpc_written_bytes_total", "", 60.0),
            ("rpcs_total", ",service=\"data\"", 10.0),
            ("rpcs_total", ",service=\"metadata\"", 5.0),
            ("rpc_wait_seconds_total", ",service=\"data\"", 2.0),
            ("rpc_wait_seconds_total", ",service=\"metadata\"", 1.0),
        ] {
            let series = format!("jobledger_node_lustre_{name}{{{scratch}{labels}}}");
            assert_eq!(value(&text, &series), Some(expected), "{root} {series} in {text}");
        }
        let jobid = "jobledger_node_lustre_jobid_info{jobid_var=\"SLURM_JOB_ID\",jobid_name=\"%e.%u\"}";
        assert_eq!(value(&text, jobid), Some(1.0), "{text}");
    }
}

#[test]
fn operations_are_sorted_by_what_they_do() {
    let stats = parse_lustre_stats(LLITE_2_12.as_bytes()).unwrap();
    let mut filesystem = FileSystem::default();
    filesystem.add_files(&stats, Member { identity: 1, from_zero: true });
    let section_of_scrape = OPERATION_NAMES.into_iter().zip(filesystem.operations.iter().map(Summed::total));
    let expected = [
        ("read", 6),
        ("write", 4),
        ("open", 9),
        ("close", 8),
        ("getattr", 20),
        ("setattr", 3),
        ("readdir", 3),
        ("create", 3),
        ("remove", 1),
        ("rename", 0),
        ("fsync", 0),
        ("lock", 0),
        ("xattr", 4),
    ];
    assert_eq!(section_of_scrape.collect::<Vec<_>>(), expected);
}

#[test]
fn two_mounts_are_one_file_system_and_the_sum_outlives_them() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    mount(&machine, DEBUG, "aaaa", LLITE_2_12, OSC);
    drop(bench.collect(&snapshot));
    mount(&machine, DEBUG, "bbbb", LLITE_2_12, OSC);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(
        value(&text, READ_SERIES),
        Some(3_145_729.0),
        "it was mounted since the reading before: {text}"
    );
    let rpcs = "jobledger_node_lustre_rpcs_total{filesystem=\"scratch\",service=\"data\"}";
    assert_eq!(value(&text, rpcs), Some(60.0), "{text}");
    machine.remove(&format!("{DEBUG}/llite/scratch-aaaa"));
    mount(&machine, DEBUG, "bbbb", &LLITE_2_12.replace("3145729", "3145730"), OSC);
    let text = bench.collect(&snapshot).1;
    assert_eq!(value(&text, READ_SERIES), Some(3_145_730.0), "{text}");
    machine.remove(&format!("{DEBUG}/llite/scratch-bbbb"));
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(value(&text, READ_SERIES), None, "{text}");
    assert_eq!(outcome.unwrap_err().to_string(), "unsupported: needs a mounted Lustre file system");
}

#[test]
fn cleared_statistics_are_counted_as_gone_back_and_go_on_from_there() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let users = std::sync::Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
    let mut built = (ENTRY.build)(&crate::collector::BuildContext::new(snapshot.roots.clone(), users));
    let mut run = |llite: &str| {
        mount(&machine, DEBUG, "aaaa", llite, OSC);
        let mut section = Section::default();
        built.collector.collect(&snapshot, &mut section).unwrap();
        let restarts = section.restarts();
        let mut text = String::new();
        exposition::encode_openmetrics(&[std::sync::Arc::new(section)], &mut text).unwrap();
        (restarts, value(&text, READ_SERIES))
    };
    assert_eq!(run(LLITE_2_12), (0, Some(0.0)));
    assert_eq!(run("snapshot_time 1.1 secs.nsecs\n"), (12, Some(0.0)), "bytes and ten kinds of operations");
    assert_eq!(run("read_bytes 1 samples [bytes] 70 70 70\n"), (0, Some(70.0)));
}

#[test]
fn a_mount_that_fails_for_a_while_does_not_count_its_past() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    mount(&machine, DEBUG, "aaaa", LLITE_2_12, OSC);
    drop(bench.collect(&snapshot));
    mount(&machine, DEBUG, "aaaa", "read_bytes x samples [bytes]\n", OSC);
    let (outcome, text) = bench.collect(&snapshot);
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, SourceError::Partial { .. }) && error.to_string().contains("malformed"),
        "{error}"
    );
    assert_eq!(value(&text, READ_SERIES), None, "no stale value: {text}");
    mount(&machine, DEBUG, "aaaa", &LLITE_2_12.replace("3145729", "3145739"), OSC);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!((outcome, value(&text, READ_SERIES)), (Ok(()), Some(10.0)), "{text}");
}

#[test]
fn a_node_without_lustre_is_unsupported_though_debugfs_is_denied_and_one_with_it_names_the_fix() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let absent = "unsupported: needs a mounted Lustre file system";
    assert_eq!(collect(&ENTRY, &snapshot).0.unwrap_err().to_string(), absent);
    // A link to itself fails with ELOOP for whoever asks: root is denied nothing.
    std::fs::create_dir_all(machine.path.join("sys/kernel/debug")).unwrap();
    std::os::unix::fs::symlink("lustre", machine.path.join(DEBUG)).unwrap();
    assert_eq!(collect(&ENTRY, &snapshot).0.unwrap_err().to_string(), absent);
    machine.write("sys/fs/lustre/jobid_var", "disable\n");
    let (outcome, text) = collect(&ENTRY, &snapshot);
    assert_eq!(outcome.unwrap_err().reason(), "io");
    assert!(text.contains("jobid_var=\"disable\""), "{text}");
    assert!(
        CollectError::from(failed(ReadError::Denied))
            .to_string()
            .contains("mount -o remount,mode=755 /sys/kernel/debug")
    );
}

#[test]
fn after_a_restart_sums_go_on_with_what_the_kernel_counted_meanwhile() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let users = || std::sync::Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
    let context = || crate::collector::BuildContext::new(snapshot.roots.clone(), users());
    let mut bench = Bench::with_context(&ENTRY, &context());
    mount(&machine, DEBUG, "aaaa", LLITE_2_12, OSC);
    drop(bench.collect(&snapshot));
    mount(&machine, DEBUG, "aaaa", &LLITE_2_12.replace("3145729", "3145739"), OSC);
    drop(bench.collect(&snapshot));
    let mut bench = bench.restarted(&ENTRY, &context(), &[]);
    // The mount has gone on, and another one was made since.
    mount(
        &machine,
        DEBUG,
        "aaaa",
        &LLITE_2_12.replace("3145729", "3145759"),
        &OSC.replace("5000000", "5000007"),
    );
    mount(&machine, DEBUG, "bbbb", &LLITE_2_12.replace("3145729", "500"), OSC);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!((outcome, value(&text, READ_SERIES)), (Ok(()), Some(530.0)), "{text}");
    let read = "jobledger_node_lustre_rpc_read_bytes_total{filesystem=\"scratch\"}";
    assert_eq!(value(&text, read), Some(21.0 + 15_000_000.0), "of three targets each: {text}");
}
