//! Putting the parts of a node's exporter together.

use std::sync::Arc;
use std::time::Duration;

use perf_counters::sharing::{CounterOwnership, Lock};
use slurm_jobs::table::{MOST_RETAINED, Table, TableOptions};
use slurm_jobs::{Follower, JobObserver, Pulse, Users, name_service};

use super::state::Logins;
use super::{Keeper, Opened};
use crate::cli::{Config, Mode};
use crate::collector::devices::energy::EnergyOptions;
use crate::collector::devices::gpu::{GpuControl, GpuOptions};
use crate::collector::devices::memory_traffic::{End, TrafficOptions};
use crate::collector::durable::Durable;
use crate::collector::exporter::StateReport;
use crate::collector::interval_reader::OccupancyObserver;
use crate::collector::job::perf::PerfOptions;
use crate::collector::node::counters::CountersOptions;
use crate::collector::{BuildContext, Built, Entry};
use crate::control::counter_orders::Orders;
use crate::scrape::{Engine, Limits};

/// How long a collector runs before another thread goes on with the others: long for a reading, also on a busy node.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a node's exporter cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// A node's exporter, collecting but not serving.
pub struct Node {
    /// What collects.
    pub engine: Engine,
    /// Whether the jobs are followed.
    pub pulse: Pulse,
    /// User names.
    pub users: Arc<Users>,
    /// Releases the GPUs' drivers.
    pub gpus: Option<GpuControl>,
    /// Releases the hardware counters.
    pub counters: Orders,
    /// Removes what the exporter made in the kernel.
    pub end: End,
    /// Keeps the accounts for a restart.
    pub state: Option<Keeper>,
}

impl Node {
    /// Builds the collectors and starts following jobs.
    pub fn start(config: &Config, opened: Opened) -> Result<Self, NodeError> {
        Self::start_with(config, opened, |built| built)
    }

    /// The same with every collector wrapped, for a caller that must know when one reads.
    pub fn start_with(
        config: &Config,
        opened: Opened,
        wrap: impl Fn(Built) -> Built,
    ) -> Result<Self, NodeError> {
        let users = Arc::new(Users::start(Box::new(name_service))?);
        let roots = Arc::new(config.roots.clone());
        let idle_power = config.idle_power.clone();
        let gpu = GpuOptions {
            period: config.gpu.period,
            processes: config.gpu.processes,
            gpustat_dir: Some(config.gpu.gpustat_dir.clone()),
            job_mapping_dir: config.gpu.job_mapping_dir.clone(),
            environment_hints: config.environment_hints,
            gres_order: config.gpu.gres_order.clone(),
            ..opened.gpus
        };
        let ownership = CounterOwnership::default();
        let lock = config
            .counters_lock
            .as_deref()
            .map(|path| Lock::new(path, ownership.clone()))
            .transpose()?
            .map(Arc::new);
        // Before there is anything that could open a counter.
        if let Some(lock) = &lock {
            lock.look();
        }
        let traffic = TrafficOptions {
            resctrl: config.makes_groups(),
            checked: (config.wants_groups() && config.mode == Mode::Check).then_some(opened.groups),
            helper: opened.resctrl,
            ..TrafficOptions::default()
        };
        let mut context =
            BuildContext { ownership: ownership.clone(), ..BuildContext::new(roots.clone(), users.clone()) };
        let report = StateReport::default();
        let options = &mut context.options;
        options.set(report.clone());
        options.set(config.selected.clone());
        options.set(config.owners.clone());
        options.set(CountersOptions { lock: lock.clone() });
        let (meters, reading) = (opened.meters, opened.reading);
        options.set(EnergyOptions { meters, idle_power, reading, ..EnergyOptions::default() });
        options.set(gpu.clone());
        let (method, most_descriptors) = (config.perf.method, config.perf.most_descriptors);
        options.set(PerfOptions { method, levels: config.levels, most_descriptors, ..opened.perf });
        options.set(opened.results);
        options.set(traffic.clone());
        let collectors: Vec<(&'static Entry, Built)> =
            config.enabled.iter().map(|entry| (*entry, wrap((entry.build)(&context)))).collect();
        for source in collectors.iter().filter_map(|(_, built)| built.source.as_ref()) {
            context.interval_reader.add(source);
        }
        if ownership.ownership_status().counter_users {
            lock.iter().for_each(|lock| lock.watch());
        }
        let occupancy: (&'static str, Arc<dyn Durable>) = ("occupancy", context.interval_reader.clone());
        let of_collectors =
            collectors.iter().filter_map(|(entry, built)| Some((entry.name, built.durable.clone()?)));
        let logins = opened.logins.map(Logins::part);
        let parts = std::iter::once(occupancy).chain(of_collectors).chain(logins).collect();
        let kept = opened.state.take().unwrap_or_default();
        let (keeper, saved) = Keeper::restore(kept, parts, report);
        // The occupancy comes first: the sources use it. The keeper comes last: it saves what they did.
        let occupancy: Arc<dyn JobObserver> = Arc::new(OccupancyObserver(context.interval_reader.clone()));
        let hooks = std::iter::once(occupancy)
            .chain(collectors.iter().filter_map(|(_, built)| built.observer.clone()))
            .chain(keeper.iter().map(Keeper::observer))
            .collect();
        let options = TableOptions {
            retention: config.retention,
            retention_max: config.retention_max.max(config.retention),
            readers: config.readers,
            most_retained: MOST_RETAINED,
            stale_after: config.stale_after,
            levels: config.levels,
            job_labels: config.job_labels.clone(),
            jobs_dir: Some(config.jobs_dir.clone()),
            environment_hints: config.environment_hints,
        };
        let mut table = Table::new(roots, options, users.clone(), hooks).keeping_files(config.kept_files);
        if let Some((saved, seen)) = saved {
            table.restore(saved, seen);
        }
        let follower = Follower::start(table)?;
        let pulse = follower.pulse();
        // What is printed once is collected for it, and there is no client whose timeout is near.
        let (min_interval, longest) = match config.mode {
            Mode::Serve => (config.fresh_for(), config.longest_collection()),
            Mode::Once | Mode::Check => (Duration::ZERO, config.longest_collection() * 3),
        };
        let limits = Limits { min_interval, longest, patience: PATIENCE };
        let engine = Engine::new(collectors, config.disabled.clone(), follower, config.max_series, limits);
        engine.write_created(config.created);
        engine.select(config.selected.clone());
        if let Some(keeper) = &keeper {
            keeper.start(engine.table_saver());
            let saving = keeper.clone();
            engine.after_collection(Box::new(move || saving.save()));
        }
        Ok(Self {
            state: keeper,
            engine,
            pulse,
            users,
            gpus: gpu.control.get().cloned(),
            counters: Orders::new(ownership, lock),
            end: traffic.end,
        })
    }
}
