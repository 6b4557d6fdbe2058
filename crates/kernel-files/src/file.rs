//! The only reader of kernel files: directories held by descriptor, a size cap, and errno
//! classes instead of `std::io::ErrorKind` (which has no name for ENODEV, the answer of a removed cgroup).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir as ReadDir, FileType, Mode, OFlags, StatxFlags, fstat, fstatfs, makedev, openat,
    statat, statx,
};
use rustix::io::{Errno, read};

use crate::buffer::{Buffer, Content, Last, SIZE_CAP, from_start};

/// Why a kernel file or directory gave no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadError {
    /// ENOENT, ESRCH or ENODEV: the object, or this file of it, is not there (any more).
    Gone,
    /// EACCES or EPERM.
    Denied,
    /// EOPNOTSUPP or ENOSYS: the kernel has the file but not the feature behind it (PSI disabled at boot).
    Unsupported,
    /// The content is larger than [`SIZE_CAP`].
    TooLarge,
    /// Any other errno.
    Io(i32),
}

impl ReadError {
    /// Sorts an errno into its class.
    pub fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::SRCH | Errno::NODEV => Self::Gone,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::Unsupported,
            other => Self::Io(other.raw_os_error()),
        }
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("not there"),
            Self::Denied => f.write_str("permission denied"),
            Self::Unsupported => f.write_str("not supported by this kernel"),
            Self::TooLarge => write!(f, "larger than {SIZE_CAP} bytes"),
            Self::Io(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl std::error::Error for ReadError {}

const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);
const DIR_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Owner, inode and kind of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Owner's uid.
    pub uid: u32,
    /// Group's gid.
    pub gid: u32,
    /// Inode number; on cgroupfs it is the cgroup's id and never reused while the kernel runs.
    pub inode: u64,
    /// Device number of the file system.
    pub device: u64,
    /// Links; of a directory of the kernel's file systems its subdirectories and two more.
    pub links: u64,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes; kernel files say 0.
    pub size: u64,
    /// Modification time, whole seconds since the epoch.
    pub mtime: i64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Its kind.
    pub kind: FileType,
}

impl Stat {
    /// Whether a directory has no subdirectory. On file systems that do not count their links this is not known, and false.
    pub fn has_no_directory(self) -> bool {
        self.links == 2
    }
}

impl From<rustix::fs::Stat> for Stat {
    #[allow(clippy::useless_conversion, reason = "the number of links has 32 bits on aarch64")]
    fn from(s: rustix::fs::Stat) -> Self {
        Self {
            uid: s.st_uid,
            gid: s.st_gid,
            inode: s.st_ino,
            device: s.st_dev,
            links: u64::from(s.st_nlink),
            mode: s.st_mode & 0o7777,
            size: u64::try_from(s.st_size).unwrap_or(0),
            mtime: s.st_mtime,
            rdev: s.st_rdev,
            kind: FileType::from_raw_mode(s.st_mode),
        }
    }
}

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// File name, lossy UTF-8: no name that matters here has any other.
    pub name: String,
    /// Inode number as `readdir` gives it.
    pub inode: u64,
    /// Kind; `Unknown` where the file system does not say.
    pub kind: FileType,
}

/// A file of a kernel file system that is held open, and read from its beginning each time with pread(2). The kernel
/// makes its content anew for each reading at offset 0 (fs/seq_file.c `seq_read_iter`).
#[derive(Debug)]
pub struct File(OwnedFd);

impl File {
    /// Reads the whole file into the buffer; how many bytes it has. [`ReadError::Gone`] when the object is gone.
    pub fn read(&self, content: Content, buffer: &mut Buffer) -> Result<usize, ReadError> {
        match buffer.fill_to(content.last(), SIZE_CAP, from_start(self.0.as_fd()))? {
            (len, true) => Ok(len),
            (_, false) => Err(ReadError::TooLarge),
        }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A directory held open by descriptor, so that later reads cannot be redirected by a rename.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by path. Symbolic links are followed: this is for the roots, which root owns.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        openat(CWD, path, DIR_FLAGS, Mode::empty()).map(Self).map_err(ReadError::from_errno)
    }

    /// Opens a directory below one that is held open for reading.
    pub(crate) fn open_at(held: BorrowedFd<'_>, relative: &str) -> Result<Self, ReadError> {
        openat(held, relative, DIR_FLAGS, Mode::empty()).map(Self).map_err(ReadError::from_errno)
    }

    /// Opens a subdirectory; a symbolic link in its last component is refused.
    pub fn open_dir(&self, relative: &str) -> Result<Self, ReadError> {
        openat(&self.0, relative, DIR_FLAGS | OFlags::NOFOLLOW, Mode::empty())
            .map(Self)
            .map_err(ReadError::from_errno)
    }

    /// Opens a subdirectory through a symbolic link (sysfs classes are made of them).
    pub fn open_link(&self, relative: &str) -> Result<Self, ReadError> {
        openat(&self.0, relative, DIR_FLAGS, Mode::empty()).map(Self).map_err(ReadError::from_errno)
    }

    /// Opens a file that is to be read again and again.
    pub fn open_file(&self, relative: &str) -> Result<File, ReadError> {
        openat(&self.0, relative, FILE_FLAGS, Mode::empty()).map(File).map_err(ReadError::from_errno)
    }

    /// Whether this is a directory of the kernel's cgroup file systems, v1 or v2 (statfs(2)), and no imitation of one.
    pub fn is_cgroup(&self) -> bool {
        const CGROUP_V1: u64 = 0x0027_e0eb;
        const CGROUP_V2: u64 = 0x6367_7270;
        matches!(self.file_system(), Some(CGROUP_V1 | CGROUP_V2))
    }

    /// Whether this is a directory of procfs or sysfs (statfs(2)).
    pub fn is_proc_or_sys(&self) -> bool {
        const PROC: u64 = 0x9fa0;
        const SYS: u64 = 0x6265_6572;
        matches!(self.file_system(), Some(PROC | SYS))
    }

    /// The magic number of its file system (include/uapi/linux/magic.h).
    fn file_system(&self) -> Option<u64> {
        fstatfs(&self.0).ok().and_then(|s| u64::try_from(s.f_type).ok())
    }

    /// Reads a whole file.
    pub fn read<'b>(&self, relative: &str, buffer: &'b mut Buffer) -> Result<&'b [u8], ReadError> {
        let fd = openat(&self.0, relative, FILE_FLAGS, Mode::empty()).map_err(ReadError::from_errno)?;
        buffer.fill(fd.as_fd(), Last::EMPTY)
    }

    /// Reads a file that the kernel writes as one record (`cpu.stat`, `memory.stat`, PSI): one `read` is
    /// enough when it leaves room in the buffer (kernfs `seq_show`, fs/seq_file.c `seq_read_iter`).
    pub fn read_record<'b>(&self, relative: &str, buffer: &'b mut Buffer) -> Result<&'b [u8], ReadError> {
        let fd = openat(&self.0, relative, FILE_FLAGS, Mode::empty()).map_err(ReadError::from_errno)?;
        buffer.fill(fd.as_fd(), Last::FIRST)
    }

    /// Reads a list of ids (`cgroup.procs`, `tasks`) to its end, which costs a second `read` only when it is long
    /// (fs/seq_file.c `seq_read_iter`: as many lines as fit in its buffer of a page or more).
    pub fn read_list<'b>(&self, relative: &str, buffer: &'b mut Buffer) -> Result<&'b [u8], ReadError> {
        let fd = openat(&self.0, relative, FILE_FLAGS, Mode::empty()).map_err(ReadError::from_errno)?;
        buffer.fill(fd.as_fd(), Last::HALF_PAGE)
    }

    /// Reads a file of records that may be longer than a page (`mountstats`) to its end or to `cap` bytes, which may be
    /// beyond [`SIZE_CAP`], and says whether that was its end. Of a longer one whole lines are given.
    pub fn read_long<'b>(
        &self,
        relative: &str,
        buffer: &'b mut Buffer,
        cap: usize,
    ) -> Result<(&'b [u8], bool), ReadError> {
        let fd = openat(&self.0, relative, FILE_FLAGS, Mode::empty()).map_err(ReadError::from_errno)?;
        let (len, whole) = buffer.fill_to(Last::EMPTY, cap, |free, _| read(&fd, free))?;
        buffer.whole_lines(len, whole)
    }

    /// Reads the beginning of a file: what one `read` gives, which is whole records where the kernel writes
    /// records (fs/seq_file.c). For files beyond [`SIZE_CAP`], such as `cpuinfo` of 768 CPUs.
    pub fn read_start<'b>(&self, relative: &str, buffer: &'b mut Buffer) -> Result<&'b [u8], ReadError> {
        let fd = openat(&self.0, relative, FILE_FLAGS, Mode::empty()).map_err(ReadError::from_errno)?;
        loop {
            match read(&fd, buffer.room()) {
                Ok(len) => return buffer.filled(len).ok_or(ReadError::TooLarge),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ReadError::from_errno(errno)),
            }
        }
    }

    /// Reads a regular file that only `owner` (or root) can have written: neither the file nor this directory is
    /// writable by group or others. FIFOs and the like are refused without waiting.
    pub fn read_owned<'b>(
        &self,
        relative: &str,
        owner: u32,
        buffer: &'b mut Buffer,
    ) -> Result<&'b [u8], ReadError> {
        let trusted = |s: &Stat| (s.uid == owner || s.uid == 0) && s.mode & 0o022 == 0;
        if !trusted(&self.stat()?) {
            return Err(ReadError::Denied);
        }
        let fd = openat(&self.0, relative, FILE_FLAGS | OFlags::NONBLOCK, Mode::empty())
            .map_err(ReadError::from_errno)?;
        let stat = Stat::from(fstat(&fd).map_err(ReadError::from_errno)?);
        if stat.kind != FileType::RegularFile || !trusted(&stat) {
            return Err(ReadError::Denied);
        }
        buffer.fill(fd.as_fd(), Last::EMPTY)
    }

    /// What this directory is.
    pub fn stat(&self) -> Result<Stat, ReadError> {
        fstat(&self.0).map(Stat::from).map_err(ReadError::from_errno)
    }

    /// What a file in it is, links not followed.
    pub fn stat_of(&self, relative: &str) -> Result<Stat, ReadError> {
        statat(&self.0, relative, AtFlags::SYMLINK_NOFOLLOW).map(Stat::from).map_err(ReadError::from_errno)
    }

    /// The target of a link: its device number, 0 if it is no character device, its file system and inode, from the
    /// kernel's cache and without asking a server. Needs statx(2), Linux 4.11.
    pub fn stat_through(&self, relative: &str) -> Result<(u64, (u64, u64)), ReadError> {
        let mask = StatxFlags::TYPE | StatxFlags::INO;
        let s = statx(&self.0, relative, AtFlags::STATX_DONT_SYNC, mask).map_err(ReadError::from_errno)?;
        let character = FileType::from_raw_mode(s.stx_mode.into()) == FileType::CharacterDevice;
        let number = if character { makedev(s.stx_rdev_major, s.stx_rdev_minor) } else { 0 };
        Ok((number, (makedev(s.stx_dev_major, s.stx_dev_minor), s.stx_ino)))
    }

    /// Target of a symbolic link, lossy UTF-8.
    pub fn read_link(&self, relative: &str) -> Result<String, ReadError> {
        rustix::fs::readlinkat(&self.0, relative, Vec::new())
            .map(|target| target.to_string_lossy().into_owned())
            .map_err(ReadError::from_errno)
    }

    /// Whether the name exists.
    pub fn has(&self, relative: &str) -> bool {
        self.stat_of(relative).is_ok()
    }

    /// Whether a file may not be opened for reading.
    pub(crate) fn is_denied(&self, relative: &str) -> bool {
        let opened = openat(&self.0, relative, FILE_FLAGS | OFlags::NONBLOCK, Mode::empty());
        opened.map_err(ReadError::from_errno).is_err_and(|error| error == ReadError::Denied)
    }

    /// A descriptor of this directory for calls that refuse one that only names it (perf_event_open(2)).
    pub fn readable(&self) -> Result<OwnedFd, ReadError> {
        self.readable_below(".")
    }

    fn readable_below(&self, relative: &str) -> Result<OwnedFd, ReadError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.0, relative, flags, Mode::empty()).map_err(ReadError::from_errno)
    }

    /// Calls `f` for every entry but `.` and `..`, in the kernel's order.
    pub fn for_each(&self, f: impl FnMut(&[u8], u64, FileType)) -> Result<(), ReadError> {
        self.for_each_below(".", f)
    }

    /// The same for a subdirectory; a symbolic link in its last component is refused.
    pub fn for_each_below(
        &self,
        relative: &str,
        mut f: impl FnMut(&[u8], u64, FileType),
    ) -> Result<(), ReadError> {
        let mut listing = ReadDir::new(self.readable_below(relative)?).map_err(ReadError::from_errno)?;
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(ReadError::from_errno)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                f(name, entry.ino(), entry.file_type());
            }
        }
        Ok(())
    }

    /// Every entry, sorted by name.
    pub fn list(&self) -> Result<Vec<Entry>, ReadError> {
        let mut entries = Vec::new();
        self.for_each(|name, inode, kind| {
            entries.push(Entry { name: String::from_utf8_lossy(name).into_owned(), inode, kind });
        })?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Names of the subdirectories, sorted. File systems without kinds in their entries are asked name by name.
    pub fn directories(&self) -> Result<Vec<Entry>, ReadError> {
        let mut entries = self.list()?;
        entries.retain(|e| match e.kind {
            FileType::Directory => true,
            FileType::Unknown => self.stat_of(&e.name).is_ok_and(|s| s.kind == FileType::Directory),
            _ => false,
        });
        Ok(entries)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("jobledger-kernel-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn enodev_counts_as_gone_and_eio_keeps_its_number() {
        assert_eq!(ReadError::from_errno(Errno::NODEV), ReadError::Gone);
        assert_eq!(ReadError::from_errno(Errno::NOENT), ReadError::Gone);
        assert_eq!(ReadError::from_errno(Errno::SRCH), ReadError::Gone);
        assert_eq!(ReadError::from_errno(Errno::ACCESS), ReadError::Denied);
        assert_eq!(ReadError::from_errno(Errno::OPNOTSUPP), ReadError::Unsupported);
        assert_eq!(ReadError::from_errno(Errno::IO), ReadError::Io(5));
    }

    #[test]
    fn a_file_larger_than_the_buffer_is_read_whole_and_one_over_the_cap_is_refused() {
        let dir = scratch("cap");
        std::fs::write(dir.join("big"), vec![b'x'; 100_000]).unwrap();
        std::fs::write(dir.join("huge"), vec![b'x'; SIZE_CAP + 1]).unwrap();
        let d = Dir::open(&dir).unwrap();
        let mut buffer = Buffer::default();
        assert_eq!(d.read("big", &mut buffer).unwrap().len(), 100_000);
        assert_eq!(d.read_record("big", &mut buffer).unwrap().len(), 100_000);
        assert_eq!(d.read_list("big", &mut Buffer::default()).unwrap().len(), 100_000);
        assert_eq!(d.read("huge", &mut buffer), Err(ReadError::TooLarge));
        let start = d.read_start("huge", &mut Buffer::default()).unwrap().len();
        assert!((4096..SIZE_CAP).contains(&start), "{start}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_that_is_held_open_is_read_from_its_beginning_each_time() {
        let dir = scratch("held");
        std::fs::write(dir.join("list"), vec![b'x'; 10_000]).unwrap();
        let d = Dir::open(&dir).unwrap();
        let file = d.open_file("list").unwrap();
        let mut buffer = Buffer::default();
        for content in [Content::Record, Content::List] {
            assert_eq!(file.read(content, &mut buffer), Ok(10_000));
            assert_eq!(buffer.filled(10_000), Some(&[b'x'; 10_000][..]));
        }
        std::fs::write(dir.join("list"), b"12\n").unwrap();
        assert_eq!(file.read(Content::List, &mut buffer), Ok(3));
        assert_eq!(buffer.filled(3), Some(&b"12\n"[..]));
        assert!(!d.is_cgroup(), "an ordinary directory");
        assert!(matches!(d.open_file("none"), Err(ReadError::Gone)));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn of_a_long_file_whole_lines_are_read_up_to_the_cap() {
        let dir = scratch("long");
        std::fs::write(dir.join("long"), "0123456789abcde\n".repeat(100_000)).unwrap();
        let d = Dir::open(&dir).unwrap();
        let (bytes, whole) =
            d.read_long("long", &mut Buffer::default(), 2 << 20).map(|(b, w)| (b.len(), w)).unwrap();
        assert_eq!((bytes, whole), (1_600_000, true), "beyond what other files may have");
        let (bytes, whole) =
            d.read_long("long", &mut Buffer::default(), 100_001).map(|(b, w)| (b.len(), w)).unwrap();
        assert_eq!((bytes, whole), (100_000, false));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn links_and_files_others_can_write_are_not_trusted() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = scratch("owned");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(dir.join("good"), b"1").unwrap();
        std::fs::set_permissions(dir.join("good"), std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::write(dir.join("open"), b"1").unwrap();
        std::fs::set_permissions(dir.join("open"), std::fs::Permissions::from_mode(0o666)).unwrap();
        symlink("good", dir.join("link")).unwrap();
        let d = Dir::open(&dir).unwrap();
        let me = d.stat().unwrap().uid;
        let mut buffer = Buffer::default();
        assert_eq!(d.read_owned("good", me, &mut buffer).unwrap(), b"1");
        assert_eq!(d.read_owned("open", me, &mut buffer), Err(ReadError::Denied));
        assert!(d.read_owned("link", me, &mut buffer).is_err());
        assert!(d.read("link", &mut buffer).is_err(), "O_NOFOLLOW");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(d.read_owned("good", me, &mut buffer), Err(ReadError::Denied));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
