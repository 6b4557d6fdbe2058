//! The thread that lets a simulated node's time pass, and what the exporter needs to read that node.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpu_devices::Vendor;
use jobledger_exporter::app::{self, Failure, Opened};
use jobledger_exporter::cli::Config;
use jobledger_exporter::collector::devices::gpu::{GpuOptions, MakeBackend};
use kernel_files::Roots;
use perf_counters::Plan;
use perf_events::Open;
use rustix::thread::CapabilitySet;

use crate::barrier::{Barrier, Wake};
use crate::cpu_counters;
use crate::directory::{PrivateDirectory, default_base};
use crate::gpu::GpuView;
use crate::tree::Tree;
use crate::world::{HISTORY, SECOND, World};

/// What is to be simulated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// Nodes of other seeds run other jobs.
    pub(crate) seed: u64,
    /// How many times as fast jobs come, work and go. What they spend in a second stays what it is.
    pub(crate) speed: f64,
    /// Where the node's directory is made; memory if not said.
    pub(crate) directory: Option<PathBuf>,
}

/// How long ago the node was booted when that began.
const UPTIME: u64 = 12 * 86_400 * SECOND;

/// A simulated node. Dropping it ends the simulation and removes its files.
#[derive(Debug)]
pub(crate) struct Simulation {
    /// Where its files are.
    roots: Roots,
    /// Where its prolog writes.
    jobs_dir: PathBuf,
    /// Keeps collectors and simulator apart.
    pub(crate) barrier: Barrier,
    view: GpuView,
    cpu_counters: cpu_counters::Shown,
    wake: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Simulation {
    /// Lays out the node, with a quarter of an hour behind it, and starts its thread.
    ///
    /// Call it before privileges are given up: Landlock and capabilities belong to threads and are inherited by
    /// those started later, so this thread may go on writing where the exporter's own may not. It gives up its
    /// capabilities by itself, and it reads nothing.
    pub(crate) fn start(options: &Options) -> io::Result<Self> {
        let directory = PrivateDirectory::make(&options.directory.clone().unwrap_or_else(default_base))?;
        let since_epoch = micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let boot = since_epoch.saturating_sub(UPTIME + HISTORY) / SECOND;
        let now = since_epoch - boot * SECOND;
        let mut world = World::new(options.seed, options.speed, boot, now - HISTORY);
        run_to(&mut world, now);
        let mut tree = Tree::lay_out(directory.path())?;
        tree.publish(&mut world)?;
        let (wake, woken) = channel();
        let (roots, jobs_dir, barrier) = (tree.roots(), tree.jobs_directory(), Barrier::new(wake.clone()));
        let begun = Instant::now();
        let view = GpuView::new(begun, world.node_gpus.clone());
        let cpu_counters = cpu_counters::Shown::default();
        cpu_counters.show(&world.cpu_counters);
        let mut simulator = Simulator {
            world,
            tree,
            view: view.clone(),
            cpu_counters: cpu_counters.clone(),
            barrier: barrier.clone(),
            begun,
            start: now,
        };
        let thread =
            std::thread::Builder::new().name("demo".to_owned()).stack_size(512 << 10).spawn(move || {
                if let Err(error) = privileges::drop_capabilities(CapabilitySet::empty()) {
                    tracing::warn!(%error, "the simulation could not give up capabilities");
                }
                simulator.run(&woken);
                drop(directory);
            })?;
        Ok(Self { roots, jobs_dir, barrier, view, cpu_counters, wake, thread: Some(thread) })
    }

    /// The configuration with this node in the machine's place. No other program uses its counters, and resctrl is not simulated.
    pub(crate) fn configure(&self, config: Config) -> Config {
        Config {
            roots: self.roots.clone(),
            jobs_dir: self.jobs_dir.clone(),
            counters_lock: None,
            resctrl: false,
            ..config
        }
    }

    /// What is read beside files, with a configuration of [`Self::configure`].
    pub(crate) fn open(&self, config: &Config) -> Result<Opened, Failure> {
        let mut perf = app::perf_options(config)?;
        if let Some(plan) = &perf.plan {
            perf.open = self.counters(plan);
        }
        let gpus = GpuOptions { backends: self.gpus(), ..GpuOptions::default() };
        Ok(Opened { meters: app::energy_meters(config), gpus, perf })
    }

    /// What opens the counters of its CPUs. The plan's groups of hardware counters take turns.
    fn counters(&self, plan: &Plan) -> Arc<dyn Open> {
        let hardware = plan.groups.iter().filter(|group| group.hardware).count();
        Arc::new(cpu_counters::Opener {
            shown: self.cpu_counters.clone(),
            groups: plan.groups.clone(),
            turns: u64::try_from(hardware).unwrap_or(1),
        })
    }

    /// What reads its GPUs.
    fn gpus(&self) -> Vec<(Vendor, MakeBackend)> {
        let (view, barrier) = (self.view.clone(), self.barrier.clone());
        vec![(Vendor::Nvidia, Arc::new(move |_: &Arc<Roots>| view.backend(barrier.clone())))]
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // It fails only when the thread is gone.
        let _ = self.wake.send(Wake::Stop);
        if let Some(thread) = self.thread.take() {
            // It removed its files even if it panicked, when its values were dropped.
            let _ = thread.join();
        }
    }
}

/// Lets time pass without anybody looking.
pub(crate) fn run_to(world: &mut World, end: u64) {
    while world.now < end {
        let tick = (world.now / SECOND + 1) * SECOND;
        let next = world.due().max(world.now + 1).min(tick).min(end);
        world.step(next);
        if next == tick || next == end {
            world.tick();
        }
    }
}

struct Simulator {
    world: World,
    tree: Tree,
    view: GpuView,
    cpu_counters: cpu_counters::Shown,
    barrier: Barrier,
    begun: Instant,
    /// The world's time then.
    start: u64,
}

impl Simulator {
    fn now(&self) -> u64 {
        self.start + micros(self.begun.elapsed())
    }

    fn run(&mut self, woken: &Receiver<Wake>) {
        let mut tick = self.start + SECOND;
        let mut well = true;
        loop {
            let wait = self.world.due().min(tick).saturating_sub(self.now());
            let first = woken.recv_timeout(Duration::from_micros(wait));
            // Whoever asked meanwhile is shown the same.
            for wake in std::iter::once(first).chain(woken.try_iter().map(Ok)) {
                match wake {
                    Ok(Wake::Show) | Err(RecvTimeoutError::Timeout) => {}
                    Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            // Time goes on once nobody reads: what follows from a change is due that much after it can be seen.
            let barrier = self.barrier.clone();
            let published = barrier.write(|| {
                self.world.step(self.now());
                self.world.tick();
                let at = self.begun + Duration::from_micros(self.world.now - self.start);
                self.view.show(at, &self.world.node_gpus);
                self.cpu_counters.show(&self.world.cpu_counters);
                self.tree.publish(&mut self.world)
            });
            let now = self.world.now;
            if now >= tick {
                // Seconds that were missed are not made up for one by one.
                tick = now - (now - tick) % SECOND + SECOND;
            }
            if let Err(error) = published.as_ref().map_err(|error| error.to_string())
                && well
            {
                tracing::error!(error, "cannot write the simulated node");
            }
            well = published.is_ok();
        }
    }
}
