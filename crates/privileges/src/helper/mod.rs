//! Processes that keep one privilege each, so that the one that talks to the network has none of them.
//!
//! Before the exporter drops its privileges it starts itself once more, by a word on the command line that is in no help. The
//! helper confines itself ([`confine`]), says [`Ready`], and then answers small questions over one socket, its standard
//! input. It ends when the exporter does, however that ends, since the socket is closed then.

mod confine;
mod connection;
mod dialogue;

use std::ffi::{CStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

pub use confine::{Confinement, confine, small_filter};
pub use connection::{Connection, Silence};
pub use dialogue::Dialogue;
use rustix::net::{SendFlags, SocketType, send};
use rustix::thread::CapabilitySet;

use crate::{UnknownUser, User};

/// A wrong command line (EX_USAGE, sysexits.h).
const USAGE: u8 = 64;

/// Distinguishes its first words from noise and from answers.
const READY: u8 = 0xd3;

/// One kind of helper.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The word on the command line that makes a process this helper, and its name in ps.
    pub word: &'static CStr,
    /// What it is called in messages.
    pub name: &'static str,
    /// What it is given at its start, as far as there is any.
    pub handed: CapabilitySet,
    /// What it keeps.
    pub kept: CapabilitySet,
    /// What of it it cannot do without.
    pub required: CapabilitySet,
}

impl Kind {
    fn word(&self) -> &'static str {
        self.word.to_str().unwrap_or_default()
    }

    /// Whether this process was started as the helper.
    pub fn is_asked_for(&self, arguments: impl IntoIterator<Item = OsString>) -> bool {
        arguments.into_iter().nth(1).is_some_and(|first| first == self.word())
    }

    /// The whole run of the process: confines it with `confinement` and has `serve` answer until the exporter is gone. Called
    /// before anything else is done in it.
    pub fn run(
        &self,
        user: Option<User>,
        confinement: Confinement,
        serve: impl FnOnce(BorrowedFd<'_>),
    ) -> ExitCode {
        let input = std::io::stdin();
        let socket = input.as_fd();
        if rustix::net::sockopt::socket_type(socket) != Ok(SocketType::SEQPACKET) {
            use std::io::Write;
            let _ =
                writeln!(std::io::stderr(), "{} is started by the exporter itself, not by hand", self.word());
            return ExitCode::from(USAGE);
        }
        let confined = confine(self, user.as_ref(), confinement);
        let (ready, code) = match confined {
            Ok(landlock) => (Ready::Confined { landlock }, ExitCode::SUCCESS),
            Err(why) => (Ready::Refused(why), ExitCode::FAILURE),
        };
        let sent = send(socket, &ready.write(), SendFlags::NOSIGNAL).is_ok();
        if sent && matches!(ready, Ready::Confined { .. }) {
            serve(socket);
        }
        code
    }
}

/// The word behind a helper's own that names the user it becomes.
pub fn user_argument(user: &User) -> OsString {
    format!("{}:{}", user.uid, user.gid).into()
}

/// The user that the word behind a helper's own names, if there is one.
pub fn user_of(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<User>, UnknownUser> {
    let ids = arguments.into_iter().nth(2);
    ids.map(|ids| User::find(&ids.to_string_lossy(), b"", b"")).transpose()
}

/// Why there is no helper.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be started.
    #[error("the {0} cannot be started: {1}")]
    Start(&'static str, std::io::Error),
    /// It said nothing, or something else.
    #[error("the {0} does not come up")]
    Silent(&'static str),
    /// It could not confine itself, and does not serve.
    #[error("the {0} gave up: {1}")]
    Refused(&'static str, String),
}

/// A message that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message of this protocol")]
pub struct Malformed;

/// The helper's first words: that it is confined, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// It serves.
    Confined {
        /// Whether the kernel has Landlock; the rest is never done without.
        landlock: bool,
    },
    /// It ends, for this reason.
    Refused(String),
}

impl Ready {
    /// As it is sent.
    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Confined { landlock } => vec![READY, 0, u8::from(*landlock)],
            Self::Refused(why) => [&[READY, 1], why.as_bytes()].concat(),
        }
    }

    /// Parses the helper's first words.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        match message {
            [READY, 0, landlock @ (0 | 1)] => Ok(Self::Confined { landlock: *landlock == 1 }),
            [READY, 1, why @ ..] => Ok(Self::Refused(String::from_utf8_lossy(why).into_owned())),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_are_understood() {
        for ready in [
            Ready::Confined { landlock: true },
            Ready::Confined { landlock: false },
            Ready::Refused("no seccomp".to_owned()),
        ] {
            assert_eq!(Ready::parse(&ready.write()), Ok(ready));
        }
        for bad in [&b""[..], &[READY], &[READY, 0], &[READY, 0, 2], &[READY, 2], &[READY, 0, 0, 0]] {
            assert_eq!(Ready::parse(bad), Err(Malformed));
        }
    }

    #[test]
    fn the_user_is_the_word_behind_its_own() {
        let user = User { name: None, uid: 4321, gid: 5, groups: Vec::new() };
        let words =
            |word: Option<OsString>| ["exporter", "helper"].map(OsString::from).into_iter().chain(word);
        assert_eq!(user_of(words(Some(user_argument(&user)))), Ok(Some(user)));
        assert_eq!(user_of(words(None)), Ok(None));
        assert!(user_of(words(Some("x".into()))).is_err(), "it does not remain root by a wrong word");
    }

    const NONE: Kind = Kind {
        word: c"",
        name: "",
        handed: CapabilitySet::empty(),
        kept: CapabilitySet::empty(),
        required: CapabilitySet::empty(),
    };

    #[test]
    fn the_first_word_alone_asks_for_it() {
        let kind = Kind { word: c"one-helper", name: "one helper", ..NONE };
        let asked = |words: &[&str]| kind.is_asked_for(words.iter().map(OsString::from));
        assert!(asked(&["exporter", "one-helper"]) && asked(&["exporter", "one-helper", "1:1"]));
        assert!(!asked(&["one-helper"]) && !asked(&["exporter", "--once", "one-helper"]) && !asked(&[]));
    }
}
