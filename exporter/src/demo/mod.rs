//! `--demo`: the real exporter over a simulated node, for whoever has no SLURM at hand.
//!
//! The simulation ([`world`]) knows no file and no driver; [`tree`] puts it into ordinary files in the kernel's formats, in a
//! private directory, once a second, whenever a job's life goes on, and before somebody reads. Everything else of the exporter runs as
//! always, with its roots there. docs/demo.md says what there is to see.

mod cast;
mod chip;
mod counters;
mod devices;
mod directory;
mod files;
mod gate;
mod gpu;
mod group;
mod hardware;
mod job;
mod life;
mod machine;
mod memory;
mod nfs;
mod power;
mod process;
mod random;
mod schedule;
mod spend;
#[cfg(test)]
mod tests;
mod tree;
mod world;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use gate::Gate;
use kernel_files::Roots;
use rustix::thread::CapabilitySet;

use self::directory::PrivateDirectory;
use self::gate::Wake;
use self::gpu::Panel;
use self::tree::Tree;
use self::world::{SECOND, World};
use crate::collector::gpu::MakeBackend;
use crate::gpu::Vendor;
use crate::perf::Plan;
use crate::perf::open::Open;
use crate::security;

/// What is to be simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Nodes of other seeds run other jobs.
    pub seed: u64,
    /// How many times as fast jobs come, work and go. What they spend in a second stays what it is.
    pub speed: f64,
    /// Where the node's directory is made; memory if not said.
    pub directory: Option<PathBuf>,
}

/// Simulated before anybody looks, so that the first look shows something.
const HISTORY: u64 = 900 * SECOND;
/// How long ago the node was booted when that began.
const UPTIME: u64 = 12 * 86_400 * SECOND;

/// A simulated node. Dropping it ends the simulation and removes its files.
#[derive(Debug)]
pub struct Demo {
    /// Where its files are.
    pub roots: Roots,
    /// Where its prolog writes.
    pub jobs_dir: PathBuf,
    /// Keeps collectors and simulator apart.
    pub gate: Gate,
    panel: Panel,
    chips: chip::Shown,
    wake: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Memory if there is a file system in it, else wherever temporary files go.
fn default_base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

impl Demo {
    /// Lays out the node, with a quarter of an hour behind it, and starts its thread.
    ///
    /// Call it before privileges are given up: Landlock and capabilities belong to threads and are inherited by
    /// those started later, so this thread may go on writing where the exporter's own may not. It gives up its
    /// capabilities by itself, and it reads nothing.
    pub fn start(options: &Options) -> io::Result<Self> {
        let directory = PrivateDirectory::make(&options.directory.clone().unwrap_or_else(default_base))?;
        let since_epoch = micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let boot = since_epoch.saturating_sub(UPTIME + HISTORY) / SECOND;
        let now = since_epoch - boot * SECOND;
        let mut world = World::new(options.seed, options.speed, boot, now - HISTORY);
        run_to(&mut world, now);
        let mut tree = Tree::lay_out(directory.path())?;
        tree.publish(&mut world)?;
        let (wake, woken) = channel();
        let (roots, jobs_dir, gate) = (tree.roots(), tree.jobs_directory(), Gate::new(wake.clone()));
        let begun = Instant::now();
        let panel = Panel::new(begun, world.rack.clone());
        let chips = chip::Shown::default();
        chips.show(&world.chips);
        let mut simulator = Simulator {
            world,
            tree,
            panel: panel.clone(),
            chips: chips.clone(),
            gate: gate.clone(),
            begun,
            start: now,
        };
        let thread =
            std::thread::Builder::new().name("demo".to_owned()).stack_size(512 << 10).spawn(move || {
                if let Err(error) = security::drop_capabilities(CapabilitySet::empty()) {
                    tracing::warn!(%error, "the simulation could not give up capabilities");
                }
                simulator.run(&woken);
                drop(directory);
            })?;
        Ok(Self { roots, jobs_dir, gate, panel, chips, wake, thread: Some(thread) })
    }

    /// Who opens the counters of its CPUs, of which so many groups take turns.
    pub fn counters(&self, plan: &Plan) -> Arc<dyn Open> {
        let hardware = plan.groups.iter().filter(|group| group.hardware).count();
        Arc::new(chip::Opener { shown: self.chips.clone(), turns: u64::try_from(hardware).unwrap_or(1) })
    }

    /// What reads its GPUs.
    pub fn gpus(&self) -> Vec<(Vendor, MakeBackend)> {
        let (panel, gate) = (self.panel.clone(), self.gate.clone());
        vec![(Vendor::Nvidia, Arc::new(move |_: &Arc<Roots>| panel.backend(gate.clone())))]
    }
}

impl Drop for Demo {
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
fn run_to(world: &mut World, end: u64) {
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
    panel: Panel,
    chips: chip::Shown,
    gate: Gate,
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
            let gate = self.gate.clone();
            let published = gate.write(|| {
                self.world.step(self.now());
                self.world.tick();
                let at = self.begun + Duration::from_micros(self.world.now - self.start);
                self.panel.show(at, &self.world.rack);
                self.chips.show(&self.world.chips);
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
