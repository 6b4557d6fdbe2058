use std::fmt::Write as _;

use super::*;
use crate::collector::CollectError;
use crate::collector::testing::{Bench, Machine, collect, snapshot_of, value};

/// NFS 4.1 on kernel 4.18: without errors, with session operations.
const V4_1: &str = "\
device nfs1:/export/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.7,local_lock=none
\tage:\t700
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0x3ffdf,wtmult=512,dtsize=32768,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x803,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\x20
\tbytes:\t1000 2000 300 400 5000 6000 7 8\x20
\tRPC iostats version: 1.0  p/v: 100003/4 (nfs)
\txprt:\ttcp 880 0 3 0 2 294 294 0 294 0 2 0 0\x20
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0
\t        READ: 50 52 1 9000 5100 1 4000 4500
\t       WRITE: 20 20 0 6200 3000 1 800 900
\t      COMMIT: 5 5 0 600 700 0 50 60
\t        OPEN: 7 7 0 700 800 0 7 8
\t     GETATTR: 30 30 2 300 400 0 90 95
\t    SEQUENCE: 900 900 0 1 1 0 1 1
\t EXCHANGE_ID: 1 1 0 1 1 0 1 1
\t   LAYOUTGET: 3 3 0 1 1 0 1 1
";

/// NFS 3 on a kernel of today, with errors; another server.
const V3: &str = "\
device nas:/vol/apps\\040x mounted on /apps with fstype nfs statvers=1.1
\topts:\tro,vers=3,rsize=65536,proto=rdma,sec=krb5p,mountproto=udp,local_lock=none
\tage:\t99
\tfsc:\t1 2 3
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t1 2 3
\tbytes:\t1 2 3 4 5 6 7 8 9
\tRPC iostats version: 1.1  p/v: 100003/3 (nfs)
\txprt:\trdma 0 1 4 0 1 2 3 4 5 6
\txprt:\trdma 0 1 5 0 1 2 3 4 5 6
\tper-op statistics
\t        NULL: 1 1 0 44 24 5 0 5 0
\t     GETATTR: 9 9 0 90 91 0 3 4 2
\t      LOOKUP: 8 8 0 80 81 0 3 4 6
\tREADDIRPLUS: 2 2 0 20 21 0 3 4 0
\t          23: 1 1 0 1 1 0 1 1 0
";

const LOCAL: &str =
    "device sysfs mounted on /sys with fstype sysfs\nno device mounted on /x with fstype autofs\n";

fn requests(numbers: [u64; 7], errors: Option<u64>) -> Requests {
    let [requests, transmissions, timeouts, sent_bytes, received_bytes, round_trip_millis, millis] = numbers;
    Requests {
        requests,
        transmissions,
        timeouts,
        sent_bytes,
        received_bytes,
        round_trip_millis,
        millis,
        errors,
    }
}

fn at(mount: &NfsMount<'_>, name: &str) -> Requests {
    mount.requests.unwrap()[OPERATIONS.iter().position(|known| *known == name).unwrap()]
}

#[test]
fn a_mount_of_nfs_4() {
    let text = format!("{LOCAL}{V4_1}");
    let mounts = parse_mountstats(text.as_bytes()).unwrap();
    let [mount] = &mounts[..] else { panic!("{mounts:?}") };
    assert_eq!((mount.export, mount.mountpoint), (&b"nfs1:/export/home"[..], &b"/home"[..]));
    assert_eq!((mount.version, mount.transport), (Some(&b"4.1"[..]), Some(&b"tcp"[..])));
    assert_eq!((mount.security, mount.age, mount.connects), (Some(&b"sys"[..]), Some(700), Some(3)));
    let bytes = Bytes {
        read: 1000,
        written: 2000,
        read_direct: 300,
        written_direct: 400,
        read_server: 5000,
        written_server: 6000,
    };
    assert_eq!(mount.bytes, Some(bytes));
    assert_eq!((mount.events.len(), mount.events[24]), (27, 34));
    assert_eq!(at(mount, "read"), requests([50, 52, 1, 9000, 5100, 4000, 4500], None));
    assert_eq!(at(mount, "open"), requests([7, 7, 0, 700, 800, 7, 8], None));
    assert_eq!(
        at(mount, "other"),
        requests([3, 3, 0, 1, 1, 1, 1], None),
        "LAYOUTGET, and nothing of the session"
    );
    assert_eq!(attributed(mount), [Some(5000), Some(6000), Some(50), Some(25), Some(40)]);
}

#[test]
fn a_mount_of_nfs_3() {
    let mounts = parse_mountstats(V3.as_bytes()).unwrap();
    let mount = &mounts[0];
    assert_eq!((mount.export, mount.version), (&b"nas:/vol/apps\\040x"[..], Some(&b"3"[..])));
    assert_eq!((mount.transport, mount.security), (Some(&b"rdma"[..]), Some(&b"krb5p"[..])));
    assert_eq!(mount.connects, Some(9), "over both connections");
    assert_eq!(at(mount, "getattr"), requests([9, 9, 0, 90, 91, 3, 4], Some(2)));
    assert_eq!(at(mount, "readdir").requests, 2);
    assert_eq!(at(mount, "other").requests, 1, "a procedure without a name");
    assert_eq!(attributed(mount)[4], Some(20));
}

#[test]
fn what_is_not_nfs_or_of_another_version_has_no_numbers() {
    let mounts =
        parse_mountstats(b"device a:/b mounted on /c with fstype nfs statvers=2.0\n\tbytes:\tx y\n").unwrap();
    assert!(!mounts[0].known && mounts[0].bytes.is_none());
    assert_eq!(parse_mountstats(LOCAL.as_bytes()), Ok(Vec::new()));
    assert_eq!(parse_mountstats(b"device nfsd mounted on /proc/fs/nfsd with fstype nfsd\n"), Ok(Vec::new()));
    let bare = parse_mountstats(b"device a:/b mounted on /c with fstype nfs statvers=1.1\n").unwrap();
    assert_eq!(attributed(&bare[0]), [None; 5], "absent, not 0");
}

#[test]
fn malformed_and_torn_are_errors() {
    let torn = V4_1.trim_end();
    assert!(parse_mountstats(torn.as_bytes()).is_err());
    for (line, bad) in [
        ("\tage:\t700", "\tage:\t-1"),
        ("\tbytes:\t1000 2000", "\tbytes:\t"),
        ("50 52 1 9000 5100 1 4000 4500", "50 52 1 9000 5100 1 4000"),
        ("50 52 1 9000 5100 1 4000 4500", "50 52 1 9000 5100 1 4000 x"),
        ("\tevents:\t10", "\tevents:\t1.0"),
    ] {
        let text = V4_1.replace(line, bad).replace("\tbytes:\t 300 400 5000 6000 7 8", "\tbytes:\t1 2 3 4 5");
        assert!(parse_mountstats(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn mountinfo_names_the_super_block() {
    let text = "22 27 0:21 / /proc rw,relatime shared:5 master:1 - proc proc rw\n\
                90 27 0:52 / /home rw shared:9 - nfs4 nfs1:/export/home rw,vers=4.1\n\
                91 27 0:53 / /apps ro - nfs nas:/vol/apps\\040x ro,vers=3\n";
    let home = NfsTarget { device: 52, export: b"nfs1:/export/home", mountpoint: b"/home" };
    let apps = NfsTarget { device: 53, export: b"nas:/vol/apps\\040x", mountpoint: b"/apps" };
    assert_eq!(parse_mountinfo(text.as_bytes()), Ok(vec![home, apps]));
    for bad in [
        "90 27 0:52 / /home rw nfs4 a b\n",
        "90 27 052 / /home rw - nfs4 a b\n",
        "90 27 0:52 / /h rw - nfs4 a b",
    ] {
        assert!(parse_mountinfo(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn escaped_paths() {
    assert_eq!(unescape(b"/a\\040b\\134c\\"), b"/a b\\c\\");
    assert_eq!(unescape(b"/a\\999\\777\\04"), b"/a\\999\\777\\04");
}

/// A mount with a number of bytes and operations.
struct Mount<'a>(&'a str, &'a str, u64, u64, u64);

fn put(machine: &Machine, mounts: &[Mount<'_>]) {
    let (mut stats, mut info) = (LOCAL.to_owned(), String::from("22 27 0:21 / /sys rw - sysfs sysfs rw\n"));
    for (id, Mount(export, mountpoint, device, age, n)) in mounts.iter().enumerate() {
        write!(
            stats,
            "device {export} mounted on {mountpoint} with fstype nfs4 statvers=1.1\n\
             \topts:\trw,vers=4.2,proto=tcp,sec=sys\n\tage:\t{age}\n\tevents:\t{n} {n} {n} {n} {n} {n}\n\
             \tbytes:\t{n} 0 0 0 {} {} 0 0\n\
             \tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\txprt:\ttcp 880 0 3 0 2 294 294 0\n\
             \tper-op statistics\n\t  READ: {n} {n} 0 {n} {n} 0 {n} {n} 0\n\t  WRITE: 0 0 0 0 0 0 0 0 0\n",
            n * 10,
            n * 100
        )
        .unwrap();
        writeln!(info, "{} 27 0:{device} / {mountpoint} rw - nfs4 {export} rw,vers=4.2", id + 90).unwrap();
    }
    machine.write("proc/self/mountstats", stats).write("proc/self/mountinfo", info);
}

fn read_bytes(text: &str, export: &str, mountpoint: &str) -> Option<f64> {
    value(
        text,
        &format!("jobledger_node_nfs_read_bytes_total{{export=\"{export}\",mountpoint=\"{mountpoint}\"}}"),
    )
}

#[test]
fn every_number_of_a_mount_is_exported() {
    let machine = Machine::new();
    let info = "90 27 0:52 / /home rw - nfs4 nfs1:/export/home rw\n91 27 0:53 / /apps ro - nfs nas:/vol/apps\\040x ro\n";
    machine.write("proc/self/mountinfo", info).write("proc/self/mountstats", format!("{LOCAL}{V4_1}{V3}"));
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    let later = V4_1.replace("5000 6000 7 8", "5011 6022 7 8").replace("READ: 50 52", "READ: 53 55");
    machine.write("proc/self/mountstats", format!("{LOCAL}{later}{V3}"));
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    let home = "export=\"nfs1:/export/home\",mountpoint=\"/home\"";
    let apps = "export=\"nas:/vol/apps x\",mountpoint=\"/apps\"";
    for (name, place, labels, expected) in [
        ("read_bytes_total", home, "", 11.0),
        ("unattributed_read_bytes_total", home, "", 11.0),
        ("written_bytes_total", home, "", 22.0),
        ("operations_total", home, ",operation=\"read\"", 3.0),
        ("operations_total", home, ",operation=\"write\"", 0.0),
        ("operations_total", home, ",operation=\"metadata\"", 0.0),
        ("requests_total", home, ",operation=\"read\"", 53.0),
        ("requests_total", home, ",operation=\"commit\"", 5.0),
        ("request_round_trip_seconds_total", home, ",operation=\"read\"", 4.0),
        ("request_seconds_total", home, ",operation=\"read\"", 4.5),
        ("retransmissions_total", home, "", 2.0),
        ("timeouts_total", home, "", 3.0),
        ("sent_bytes_total", home, "", 9000.0 + 6200.0 + 600.0 + 700.0 + 300.0 + 1.0),
        ("received_bytes_total", home, "", 5100.0 + 3000.0 + 700.0 + 800.0 + 400.0 + 1.0),
        ("syscall_bytes_total", home, ",direction=\"read\",path=\"cached\"", 1000.0),
        ("syscall_bytes_total", home, ",direction=\"read\",path=\"direct\"", 300.0),
        ("syscall_bytes_total", home, ",direction=\"written\",path=\"cached\"", 2000.0),
        ("syscall_bytes_total", home, ",direction=\"written\",path=\"direct\"", 400.0),
        ("events_total", home, ",event=\"open\"", 14.0),
        ("events_total", home, ",event=\"lookup\"", 15.0),
        ("events_total", home, ",event=\"fsync\"", 25.0),
        ("events_total", home, ",event=\"lock\"", 26.0),
        ("events_total", home, ",event=\"delay\"", 34.0),
        ("connects_total", home, "", 3.0),
        ("info", home, ",version=\"4.1\",transport=\"tcp\",security=\"sys\"", 1.0),
        ("info", apps, ",version=\"3\",transport=\"rdma\",security=\"krb5p\"", 1.0),
        ("request_errors_total", apps, "", 8.0),
        ("requests_total", apps, ",operation=\"lookup\"", 8.0),
    ] {
        let series = format!("jobledger_node_nfs_{name}{{{place}{labels}}}");
        assert_eq!(value(&text, &series), Some(expected), "{series} in {text}");
    }
    assert_eq!(value(&text, "jobledger_node_nfs_filesystems"), Some(2.0));
    assert_eq!(value(&text, "jobledger_node_nfs_filesystems_summed"), Some(0.0));
    assert!(!text.contains(&format!("request_errors_total{{{home}")), "the kernel does not say: {text}");
    assert!(!text.contains(&format!("requests_total{{{home},operation=\"rename\"")), "not used: {text}");
}

#[test]
fn mounts_of_one_super_block_are_exported_once_and_keep_their_name_while_any_is_there() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    put(&machine, &[Mount("s:/h/a", "/h/a", 50, 9000, 100), Mount("s:/h/b", "/h/b", 50, 9000, 100)]);
    drop(bench.collect(&snapshot));
    put(&machine, &[Mount("s:/h/a", "/h/a", 50, 9000, 107), Mount("s:/h/b", "/h/b", 50, 9000, 107)]);
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "s:/h/a", "/h/a"), Some(70.0), "{text}");
    assert!(!text.contains("/h/b"), "{text}");
    put(&machine, &[Mount("s:/h/b", "/h/b", 50, 9000, 109)]);
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "s:/h/a", "/h/a"), Some(90.0), "{text}");
    assert!(!text.contains("/h/b"), "{text}");
}

#[test]
fn what_is_mounted_between_two_readings_counts_from_its_mounting() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    put(&machine, &[]);
    assert_eq!(
        bench.collect(&snapshot).0.unwrap_err().to_string(),
        "unsupported: needs a mounted NFS file system"
    );
    put(&machine, &[Mount("s:/a", "/a", 50, 0, 5), Mount("s:/old", "/old", 51, 9000, 5)]);
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "s:/a", "/a"), Some(50.0), "{text}");
    assert_eq!(read_bytes(&text, "s:/old", "/old"), Some(0.0), "it was mounted elsewhere: {text}");
    // Unmounted, and mounted anew with the same number.
    put(&machine, &[Mount("s:/a", "/a", 50, 0, 7), Mount("s:/old", "/old", 51, 0, 3)]);
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "s:/a", "/a"), Some(70.0), "{text}");
    assert_eq!(read_bytes(&text, "s:/old", "/old"), Some(30.0), "{text}");
    put(&machine, &[Mount("s:/a", "/a", 50, 0, 7)]);
    assert_eq!(
        read_bytes(&bench.collect(&snapshot).1, "s:/old", "/old"),
        None,
        "absent when it is not there"
    );
}

#[test]
fn more_than_are_named_are_exported_together_and_nothing_is_lost() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let paths: Vec<_> = (0..300).map(|n| format!("/home/{n}")).collect();
    let mounts = |bytes: u64, skip: usize| -> Vec<Mount<'_>> {
        paths
            .iter()
            .enumerate()
            .skip(skip)
            .map(|(n, path)| Mount("s:/h", path, 100 + n as u64, 9000, bytes))
            .collect()
    };
    put(&machine, &mounts(10, 0));
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    put(&machine, &mounts(12, 0));
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(text.matches("\njobledger_node_nfs_read_bytes_total{").count(), 65);
    assert_eq!(read_bytes(&text, "other", ""), Some(20.0 * 236.0));
    assert_eq!(value(&text, "jobledger_node_nfs_filesystems_summed"), Some(236.0));
    let other = "jobledger_node_nfs_operations_total{export=\"other\",mountpoint=\"\",operation=\"read\"}";
    assert_eq!(value(&text, other), Some(2.0 * 236.0));
    // Those with a name go: their names are kept for them, the sum does not fall.
    put(&machine, &mounts(13, 100));
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "other", ""), Some(20.0 * 236.0 + 10.0 * 200.0));
    assert_eq!(text.matches("\njobledger_node_nfs_read_bytes_total{").count(), 1);
}

#[test]
fn a_file_beyond_the_cap_is_exported_in_part_and_says_so() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let padding = "x".repeat(CAP / 4);
    let paths = [0, 1, 2, 3, 4, 5].map(|n| format!("/m{n}"));
    let mounts = paths.iter().zip(60..).map(|(path, device)| Mount("s:/m", path, device, 9000, 1));
    put(&machine, &mounts.collect::<Vec<_>>());
    let stats = std::fs::read_to_string(machine.path.join("proc/self/mountstats")).unwrap();
    machine.write("proc/self/mountstats", stats.replace("\topts:", &format!("\tcaps:\t{padding}\n\topts:")));
    let (outcome, text) = collect(&ENTRY, &snapshot);
    let error = outcome.unwrap_err();
    assert!(matches!(error, SourceError::Partial { .. }), "{error}");
    assert!(error.to_string().contains("longer than 8388608 bytes"), "{error}");
    assert_eq!(text.matches("\njobledger_node_nfs_read_bytes_total{").count(), 3, "the fourth is cut");
}

#[test]
fn two_file_systems_by_one_name_are_not_taken_for_one() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let put = |n| put(&machine, &[Mount("s:/a", "/a", 50, 9000, n), Mount("s:/a", "/a", 51, 9000, 2 * n)]);
    put(10);
    drop(bench.collect(&snapshot));
    put(11);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(read_bytes(&text, "s:/a", "/a"), Some(10.0), "{text}");
    assert_eq!(read_bytes(&text, "other", ""), Some(20.0), "{text}");
}

#[test]
fn a_version_that_is_not_known_is_named_and_the_other_mounts_are_served() {
    let machine = Machine::new();
    put(&machine, &[Mount("s:/a", "/a", 50, 9000, 1), Mount("s:/b", "/b", 51, 9000, 1)]);
    let stats = std::fs::read_to_string(machine.path.join("proc/self/mountstats")).unwrap();
    machine.write("proc/self/mountstats", stats.replacen("statvers=1.1", "statvers=7", 1));
    let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
    assert!(outcome.unwrap_err().to_string().contains("NFS statistics of version 1.x"));
    assert!(text.contains("/b\"") && !text.contains("/a\""), "{text}");
}

#[test]
fn faults() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let outcome = collect(&ENTRY, &snapshot).0.unwrap_err();
    assert_eq!(
        outcome.to_string(),
        "unsupported: needs a kernel with mount statistics (/proc/self/mountstats)"
    );
    put(&machine, &[Mount("s:/a", "/a", 50, 9000, 1)]);
    machine.write("proc/self/mountinfo", "torn");
    assert_eq!(collect(&ENTRY, &snapshot).0.unwrap_err().reason(), "malformed");
    machine.remove("proc/self/mountinfo");
    std::fs::create_dir(machine.path.join("proc/self/mountinfo")).unwrap();
    assert_eq!(collect(&ENTRY, &snapshot).0.unwrap_err().reason(), "io", "EISDIR");
    let denied = SourceError::reading(STATS, "")(kernel_files::ReadError::Denied);
    let denied = CollectError::from(denied).to_string();
    assert!(denied.contains("AmbientCapabilities="), "{denied}");
}

#[test]
fn the_live_host_is_read_and_agrees_with_its_mounts() {
    let mut files = NodeFiles::new(&Default::default());
    let (stats, whole) = files.read_long(STATS, CAP).unwrap();
    assert!(whole);
    let mounts = parse_mountstats(stats).unwrap().len();
    let (info, _) = files.read_long(MOUNTS, CAP).unwrap();
    assert_eq!(parse_mountinfo(info).unwrap().len(), mounts);
}

/// The age of a mount, which grows as time goes on. The tests' machine has been up for longer.
struct Age(std::time::Instant);

impl Age {
    fn of_a_minute() -> Self {
        Self(std::time::Instant::now())
    }

    fn now(&self) -> u64 {
        60 + self.0.elapsed().as_secs()
    }
}

#[test]
fn after_a_restart_sums_go_on_with_what_the_kernel_counted_meanwhile() {
    let (machine, age) = (Machine::new(), Age::of_a_minute());
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let users = || std::sync::Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
    let context = || crate::collector::BuildContext::new(snapshot.roots.clone(), users());
    let mut bench = Bench::with_context(&ENTRY, &context());
    put(&machine, &[Mount("s:/a", "/a", 50, age.now(), 5), Mount("s:/b", "/b", 51, age.now(), 5)]);
    drop(bench.collect(&snapshot));
    put(&machine, &[Mount("s:/a", "/a", 50, age.now(), 7), Mount("s:/b", "/b", 51, age.now(), 7)]);
    drop(bench.collect(&snapshot));
    let mut bench = bench.restarted(&ENTRY, &context(), &[]);
    // One went on, one was mounted anew with the same number, one is new.
    put(
        &machine,
        &[
            Mount("s:/a", "/a", 50, age.now(), 11),
            Mount("s:/b", "/b", 51, 0, 3),
            Mount("s:/c", "/c", 52, 0, 2),
        ],
    );
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "s:/a", "/a"), Some(60.0), "{text}");
    assert_eq!(read_bytes(&text, "s:/b", "/b"), Some(50.0), "{text}");
    assert_eq!(read_bytes(&text, "s:/c", "/c"), Some(20.0), "{text}");
}

#[test]
fn the_sum_of_further_mounts_goes_on_over_a_restart() {
    let (machine, age) = (Machine::new(), Age::of_a_minute());
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let users = || std::sync::Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
    let context = || crate::collector::BuildContext::new(snapshot.roots.clone(), users());
    let mut bench = Bench::with_context(&ENTRY, &context());
    let paths: Vec<_> = (0..70).map(|n| format!("/home/{n}")).collect();
    let mounts = |bytes: u64| -> Vec<Mount<'_>> {
        paths.iter().zip(100..).map(|(path, device)| Mount("s:/h", path, device, age.now(), bytes)).collect()
    };
    for bytes in [10, 12] {
        put(&machine, &mounts(bytes));
        assert_eq!(bench.collect(&snapshot).0, Ok(()));
    }
    let mut bench = bench.restarted(&ENTRY, &context(), &[]);
    put(&machine, &mounts(15));
    let text = bench.collect(&snapshot).1;
    assert_eq!(read_bytes(&text, "other", ""), Some(50.0 * 6.0), "{text}");
    assert_eq!(read_bytes(&text, "s:/h", "/home/3"), Some(50.0), "each has the name that it had: {text}");
}
