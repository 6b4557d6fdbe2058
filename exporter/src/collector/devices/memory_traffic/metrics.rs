//! The samples of memory traffic.

use std::collections::BTreeSet;
use std::time::Instant;

use exposition::{Family, Section, SubjectId, Value};
use slurm_jobs::{Job, JobRunId, NodeSnapshot};

use super::accounts::{TrafficAccounts, Where};
use super::telemetry;

static NODE_BYTES: Family = Family::counter("jobledger_node_memory_traffic_bytes_total")
    .labels(&["socket", "kind", "direction"])
    .help(
        "Bytes moved since this exporter started: the sum over jobs plus the \
         unattributed; by memory controllers (kind dram, hbm, pmem, mcdram), or past the \
         L3 caches as resctrl measures it (kind l3_external), which must not be added up",
    );
static UNATTRIBUTED: Family = Family::counter("jobledger_node_memory_traffic_unattributed_bytes_total")
    .labels(&["socket", "kind", "direction"])
    .help(
        "Bytes that no job is charged with: moved while no job or several could use \
         the socket, or by no job's tasks; with --collector.memory-traffic.resctrl \
         all that the controllers moved, since jobs are charged by l3_external then",
    );
static JOB_BYTES: Family = Family::counter("jobledger_job_memory_traffic_bytes_total")
    .labels(&["socket", "kind", "direction", "method"])
    .help(
        "Bytes moved while the job had the node or provably the socket for itself (method exclusive), or \
         by its tasks past the L3 caches while they were monitored (method resctrl); absent if neither",
    );
static RUNNING: Family = Family::gauge("jobledger_node_memory_traffic_running_ratio")
    .labels(&["socket", "kind", "direction"])
    .help(
        "Part of the time since the last reading in which the events had a hardware counter; below 1 \
         they took turns, with each other or with other programs, and the bytes are scaled up from it",
    );
static INFO: Family = Family::info("jobledger_node_memory_traffic_info")
    .labels(&["kind", "pmu", "events", "counters", "verified", "why"])
    .help(
        "What counts a kind of memory: pattern of the PMUs' names, events and hardware counters per \
         box (empty where not known or not shared), whether what the events mean is documented, and why not",
    );
static OCCUPANCY: Family = Family::gauge("jobledger_job_l3_occupancy_bytes")
    .labels(&["socket"])
    .help("L3 cache that is filled with lines which the job's tasks fetched, as resctrl measures it");
static MONITORED: Family = Family::counter("jobledger_job_l3_monitored_seconds_total").help(
    "Time in which all of the job's tasks were monitored by resctrl; \
     what they moved in the rest of its run is in no series of the job",
);
static REFUSED: Family =
    Family::counter("jobledger_node_l3_monitoring_refused_total").labels(&["reason"]).help(
        "Attempts at monitoring a job that failed: exhausted (no RMID free), denied, locked \
         (by another program), foreign (tasks in a monitoring group of somebody else), \
         no_counter (none free for its bytes, mode mbm_event), failed",
    );
static UNREAD: Family = Family::counter("jobledger_node_l3_monitoring_unread_total")
    .labels(&["event", "reason"])
    .help(
        "Readings of a group in one L3 domain or package that gave no number, so that series are absent: unavailable \
         (the hardware does not follow it now), unassigned (it has no counter), error, failed",
    );
static MONITORING: Family =
    Family::info("jobledger_node_l3_monitoring_info").labels(&["rmids", "mode", "counters", "counted"]).help(
        "Monitoring by resctrl: most groups that there can be, how counters are given to them (mbm_event, \
         default; empty where the kernel has no such choice), and in mode mbm_event the counters of each L3 domain \
         and the transactions that are counted",
    );

/// Rows of the catalogue.
pub(super) fn families() -> Vec<&'static Family> {
    let telemetry = telemetry::families();
    let traffic = [
        &NODE_BYTES,
        &UNATTRIBUTED,
        &JOB_BYTES,
        &RUNNING,
        &INFO,
        &OCCUPANCY,
        &MONITORED,
        &REFUSED,
        &UNREAD,
        &MONITORING,
    ];
    traffic.into_iter().chain(telemetry).collect()
}

/// A socket's number as a label; empty where it is not known.
fn label(socket: Option<u32>) -> String {
    socket.map(|socket| socket.to_string()).unwrap_or_default()
}

impl TrafficAccounts {
    pub(super) fn emit(&mut self, snapshot: &NodeSnapshot, out: &mut Section) {
        out.note_restarts(std::mem::take(&mut self.restarts));
        self.export(snapshot);
        let since_start = out.node_since(Some(snapshot.following_since));
        self.emit_sources(since_start, out);
        self.telemetry.emit(snapshot, since_start, out);
        for (at, traffic) in self.accounts.iter().filter(|(_, traffic)| traffic.read) {
            let socket = label(at.socket);
            let labels = [("socket", socket.as_str()), ("kind", at.kind), ("direction", at.direction)];
            out.push(&NODE_BYTES, since_start, &labels, traffic.account.exported_total());
            out.push(&UNATTRIBUTED, since_start, &labels, traffic.account.residual());
            if let Some(running) = traffic.running {
                out.push(&RUNNING, SubjectId::NODE, &labels, running);
            }
        }
        let now = Instant::now();
        for job in &snapshot.jobs {
            self.emit_job(job, snapshot, now, out);
        }
    }

    /// Notes what this scrape shows of jobs.
    fn export(&mut self, snapshot: &NodeSnapshot) {
        for (at, read) in self.accounts.iter().map(|(at, traffic)| (*at, traffic.read)).collect::<Vec<_>>() {
            let shown: Vec<JobRunId> = snapshot
                .jobs
                .iter()
                .filter(|job| self.is_exported(job, at, read))
                .map(|job| job.run)
                .collect();
            if let Some(traffic) = self.accounts.get_mut(&at) {
                shown.into_iter().for_each(|run| traffic.account.export(run));
            }
        }
    }

    fn emit_sources(&self, since_start: SubjectId, out: &mut Section) {
        for found in self.controllers.iter().flatten().flat_map(|controllers| controllers.found()) {
            let counters = found.counters.map(|counters| counters.to_string()).unwrap_or_default();
            let labels = [
                ("kind", found.kind.as_str()),
                ("pmu", found.pmu.as_str()),
                ("events", &found.events.to_string()),
                ("counters", &counters),
                ("verified", if found.unverified.is_none() { "true" } else { "false" }),
                ("why", found.unverified.as_deref().unwrap_or_default()),
            ];
            out.push(&INFO, SubjectId::NODE, &labels, 1);
        }
        let Some(monitor) = &self.monitor else { return };
        if let Some(about) = monitor.about() {
            let [rmids, counters] = [about.rmids, about.counters]
                .map(|most| most.map(|most| most.to_string()).unwrap_or_default());
            let labels = [
                ("rmids", rmids.as_str()),
                ("mode", about.mode.as_str()),
                ("counters", counters.as_str()),
                ("counted", about.counted.as_str()),
            ];
            out.push(&MONITORING, SubjectId::NODE, &labels, 1);
        }
        for (reason, times) in &monitor.refused {
            out.push(&REFUSED, since_start, &[("reason", reason.as_str())], *times);
        }
        for ((quantity, reason), times) in &monitor.unread {
            let labels = [("event", quantity.event()), ("reason", reason.as_str())];
            out.push(&UNREAD, since_start, &labels, *times);
        }
    }

    /// Whether a socket's number is emitted for a job now. An ended job keeps its numbers although they cannot be
    /// read now: nothing can change them.
    fn is_exported(&self, job: &Job, at: Where, read: bool) -> bool {
        if !job.is_running() {
            return true;
        }
        if at == Where::l3(at.socket) {
            let mut domains = self.domains_of(at.socket).peekable();
            return domains.peek().is_some()
                && domains.all(|domain| self.round.read.contains(&(job.run, domain)));
        }
        read
    }

    fn emit_job(&self, job: &Job, snapshot: &NodeSnapshot, now: Instant, out: &mut Section) {
        let mut known = None;
        let mut subject = |out: &mut Section| {
            *known.get_or_insert_with(|| out.subject_since(job.labels(), job.followed_from(snapshot)))
        };
        for (at, traffic) in &self.accounts {
            let socket = label(at.socket);
            if !self.is_exported(job, *at, traffic.read) {
                continue;
            }
            for (method, bytes) in traffic.account.of(job.run) {
                let subject = subject(out);
                let labels = [
                    ("socket", socket.as_str()),
                    ("kind", at.kind),
                    ("direction", at.direction),
                    ("method", method.as_str()),
                ];
                out.push(&JOB_BYTES, subject, &labels, bytes);
            }
        }
        let sockets: BTreeSet<Option<u32>> =
            self.round.places.iter().map(|domain| self.l3.get(domain).copied()).collect();
        for socket in sockets.into_iter().filter(|_| job.is_running()) {
            let of =
                self.domains_of(socket).map(|domain| self.round.occupancy.get(&(job.run, domain)).copied());
            if let Some(bytes) = of.sum::<Option<u64>>() {
                let subject = subject(out);
                out.push(&OCCUPANCY, subject, &[("socket", label(socket).as_str())], bytes);
            }
        }
        self.telemetry.emit_job(job, &mut subject, out);
        let monitored = self.monitor.as_ref().and_then(|monitor| monitor.monitored(job.run, now));
        if let Some(monitored) = monitored {
            let subject = subject(out);
            out.push(&MONITORED, subject, &[], Value::seconds(monitored));
        }
    }
}
