//! What can go wrong, in a line that says what to do.

use std::time::Duration;

use config_files::ConfigError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The HTTP configuration file, or a file that it names.
    #[error("{0}")]
    File(#[from] ConfigError),
    /// A variable of the environment.
    #[error("the proxy that the environment names: {0}")]
    Environment(&'static str),
    /// The URL of the server.
    #[error("the URL of Prometheus: {0}")]
    Url(&'static str),
    /// The times of a range.
    #[error("the range of a query: {0}")]
    Range(&'static str),
    /// No connection.
    #[error("{host} cannot be reached: {why}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// The error of the system.
        why: String,
    },
    /// No TLS.
    #[error("no TLS with {host}: {why}")]
    Tls {
        /// Host and port.
        host: String,
        /// What is wrong with the certificate, or the error of TLS.
        why: String,
    },
    /// The time limit is over.
    #[error("no whole answer of {host} within {} s: ask for a shorter time, or wait longer", limit.as_secs_f64())]
    Timeout {
        /// Host and port.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// The connection broke.
    #[error("the connection to {host} broke: {why}")]
    Broken {
        /// Host and port.
        host: String,
        /// The error.
        why: String,
    },
    /// No connection through the proxy.
    #[error("the proxy {proxy}: {why}")]
    Proxy {
        /// Host and port.
        proxy: String,
        /// What it answers.
        why: String,
    },
    /// Not followed to where the server sends.
    #[error("{host} redirects to {to}: {why}")]
    Redirect {
        /// Host and port.
        host: String,
        /// Where to.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// No token of the OAuth 2 server.
    #[error("no token of {host}: {why}: see oauth2 of the HTTP configuration file")]
    Token {
        /// Host and port.
        host: String,
        /// What it answers.
        why: String,
    },
    /// 401.
    #[error(
        "{host} does not accept the credentials, or wants some (401): see the HTTP configuration file{}",
        said(says)
    )]
    Unauthorized {
        /// Host and port.
        host: String,
        /// The server's text.
        says: String,
    },
    /// 403.
    #[error("{host} forbids it for these credentials (403){}", said(says))]
    Forbidden {
        /// Host and port.
        host: String,
        /// The server's text.
        says: String,
    },
    /// 404.
    #[error("{host} has no {path} (404): is the path of the URL right?{}", said(says))]
    NotFound {
        /// Host and port.
        host: String,
        /// What was asked for.
        path: String,
        /// The server's text.
        says: String,
    },
    /// Another error of the server.
    #[error("{host} answers with an error ({status}){}", said(says))]
    Refused {
        /// Host and port.
        host: String,
        /// The status of HTTP.
        status: u16,
        /// The server's text.
        says: String,
    },
    /// A limit of the server.
    #[error("a limit of {host} is exceeded: ask for a shorter time or fewer series{}", said(says))]
    ServerLimit {
        /// Host and port.
        host: String,
        /// The server's text.
        says: String,
    },
    /// More series than [`crate::Options::max_series`].
    #[error("more than {0} series: ask for fewer")]
    TooManySeries(usize),
    /// An answer larger than any that makes sense.
    #[error("the answer is larger than {0} bytes: ask for a shorter time or fewer series")]
    TooLarge(u64),
    /// The server is something else.
    #[error("the answer of {host} is not Prometheus' ({why}): is the URL right?")]
    NotPrometheus {
        /// Host and port.
        host: String,
        /// What it is.
        why: String,
    },
    /// The expression gives something else.
    #[error("the query gives {found}, not {wanted}")]
    WrongType {
        /// What the answer has.
        found: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
}

/// What kind of error it is, as for an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The URL, a file or a query is wrong.
    Config,
    /// The server was not reached, or not in time.
    Network,
    /// The server refuses.
    Server,
    /// Too much was asked for.
    Limit,
}

impl Error {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Error::File(_)
            | Error::Environment(_)
            | Error::Url(_)
            | Error::Range(_)
            | Error::WrongType { .. } => Kind::Config,
            Error::Unreachable { .. }
            | Error::Tls { .. }
            | Error::Timeout { .. }
            | Error::Broken { .. }
            | Error::Proxy { .. }
            | Error::Redirect { .. } => Kind::Network,
            Error::Token { .. }
            | Error::Unauthorized { .. }
            | Error::Forbidden { .. }
            | Error::NotFound { .. }
            | Error::Refused { .. }
            | Error::NotPrometheus { .. } => Kind::Server,
            Error::ServerLimit { .. } | Error::TooManySeries(_) | Error::TooLarge(_) => Kind::Limit,
        }
    }
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Of a server's text.
const MOST_CHARACTERS: usize = 300;

/// A server's text in one line that does nothing to a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line: String = text
        .trim()
        .chars()
        .take(MOST_CHARACTERS)
        .map(|c| if c.is_control() || is_format(c) { ' ' } else { c })
        .collect();
    if text.trim().chars().nth(MOST_CHARACTERS).is_some() {
        line.push('…');
    }
    line
}

/// Characters that turn the direction of text, or show nothing (Unicode, category Cf).
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_server_is_one_short_line() {
        assert_eq!(one_line(" a\x1b[31m\nb\u{202e}c \n"), "a [31m b c");
        let long = one_line(&"ä".repeat(400));
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (301, true));
    }
}
