//! Work that the kernel counts itself, on this host: from its cgroup to the verdict, with events that need no PMU.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test: what fails here fails it"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use counter_validation::results::Missing;
use counter_validation::validate::{Options, validate};
use counter_validation::{Row, Session, Stopped, Verdict};
use cpu_topology::CpuSet;
use kernel_files::{NodeFiles, Roots};
use perf_counters::sharing::{CounterOwnership, Reason};
use perf_counters::{Event, Group, Plan, PlausibilityLimits, Quantity};
use perf_events::{Attr, Kernel, Open};

/// The whole process moves to a cgroup of its own: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn plan() -> Arc<Plan> {
    let event = |number, quantity| Event {
        name: "event".into(),
        quantity,
        attr: Attr::new(Attr::SOFTWARE, number),
        minus: false,
    };
    let events = vec![event(3, Quantity::ContextSwitches), event(5, Quantity::MinorFaults)];
    let group = Group { name: "software".into(), hardware: false, cpus: None, events };
    let limits = PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: None };
    Arc::new(Plan { microarchitecture: None, flops: None, groups: vec![group], absent: Vec::new(), limits })
}

fn last_cpu(files: &mut NodeFiles) -> u32 {
    cpu_topology::online(files).unwrap().unwrap().iter().last().unwrap()
}

/// The cgroups of this kind that are there.
fn cgroups() -> Vec<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let relative = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("").to_owned();
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let entries = mounts.iter().filter_map(|mount| std::fs::read_dir(mount.join(&relative)).ok()).flatten();
    let ours = format!("jobledger-validate-{}", std::process::id());
    entries.flatten().map(|entry| entry.path()).filter(|path| path.ends_with(&ours)).collect()
}

/// A session on the last CPU of this machine.
struct Node {
    roots: Roots,
    files: NodeFiles,
    ownership: CounterOwnership,
    session: Session,
}

impl Node {
    fn begin() -> Self {
        let (roots, ownership) = (Roots::default(), CounterOwnership::default());
        let mut files = NodeFiles::new(&Arc::new(roots.clone()));
        let cpu = last_cpu(&mut files);
        let open: Arc<dyn Open> = Arc::new(Kernel);
        let session = Session::begin(&roots, &mut files, plan(), &open, &ownership, cpu);
        Self { roots, files, ownership, session }
    }

    fn validate(&mut self, milliseconds: u64, stop: bool) -> Result<(Vec<Row>, Vec<Missing>), Stopped> {
        let Self { roots, files, ownership, session } = self;
        let cpus: CpuSet = [session.cpu()].into_iter().collect();
        let options = Options { cpus, time: Duration::from_millis(milliseconds) };
        validate(session, &plan(), roots, files, ownership, &options, &|| stop)
    }
}

fn skipped() -> bool {
    jobledger_testkit::skip_without_root("cgroups and counters")
        || jobledger_testkit::cgroups::skip_without_groups()
}

#[test]
fn page_faults_and_switches_are_as_many_as_were_made_and_the_cgroup_is_gone_afterwards() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if skipped() {
        return;
    }
    let mut node = Node::begin();
    assert_eq!(node.session.counted_as().mode, "cgroup", "{:?}", node.session.counted_as());
    let name = format!("/jobledger-validate-{}", std::process::id());
    let inside = || std::fs::read_to_string("/proc/self/cgroup").unwrap().contains(&name);
    assert!(inside(), "in a cgroup of its own");
    let (rows, _) = node.validate(20, false).unwrap();
    let outcome = |kernel: &str, quantity: &str| {
        let row = rows.iter().find(|row| row.kernel == kernel && row.quantity == quantity).unwrap();
        (row.verdict, row.counted.unwrap() >= row.known_least)
    };
    assert_eq!(outcome("page_faults", "minor faults"), (Verdict::Pass, true), "{rows:?}");
    // On a busy host others push it off its CPU, too: never fewer than were made.
    assert!(outcome("context_switches", "context switches").1, "{rows:?}");
    assert!(inside());
    drop(node);
    assert!(!inside());
    assert_eq!(cgroups().len(), 0, "removed");
}

#[test]
fn counters_that_somebody_else_has_end_it() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if skipped() {
        return;
    }
    let mut node = Node::begin();
    node.ownership.yield_for(Reason::Lock);
    assert_eq!(node.validate(5, false).err(), Some(Stopped::Yielded));
    node.ownership.resume_from(Reason::Lock);
    assert_eq!(node.validate(5, true).err(), Some(Stopped::Interrupted));
    drop(node);
    assert_eq!(cgroups().len(), 0);
}
