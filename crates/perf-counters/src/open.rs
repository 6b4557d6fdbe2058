//! Opening a group of events on a CPU and reading it (perf_event_open(2)), behind traits so that most tests need no
//! kernel.
//!
//! Events of a cgroup are of one CPU each (`EINVAL` for all at once) and count whatever runs there in the cgroup or below
//! it, in user mode and in the kernel: CPU time counts both, too, and a switch of context is nothing but kernel. A
//! group is read in one call, which interrupts its CPU once while it counts, however many events it has.

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use kernel_files::ReadError;
use kernel_files::parse::fields;
use perf_event::events::Raw;
use perf_event::{Builder, Counter, ReadFormat};
use perf_events::Attr;
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};

use super::Group;

/// The most events of a group: more counters than any CPU has.
const MOST_EVENTS: usize = 32;
const WORD: usize = size_of::<u64>();

/// Whose work is counted.
#[derive(Debug, Clone, Copy)]
pub enum On<'a> {
    /// Of the cgroup with this directory, and what is below it.
    Cgroup(&'a File),
    /// Of everybody on the CPU.
    Everybody,
}

/// Why a group was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenError {
    /// EACCES, EPERM.
    Denied,
    /// ENOENT, EOPNOTSUPP, ENOSYS: no PMU counts this event, or the cgroup is gone or of a hierarchy without perf.
    Unsupported,
    /// EINVAL: the group can never be counted at once, or the event's encoding is wrong.
    Unfit,
    /// ENODEV, ENXIO: the CPU is not online.
    Offline,
    /// EMFILE, ENFILE.
    Descriptors,
    /// Any other errno.
    Io(i32),
}

impl OpenError {
    fn of(error: &std::io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied,
            Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NOSYS) => Self::Unsupported,
            Some(Errno::INVAL) => Self::Unfit,
            Some(Errno::NODEV | Errno::NXIO) => Self::Offline,
            Some(Errno::MFILE | Errno::NFILE) => Self::Descriptors,
            Some(other) => Self::Io(other.raw_os_error()),
            // The attribute has fields that this kernel does not know.
            None => Self::Unsupported,
        }
    }

    /// In words, one line without a full stop.
    pub fn says(self) -> String {
        match self {
            Self::Denied => "the kernel refuses it (EACCES)".to_owned(),
            Self::Unsupported => "no PMU of this machine counts it (ENOENT)".to_owned(),
            Self::Unfit => "it does not fit this machine's counters (EINVAL)".to_owned(),
            Self::Offline => "the CPU is offline (ENODEV)".to_owned(),
            Self::Descriptors => "no descriptors are left (EMFILE)".to_owned(),
            Self::Io(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
        }
    }
}

/// What a group of counters says: since it was opened, and of the same moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// How long it was to be counted, nanoseconds: of a cgroup, the time in which its threads ran on this CPU.
    pub enabled: u64,
    /// How long of that it had counters, nanoseconds.
    pub running: u64,
    /// By event.
    pub counts: Vec<u64>,
}

/// Reads what the kernel answers for `PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING`: the number of events, both
/// times, and each count. `false` when it is not that of `events` events.
pub fn parse_group(bytes: &[u8], events: usize, into: &mut Reading) -> bool {
    let mut words = bytes.chunks_exact(WORD).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
    let head = (words.next(), words.next(), words.next());
    let (Some(number), Some(enabled), Some(running)) = head else { return false };
    into.enabled = enabled;
    into.running = running;
    into.counts.clear();
    into.counts.extend(words.take(events));
    bytes.len() == (3 + events) * WORD && usize::try_from(number) == Ok(events)
}

/// Whether perf events can be of cgroups of the unified hierarchy: not where `/proc/cgroups` has `perf_event` in a hierarchy of v1
/// (kernel/cgroup/cgroup-v1.c, `proc_cgroupstats_show`; kernel/events/core.c, `perf_cgroup_connect`).
pub fn parse_unified_perf(bytes: &[u8]) -> bool {
    let of_v1 = bytes.split(|b| *b == b'\n').any(|line| {
        let mut words = fields(line);
        words.next() == Some(b"perf_event") && words.next().is_some_and(|hierarchy| hierarchy != b"0")
    });
    !of_v1
}

/// A group that counts.
pub trait Counters: Send {
    /// Reads it. `Gone` when its CPU went offline: it counts no more.
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError>;

    /// Has it count no more; what it counted can still be read. That is one call a group, where closing is one an event.
    fn stop(&mut self) {}
}

/// Opens groups.
pub trait Open: Send + Sync {
    /// Opens a group on a CPU; it counts from now on.
    fn open(&self, on: On<'_>, cpu: u32, group: &Group) -> Result<Box<dyn Counters>, OpenError>;
}

/// The kernel's own.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

/// The leader and the members behind it: the order of the counts.
struct Opened(Vec<OwnedFd>);

#[expect(unsafe_code, reason = "the library gives its descriptor up as a number only")]
fn descriptor(counter: Counter) -> OwnedFd {
    // SAFETY: `into_raw_fd` gives up the descriptor that it returns, and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(counter.into_raw_fd()) }
}

fn builder<'a>(attr: Attr, on: On<'a>, cpu: usize) -> Builder<'a> {
    let mut builder = Builder::new(Raw::new(attr.config));
    let attrs = builder.attrs_mut();
    attrs.type_ = attr.kind;
    attrs.__bindgen_anon_3.config1 = attr.config1;
    attrs.__bindgen_anon_4.config2 = attr.config2;
    match on {
        On::Cgroup(directory) => builder.observe_cgroup(directory),
        On::Everybody => builder.any_pid(),
    };
    builder.one_cpu(cpu).exclude_kernel(false).exclude_hv(false);
    // Without the ids that the library's own `read_format` adds.
    let format = ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    builder.attrs_mut().read_format = format.bits();
    builder
}

impl Open for Kernel {
    fn open(&self, on: On<'_>, cpu: u32, group: &Group) -> Result<Box<dyn Counters>, OpenError> {
        let cpu = usize::try_from(cpu).map_err(|_| OpenError::Offline)?;
        let (leader, members) = group.events.split_first().ok_or(OpenError::Unfit)?;
        if group.events.len() > MOST_EVENTS {
            return Err(OpenError::Unfit);
        }
        // The leader starts last, and all of them with it.
        let mut first =
            builder(leader.attr, on, cpu).enabled(false).build().map_err(|error| OpenError::of(&error))?;
        let mut others = Vec::with_capacity(members.len());
        for member in members {
            let member = builder(member.attr, on, cpu).enabled(true).build_with_group(&mut first);
            others.push(descriptor(member.map_err(|error| OpenError::of(&error))?));
        }
        first.enable().map_err(|error| OpenError::of(&error))?;
        Ok(Box::new(Opened(std::iter::once(descriptor(first)).chain(others).collect())))
    }
}

/// Has a leader, and with it its group, off the hardware. With `PERF_IOC_FLAG_GROUP` each member would interrupt its CPU, too.
#[expect(unsafe_code, reason = "perf events are switched by ioctl only")]
fn disable(leader: &OwnedFd) -> Result<(), Errno> {
    const DISABLE: Opcode = opcode::none(b'$', 1);
    // SAFETY: PERF_EVENT_IOC_DISABLE takes flags as a number, here none, and neither reads nor writes memory.
    let disable = unsafe { NoArg::<DISABLE>::new() };
    // SAFETY: as above; another file than an event's would answer ENOTTY.
    unsafe { ioctl(leader, disable) }
}

impl Counters for Opened {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        let leader = self.0.first().ok_or(ReadError::Gone)?;
        let mut bytes = [0_u8; (3 + MOST_EVENTS) * WORD];
        let read = loop {
            match rustix::io::read(leader, &mut bytes) {
                Err(Errno::INTR) => {}
                other => break other.map_err(ReadError::from_errno)?,
            }
        };
        // Nothing at all is the answer of an event in error state (kernel/events/core.c, `__perf_read`).
        if parse_group(bytes.get(..read).unwrap_or_default(), self.0.len(), into) {
            Ok(())
        } else {
            Err(ReadError::Gone)
        }
    }

    fn stop(&mut self) {
        if let Some(leader) = self.0.first() {
            // One that cannot be stopped ends when it is closed.
            let _ = disable(leader);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Quantity};

    fn group(events: &[(Attr, Quantity)]) -> Group {
        let event = |(attr, quantity): &(Attr, Quantity)| Event {
            name: "event".into(),
            quantity: *quantity,
            attr: *attr,
        };
        Group {
            name: "group".into(),
            hardware: false,
            cpus: None,
            events: events.iter().map(event).collect(),
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_groups_answer_is_its_times_and_counts() {
        let mut reading = Reading::default();
        assert!(parse_group(&words(&[2, 100, 50, 7, 9]), 2, &mut reading));
        assert_eq!(reading, Reading { enabled: 100, running: 50, counts: vec![7, 9] });
        for bad in [words(&[]), words(&[2, 100, 50, 7]), words(&[1, 100, 50, 7]), words(&[3, 1, 1, 1, 1, 1])]
        {
            assert!(!parse_group(&bad, 2, &mut reading));
        }
        assert!(!parse_group(&words(&[2, 100, 50, 7, 9])[..39], 2, &mut reading), "torn");
        assert!(!parse_group(&words(&[2, 100, 50, 7, 1, 9, 2]), 2, &mut reading), "with ids");
    }

    /// No hardware PMU in virtual machines, but the kernel's own events are opened and read the same way.
    #[test]
    fn the_kernel_counts_a_group_on_a_cpu() {
        const CPU_CLOCK: Attr = Attr { kind: Attr::SOFTWARE, config: 0, config1: 0, config2: 0 };
        let switches = (Attr::new(Attr::SOFTWARE, 3), Quantity::ContextSwitches);
        let clock = group(&[(CPU_CLOCK, Quantity::Cycles), switches]);
        let mut counters = match Kernel.open(On::Everybody, 0, &clock) {
            Ok(counters) => counters,
            Err(error) => {
                jobledger_testkit::skip("perf-events", format!("{error:?}"));
                return;
            }
        };
        let (mut first, mut second) = (Reading::default(), Reading::default());
        counters.read(&mut first).unwrap();
        let resting = || {
            let rest = std::thread::spawn(|| {
                let mut only = rustix::thread::CpuSet::new();
                only.set(0);
                rustix::thread::sched_setaffinity(None, &only).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            });
            rest.join().unwrap();
        };
        resting();
        counters.read(&mut second).unwrap();
        assert!(second.enabled > first.enabled && second.running == second.enabled, "{first:?} {second:?}");
        assert!(
            second.counts[0] > first.counts[0] && second.counts[1] > first.counts[1],
            "{first:?} {second:?}"
        );
        counters.stop();
        counters.read(&mut first).unwrap();
        resting();
        counters.read(&mut second).unwrap();
        assert!(
            first.enabled > 0 && first == second,
            "the leader and its member stopped: {first:?} {second:?}"
        );
        let fails = |on, cpu, group: &Group| Kernel.open(on, cpu, group).err();
        let nothing = group(&[(Attr::new(u32::MAX, 0), Quantity::Cycles)]);
        assert_eq!(fails(On::Everybody, 0, &nothing), Some(OpenError::Unsupported));
        assert_eq!(fails(On::Everybody, 0, &group(&[])), Some(OpenError::Unfit));
        let no_cgroup = File::open("/").unwrap();
        let on = On::Cgroup(&no_cgroup);
        assert_eq!(fails(on, 0, &clock), Some(OpenError::Io(Errno::BADF.raw_os_error())));
    }

    #[test]
    fn where_perf_events_are_bound_to_v1_the_unified_hierarchy_has_none() {
        let head = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t4\t12\t1\n";
        assert!(parse_unified_perf(format!("{head}perf_event\t0\t85\t1\n").as_bytes()));
        assert!(!parse_unified_perf(format!("{head}perf_event\t9\t85\t1\n").as_bytes()));
        assert!(parse_unified_perf(head.as_bytes()), "a kernel that does not list it");
        assert!(parse_unified_perf(b""));
    }
}
