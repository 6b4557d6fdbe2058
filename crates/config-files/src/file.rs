//! The administrator's files: how they are read, and how a change of one is noticed.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Far above any certificate chain.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a regular file of at most 1 MiB. Anything else might never end, or block: a FIFO, a device.
#[allow(clippy::disallowed_methods, reason = "not a kernel file: the administrator's own, of known size")]
pub fn read_config_file(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

/// One state of a file. Symbolic links are followed, since Kubernetes replaces a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// `None` for a file without metadata, such as a missing one. That is a state, too.
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Stamp::new(&metadata))
    }

    /// The state that was seen.
    pub fn new(metadata: &Metadata) -> Self {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file has not changed for this long. A file that is being rewritten in place is incomplete, and half
    /// a configuration can be a valid one. Users cannot set the change time (ctime); one in the future means that the
    /// clock was set back.
    pub fn is_settled(&self, quiet: Duration, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.try_into().unwrap_or(0), nanoseconds.try_into().unwrap_or(0));
        now.duration_since(UNIX_EPOCH + changed).map_or(true, |age| age >= quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_regular_files_are_read() {
        let dir = std::env::temp_dir().join(format!("config-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("large");
        std::fs::write(&file, vec![b'a'; 1024 * 1024]).unwrap();
        assert_eq!(read_config_file(&file).unwrap().len(), 1024 * 1024);
        std::fs::write(&file, vec![b'a'; 1024 * 1024 + 1]).unwrap();
        assert_eq!(read_config_file(&file).unwrap_err().to_string(), "larger than 1 MiB");
        assert_eq!(read_config_file(&dir).unwrap_err().to_string(), "not a regular file");
        assert_eq!(read_config_file(&dir.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read_config_file(Path::new("/dev/zero")).unwrap_err().to_string(), "not a regular file");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_settles_with_time_or_when_the_clock_was_set_back() {
        let changed = UNIX_EPOCH + Duration::from_secs(1000);
        let stamp = Stamp { device: 1, inode: 1, size: 1, modified: (0, 0), changed: (1000, 0) };
        let second = Duration::from_secs(1);
        assert!(!stamp.is_settled(second, changed));
        assert!(!stamp.is_settled(second, changed + second / 2));
        assert!(stamp.is_settled(second, changed + second));
        assert!(stamp.is_settled(second, changed - second));
    }
}
