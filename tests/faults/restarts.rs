//! The exporter is restarted and killed, and its accounts go on. Row 39.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use durable_state::slot::{self, Identity};
use durable_state::{MOST_BYTES, boot_id};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::Exposition;
use jobledger_testkit::wait::until;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::support::*;

const ZONE: &str = "sys/class/powercap/intel-rapl:0";
const NODE_JOULES: &str = "jobledger_node_energy_joules_total";
const UNATTRIBUTED_JOULES: &str = "jobledger_node_energy_unattributed_joules_total";
const JOB_JOULES: &str = "jobledger_job_energy_joules_total";
const ALLOCATED: &str = "jobledger_job_allocated_cpu_seconds_total";

/// A node of two CPUs on a metered socket, with jobs that hold both.
struct Metered(Node);

impl Metered {
    fn with_jobs(ids: impl IntoIterator<Item = u32>) -> Self {
        let node = Node::with_jobs([]);
        let machine = &node.0;
        machine.write("sys/devices/system/cpu/online", "0-1\n");
        for cpu in 0..2 {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            machine.write(format!("{dir}/physical_package_id"), "0\n");
        }
        machine.write(format!("{ZONE}/name"), "package-0\n");
        machine.write(format!("{ZONE}/max_energy_range_uj"), "262143328850\n");
        let metered = Self(node);
        metered.joules(1000);
        ids.into_iter().for_each(|id| metered.add_job(id));
        metered
    }

    fn add_job(&self, id: u32) {
        self.0.add_job(id, id);
        self.0.0.write(format!("{}/cpuset.cpus", job(id)), "0-1\n");
    }

    fn joules(&self, joules: u64) {
        self.0.0.write(format!("{ZONE}/energy_uj"), format!("{}\n", joules * 1_000_000));
    }

    fn state(&self) -> PathBuf {
        self.0.0.path("run/state")
    }

    fn start(&self) -> Exporter {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Exporter {
        let file = format!("--state.file={}", self.state().display());
        self.0.start(&[&[&*file, "--jobs.retention=1h"], more].concat())
    }
}

/// A scrape after the least pause between two readings of energy.
fn scrape_later(exporter: &Exporter) -> Exposition {
    sleep(Duration::from_millis(1050));
    scrape(exporter)
}

/// Joules of the node, of a job, and of nobody.
fn joules(now: &Exposition, id: u32) -> [f64; 3] {
    let sum = |name: &str, job: Option<&str>| {
        let of = now.named(name).filter(|s| s.label("domain") == Some("package") && s.label("jobid") == job);
        of.map(|s| s.value).sum::<f64>()
    };
    [sum(NODE_JOULES, None), sum(JOB_JOULES, Some(&id.to_string())), sum(UNATTRIBUTED_JOULES, None)]
}

fn outcome(now: &Exposition) -> (String, String) {
    let info = now.named("jobledger_exporter_state_info").next().unwrap();
    (info.label("storage").unwrap().to_owned(), info.label("outcome").unwrap().to_owned())
}

/// How an exporter ends.
type Ends = fn(Exporter);

fn by_sigterm(exporter: Exporter) {
    assert_eq!(exporter.terminate(), Some(0));
}

/// What is dropped is killed.
fn by_sigkill(exporter: Exporter) {
    drop(exporter);
}

#[test]
fn energy_from_before_and_during_a_restart_is_charged_afterwards() {
    for ends in [by_sigterm as Ends, by_sigkill] {
        let node = Metered::with_jobs([81]);
        let first = node.start();
        let begin = scrape_later(&first);
        assert_eq!((joules(&begin, 81), outcome(&begin).1.as_str()), ([0.0; 3], "empty"));
        let counting = begin.value("jobledger_exporter_counting_start_time_seconds", &[]);
        node.joules(1100);
        assert_eq!(joules(&scrape_later(&first), 81), [100.0, 100.0, 0.0]);
        node.joules(1150);
        ends(first);
        sleep(Duration::from_millis(1100));
        node.joules(1400);
        let second = node.start();
        let after = scrape_later(&second);
        assert_eq!(joules(&after, 81), [400.0, 400.0, 0.0], "{}", second.log());
        node.joules(1420);
        let now = scrape_later(&second);
        assert_eq!(joules(&now, 81), [420.0, 420.0, 0.0]);
        assert_eq!(outcome(&now), ("file".to_owned(), "restored".to_owned()));
        let unobserved = now.value("jobledger_exporter_unobserved_seconds_total", &[]).unwrap();
        assert!((1.0..600.0).contains(&unobserved), "{unobserved}");
        assert_eq!(now.value("jobledger_exporter_counting_start_time_seconds", &[]), counting);
        assert!(now.value("process_start_time_seconds", &[]) > counting);
    }
}

#[test]
fn a_job_that_ended_before_a_restart_and_was_in_no_scrape_is_in_the_next_one() {
    for ends in [by_sigterm as Ends, by_sigkill] {
        let node = Metered::with_jobs([81, 82]);
        let first = node.start();
        let before = scrape(&first);
        let start = of_job(&before, "jobledger_job_start_time_seconds", 82);
        node.0.remove_job(82);
        // The end is saved soon; a kill before that would find the job gone, and that is tested below.
        sleep(Duration::from_millis(700));
        ends(first);
        let second = node.start();
        let now = scrape(&second);
        assert!(of_job(&now, "jobledger_job_end_time_seconds", 82).is_some(), "{}", second.log());
        assert_eq!(of_job(&now, "jobledger_job_start_time_seconds", 82), start);
        assert_eq!(user_seconds(&now, 82), Some(82.0));
        assert_eq!(of_job(&now, "jobledger_job_end_time_seconds", 81), None);
    }
}

#[test]
fn a_job_that_ends_while_no_exporter_runs_ended_when_it_was_seen_last_and_is_not_charged_for_the_rest() {
    let node = Metered::with_jobs([82]);
    let first = node.start();
    scrape_later(&first);
    node.joules(1100);
    scrape_later(&first);
    by_sigterm(first);
    node.0.remove_job(82);
    node.joules(1500);
    sleep(Duration::from_secs(1));
    let second = node.start();
    let now = scrape_later(&second);
    assert!(of_job(&now, "jobledger_job_end_time_seconds", 82).is_some());
    assert_eq!(user_seconds(&now, 82), Some(82.0));
    assert_eq!(self::of_job(&now, "jobledger_job_memory_peak_bytes", 82), Some(8_192_000.0));
    let [all, of_job, rest] = joules(&now, 82);
    assert_eq!((all, of_job + rest), (500.0, 500.0));
    // It was seen until a moment after the last scrape, and is charged with its part of that time.
    assert!(of_job >= 100.0 && rest > 0.0, "{of_job} and {rest}");
}

#[test]
fn a_job_that_starts_while_no_exporter_runs_is_a_run_of_its_own() {
    let node = Metered::with_jobs([81]);
    let first = node.start();
    scrape(&first);
    by_sigterm(first);
    node.add_job(83);
    let second = node.start();
    let now = scrape(&second);
    assert_eq!((user_seconds(&now, 81), user_seconds(&now, 83)), (Some(81.0), Some(83.0)));
    node.0.remove_job(83);
    by_sigkill(second);
    let now = scrape(&node.start());
    assert!(of_job(&now, "jobledger_job_end_time_seconds", 83).is_some());
}

#[test]
fn allocated_cpu_time_does_not_fall_when_a_job_has_fewer_cpus_after_a_restart() {
    for ends in [by_sigterm as Ends, by_sigkill] {
        let node = Metered::with_jobs([81]);
        let first = node.start();
        let before = of_job(&scrape(&first), ALLOCATED, 81).unwrap();
        ends(first);
        node.0.0.write(format!("{}/cpuset.cpus.effective", job(81)), "0\n");
        let second = node.start();
        let after = of_job(&scrape(&second), ALLOCATED, 81).unwrap();
        assert!(before > 0.0 && after >= before, "{after} after {before}");
        assert!(after - before < 120.0, "{after} after {before}");
    }
}

#[test]
fn the_sums_of_the_node_go_on() {
    let node = Metered::with_jobs([81, 82]);
    let stat = format!("{SCOPE}/cpu.stat");
    node.0.0.write(format!("{SCOPE}/system/cpu.stat"), cpu_stat(0)).write(&stat, cpu_stat(200));
    let value = |now: &Exposition, name: &str| now.value(name, &[]).unwrap();
    let of_cpu = |now: &Exposition| {
        ["jobledger_node_slurm_cpu_seconds_total", "jobledger_node_slurm_cpu_unattributed_seconds_total"]
            .map(|name| value(now, name))
    };
    let mut exporter = node.start();
    let [total, unattributed] = of_cpu(&scrape(&exporter));
    assert_eq!((total, unattributed), (1.2 * 163.0, 0.0));
    for round in 1..=3_u32 {
        by_sigkill(exporter);
        // Ten seconds of job 81, and five of no job.
        node.0.0.write(format!("{}/cpu.stat", job(81)), cpu_stat(81 + 10 * round));
        node.0.0.write(&stat, cpu_stat(200 + 15 * round));
        exporter = node.start();
        let now = of_cpu(&scrape(&exporter));
        let rounds = f64::from(round);
        for (now, wanted) in now.into_iter().zip([total + 18.0 * rounds, 6.0 * rounds]) {
            assert!((now - wanted).abs() < 1e-6, "{now} instead of {wanted} in round {round}");
        }
    }
}

#[test]
fn a_state_that_is_torn_foreign_or_not_ours_is_refused_and_the_exporter_begins_anew() {
    let ours = Identity { layout: jobledger_exporter::app::LAYOUT, boot: boot_id().unwrap() };
    let other_boot = Identity { boot: [7; 16], ..ours };
    let other_version = Identity { layout: 999, ..ours };
    let node = Metered::with_jobs([81]);
    for (slot, wanted) in [
        (slot::write(1 << 40, other_boot, b""), "other_boot"),
        (slot::write(1 << 40, other_version, b""), "other_version"),
        (slot::write(1 << 40, ours, b"no sections"), "damaged"),
        (b"JLSTATE\0 and then nothing that makes sense".to_vec(), "damaged"),
    ] {
        let _ = std::fs::remove_file(node.state());
        by_sigterm(node.start());
        let file = std::fs::OpenOptions::new().write(true).open(node.state()).unwrap();
        file.write_all_at(&slot, 0).unwrap();
        file.write_all_at(&[0; slot::HEAD], MOST_BYTES as u64).unwrap();
        let exporter = node.start();
        let now = scrape(&exporter);
        assert_eq!(outcome(&now), ("file".to_owned(), wanted.to_owned()));
        assert_eq!(user_seconds(&now, 81), Some(81.0));
        by_sigterm(exporter);
        assert_eq!(outcome(&scrape(&node.start())).1, "restored", "it is written anew");
    }
    // A file that others may read is left alone.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(node.state(), open).unwrap();
    let exporter = node.start();
    assert_eq!(outcome(&scrape(&exporter)), ("file".to_owned(), "off".to_owned()));
    assert!(exporter.log().contains("the accounts are not kept for a restart"), "{}", exporter.log());
}

#[test]
fn of_two_exporters_one_has_the_state() {
    let node = Metered::with_jobs([81]);
    let (one, other) = (node.start(), node.start());
    assert_eq!(outcome(&scrape(&one)).1, "empty");
    assert_eq!(outcome(&scrape(&other)).1, "off");
}

#[test]
fn without_a_file_nothing_is_kept() {
    let node = Metered::with_jobs([81]);
    let exporter = node.0.start(&[]);
    assert_eq!(outcome(&scrape(&exporter)), ("none".to_owned(), "off".to_owned()));
}

/// Takes a descriptor from the messages of a service, with the message it came with.
fn stored(socket: &UnixDatagram) -> Option<(String, OwnedFd)> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::DONTWAIT).ok()?.bytes;
    let mut rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Some((String::from_utf8_lossy(&bytes[..received]).into_owned(), rights.next()?))
}

/// The test plays systemd: it keeps the descriptor that a service stores, and hands it to the next one.
#[test]
fn systemd_keeps_the_state_over_a_kill() {
    let node = Metered::with_jobs([81, 82]);
    let path = node.0.0.path("run/notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let flags = node.0.flags(&["--jobs.retention=1h"]);
    let first = Exporter::prepared(BINARY, &flags, |command| {
        command.env("NOTIFY_SOCKET", &path).env("FDSTORE", "1");
    });
    let (message, memory) = until("the descriptor is stored", || stored(&socket).ok_or_else(|| first.log()));
    assert_eq!(message, "FDSTORE=1\nFDNAME=jobledger-state\n");
    let before = scrape_later(&first);
    assert_eq!(outcome(&before), ("descriptor".to_owned(), "empty".to_owned()));
    node.joules(1100);
    assert_eq!(joules(&scrape_later(&first), 81), [100.0, 50.0, 0.0]);
    by_sigkill(first);
    node.joules(1300);
    assert!(memory.as_raw_fd() > 2);
    let second = Exporter::prepared(BINARY, &flags, |command| {
        let with_descriptor =
            "LISTEN_FDS=1 LISTEN_FDNAMES=jobledger-state LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0";
        let mut shell = Command::new("sh");
        shell.args(["-c", with_descriptor]).arg(command.get_program()).args(command.get_args());
        shell.stdin(Stdio::from(memory)).stdout(Stdio::null()).stderr(Stdio::piped()).env("FDSTORE", "1");
        *command = shell;
    });
    let now = scrape_later(&second);
    assert_eq!(outcome(&now), ("descriptor".to_owned(), "restored".to_owned()), "{}", second.log());
    assert_eq!(joules(&now, 81), [300.0, 150.0, 0.0]);
}
