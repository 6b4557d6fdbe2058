//! The file of results of known work: left by one command, read by the exporter at its start.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use counter_validation::{Results, facts};
use kernel_files::{NodeFiles, Roots};
use rustix::fs::{FileType, Mode, OFlags, RawMode, fchmod, fstat, open};
use rustix::io::Errno;

/// Results are some 100 KiB on a node with several kinds of cores.
const MOST_BYTES: u64 = 4 << 20;
/// Every user may read them.
const READABLE: Mode = Mode::from_raw_mode(0o644);

/// The results of a file that hold for this node. One that does not is reported and not used.
pub(super) fn of_this_node(file: &Path, roots: &Roots) -> Option<Results> {
    let refuse =
        |why: &str| tracing::warn!(file = %file.display(), why, "results of known work are not used");
    let bytes = match read(file, 0) {
        Ok(bytes) => bytes,
        Err(Refused::Absent) => return None,
        Err(Refused::Why(why)) => {
            refuse(&why);
            return None;
        }
    };
    let node = facts::read(&mut NodeFiles::new(&Arc::new(roots.clone())));
    let results = Results::parse(&bytes).and_then(|results| results.hold_for(&node).map(|()| results));
    results.inspect_err(|error| refuse(&error.to_string())).ok()
}

#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Absent,
    Why(String),
}

/// Reads a file that belongs to `owner` and that nobody else may write.
fn read(file: &Path, owner: u32) -> Result<Vec<u8>, Refused> {
    let failed =
        |errno: Errno| if errno == Errno::NOENT { Refused::Absent } else { Refused::Why(errno.to_string()) };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = open(file, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    let others: RawMode = 0o022;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Refused::Why("it is no regular file".to_owned()));
    }
    if stat.st_uid != owner || stat.st_mode & others != 0 {
        return Err(Refused::Why("it is not root's alone to write".to_owned()));
    }
    let mut bytes = Vec::new();
    let read = File::from(file).take(MOST_BYTES).read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|error| Refused::Why(error.to_string()))
}

/// Leaves results, all or none of them.
pub(super) fn leave(file: &Path, text: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    if let Some(directory) = file.parent().filter(|directory| !directory.exists()) {
        rustix::fs::mkdir(directory, Mode::from_raw_mode(0o755)).map_err(|errno| failed(&errno))?;
    }
    let new = file.with_extension(format!("new-{}", rustix::process::getpid()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let written = open(&new, flags, READABLE).map_err(std::io::Error::from).and_then(|descriptor| {
        // Whatever the umask is.
        fchmod(&descriptor, READABLE)?;
        let mut written = File::from(descriptor);
        written.write_all(text.as_bytes())?;
        written.sync_all()?;
        rustix::fs::rename(&new, file).map_err(Into::into)
    });
    written.map_err(|error| {
        // It may never have been made.
        let _ = rustix::fs::unlink(&new);
        failed(&error)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("jobledger-results-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn what_is_left_is_readable_by_all_writable_by_its_owner_and_whole() {
        let directory = scratch("left");
        let file = directory.join("counters.json");
        for text in ["first\n", "second\n"] {
            leave(&file, text).unwrap();
            let meta = std::fs::metadata(&file).unwrap();
            assert_eq!(meta.permissions().mode() & 0o7777, 0o644);
            assert_eq!(read(&file, meta.uid()), Ok(text.as_bytes().to_vec()));
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing beside it");
        let below_a_file = leave(&file.join("x/y"), "").unwrap_err();
        assert!(below_a_file.contains("counters.json/x/y: "), "{below_a_file}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_none_is_not_read() {
        let directory = scratch("others");
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("counters.json");
        assert_eq!(read(&file, 0), Err(Refused::Absent));
        leave(&file, "text").unwrap();
        let owner = std::fs::metadata(&file).unwrap().uid();
        let refused = |file: &Path, owner| match read(file, owner) {
            Err(Refused::Why(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&file, owner + 1), "it is not root's alone to write");
        for mode in [0o664, 0o646] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(refused(&file, owner), "it is not root's alone to write");
        }
        assert_eq!(refused(&directory, owner), "it is no regular file");
        symlink(&file, directory.join("link")).unwrap();
        assert!(refused(&directory.join("link"), owner).contains("symbolic links"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
