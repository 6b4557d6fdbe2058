//! What counting packets costs: the jobs, per packet, and a scrape, per job.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use jobledger_testkit::cgroups::{Site, attach, cgroup2_mount, make_group};

use crate::config;
use crate::direct::Direct;
use crate::stats::{cpu, median, row};

const PACKETS: u32 = 20_000;
const ROUNDS: usize = 25;

fn flags(site: &Site, more: &[&str]) -> Vec<String> {
    let mut flags = vec![format!("--path.cgroupfs={}", site.cgroupfs().display())];
    flags.extend(["--jobs.metadata-dir=/nonexistent", "--log.level=error"].map(str::to_owned));
    flags.extend(more.iter().map(|&flag| flag.to_owned()));
    flags
}

fn home() -> PathBuf {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    cgroup2_mount().unwrap().join(own)
}

/// A socket belongs to the group in which it was made, wherever its process goes.
fn made_in<T>(group: &Path, make: impl FnOnce() -> T) -> T {
    let home = home();
    attach(group, std::process::id()).unwrap();
    let made = make();
    attach(&home, std::process::id()).unwrap();
    made
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

fn job(site: &Site, id: u32) -> PathBuf {
    let dir = site.job_dir(&format!("job_{id}"), 0);
    let groups = [dir.clone(), dir.join("step_0"), dir.join("step_0/user"), dir.join("step_0/user/task_0")];
    groups.iter().for_each(|group| make_group(group));
    groups.into_iter().next_back().unwrap()
}

/// CPU time to send a datagram of 100 bytes over the loopback device and to receive it, nanoseconds.
fn per_packet(sender: &UdpSocket, receiver: &UdpSocket) -> f64 {
    let to = receiver.local_addr().unwrap();
    let mut bytes = [0; 100];
    let before = cpu();
    for _ in 0..PACKETS {
        sender.send_to(&bytes, to).unwrap();
        receiver.recv(&mut bytes).unwrap();
    }
    (cpu() - before).as_secs_f64() * 1e9 / f64::from(PACKETS)
}

/// The same packets with and without the programs, in turn.
pub(crate) fn packets() {
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    let (sender, receiver) = made_in(&job(&site, 1), || (socket(), socket()));
    println!("\n## Counting packets\n");
    println!("CPU time of a datagram over the loopback device, sent and received, nanoseconds:\n");
    row(&["", "without", "with", "difference"]);
    row(&["---", "---:", "---:", "---:"]);
    for (what, more) in
        [("jobs", &["--collector.network"][..]), ("steps, too", &["--collector.network", "--jobs.steps"])]
    {
        let config = config(&flags(&site, more));
        let (mut without, mut with, mut between) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let bare = per_packet(&sender, &receiver);
            let mut counting = Direct::new(&config);
            counting.scrape();
            let counted = per_packet(&sender, &receiver);
            drop(counting);
            // The kernel takes a link apart on its own time.
            sleep(Duration::from_millis(20));
            without.push(bare);
            with.push(counted);
            between.push(counted - bare);
        }
        let cells = [&mut without, &mut with, &mut between].map(|numbers| format!("{:.0}", median(numbers)));
        row(&[what, &cells[0], &cells[1], &cells[2]]);
    }
}

/// The collector's part in a scrape.
pub(crate) fn scrapes() {
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    println!("\nThe collector in a scrape, every job with an entry in the table, microseconds:\n");
    row(&["jobs", "jobs alone", "steps, too"]);
    row(&["---:", "---:", "---:"]);
    for jobs in crate::SIZES {
        let mut cells = vec![jobs.to_string()];
        let tasks: Vec<PathBuf> = (1..=jobs).map(|id| job(&site, id)).collect();
        for more in [&["--collector.network"][..], &["--collector.network", "--jobs.steps"]] {
            let mut direct = Direct::new(&config(&flags(&site, more)));
            direct.scrape();
            let receiver = socket();
            for task in &tasks {
                let sender = made_in(task, socket);
                sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
            }
            for _ in 0..100 {
                direct.scrape();
            }
            let parts = direct.parts();
            let network = parts.iter().find(|(name, _)| *name == "network").map(|(_, usec)| *usec);
            cells.push(format!("{:.0}", network.unwrap()));
        }
        row(&cells);
    }
}
