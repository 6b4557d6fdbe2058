//! Opening an event of a CPU or of what it stands for (a socket, a memory controller) with perf_event_open(2), and reading it.
#![forbid(unsafe_code)]

mod attr;
mod single;

pub use attr::Attr;
pub use single::{Count, Kernel, Open, Opened, Spec};
