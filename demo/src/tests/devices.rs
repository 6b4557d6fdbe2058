//! The node's counters agree with what its jobs did: energy, memory by socket, and traffic.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jobledger_exporter::collector::devices::disk::parse_diskstats;
use jobledger_exporter::collector::devices::nfs::parse_mountstats;

use super::super::directory::{PrivateDirectory, default_base};
use super::super::group::Group;
use super::super::power::{CORE_WATTS, IDLE_WATTS};
use super::super::profile::Profile;
use super::super::simulation::run_to;
use super::super::tree::Tree;
use super::super::world::{SECOND, World};
use super::{BEGIN, BOOT, walk};

/// Anonymous memory and page cache of a group by NUMA node, bytes.
fn places(group: &Group) -> [[u64; 2]; 2] {
    group.totals.places
}

fn check_places(world: &World) {
    walk(&world.root, "", &mut |path, group| {
        let [[anon, file], [far_anon, far_file]] = places(group);
        let memory = group.totals.memory;
        assert_eq!([anon + far_anon, file + far_file], [memory.anon, memory.file], "{path}");
        for (at, mine) in places(group).into_iter().flatten().enumerate() {
            let below: u64 =
                group.children.iter().map(|c| places(c).into_iter().flatten().nth(at).unwrap()).sum();
            assert!(below <= mine, "{path}");
        }
    });
    for job in &world.jobs {
        let group = world.scope().unwrap().child(&job.directory()).unwrap();
        let [near, far] = places(group);
        if !job.cpus.is_empty() && job.cpus.iter().all(|cpu| *cpu < 24) {
            assert_eq!(far, [0, 0], "memory is on the socket where the job runs");
        }
        if job.cpus.iter().all(|cpu| *cpu >= 24) && !job.cpus.is_empty() {
            assert_eq!(near, [0, 0], "memory is on the socket where the job runs");
        }
    }
}

fn number(path: &Path) -> u64 {
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// Compares the files with the simulation. Returns the milliseconds that each disk was busy.
fn check_files(root: &Path, world: &World) -> Vec<u64> {
    let counters = world.root.totals.counters;
    let text = std::fs::read(root.join("proc/diskstats")).unwrap();
    let disks = parse_diskstats(&text).unwrap();
    for (disk, io) in disks.iter().zip(counters.io) {
        let [reads, writes, ..] = disk.operations.map(Option::unwrap);
        assert_eq!([reads.completed, writes.completed], [io.reads, io.writes]);
        let sectors = [reads, writes].map(|kind| kind.sectors.unwrap() * 512);
        assert_eq!(sectors, [io.read_bytes, io.written_bytes]);
        assert!(disk.queue_millis >= disk.busy_millis, "a busy disk has at least one request in its queue");
    }
    let port = root.join("sys/class/infiniband/mlx5_0/ports/1/counters");
    let words = ["port_rcv_data", "port_xmit_data"].map(|file| number(&port.join(file)));
    assert_eq!(words, [counters.fabric.received / 4, counters.fabric.sent / 4]);
    let [all, uni, multi] = ["port_rcv_packets", "unicast_rcv_packets", "multicast_rcv_packets"]
        .map(|file| number(&port.join(file)));
    assert_eq!(all, uni + multi);
    let text = std::fs::read(root.join("proc/self/mountstats")).unwrap();
    let mounts = parse_mountstats(&text).unwrap();
    let bytes = mounts[0].bytes.unwrap();
    assert_eq!(
        [bytes.read_server, bytes.written_server],
        [counters.nfs.read_bytes, counters.nfs.written_bytes]
    );
    let dev = std::fs::read_to_string(root.join("proc/net/dev")).unwrap();
    let eth: Vec<u64> = dev
        .lines()
        .find_map(|line| line.trim().strip_prefix("eth0:"))
        .map(|fields| fields.split_whitespace().map(|field| field.parse().unwrap()).collect())
        .unwrap();
    assert!(eth[0] > bytes.read_server + counters.network.received, "NFS goes over the network");
    assert!(eth[8] > bytes.written_server + counters.network.sent);
    let [packages, memories] = world.machine.energy();
    for (socket, energy) in [packages, memories].into_iter().flat_map(|e| (0..).zip(e)) {
        let zone = root.join(format!("sys/class/powercap/intel-rapl:{socket}"));
        let zone = if energy == packages[socket] {
            zone
        } else {
            zone.with_file_name(format!("intel-rapl:{socket}:0"))
        };
        let most = number(&zone.join("max_energy_range_uj"));
        assert_eq!(number(&zone.join("energy_uj")), energy % (most + 1));
        let mode = zone.join("energy_uj").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
    }
    walk(&world.root, "", &mut |path, group| {
        let path = root.join("cgroup").join(path.trim_start_matches('/')).join("memory.numa_stat");
        let [[anon, file], [far_anon, far_file]] = places(group);
        let expected = format!("anon N0={anon} N1={far_anon}\nfile N0={file} N1={far_file}\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    });
    disks.iter().map(|disk| disk.busy_millis).collect()
}

/// Checks every second of three quarters of an hour.
#[test]
fn the_nodes_counters_agree_with_its_jobs() {
    let mut world = World::new(11, 1.0, BOOT, BEGIN);
    let directory = PrivateDirectory::make(&default_base()).unwrap();
    let mut tree = Tree::lay_out(directory.path()).unwrap();
    run_to(&mut world, BEGIN + SECOND);
    let mut before = (world.machine.energy(), world.root.totals.counters);
    let mut busy = Vec::new();
    let (mut alone, mut empty, mut shared) = (0, 0, 0);
    for second in 2..=2_700 {
        run_to(&mut world, BEGIN + second * SECOND);
        check_places(&world);
        let now = (world.machine.energy(), world.root.totals.counters);
        let [packages, memories] =
            [0, 1].map(|kind| now.0[kind].iter().sum::<u64>() - before.0[kind].iter().sum::<u64>());
        let used = now.1.user + now.1.system - before.1.user - before.1.system;
        assert_eq!(packages, 2 * IDLE_WATTS * SECOND + CORE_WATTS * used);
        let watts = (packages + memories) / SECOND;
        let there: Vec<_> = world.jobs.iter().filter(|job| job.removal_due.is_none()).collect();
        assert!((97..510).contains(&watts), "{watts}");
        match there.as_slice() {
            [] => empty += 1,
            [one] if one.workload.profile == Profile::Exclusive => {
                alone += 1;
                let settled = world.now > one.started + 2 * SECOND && one.due() > world.now + 2 * SECOND;
                assert!(!settled || watts > 440, "{watts}");
            }
            several => {
                assert!(several.iter().all(|job| job.workload.profile != Profile::Exclusive));
                shared += u64::from(several.len() >= 8);
            }
        }
        before = now;
        if second % 60 == 0 {
            tree.publish(&mut world).unwrap();
            let now = check_files(directory.path(), &world);
            for (now, was) in now.iter().zip(busy) {
                assert!(now - was <= 60_000, "a disk was busy for longer than the time that passed");
            }
            busy = now;
        }
    }
    assert!(alone > 280 && empty > 8 && shared > 1_500, "{alone} {empty} {shared}");
}

/// Steps are short when jobs change often and scrapes are frequent.
#[test]
fn the_length_of_steps_changes_no_number() {
    let used = |piece: u64| {
        let mut world = World::new(5, 1.0, BOOT, BEGIN);
        for n in 0..90 * SECOND / piece {
            world.step(BEGIN + n * piece);
            world.tick();
        }
        let preview = world.jobs.iter().find(|job| job.workload.profile == Profile::Throttled).unwrap();
        let group = world.scope().unwrap().child(&preview.directory()).unwrap();
        let c = world.root.totals.counters;
        let first = World::new(5, 1.0, BOOT, BEGIN).root.totals.counters;
        [
            group.bandwidth.periods,
            group.bandwidth.throttled,
            c.user - first.user,
            c.fabric.received - first.fabric.received,
            c.nfs.read_bytes - first.nfs.read_bytes,
            c.nfs_metadata - first.nfs_metadata,
            c.io[1].read_bytes - first.io[1].read_bytes,
        ]
    };
    let (often, seldom) = (used(SECOND / 50), used(SECOND));
    for (at, (often, seldom)) in often.into_iter().zip(seldom).enumerate() {
        assert!(often.abs_diff(seldom) < seldom / 20 + 2, "{at}: {often} and {seldom}");
        assert!(seldom > 0, "{at}");
    }
}
