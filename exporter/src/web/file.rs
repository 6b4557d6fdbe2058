//! Whether files of the web layer (its configuration, certificates and keys) have changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What tells one state of a file from the next, symbolic links followed (Kubernetes swaps a link).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// `None` when the file cannot be looked at, which is a state like any other.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Stamp::new(&metadata))
    }

    fn new(metadata: &Metadata) -> Self {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file has been left alone for this long. One that is being rewritten in place is cut off
    /// somewhere, and half a configuration can be a valid one. The change time cannot be set by hand; one in the
    /// future says that the clock was set back, and nothing else.
    pub(super) fn is_settled(&self, quiet: Duration, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.try_into().unwrap_or(0), nanoseconds.try_into().unwrap_or(0));
        now.duration_since(UNIX_EPOCH + changed).map_or(true, |age| age >= quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
