//! The collector with a simulated driver and simulated constraints.

mod drivers;
mod jobs;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use exposition::encode_openmetrics;
use gpu_binding::{DeviceAccess, DeviceAccessSource};
use gpu_devices::{
    Backend, DeviceNode, Fact, Memory, Process, ProcessKind, Quantity, SamplerState, Unit, UnitSample,
    Wanted, families,
};
use slurm_jobs::Users;

use super::*;
use crate::collector::testing::{Machine, built, ended, job, restore, snapshot_of, value};

const LONG: Duration = jobledger_testkit::wait::LONGEST;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

/// What the simulated driver says; the test changes it while it is read.
#[derive(Default)]
struct Driver {
    present: AtomicBool,
    units: Mutex<Vec<UnitSample>>,
    error: Mutex<Option<SourceError>>,
    epoch: AtomicU64,
    wanted: Mutex<Wanted>,
    released: AtomicU64,
    readings: AtomicU64,
}

impl Driver {
    fn new(units: Vec<UnitSample>) -> Arc<Self> {
        let driver = Self { units: Mutex::new(units), ..Self::default() };
        driver.present.store(true, Ordering::Relaxed);
        Arc::new(driver)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<UnitSample>)) {
        change(&mut self.units.lock());
    }
}

struct Simulated(Arc<Driver>);

impl Backend for Simulated {
    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }

    fn is_present(&self) -> bool {
        self.0.present.load(Ordering::Relaxed)
    }

    fn sample(&mut self, wanted: Wanted) -> Result<Sample, SourceError> {
        self.0.readings.fetch_add(1, Ordering::Relaxed);
        *self.0.wanted.lock() = wanted;
        if let Some(error) = self.0.error.lock().clone() {
            return Err(error);
        }
        let began = Instant::now();
        let again = |unit: &UnitSample| UnitSample {
            unit: unit.unit.clone(),
            down: unit.down,
            counts: unit.counts.clone(),
            epoch: unit.epoch + self.0.epoch.load(Ordering::Relaxed),
            standing: unit.standing.clone(),
            memory: unit.memory,
            processes: unit.processes.clone().filter(|_| wanted.processes),
            facts: unit.facts.clone(),
        };
        let units = self.0.units.lock().iter().map(again).collect();
        Ok(Sample {
            vendor: Vendor::Nvidia,
            began,
            ended: began,
            units,
            facts: Vec::new(),
            failed: Vec::new(),
        })
    }

    fn release(&mut self) {
        self.0.released.fetch_add(1, Ordering::Relaxed);
    }
}

fn unit(minor: u32) -> UnitSample {
    let unit = Unit {
        vendor: Vendor::Nvidia,
        uuid: format!("GPU-{minor}").into(),
        index: Some(minor),
        minor: Some(minor),
        pci: Some(format!("0000:0{minor}:00.0").into()),
        model: "NVIDIA Test".into(),
        nodes: vec![DeviceNode { major: 195, minor }],
        part: None,
        divided: false,
    };
    let mut sample = UnitSample::new(Arc::new(unit), 0);
    sample.counts =
        [Quantity::BUSY, Quantity::ENERGY, Quantity::PCIE_RECEIVED, Quantity::FLOPS_FP64, Quantity::TENSOR]
            .map(|quantity| (quantity, 0))
            .to_vec();
    sample.memory = Some(Memory { total: 80 * GIB, used: 0, free: 80 * GIB, reserved: None });
    sample.facts = vec![Fact::with(&families::TEMPERATURE, "sensor", "gpu", 41)];
    sample
}

/// By the inode of a cgroup's directory, the minors that may be opened there.
#[derive(Clone, Default)]
struct Constraints(Arc<Mutex<BTreeMap<u64, Vec<u32>>>>);

impl DeviceAccessSource for Constraints {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
        let constraints = self.0.lock();
        let answer = |cgroup: &BorrowedFd<'_>| {
            let inode = rustix::fs::fstat(cgroup).unwrap().st_ino;
            Ok(match constraints.get(&inode) {
                None => DeviceAccess::NoProgram,
                Some(minors) => DeviceAccess::Allowed {
                    nodes: nodes.iter().map(|node| minors.contains(&node.minor)).collect(),
                    programs: vec![u32::try_from(inode).unwrap()],
                },
            })
        };
        Ok(cgroups.iter().map(answer).collect())
    }
}

struct Node {
    options: GpuOptions,
    machine: Machine,
    driver: Arc<Driver>,
    constraints: Constraints,
    built: Built,
    control: GpuControl,
    jobs: Vec<Job>,
    /// Those that a scrape does not show.
    pending: Vec<Job>,
}

impl Node {
    fn new(driver: &Arc<Driver>) -> Self {
        Self::with(driver, GpuOptions::default())
    }

    fn with(driver: &Arc<Driver>, options: GpuOptions) -> Self {
        let machine = Machine::new();
        let constraints = Constraints::default();
        let (simulated, asked) = (driver.clone(), constraints.clone());
        let make: options::MakeBackend = Arc::new(move |_| Box::new(Simulated(simulated.clone())));
        let gpu = GpuOptions {
            period: Duration::from_millis(20),
            backends: vec![(Vendor::Nvidia, make)],
            access_source: gpu_binding::DeviceAccessSlot::new(Ok(Box::new(asked))),
            ..options
        };
        let (built, control) = Self::collector(&machine, &gpu);
        Self {
            options: gpu,
            machine,
            driver: driver.clone(),
            constraints,
            built,
            control,
            jobs: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn collector(machine: &Machine, options: &GpuOptions) -> (Built, GpuControl) {
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        context.options.set(options.clone());
        let built = built(&ENTRY, &context);
        (built, options.control.get().unwrap().clone())
    }

    /// Another exporter takes over.
    fn restart(&mut self) {
        let access_source = gpu_binding::DeviceAccessSlot::new(Ok(Box::new(self.constraints.clone())));
        let options = GpuOptions { control: Arc::default(), access_source, ..self.options.clone() };
        let (built, control) = Self::collector(&self.machine, &options);
        let runs: Vec<JobRunId> = self.jobs.iter().map(|job| job.run).collect();
        restore(&**self.built.durable.as_ref().unwrap(), &**built.durable.as_ref().unwrap(), &runs);
        (self.built, self.control) = (built, control);
    }

    /// A job's directory whose processes may open these; `None`: nothing constrains it.
    fn directory(&self, id: u32, minors: Option<&[u32]>) -> Job {
        let path = format!("slurmstepd.scope/job_{id}");
        self.machine.write(&format!("cgroup/{path}/cgroup.events"), "populated 1\n");
        let job = job(id, self.machine.v2(&path), &[]);
        if let Some(minors) = minors {
            self.constraints.0.lock().insert(job.inode, minors.to_vec());
        }
        job
    }

    /// A job comes.
    fn comes(&mut self, id: u32, minors: Option<&[u32]>) {
        let job = self.directory(id, minors);
        self.built.observer.as_ref().unwrap().job_started(&job);
        self.jobs.push(job);
    }

    fn scopes(&self) -> Vec<Arc<SlurmCgroup>> {
        self.machine.write("cgroup/slurmstepd.scope/cgroup.events", "populated 1\n");
        let cgroup = self.machine.v2("slurmstepd.scope");
        vec![Arc::new(SlurmCgroup {
            paths: vec!["slurmstepd.scope".to_owned()],
            node: None,
            inode: 1,
            cgroup,
        })]
    }

    fn goes(&mut self, id: u32) {
        let job = self.jobs.iter_mut().find(|job| job.run == JobRunId(u64::from(id))).unwrap();
        *job = ended(job);
        self.built.observer.as_ref().unwrap().job_left_node(job.run);
    }

    fn scrape(&mut self) -> (Result<(), SourceError>, String) {
        let mut section = Section::default();
        let pending = self.pending.iter().cloned().map(Arc::new).collect();
        let snapshot = NodeSnapshot {
            scopes: self.scopes(),
            pending,
            ..snapshot_of(self.machine.roots(), self.jobs.clone())
        };
        let outcome = self.built.collector.collect(&snapshot, &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }

    fn eventually(&mut self, right: impl Fn(&str) -> bool) -> String {
        jobledger_testkit::wait::until("the exposition is right", || {
            let (outcome, text) = self.scrape();
            if right(&text) { Ok(text) } else { Err(format!("{outcome:?}\n{text}")) }
        })
    }

    /// After a reading that began after now.
    fn read_anew(&self) {
        let before = self.driver.readings.load(Ordering::Relaxed);
        let read = || self.driver.readings.load(Ordering::Relaxed) >= before + 2;
        jobledger_testkit::eventually("it is read anew", read);
    }
}

fn is(text: &str, series: &str, wanted: f64) -> bool {
    value(text, series) == Some(wanted)
}

/// Processes of jobs, as the host's procfs shows them.
fn runs(node: &Node, processes: &[(u32, u32)]) {
    std::fs::create_dir_all(node.machine.path.join("proc/1/ns")).unwrap();
    std::os::unix::fs::symlink("pid:[4026531836]", node.machine.path.join("proc/1/ns/pid")).unwrap();
    node.machine.write("cgroup/cgroup.controllers", "cpu\n");
    let zeros = "0 ".repeat(17);
    for (pid, job) in processes {
        node.machine.write(&format!("proc/{pid}/stat"), format!("{pid} (x) S 1 {zeros}5 0 0\n"));
        node.machine.write(&format!("proc/{pid}/cgroup"), format!("0::/slurmstepd.scope/job_{job}\n"));
    }
}
