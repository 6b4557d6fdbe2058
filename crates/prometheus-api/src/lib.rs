//! A client of Prometheus' HTTP API, which also Thanos, Mimir, `VictoriaMetrics` and Grafana's proxy speak.
//!
//! A range with more points than one request may ask for is asked for in parts, several at once. Each part begins at a whole number of
//! steps from the start, so that the answers together are that of one request.
//!
//! An answer is read while it comes, on a thread of tokio's pool for blocking work. Its points, 16 bytes each, and its labels, each string
//! once, are all that is held.
//! An answer of 28 MB, with 1440 points of 640 series, takes 17 MB.
//!
//! # Where the server is
//!
//! The URL may have a path, such as `https://host/prometheus/` or `https://grafana/api/datasources/proxy/uid/x`. User and password in it are
//! refused, since everybody can see a command line. `http://` is allowed; with credentials, and not to this host itself, it is a
//! warning ([`Client::warnings`]).
//!
//! # The HTTP configuration file
//!
//! It has the format of promtool's `--http.config.file`, but for these differences:
//!
//! - `bearer_token` and `bearer_token_file` are not known: `authorization` has taken their place. Neither are the keys that end
//!   with `_ref`.
//! - `authorization` and `oauth2` need their secret. `proxy_url` is of a proxy that speaks plain HTTP; `https://` goes through a tunnel.
//! - This client speaks HTTP/1.1 alone, whatever `enable_http2` says.
//! - The files that it names are read once.
//! - A redirect keeps the method. Credentials and `http_headers` go to the same server alone, and a redirect from `https://` to `http://` is
//!   an error.
//! - Where all users may read a secret, there is a warning.
//!
//! Without `ca` and `ca_file`, the authorities are those of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write and read their own files"))]

mod address;
mod answer;
mod client;
mod config;
mod credentials;
mod error;
mod form;
mod http;
mod labels;
mod options;
mod proxy;
mod range;
mod setup;

pub use answer::{Answer, Data, LabelSets, NotAnAnswer, QueryResult, Sample, Series, parse_answer};
pub use client::{Asked, BuildInfo, Client};
pub use config::HttpConfig;
pub use error::{Error, Kind};
pub use labels::Labels;
pub use options::{Options, ProxyEnvironment};
pub use range::Range;
