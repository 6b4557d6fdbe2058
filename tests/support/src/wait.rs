//! Waiting for progress, not for seconds.
//!
//! A wait fails after half a minute in which nothing of this test program ran. A thread that runs, waits for a CPU or waits for a disk
//! is progress to come, and so is a change of what is seen: the time of a busy machine does not count. Ten minutes are the limit for
//! what runs for ever.

use std::fs;
use std::panic::RefUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long nothing may run before a wait fails.
pub const QUIET: Duration = Duration::from_secs(30);
/// How long a wait lasts at most.
pub const LONGEST: Duration = Duration::from_secs(600);
/// Between two looks at what runs.
const LOOK: Duration = Duration::from_millis(50);
/// Between two looks at what is waited for.
const POLL: Duration = Duration::from_millis(10);

/// A clock that stands still while a thread of this program, or of a process that descends from it, runs or waits for a CPU
/// or a disk. The thread that has the clock does not count.
#[derive(Debug)]
pub struct QuietClock {
    begun: Instant,
    looked: Instant,
    quiet: Duration,
}

impl Default for QuietClock {
    fn default() -> Self {
        Self::new()
    }
}

impl QuietClock {
    /// A clock that begins at zero.
    #[must_use]
    pub fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, looked: now, quiet: Duration::ZERO }
    }

    /// The time that counts. A look that comes late counts as one in time: this thread waited for a CPU.
    pub fn quiet(&mut self) -> Duration {
        let passed = self.looked.elapsed();
        if passed >= LOOK {
            self.looked = Instant::now();
            if is_quiet() {
                self.quiet += passed.min(2 * LOOK);
            }
        }
        self.quiet
    }

    /// All time since the beginning.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Whether nothing ran for `limit`, or ten minutes have passed.
    pub fn is_over(&mut self, limit: Duration) -> bool {
        self.quiet() >= limit || self.whole() >= LONGEST
    }

    /// The time that counts begins anew.
    pub fn restart(&mut self) {
        self.quiet = Duration::ZERO;
    }
}

/// Waits until `look` has what is waited for. Until then it says what it sees instead.
///
/// # Panics
/// If there is no progress, with what was last seen.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    until_quiet(what, QUIET, look)
}

fn until_quiet<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let (mut clock, mut last) = (QuietClock::new(), String::new());
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if seen != last => {
                last = seen;
                clock.restart();
            }
            Err(_) => {}
        }
        let over = clock.is_over(limit);
        assert!(
            !over,
            "{what}: not in {:?}, nothing ran in {:?}; last seen: {last}",
            clock.whole(),
            clock.quiet()
        );
        std::thread::sleep(POLL);
    }
}

/// Waits for something that another thread or process brings about.
///
/// # Panics
/// If there is no progress.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()).ok_or_else(String::new));
}

/// What an action does, and for how long nothing ran in that time: what it waited for something else than a busy machine.
pub fn quiet_time<T>(action: impl FnOnce() -> T) -> (Duration, T) {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let clock = std::thread::spawn(move || {
        let mut clock = QuietClock::new();
        // The sender's end is the action's.
        while is_done.recv_timeout(LOOK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            clock.quiet();
        }
        clock.quiet()
    });
    let result = action();
    drop(done);
    (clock.join().expect("a clock"), result)
}

/// For a test in which other threads must have their turn within some ten milliseconds: on a busy machine it is given several chances,
/// later and later. An attempt in which this program's threads waited for a CPU is not one of the nine, for up to three minutes.
///
/// # Panics
/// As the test does at the last attempt.
pub fn in_time(test: impl Fn() + RefUnwindSafe) {
    const ATTEMPTS: u32 = 9;
    const LATE: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_secs(180);
    let (begun, mut failed) = (Instant::now(), 0);
    loop {
        let before = waited_for_cpu();
        let Err(panic) = std::panic::catch_unwind(&test) else { return };
        let late = waited_for_cpu().saturating_sub(before) > LATE && begun.elapsed() < LONGEST;
        failed += u32::from(!late);
        if failed == ATTEMPTS {
            std::panic::resume_unwind(panic);
        }
        std::thread::sleep(Duration::from_millis(125 << failed.min(7)));
    }
}

/// Whether no thread of this program and its descendants runs or is kept from it; the caller does not count.
fn is_quiet() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut waiting = vec!["self".to_owned()];
    while let Some(process) = waiting.pop() {
        for (thread, dir) in threads(&process) {
            if thread != own && matches!(state(&dir), Some(b'R' | b'D')) {
                return false;
            }
            let children = fs::read_to_string(dir.join("children")).unwrap_or_default();
            waiting.extend(children.split_whitespace().map(str::to_owned));
        }
    }
    true
}

fn threads(process: &str) -> Vec<(String, std::path::PathBuf)> {
    let tasks = fs::read_dir(Path::new("/proc").join(process).join("task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| Some((task.file_name().into_string().ok()?, task.path()))).collect()
}

/// Field 3 of `/proc/PID/stat` (proc(5)). The name before it may hold anything.
fn state(dir: &Path) -> Option<u8> {
    let stat = fs::read(dir.join("stat")).ok()?;
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name + 2).copied()
}

/// How long the threads of this process waited for a CPU since they began (`schedstat`, field 2; sched-stats.rst).
fn waited_for_cpu() -> Duration {
    let delay = |dir: &Path| {
        let text = fs::read_to_string(dir.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    };
    threads("self").iter().filter_map(|(_, dir)| delay(dir)).sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::panic::catch_unwind;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    const SHORT: Duration = Duration::from_millis(400);

    /// One at a time: what one of these tests runs is progress to the others.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grandchild that does something.
    struct Grandchild(Child);

    impl Grandchild {
        fn new(script: &str) -> Self {
            Self(
                Command::new("sh")
                    .args(["-c", &format!("sh -c '{script}'; true")])
                    .process_group(0)
                    .spawn()
                    .unwrap(),
            )
        }
    }

    impl Drop for Grandchild {
        fn drop(&mut self) {
            // The whole group: what the inner shell started, too.
            let group = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_comes_is_returned() {
        let looks = AtomicU32::new(0);
        let look = || match looks.fetch_add(1, Ordering::Relaxed) {
            3 => Ok("there"),
            n => Err(n.to_string()),
        };
        assert_eq!(until("it", look), "there");
    }

    #[test]
    fn a_wait_without_progress_ends_and_says_what_was_seen() {
        let _alone = alone();
        let _asleep = Grandchild::new("sleep 1000");
        let failed =
            catch_unwind(|| until_quiet::<()>("the train", SHORT, || Err("an empty track".to_owned())));
        let text = *failed.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("the train") && text.ends_with("last seen: an empty track"), "{text}");
    }

    #[test]
    fn time_does_not_count_while_a_grandchild_computes() {
        let _alone = alone();
        let _busy = Grandchild::new("while :; do :; done");
        let begun = Instant::now();
        let look = || if begun.elapsed() > 5 * SHORT { Ok(()) } else { Err(String::new()) };
        until_quiet("the end of five times the limit", SHORT, look);
    }

    #[test]
    fn what_changes_is_progress() {
        let _alone = alone();
        let begun = Instant::now();
        let look = || match begun.elapsed() {
            passed if passed > 5 * SHORT => Ok(()),
            passed => Err((passed.as_millis() / 150).to_string()),
        };
        until_quiet("the end of five times the limit", SHORT, look);
    }

    #[test]
    fn quiet_time_is_what_was_slept() {
        let _alone = alone();
        let (asleep, done) = quiet_time(|| {
            std::thread::sleep(2 * SHORT);
            7
        });
        let (awake, ()) = quiet_time(|| {
            let begun = Instant::now();
            while begun.elapsed() < 2 * SHORT {}
        });
        assert!(done == 7 && asleep <= 3 * SHORT && awake < SHORT, "{asleep:?} {awake:?}");
    }

    #[test]
    fn what_is_wrong_fails_at_each_attempt_and_what_was_late_passes() {
        let attempts = AtomicU32::new(0);
        in_time(|| assert!(attempts.fetch_add(1, Ordering::Relaxed) == 2, "late"));
        assert_eq!(attempts.load(Ordering::Relaxed), 3);
    }
}
