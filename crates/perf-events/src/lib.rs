//! Opens groups of perf events with perf_event_open(2) and reads them.
//!
//! An [`Attr`] says which event is meant. [`Open`] opens a group of them on a CPU, for a cgroup or for everybody ([`On`]), and gives
//! [`Counters`], which read the group in one call. [`Kernel`] is the one that asks the kernel; tests and simulations have
//! implementations of their own. [`Single`] is a group of one event, as of a PMU beside the cores: RAPL, a memory controller.
//!
//! ```
//! use perf_events::{Attr, Kernel, On, Open, Reading};
//!
//! // The kernel's own events: a CPU's clock, and its context switches.
//! let group = [Attr::new(Attr::SOFTWARE, 0), Attr::new(Attr::SOFTWARE, 3)];
//! match Kernel.open(On::Host, 0, &group) {
//!     Ok(mut counters) => {
//!         let mut reading = Reading::default();
//!         counters.read(&mut reading)?;
//!         assert_eq!(reading.counts.len(), group.len());
//!     }
//!     // It takes CAP_PERFMON, or kernel.perf_event_paranoid below 1.
//!     Err(error) => println!("not opened: {error}"),
//! }
//! # Ok::<(), kernel_files::ReadError>(())
//! ```
//!
//! This crate has all unsafe code of counting: the descriptors of the events and the ioctl that stops them.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read the kernel's settings themselves"))]

mod attr;
mod kernel;
mod open;
mod parse;
mod single;

pub use attr::Attr;
pub use kernel::{Kernel, disable, open_group};
pub use open::{Counters, Following, On, Open, OpenError, Reading};
pub use parse::{parse_group, parse_unified_perf};
pub use single::{Count, Single, Spec};
