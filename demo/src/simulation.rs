//! The thread that runs a simulated node, and what the exporter needs to read that node.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use gpu_devices::Vendor;
use jobledger_exporter::app::{self, Failure, Opened};
use jobledger_exporter::cli::Config;
use jobledger_exporter::collector::devices::gpu::{GpuOptions, MakeBackend};
use kernel_files::Roots;
use perf_counters::Plan;
use perf_events::Open;
use rustix::thread::CapabilitySet;

use crate::barrier::{Barrier, Wake};
use crate::cpu_counters::{Opener, SharedCounters};
use crate::directory::{PrivateDirectory, default_base};
use crate::gpu::GpuView;
use crate::tree::Tree;
use crate::world::{HISTORY, SECOND, World};

/// Options of the simulation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// The same seed gives the same jobs.
    pub(crate) seed: u64,
    /// How many times faster jobs start and end. What they use per second does not change.
    pub(crate) speed: f64,
    /// Where the node's directory is created; by default in memory.
    pub(crate) directory: Option<PathBuf>,
}

/// Uptime of the node when the simulated history starts.
const UPTIME: u64 = 12 * 86_400 * SECOND;

/// A simulated node. Dropping it ends the simulation and removes its files.
#[derive(Debug)]
pub(crate) struct Simulation {
    roots: Roots,
    /// The directory of the prolog's files.
    jobs_dir: PathBuf,
    pub(crate) barrier: Barrier,
    view: GpuView,
    cpu_counters: SharedCounters,
    wake: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Simulation {
    /// Creates the node's files, with a quarter of an hour of history, and starts its thread.
    ///
    /// Call it before privileges are dropped. Landlock and capabilities belong to threads and are inherited by later
    /// threads, so this thread may go on writing where the exporter may not. It drops its own capabilities, and it reads
    /// nothing.
    pub(crate) fn start(options: &Options) -> io::Result<Self> {
        let directory = PrivateDirectory::make(&options.directory.clone().unwrap_or_else(default_base))?;
        let since_epoch = micros(clocks::wall().duration_since(UNIX_EPOCH).unwrap_or_default());
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
        let cpu_counters = SharedCounters::default();
        cpu_counters.publish(&world.cpu_counters);
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
                    tracing::warn!(%error, "the simulation could not drop its capabilities");
                }
                simulator.run(&woken);
                drop(directory);
            })?;
        Ok(Self { roots, jobs_dir, barrier, view, cpu_counters, wake, thread: Some(thread) })
    }

    /// The configuration for this node instead of the machine's. No other program uses its counters; resctrl is not
    /// simulated.
    pub(crate) fn configure(&self, config: Config) -> Config {
        Config {
            roots: self.roots.clone(),
            jobs_dir: self.jobs_dir.clone(),
            counters_lock: None,
            resctrl: false,
            redfish: None,
            ..config
        }
    }

    /// The sources that are not files, for a configuration made by [`Self::configure`].
    pub(crate) fn open(&self, config: &Config) -> Result<Opened, Failure> {
        let mut perf = app::perf_options(config)?;
        if let Some(plan) = &perf.plan {
            perf.open = self.counters(plan);
        }
        let gpus = GpuOptions { backends: self.gpus(), ..GpuOptions::default() };
        Ok(Opened {
            meters: app::energy_meters(config, &Default::default()),
            gpus,
            perf,
            ..Opened::default()
        })
    }

    /// Opens the CPU counters. The plan's groups of hardware counters are multiplexed.
    fn counters(&self, plan: &Plan) -> Arc<dyn Open> {
        let hardware = plan.groups.iter().filter(|group| group.hardware).count();
        Arc::new(Opener {
            shared: self.cpu_counters.clone(),
            groups: plan.groups.clone(),
            turns: u64::try_from(hardware).unwrap_or(1),
        })
    }

    fn gpus(&self) -> Vec<(Vendor, MakeBackend)> {
        let (view, barrier) = (self.view.clone(), self.barrier.clone());
        vec![(Vendor::Nvidia, Arc::new(move |_: &Arc<Roots>| view.backend(barrier.clone())))]
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Fails only if the thread has ended.
        let _ = self.wake.send(Wake::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread removes its files even if it panics, when its values are dropped.
            let _ = thread.join();
        }
    }
}

/// Advances the simulation to `end` without writing files.
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
    cpu_counters: SharedCounters,
    barrier: Barrier,
    begun: Instant,
    /// The world's time at `begun`.
    start: u64,
}

impl Simulator {
    fn now(&self) -> u64 {
        self.start + micros(self.begun.elapsed())
    }

    fn run(&mut self, woken: &Receiver<Wake>) {
        let mut tick = self.start + SECOND;
        let mut last_write_worked = true;
        loop {
            let wait = self.world.due().min(tick).saturating_sub(self.now());
            let first = woken.recv_timeout(Duration::from_micros(wait));
            // One write answers all requests so far.
            let mut files = false;
            for wake in std::iter::once(first).chain(woken.try_iter().map(Ok)) {
                match wake {
                    Ok(Wake::Publish) | Err(RecvTimeoutError::Timeout) => files = true,
                    Ok(Wake::PublishGpus) => {}
                    Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            let due = self.world.due().min(tick);
            // Time advances only while nobody reads: the next change is due some time after this one becomes visible.
            let barrier = self.barrier.clone();
            let published = barrier.write(|| {
                self.world.step(self.now());
                self.world.tick();
                let at = self.begun + Duration::from_micros(self.world.now - self.start);
                self.view.show(at, &self.world.node_gpus);
                self.cpu_counters.publish(&self.world.cpu_counters);
                // What is due changes files.
                files |= self.world.now >= due;
                (files, if files { self.tree.publish(&mut self.world) } else { Ok(()) })
            });
            let now = self.world.now;
            if now >= tick {
                // Missed seconds are skipped.
                tick = now - (now - tick) % SECOND + SECOND;
            }
            if let Err(error) = published.as_ref().map_err(|error| error.to_string())
                && last_write_worked
            {
                tracing::error!(error, "cannot write the simulated node");
            }
            last_write_worked = published.is_ok();
        }
    }
}
