//! What asking costs, against the bare question to the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bpf::device::{MOST_PROGRAMS, effective};
use gpu_binding::{DeviceAccessSource, KernelDeviceAccess};
use jobledger_testkit::cgroups::{OwnedGroup, cgroup2_mount, skip_without_groups};

use super::{give, gpus, helper, job};

/// In one run: `cargo test --release --test device_helper --
/// --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "helper-cost");
    let groups: Vec<PathBuf> =
        (0..100).map(|n| job(&top, &format!("job_{n}"), &format!("{:08b}", n % 37))).collect();
    let open = |group: &PathBuf| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        rustix::fs::open(group, flags, rustix::fs::Mode::empty()).unwrap()
    };
    let dirs: Vec<OwnedFd> = groups.iter().map(open).collect();
    let dirs: Vec<BorrowedFd<'_>> = dirs.iter().map(AsFd::as_fd).collect();
    let (mut helper, mut kernel) = (helper(), KernelDeviceAccess::default());
    let nodes = gpus(8);
    let median = |rounds: usize, once: &mut dyn FnMut()| {
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let begun = Instant::now();
                once();
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[rounds / 2]
    };
    for count in [1, 100] {
        let dirs = &dirs[..count];
        let bare = median(2000, &mut || {
            for dir in dirs {
                let mut room = [0; MOST_PROGRAMS];
                effective(dir, &mut room).unwrap();
            }
        });
        let direct = median(2000, &mut || drop(kernel.ask(dirs, &nodes).unwrap()));
        let asked = median(2000, &mut || drop(helper.ask(dirs, &nodes).unwrap()));
        eprintln!(
            "{count} cgroups, unchanged: bare questions {bare:?}, from this process {direct:?}, helper {asked:?}"
        );
    }
    // All programs new: under new numbers, and then under new digests.
    for (what, shift) in [("attached anew", 0), ("other programs", 1)] {
        let mut other = 0;
        let mut times: Vec<Duration> = (0..20)
            .map(|_| {
                other += 100 * shift;
                for (n, group) in groups.iter().enumerate() {
                    give(group, &format!("{:016b}", (n + other) % (if shift == 0 { 37 } else { 65_536 })));
                }
                // The kernel frees the old ones on its own time.
                std::thread::sleep(Duration::from_millis(100));
                let begun = Instant::now();
                helper.ask(&dirs, &nodes).unwrap();
                begun.elapsed()
            })
            .collect();
        times.sort();
        eprintln!("100 cgroups, {what}: helper {:?}", times[10]);
    }
}
