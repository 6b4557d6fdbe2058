//! Disks, NFS mounts and Lustre's statistics.

use std::fmt::Write;

use jobledger_exporter::collector::devices::lustre::parse_lustre_stats;
use jobledger_exporter::collector::devices::nfs::{parse_mountinfo, parse_mountstats, unescape};
use jobledger_exporter::collector::devices::disk::{DiskStats, parse_diskstats};
use jobledger_exporter_fuzz::prefixes_are_read;

/// A line as a kernel prints that knows what was parsed.
fn print(disk: &DiskStats<'_>) -> Vec<u8> {
    let mut numbers = String::new();
    for (at, operations) in disk.operations.iter().enumerate() {
        if at == 2 {
            let _ = write!(numbers, " 0 {} {}", disk.busy_millis, disk.queue_millis);
        }
        let Some(operations) = operations else { continue };
        let _ = match operations.sectors {
            Some(sectors) => write!(numbers, " {} 0 {sectors} {}", operations.completed, operations.millis),
            None => write!(numbers, " {} {}", operations.completed, operations.millis),
        };
    }
    let line: [&[u8]; 4] = [b"8 0 ", disk.name, numbers.as_bytes(), b"\n"];
    line.concat()
}

pub fn fuzz(bytes: &[u8]) {
    prefixes_are_read(bytes, |bytes| parse_diskstats(bytes).map(drop));
    if let Ok(disks) = parse_diskstats(bytes) {
        let printed: Vec<u8> = disks.iter().flat_map(print).collect();
        assert_eq!(parse_diskstats(&printed), Ok(disks));
    }
    prefixes_are_read(bytes, |bytes| parse_mountstats(bytes).map(drop));
    if let Ok(mounts) = parse_mountstats(bytes) {
        let devices = bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"device ")).count();
        assert!(mounts.len() <= devices);
        for mount in &mounts {
            assert!(!mount.export.is_empty() && !mount.mountpoint.is_empty());
            assert!(
                mount.known || mount.requests.is_none() && mount.bytes.is_none(),
                "numbers of nobody knows what"
            );
        }
    }
    prefixes_are_read(bytes, |bytes| parse_mountinfo(bytes).map(drop));
    if let Ok(targets) = parse_mountinfo(bytes) {
        assert!(targets.iter().all(|target| !target.export.is_empty() && !target.mountpoint.is_empty()));
    }
    let plain = unescape(bytes);
    assert!(plain.len() <= bytes.len());
    if !bytes.contains(&b'\\') {
        assert_eq!(plain, bytes);
    }
    let escaped: Vec<u8> = plain.iter().flat_map(|byte| format!("\\{byte:03o}").into_bytes()).collect();
    assert_eq!(unescape(&escaped), plain);
    prefixes_are_read(bytes, |bytes| parse_lustre_stats(bytes).map(drop));
    if let Ok(stats) = parse_lustre_stats(bytes) {
        let mut printed = b"snapshot_time 1.2 secs.nsecs\n".to_vec();
        for stat in &stats {
            let sum = stat.sum.map_or(String::new(), |sum| format!(" 1 2 {sum} 3"));
            let samples = format!(" {} samples [", stat.samples);
            let line: [&[u8]; 6] = [stat.name, samples.as_bytes(), stat.unit, b"]", sum.as_bytes(), b"\n"];
            printed.extend(line.concat());
        }
        assert_eq!(parse_lustre_stats(&printed), Ok(stats));
    }
}
