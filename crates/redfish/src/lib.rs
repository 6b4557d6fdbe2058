//! One resource of a Redfish service (DMTF DSP0266), asked over HTTPS for the power or energy of a node.
//!
//! A [`Service`] has one URL and asks it again and again: over one connection, with basic authentication, not more often than
//! the controller can bear. An [`Answer`] has the numbers of the resource, exactly as they were written.
//!
//! Nothing is followed: no redirect, no link, no proxy of the environment. The password is in no error, log or `Debug`.
//!
//! ```
//! use redfish::{Options, Service};
//!
//! let options = Options {
//!     address: "http://127.0.0.1:8000/redfish/v1/Chassis/1/EnvironmentMetrics".parse().unwrap(),
//!     credentials: None,
//!     trust: None,
//!     limits: Default::default(),
//! };
//! assert_eq!(Service::open(&options).unwrap().address().name, "EnvironmentMetrics");
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write and read their own files"))]

mod address;
mod answer;
mod client;
mod credentials;
mod service;
mod trust;

pub use address::{Address, NoAddress};
pub use answer::{Answer, Quantity, parse_answer};
pub use service::{ConfigError, Limits, Options, Service};
pub use trust::{Fingerprint, NoFingerprint, Trust};
