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
    let entries = parse_archive("dir a/b\nfile c\nfile d/e\ndir f\nlink g -> ../x\\x20y\nfifo h\n").unwrap();
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

fn is_recorded(name: &str) -> bool {
    name.starts_with("slurm") || name.starts_with("vm-")
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
                    // A recording reads one file after the other while the jobs go on, and the root's own time comes from
                    // the kernel's ticks.
                    let slack = if is_recorded(&name) { sum / 20 + 200_000 } else { 0 };
                    if is_recorded(&name) && parent == Path::new("cgroup") {
                        continue;
                    }
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
                let Some(listed) = files.get(&Path::new("proc").join(pid).join("cgroup")) else {
                    // The root's own are the kernel's threads, which are not recorded.
                    if is_recorded(&name) && group == Path::new("") {
                        continue;
                    }
                    assert_eq!(pid, "1", "{name}: {} names a process without /proc/PID", path.display());
                    continue;
                };
                let listed: Vec<&str> = listed.lines().filter_map(|l| l.splitn(3, ':').nth(2)).collect();
                let found = listed.iter().any(|t| {
                    let t = Path::new(t.trim_start_matches('/'));
                    group == t
                        || group.strip_prefix(group.iter().next().unwrap_or_default()).is_ok_and(|g| g == t)
                });
                assert!(found, "{name}: {} names {pid}, which is in {listed:?}", path.display());
            }
        }
    }
}
