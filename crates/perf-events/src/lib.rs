//! Opening an event of a CPU or of what it stands for (a socket, a memory controller) with perf_event_open(2), and reading it.
//!
//! ```
//! use perf_events::{Attr, Kernel, Open, Spec};
//!
//! // The kernel's own clock on CPU 0; needs CAP_PERFMON or a low kernel.perf_event_paranoid.
//! match Kernel.open(Spec { attr: Attr::new(Attr::SOFTWARE, 0), cpu: 0 }) {
//!     Ok(mut clock) => println!("{:?}", clock.read()),
//!     Err(error) => println!("not here: {error:?}"),
//! }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

mod attr;
mod single;

pub use attr::Attr;
pub use single::{Count, Kernel, Open, Opened, Spec};
