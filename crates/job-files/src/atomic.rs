//! A file that is whole or not there at all.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Has a file written beside `path` and puts it in its place once it is whole. If anything fails, what was there before is as it was.
///
/// A file that was there keeps its permissions, and a symbolic link to it remains one. What is no file, a device or a pipe, is written to as it
/// is.
pub fn write<T, E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let old = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Some((std::fs::canonicalize(path)?, metadata.permissions())),
        Ok(_) => {
            let mut to = BufWriter::new(OpenOptions::new().write(true).open(path)?);
            let filled = fill(&mut to)?;
            to.flush()?;
            return Ok(filled);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let path = old.as_ref().map_or(path, |(path, _)| path.as_path());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Of the mode, the umask takes away what it takes of any new file.
    let (file, temporary) = tempfile::Builder::new()
        .prefix(".jobledger-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)
        .map_err(|error| in_directory(directory, &error))?
        .into_parts();
    if let Some((_, permissions)) = &old {
        file.set_permissions(permissions.clone())?;
    }
    let mut to = BufWriter::new(file);
    let filled = fill(&mut to)?;
    to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    temporary.persist(path).map_err(io::Error::from)?;
    Ok(filled)
}

/// The name of the file beside `path` says nothing to whoever asked for that one.
fn in_directory(directory: &Path, error: &io::Error) -> io::Error {
    let says = match error.kind() {
        io::ErrorKind::NotFound => format!("there is no directory {}", directory.display()),
        kind => format!("no file can be made in {}: {kind}", directory.display()),
    };
    io::Error::new(error.kind(), says)
}

#[cfg(test)]
mod tests;
