//! Keeps a collector and the simulator apart while either is at it.
//!
//! The kernel's counters of a group and of those below it are of one moment whenever they are read. Files that are
//! written one after the other are not, and the ledger would find time in between that nobody spent. So the
//! simulator writes while no collector reads; the collectors themselves do not know of it. Every method of their
//! traits is handed on here: none may have a default, or it would not be.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::collector::{Built, CollectError, Collector, Fate, Levels, LifeHook, Scene, Scope, Vanished};
use crate::kernel_file::Buffer;
use crate::metric::Section;
use crate::slurm::{Job, LifeId};

/// Many read, or one writes.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<RwLock<()>>);

impl Gate {
    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        // It guards files, which are whole at any moment: a panic elsewhere changes nothing.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writing(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a collector read only while nothing is written.
    pub fn guard(&self, built: Built) -> Built {
        let life = built.life.map(|inner| -> Arc<dyn LifeHook> { Arc::new(Guarded(inner, self.clone())) });
        Built { collector: Box::new(Guarded(built.collector, self.clone())), life }
    }
}

struct Guarded<T>(T, Gate);

impl Collector for Guarded<Box<dyn Collector>> {
    fn collect(&mut self, scene: &Scene, out: &mut Section) -> Result<(), CollectError> {
        let _reading = self.1.reading();
        self.0.collect(scene, out)
    }
}

impl LifeHook for Guarded<Arc<dyn LifeHook>> {
    fn looked(&self) {
        self.0.looked();
    }

    fn appeared(&self, job: &Job) {
        let _reading = self.1.reading();
        self.0.appeared(job);
    }

    fn left(&self, life: LifeId) {
        let _reading = self.1.reading();
        self.0.left(life);
    }

    fn before_walk(&self, scopes: &[Arc<Scope>], buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.before_walk(scopes, buffer);
    }

    fn checkpoint(&self, job: &Job, step: Option<u32>, levels: Levels, buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.checkpoint(job, step, levels, buffer);
    }

    fn vanished(&self, gone: &Vanished<'_>, buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.vanished(gone, buffer);
    }

    fn forget(&self, life: LifeId, fate: Fate) {
        self.0.forget(life, fate);
    }
}
