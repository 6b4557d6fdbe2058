//! The web configuration file as it is written: structure and scalar types only, meaning is [`super`]'s.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::ConfigError;
use super::lines::Lines;

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct File {
    pub(super) tls_server_config: Option<Tls>,
    pub(super) http_server_config: Option<Http>,
    pub(super) rate_limit: Option<Rate>,
    pub(super) basic_auth_users: Option<Pairs>,
}

#[derive(serde::Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct Tls {
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
    pub(super) client_ca: Option<String>,
    pub(super) cert_file: Option<String>,
    pub(super) key_file: Option<String>,
    pub(super) client_ca_file: Option<String>,
    pub(super) client_auth_type: Option<String>,
    pub(super) client_allowed_sans: Option<Vec<String>>,
    pub(super) cipher_suites: Option<Vec<String>>,
    pub(super) curve_preferences: Option<Vec<String>>,
    pub(super) min_version: Option<String>,
    pub(super) max_version: Option<String>,
    pub(super) prefer_server_cipher_suites: Option<bool>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct Http {
    /// Taken and not used: this server speaks HTTP/1.1 only.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    pub(super) headers: Option<Pairs>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(super) struct Rate {
    pub(super) interval: Option<String>,
    pub(super) burst: Option<u32>,
}

/// A mapping of strings with its keys as they come, since a map type would silently keep the last of two equal
/// ones.
#[derive(Default)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Reads the structure; the error has the parser's reason and the best line known for it.
pub(super) fn read(text: &str, lines: &Lines, path: &Path) -> Result<File, ConfigError> {
    serde_yaml::from_str(text).map_err(|error| {
        let at = error.location();
        let mut reason = error.to_string();
        if let Some(at) = &at {
            reason = reason.replacen(&format!(" at line {} column {}", at.line(), at.column()), "", 1);
        }
        let quoted = |after: &str| Some(reason.split_once(after)?.1.split_once('`')?.0);
        // For these two the parser points at the mapping, not at the key.
        let line = if let Some(key) = quoted("duplicate field `") {
            lines.repeated(key)
        } else if let Some(key) = quoted("unknown field `").filter(|_| !reason.contains(": unknown field")) {
            lines.line(&[key])
        } else {
            None
        };
        let line = line.or(at.map(|at| at.line()));
        ConfigError { path: path.to_owned(), line, reason: without_value(reason) }
    })
}

/// serde repeats a value of the wrong type, and it might be a password: only its type is for the log.
fn without_value(reason: String) -> String {
    let Some((before, rest)) = reason.split_once("invalid type: ") else { return reason };
    let Some((found, expected)) = rest.rsplit_once(", expected ") else { return reason };
    let found = found.split(['"', '`']).next().unwrap_or_default().trim_end();
    format!("{before}invalid type: {found}, expected {expected}")
}
