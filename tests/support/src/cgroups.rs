//! Real control groups for tests, laid out as slurmstepd lays them out, below a directory of their own.
//!
//! Nothing outside that directory is touched, and it goes with everything in it when the value that made it does, after a
//! panic too. What a killed test run left behind is removed by the next one of the same PID namespace.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, io};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scratch::Scratch;
use crate::skip;
use crate::wait::QuietClock;

const PREFIX: &str = "jobledger-test-";

/// Where cgroup2 is mounted with its root visible, on a hybrid host too.
#[must_use]
pub fn cgroup2_mount() -> Option<PathBuf> {
    mounts().into_iter().find(|m| m.kind == "cgroup2").map(|m| m.at)
}

/// Where a v1 controller is mounted.
#[must_use]
pub fn v1_mount(controller: &str) -> Option<PathBuf> {
    let has = |m: &Mount| m.kind == "cgroup" && m.options.split(',').any(|o| o == controller);
    mounts().into_iter().find(has).map(|m| m.at)
}

struct Mount {
    at: PathBuf,
    kind: String,
    options: String,
}

fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, at) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        // A mount of a part shows paths that /proc/PID/cgroup does not.
        (root == "/").then(|| Mount { at: at.into(), kind: kind.to_owned(), options: options.to_owned() })
    };
    text.lines().filter_map(parse).collect()
}

/// True, and said loudly, where no real control group can be made: such a test has to return.
#[must_use]
pub fn skip_without_groups() -> bool {
    let able = rustix::process::geteuid().is_root() && cgroup2_mount().is_some();
    if !able {
        skip("cgroup2", "real control groups need root and a mounted cgroup2");
    }
    !able
}

/// A v1 site that accounts for CPU time; said loudly, nothing where none can be made: such a test has to return.
#[must_use]
pub fn accounting_v1() -> Option<Site> {
    if skip_without_groups() {
        return None;
    }
    let site = Site::v1().filter(|site| site.cgroupfs().join("cpuacct").exists());
    if site.is_none() {
        skip("v1", "no cgroup v1 freezer and cpuacct are mounted");
    }
    site
}

/// A group made by a test, removed on drop with the groups and processes in it.
#[derive(Debug)]
pub struct OwnedGroup {
    path: PathBuf,
}

impl OwnedGroup {
    /// Makes a group directly below a mount.
    ///
    /// # Panics
    /// Without the right to do so: real control groups need root.
    #[must_use]
    pub fn below(mount: &Path, label: &str) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        sweep(mount);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = mount.join(format!("{}{}-{serial}-{label}", prefix(), std::process::id()));
        fs::create_dir(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; real control groups need root", path.display()));
        Self { path }
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnedGroup {
    fn drop(&mut self) {
        remove_group(&self.path);
    }
}

/// Begins the names of the groups of this PID namespace: whether a process of another one is there, cannot be seen.
fn prefix() -> String {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    format!("{PREFIX}{namespace}-")
}

/// Removes groups of test runs that are gone.
fn sweep(mount: &Path) {
    let prefix = prefix();
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| n.strip_prefix(&*prefix)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove_group(&entry.path());
        }
    }
}

/// Kills what is in a group and below and removes it, children first.
pub fn remove_group(group: &Path) {
    let mut clock = QuietClock::new();
    while group.is_dir() && !clock.is_over(Duration::from_secs(10)) {
        let mut groups = vec![group.to_path_buf()];
        let mut next = 0;
        while let Some(dir) = groups.get(next).cloned() {
            groups.extend(subgroups(&dir));
            next += 1;
        }
        for dir in &groups {
            for pid in pids(dir) {
                let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
        }
        for dir in groups.iter().rev() {
            let _ = fs::remove_dir(dir);
        }
        if group.is_dir() {
            // Killed processes leave their group some time after the signal.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The groups directly below one.
#[must_use]
pub fn subgroups(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// The processes in a group itself.
#[must_use]
pub fn pids(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|l| l.parse().ok()).collect()
}

/// Moves a process into a group.
///
/// # Errors
/// As the kernel's.
pub fn attach(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

/// Enables the controllers that SLURM uses, as far as the kernel lets v2 have them: on a hybrid host v1 holds them.
pub fn enable_controllers(group: &Path) {
    for controller in ["cpuset", "cpu", "memory"] {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// A file system of control groups with SLURM's top directory in it, for an exporter to look at.
#[derive(Debug)]
pub enum Site {
    /// One v2 tree with `system.slice/<scope>/system` in it.
    V2 {
        /// What the test removes.
        top: OwnedGroup,
        /// `…/slurmstepd.scope`
        scope: PathBuf,
    },
    /// v1 hierarchies with `slurm` in each.
    V1 {
        /// One per hierarchy.
        tops: Vec<OwnedGroup>,
        /// Holds a link per controller.
        farm: Scratch,
        /// (controller, its `slurm` directory)
        roots: Vec<(String, PathBuf)>,
    },
}

impl Site {
    /// A v2 site, or `None` where no cgroup2 is mounted.
    ///
    /// # Panics
    /// Without root.
    #[must_use]
    pub fn v2(scope: &str) -> Option<Self> {
        let top = OwnedGroup::below(&cgroup2_mount()?, "v2");
        let slice = top.path().join("system.slice");
        let scope = slice.join(scope);
        enable_controllers(top.path());
        make_group(&slice);
        enable_controllers(&slice);
        make_group(&scope);
        enable_controllers(&scope);
        make_group(&scope.join("system"));
        Some(Self::V2 { top, scope })
    }

    /// A v1 site with those of freezer, cpuset, devices, cpuacct and cpu that are mounted, or `None` without a freezer.
    ///
    /// `memory` is left out on purpose: the environment a test runs in often runs in it.
    ///
    /// # Panics
    /// Without root.
    #[must_use]
    pub fn v1() -> Option<Self> {
        v1_mount("freezer")?;
        Some(Self::v1_of(&["freezer", "cpuset", "devices", "cpuacct", "cpu"]))
    }

    /// A v1 site with the hierarchies that exporters of jobs read, `memory` among them, or `None` without that.
    ///
    /// # Panics
    /// Without root.
    #[must_use]
    pub fn v1_with_memory() -> Option<Self> {
        v1_mount("memory")?;
        Some(Self::v1_of(&["freezer", "cpuset", "memory", "cpuacct", "cpu"]))
    }

    fn v1_of(controllers: &[&str]) -> Self {
        let farm = Scratch::new("v1-farm");
        let (mut tops, mut roots) = (Vec::new(), Vec::new());
        for &controller in controllers {
            let Some(mount) = v1_mount(controller) else { continue };
            // cpu and cpuacct are one hierarchy on most hosts.
            let joint = tops.iter().find(|t: &&OwnedGroup| t.path().parent() == Some(&mount));
            let path = match joint {
                Some(top) => top.path().to_path_buf(),
                None => {
                    let top = OwnedGroup::below(&mount, controller);
                    let path = top.path().to_path_buf();
                    tops.push(top);
                    inherit_cpuset(&path);
                    make_group(&path.join("slurm"));
                    path
                }
            };
            std::os::unix::fs::symlink(&path, farm.path().join(controller))
                .unwrap_or_else(|e| panic!("{controller}: {e}"));
            roots.push((controller.to_owned(), path.join("slurm")));
        }
        Self::V1 { tops, farm, roots }
    }

    /// What to give the exporter as `--path.cgroupfs`.
    #[must_use]
    pub fn cgroupfs(&self) -> &Path {
        match self {
            Self::V2 { top, .. } => top.path(),
            Self::V1 { farm, .. } => farm.path(),
        }
    }

    /// A job's directories, one per hierarchy, with the controller of a v1 one.
    #[must_use]
    pub fn job_dirs(&self, name: &str, uid: u32) -> Vec<(Option<&str>, PathBuf)> {
        match self {
            Self::V2 { scope, .. } => vec![(None, scope.join(name))],
            Self::V1 { roots, .. } => {
                let dir = |root: &Path| root.join(format!("uid_{uid}")).join(name);
                roots.iter().map(|(controller, root)| (Some(controller.as_str()), dir(root))).collect()
            }
        }
    }

    /// A job's directory; on v1 that of the first controller that accounts for CPU time.
    #[must_use]
    pub fn job_dir(&self, name: &str, uid: u32) -> PathBuf {
        match self {
            Self::V2 { scope, .. } => scope.join(name),
            Self::V1 { roots, .. } => {
                let accounting = roots.iter().find(|(c, _)| c == "cpuacct").or_else(|| roots.first());
                accounting.map(|(_, r)| r.join(format!("uid_{uid}")).join(name)).unwrap_or_default()
            }
        }
    }
}

/// Makes a group; one that is there already is fine, other steps of the job make it too.
///
/// # Panics
/// If it cannot be made.
pub fn make_group(group: &Path) {
    try_make_group(group).unwrap_or_else(|e| panic!("{}: {e}", group.display()));
}

/// Makes groups, parents first, while others may remove the same parents as theirs.
///
/// # Panics
/// If they cannot be made.
pub fn make_groups(groups: &[&Path]) {
    for _ in 0..1000 {
        match groups.iter().try_for_each(|g| try_make_group(g)) {
            Ok(()) => return,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => panic!("{groups:?}: {e}"),
        }
    }
    panic!("{groups:?}: removed again and again");
}

fn try_make_group(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => {
            inherit_cpuset(group);
            Ok(())
        }
    }
}

/// A new v1 cpuset is empty, and an empty one takes no process.
pub(crate) fn inherit_cpuset(group: &Path) {
    if group.join("cpuset.effective_cpus").exists() {
        let parent = group.parent().unwrap_or(group);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let inherited = fs::read_to_string(parent.join(file)).unwrap_or_default();
            let _ = fs::write(group.join(file), inherited.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    #[cfg(feature = "oracle")]
    use crate::oracle;

    #[test]
    fn is_removed_with_its_processes_after_a_panic() {
        if skip_without_groups() {
            return;
        }
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let path = std::panic::catch_unwind(|| {
            let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "panic");
            let inner = top.path().join("a");
            make_group(&inner);
            attach(&inner, pid).unwrap();
            assert_eq!(pids(&inner), [pid]);
            std::panic::panic_any(top.path().to_path_buf());
        });
        let path = *path.unwrap_err().downcast::<PathBuf>().unwrap();
        assert!(!path.exists());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn leftovers_of_a_dead_run_are_removed_and_groups_of_other_pid_namespaces_are_not() {
        if skip_without_groups() {
            return;
        }
        let mount = cgroup2_mount().unwrap();
        // Process ids end well below this.
        let left = mount.join(format!("{}4194305-0-left", prefix()));
        let other = mount.join(format!("{PREFIX}1-4194305-0-other"));
        make_groups(&[&left, &left.join("a"), &other]);
        let _new = OwnedGroup::below(&mount, "sweep");
        let kept = other.exists();
        remove_group(&other);
        assert!(!left.exists() && kept);
    }

    #[cfg(feature = "oracle")]
    #[test]
    fn the_oracle_reads_the_cpu_time_of_a_process() {
        if skip_without_groups() {
            return;
        }
        let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "oracle");
        let script = format!(
            "echo $$ > {}/cgroup.procs; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done",
            top.path().display()
        );
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let cpu = oracle::v2(top.path()).cpu;
        assert!(cpu.usage_usec > 5_000, "{cpu:?}");
        assert!(cpu.usage_usec.abs_diff(cpu.user_usec + cpu.system_usec) <= 1, "{cpu:?}");
    }
}
