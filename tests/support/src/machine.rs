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

    /// Moves a file or directory; with `copy_tree`, how a test replaces a job's directory by another life of it.
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
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    use super::*;

    fn content(archive: &str) -> Vec<u8> {
        match parse_archive(archive).unwrap().pop().unwrap().kind {
            Kind::File(content) => content,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn content_is_exact() {
        for (text, expected) in [
            ("file f\n", &b""[..]),
            ("file f\n|\n", b"\n"),
            ("file f\n|a\n|b\n", b"a\nb\n"),
            ("file f\n|a\\\n", b"a"),
            ("file f\n|a\\0\\\n|b\\0\\\n", b"a\0b\0"),
            ("file f\n|a\\\\\n", b"a\\\n"),
            ("file f\n|a\\\\\\\n", b"a\\"),
            ("file f\n|\ttab\\x20\n", b"\ttab \n"),
            ("file f\n|\\xff\\xFE\n", b"\xff\xfe\n"),
            ("file f\n|#not a comment\n", b"#not a comment\n"),
            ("file f\n||\n", b"|\n"),
            ("file f\n|\u{e9}\n", "\u{e9}\n".as_bytes()),
        ] {
            assert_eq!(content(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_are_relative_to_the_last_directory() {
        let entries =
            parse_archive("dir a/b\nfile c\nfile d/e\ndir f\nlink g -> ../x\\x20y\nfifo h\n").unwrap();
        let paths: Vec<_> = entries.iter().map(|e| e.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a/b", "a/b/c", "a/b/d/e", "f", "f/g", "f/h"]);
        assert_eq!(entries[4].kind, Kind::Link("../x y".into()));
        assert_eq!(entries[5].kind, Kind::Fifo);
    }

    #[test]
    fn attributes_are_read() {
        let entries = parse_archive("dir a owner=1:2\nfile b mode=0400 owner=3:4\n").unwrap();
        assert_eq!((entries[0].mode, entries[0].owner), (0o755, Some((1, 2))));
        assert_eq!((entries[1].mode, entries[1].owner), (0o400, Some((3, 4))));
    }

    #[test]
    fn what_is_not_the_format_is_refused_with_its_line() {
        for (text, line, reason) in [
            ("dir\n", 1, "no name"),
            ("\n# c\nfolder x\n", 3, "not one of dir, file, link, fifo, '|' or '#'"),
            ("|x\n", 1, "content without a file"),
            ("dir d\n|x\n", 2, "content without a file"),
            ("file f\n\n|x\n", 3, "content without a file"),
            ("file ../f\n", 1, "not a plain relative path"),
            ("file /f\n", 1, "not a plain relative path"),
            ("file a//f\n", 1, "not a plain relative path"),
            ("file a/./f\n", 1, "not a plain relative path"),
            ("file f\\0\n", 1, "not a plain relative path"),
            ("file f\nfile f\n", 2, "described twice"),
            ("file f mode=9\n", 1, "mode is not octal"),
            ("file f owner=root\n", 1, "owner is not UID:GID"),
            ("file f size=1\n", 1, "unknown attribute"),
            ("link l\n", 1, "a link is written: link NAME -> TARGET"),
            ("file f\n|\\q\n", 2, "unknown escape"),
            ("file f\n|\\x2\n", 2, "\\x wants two hex digits"),
            ("file f\n|\r\n", 2, "a control character that is not escaped"),
            ("file f\n|x", 2, "torn last line"),
        ] {
            let error = parse_archive(text).unwrap_err();
            assert_eq!((error.line, error.reason.as_str()), (line, reason), "{text:?}");
        }
    }

    #[test]
    fn is_laid_out_as_described() {
        let text = "dir proc/1 owner=1001:1002\nfile cmdline\n|a\\0\\\nfile closed mode=000\nlink cwd -> /\n\
                    fifo hangs\ndir cgroup/empty mode=0555\n";
        let scratch = Scratch::new("layout");
        let machine = Machine::lay_out(&parse_archive(text).unwrap(), scratch.path());
        assert_eq!(machine.read("proc/1/cmdline"), "a\0");
        assert_eq!(fs::metadata(machine.path("proc/1/closed")).unwrap().mode() & 0o7777, 0);
        assert_eq!(fs::read_link(machine.path("proc/1/cwd")).unwrap(), Path::new("/"));
        assert!(fs::symlink_metadata(machine.path("proc/1/hangs")).unwrap().file_type().is_fifo());
        assert_eq!(fs::metadata(machine.path("cgroup/empty")).unwrap().mode() & 0o7777, 0o555);
        let owner = fs::metadata(machine.path("proc/1")).unwrap();
        assert_eq!(machine.owners_applied(), (owner.uid(), owner.gid()) == (1001, 1002));
    }

    #[test]
    fn tests_can_change_a_machine() {
        let machine = Machine::empty();
        machine.write("cgroup/a/cpu.stat", "usage_usec 1\n").symlink("cgroup/link", "a").mkdir("proc/7");
        machine.copy_tree("cgroup/a", "cgroup/b").rename("cgroup/b", "cgroup/c").fifo("cgroup/a/cpu.stat");
        assert_eq!(machine.read("cgroup/c/cpu.stat"), "usage_usec 1\n");
        assert!(fs::symlink_metadata(machine.path("cgroup/a/cpu.stat")).unwrap().file_type().is_fifo());
        machine.remove("cgroup/link").remove("cgroup/a").chmod("proc/7", 0o500);
        assert!(!machine.path("cgroup/a").exists() && !machine.path("cgroup/link").exists());
        assert_eq!(machine.chown("proc/7", 1001, 1001), machine.owners_applied());
        assert_eq!(machine.path_flags()[0], format!("--path.cgroupfs={}/cgroup", machine.root().display()));
    }

    #[test]
    fn every_fixture_machine_unpacks_with_its_top_directories() {
        let names = fixture_names();
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            let machine = Machine::fixture(&name);
            for top in ["cgroup", "proc", "sys", "run/jobledger/jobs", "dev"] {
                assert!(machine.path(top).is_dir(), "{name} has no {top}/");
            }
        }
    }

    #[test]
    fn made_machines_are_what_their_generator_writes() {
        let scratch = Scratch::new("made");
        let generator = fixtures_dir().join("../tools/make_machines.py");
        let run = std::process::Command::new("python3")
            .args(["-B".as_ref(), generator.as_os_str()])
            .arg(scratch.path())
            .output();
        let output = run.unwrap_or_else(|e| panic!("python3: {e}; apt-get install python3"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let made: Vec<_> = fs::read_dir(scratch.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert!(made.len() >= 20);
        for name in made {
            let read = |dir: &Path| fs::read_to_string(dir.join(&name).join("machine.txt")).unwrap();
            assert!(
                read(&fixtures_dir()) == read(scratch.path()),
                "{name:?} was edited by hand, or its generator since"
            );
        }
    }

    fn entries(name: &str) -> std::collections::BTreeMap<PathBuf, String> {
        let archive = fixtures_dir().join(name).join("machine.txt");
        parse_archive(&fs::read_to_string(archive).unwrap())
            .unwrap()
            .into_iter()
            .filter_map(|e| match e.kind {
                Kind::File(content) => Some((e.path, String::from_utf8_lossy(&content).into_owned())),
                _ => None,
            })
            .collect()
    }

    fn value(files: &std::collections::BTreeMap<PathBuf, String>, path: &Path, key: &str) -> Option<u64> {
        let line = files.get(path)?.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    #[test]
    fn fixture_groups_hold_at_least_what_their_children_hold() {
        for name in fixture_names() {
            let files = entries(&name);
            for (file, keys) in [
                ("cpu.stat", &["usage_usec", "user_usec", "system_usec"][..]),
                ("memory.stat", &["anon", "file", "kernel", "total_rss", "total_cache", "total_pgfault"][..]),
                ("cpuacct.stat", &["user", "system"][..]),
            ] {
                for key in keys {
                    let mut children: std::collections::BTreeMap<&Path, u64> = Default::default();
                    for path in files.keys().filter(|p| p.starts_with("cgroup") && p.ends_with(file)) {
                        let group = path.parent().unwrap();
                        if let Some(used) = value(&files, path, key) {
                            *children.entry(group.parent().unwrap()).or_default() += used;
                        }
                    }
                    for (parent, sum) in children {
                        // A recording reads one file after the other while the jobs go on.
                        let slack = if name.starts_with("slurm") { sum / 20 + 200_000 } else { 0 };
                        if let Some(used) = value(&files, &parent.join(file), key) {
                            assert!(
                                used + slack >= sum,
                                "{name} {} {file} {key}: {used} < {sum}",
                                parent.display()
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn fixture_processes_are_where_their_groups_say() {
        for name in fixture_names() {
            let files = entries(&name);
            for (path, pids) in files.iter().filter(|(p, _)| p.ends_with("cgroup.procs")) {
                let group = path.parent().unwrap().strip_prefix("cgroup").unwrap();
                for pid in pids.lines() {
                    let Some(told) = files.get(&Path::new("proc").join(pid).join("cgroup")) else {
                        assert_eq!(pid, "1", "{name}: {} names a process without /proc/PID", path.display());
                        continue;
                    };
                    let told: Vec<&str> = told.lines().filter_map(|l| l.splitn(3, ':').nth(2)).collect();
                    let found = told.iter().any(|t| {
                        let t = Path::new(t.trim_start_matches('/'));
                        group == t
                            || group
                                .strip_prefix(group.iter().next().unwrap_or_default())
                                .is_ok_and(|g| g == t)
                    });
                    assert!(found, "{name}: {} names {pid}, which is in {told:?}", path.display());
                }
            }
        }
    }
}
