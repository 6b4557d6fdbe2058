//! What a node can do at most, all CPUs together: measured by time alone, so also without a PMU.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use cpu_topology::CpuSet;
use kernel_files::NodeFiles;
use known_work::{Kernel, Memory, Ready, kernels};

use crate::known::float;
use crate::results::{FlopsPeak, Peaks};
use crate::session::{Stopped, bind, iterations_for};

/// Between two looks at the clock.
const CHUNK: Duration = Duration::from_millis(10);

/// Runs each loop on all of these CPUs for so long.
pub fn measure(
    files: &mut NodeFiles,
    cpus: &CpuSet,
    time: Duration,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Peaks, Stopped> {
    let memory = Memory { bytes: crate::memory::for_each(files, cpus) };
    let mut peaks = Peaks::default();
    for kernel in kernels().iter().filter(|kernel| kernel.supported) {
        let work = kernel.work;
        let bytes =
            work.traffic.filter(|_| kernel.name != "chase").map(|traffic| traffic.read.0 + traffic.written);
        let flops = work.flops.filter(|_| bytes.is_none());
        if bytes.is_none() && flops.is_none() {
            continue;
        }
        let rate = rate(kernel, &memory, cpus, time, stop)?;
        if let Some(bytes) = bytes {
            let this = rate * float(bytes);
            let best = peaks.memory_bytes_per_second.map_or(this, |best| best.max(this));
            peaks.memory_bytes_per_second = Some(best);
        }
        if let Some(flops) = flops {
            note(&mut peaks, flops.precision.as_str(), &flops.width.to_string(), rate * float(flops.count));
        }
    }
    Ok(peaks)
}

/// The best of the loops of one kind.
fn note(peaks: &mut Peaks, precision: &str, width: &str, per_second: f64) {
    let same = |peak: &&mut FlopsPeak| peak.precision == precision && peak.width == width;
    match peaks.flops.iter_mut().find(same) {
        Some(peak) => peak.per_second = peak.per_second.max(per_second),
        None => peaks.flops.push(FlopsPeak {
            precision: precision.to_owned(),
            width: width.to_owned(),
            per_second,
        }),
    }
}

/// Iterations per second of all CPUs together.
fn rate(
    kernel: &Kernel,
    memory: &Memory,
    cpus: &CpuSet,
    time: Duration,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<f64, Stopped> {
    let threads = usize::try_from(cpus.len()).unwrap_or(0);
    let barrier = Barrier::new(threads);
    let one = |cpu: u32| {
        let prepared = bind(cpu).and_then(|()| {
            let failed = |error: std::io::Error| Stopped::Failed(format!("{}: {error}", kernel.name));
            // Here, so that its memory is near this CPU.
            let mut ready = kernel.prepare(memory).map_err(failed)?;
            let chunk = iterations_for(&mut ready, CHUNK);
            Ok((ready, chunk))
        });
        // All of them wait for each other, whatever happened.
        barrier.wait();
        let rate = prepared.map(|(mut ready, chunk)| (per_second(&mut ready, chunk, time, stop), ready));
        // Its memory goes when all have measured: giving it back takes locks of the kernel.
        barrier.wait();
        rate.map(|(rate, _)| rate)
    };
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || one(cpu))).collect();
        let died = || Stopped::Failed("a thread died".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died()))).collect::<Vec<_>>()
    });
    if stop() {
        return Err(Stopped::Interrupted);
    }
    rates.into_iter().sum()
}

/// Iterations per second of this thread.
fn per_second(ready: &mut Ready, chunk: u64, time: Duration, stop: &(dyn Fn() -> bool + Sync)) -> f64 {
    let (began, mut done) = (Instant::now(), 0_u64);
    loop {
        ready.run(chunk);
        done += chunk;
        let took = began.elapsed();
        if took >= time || stop() {
            return float(done) / took.as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn this_machine_has_peaks_and_vectors_do_more_than_single_numbers() {
        let mut files = NodeFiles::new(&Arc::default());
        let cpus: CpuSet = cpu_topology::online(&mut files).unwrap().unwrap().iter().take(2).collect();
        let peaks = measure(&mut files, &cpus, Duration::from_millis(20), &|| false).unwrap();
        assert!(peaks.memory_bytes_per_second.unwrap() > 1e8, "{peaks:?}");
        let of = |width: &str| {
            let found = |peak: &&FlopsPeak| peak.precision == "single" && peak.width == width;
            peaks.flops.iter().find(found).unwrap().per_second
        };
        // Four numbers at a time. Other work on this machine may take half of one measurement.
        assert!(of("128") > of("scalar"), "{peaks:?}");
        let stopped = measure(&mut files, &cpus, Duration::from_millis(20), &|| true);
        assert_eq!(stopped, Err(Stopped::Interrupted));
    }
}
