//! Perf events that are open once per CPU, and divided by cgroup in BPF.
//!
//! An event of a cgroup is programmed into the CPU at each switch to that cgroup, and taken off again
//! (kernel/events/core.c, `perf_cgroup_switch`). Here each event is open once per CPU, for everybody, and counts without end. A program
//! at the tracepoint `sched_switch` reads the counters at each switch between cgroups, and adds what they counted since the last
//! one to the entry of the cgroup that leaves. So nothing is programmed at a switch and nothing opened for a job; the descriptors are
//! CPUs * events, whatever the jobs are.
//!
//! The program runs with interrupts off, and the outgoing task is still the current one (kernel/sched/core.c, `__schedule`). It finds
//! the cgroup of a task by following the kernel's own structures ([`Hierarchy`]), in the same way on v1 and v2. What runs at the moment of a
//! reading is taken in by a second program, which runs on that CPU in between (BPF_PROG_TEST_RUN of a raw tracepoint's program), with
//! interrupts off, too: so neither sees the other's work half done.
//!
//! The kernel has a software event for this, too: `cgroup-switches`. But it leaves out runs of a perf event's program while another
//! program, or what is done to a map, is in the way on that CPU (`bpf_overflow_handler`); of a tracepoint's it leaves out none.
//! The tracepoint comes before the kernel counts the switch, so a task has the switches to it, which are as many as those from it.
//!
//! What no registered cgroup did is the rest: idle time and the system. The cgroups and the rest are all that a CPU counted.
//!
//! [`Divided`] is an implementation of [`perf_events::Open`]: what counts with events of cgroups counts with it unchanged.
//!
//! A task that is moved to another cgroup while it runs is taken to have been there since the CPU last switched between cgroups, and
//! one from the root since the CPU switched to this task: the kernel raises no event for that.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make cgroups and read the kernel's settings")
)]

mod cgroup;
mod cpu;
mod divided;
mod hierarchy;
mod layout;
mod program;
mod unavailable;

pub use divided::Divided;
pub use hierarchy::Hierarchy;
pub use layout::SharedGroup;
pub use unavailable::Unavailable;
