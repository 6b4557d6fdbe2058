//! The simulated node's home directories on NFS: `/proc/self/mountstats` and `mountinfo` as the kernel prints them.

use std::fmt::Write;

use super::counters::{Counters, Moved};
use super::process::Io;

const EXPORT: &str = "nas1:/export/home";
const OPTIONS: &str =
    "rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys";
/// Bytes of a request and of a reply without data.
const REQUEST: u64 = 168;
const REPLY: u64 = 120;
/// The local file systems come first when a node boots.
const MOUNTED: u64 = 41;

/// Requests of one kind.
struct Row {
    name: &'static str,
    requests: u64,
    sent: u64,
    received: u64,
    /// Microseconds from sending to the reply, and in the queue before.
    round_trip: u64,
    queue: u64,
}

/// The requests by procedure. Each procedure without data gets a fixed tenth part of `nfs_metadata`.
fn rows(counters: &Counters) -> Vec<Row> {
    let Io { read_bytes, written_bytes, reads, writes } = counters.nfs;
    let row = |name, requests: u64, sent, received, round_trip, queue| Row {
        name,
        requests,
        sent: requests * REQUEST + sent,
        received: requests * REPLY + received,
        round_trip,
        queue,
    };
    let all = counters.nfs_metadata;
    let tenths = |first: u64, last: u64| all * last / 10 - all * first / 10;
    let plain = |name, requests| row(name, requests, 0, 0, 400, 20);
    vec![
        plain("NULL", 1),
        row("READ", reads, 0, read_bytes, 2_200, 60),
        row("WRITE", writes, written_bytes, 0, 3_100, 150),
        row("COMMIT", writes / 32, 0, 0, 5_000, 30),
        plain("OPEN", tenths(0, 1)),
        plain("CLOSE", tenths(1, 2)),
        plain("GETATTR", tenths(2, 7)),
        plain("LOOKUP", tenths(7, 8)),
        plain("ACCESS", tenths(8, 9)),
        plain("READDIR", tenths(9, 10)),
    ]
}

/// Bytes of all requests and replies.
pub(super) fn moved(counters: &Counters) -> Moved {
    let mut sum = Moved::default();
    for row in rows(counters) {
        sum += Moved { received: row.received, sent: row.sent };
    }
    sum
}

/// `/proc/self/mountstats` (fs/nfs/super.c, net/sunrpc/stats.c).
pub(super) fn mountstats(counters: &Counters, now: u64) -> String {
    let rows = rows(counters);
    let Io { read_bytes, written_bytes, .. } = counters.nfs;
    let requests: u64 = rows.iter().map(|row| row.requests).sum();
    let metadata = counters.nfs_metadata;
    // Programs find a fifth of what they read in the page cache.
    let asked = read_bytes / 4 * 5;
    let mut text = format!(
        "device /dev/nvme0n1 mounted on / with fstype ext4\n\
         device {EXPORT} mounted on /home with fstype nfs4 statvers=1.1\n\
         \topts:\t{OPTIONS}\n\tage:\t{age}\n\
         \tcaps:\tcaps=0x3ffbffff,wtmult=512,dtsize=1048576,bsize=0,namlen=255\n\
         \tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x60803,acl=0x3,sessions,pnfs=not configured,lease_time=90\n\
         \tsec:\tflavor=1,pseudoflavor=1\n\
         \tevents:\t{metadata} {looks} 0 0 {opens} {lookups} {looks} {written} 0 {pages} 0 {written} 0 0 {opens} 0 0 {opens} 0 0 0 0 0 0 0 0 0 \n\
         \tbytes:\t{asked} {written_bytes} 0 0 {read_bytes} {written_bytes} {pages} {written} \n\
         \tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\
         \txprt:\ttcp 885 1 1 0 2 {requests} {requests} 0 {requests} 0 24 0 {requests}\n\
         \tper-op statistics\n",
        age = (now / 1_000_000).saturating_sub(MOUNTED),
        looks = metadata * 2,
        opens = metadata / 10,
        lookups = metadata * 8 / 10 - metadata * 7 / 10,
        pages = read_bytes / 4096,
        written = written_bytes / 4096,
    );
    for Row { name, requests, sent, received, round_trip, queue } in rows {
        let millis = |usec: u64| requests * usec / 1000;
        let _ = writeln!(
            text,
            "\t{name:>12}: {requests} {requests} 0 {sent} {received} {} {} {} 0",
            millis(queue),
            millis(round_trip),
            millis(round_trip + queue)
        );
    }
    text
}

/// `/proc/self/mountinfo` (Documentation/filesystems/proc.rst).
pub(super) fn mountinfo() -> String {
    format!(
        "22 1 259:0 / / rw,relatime shared:1 - ext4 /dev/nvme0n1 rw\n\
         90 22 0:47 / /home rw,relatime shared:40 - nfs4 {EXPORT} {OPTIONS}\n"
    )
}

#[cfg(test)]
mod tests {
    use jobledger_exporter::collector::devices::nfs::{OPERATIONS, parse_mountinfo, parse_mountstats};

    use super::*;

    #[test]
    fn the_exporters_parser_reads_the_same_numbers() {
        let nfs = Io { read_bytes: 5 << 30, written_bytes: 3 << 30, reads: 5_200, writes: 3_100 };
        let counters = Counters { nfs, nfs_metadata: 77_777, ..Counters::default() };
        let text = mountstats(&counters, 100_000_000);
        let mounts = parse_mountstats(text.as_bytes()).unwrap();
        let [mount] = mounts.as_slice() else { panic!("{mounts:?}") };
        let bytes = mount.bytes.unwrap();
        assert_eq!([bytes.read_server, bytes.written_server], [5 << 30, 3 << 30]);
        assert!(bytes.read > bytes.read_server);
        assert_eq!(mount.age, Some(59));
        let requests = mount.requests.unwrap();
        let of = |name| requests[OPERATIONS.iter().position(|known| *known == name).unwrap()];
        assert_eq!([of("read").requests, of("write").requests], [5_200, 3_100]);
        let plain = ["open", "close", "getattr", "lookup", "access", "readdir"];
        assert_eq!(plain.iter().map(|name| of(name).requests).sum::<u64>(), 77_777);
        assert!(of("read").received_bytes > 5 << 30 && of("write").sent_bytes > 3 << 30);
        let all = requests.iter().map(|r| r.received_bytes).sum::<u64>() + REPLY;
        assert_eq!(moved(&counters).received, all, "the NULL request included");
        let info = mountinfo();
        let targets = parse_mountinfo(info.as_bytes()).unwrap();
        assert_eq!((targets[0].export, targets[0].mountpoint), (mount.export, mount.mountpoint));
        assert_eq!(targets.len(), 1);
    }
}
