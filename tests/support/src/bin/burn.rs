//! A workload whose cost is known.
//!
//!     burn [--cpu-ms=N] [--threads=N] [--memory-mib=N] [--children=N] [--child-cpu-ms=N] [--write-mib=N --file=PATH]
//!          [--sleep-ms=N]
//!
//! It spends the CPU time of `--cpu-ms` (user and system, by getrusage, start of the program included), split over threads;
//! holds memory that it touched; runs children one after the other; writes and syncs a file; sleeps. In this order, and
//! the memory is held to the end.
#![allow(clippy::expect_used, clippy::panic, reason = "a workload that cannot run has failed its test")]
#![allow(clippy::disallowed_methods, reason = "a test program, not the exporter")]

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

#[derive(Default)]
struct Load {
    cpu_ms: u64,
    threads: u64,
    memory_mib: usize,
    children: u32,
    child_cpu_ms: u64,
    write_mib: usize,
    sleep_ms: u64,
    file: Option<String>,
}

fn main() {
    let load = parse(std::env::args().skip(1));
    let memory: Vec<Vec<u8>> = (0..load.memory_mib).map(|_| vec![1; 1 << 20]).collect();
    spin(load.cpu_ms, load.threads.max(1));
    for _ in 0..load.children {
        let child = Command::new("/proc/self/exe").arg(format!("--cpu-ms={}", load.child_cpu_ms)).status();
        assert!(child.expect("child").success());
    }
    if let Some(path) = &load.file {
        let mut file = std::fs::File::create(path).expect("file");
        for _ in 0..load.write_mib {
            file.write_all(&[7; 1 << 20]).expect("write");
        }
        file.sync_all().expect("sync");
    }
    std::thread::sleep(Duration::from_millis(load.sleep_ms));
    drop(std::hint::black_box(memory));
}

fn parse(arguments: impl Iterator<Item = String>) -> Load {
    let mut load = Load::default();
    for argument in arguments {
        let (flag, value) = argument.split_once('=').expect("--flag=value");
        let number = || value.parse::<u64>().expect("a number");
        match flag {
            "--cpu-ms" => load.cpu_ms = number(),
            "--threads" => load.threads = number(),
            "--memory-mib" => load.memory_mib = value.parse().expect("a number"),
            "--children" => load.children = value.parse().expect("a number"),
            "--child-cpu-ms" => load.child_cpu_ms = number(),
            "--write-mib" => load.write_mib = value.parse().expect("a number"),
            "--sleep-ms" => load.sleep_ms = number(),
            "--file" => load.file = Some(value.to_owned()),
            _ => panic!("unknown flag {flag}"),
        }
    }
    load
}

/// Spends CPU time until the process has used so much.
fn spin(cpu_ms: u64, threads: u64) {
    let goal = i64::try_from(cpu_ms * 1000).expect("a moderate time");
    let work = move || {
        let mut x = 0_u64;
        while used_usec() < goal {
            for i in 0..20_000_u64 {
                x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(i));
            }
        }
    };
    let others: Vec<_> = (1..threads).map(|_| std::thread::spawn(work)).collect();
    work();
    for other in others {
        other.join().expect("thread");
    }
}

fn used_usec() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage");
    let (user, system) = (usage.user_time(), usage.system_time());
    (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec()
}
