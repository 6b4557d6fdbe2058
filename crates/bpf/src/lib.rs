//! The kernel's bpf(2), as far as this exporter needs it: no compiler, no library in between.
//!
//! `syscall` is the only place that calls the kernel; `assemble` makes programs out of instructions; `btf` knows where the kernel's
//! structures have their members; `map`, `program` and `cgroup` are the objects; `device` looks at the programs of others that guard devices, and never attaches or
//! detaches one. Each object is a descriptor: it is gone from the kernel when its value is dropped, or
//! when the process ends in whatever way, since nothing is pinned and programs are attached by links (Linux 5.7).
//!
//! ```
//! use bpf::{Assembler, Register};
//!
//! // A program that lets every packet pass.
//! let mut assembler = Assembler::default();
//! assembler.set(Register::R0, 1).exit();
//! assert_eq!(assembler.finish().map(|code| code.len()), Ok(2));
//! ```
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod assemble;
pub mod btf;
pub mod cgroup;
pub mod device;
pub mod map;
pub mod program;
mod syscall;

pub use assemble::{Assembler, Register, Width};
pub use btf::Btf;
pub use cgroup::{Attached, Direction, Link};
pub use map::{HashMap, Kind, PerfEvents, Table};
pub use program::Program;
use rustix::io::Errno;

/// What the kernel refused, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}{}", std::io::Error::from_raw_os_error(.errno.raw_os_error()), .why.as_ref().map(|w| format!(": {w}")).unwrap_or_default())]
pub struct BpfError {
    /// The command.
    pub what: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
    /// The last line of the verifier's log, when a program was refused.
    pub why: Option<String>,
}

impl BpfError {
    fn new(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { what, errno, why: None }
    }
}

/// Name of an object as the kernel keeps it: 15 bytes and a zero (include/uapi/linux/bpf.h, `BPF_OBJ_NAME_LEN`).
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (slot, byte) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *slot = byte;
    }
    bytes
}
