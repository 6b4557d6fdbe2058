//! Fixture machines: what a compute node shows under `/sys/fs/cgroup`, `/proc`, `/sys`, `/run` and `/dev`, kept as one text
//! archive per machine and unpacked for the exporter to read. The format is described in `tests/fixtures/README.md`.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::scratch::Scratch;

/// What an archive line describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file and its exact content.
    File(Vec<u8>),
    /// A symbolic link and its target.
    Link(PathBuf),
    /// A FIFO: opening it for reading blocks until a writer comes.
    Fifo,
}

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the machine's root, without `.` or `..`.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// User and group id; `None` leaves the ones of the unpacking process.
    pub owner: Option<(u32, u32)>,
}

/// Why an archive was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchiveError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ArchiveError {}

/// Parses a machine archive.
///
/// # Errors
/// Anything that is not exactly the documented format, with its line: a fixture that is silently read differently from what
/// its author meant would prove the wrong thing.
pub fn parse_archive(text: &str) -> Result<Vec<Entry>, ArchiveError> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut seen = HashSet::new();
    let mut dir = PathBuf::new();
    let mut content_open = false;
    for (index, line) in text.split_terminator('\n').enumerate() {
        let fail = |reason: &str| ArchiveError { line: index + 1, reason: reason.to_owned() };
        if let Some(escaped) = line.strip_prefix('|') {
            let Some(Entry { kind: Kind::File(content), .. }) = entries.last_mut().filter(|_| content_open)
            else {
                return Err(fail("content without a file"));
            };
            let newline = append_content(content, escaped).map_err(|e| fail(&e))?;
            if !newline {
                // "\" at the end joins the next content line to this one, or ends the file without a newline.
                continue;
            }
            content.push(b'\n');
            continue;
        }
        content_open = false;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split(' ');
        let keyword = words.next().unwrap_or_default();
        let name = words.next().filter(|n| !n.is_empty()).ok_or_else(|| fail("no name"))?;
        let name = relative_path(name).map_err(|e| fail(&e))?;
        let (path, kind) = match keyword {
            "dir" => {
                dir.clone_from(&name);
                (name, Kind::Dir)
            }
            "file" => (dir.join(name), Kind::File(Vec::new())),
            "fifo" => (dir.join(name), Kind::Fifo),
            "link" => {
                if words.next() != Some("->") {
                    return Err(fail("a link is written: link NAME -> TARGET"));
                }
                let target = words.next().ok_or_else(|| fail("no link target"))?;
                let target = unescape(target).map_err(|e| fail(&e))?;
                (dir.join(name), Kind::Link(PathBuf::from(std::ffi::OsStr::from_bytes(&target))))
            }
            _ => return Err(fail("not one of dir, file, link, fifo, '|' or '#'")),
        };
        content_open = matches!(kind, Kind::File(_));
        let mut entry =
            Entry { mode: if kind == Kind::Dir { 0o755 } else { 0o644 }, path, kind, owner: None };
        for attribute in words {
            match attribute.split_once('=') {
                Some(("mode", octal)) => {
                    entry.mode = u32::from_str_radix(octal, 8)
                        .ok()
                        .filter(|m| *m <= 0o7777)
                        .ok_or_else(|| fail("mode is not octal"))?;
                }
                Some(("owner", ids)) => {
                    let parsed =
                        ids.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
                    entry.owner = Some(parsed.ok_or_else(|| fail("owner is not UID:GID"))?);
                }
                _ => return Err(fail("unknown attribute")),
            }
        }
        if !seen.insert(entry.path.clone()) {
            return Err(fail("described twice"));
        }
        entries.push(entry);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(ArchiveError { line: text.split('\n').count(), reason: "torn last line".to_owned() });
    }
    Ok(entries)
}

/// Appends one content line; false if it says that no newline follows.
fn append_content(content: &mut Vec<u8>, escaped: &str) -> Result<bool, String> {
    let backslashes = escaped.bytes().rev().take_while(|b| *b == b'\\').count();
    let joined = backslashes % 2 == 1;
    let body = if joined { escaped.get(..escaped.len() - 1).unwrap_or_default() } else { escaped };
    content.extend(unescape(body)?);
    Ok(!joined)
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next() {
                Some(b'\\') => out.push(b'\\'),
                Some(b'0') => out.push(0),
                Some(b'x') => {
                    let digits = [rest.next().unwrap_or(b' '), rest.next().unwrap_or(b' ')];
                    let digits = std::str::from_utf8(&digits).unwrap_or(" ");
                    out.push(
                        u8::from_str_radix(digits, 16).map_err(|_| "\\x wants two hex digits".to_owned())?,
                    );
                }
                _ => return Err("unknown escape".to_owned()),
            },
            0..=8 | 10..=31 | 127 => return Err("a control character that is not escaped".to_owned()),
            _ => out.push(byte),
        }
    }
    Ok(out)
}

fn relative_path(name: &str) -> Result<PathBuf, String> {
    let bytes = unescape(name)?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
    let plain = !bytes.contains(&0)
        && !bytes.ends_with(b"/")
        && path.components().all(|c| matches!(c, Component::Normal(_)))
        && path.components().count() == bytes.split(|b| *b == b'/').count();
    if plain { Ok(path) } else { Err("not a plain relative path".to_owned()) }
}

/// An unpacked machine that a test may change before, and while, the exporter reads it.
///
/// Every method panics with the path on failure: a fixture that cannot be laid out is a failed test.
#[derive(Debug)]
pub struct Machine {
    root: PathBuf,
    owners_applied: bool,
    _scratch: Option<Scratch>,
}

impl Machine {
    /// Unpacks an archive file into a directory, which is made if it is missing.
    #[must_use]
    pub fn unpack(archive: &Path, into_dir: &Path) -> Self {
        let text = fs::read_to_string(archive).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
        let entries = parse_archive(&text).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
        Self::lay_out(&entries, into_dir)
    }

    /// Unpacks `tests/fixtures/<name>/machine.txt` into a directory of its own, which goes when this value does.
    #[must_use]
    pub fn fixture(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let mut machine = Self::unpack(&fixtures_dir().join(name).join("machine.txt"), scratch.path());
        machine._scratch = Some(scratch);
        machine
    }

    /// A machine with the five top directories and nothing in them, to be built up by a test.
    #[must_use]
    pub fn empty() -> Self {
        let scratch = Scratch::new("machine");
        let mut machine = Self::lay_out(&[], scratch.path());
        machine._scratch = Some(scratch);
        for top in ["cgroup", "proc", "sys", "run/jobledger/jobs", "dev"] {
            machine.mkdir(top);
        }
        machine
    }

    /// Lays parsed entries out below a directory.
    #[must_use]
    pub fn lay_out(entries: &[Entry], into_dir: &Path) -> Self {
        fs::create_dir_all(into_dir).unwrap_or_else(|e| panic!("{}: {e}", into_dir.display()));
        let machine = Self {
            root: into_dir.to_path_buf(),
            owners_applied: rustix::process::geteuid().is_root(),
            _scratch: None,
        };
        for entry in entries {
            match &entry.kind {
                Kind::Dir => machine.mkdir(&entry.path),
                Kind::File(content) => machine.write(&entry.path, content),
                Kind::Link(target) => machine.symlink(&entry.path, target),
                Kind::Fifo => machine.fifo(&entry.path),
            };
        }
        // Children first: a directory without the write or search bit could not be filled.
        for entry in entries.iter().rev() {
            let path = machine.root.join(&entry.path);
            if let Some((uid, gid)) = entry.owner.filter(|_| machine.owners_applied) {
                lchown(&path, Some(uid), Some(gid)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            }
            if !matches!(entry.kind, Kind::Link(_)) {
                set_mode(&path, entry.mode);
            }
        }
        machine
    }

    /// The directory that holds `cgroup`, `proc`, `sys`, `run` and `dev`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path of the machine as a path of this host.
    #[must_use]
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        let relative = relative.as_ref();
        assert!(relative.is_relative(), "{} would leave the machine", relative.display());
        self.root.join(relative)
    }

    /// Where prolog scripts leave what they know about a job.
    #[must_use]
    pub fn jobs_dir(&self) -> PathBuf {
        self.path("run/jobledger/jobs")
    }

    /// The flags that make the exporter read this machine instead of the host.
    #[must_use]
    pub fn path_flags(&self) -> Vec<String> {
        [("cgroupfs", "cgroup"), ("procfs", "proc"), ("sysfs", "sys"), ("dev", "dev")]
            .map(|(flag, top)| format!("--path.{flag}={}", self.path(top).display()))
            .to_vec()
    }

    /// Whether the owners of the archive are in force, which needs root.
    #[must_use]
    pub fn owners_applied(&self) -> bool {
        self.owners_applied
    }

    /// Writes a file, and the directories above it.
    pub fn write(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        let path = self.with_parent(relative.as_ref());
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// The content of a file.
    #[must_use]
    pub fn read(&self, relative: impl AsRef<Path>) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Removes a file, or a directory with everything below it.
    pub fn remove(&self, relative: impl AsRef<Path>) -> &Self {
        let path = self.path(relative);
        let is_dir = fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Makes a directory and those above it.
    pub fn mkdir(&self, relative: impl AsRef<Path>) -> &Self {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Moves a file or directory; with `copy_tree`, how a test replaces a job's directory by another run of it.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> &Self {
        let (from, to) = (self.path(from), self.with_parent(to.as_ref()));
        fs::rename(&from, &to).unwrap_or_else(|e| panic!("{} to {}: {e}", from.display(), to.display()));
        self
    }

    /// Copies directories and regular files; new inodes, as a requeued job has.
    pub fn copy_tree(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> &Self {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.mkdir(to);
        let source = self.path(from);
        for item in fs::read_dir(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display())) {
            let item = item.unwrap_or_else(|e| panic!("{}: {e}", source.display()));
            let (from, to) = (from.join(item.file_name()), to.join(item.file_name()));
            let kind = item.file_type().unwrap_or_else(|e| panic!("{}: {e}", from.display()));
            if kind.is_dir() {
                self.copy_tree(&from, &to);
            } else if kind.is_file() {
                let content = fs::read(item.path()).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
                self.write(&to, content);
            }
        }
        self
    }

    /// Makes directories and, in them, hard links to the regular files of another tree: many copies for little memory.
    pub fn link_tree(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> &Self {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.mkdir(to);
        let source = self.path(from);
        for item in fs::read_dir(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display())).flatten() {
            let (from, to) = (from.join(item.file_name()), to.join(item.file_name()));
            if item.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.link_tree(&from, &to);
            } else {
                fs::hard_link(item.path(), self.path(&to))
                    .unwrap_or_else(|e| panic!("{}: {e}", to.display()));
            }
        }
        self
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, relative: impl AsRef<Path>, target: impl AsRef<Path>) -> &Self {
        let path = self.with_parent(relative.as_ref());
        symlink(target, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Makes a FIFO in the place of whatever is there: a read that hangs.
    pub fn fifo(&self, relative: impl AsRef<Path>) -> &Self {
        let path = self.with_parent(relative.as_ref());
        if fs::symlink_metadata(&path).is_ok() {
            self.remove(&relative);
        }
        mknodat(CWD, &path, FileType::Fifo, Mode::from_bits_truncate(0o644), 0)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// Changes the owner; false, and nothing done, unless root.
    pub fn chown(&self, relative: impl AsRef<Path>, uid: u32, gid: u32) -> bool {
        let path = self.path(relative);
        if self.owners_applied {
            chown(&path, Some(uid), Some(gid)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        self.owners_applied
    }

    /// Changes the permission bits. Mode 000 stops everybody but root.
    pub fn chmod(&self, relative: impl AsRef<Path>, mode: u32) -> &Self {
        set_mode(&self.path(relative), mode);
        self
    }

    fn with_parent(&self, relative: &Path) -> PathBuf {
        let path = self.path(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        }
        path
    }
}

/// `tests/fixtures` of the repository.
#[must_use]
pub fn fixtures_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The names of all fixture machines, sorted.
#[must_use]
pub fn fixture_names() -> Vec<String> {
    let dir = fixtures_dir();
    let mut names: Vec<String> = fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .flatten()
        .filter(|entry| entry.path().join("machine.txt").is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[cfg(test)]
mod tests;
