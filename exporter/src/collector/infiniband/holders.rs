//! Ports that one job holds on a node that several share (`--collector.infiniband.holders`).
//!
//! Reads `class/infiniband_verbs` (which device node stands for which device), `/dev/infiniband`, the descriptors of all
//! processes and the modules of the kernel. Linux 4.11. Needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. Costs a look per
//! scrape, and two after a device was opened or closed, while several jobs are on the node: nine system calls per process
//! and one per descriptor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use attribution::{Holders, Holding, Look};
use kernel_files::parse::{ParseError, integer};
use kernel_files::{Buffer, Dir, ReadError, Roots};
use slurm_jobs::process::{Groups, Place, places};
use slurm_jobs::{Job, LifeId};

use super::super::CollectError;
use super::super::attendance::Attendance;
use super::super::node_counters::{Companion, Held};
use super::FIX;
use super::kernel::{Modules, modules};
use super::listen::Listener;
use super::scan::{Holder, scan};
use super::survey::Device;

/// Drivers of which it is known that verbs of a process go through `/dev/infiniband/uverbsN` alone. On Omni-Path most of MPI
/// does not.
const DRIVERS: [&str; 2] = ["mlx4_core", "mlx5_core"];
/// The driver whose RoCE ports count RDMA alone (drivers/infiniband/hw/mlx5/mad.c: of the vport's counters those of
/// InfiniBand packets). Others count the network device's packets as well.
const ROCE_DRIVER: &str = "mlx5_core";
/// How long a look that could not be made is put off.
const AGAIN: Duration = Duration::from_millis(200);

/// Parses a device's number, `231:192`.
pub fn parse_device_number(bytes: &[u8]) -> Result<u64, ParseError> {
    let mut parts = bytes.trim_ascii().splitn(2, |byte| *byte == b':');
    let mut next = || parts.next().and_then(integer).and_then(|number| u32::try_from(number).ok());
    match (next(), next()) {
        (Some(major), Some(minor)) => Ok(rustix::fs::makedev(major, minor)),
        _ => Err(ParseError::new(1, "not 'major:minor'")),
    }
}

/// What hears of jobs and of openings.
pub(super) struct Lookout {
    listener: Arc<Listener>,
    lives: Mutex<BTreeMap<LifeId, Vec<Place>>>,
}

impl Lookout {
    fn lives(&self) -> MutexGuard<'_, BTreeMap<LifeId, Vec<Place>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.listener.stop();
    }
}

impl Companion for Lookout {
    fn appeared(&self, job: &Job) {
        self.lives().insert(job.life, places(&job.cgroup));
    }

    fn forget(&self, life: LifeId) {
        self.lives().remove(&life);
    }

    fn due(&self) -> Option<Instant> {
        self.listener.due()
    }

    fn called(&self) {
        self.listener.called();
    }

    fn put_off(&self) {
        self.listener.add_due(Some(Instant::now() + AGAIN));
    }
}

/// A device, and when it was looked at last.
#[derive(Debug, Default)]
struct Watched {
    holding: Holding,
    read: Option<Instant>,
    /// Why its ports are nobody's.
    user: Option<String>,
}

/// What looks for holders.
pub(super) struct Seeker {
    roots: Arc<Roots>,
    lookout: Arc<Lookout>,
    attendance: Weak<Attendance>,
    devices: BTreeMap<String, Watched>,
    /// Since when time is counted.
    pub(super) origin: Instant,
}

impl Seeker {
    /// Starts to listen.
    pub(super) fn start(roots: &Arc<Roots>, attendance: &Arc<Attendance>) -> Result<Self, CollectError> {
        const INOTIFY: &str = "inotify (fs.inotify.max_user_instances?)";
        let failed = |errno: i32| CollectError::Io { file: INOTIFY, error: ReadError::Io(errno) };
        let listener = Arc::new(Listener::new().map_err(|errno| failed(errno.raw_os_error()))?);
        let attendance = Arc::downgrade(attendance);
        let rung = attendance.clone();
        listener
            .start(move || ring(&rung))
            .map_err(|error| failed(error.raw_os_error().unwrap_or_default()))?;
        let lookout = Arc::new(Lookout { listener, lives: Mutex::default() });
        Ok(Self {
            roots: roots.clone(),
            lookout,
            attendance,
            devices: BTreeMap::new(),
            origin: Instant::now(),
        })
    }

    /// What hears of jobs.
    pub(super) fn companion(&self) -> Arc<dyn Companion> {
        self.lookout.clone()
    }

    /// Says of each device which job held it since the reading before, after those of this one were made, which began at
    /// `read`. Where jobs do not share the node nothing needs to be looked at.
    pub(super) fn seek(
        &mut self,
        devices: &[Device],
        shared: bool,
        read: Instant,
        buffer: &mut Buffer,
    ) -> Result<BTreeMap<String, Held>, CollectError> {
        self.lookout.listener.called();
        if !shared && !self.devices.values().any(|watched| watched.holding.is_certain()) {
            self.unseen();
            return Ok(BTreeMap::new());
        }
        let outcome = self.look(devices, read, buffer);
        if outcome.is_err() {
            self.unseen();
        }
        outcome
    }

    /// A reading without a look.
    fn unseen(&mut self) {
        self.devices.values_mut().for_each(|watched| watched.holding.unseen());
    }

    fn look(
        &mut self,
        devices: &[Device],
        read: Instant,
        buffer: &mut Buffer,
    ) -> Result<BTreeMap<String, Held>, CollectError> {
        let failed = |error| CollectError::reading("/sys", "", FIX)(error);
        let sys = Dir::open(&self.roots.sys("")).map_err(failed)?;
        let numbers = numbers(&sys, buffer)?;
        let known: Vec<u64> = numbers.iter().map(|(_, number)| *number).collect();
        self.lookout.listener.follow(&self.roots, &known)?;
        let modules = modules(&sys, buffer)?;
        let mut wanted = Vec::new();
        for device in devices {
            let Some((_, number)) = numbers.iter().find(|(name, _)| *name == device.name) else { continue };
            let user = if self.lookout.listener.follows(*number) {
                device.user(&sys, &modules, buffer)
            } else {
                Some("a device node that is not in /dev/infiniband".to_owned())
            };
            let watched = self.devices.entry(device.name.clone()).or_default();
            if watched.user != user {
                let why = user.as_deref().unwrap_or_default();
                tracing::info!(device = device.name, used_by = why, "whether a job can hold its ports");
                watched.user = user;
            }
            if watched.user.is_none() {
                wanted.push((device.name.clone(), *number));
            }
        }
        self.devices.retain(|name, _| devices.iter().any(|device| device.name == *name));
        let numbers: Vec<u64> = wanted.iter().map(|(_, number)| *number).collect();
        let found = if numbers.is_empty() { Vec::new() } else { scan(&self.roots, &numbers, buffer)? };
        let mut owners = Owners::new(&self.roots, &self.lookout);
        let mut held = BTreeMap::new();
        let mut due = None;
        for (name, watched) in &mut self.devices {
            let Some((_, number)) = wanted.iter().find(|(wanted, _)| wanted == name) else {
                watched.holding.unseen();
                continue;
            };
            let holders = owners.of(&found, *number)?;
            let heard = self.lookout.listener.take(*number);
            let look = Look { read, over: Instant::now(), holders, heard };
            let life = watched.holding.look(&look);
            let since = watched.read.replace(read);
            if let (Some(life), Some(since)) = (life, since)
                && self.lookout.lives().contains_key(&life)
            {
                held.insert(name.clone(), Held { life, since });
            }
            due = [due, watched.holding.settles()].into_iter().flatten().min();
        }
        self.lookout.listener.add_due(due);
        ring(&self.attendance);
        Ok(held)
    }
}

/// Has it looked at when a look is due.
fn ring(attendance: &Weak<Attendance>) {
    if let Some(attendance) = attendance.upgrade() {
        attendance.look();
    }
}

/// Devices by name and the numbers of their nodes.
fn numbers(sys: &Dir, buffer: &mut Buffer) -> Result<Vec<(String, u64)>, CollectError> {
    const CLASS: &str = "/sys/class/infiniband_verbs";
    let failed = |error| CollectError::reading(CLASS, "ib_uverbs", FIX)(error);
    let mut numbers = Vec::new();
    for entry in sys.open_link("class/infiniband_verbs").and_then(|dir| dir.list()).map_err(failed)? {
        let at = format!("class/infiniband_verbs/{}", entry.name);
        // The class has a file `abi_version` beside its devices.
        let Ok(name) = sys.read_record(&format!("{at}/ibdev"), buffer) else { continue };
        let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
        let number = sys.read_record(&format!("{at}/dev"), buffer).map_err(failed)?;
        numbers.push((name, parse_device_number(number).map_err(CollectError::parsing(CLASS))?));
    }
    Ok(numbers)
}

impl Device {
    /// Why what its ports count is not only what processes move, if it is not.
    fn user(&self, sys: &Dir, modules: &Modules, buffer: &mut Buffer) -> Option<String> {
        let roce = self.ports.iter().filter(|port| port.link_layer == "Ethernet").count();
        let infiniband = self.ports.iter().filter(|port| port.link_layer == "InfiniBand").count();
        // Ports beyond the first of a RoCE device may be those of virtual machines (representors).
        let counts = DRIVERS.contains(&self.driver.as_str())
            && roce + infiniband == self.ports.len()
            && (roce == 0 || (self.driver == ROCE_DRIVER && self.ports.len() == 1));
        if !counts {
            return Some("a driver that counts more than verbs of processes".to_owned());
        }
        // What virtual machines move may be in the port's counters.
        let device = format!("class/infiniband/{}/device", self.name);
        match sys.read_record(&format!("{device}/sriov_numvfs"), buffer) {
            Ok(b"0\n") | Err(ReadError::Gone) if !sys.has(&format!("{device}/physfn")) => {}
            _ => return Some("virtual functions".to_owned()),
        }
        modules.user_of(sys, &self.name, infiniband, buffer)
    }
}

/// Finds the job of a process by the directories of its cgroup.
struct Owners<'a> {
    lookout: &'a Lookout,
    groups: Groups,
}

impl<'a> Owners<'a> {
    fn new(roots: &Roots, lookout: &'a Lookout) -> Self {
        Self { lookout, groups: Groups::open(roots) }
    }

    fn of(&mut self, found: &[Holder], number: u64) -> Result<Holders, CollectError> {
        let mut holders = Holders::Nobody;
        for holder in found.iter().filter(|holder| holder.number == number) {
            // Who opens a node that is not listened to would not be heard.
            let heard = self.lookout.listener.hears(number, holder.identity);
            let life = match holder.cgroup.as_deref().filter(|_| heard) {
                Some(cgroup) => self.life(cgroup)?,
                None => None,
            };
            holders = match (holders, life) {
                (Holders::Nobody, Some(life)) => Holders::One(life),
                (Holders::One(one), Some(life)) if one == life => Holders::One(one),
                _ => return Ok(Holders::Others),
            };
        }
        Ok(holders)
    }

    fn life(&self, cgroup: &[u8]) -> Result<Option<LifeId>, CollectError> {
        let found = self.groups.find(cgroup, |place| {
            let lives = self.lookout.lives();
            lives.iter().find(|(_, dirs)| dirs.contains(&place)).map(|(life, _)| *life)
        });
        Ok(found?)
    }
}

#[cfg(test)]
mod tests;
