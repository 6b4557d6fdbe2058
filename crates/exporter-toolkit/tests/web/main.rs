//! The server over real sockets, with a small exporter for tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails, and it may read its own files and wait"
)]

mod abuse;
mod authority;
mod bad_config;
mod client;
mod exposition;
mod login;
mod protocol;
mod support;
mod tls;
mod tls_reload;
