#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write and read their own files"))]

mod admission;
mod auth;
mod config;
mod connection;
mod deadline;
mod exporter;
mod gzip;
mod handler;
mod landing;
mod limit;
mod listen;
mod metrics;
mod negotiate;
mod options;
mod payload;
mod peer;
mod query;
mod queue;
mod reload;
mod respond;
mod server;
mod state;
mod stats;
mod timed;
mod tls;

pub use auth::NotLogins;
pub use config::WebConfig;
pub use config_files::{ConfigError, Network, NotANetwork};
pub use exporter::{
    About, BoxFuture, Client, CollectorStatus, Exporter, Exposition, Link, Page, Scrape, ScrapeError,
    Selection,
};
pub use hyper::body::Bytes;
pub use listen::{
    ListenAddress, ListenError, bind, parse_listen_address, systemd_descriptors, systemd_listeners,
};
pub use negotiate::Format;
pub use options::{WebOptions, parse_telemetry_path};
pub use reload::{LastReload, WebConfigHandle};
pub use server::serve;
pub use stats::{Monitor, ServerStats};
