//! A simulated process, and its files in procfs in the kernel's formats (proc(5)).

use std::fmt::Write;
use std::ops::AddAssign;

/// Bytes and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl AddAssign for Io {
    fn add_assign(&mut self, other: Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u64,
    pub(super) parent: u64,
    pub(super) uid: u32,
    pub(super) name: &'static str,
    /// Arguments, each ended by a NUL.
    pub(super) cmdline: String,
    pub(super) threads: u64,
    /// Since boot, in `USER_HZ`.
    pub(super) start_ticks: u64,
    /// Microseconds of CPU time.
    pub(super) user: u64,
    pub(super) system: u64,
    /// Includes the I/O of children it waited for.
    pub(super) io: Io,
    /// Resident memory, bytes.
    pub(super) resident: u64,
    /// The state that its files show.
    pub(super) published: Option<Shown>,
}

/// The state of a process that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    ticks: [u64; 2],
    io: Io,
    resident: u64,
}

impl Process {
    /// The state that its files should show.
    pub(super) fn shown(&self) -> Shown {
        Shown { ticks: [self.user / 10_000, self.system / 10_000], io: self.io, resident: self.resident }
    }

    /// Name and content of the files that never change.
    pub(super) fn fixed_files(&self, group: &str) -> [(&'static str, String); 3] {
        [
            ("cmdline", self.cmdline.clone()),
            ("comm", format!("{}\n", self.name)),
            ("cgroup", format!("0::/{group}\n")),
        ]
    }

    /// Name and content of the files that differ from `before`.
    pub(super) fn changing_files(&self, before: Option<Shown>) -> Vec<(&'static str, String)> {
        let now = self.shown();
        let mut files = Vec::new();
        let changed = |of: fn(&Shown) -> u64| before.is_none_or(|before| of(&before) != of(&now));
        if changed(|s| s.resident) {
            files.push(("status", self.status()));
        }
        if before != Some(now) {
            files.push(("stat", self.stat()));
        }
        if before.is_none_or(|before| before.io != now.io) {
            files.push(("io", self.io()));
        }
        files
    }

    fn state(&self) -> (char, &'static str) {
        match self.name {
            "slurmstepd" | "sleep" | "systemd" | "slurmd" | "bash" => ('S', "sleeping"),
            _ => ('R', "running"),
        }
    }

    fn stat(&self) -> String {
        let Self { pid, name, parent, threads, start_ticks, .. } = self;
        let [user, system] = self.shown().ticks;
        let (state, _) = self.state();
        let (size, pages) = (self.resident * 3, self.resident / 4096);
        format!(
            "{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 4194560 {faults} 0 2 0 {user} {system} 0 0 20 0 {threads} 0 \
             {start_ticks} {size} {pages} 18446744073709551615 94001298247680 94001298411657 140724502427456 0 0 0 0 4096 \
             16384 0 0 0 17 0 0 0 0 0 0 94001298464064 94001298469888 94002010181632 140724502429386 140724502429416 \
             140724502429416 140724502429667 0\n",
            faults = pages + 200,
        )
    }

    fn status(&self) -> String {
        let Self { pid, name, parent, uid, threads, .. } = self;
        let (letter, word) = self.state();
        let kib = self.resident / 1024;
        let mut text = format!(
            "Name:\t{name}\nUmask:\t0022\nState:\t{letter} ({word})\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t{parent}\n\
             TracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nFDSize:\t64\nGroups:\t{uid} \n\
             NStgid:\t{pid}\nNSpid:\t{pid}\nNSpgid:\t{pid}\nNSsid:\t{pid}\n"
        );
        for (key, value) in [("VmPeak", 3 * kib), ("VmSize", 3 * kib), ("VmHWM", kib), ("VmRSS", kib)] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{key}:\t{value:>8} kB");
        }
        let _ = write!(text, "Threads:\t{threads}\nSigQ:\t0/1030000\nNoNewPrivs:\t0\nSeccomp:\t0\n");
        text
    }

    fn io(&self) -> String {
        let Io { read_bytes, written_bytes, reads, writes } = self.io;
        format!(
            "rchar: {}\nwchar: {}\nsyscr: {}\nsyscw: {}\nread_bytes: {read_bytes}\nwrite_bytes: {written_bytes}\n\
             cancelled_write_bytes: 0\n",
            read_bytes + 190_433,
            written_bytes + 2_213,
            reads + 88,
            writes + 12
        )
    }
}
