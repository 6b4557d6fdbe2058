//! Files of the kernel: where they are, how they are read, and parsers of the formats that many of them share.
//!
//! [`Roots`] joins paths, [`Dir`] reads files into one reused [`Buffer`], [`NodeFiles`] does both for procfs and sysfs, and [`parse`] makes
//! numbers of bytes without any I/O. What can go wrong has four names that are never confused ([`SourceError`]): denied, unsupported,
//! malformed, failed.
//!
//! ```
//! use std::sync::Arc;
//! use kernel_files::{NodeFiles, Roots, parse::parse_integer};
//!
//! let mut files = NodeFiles::new(&Arc::new(Roots::default()));
//! let limit = files.read("proc/sys/kernel/pid_max")?;
//! println!("at most {:?} processes", parse_integer(limit));
//! # Ok::<(), kernel_files::ReadError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

mod buffer;
mod error;
mod file;
mod held;
mod node;
pub mod parse;
pub mod processes;
mod roots;
mod text;

pub use buffer::{Buffer, Content, SIZE_CAP};
pub use error::{SourceError, Tally};
pub use file::{Dir, Entry, File, ReadError, Stat};
pub use held::Held;
pub use node::NodeFiles;
pub use roots::Roots;
pub use text::label_text;
