//! The system calls of a running process, by strace(1).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scratch::Scratch;
use crate::servers::die_with_parent;

/// One system call of a kind that names or reads a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `openat`, `read`, …
    pub name: String,
    /// The directory that a relative path starts from, or the file that a descriptor is of.
    pub at: Option<String>,
    /// The path as it was given.
    pub path: Option<String>,
    /// All arguments, as strace shows them.
    pub arguments: String,
    /// The result; negative for an error.
    pub result: i64,
    /// The error's name, `ENODEV`.
    pub error: Option<String>,
}

impl Call {
    /// The whole path of the file that it is about.
    #[must_use]
    pub fn file(&self) -> Option<String> {
        match (&self.at, &self.path) {
            (_, Some(path)) if path.starts_with('/') => Some(path.clone()),
            (Some(at), Some(path)) => Some(format!("{at}/{path}")),
            (at, None) => at.clone(),
            (None, Some(path)) => Some(path.clone()),
        }
    }

    /// Whether it opens something to be read, and not a directory to start from.
    #[must_use]
    pub fn opens_content(&self) -> bool {
        self.name == "openat" && !self.arguments.contains("O_PATH")
    }
}

/// Whether strace is there and may trace; says loudly if not.
#[must_use]
pub fn is_there() -> bool {
    let able = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    let able = able.is_ok_and(|status| status.success());
    if !able {
        crate::skip("strace", "no strace that may trace; as root: apt-get install strace");
    }
    able
}

/// Traces all threads of a process while `f` runs; the calls are in order within each thread. `f` is called again when
/// strace did not see a call that is `sought`: threads that begin or end while it attaches make it fail or are missed.
///
/// # Panics
/// If none is seen in five attempts.
pub fn during(pid: u32, f: impl Fn(), sought: impl Fn(&Call) -> bool) -> Vec<Call> {
    with_options(pid, &[], f, sought)
}

/// The same with more options of strace(1), as those that tamper with calls.
///
/// # Panics
/// As [`during`].
pub fn with_options(pid: u32, options: &[&str], f: impl Fn(), sought: impl Fn(&Call) -> bool) -> Vec<Call> {
    let traced = (0..5).map(|_| attempt(pid, options, &f)).find(|calls| calls.iter().any(&sought));
    traced.expect("strace sees what is sought")
}

/// A script that starts a program with the flags it gets, traced from its first call on.
#[derive(Debug)]
pub struct Traced {
    scratch: Scratch,
    script: String,
}

impl Traced {
    /// For this program.
    ///
    /// # Panics
    /// If the script cannot be written.
    #[must_use]
    pub fn of(binary: &str) -> Self {
        let scratch = Scratch::new("traced");
        let (script, calls) = (scratch.path().join("start"), scratch.path().join("calls"));
        // -D: the program remains the child of who starts it.
        let text =
            format!("#!/bin/sh\nexec strace -D -ff -y -q -s 300 -o {} {binary} \"$@\"\n", calls.display());
        fs::write(&script, text).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a script");
        Self { script: script.display().to_string(), scratch }
    }

    /// What to start.
    #[must_use]
    pub fn script(&self) -> &str {
        &self.script
    }

    /// All calls of the program, which has ended; in order within each thread.
    ///
    /// # Panics
    /// If strace does not end.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        let ended = |text: &String| text.lines().last().is_some_and(|line| line.starts_with("+++"));
        let texts = crate::wait::until("the end of the trace", || {
            let texts = texts(&self.scratch);
            if !texts.is_empty() && texts.iter().all(ended) { Ok(texts) } else { Err(String::new()) }
        });
        texts.iter().flat_map(|text| text.lines()).filter_map(parse).collect()
    }
}

/// One text for each thread.
fn texts(scratch: &Scratch) -> Vec<String> {
    let files = fs::read_dir(scratch.path()).into_iter().flatten().flatten();
    let calls = files.filter(|file| file.file_name().to_string_lossy().starts_with("calls"));
    calls.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
}

fn attempt(pid: u32, options: &[&str], f: impl Fn()) -> Vec<Call> {
    let scratch = Scratch::new("strace");
    let prefix = scratch.path().join("calls");
    let mut command = Command::new("strace");
    // One file per thread: no call is cut in two by another thread's.
    command.args(["-ff", "-y", "-s", "300", "-o"]).arg(&prefix).args(options).args(["-p", &pid.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut strace = die_with_parent(&mut command).spawn().expect("strace");
    let output = strace.stderr.take().expect("a pipe");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a running process").count();
    let mut attached = 0;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // The main thread, then "attached with N threads" for all.
        attached += usize::from(line.contains("attached"));
        if attached >= 1 && (threads == 1 || line.contains("threads")) {
            break;
        }
    }
    f();
    let _ = kill(Pid::from_raw(strace.id().cast_signed()), Signal::SIGINT);
    let _ = strace.wait();
    texts(&scratch).iter().flat_map(|text| text.lines()).filter_map(parse).collect()
}

/// How often each system call was made.
#[must_use]
pub fn counts(calls: &[Call]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.name.as_str()).or_default() += 1;
    }
    counts
}

fn parse(line: &str) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let digits = result.split(|c: char| !c.is_ascii_digit() && c != '-').next()?;
    let error = result.strip_prefix("-1 ").and_then(|error| error.split(' ').next()).map(str::to_owned);
    let result = digits.parse().ok()?;
    // `7</sys/fs/cgroup>` and `AT_FDCWD</root>`: a descriptor with what it is of.
    let first = arguments.split(", ").next().unwrap_or_default();
    let at = first.split_once('<').and_then(|(_, at)| at.strip_suffix('>').or(at.strip_suffix(">)")));
    let path = arguments.split_once('"').and_then(|(_, path)| path.split_once('"')).map(|(path, _)| path);
    let takes_path = name.ends_with("at") || ["statx", "inotify_add_watch"].contains(&name);
    Some(Call {
        name: name.to_owned(),
        at: at.map(str::to_owned),
        path: path.filter(|_| takes_path).map(str::to_owned),
        arguments: arguments.to_owned(),
        result,
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_strace_writes_them() {
        let call = parse(
            "openat(9</sys/fs/cgroup/x.scope/job_1>, \"step_0/user/cgroup.procs\", O_RDONLY|O_CLOEXEC) = 11</sys/fs/cgroup/x.scope/job_1/step_0/user/cgroup.procs>",
        )
        .unwrap();
        assert_eq!(call.file().as_deref(), Some("/sys/fs/cgroup/x.scope/job_1/step_0/user/cgroup.procs"));
        assert!(call.opens_content() && call.result == 11);
        let call =
            parse("openat(9</a>, \"io.stat\", O_RDONLY) = -1 ENOENT (No such file or directory)").unwrap();
        assert_eq!(
            (call.result, call.error.as_deref(), call.at.as_deref()),
            (-1, Some("ENOENT"), Some("/a"))
        );
        let call = parse("read(11</a/b = \"c\">, \"1\\n\", 8192) = 2").unwrap();
        assert_eq!((call.file().as_deref(), call.result), (Some("/a/b = \"c\""), 2));
        assert!(parse("+++ exited with 0 +++").is_none());
    }
}
