//! Going through all loops.

use std::time::{Duration, Instant};

use cpu_topology::CpuSet;
use kernel_files::{NodeFiles, Roots};
use known_work::{Memory, kernels};
use perf_counters::Plan;
use perf_counters::sharing::CounterOwnership;

use crate::compare::{Ran, compare};
use crate::counts::Moved;
use crate::results::{Missing, Row};
use crate::session::{Session, Stopped, iterations_for};

/// Where and for how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPUs, one after the other.
    pub cpus: CpuSet,
    /// How long each loop runs on each of them.
    pub time: Duration,
}

/// Counts each loop that this CPU has, and compares. Returns also what is not there to be compared.
pub fn validate(
    session: &mut Session,
    plan: &Plan,
    roots: &Roots,
    files: &mut NodeFiles,
    ownership: &CounterOwnership,
    options: &Options,
    stop: &dyn Fn() -> bool,
) -> Result<(Vec<Row>, Vec<Missing>), Stopped> {
    let mut moved = Moved::find(roots, files, ownership);
    let mut rows = Vec::new();
    for cpu in options.cpus.iter() {
        session.bind(cpu)?;
        let memory = Memory { bytes: crate::memory::for_one(files, cpu) };
        for kernel in kernels().iter().filter(|kernel| kernel.supported) {
            if stop() {
                return Err(Stopped::Interrupted);
            }
            let failed = |error: std::io::Error| Stopped::Failed(format!("{}: {error}", kernel.name));
            let mut ready = kernel.prepare(&memory).map_err(failed)?;
            let ran = Ran { kernel, iterations: iterations_for(&mut ready, options.time), cpu };
            moved.begin();
            let began = Instant::now();
            let counted = session.count(&mut ready, ran.iterations)?;
            let took = began.elapsed();
            rows.extend(compare(plan, ran, &counted));
            rows.extend(moved.end(ran, took));
        }
    }
    moved.close();
    Ok((rows, std::mem::take(&mut moved.absent)))
}
