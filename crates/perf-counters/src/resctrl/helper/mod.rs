//! A process that alone changes resctrl's groups.
//!
//! Only root may move others' tasks into a group, and no capability stands for it (fs/resctrl/rdtgroup.c,
//! `rdtgroup_task_write_permission`). The exporter shall not be root, so its helper is: without any capability, with files below
//! `/sys/fs/resctrl` alone (Landlock), and with some twenty system calls. It makes and removes monitoring groups with our prefix,
//! puts tasks into them and assigns counters to them, and nothing else. Reading is the exporter's own matter.

pub mod protocol;
mod serve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kernel_files::ReadError;
use landlock::AccessFs;
use parking_lot::Mutex;
use privileges::helper::{Confinement, Connection, Dialogue, Kind, Silence, StartError, small_filter};
use privileges::{TakenOnce, User};
use protocol::{Act, Answer, Order};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::tree::{Lock, Mounted, Tree};

/// How long an order may take: the kernel holds one mutex over all groups.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where an exporter that is not root, but may change users, has its helper become root.
const CHANGE_USERS: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Started by root, or by who has CAP_SETUID and CAP_SETGID; it keeps no capability.
pub const KIND: Kind = Kind {
    word: c"resctrl-helper",
    name: "resctrl helper",
    handed: CHANGE_USERS,
    kept: CapabilitySet::empty(),
    required: CapabilitySet::empty(),
};

/// Whether this process may start the helper.
pub fn may_start() -> bool {
    privileges::holds(CHANGE_USERS)
}

/// Starts the helper for the file system that is mounted at `root`. To be called before privileges are dropped and before any
/// thread is started.
pub fn start(root: PathBuf) -> Result<Helped, StartError> {
    start_from(Path::new("/proc/self/exe"), root)
}

/// As [`start`], of a given binary.
pub fn start_from(binary: &Path, root: PathBuf) -> Result<Helped, StartError> {
    let connection = Connection::start(binary, &KIND, Some(root.clone().into()), protocol::LONGEST)?;
    let helper = Mutex::new(Helper(Dialogue::new(connection)));
    Ok(Helped { mounted: Mounted::at(root), helper })
}

/// The whole run of the process, which has its socket as standard input. Called before anything else is done in it.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let root = arguments.into_iter().nth(2).map(PathBuf::from).unwrap_or_default();
    let access = AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::MakeDir | AccessFs::RemoveDir;
    let confinement = Confinement {
        descriptors: 2,
        writes: true,
        tree: Some((root.clone(), access)),
        system_calls: || {
            let calls = [
                libc::SYS_recvfrom,
                libc::SYS_openat,
                libc::SYS_write,
                libc::SYS_mkdirat,
                libc::SYS_unlinkat,
            ];
            small_filter(&calls, Vec::new())
        },
    };
    let uid_0 = User { name: None, uid: 0, gid: 0, groups: Vec::new() };
    KIND.run(Some(uid_0), confinement, |socket| serve::serve(socket, &Mounted::at(root)))
}

#[derive(Debug)]
struct Helper(Dialogue);

impl Helper {
    fn order(&mut self, act: Act, group: &str) -> Result<(), Errno> {
        let write = |number| {
            let order = Order { number, act, group: group.to_owned() };
            order.write().ok_or(Silence::Failed(Errno::INVAL))
        };
        let parse = |answer: &[u8]| Answer::parse(answer).map(|answer| answer.outcome);
        match self.0.ask(write, &[], Instant::now() + PATIENCE, parse) {
            Ok(outcome) => outcome,
            Err(Silence::Late) => Err(Errno::TIMEDOUT),
            Err(Silence::Failed(errno)) => Err(errno),
            Err(Silence::Ended) => {
                if self.0.is_news() {
                    tracing::warn!(
                        "the resctrl helper ended: jobs are not monitored any more until a restart"
                    );
                }
                Err(Errno::PIPE)
            }
        }
    }
}

/// A mounted resctrl, changed by the helper.
#[derive(Debug)]
pub struct Helped {
    mounted: Mounted,
    helper: Mutex<Helper>,
}

/// The helper between its start and the collector that uses it.
pub type HelperSlot = TakenOnce<Helped>;

impl Helped {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.helper.lock().0.pid()
    }

    /// Whether the kernel had Landlock for it.
    pub fn landlock(&self) -> bool {
        self.helper.lock().0.landlock()
    }
}

impl Tree for Helped {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        self.mounted.read(path)
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, ReadError> {
        self.mounted.directories(path)
    }

    fn add_task(&self, group: &str, task: u32) -> Result<(), Errno> {
        self.helper.lock().order(Act::Add(task), group)
    }

    fn make(&self, group: &str) -> Result<(), Errno> {
        self.helper.lock().order(Act::Make, group)
    }

    fn assign(&self, group: &str) -> Result<(), Errno> {
        self.helper.lock().order(Act::Assign, group)
    }

    fn identity(&self, group: &str) -> Option<u64> {
        self.mounted.identity(group)
    }

    fn remove(&self, group: &str) -> Result<(), Errno> {
        self.helper.lock().order(Act::Remove, group)
    }

    fn lock(&self) -> Result<Option<Lock>, Errno> {
        self.mounted.lock()
    }
}
