//! User and password, and the file that has them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config_files::Stamp;
use hyper::header::HeaderValue;
use rustix::fs::{Mode, OFlags, open};

/// Far more than a user and a password have.
const MOST_BYTES: u64 = 4096;
/// Readable or writable by all users.
const BY_OTHERS: u32 = 0o006;

/// The credentials in force.
#[derive(Clone)]
pub(crate) struct Credentials {
    path: PathBuf,
    stamp: Stamp,
    header: HeaderValue,
}

impl Credentials {
    /// Reads the file. `Err` says why not, and nothing of what is in it.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        read(path).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Reads the file again if it changed. Where it cannot be looked at any more, what was read last holds: it may be root's.
    pub(crate) fn refresh(&mut self) -> Result<(), String> {
        let changed = Stamp::of(&self.path).is_some_and(|now| now != self.stamp);
        if changed {
            *self = Self::open(&self.path)?;
        }
        Ok(())
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The value of `Authorization`, marked so that nothing shows it.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

fn read(path: &Path) -> Result<Credentials, String> {
    // A FIFO would block until somebody writes to it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file: File = open(path, flags, Mode::empty()).map_err(|error| error.to_string())?.into();
    let state = file.metadata().map_err(|error| error.to_string())?;
    if !state.is_file() {
        return Err("not a regular file".to_owned());
    }
    if state.mode() & BY_OTHERS != 0 {
        return Err("all users may read or write it: chmod o= FILE".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err("larger than 4 KiB".to_owned());
    }
    let (user, password) = parse_credentials(&bytes)?;
    let basic = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let mut header = HeaderValue::try_from(basic).map_err(|_| "no header can be made of it".to_owned())?;
    header.set_sensitive(true);
    Ok(Credentials { path: path.to_owned(), stamp: Stamp::new(&state), header })
}

/// One line `user:password`, or the user in the first line and the password in the second. The user of HTTP's basic
/// authentication has no colon (RFC 7617, section 2).
pub(crate) fn parse_credentials(bytes: &[u8]) -> Result<(&str, &str), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let mut lines = text.lines();
    let (user, password) = match (lines.next(), lines.next()) {
        (Some(user), Some(password)) => (user, password),
        (Some(line), None) => line.split_once(':').ok_or("neither user:password nor two lines")?,
        (None, _) => return Err("empty".to_owned()),
    };
    if lines.next().is_some() {
        return Err("more than two lines".to_owned());
    }
    if user.is_empty() || password.is_empty() {
        return Err("no user or no password".to_owned());
    }
    if user.contains(':') {
        return Err("two lines, and a user with a colon".to_owned());
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\r') {
        return Err("a control character".to_owned());
    }
    Ok((user, password))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use jobledger_testkit::scratch::Scratch;

    use super::*;

    fn put(dir: &Scratch, text: &str, mode: u32) -> PathBuf {
        let file = dir.path().join("credentials");
        write(&file, text).unwrap();
        set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn one_line_or_two() {
        for (text, user, password) in [
            ("monitor:secret", "monitor", "secret"),
            ("monitor:secret\n", "monitor", "secret"),
            ("monitor\nsecret\n", "monitor", "secret"),
            ("monitor\r\nsecret\r\n", "monitor", "secret"),
            ("monitor:a:b c#\n", "monitor", "a:b c#"),
            ("monitor\na:b\n", "monitor", "a:b"),
        ] {
            assert_eq!(parse_credentials(text.as_bytes()).unwrap(), (user, password), "{text:?}");
        }
        for bad in [
            "",
            "\n",
            "secret",
            "secret\n",
            ":secret",
            "secret:",
            "secret\n\n",
            "\nsecret\n",
            "a:b\nsecret\n",
            "a\nsecret\nc\n",
            "a:sec\u{7}ret",
        ] {
            let error = parse_credentials(bad.as_bytes()).unwrap_err();
            assert!(!error.contains("secret"), "{bad:?}: {error}");
        }
        assert!(parse_credentials(b"a:\xff").is_err());
    }

    #[test]
    fn a_file_that_all_users_may_read_is_refused() {
        let dir = Scratch::new("redfish-credentials");
        for mode in [0o600, 0o640, 0o400] {
            assert!(Credentials::open(&put(&dir, "monitor:secret", mode)).is_ok(), "{mode:o}");
        }
        for mode in [0o644, 0o602, 0o646] {
            let error = Credentials::open(&put(&dir, "monitor:secret", mode)).err().unwrap();
            assert!(error.ends_with("all users may read or write it: chmod o= FILE"), "{error}");
        }
        assert!(Credentials::open(&put(&dir, &"x".repeat(5000), 0o600)).is_err());
        assert!(Credentials::open(dir.path()).is_err());
        assert!(Credentials::open(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_changed_file_is_read_again_and_one_that_is_gone_is_not_missed() {
        let dir = Scratch::new("redfish-rotation");
        let file = put(&dir, "monitor:first", 0o600);
        let mut credentials = Credentials::open(&file).unwrap();
        let first = credentials.header();
        assert_eq!(first, "Basic bW9uaXRvcjpmaXJzdA==");
        assert_eq!(format!("{first:?}"), "Sensitive");
        credentials.refresh().unwrap();
        assert_eq!(credentials.header(), first);
        put(&dir, "monitor:another", 0o600);
        credentials.refresh().unwrap();
        assert_ne!(credentials.header(), first);
        let another = credentials.header();
        put(&dir, "another one without a colon", 0o600);
        let error = credentials.refresh().unwrap_err();
        assert!(error.ends_with("neither user:password nor two lines"), "{error}");
        std::fs::remove_file(&file).unwrap();
        credentials.refresh().unwrap();
        assert_eq!(credentials.header(), another);
    }
}
