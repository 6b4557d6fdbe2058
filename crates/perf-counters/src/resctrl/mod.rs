//! Memory bandwidth, L3 occupancy and energy of cores by job, as resctrl's monitoring groups measure them
//! (Documentation/filesystems/resctrl.rst, before Linux 6.16 Documentation/arch/x86/resctrl.rst).
//!
//! Each job gets a monitoring group below the control group of its tasks. Nothing of a site is changed: no control
//! group is made or removed, no `schemata` written, no task taken out of another program's monitoring group.
//!
//! Linux 4.10 with CONFIG_X86_CPU_RESCTRL (`RESCTRL` up to 4.19), a CPU with `cqm_mbm_total`, the file system mounted; making
//! groups and moving tasks is root's (fs/resctrl/rdtgroup.c, `rdtgroup_task_write_permission`). A reading interrupts one CPU
//! of the domain.

mod assignment;
mod groups;
pub mod helper;
mod parse;
mod quantity;
mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tree;

pub use assignment::{parse_assign_mode, parse_assignments, parse_counters, parse_event_filter};
pub use groups::{About, Job, Monitor, Refusal, Round, Rounds, SavedMonitor};
pub use parse::{
    Features, TaskGroups, Unread, parse_domain, parse_features, parse_millionths, parse_package,
    parse_task_groups, parse_value,
};
pub use quantity::Quantity;
pub use tree::{Mounted, Tree};
