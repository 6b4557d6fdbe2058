//! The HTTP side: `/metrics` for Prometheus, `/` for people, `/-/healthy` and `/-/ready` for supervisors.
//!
//! It knows the rest of the exporter only as [`crate::scrape::Exporter`]. A client costs only itself: what it may
//! hold, and for how long, is bounded ([`WebOptions`]), and no word of a request becomes a label, a file name or a
//! log line. HTTP/1.1 only: scrapers need no more, and HTTP/2 has had its own class of attacks (CVE-2023-44487).

mod auth;
mod config;
mod connection;
mod deadline;
mod file;
mod handler;
mod landing;
mod limit;
mod listen;
mod metrics;
mod negotiate;
mod options;
mod query;
mod reload;
mod respond;
mod server;
mod timed;
mod tls;

pub use config::{ConfigError, WebConfig};
pub use listen::{ListenAddress, ListenError, bind, parse_listen_address, systemd_listeners};
pub use negotiate::Format;
pub use options::{WebOptions, parse_telemetry_path};
pub use reload::{LastReload, WebConfigHandle};
pub use server::serve;
