//! The least that the kernel can be asked for the same content.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use jobledger_exporter::collector::devices::energy::PAUSE;
use jobledger_testkit::crowd::Crowd;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::http;
use jobledger_testkit::strace::{self, Call};
use rustix::fs::inotify::{WatchFlags, add_watch};
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::{pread, read};

use crate::stats::cost;

/// Every file that one scrape of the running binary read, each of them once, by the directory that it was opened from.
pub(crate) struct Floor {
    dirs: Vec<OwnedFd>,
    /// Index of the directory, name below it, whether it is a directory to be listed.
    files: Vec<(usize, String, bool)>,
    /// The files that are read and not listed, held open.
    held: Vec<OwnedFd>,
    /// What is watched.
    watched: BTreeSet<String>,
    buffer: Vec<u8>,
    calls: String,
}

impl Floor {
    /// Traces a scrape of the binary that looks at this node. The files of the web side are not asked for: the text is.
    pub(crate) fn of_the_running_exporter(crowd: &Crowd) -> Self {
        // One that opens each file it reads, so that the trace has them all.
        let mut flags = crowd.flags();
        flags.push("--jobs.descriptors=0".to_owned());
        Self::of_an_exporter(flags)
    }

    /// The same with these flags.
    pub(crate) fn of_an_exporter(mut flags: Vec<String>) -> Self {
        flags.push("--log.level=error".to_owned());
        let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags);
        let scrape = || {
            let accept = [("accept", "application/openmetrics-text;version=1.0.0")];
            http::get(exporter.address(), "/metrics", &accept, Duration::from_secs(60)).unwrap();
        };
        // Until nothing is looked for that is only looked for in the first scrapes.
        (0..8).for_each(|_| scrape());
        // Energy is not read more often.
        std::thread::sleep(PAUSE + Duration::from_millis(100));
        let calls = strace::during(exporter.pid(), scrape, Call::opens_content);
        Self::of_calls(&calls, exporter.pid())
    }

    /// Every file that these calls opened, or read where it was open.
    pub(crate) fn of_calls(calls: &[Call], pid: u32) -> Self {
        let own = |path: &str| path.replace(&format!("/proc/{pid}"), "/proc/self");
        let mut wanted = BTreeSet::new();
        for call in calls.iter().filter(|call| call.opens_content() && call.result >= 0) {
            let at = call.at.as_deref().filter(|_| call.path.as_deref().is_some_and(|p| !p.starts_with('/')));
            let listed = call.arguments.contains("O_DIRECTORY");
            wanted.insert((at.map(own), own(call.path.as_deref().unwrap_or_default()), listed));
        }
        // Files of the node are held open whatever the flags say.
        for call in calls.iter().filter(|call| call.name == "pread64" && call.result >= 0) {
            wanted.extend(call.at.as_deref().map(|file| (None, own(file), false)));
        }
        let (mut dirs, mut known) = (Vec::new(), HashMap::new());
        let mut files = Vec::new();
        for (at, path, listed) in wanted {
            let at = at.unwrap_or_else(|| "/".to_owned());
            let index = *known.entry(at).or_insert_with_key(|at| {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                dirs.push(openat(CWD, Path::new(at), flags, Mode::empty()).unwrap());
                dirs.len() - 1
            });
            files.push((index, path, listed));
        }
        let counts: BTreeMap<&str, usize> = strace::counts(calls);
        let failed = calls.iter().filter(|call| call.name == "openat" && call.result < 0).count();
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let counted = format!("{}; {failed} of the openat failed", counts.join(", "));
        let watches = calls.iter().filter(|call| call.name == "inotify_add_watch" && call.result >= 0);
        let watched = watches.filter_map(Call::file).collect();
        let mut floor =
            Self { dirs, files, held: Vec::new(), watched, buffer: vec![0; 1 << 16], calls: counted };
        let read = floor.files.iter().filter(|(.., listed)| !listed);
        floor.held = read.filter_map(|(dir, name, _)| floor.open(*dir, name, OFlags::empty())).collect();
        floor
    }

    /// `None` where a process that was there in the trace is gone.
    fn open(&self, dir: usize, name: &str, kind: OFlags) -> Option<OwnedFd> {
        openat(&self.dirs[dir], name, OFlags::RDONLY | OFlags::CLOEXEC | kind, Mode::empty()).ok()
    }

    /// How many files there are.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// What the traced scrape asked of the kernel.
    pub(crate) fn calls(&self) -> String {
        self.calls.clone()
    }

    /// Opens, reads and closes everything once.
    pub(crate) fn run(&mut self) {
        for (dir, name, listed) in &self.files {
            if *listed {
                self.list(*dir, name);
            } else if let Some(fd) = self.open(*dir, name, OFlags::empty()) {
                let _ = read(&fd, &mut self.buffer);
            }
        }
    }

    /// CPU time to do that and to set each watch once, on an inotify instance that nobody reads, microseconds.
    pub(crate) fn cost_of_following(&mut self, inotify: &OwnedFd) -> f64 {
        cost(|| {
            self.run();
            for path in &self.watched {
                let _ = add_watch(inotify, path, WatchFlags::CREATE | WatchFlags::DELETE);
            }
        })
    }

    /// The same with files that are held open. Directories are opened to be listed: the walk is to find new ones.
    pub(crate) fn run_held(&mut self) {
        for (dir, name, _) in self.files.iter().filter(|(.., listed)| *listed) {
            self.list(*dir, name);
        }
        for fd in &self.held {
            let _ = pread(fd, &mut self.buffer, 0);
        }
    }

    fn list(&self, dir: usize, name: &str) {
        let Some(fd) = self.open(dir, name, OFlags::DIRECTORY) else { return };
        let mut room = Vec::with_capacity(1 << 15);
        let mut entries = RawDir::new(&fd, room.spare_capacity_mut());
        while entries.next().is_some_and(|entry| entry.is_ok()) {}
    }
}
