//! A setting with two spellings: its text, or the file that holds it.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::RootCertStore;

use crate::file::read_config_file;
use crate::secret::Secret;
use crate::tls;

/// A text, and the key that gives it.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The text, or where it is.
    pub source: Source,
    /// The key, without its section.
    pub key: &'static str,
    section: &'static str,
}

/// Where the text of a setting is.
#[derive(Debug, Clone)]
pub enum Source {
    /// In the configuration itself.
    Inline(Secret),
    /// In a file of its own.
    File(PathBuf),
}

impl Setting {
    /// The one that is given of the two keys. A relative path starts in `dir`.
    ///
    /// The documents of Prometheus forbid both spellings at once; its code prefers the file in places, without a word.
    pub fn new(
        section: &'static str,
        (inline_key, inline): (&'static str, Option<String>),
        (file_key, file): (&'static str, Option<String>),
        dir: &Path,
    ) -> Result<Option<Self>, String> {
        let given = |text: &String| !text.is_empty();
        let (source, key) = match (inline.filter(given), file.filter(given)) {
            (None, None) => return Ok(None),
            (Some(text), None) => (Source::Inline(Secret(text)), inline_key),
            (None, Some(file)) => (Source::File(dir.join(file)), file_key),
            (Some(_), Some(_)) => return Err(format!("{inline_key} and {file_key} exclude each other")),
        };
        Ok(Some(Self { source, key, section }))
    }

    /// Names the key of the configuration, and the file if there is one.
    pub fn error(&self, reason: impl Display) -> String {
        let Self { source, key, section } = self;
        match source {
            Source::Inline(_) => format!("{section}.{key}: {reason}"),
            Source::File(path) => format!("{section}.{key}: {}: {reason}", path.display()),
        }
    }

    /// The text.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        match &self.source {
            Source::Inline(text) => Ok(text.0.clone().into_bytes()),
            Source::File(path) => read_config_file(path).map_err(|error| self.error(error)),
        }
    }

    /// The text of a password or a token. In a file of its own, space around it does not belong to it.
    pub fn secret(&self) -> Result<Secret, String> {
        let text = String::from_utf8(self.bytes()?).map_err(|_| self.error("not UTF-8"))?;
        Ok(Secret(match &self.source {
            Source::Inline(_) => text,
            Source::File(_) => text.trim().to_owned(),
        }))
    }

    /// The certificates of a PEM text.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        tls::certificates(&self.bytes()?).map_err(|why| self.error(why))
    }

    /// The authorities of a PEM text.
    pub fn authorities(&self) -> Result<RootCertStore, String> {
        tls::authorities(&self.bytes()?).map_err(|why| self.error(why))
    }

    /// The private key of a PEM text.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        tls::private_key(&self.bytes()?).map_err(|why| self.error(why))
    }
}
