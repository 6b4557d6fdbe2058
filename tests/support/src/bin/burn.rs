//! A workload whose cost is known.
//!
//!     burn [--cpu-ms=N] [--threads=N] [--memory-mib=N] [--children=N] [--child-cpu-ms=N] [--write-mib=N --file=PATH]
//!          [--sleep-ms=N] [--instructions=N [--enter=DIR] [--bursts=N --pause-us=N]] [--passes=N [--first=1]]
//!
//! It spends the CPU time of `--cpu-ms` (user and system, by getrusage, start of the program included), split over threads;
//! holds memory that it touched; runs children one after the other; writes and syncs a file; sleeps. In this order, and
//! the memory is held to the end.
//!
//! With `--instructions` it sleeps first, then executes so many in user mode, and does nothing else of the above; `--enter` moves it into a
//! control group before.
//! With `--bursts` it does so as often, and pauses after each. With `--passes` it hands a byte to another one and waits for it as often,
//! through standard output and input; `--first` begins. That one says on standard error how many nanoseconds the passes took, without
//! the first, which waits for the other one to start.
#![allow(unsafe_code, reason = "a loop whose instructions are known is written in them")]
#![allow(clippy::expect_used, clippy::panic, reason = "a workload that cannot run has failed its test")]
#![allow(clippy::disallowed_methods, reason = "a test program, not the exporter")]

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

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
    instructions: u64,
    bursts: u64,
    pause_us: u64,
    passes: u64,
    first: u64,
    enter: Option<String>,
}

fn main() {
    let load = parse(std::env::args().skip(1));
    if load.instructions + load.passes > 0 {
        return execute(&load);
    }
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
            "--instructions" => load.instructions = number(),
            "--bursts" => load.bursts = number(),
            "--pause-us" => load.pause_us = number(),
            "--passes" => load.passes = number(),
            "--first" => load.first = number(),
            "--enter" => load.enter = Some(value.to_owned()),
            _ => panic!("unknown flag {flag}"),
        }
    }
    load
}

fn execute(load: &Load) {
    if let Some(group) = &load.enter {
        // What it did until now is no work of the group's, also for those who look at switches only.
        std::thread::sleep(Duration::from_millis(1));
        std::fs::write(format!("{group}/cgroup.procs"), "0").expect("the control group");
    }
    if load.passes > 0 {
        return pass(load.passes, load.first > 0);
    }
    std::thread::sleep(Duration::from_millis(load.sleep_ms));
    for _ in 0..load.bursts.max(1) {
        turn(load.instructions / 2);
        if load.pause_us > 0 {
            std::thread::sleep(Duration::from_micros(load.pause_us));
        }
    }
}

fn pass(times: u64, first: bool) {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut begun = None;
    for _ in 0..times {
        if first {
            output.write_all(&[0]).and_then(|()| output.flush()).expect("a byte for the other one");
        }
        input.read_exact(&mut [0]).expect("the other one's byte");
        begun.get_or_insert_with(Instant::now);
        if !first {
            output.write_all(&[0]).and_then(|()| output.flush()).expect("a byte for the other one");
        }
    }
    if let Some(begun) = begun.filter(|_| first) {
        write!(std::io::stderr(), "{}", begun.elapsed().as_nanos()).expect("how long it took");
    }
}

/// Executes two instructions as often as is said: a subtraction and a branch.
fn turn(mut times: u64) {
    // SAFETY: the loop counts a register of its own down to 0 and touches no memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("2: sub {0}, 1", "jnz 2b", inout(reg) times, options(nomem, nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) times, options(nomem, nostack));
    }
    assert_eq!(times, 0, "a loop for this architecture");
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
