use super::*;
use crate::collector::testing::{Bench, Machine, collect, snapshot_of, value};

/// EL7's kernel, EL8's and one of today.
const COLUMNS_14: &str = "   8       0 sda 100 5 2000 40 200 9 4000 80 0 90 120\n";
const COLUMNS_18: &str = "   8       0 sda 100 5 2000 40 200 9 4000 80 0 90 120 7 0 800 3\n";
const COLUMNS_20: &str = " 259       0 nvme0n1 100 5 2000 40 200 9 4000 80 0 90 120 7 0 800 3 11 6\n";

fn operations(completed: u64, sectors: Option<u64>, millis: u64) -> Option<Operations> {
    Some(Operations { completed, sectors, millis })
}

#[test]
fn lines_of_every_kernel() {
    let stats = parse_diskstats(COLUMNS_20.as_bytes()).unwrap();
    let all = [
        operations(100, Some(2000), 40),
        operations(200, Some(4000), 80),
        operations(7, Some(800), 3),
        operations(11, None, 6),
    ];
    let expected = DiskStats { name: b"nvme0n1", operations: all, busy_millis: 90, queue_millis: 120 };
    assert_eq!(stats, [expected]);
    let older = parse_diskstats(COLUMNS_18.as_bytes()).unwrap();
    assert_eq!(older[0].operations, [all[0], all[1], all[2], None]);
    let oldest = parse_diskstats(COLUMNS_14.as_bytes()).unwrap();
    assert_eq!(oldest[0].operations, [all[0], all[1], None, None]);
    let newer = COLUMNS_20.replace('\n', " 1 2 3\n");
    assert_eq!(parse_diskstats(newer.as_bytes()).unwrap()[0].operations, all, "columns to come");
    assert_eq!(parse_diskstats(b""), Ok(Vec::new()));
}

#[test]
fn malformed_and_torn_are_errors() {
    for bad in [
        &b"\n"[..],
        b"8 0\n",
        b"8 0 sda\n",
        b"8 0 sda 1 2 3 4 5 6 7 8 9 10\n",
        b"8 0 sda 1 2 3 4 5 6 7 8 9 10 -1\n",
        b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11",
    ] {
        assert!(parse_diskstats(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}

fn disk(machine: &Machine, name: &str) {
    machine.write(&format!("sys/block/{name}/hidden"), "0\n");
}

fn write(machine: &Machine, lines: &str) {
    machine.write("proc/diskstats", lines);
}

#[test]
fn whole_disks_alone_with_what_they_moved_since_the_exporter_started() {
    let machine = Machine::new();
    for name in ["sda", "dm-0", "md127", "nvme0n1", "nvme0c0n1", "loop0", "zram0", "cciss!c0d0"] {
        disk(&machine, name);
    }
    machine.write("sys/block/dm-0/dm/name", "vg0-scratch\n");
    machine.write("sys/block/dm-0/slaves/sda", "");
    machine.write("sys/block/nvme0c0n1/hidden", "1\n");
    let lines = |n: u64| {
        let line = |name: &str| {
            format!(
                "8 0 {name} {} 0 {} {} {} 0 {} {} 0 {} {} {n} 0 {n} 0 {n} {n}\n",
                n,
                n * 8,
                n * 2,
                n,
                n * 16,
                n * 3,
                n * 4,
                n * 5
            )
        };
        let names = ["sda", "sda1", "dm-0", "md127", "nvme0n1", "nvme0c0n1", "zram0", "cciss/c0d0"];
        names.map(line).concat() + "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    };
    write(&machine, &lines(1000));
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    write(&machine, &lines(1500));
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    for (series, expected) in [
        ("jobledger_node_disk_read_bytes_total{device=\"sda\"}", 500.0 * 8.0 * 512.0),
        ("jobledger_node_disk_unattributed_read_bytes_total{device=\"sda\"}", 500.0 * 8.0 * 512.0),
        ("jobledger_node_disk_written_bytes_total{device=\"sda\"}", 500.0 * 16.0 * 512.0),
        ("jobledger_node_disk_operations_total{device=\"sda\",operation=\"read\"}", 500.0),
        ("jobledger_node_disk_operations_total{device=\"sda\",operation=\"flush\"}", 500.0),
        ("jobledger_node_disk_operation_seconds_total{device=\"sda\",operation=\"read\"}", 1.0),
        ("jobledger_node_disk_operation_seconds_total{device=\"sda\",operation=\"write\"}", 1.5),
        ("jobledger_node_disk_busy_seconds_total{device=\"sda\"}", 2.0),
        ("jobledger_node_disk_queue_seconds_total{device=\"sda\"}", 2.5),
        ("jobledger_node_disk_discarded_bytes_total{device=\"sda\"}", 1500.0 * 512.0),
        ("jobledger_node_disk_written_bytes_total{device=\"cciss!c0d0\"}", 500.0 * 16.0 * 512.0),
        ("jobledger_node_disk_info{device=\"sda\",kind=\"disk\",name=\"\"}", 1.0),
        ("jobledger_node_disk_info{device=\"dm-0\",kind=\"stacked\",name=\"vg0-scratch\"}", 1.0),
        ("jobledger_node_disk_info{device=\"md127\",kind=\"stacked\",name=\"\"}", 1.0),
        ("jobledger_node_disk_info{device=\"nvme0n1\",kind=\"disk\",name=\"\"}", 1.0),
        ("jobledger_node_disk_info{device=\"nvme0c0n1\",kind=\"path\",name=\"\"}", 1.0),
        ("jobledger_node_disk_info{device=\"zram0\",kind=\"memory\",name=\"\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in {text}");
    }
    assert!(!text.contains("sda1") && !text.contains("loop0"), "{text}");
    write(&machine, &lines(1500).replace("loop0 0 0 0", "loop0 3 0 24"));
    let (_, text) = bench.collect(&snapshot);
    let loop0 = "jobledger_node_disk_read_bytes_total{device=\"loop0\"}";
    assert_eq!(value(&text, loop0), Some(24.0 * 512.0), "the first use of it is counted: {text}");
    assert!(text.contains("device=\"loop0\",kind=\"loop\""), "{text}");
}

#[test]
fn milliseconds_wrap_and_nothing_else_does() {
    let machine = Machine::new();
    disk(&machine, "sda");
    write(&machine, "8 0 sda 9 0 9 4294967000 9 0 9 1 0 4294966296 4294967290\n");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    write(&machine, "8 0 sda 9 0 9 704 9 0 9 1 0 1000 10\n");
    let text = bench.collect(&snapshot).1;
    let spent = "jobledger_node_disk_operation_seconds_total{device=\"sda\",operation=\"read\"}";
    assert_eq!(value(&text, spent), Some(1.0), "{text}");
    assert_eq!(value(&text, "jobledger_node_disk_busy_seconds_total{device=\"sda\"}"), Some(2.0), "{text}");
    assert_eq!(
        value(&text, "jobledger_node_disk_queue_seconds_total{device=\"sda\"}"),
        Some(0.016),
        "{text}"
    );
}

#[test]
fn counters_reset_by_hand_are_no_wrap() {
    let machine = Machine::new();
    disk(&machine, "zram0");
    write(&machine, "8 0 zram0 9 0 72 50 9 0 72 50 0 100 100\n");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    write(&machine, "8 0 zram0 1 0 8 5 0 0 0 0 0 5 5\n");
    drop(bench.collect(&snapshot));
    write(&machine, "8 0 zram0 3 0 24 25 0 0 0 0 0 25 25\n");
    let text = bench.collect(&snapshot).1;
    assert_eq!(
        value(&text, "jobledger_node_disk_busy_seconds_total{device=\"zram0\"}"),
        Some(0.02),
        "{text}"
    );
    assert_eq!(
        value(&text, "jobledger_node_disk_read_bytes_total{device=\"zram0\"}"),
        Some(16.0 * 512.0),
        "{text}"
    );
    assert_eq!(
        value(&text, "jobledger_node_disk_written_bytes_total{device=\"zram0\"}"),
        Some(0.0),
        "{text}"
    );
}

#[test]
fn a_disk_plugged_in_anew_is_another_and_all_that_it_counted_is_since_then() {
    let machine = Machine::new();
    let (sda, sdb) = ("8 0 sda 9 0 80 0 9 0 80 0 0 0 0\n", "8 16 sdb 9 0 80 0 9 0 80 0 0 0 0\n");
    disk(&machine, "sda");
    disk(&machine, "sdb");
    write(&machine, &format!("{sda}{sdb}"));
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    machine.remove("sys/block/sdb");
    write(&machine, sda);
    let text = bench.collect(&snapshot).1;
    assert!(text.contains("sda") && !text.contains("sdb"), "{text}");
    // Keeps the inode from being given again.
    disk(&machine, "sdc");
    disk(&machine, "sdb");
    write(&machine, &format!("{sda}{}", sdb.replace("80", "30")));
    let text = bench.collect(&snapshot).1;
    assert_eq!(
        value(&text, "jobledger_node_disk_read_bytes_total{device=\"sdb\"}"),
        Some(30.0 * 512.0),
        "{text}"
    );
}

#[test]
fn a_node_without_disks_and_one_without_the_file_are_unsupported() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let outcome = collect(&ENTRY, &snapshot).0.unwrap_err();
    assert_eq!(outcome.to_string(), "unsupported: needs a kernel with block devices (/proc/diskstats)");
    write(&machine, "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n");
    disk(&machine, "loop0");
    let outcome = collect(&ENTRY, &snapshot).0.unwrap_err();
    assert_eq!(outcome.to_string(), "unsupported: needs a disk that was ever used");
    write(&machine, "7 0 loop0 0 0 0 0 0 0\n");
    assert_eq!(collect(&ENTRY, &snapshot).0.unwrap_err().reason(), "malformed");
    machine.remove("proc/diskstats");
    std::fs::create_dir(machine.path.join("proc/diskstats")).unwrap();
    assert_eq!(collect(&ENTRY, &snapshot).0.unwrap_err().reason(), "io", "EISDIR");
}

#[test]
fn a_reading_that_fails_loses_nothing_and_counts_no_past() {
    let machine = Machine::new();
    disk(&machine, "sda");
    write(&machine, "8 0 sda 9 0 80 0 9 0 80 0 0 0 0\n");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    write(&machine, "8 0 sda torn");
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome.unwrap_err().reason(), "malformed");
    assert!(!text.contains("sda"), "no stale value: {text}");
    write(&machine, "8 0 sda 9 0 83 0 9 0 80 0 0 0 0\n");
    let text = bench.collect(&snapshot).1;
    let read = "jobledger_node_disk_read_bytes_total{device=\"sda\"}";
    assert_eq!(value(&text, read), Some(3.0 * 512.0), "{text}");
}

#[test]
fn more_disks_than_fit_in_a_page_are_all_read() {
    let machine = Machine::new();
    let names: Vec<_> = (0..300).map(|n| format!("sd{n}x")).collect();
    let line = |name: &String| format!("8 0 {name} 1 0 8 1 1 0 8 1 0 1 1 0 0 0 0 0 0\n");
    names.iter().for_each(|name| disk(&machine, name));
    write(&machine, &names.iter().map(line).collect::<String>());
    let text = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1;
    assert_eq!(text.matches("\njobledger_node_disk_read_bytes_total{").count(), 300);
}

/// The live host's disks, held against `/sys/block/*/stat`, which another function of the kernel prints.
#[test]
fn the_live_host_agrees_with_sysfs() {
    let mut files = NodeFiles::new(&Default::default());
    let stat = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        text.split_whitespace().map(|number| number.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let mut seen = 0;
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let before = stat(&name);
        let bytes = files.read_list("proc/diskstats").unwrap().to_vec();
        let after = stat(&name);
        let stats = parse_diskstats(&bytes).unwrap();
        let found = stats.iter().find(|stats| stats.name == name.replace('!', "/").as_bytes());
        let Some(found) = found else { continue };
        seen += 1;
        let between = |at: usize, number: u64| {
            assert!((before[at]..=after[at]).contains(&number), "{name} {at}: {number} {before:?} {after:?}");
        };
        let [read, write, discard, flush] = found.operations;
        for (at, operations) in [(0, read), (4, write), (11, discard)] {
            let Some(operations) = operations else { continue };
            between(at, operations.completed);
            between(at + 2, operations.sectors.unwrap());
            between(at + 3, operations.millis);
        }
        between(9, found.busy_millis);
        if let Some(flush) = flush {
            between(15, flush.completed);
            between(16, flush.millis);
        }
    }
    let mut snapshot = snapshot_of(Machine::new().roots(), Vec::new());
    snapshot.roots = std::sync::Arc::default();
    let (outcome, text) = collect(&ENTRY, &snapshot);
    if seen == 0 {
        assert_eq!(outcome.unwrap_err().reason(), "unsupported");
    } else {
        assert!(outcome.is_ok() || outcome.is_err_and(|error| error.reason() == "unsupported"), "{text}");
    }
}
