//! The structure of the web configuration file, and the values that can be checked one by one.
//!
//! A value is checked while serde reads it, so that the YAML library adds its key and line to the error.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use config_files::{Secret, TlsVersion};
use hyper::header::HeaderValue;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use tokio_rustls::rustls::SupportedCipherSuite;

use super::{ClientAuth, Curve};

/// A hash of this cost takes about 13 s. A higher one would let no user in and keep a core busy.
const MAX_BCRYPT_COST: u32 = 18;

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(crate) struct File {
    pub(crate) tls_server_config: Option<Tls>,
    pub(crate) http_server_config: Option<Http>,
    pub(crate) rate_limit: Option<Rate>,
    pub(crate) basic_auth_users: Option<Users>,
}

#[derive(serde::Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(crate) struct Tls {
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) client_ca: Option<String>,
    pub(crate) cert_file: Option<String>,
    pub(crate) key_file: Option<String>,
    pub(crate) client_ca_file: Option<String>,
    pub(crate) client_auth_type: Option<Parsed<ClientAuth>>,
    pub(crate) client_allowed_sans: Option<Vec<String>>,
    pub(crate) cipher_suites: Option<Vec<Parsed<SupportedCipherSuite>>>,
    pub(crate) curve_preferences: Option<Vec<Parsed<Curve>>>,
    pub(crate) min_version: Option<Parsed<TlsVersion>>,
    pub(crate) max_version: Option<Parsed<TlsVersion>>,
    pub(crate) prefer_server_cipher_suites: Option<bool>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(crate) struct Http {
    /// Accepted and not used: this server speaks HTTP/1.1 only.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    pub(crate) headers: Option<Headers>,
}

/// The headers that Go's exporter-toolkit allows, "to ensure consistency in the Prometheus ecosystem".
#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(crate) struct Headers {
    #[serde(rename = "Strict-Transport-Security")]
    pub(crate) strict_transport_security: Option<Parsed<HeaderValue>>,
    #[serde(rename = "X-Content-Type-Options")]
    pub(crate) content_type_options: Option<Parsed<HeaderValue>>,
    #[serde(rename = "X-Frame-Options")]
    pub(crate) frame_options: Option<Parsed<HeaderValue>>,
    #[serde(rename = "X-XSS-Protection")]
    pub(crate) xss_protection: Option<Parsed<HeaderValue>>,
    #[serde(rename = "Content-Security-Policy")]
    pub(crate) content_security_policy: Option<Parsed<HeaderValue>>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a mapping")]
pub(crate) struct Rate {
    pub(crate) interval: Option<Parsed<Duration>>,
    pub(crate) burst: Option<u32>,
}

/// A value that the file writes as text.
pub(crate) trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

impl FromText for Duration {
    /// humantime reads what Go's `time.ParseDuration` reads, but for a number that begins with a dot. The crates that
    /// follow Go exactly have one maintainer and no release of the last years.
    fn from_text(text: &str) -> Result<Self, String> {
        let bad = |why| format!("{text:?} is not a duration such as 1s, 250ms or 1m30s: {why}");
        humantime::parse_duration(text).map_err(bad)
    }
}

impl FromText for TlsVersion {
    fn from_text(name: &str) -> Result<Self, String> {
        name.parse()
    }
}

impl FromText for HeaderValue {
    fn from_text(text: &str) -> Result<Self, String> {
        HeaderValue::from_str(text).map_err(|_| format!("{text:?} is not a header value"))
    }
}

struct UserName(String);

impl FromText for UserName {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            return Err(format!("user {text:?}: a user name cannot hold a colon"));
        }
        Ok(UserName(text.to_owned()))
    }
}

impl FromText for Secret {
    /// A password's hash.
    fn from_text(text: &str) -> Result<Self, String> {
        let parts = bcrypt::HashParts::from_str(text).map_err(|why| format!("not a bcrypt hash: {why}"))?;
        let cost = parts.get_cost();
        if !(4..=MAX_BCRYPT_COST).contains(&cost) {
            return Err(format!("bcrypt cost {cost} is not in 4..{MAX_BCRYPT_COST}"));
        }
        Ok(Secret(text.to_owned()))
    }
}

/// A value, read from its text.
#[derive(PartialEq)]
pub(crate) struct Parsed<T>(pub(crate) T);

impl<'de, T: FromText> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: FromText> Visitor<'_> for Text<T> {
            type Value = Parsed<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Parsed<T>, E> {
                T::from_text(text).map(Parsed).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text(PhantomData))
    }
}

/// Users with the hashes of their passwords. A plain map would keep the last of two equal names without a word.
#[derive(Default)]
pub(crate) struct Users(pub(crate) BTreeMap<String, Secret>);

impl<'de> Deserialize<'de> for Users {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Users;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Users, A::Error> {
                let mut users = BTreeMap::new();
                while let Some((Parsed(UserName(name)), Parsed(hash))) = map.next_entry()? {
                    if users.contains_key(&name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    users.insert(name, hash);
                }
                Ok(Users(users))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}
