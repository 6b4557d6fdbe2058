//! YAML, and errors that name a line and no value.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// An error in a configuration file, and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The configuration file.
    pub path: PathBuf,
    /// The line of the wrong key or value, or of the mapping that has a key twice.
    pub line: Option<usize>,
    /// The key and its error; the path of a file that it names, if that is wrong.
    pub reason: String,
}

impl ConfigError {
    /// One without a line.
    pub fn new(path: &Path, reason: impl Into<String>) -> Self {
        ConfigError { path: path.to_owned(), line: None, reason: reason.into() }
    }
}

/// Reads the text of a file.
pub fn read_yaml<T: DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<T, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        ConfigError { line: Some(line), ..ConfigError::new(path, "not UTF-8") }
    })?;
    serde_yaml::from_str(text).map_err(|error| {
        let at = error.location();
        let mut reason = error.to_string();
        if let Some(at) = &at {
            reason = reason.replacen(&format!(" at line {} column {}", at.line(), at.column()), "", 1);
        }
        let line = at.map(|at| at.line());
        ConfigError { line, ..ConfigError::new(path, without_value(reason)) }
    })
}

/// serde repeats a value of the wrong type, which might be a password. Only its type may be logged.
fn without_value(reason: String) -> String {
    let Some((before, rest)) = reason.split_once("invalid type: ") else { return reason };
    let Some((found, expected)) = rest.rsplit_once(", expected ") else { return reason };
    let found = found.split(['"', '`']).next().unwrap_or_default().trim_end();
    format!("{before}invalid type: {found}, expected {expected}")
}
