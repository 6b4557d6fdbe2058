//! Why a command did not do what was asked: one line that says what to do, and an exit status.

use std::fmt;

use prometheus_api::Error;

/// What kind of failure it is: its exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The network, a server, a file.
    Other = 1,
    /// The command line or the configuration.
    Usage = 2,
    /// There is no such job.
    NotFound = 3,
    /// The report was written, of a part of the job.
    Incomplete = 4,
    /// Somebody else's job.
    NotAllowed = 5,
    /// Some of several jobs failed.
    Some = 6,
    /// Some mails were not sent.
    NotSent = 7,
    /// Ctrl-C: 128 and the signal, as a shell says it.
    Interrupted = 130,
}

impl Kind {
    /// In the order of their exit statuses.
    pub(crate) const ALL: [Self; 8] = [
        Self::Other,
        Self::Usage,
        Self::NotFound,
        Self::Incomplete,
        Self::NotAllowed,
        Self::Some,
        Self::NotSent,
        Self::Interrupted,
    ];

    /// As the man page says it.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Other => "The network, a server or a file failed.",
            Self::Usage => "The command line or the configuration is wrong.",
            Self::NotFound => "There is no such job, or nothing to show.",
            Self::Incomplete => "The report was written, of a part of the job.",
            Self::NotAllowed => "It is another user's job.",
            Self::Some => "Some of several jobs failed, the others are shown.",
            Self::NotSent => "Some mails were not sent, or jobs not cancelled.",
            Self::Interrupted => "It was interrupted (SIGINT).",
        }
    }
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its exit status.
    pub kind: Kind,
    /// What happened, and what to do.
    pub says: String,
}

impl Failure {
    /// One of a kind.
    pub fn new(kind: Kind, says: impl Into<String>) -> Self {
        Self { kind, says: says.into() }
    }

    /// Of the network, a server, a file.
    pub fn other(says: impl Into<String>) -> Self {
        Self::new(Kind::Other, says)
    }

    /// Of the command line or the configuration.
    pub fn usage(says: impl Into<String>) -> Self {
        Self::new(Kind::Usage, says)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.says)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            prometheus_api::Kind::Config => Kind::Usage,
            _ => Kind::Other,
        };
        // An exporter has one page, and refuses what Prometheus is asked by POST.
        if let Error::Refused { host, status: 405, says } = &error
            && says == "only GET and HEAD"
        {
            return Self::usage(format!(
                "{host} is an exporter, no Prometheus: --url is that of the Prometheus that scrapes it"
            ));
        }
        Self::new(kind, error.to_string())
    }
}
