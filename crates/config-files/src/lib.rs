//! What servers and clients share of the files that configure them.
//!
//! Errors name the file, the line or key, and what is wrong. They have nothing of a secret.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write and read their own files"))]

mod file;
mod network;
mod secret;
mod setting;
mod tls;
mod yaml;

pub use file::{Stamp, read_config_file};
pub use network::{Network, NotANetwork, as_v6};
pub use secret::Secret;
pub use setting::{Setting, Source};
pub use tls::{TlsVersion, authorities, certificate_check, certificates, private_key, tls_error};
pub use yaml::{ConfigError, read_yaml};
