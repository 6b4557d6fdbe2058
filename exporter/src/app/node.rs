//! Putting the parts of a node's exporter together.

use std::sync::Arc;

use crate::cli::Config;
use crate::collector::attendance::Ear;
use crate::collector::{BuildContext, Built, Entry, LifeHook, Meters};
use crate::demo::Gate;
use crate::scrape::Engine;
use crate::slurm::table::{Table, TableOptions};
use crate::slurm::{Follower, Users, name_service};

/// Why a node's exporter cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// No inotify.
    #[error("cannot make an inotify instance (fs.inotify.max_user_instances?): {0}")]
    Inotify(#[from] rustix::io::Errno),
}

/// A node's exporter, collecting but not serving.
pub struct Node {
    /// What collects.
    pub engine: Engine,
    /// User names.
    pub users: Arc<Users>,
}

impl Node {
    /// Builds the collectors and starts following jobs. `meters` were opened with the privileges that are given up now;
    /// `gate` is that of a simulated node.
    pub fn start(config: &Config, meters: Meters, gate: Option<&Gate>) -> Result<Self, NodeError> {
        let users = Arc::new(Users::start(Box::new(name_service))?);
        let roots = Arc::new(config.roots.clone());
        let idle_power = config.idle_power.clone();
        let port_holders = config.port_holders;
        let context = BuildContext {
            meters,
            idle_power,
            port_holders,
            ..BuildContext::new(roots.clone(), users.clone())
        };
        if let Some(gate) = gate.cloned() {
            context.attendance.set_around(Box::new(move |attend| gate.attended(attend)));
        }
        let build = |entry: &Entry| {
            let built = (entry.build)(&context);
            match gate {
                Some(gate) => gate.guard(built),
                None => built,
            }
        };
        let collectors: Vec<(&'static Entry, Built)> =
            config.enabled.iter().map(|entry| (*entry, build(entry))).collect();
        // Who is there comes first: the sources ask it.
        let ear: Arc<dyn LifeHook> = Arc::new(Ear(context.attendance.clone()));
        let hooks = std::iter::once(ear)
            .chain(collectors.iter().filter_map(|(_, built)| built.life.clone()))
            .collect();
        let options = TableOptions {
            retention: config.retention,
            stale_after: config.stale_after,
            levels: config.levels,
            job_labels: config.job_labels.clone(),
            jobs_dir: Some(config.jobs_dir.clone()),
            environment_hints: config.environment_hints,
        };
        let table = Table::new(roots, options, users.clone(), hooks)?;
        let follower = Follower::start(table)?;
        let engine = Engine::new(collectors, config.disabled.clone(), follower, config.max_series);
        Ok(Self { engine, users })
    }
}
