//! Programs that guard devices, as those write them who attach them, in the kernel; and a process that tries to open devices
//! from inside of a group.

#![allow(unsafe_code, reason = "bpf(2) takes addresses in a structure, for which no safe wrapper exists")]

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::libc;

use crate::scratch::Scratch;

/// An instruction: code, destination, source, offset, constant.
#[must_use]
pub fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> [u8; 8] {
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    let (o, i) = (offset.to_ne_bytes(), constant.to_ne_bytes());
    [code, registers, o[0], o[1], i[0], i[1], i[2], i[3]]
}

/// One device in a program of SLURM's.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Whether the job has it.
    pub allowed: bool,
    /// Of a character device.
    pub major: i32,
    /// Of a character device.
    pub minor: i32,
}

/// As SLURM's cgroup/v2 plugin lays out its program: every device of the node, and all else allowed.
#[must_use]
pub fn slurm(rules: &[Rule]) -> Vec<[u8; 8]> {
    let mut code = vec![
        instruction(0x61, 2, 1, 0, 0),
        instruction(0x54, 2, 0, 0, 0xffff),
        instruction(0x61, 3, 1, 0, 0),
        instruction(0x74, 3, 0, 0, 16),
        instruction(0x61, 4, 1, 4, 0),
        instruction(0x61, 5, 1, 8, 0),
    ];
    for rule in rules {
        code.extend([
            instruction(0x55, 2, 0, 4, 2),
            instruction(0x55, 4, 0, 3, rule.major),
            instruction(0x55, 5, 0, 2, rule.minor),
            instruction(0xb7, 0, 0, 0, rule.allowed.into()),
            instruction(0x95, 0, 0, 0, 0),
        ]);
    }
    code.extend([instruction(0xb7, 0, 0, 0, 1), instruction(0x95, 0, 0, 0, 0)]);
    code
}

const MAP_CREATE: i64 = 0;
const PROGRAM_LOAD: i64 = 5;
const PROGRAM_ATTACH: i64 = 8;
const PROGRAM_QUERY: i64 = 16;
const PROGRAM_TYPE: u32 = 15;
const ATTACH_TYPE: u32 = 6;

/// Programs of groups below may replace it (as SLURM attaches to jobs and steps).
pub const ALLOW_OVERRIDE: u32 = 1;
/// Programs of groups below run beside it (as systemd and container runtimes attach).
pub const ALLOW_MULTI: u32 = 2;

fn bpf(command: i64, attribute: &mut [u64]) -> io::Result<i32> {
    // SAFETY: the attribute outlives the call and its size is passed; the addresses in it are of values that its
    // callers below hold.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), std::mem::size_of_val(attribute))
    };
    i32::try_from(answer).ok().filter(|answer| *answer >= 0).ok_or_else(io::Error::last_os_error)
}

fn pair(low: u32, high: u32) -> u64 {
    let (l, h) = (low.to_ne_bytes(), high.to_ne_bytes());
    u64::from_ne_bytes([l[0], l[1], l[2], l[3], h[0], h[1], h[2], h[3]])
}

fn descriptor(number: i32) -> OwnedFd {
    // SAFETY: the kernel just made it for the caller alone.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn number(of: impl AsFd) -> u32 {
    of.as_fd().as_raw_fd().cast_unsigned()
}

/// Has the kernel verify and load a program; the error has the end of its log. A pending signal interrupts the verifier
/// (EAGAIN, kernel/bpf/verifier.c), so it is asked a few times, as libbpf does.
///
/// # Errors
/// As the kernel's.
///
/// # Panics
/// If there are more than 2³² instructions.
pub fn load(code: &[[u8; 8]]) -> io::Result<OwnedFd> {
    let count = u32::try_from(code.len()).expect("so many");
    let licence = c"GPL";
    let mut log = vec![0_u8; 1 << 16];
    let log_at = log.as_mut_ptr().expose_provenance() as u64;
    let (code_at, licence_at) =
        (code.as_ptr().expose_provenance() as u64, licence.as_ptr().expose_provenance() as u64);
    let name = u64::from_ne_bytes(*b"test_dev");
    let mut attribute = [
        pair(PROGRAM_TYPE, count),
        code_at,
        licence_at,
        pair(1, 1 << 16),
        log_at,
        pair(0, 0),
        name,
        0,
        pair(0, ATTACH_TYPE),
    ];
    let mut loaded = bpf(PROGRAM_LOAD, &mut attribute);
    for _ in 1..5 {
        if loaded.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            loaded = bpf(PROGRAM_LOAD, &mut attribute);
        }
    }
    loaded.map(descriptor).map_err(|error| {
        let text = String::from_utf8_lossy(&log);
        let text = text.trim_end_matches('\0');
        io::Error::new(error.kind(), format!("{error}: {}", &text[text.len().saturating_sub(300)..]))
    })
}

/// Makes an array of one number, for programs that look into one.
///
/// # Errors
/// As the kernel's.
pub fn array() -> io::Result<OwnedFd> {
    // BPF_MAP_TYPE_ARRAY, key of 4 bytes, value of 8, one entry.
    bpf(MAP_CREATE, &mut [pair(2, 4), pair(8, 1), 0]).map(descriptor)
}

/// Attaches a program to a group of the test's own, replacing one that was attached without [`ALLOW_MULTI`]. It goes with
/// the group.
///
/// # Errors
/// As the kernel's.
pub fn attach(group: &Path, program: &OwnedFd, flags: u32) -> io::Result<()> {
    let dir = File::open(group)?;
    let mut attribute = [pair(number(&dir), number(program)), pair(ATTACH_TYPE, flags), 0];
    bpf(PROGRAM_ATTACH, &mut attribute).map(drop)
}

/// The programs attached to a group itself with their flags, and those in effect there.
///
/// # Panics
/// If the kernel does not answer.
#[must_use]
pub fn attached(group: &Path) -> (Vec<u32>, u32, Vec<u32>) {
    let dir = File::open(group).expect("the group");
    let ask = |effective: u32| -> (Vec<u32>, u32) {
        let mut ids = [0_u32; 64];
        let at = ids.as_mut_ptr().expose_provenance() as u64;
        let mut attribute =
            [pair(number(&dir), ATTACH_TYPE), pair(effective, 0), at, pair(64, 0), 0, 0, 0, 0];
        bpf(PROGRAM_QUERY, &mut attribute).expect("BPF_PROG_QUERY");
        let count = usize::try_from(attribute[3] & 0xffff_ffff).expect("few");
        let flags = u32::try_from(attribute[1] >> 32).expect("32 bits");
        (ids.into_iter().take(count).collect(), flags)
    };
    let (own, flags) = ask(0);
    (own, flags, ask(1).0)
}

/// A process in a group that tries to open devices for reading and writing.
#[derive(Debug)]
pub struct Opener {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    nodes: Scratch,
}

/// Answers each path with the errno of opening it, 0 if it could.
const SCRIPT: &str = r"
import os, sys
for path in sys.stdin:
    try:
        os.close(os.open(path.rstrip('\n'), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
        print(0, flush=True)
    except OSError as e:
        print(e.errno, flush=True)
";

impl Opener {
    /// Starts it in a group, whose programs are not there yet.
    ///
    /// # Panics
    /// Without python3, or if the group takes no process.
    #[must_use]
    pub fn start(group: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let (orders, answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut opener =
            Self { child, orders, answers: BufReader::new(answers), nodes: Scratch::new("device-nodes") };
        // It has started: from now on it opens only what it is asked to.
        assert_eq!(opener.open(Path::new("/nonexistent")), libc::ENOENT);
        opener.enter(group);
        opener
    }

    /// Moves it into a group.
    ///
    /// # Panics
    /// If the group does not take it.
    pub fn enter(&self, group: &Path) {
        fs::write(group.join("cgroup.procs"), self.child.id().to_string()).expect("the group takes it");
    }

    fn open(&mut self, path: &Path) -> i32 {
        writeln!(self.orders, "{}", path.display()).expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim().parse().expect("a number")
    }

    /// Whether the kernel lets it open a device. One without a driver fails later and otherwise.
    ///
    /// # Panics
    /// If no node can be made.
    pub fn may_open(&mut self, block: bool, major: u32, minor: u32) -> bool {
        let kind = if block { 'b' } else { 'c' };
        let node: PathBuf = self.nodes.path().join(format!("{kind}{major}:{minor}"));
        if !node.exists() {
            use nix::sys::stat::{Mode, SFlag, makedev, mknod};
            let kind = if block { SFlag::S_IFBLK } else { SFlag::S_IFCHR };
            mknod(&node, kind, Mode::S_IRUSR | Mode::S_IWUSR, makedev(major.into(), minor.into()))
                .expect("mknod");
        }
        self.open(&node) != libc::EPERM
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
