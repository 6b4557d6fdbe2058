//! What processes read and wrote: by block device, as their control group counts it, and all of it, as the sum over
//! processes that come and go.
//!
//! ```
//! use io_accounting::parse_process_io;
//!
//! let io = parse_process_io(b"rchar: 100\nwchar: 7\n").unwrap();
//! assert_eq!((io.rchar, io.read_bytes), (Some(100), None));
//! ```
#![forbid(unsafe_code)]

mod account;
mod io_stat;
mod process_io;

pub use account::{Account, COUNTERS, Counters, Listed, Procs};
pub use io_stat::{Device, IoCounters, parse_io_stat};
pub use process_io::{ProcessIo, parse_process_io};
