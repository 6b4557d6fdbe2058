//! A process of its own that alone holds the capabilities to ask the kernel which devices jobs may open.
//!
//! CAP_SYS_ADMIN is nearly root, and the exporter, which talks to the network, shall not have it. So before it gives its
//! capabilities up it starts itself once more as a helper that keeps two of them and can do nothing but answer one
//! question: for these cgroup directories, which of these devices? Whoever takes the exporter over can ask the helper
//! that, and nothing else. The two hold the ends of one socket; when the exporter ends, however it does, so does the
//! helper.
//!
//! In the helper: no file can be opened (Landlock, and a filter that knows some twenty system calls, bpf(2) with the three
//! commands that look at programs among them), no descriptor is open but the socket and what comes with a question, no
//! capability can come back.

mod client;
mod confine;
pub mod protocol;
mod serve;

use std::path::PathBuf;

pub use client::{Helper, start, start_from};
use gpu_devices::pci;
use kernel_files::{Dir, Roots, SourceError};
use privileges::User;
use privileges::helper::Kind;
use rustix::thread::CapabilitySet;
pub use serve::run;

const TWO: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::NET_ADMIN);

/// Of the kernel it asks CAP_SYS_ADMIN to look at a program by its number (kernel/bpf/syscall.c, `bpf_prog_get_fd_by_id`),
/// and CAP_NET_ADMIN for the numbers of a cgroup's programs before Linux 5.8 and in EL 9.
pub const KIND: Kind = Kind {
    word: c"device-helper",
    name: "device helper",
    handed: TWO,
    kept: TWO,
    required: CapabilitySet::SYS_ADMIN,
};

/// Starts the helper, as `user` if one is given, where there is something to ask it, and says why not otherwise: no v2
/// cgroups, no GPU, or no capability.
pub fn start_where_it_matters(roots: &Roots, user: Option<&User>) -> Result<Helper, SourceError> {
    let v2 = ["cgroup.controllers", "unified/cgroup.controllers"].map(|file| roots.cgroup(file).exists());
    if v2 == [false; 2] {
        return Err(SourceError::Unsupported { needs: "cgroup v2".to_owned() });
    }
    if !has_gpu(roots) {
        return Err(SourceError::Unsupported { needs: "a GPU".to_owned() });
    }
    let denied = |what: String| SourceError::Denied { what };
    if !privileges::holds(CapabilitySet::SYS_ADMIN) {
        return Err(denied("the programs that guard the devices of jobs".to_owned()));
    }
    start(user).map_err(|error| denied(format!("the programs that guard the devices of jobs: {error}")))
}

/// Whether there is a GPU: its node, its driver, or the card itself, for a driver that is loaded later.
fn has_gpu(roots: &Roots) -> bool {
    let named = |path: PathBuf, prefix: &str| {
        let entries = Dir::open(&path).and_then(|dir| dir.list()).unwrap_or_default();
        entries.iter().any(|entry| entry.name.starts_with(prefix))
    };
    named(roots.dev(""), "nvidia")
        || roots.proc("driver/nvidia").exists()
        || named(roots.dev("dri"), "renderD")
        || pci::has_card(roots, &[pci::NVIDIA, pci::AMD, pci::INTEL])
}

#[cfg(test)]
mod tests;
