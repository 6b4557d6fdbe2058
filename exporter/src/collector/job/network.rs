//! Bytes and packets of jobs and steps, by programs of our own in the kernel.
//!
//! Two BPF programs of kind cgroup_skb (kernel/bpf/cgroup.c, `__cgroup_bpf_run_filter_skb`) at each
//! `slurmstepd.scope` see every IP packet that a socket below it receives or sends, and add it to the entry of the
//! job and step in whose cgroup the socket was made. The table outlives the cgroup, so short jobs lose nothing.
//!
//! Linux 5.8 and cgroup v2; CAP_BPF and CAP_NET_ADMIN. The programs are gone when the exporter is, however it ends:
//! nothing is pinned or stored elsewhere, and a link ends with its descriptor. Programs of others remain attached; where one of them does
//! not allow another beside it, nothing is attached.
//!
//! The cost per packet and per scrape: docs/performance.md.

mod accounts;
mod watch;

use std::sync::Arc;

use cgroups::Version;
use exposition::{Family, Level, PerCgroup, Section, SubjectId};
use kernel_files::Buffer;
use parking_lot::{Mutex, MutexGuard};
use rustix::thread::CapabilitySet;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot, RemovedCgroup};

use self::accounts::{Counts, NetworkAccounts};
use self::watch::Watch;
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::{Built, Collector, Entry, SourceError};

static RECEIVED_BYTES: PerCgroup = Family::counter("jobledger_job_network_received_bytes_total")
    .help(
        "Bytes of IP packets that came to the sockets made in the cgroup, without link-layer \
         headers, since the exporter counts; not over the loopback device, not RDMA",
    )
    .per_cgroup("jobledger_step_network_received_bytes_total", "jobledger_task_network_received_bytes_total");
static RECEIVED_PACKETS: PerCgroup = Family::counter("jobledger_job_network_received_packets_total")
    .help(
        "IP packets that came to the sockets made in the cgroup, since the exporter \
         counts; what the kernel merged is one, the loopback device is not in it",
    )
    .per_cgroup(
        "jobledger_step_network_received_packets_total",
        "jobledger_task_network_received_packets_total",
    );
static TRANSMITTED_BYTES: PerCgroup = Family::counter("jobledger_job_network_transmitted_bytes_total")
    .help(
        "Bytes of IP packets that the sockets made in the cgroup sent, without link-layer \
         headers, since the exporter counts; not over the loopback device, not RDMA",
    )
    .per_cgroup(
        "jobledger_step_network_transmitted_bytes_total",
        "jobledger_task_network_transmitted_bytes_total",
    );
static TRANSMITTED_PACKETS: PerCgroup = Family::counter("jobledger_job_network_transmitted_packets_total")
    .help(
        "IP packets that the sockets made in the cgroup sent, since the exporter \
         counts; what is cut up later is one, the loopback device is not in it",
    )
    .per_cgroup(
        "jobledger_step_network_transmitted_packets_total",
        "jobledger_task_network_transmitted_packets_total",
    );
static LOOPBACK_BYTES: PerCgroup = Family::counter("jobledger_job_network_loopback_bytes_total")
    .help(
        "Bytes of IP packets that the sockets made in the cgroup sent over \
         the loopback device, counted once, since the exporter counts",
    )
    .per_cgroup("jobledger_step_network_loopback_bytes_total", "jobledger_task_network_loopback_bytes_total");
static LOOPBACK_PACKETS: PerCgroup = Family::counter("jobledger_job_network_loopback_packets_total")
    .help(
        "IP packets that the sockets made in the cgroup sent over the \
         loopback device, counted once, since the exporter counts",
    )
    .per_cgroup(
        "jobledger_step_network_loopback_packets_total",
        "jobledger_task_network_loopback_packets_total",
    );
static NODE_RECEIVED_BYTES: Family = Family::counter("jobledger_node_slurm_network_received_bytes_total")
    .help(
        "Bytes of IP packets received by SLURM's cgroups since this exporter \
         counts: the sum over jobs, ended ones too, plus the unattributed",
    );
static NODE_RECEIVED_PACKETS: Family = Family::counter("jobledger_node_slurm_network_received_packets_total")
    .help(
        "IP packets received by SLURM's cgroups since this exporter \
         counts: the sum over jobs, ended ones too, plus the unattributed",
    );
static NODE_TRANSMITTED_BYTES: Family =
    Family::counter("jobledger_node_slurm_network_transmitted_bytes_total").help(
        "Bytes of IP packets sent by SLURM's cgroups since this exporter \
         counts: the sum over jobs, ended ones too, plus the unattributed",
    );
static NODE_TRANSMITTED_PACKETS: Family =
    Family::counter("jobledger_node_slurm_network_transmitted_packets_total").help(
        "IP packets sent by SLURM's cgroups since this exporter counts: \
         the sum over jobs, ended ones too, plus the unattributed",
    );
static NODE_LOOPBACK_BYTES: Family = Family::counter("jobledger_node_slurm_network_loopback_bytes_total")
    .help(
        "Bytes of IP packets sent over the loopback device by SLURM's cgroups since \
         this exporter counts: the sum over jobs, ended ones too, plus the unattributed",
    );
static NODE_LOOPBACK_PACKETS: Family = Family::counter("jobledger_node_slurm_network_loopback_packets_total")
    .help(
        "IP packets sent over the loopback device by SLURM's cgroups since this \
         exporter counts: the sum over jobs, ended ones too, plus the unattributed",
    );
static UNATTRIBUTED_RECEIVED_BYTES: Family =
    Family::counter("jobledger_node_slurm_network_unattributed_received_bytes_total").help(
        "Bytes of IP packets received by SLURM's cgroups that no job can \
         be charged with, such as those of slurmstepd in its own cgroup",
    );
static UNATTRIBUTED_RECEIVED_PACKETS: Family =
    Family::counter("jobledger_node_slurm_network_unattributed_received_packets_total").help(
        "IP packets received by SLURM's cgroups that no job can be \
         charged with, such as those of slurmstepd in its own cgroup",
    );
static UNATTRIBUTED_TRANSMITTED_BYTES: Family =
    Family::counter("jobledger_node_slurm_network_unattributed_transmitted_bytes_total").help(
        "Bytes of IP packets sent by SLURM's cgroups that no job can be \
         charged with, such as those of slurmstepd in its own cgroup",
    );
static UNATTRIBUTED_TRANSMITTED_PACKETS: Family =
    Family::counter("jobledger_node_slurm_network_unattributed_transmitted_packets_total").help(
        "IP packets sent by SLURM's cgroups that no job can be \
         charged with, such as those of slurmstepd in its own cgroup",
    );
static UNATTRIBUTED_LOOPBACK_BYTES: Family =
    Family::counter("jobledger_node_slurm_network_unattributed_loopback_bytes_total").help(
        "Bytes of IP packets sent over the loopback device by SLURM's cgroups that \
         no job can be charged with, such as those of slurmstepd in its own cgroup",
    );
static UNATTRIBUTED_LOOPBACK_PACKETS: Family =
    Family::counter("jobledger_node_slurm_network_unattributed_loopback_packets_total").help(
        "IP packets sent over the loopback device by SLURM's cgroups that no \
         job can be charged with, such as those of slurmstepd in its own cgroup",
    );
static OVERFLOW: Family = Family::counter("jobledger_node_slurm_network_overflow_packets_total")
    .help("Packets, all in the unattributed, of cgroups for which there was no room in the kernel's table");

/// In the order of [`Counts`].
static PER_JOB: [&PerCgroup; 6] = [
    &RECEIVED_BYTES,
    &RECEIVED_PACKETS,
    &TRANSMITTED_BYTES,
    &TRANSMITTED_PACKETS,
    &LOOPBACK_BYTES,
    &LOOPBACK_PACKETS,
];
static TOTAL: [&Family; 6] = [
    &NODE_RECEIVED_BYTES,
    &NODE_RECEIVED_PACKETS,
    &NODE_TRANSMITTED_BYTES,
    &NODE_TRANSMITTED_PACKETS,
    &NODE_LOOPBACK_BYTES,
    &NODE_LOOPBACK_PACKETS,
];
static UNATTRIBUTED: [&Family; 6] = [
    &UNATTRIBUTED_RECEIVED_BYTES,
    &UNATTRIBUTED_RECEIVED_PACKETS,
    &UNATTRIBUTED_TRANSMITTED_BYTES,
    &UNATTRIBUTED_TRANSMITTED_PACKETS,
    &UNATTRIBUTED_LOOPBACK_BYTES,
    &UNATTRIBUTED_LOOPBACK_PACKETS,
];

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "network",
    summary: "Bytes and packets of jobs, and those of SLURM that no job can be charged with",
    default_on: false,
    cost: Some(
        "Two BPF programs that see every packet of SLURM's cgroups; needs Linux 5.8, cgroup v2, CAP_BPF and CAP_NET_ADMIN",
    ),
    capabilities: CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN),
    families: || {
        let rows = PER_JOB.iter().flat_map(|family| [&family.job, &family.step]);
        rows.chain(TOTAL).chain(UNATTRIBUTED).chain([&OVERFLOW]).collect()
    },
    build: |_| {
        let shared = Arc::new(Shared::default());
        Built::with_accounts(Network { shared: shared.clone() }, shared)
    },
};

#[derive(Debug, Default)]
struct State {
    accounts: NetworkAccounts,
    /// SLURM's names of the nodes with counted jobs.
    counted: Vec<Option<Arc<str>>>,
}

impl State {
    /// Opens the accounts of a job with counted packets, for those of its cgroups that still exist.
    fn open(&mut self, job: &Job, levels: Levels) {
        if job.cgroup.version() != Version::V2 || !self.counted.contains(&job.slurm_node) {
            return;
        }
        self.accounts.open(job.run, job.inode);
        let Some(dir) = job.cgroup.dirs().next().filter(|_| levels.steps) else { return };
        for step in job.steps.iter().filter(|step| step.ended.is_none()) {
            if !self.accounts.knows_step(job.run, step.ordinal)
                && let Ok(stat) = dir.stat_of(&step.name)
            {
                self.accounts.step(job.run, step.ordinal, stat.inode);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// The kernel's side, as soon as there is something to count. It is locked before the state.
    watch: Mutex<Option<Watch>>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl JobObserver for Shared {
    fn checkpoint(&self, job: &Job, _step: Option<u32>, levels: Levels, _buffer: &mut Buffer) {
        // The kernel keeps the counts. The owner has to be read while the directories exist.
        self.state().open(job, levels);
    }

    fn cgroup_removed(&self, gone: &RemovedCgroup<'_>, _buffer: &mut Buffer) {
        self.state().open(gone.job, Levels::default());
    }

    fn job_removed(&self, run: JobRunId, disposition: Disposition) {
        self.state().accounts.forget(run, disposition);
    }
}

/// What sockets sent and received while no exporter ran is in no number: the programs and the table end with it.
impl Durable for Shared {
    fn save(&self) -> Option<Vec<u8>> {
        Some(durable_state::encode(&self.state().accounts))
    }

    fn read_last(&self) {
        if let Some(watch) = &mut *self.watch.lock()
            && let Ok((table, overflow)) = watch.read()
        {
            self.state().accounts.round(table, overflow, false);
        }
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let mut accounts: NetworkAccounts = durable_state::decode(section)?;
        accounts.keep(|run| before.knows(run));
        self.state().accounts = accounts;
        Ok(())
    }
}

struct Network {
    shared: Arc<Shared>,
}

fn push(families: [&'static Family; 6], subject: SubjectId, counts: Counts, out: &mut Section) {
    for (family, count) in families.into_iter().zip(counts.0) {
        out.push(family, subject, &[], count);
    }
}

impl Network {
    fn emit_job(job: &Job, snapshot: &NodeSnapshot, accounts: &mut NetworkAccounts, out: &mut Section) {
        let Some(counts) = accounts.of(job.run) else { return };
        accounts.export(job.run);
        let subject = out.subject_since(job.labels(), job.followed_from(snapshot));
        push(PER_JOB.map(|family| family.at(Level::Job)), subject, counts, out);
        if !snapshot.levels.steps {
            return;
        }
        for step in job.exported_steps() {
            let Some(counts) = accounts.of_step(job.run, step.ordinal) else { continue };
            let name = step.id.to_string();
            let began = job.part_followed_from(step.began, snapshot);
            let subject = out.subject_since(job.labels().chain([("step", name.as_str())]), began);
            push(PER_JOB.map(|family| family.at(Level::Step)), subject, counts, out);
        }
        let there = |ordinal| job.steps.iter().any(|step| step.ordinal == ordinal);
        accounts.keep_steps(job.run, there, job.steps.len());
    }
}

impl Collector for Network {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut watch = self.shared.watch.lock();
        if watch.is_none() && snapshot.scopes.is_empty() {
            // Nothing to count yet, and no word that it could not be.
            return Ok(());
        }
        let watch = match &mut *watch {
            Some(watch) => watch,
            none => none.insert(Watch::new(snapshot.levels.steps)?),
        };
        let followed = watch.follow(&snapshot.scopes);
        let mut state = self.shared.state();
        state.counted = watch.counted().cloned().collect();
        for job in snapshot.jobs.iter().chain(&snapshot.pending).filter(|job| job.is_running()) {
            state.open(job, snapshot.levels);
        }
        let (table, overflow) = watch.read()?;
        let crowded = watch.is_crowded(table.len());
        let accounts = &mut state.accounts;
        for key in accounts.round(table, overflow, crowded) {
            if let Some(last) = watch.take(key)? {
                accounts.removed(key, last);
            }
        }
        if followed.is_err() && state.counted.is_empty() {
            return followed;
        }
        let State { accounts, counted } = &mut *state;
        // A job that runs uncounted would pass for one that rests.
        for job in snapshot.jobs.iter().filter(|job| !job.is_running() || counted.contains(&job.slurm_node)) {
            Self::emit_job(job, snapshot, accounts, out);
        }
        let node = out.node_since(Some(snapshot.following_since));
        push(TOTAL, node, accounts.total(), out);
        push(UNATTRIBUTED, node, accounts.unattributed(), out);
        out.push(&OVERFLOW, node, &[], accounts.overflow().packets());
        followed
    }
}
