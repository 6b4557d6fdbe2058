//! The kernel's own: perf_event_open(2).
//!
//! Events of a cgroup are of one CPU each (`EINVAL` for all at once) and count whatever runs there in the cgroup or below
//! it, in user mode and in the kernel: CPU time counts both, too, and a context switch is all kernel. What a guest executes is left
//! out: with it, no virtual machine could have the PMU (mediated vPMU, Linux 7). PMUs beside the cores refuse every exclusion
//! (PERF_PMU_CAP_NO_EXCLUDE).
//!
//! A group is read in one call, which interrupts its CPU once while it counts, however many events it has. A group of one event
//! is read in the same format: kernel/events/core.c writes it, and no PMU sees it.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use kernel_files::ReadError;
use perf_event::events::Raw;
use perf_event::{Builder, Counter, ReadFormat};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};

use crate::parse::WORD;
use crate::{Attr, Counters, On, Open, OpenError, Reading, parse_group};

/// The most events of a group: more counters than any CPU has.
const MOST_EVENTS: usize = 32;

/// Opens events with perf_event_open(2).
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

/// The leader and the members behind it: the order of the counts.
struct Opened(Vec<OwnedFd>);

#[expect(unsafe_code, reason = "the library gives its descriptor up as a number only")]
pub(crate) fn descriptor(counter: Counter) -> OwnedFd {
    // SAFETY: `into_raw_fd` gives up the descriptor that it returns, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(counter.into_raw_fd()) }
}

fn builder<'a>(attr: Attr, on: On<'a>, cpu: usize) -> Builder<'a> {
    let mut builder = Builder::new(Raw::new(attr.config).config1(attr.config1).config2(attr.config2));
    builder.attrs_mut().type_ = attr.kind;
    match on {
        On::Cgroup(directory) => builder.observe_cgroup(directory),
        On::Host | On::Everybody => builder.any_pid(),
    };
    let guest = !matches!(on, On::Everybody);
    builder.one_cpu(cpu).exclude_kernel(false).exclude_hv(false).exclude_guest(guest);
    // Without the ids that the library's own `read_format` adds.
    let format = ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    builder.attrs_mut().read_format = format.bits();
    builder
}

/// Opens a group on a CPU, and gives the descriptors of its events, the leader first. They count from now on.
pub fn open_group(on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Vec<OwnedFd>, OpenError> {
    let cpu = usize::try_from(cpu).map_err(|_| OpenError::Offline)?;
    let (leader, members) = group.split_first().ok_or(OpenError::Unfit)?;
    if group.len() > MOST_EVENTS {
        return Err(OpenError::Unfit);
    }
    // The leader starts last, and all of them with it. ARM's driver takes no counter for one that is off when it looks whether a group
    // fits, unless it is to start at exec, which nothing of a CPU ever does (drivers/perf/arm_pmu.c, `validate_event`).
    let mut first = builder(*leader, on, cpu)
        .enabled(false)
        .enable_on_exec(true)
        .build()
        .map_err(|error| OpenError::of(&error))?;
    let mut others = Vec::with_capacity(members.len());
    for member in members {
        let member = builder(*member, on, cpu).enabled(true).build_with_group(&mut first);
        others.push(descriptor(member.map_err(|error| OpenError::of(&error))?));
    }
    first.enable().map_err(|error| OpenError::of(&error))?;
    Ok(std::iter::once(descriptor(first)).chain(others).collect())
}

impl Open for Kernel {
    fn open(&self, on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        Ok(Box::new(Opened(open_group(on, cpu, group)?)))
    }

    fn is_kernel(&self) -> bool {
        true
    }
}

/// Takes a leader, and with it its group, off the hardware. With `PERF_IOC_FLAG_GROUP` each member would interrupt its CPU, too.
#[expect(unsafe_code, reason = "perf events are switched by ioctl only")]
pub fn disable(leader: &OwnedFd) -> Result<(), Errno> {
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
    use std::fs::File;

    use super::*;

    /// No hardware PMU in virtual machines, but the kernel's own events are opened and read the same way.
    #[test]
    fn the_kernel_counts_a_group_on_a_cpu() {
        // cpu-clock and context-switches.
        let clock = [Attr::new(Attr::SOFTWARE, 0), Attr::new(Attr::SOFTWARE, 3)];
        let mut counters = match Kernel.open(On::Host, 0, &clock) {
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
        let fails = |on, cpu, group: &[Attr]| Kernel.open(on, cpu, group).err();
        assert_eq!(fails(On::Everybody, 0, &[Attr::new(u32::MAX, 0)]), Some(OpenError::Absent));
        assert_eq!(fails(On::Everybody, 0, &[]), Some(OpenError::Unfit));
        assert_eq!(fails(On::Everybody, 0, &[clock[0]; MOST_EVENTS + 1]), Some(OpenError::Unfit));
        let no_cgroup = File::open("/").unwrap();
        let on = On::Cgroup(&no_cgroup);
        assert_eq!(fails(on, 0, &clock), Some(OpenError::Io(Errno::BADF.raw_os_error())));
    }
}
