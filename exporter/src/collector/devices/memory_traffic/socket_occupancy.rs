//! The jobs that may use each socket: those with CPUs or memory nodes there.
//!
//! `cpuset.cpus.effective` and `cpuset.mems.effective` of the job's cgroup (v1 `cpuset.effective_cpus`, `_mems`). Both count: a
//! job that runs on another socket may have its memory here. SLURM narrows CPUs with `ConstrainCores=yes`; memory nodes it
//! leaves as they are, so that a socket is a job's alone only where a site narrows them, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use std::time::Instant;

use attribution::{Occupancy, Occupants};
use cgroups::{Cgroup, Controller, Version};
use cpu_topology::{CpuSet, Topology};
use kernel_files::Buffer;
use parking_lot::Mutex;
use perf_counters::resctrl;
use slurm_jobs::{JobId, JobRunId, NodeSnapshot};

/// One job.
#[derive(Debug)]
struct JobSockets {
    id: Option<JobId>,
    cgroup: Arc<Cgroup>,
    /// The sockets that it may use; `None` when that is not known: all of them.
    on: Option<BTreeSet<u32>>,
    /// When that was found out last.
    at: Instant,
}

/// One socket.
#[derive(Debug)]
struct Socket {
    occupancy: Occupancy,
    /// When it changed last.
    changed: Instant,
}

/// All jobs and sockets.
#[derive(Debug, Default)]
pub(super) struct SocketOccupancy {
    runs: BTreeMap<JobRunId, JobSockets>,
    sockets: BTreeMap<u32, Socket>,
    looked: bool,
}

impl Socket {
    fn new(now: Instant) -> Self {
        Self { occupancy: Occupancy::new(now), changed: now }
    }

    fn change(&mut self, at: Instant, change: impl FnOnce(&mut Occupancy, Instant) -> bool) {
        // The occupancy takes changes in their order.
        let at = at.max(self.changed);
        self.changed = at;
        change(&mut self.occupancy, at);
    }
}

/// The sockets that a job may use now.
fn read(cgroup: &Cgroup, layout: &Topology, buffer: &mut Buffer) -> Option<BTreeSet<u32>> {
    let view = cgroup.view();
    let [cpus, nodes] = match view.version() {
        Version::V2 => ["cpuset.cpus.effective", "cpuset.mems.effective"],
        Version::V1 => ["cpuset.effective_cpus", "cpuset.effective_mems"],
    };
    let mut list = |file| CpuSet::parse(view.read(Controller::Cpuset, file, buffer).ok()??).ok();
    layout.sockets_of(&list(cpus)?, &list(nodes)?)
}

impl SocketOccupancy {
    pub(super) fn looked(&mut self, now: Instant) {
        self.looked = true;
        self.sockets.values_mut().for_each(|socket| socket.change(now, Occupancy::looked));
    }

    /// A job is there. Until its cpuset is read it may be anywhere.
    pub(super) fn appeared(&mut self, run: JobRunId, id: Option<JobId>, cgroup: Arc<Cgroup>, now: Instant) {
        self.runs.insert(run, JobSockets { id, cgroup, on: None, at: now });
        for socket in self.sockets.values_mut() {
            socket.change(now, |occupancy, now| occupancy.appeared(run, now));
        }
    }

    pub(super) fn left(&mut self, run: JobRunId, now: Instant) {
        self.runs.remove(&run);
        for socket in self.sockets.values_mut() {
            socket.change(now, |occupancy, now| occupancy.left(run, now));
        }
    }

    pub(super) fn forget(&mut self, run: JobRunId) {
        self.sockets.values_mut().for_each(|socket| socket.occupancy.forget(run));
    }

    /// More directories of jobs are there (v1), or their ids are known by now.
    pub(super) fn reopened(&mut self, snapshot: &NodeSnapshot) {
        for job in snapshot.jobs.iter().chain(&snapshot.pending) {
            if let Some(job_sockets) = self.runs.get_mut(&job.run).filter(|_| job.is_running()) {
                job_sockets.id = job.id;
                job_sockets.cgroup.clone_from(&job.cgroup);
            }
        }
    }

    /// The jobs that are there.
    pub(super) fn jobs(&self) -> Vec<resctrl::Job> {
        let job = |(run, job_sockets): (&JobRunId, &JobSockets)| resctrl::Job {
            run: *run,
            id: job_sockets.id,
            cgroup: job_sockets.cgroup.clone(),
        };
        self.runs.iter().map(job).collect()
    }

    /// The same once those of the start are known.
    pub(super) fn all_jobs(&self) -> Option<Vec<resctrl::Job>> {
        self.looked.then(|| self.jobs())
    }

    /// The machine has these sockets now. Who was on them before is not known.
    pub(super) fn lay_out(&mut self, layout: &Topology, now: Instant) {
        self.sockets = layout.sockets.keys().map(|socket| (*socket, Socket::new(now))).collect();
        for (run, job_sockets) in &mut self.runs {
            job_sockets.on = None;
            for socket in self.sockets.values_mut() {
                socket.change(now, |occupancy, now| occupancy.appeared(*run, now));
            }
        }
        if self.looked {
            self.looked(now);
        }
    }

    /// The jobs on a socket between two readings.
    pub(super) fn between(&self, socket: u32, from: Instant, to: Instant) -> Occupants {
        self.sockets.get(&socket).map_or(Occupants::Mixed, |socket| socket.occupancy.between(from, to))
    }

    /// Reads the cpusets of all jobs, where it matters: on a node with several sockets that several jobs share. The
    /// lock is not held while files are read.
    pub(super) fn refresh(socket_occupancy: &Mutex<Self>, layout: &Topology, buffer: &mut Buffer) {
        let jobs = socket_occupancy.lock().jobs();
        if layout.sockets.len() < 2 || jobs.len() < 2 {
            return;
        }
        for job in jobs {
            let at = Instant::now();
            let on = read(&job.cgroup, layout, buffer);
            socket_occupancy.lock().moved(job.run, on, at);
        }
    }

    fn moved(&mut self, run: JobRunId, on: Option<BTreeSet<u32>>, now: Instant) {
        let Some(job_sockets) = self.runs.get_mut(&run) else { return };
        let since = std::mem::replace(&mut job_sockets.at, now);
        if job_sockets.on == on {
            return;
        }
        let before = std::mem::replace(&mut job_sockets.on, on.clone());
        let is = |on: &Option<BTreeSet<u32>>, socket: &u32| on.as_ref().is_none_or(|on| on.contains(socket));
        for (number, socket) in &mut self.sockets {
            match (is(&before, number), is(&on, number)) {
                // When it came is not known: as soon as it can have been.
                (false, true) => socket.change(since, |occupancy, at| occupancy.appeared(run, at)),
                (true, false) => socket.change(now, |occupancy, at| occupancy.left(run, at)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kernel_files::NodeFiles;
    use perf_counters::uncore::testing;

    use super::*;
    use crate::collector::testing::Machine;

    const A: JobRunId = JobRunId(1);
    const B: JobRunId = JobRunId(2);

    struct Node {
        machine: Machine,
        layout: Topology,
        socket_occupancy: Mutex<SocketOccupancy>,
    }

    impl Node {
        fn new() -> Self {
            let machine = Machine::new();
            testing::sockets(&machine, 2, 4);
            let layout = Topology::current(&mut NodeFiles::new(&Arc::new(machine.roots())));
            let node = Self { machine, layout, socket_occupancy: Mutex::default() };
            node.set("a", "0-3", "0").set("b", "4-7", "1");
            let now = Instant::now();
            let mut socket_occupancy = node.socket_occupancy.lock();
            socket_occupancy.lay_out(&node.layout, now);
            socket_occupancy.looked(now);
            drop(socket_occupancy);
            node
        }

        fn set(&self, job: &str, cpus: &str, mems: &str) -> &Self {
            self.machine.write(&format!("cgroup/{job}/cpuset.cpus.effective"), format!("{cpus}\n"));
            self.machine.write(&format!("cgroup/{job}/cpuset.mems.effective"), format!("{mems}\n"));
            self
        }

        fn appears(&self, run: JobRunId, job: &str) -> &Self {
            let cgroup = Arc::new(self.machine.v2(job));
            self.socket_occupancy.lock().appeared(run, None, cgroup, Instant::now());
            self
        }

        fn refresh(&self) -> Instant {
            SocketOccupancy::refresh(&self.socket_occupancy, &self.layout, &mut Buffer::default());
            std::thread::sleep(Duration::from_millis(2));
            Instant::now()
        }

        /// The jobs on the sockets from now on.
        fn now(&self) -> [Occupants; 2] {
            let from = self.refresh();
            let to = from + Duration::from_secs(10);
            [0, 1].map(|socket| self.socket_occupancy.lock().between(socket, from, to))
        }
    }

    #[test]
    fn a_socket_is_a_jobs_when_neither_cpus_nor_memory_of_another_are_there() {
        let node = Node::new();
        node.appears(A, "a").appears(B, "b");
        assert_eq!(node.now(), [Occupants::One(A), Occupants::One(B)]);
        // B may have its memory on the first socket.
        node.set("b", "4-7", "0-1");
        assert_eq!(node.now(), [Occupants::Mixed, Occupants::One(B)]);
        node.set("b", "3-7", "1");
        assert_eq!(node.now(), [Occupants::Mixed, Occupants::One(B)]);
        node.set("b", "4-7", "1");
        assert_eq!(node.now(), [Occupants::One(A), Occupants::One(B)]);
        node.socket_occupancy.lock().left(B, Instant::now());
        assert_eq!(node.now(), [Occupants::One(A), Occupants::Empty]);
    }

    #[test]
    fn one_whose_cpuset_is_not_known_may_be_anywhere() {
        let node = Node::new();
        node.set("b", "", "").appears(A, "a").appears(B, "b");
        assert_eq!(node.now(), [Occupants::Mixed, Occupants::One(B)], "A cannot be on the second");
        node.set("a", "", "");
        assert_eq!(node.now(), [Occupants::Mixed, Occupants::Mixed]);
    }

    #[test]
    fn one_that_spreads_did_so_as_early_as_it_can_have() {
        let node = Node::new();
        node.appears(A, "a").appears(B, "b");
        let from = node.refresh();
        node.set("b", "0-7", "0-1");
        let later = from + Duration::from_secs(100);
        node.socket_occupancy.lock().moved(B, None, later);
        assert_eq!(
            node.socket_occupancy.lock().between(0, from, later),
            Occupants::Mixed,
            "not A's up to then"
        );
    }

    #[test]
    fn other_sockets_are_not_known_yet() {
        let node = Node::new();
        node.appears(A, "a").appears(B, "b");
        let from = node.refresh();
        node.socket_occupancy.lock().lay_out(&node.layout, from + Duration::from_secs(5));
        let to = from + Duration::from_secs(10);
        assert_eq!(node.socket_occupancy.lock().between(0, from, to), Occupants::Mixed);
        assert_eq!(node.socket_occupancy.lock().between(3, from, to), Occupants::Mixed, "no such socket");
    }
}
