//! As whom the exporter runs once it serves: started as root and as an ordinary user, the real binary.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code,
    reason = "the exporter's policy; tests start processes, one without capabilities, and fail by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::machine::Machine;
use jobledger_testkit::skip::skip_without_root;
use jobledger_testkit::tools::for_everybody;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const NOBODY: u32 = 65_534;

/// The status of each thread.
fn threads(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let fields = |text: String| {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(key, value)| (key.to_owned(), value.trim().replace('\t', " "))).collect()
    };
    // One may end meanwhile.
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .map(fields)
        .collect()
}

fn ids(id: u32) -> String {
    [id; 4].map(|id| id.to_string()).join(" ")
}

/// The user that is the default on this machine.
fn usual() -> u32 {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = |name: &str| {
        let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        line.split(':').nth(2)?.parse().ok()
    };
    uid("jobledger").or_else(|| uid("nobody")).unwrap_or(NOBODY)
}

#[test]
fn started_as_root_no_thread_is_root_once_it_serves() {
    if skip_without_root("becoming another user") {
        return;
    }
    for (flags, uid, gid, groups) in [
        (&[][..], usual(), None, None),
        (
            &["--security.user=4321:4322", "--collector.perf", "--collector.network"],
            4321,
            Some(4322),
            Some(""),
        ),
        (&["--security.user=4321", "--collector.procio"], 4321, Some(4321), Some("")),
    ] {
        let exporter = Exporter::start(BINARY, flags);
        assert!(exporter.metrics().contains("jobledger_exporter_build_info"));
        let threads = threads(exporter.pid());
        assert!(threads.len() > 2, "{threads:?}");
        for thread in &threads {
            let name = &thread["Name"];
            assert_eq!(thread["Uid"], ids(uid), "{name}");
            assert!(gid.is_none_or(|gid| thread["Gid"] == ids(gid)), "{name}: {}", thread["Gid"]);
            assert!(groups.is_none_or(|groups| thread["Groups"] == groups), "{name}: {}", thread["Groups"]);
            assert_eq!((&*thread["NoNewPrivs"], &*thread["Seccomp"]), ("1", "2"), "{name}");
            assert_eq!(thread["CapInh"].trim_start_matches('0'), "", "{name}");
            assert_eq!(thread["CapAmb"].trim_start_matches('0'), "", "{name}");
            assert_eq!(thread["CapBnd"], thread["CapPrm"], "{name}: nothing can come back");
        }
        // It dumps no core: its files in procfs are root's, and only root may look into it.
        let own = fs::metadata(format!("/proc/{}/mem", exporter.pid())).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&own), 0);
        let limits = fs::read_to_string(format!("/proc/{}/limits", exporter.pid())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
        assert!(!exporter.log().contains("WARN"), "{}", exporter.log());
        assert_eq!(exporter.terminate(), Some(0));
    }
}

#[test]
fn what_an_admin_asks_for_is_done_or_refused() {
    if skip_without_root("becoming another user") {
        return;
    }
    let exporter = Exporter::start(BINARY, &["--security.no-drop"]);
    let thread = &threads(exporter.pid())[0];
    assert_eq!((&thread["Uid"], &*thread["Seccomp"]), (&ids(0), "0"), "as it was started");
    let exporter = Exporter::start(BINARY, &["--security.no-seccomp", "--security.user=root"]);
    let thread = &threads(exporter.pid())[0];
    assert_eq!((&thread["Uid"], &*thread["Seccomp"]), (&ids(0), "0"));
    assert_eq!(thread["CapEff"].trim_start_matches('0'), "", "but without capabilities");
    eventually("a warning", || exporter.log().contains("remains root"));
    for unknown in ["no-such-user", "4294967295", "1:2:3", ""] {
        let flags = [format!("--security.user={unknown}"), "--once".to_owned()];
        let done = Command::new(for_everybody(Path::new(BINARY))).args(flags).output().unwrap();
        assert_eq!(done.status.code(), Some(64), "{unknown:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// As in a container whose security context gives root no capability.
#[test]
fn who_cannot_change_users_serves_as_root_and_says_so_unless_a_user_was_asked_for() {
    if skip_without_root("capabilities of root's") {
        return;
    }
    let weak = |command: &mut Command| {
        // SAFETY: prctl(2) and capset(2) in the child, which has one thread.
        unsafe {
            command.pre_exec(|| {
                use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
                for capability in CapabilitySet::all().iter() {
                    let _ = remove_capability_from_bounding_set(capability);
                }
                Ok(())
            });
        }
    };
    let exporter = Exporter::prepared(BINARY, &[] as &[&str], weak);
    let thread = &threads(exporter.pid())[0];
    assert_eq!((&thread["Uid"], &*thread["Seccomp"]), (&ids(0), "2"));
    eventually("a warning", || exporter.log().contains("CAP_SETUID and CAP_SETGID"));
    let mut asked = Command::new(for_everybody(Path::new(BINARY)));
    asked.args(["--security.user=nobody", "--once"]).stdin(Stdio::null());
    weak(&mut asked);
    let done = asked.output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("cannot become nobody"));
}

#[test]
fn an_ordinary_user_remains_itself_and_is_as_confined() {
    if skip_without_root("starting as an ordinary user") {
        return;
    }
    let as_user = |command: &mut Command| {
        command.uid(4321).gid(4322);
    };
    let exporter = Exporter::prepared(BINARY, &["--security.user=nobody"], as_user);
    assert!(exporter.metrics().contains("jobledger_exporter_build_info"));
    for thread in threads(exporter.pid()) {
        assert_eq!((&thread["Uid"], &thread["Gid"]), (&ids(4321), &ids(4322)));
        assert_eq!((&*thread["NoNewPrivs"], &*thread["Seccomp"]), ("1", "2"));
    }
    assert!(exporter.log().contains("--security.user changes nothing"), "{}", exporter.log());
}

/// Samples by name and labels, without what changes from one run to the next.
fn samples(text: &str) -> BTreeMap<String, String> {
    // Energy is charged from the second reading on, and `--once` waits for none.
    let changing = [
        "jobledger_job_energy_joules_total",
        "jobledger_exporter_",
        "process_",
        "jobledger_job_allocated_cpu",
        "jobledger_job_memory_allocated",
        "jobledger_job_alone_seconds",
        "jobledger_owner_",
        "jobledger_node_allocated_cpu_seconds_total",
    ];
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| !changing.iter().any(|name| line.starts_with(name)));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn states(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("jobledger_exporter_collector_status_info")).collect()
}

/// On this machine, whose procfs has root's files for a process that dumps no core.
#[test]
fn on_this_machine_nothing_is_denied_that_root_without_capabilities_may_read() {
    if skip_without_root("files of root's") {
        return;
    }
    let once = |more: &[&str]| {
        let mut command = Command::new(for_everybody(Path::new(BINARY)));
        let done = command.arg("--once").args(more).stdin(Stdio::null()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let (root, user) = (once(&["--security.no-drop"]), once(&["--security.user=4321"]));
    assert_eq!(states(&root), states(&user));
    assert!(states(&user).iter().any(|state| state.contains("\"nfs\"")), "{user}");
}

/// Whatever root reads without a capability, the user that it became reads too: from what was opened before.
#[test]
fn what_root_could_read_is_read_after_it_as_well() {
    if skip_without_root("files of root's") {
        return;
    }
    for name in ["energy-intel-2s", "v2-lustre2.15", "v2-nfs"] {
        let machine = guarded(name);
        let mut flags = machine.path_flags();
        flags.push("--once".to_owned());
        let once = |more: &[&str]| {
            let mut command = Command::new(for_everybody(Path::new(BINARY)));
            let done = command.args(&flags).args(more).stdin(Stdio::null()).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        let (root, user) = (once(&["--security.no-drop"]), once(&["--security.user=4321"]));
        assert_eq!(states(&root), states(&user), "{name}");
        let (root_reads, user_reads) = (samples(&root), samples(&user));
        let differing = root_reads.iter().filter(|(name, value)| user_reads.get(*name) != Some(value));
        assert_eq!(differing.collect::<Vec<_>>(), [], "{name}");
        assert_eq!(root_reads.len(), user_reads.len(), "{name}");
        // And it was root's: a user who did not open it before does not read it.
        let mut stranger = Command::new(for_everybody(Path::new(BINARY)));
        let done = stranger.args(&flags).uid(4321).gid(4321).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert_ne!(states(&text), states(&root), "{name}: nothing of it was root's");
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// A directory that is like resctrl's in what the helper sees of it.
fn resctrl(machine: &Machine) -> std::path::PathBuf {
    machine
        .mkdir("sys/fs/resctrl/mon_groups")
        .mkdir("sys/fs/resctrl/gold/mon_groups")
        .write("sys/fs/resctrl/tasks", "");
    machine.path("sys/fs/resctrl")
}

#[test]
fn the_resctrl_helper_is_root_without_capabilities_and_changes_our_groups_alone() {
    use perf_counters::resctrl::Tree;
    use perf_counters::resctrl::helper::start_from;
    use rustix::io::Errno;

    if skip_without_root("root's files") {
        return;
    }
    let machine = Machine::empty();
    let root = resctrl(&machine);
    let helper = start_from(&for_everybody(Path::new(BINARY)), root.clone()).unwrap();
    let threads = threads(helper.pid());
    assert_eq!(threads.len(), 1);
    let status = &threads[0];
    assert_eq!((&status["Uid"], &*status["Groups"], &*status["Name"]), (&ids(0), "", "resctrl-helper"));
    assert_eq!((&*status["NoNewPrivs"], &*status["Seccomp"]), ("1", "2"));
    for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(status[set].trim_start_matches('0'), "", "{set}");
    }
    assert_eq!(fs::read_dir(format!("/proc/{}/fd", helper.pid())).unwrap().count(), 1, "its socket");
    for group in ["mon_groups/jobledger_job_7_1", "gold/mon_groups/jobledger_job_7_1"] {
        assert_eq!(helper.make(group), Ok(()));
        assert_eq!(helper.make(group), Err(Errno::EXIST));
        // The kernel's directories have their files from the start.
        assert_eq!(helper.add_task(group, 4711), Err(Errno::NOENT));
        fs::write(root.join(group).join("tasks"), "").unwrap();
        assert_eq!(helper.add_task(group, 4711), Ok(()));
        assert_eq!(fs::read_to_string(root.join(group).join("tasks")).unwrap(), "4711\n");
        fs::remove_file(root.join(group).join("tasks")).unwrap();
        assert_eq!(helper.assign(group), Err(Errno::NOENT), "no counters are assigned here");
        let assignments = root.join(group).join("mbm_L3_assignments");
        fs::write(&assignments, "").unwrap();
        assert_eq!(helper.assign(group), Ok(()));
        assert_eq!(fs::read_to_string(&assignments).unwrap(), "mbm_local_bytes:*=_\nmbm_total_bytes:*=e\n");
        fs::remove_file(assignments).unwrap();
        assert_eq!(helper.remove(group), Ok(()));
        assert!(!root.join(group).exists());
    }
    for other in
        ["silver", "gold", "mon_groups/other", "../jobledger_job_7", "mon_groups/jobledger_job_/../x"]
    {
        assert_eq!(helper.make(other), Err(Errno::INVAL), "{other}");
        assert_eq!(helper.remove(other), Err(Errno::INVAL), "{other}");
        assert_eq!(helper.add_task(other, 1), Err(Errno::INVAL), "{other}");
        assert_eq!(helper.assign(other), Err(Errno::INVAL), "{other}");
    }
    let pid = helper.pid();
    drop(helper);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "ended and waited for");
}

/// Started as root, and as systemd's drop-in does it: as a user with the two capabilities that make its helper root.
#[test]
fn with_resctrl_the_exporter_itself_is_not_root_and_takes_its_helper_along() {
    if skip_without_root("starting helpers") {
        return;
    }
    let machine = Machine::fixture("v2-idle");
    resctrl(&machine);
    let mut flags = machine.path_flags();
    flags.extend(["--collector.memory_traffic", "--collector.memory-traffic.resctrl"].map(str::to_owned));
    let as_root = Exporter::start(BINARY, &flags);
    let as_user = Exporter::prepared(BINARY, &flags, |command| {
        // SAFETY: system calls of the child, which has one thread.
        unsafe { command.pre_exec(|| with_change_users(4321)) };
    });
    for (exporter, uid) in [(as_root, usual()), (as_user, 4321)] {
        assert!(exporter.metrics().contains("jobledger_exporter_build_info"), "{}", exporter.log());
        for thread in threads(exporter.pid()) {
            assert_eq!(thread["Uid"], ids(uid));
            let held = u64::from_str_radix(&thread["CapPrm"], 16).unwrap();
            assert_eq!(held & 0xc0, 0, "neither CAP_SETUID nor CAP_SETGID: {held:#x}");
        }
        let helpers = children(exporter.pid());
        assert_eq!(helpers.len(), 1, "{}", exporter.log());
        let helper = &threads(helpers[0])[0];
        assert_eq!((&helper["Uid"], &*helper["Name"]), (&ids(0), "resctrl-helper"));
        assert_eq!(helper["CapPrm"].trim_start_matches('0'), "");
        assert_eq!(exporter.terminate(), Some(0));
        jobledger_testkit::eventually("its end", || !Path::new(&format!("/proc/{}", helpers[0])).exists());
    }
}

/// Becomes a user with CAP_SETUID and CAP_SETGID alone, as `AmbientCapabilities=` does.
fn with_change_users(uid: u32) -> std::io::Result<()> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{self, CapabilitySet, CapabilitySets};

    let two = CapabilitySet::SETUID | CapabilitySet::SETGID;
    thread::set_keep_capabilities(true)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    thread::set_capabilities(None, CapabilitySets { effective: two, permitted: two, inheritable: two })?;
    for capability in two.iter() {
        thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// A machine whose files of root's have root's modes.
fn guarded(name: &str) -> Machine {
    let machine = Machine::fixture(name);
    let close = |path: &Path, mode: u32| {
        if path.exists() {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    close(&machine.path("sys/kernel/debug"), 0o700);
    close(&machine.path("proc/self/mountstats"), 0o400);
    let zones = fs::read_dir(machine.path("sys/class/powercap")).into_iter().flatten().flatten();
    zones.for_each(|zone| close(&zone.path().join("energy_uj"), 0o400));
    machine
}
