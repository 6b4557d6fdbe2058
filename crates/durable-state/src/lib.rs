//! A state of named sections that survives a restart and a crash of its program, but not a boot.
//!
//! [`Store`] keeps it in an anonymous memory file that systemd holds, or in a file. Two [slots](slot) are written in turn. Each
//! has a checksum, so a torn one is passed over for the one before it. A state of another boot or of another layout is refused.
//!
//! ```
//! use durable_state::slot::{self, Identity};
//!
//! let identity = Identity { layout: 1, boot: [7; 16] };
//! let slot = slot::write(1, identity, b"payload");
//! assert_eq!(slot::read(&slot, identity).unwrap().payload, b"payload");
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod instant;
mod sections;
pub mod slot;
mod store;

pub use instant::SavedInstant;
pub use sections::{Sections, Unreadable, decode, encode};
pub use store::{MOST_BYTES, Outcome, Store, StoreError, boot_id};
