//! A resource of a service: how often it is asked, with which credentials, and what its answers mean.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config_files::Stamp;
use hyper::StatusCode;
use kernel_files::SourceError;
use parking_lot::Mutex;

use crate::address::Address;
use crate::answer::{Answer, parse_answer};
use crate::client::{Client, Reply, Tls};
use crate::credentials::Credentials;
use crate::trust::{Trust, client_config};

/// The name in errors.
const CALL: &str = "Redfish";
const ANSWER: &str = "Redfish answer";

/// What is asked, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The resource.
    pub address: Address,
    /// The file with user and password. Without one the service is asked without authentication.
    pub credentials: Option<PathBuf>,
    /// How the service proves who it is; `None` for plain HTTP.
    pub trust: Option<Trust>,
    /// How long and how often.
    pub limits: Limits,
}

/// How long and how often a service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time for an answer, from the look-up of the name on.
    pub answer: Duration,
    /// An answer is given again for so long: a controller has little time, and measures once a second at most.
    pub pause: Duration,
    /// The least pause after credentials were refused. It doubles each time up to [`Limits::refused_most`]: controllers
    /// lock an account after some failures. Credentials that changed are tried at once.
    pub refused: Duration,
    /// The longest pause of that kind.
    pub refused_most: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(4),
            pause: Duration::from_secs(5),
            refused: Duration::from_secs(60),
            refused_most: Duration::from_secs(3600),
        }
    }
}

/// Why a service cannot be asked at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A resource of a service. Clones are the same one: they share its connection, its pauses and its last answer.
#[derive(Clone)]
pub struct Service(Arc<Shared>);

struct Shared {
    address: Address,
    credentials: Option<PathBuf>,
    asking: Mutex<Asking>,
}

struct Asking {
    client: Client,
    credentials: Option<Credentials>,
    limits: Limits,
    last: Option<(Instant, Result<Answer, SourceError>)>,
    refused: Option<Refused>,
}

/// The last time credentials were refused.
struct Refused {
    at: Instant,
    pause: Duration,
    stamp: Option<Stamp>,
    error: SourceError,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Service").field(&self.0.address).finish()
    }
}

impl Service {
    /// Reads the files of the options. It asks nothing yet.
    pub fn open(options: &Options) -> Result<Self, ConfigError> {
        let Options { address, credentials, trust, limits } = options;
        let tls = match (address.https, trust) {
            (false, None) => None,
            (false, Some(_)) => return Err(ConfigError("plain HTTP has no certificate".to_owned())),
            (true, None) => {
                return Err(ConfigError(
                    "https needs the certificate of an authority or of the service".to_owned(),
                ));
            }
            (true, Some(trust)) => {
                let config = client_config(trust).map_err(ConfigError)?;
                Some(Tls::new(config, &address.host).map_err(ConfigError)?)
            }
        };
        let read = credentials.as_deref().map(Credentials::open).transpose().map_err(ConfigError)?;
        let asking = Asking {
            client: Client::new(address.clone(), tls),
            credentials: read,
            limits: *limits,
            last: None,
            refused: None,
        };
        let (address, credentials) = (address.clone(), credentials.clone());
        Ok(Self(Arc::new(Shared { address, credentials, asking: Mutex::new(asking) })))
    }

    /// What is asked.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// The credentials file, which is read again when it changes.
    pub fn credentials(&self) -> Option<&Path> {
        self.0.credentials.as_deref()
    }

    /// The answer at a time that is at most [`Limits::pause`] ago, and that time. May take [`Limits::answer`].
    pub fn ask(&self, now: Instant) -> (Instant, Result<Answer, SourceError>) {
        self.0.asking.lock().ask(now)
    }
}

impl Asking {
    fn ask(&mut self, now: Instant) -> (Instant, Result<Answer, SourceError>) {
        if let Some((at, answer)) = &self.last
            && now.saturating_duration_since(*at) < self.limits.pause
        {
            return (*at, answer.clone());
        }
        let answer = self.ask_now(now);
        self.last = Some((now, answer.clone()));
        (now, answer)
    }

    fn ask_now(&mut self, now: Instant) -> Result<Answer, SourceError> {
        if let Some(credentials) = &mut self.credentials {
            credentials.refresh().map_err(failed)?;
        }
        let stamp = self.credentials.as_ref().map(Credentials::stamp);
        // Others are worth a try at once.
        self.refused.take_if(|refused| refused.stamp != stamp);
        if let Some(refused) = &self.refused
            && now.saturating_duration_since(refused.at) < refused.pause
        {
            return Err(refused.error.clone());
        }
        let header = self.credentials.as_ref().map(Credentials::header);
        let reply = self.client.get(header, self.limits.answer).map_err(failed)?;
        let answer = meaning(&reply);
        match &answer {
            Ok(_) => self.refused = None,
            Err(error @ SourceError::Denied { .. }) => {
                let Limits { refused: least, refused_most: most, .. } = self.limits;
                let pause = self.refused.as_ref().map_or(least, |before| (before.pause * 2).min(most));
                self.refused = Some(Refused { at: now, pause, stamp, error: error.clone() });
            }
            Err(_) => {}
        }
        answer
    }
}

fn failed(says: String) -> SourceError {
    SourceError::Driver { call: CALL, says }
}

fn meaning(reply: &Reply) -> Result<Answer, SourceError> {
    let says = |what: &str| failed(format!("{}{what}", reply.status));
    match reply.status {
        StatusCode::OK => parse_answer(&reply.body).map_err(SourceError::parsing(ANSWER)),
        StatusCode::UNAUTHORIZED => Err(SourceError::Denied {
            what: "Redfish: 401 Unauthorized, the credentials are wrong or missing".to_owned(),
        }),
        StatusCode::FORBIDDEN => Err(SourceError::Denied {
            what: "Redfish: 403 Forbidden, the user lacks the privilege Login".to_owned(),
        }),
        status if status.is_redirection() => Err(says(": redirects are not followed")),
        StatusCode::NOT_FOUND => Err(says(": the service has no such resource")),
        _ => Err(says("")),
    }
}
