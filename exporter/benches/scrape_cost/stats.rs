//! Clocks and tables.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn clock(id: ClockId) -> Duration {
    let now = clock_gettime(id);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// CPU time of this process, all its threads, since its start.
pub(crate) fn cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// CPU time that a call costs this process, microseconds.
pub(crate) fn cost(f: impl FnOnce()) -> f64 {
    let before = cpu();
    f();
    (cpu() - before).as_secs_f64() * 1e6
}

/// The middle of some numbers.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints a row of a Markdown table.
pub(crate) fn row<S: AsRef<str>>(cells: &[S]) {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    println!("| {} |", cells.join(" | "));
}
