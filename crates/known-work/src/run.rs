//! Running a loop, with the memory that it needs.

use std::io;

use crate::Kernel;
use crate::map::Map;
use crate::system;
use crate::work::Body;

/// Bytes of a line of the streams' arrays: what one of their iterations works on in each array.
const LINE: usize = 64;
/// Distance of the elements of the chain of pointers: more than a line of any CPU.
const APART: usize = 256;
/// What loops over memory may use.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Bytes of all arrays of a loop together; several times the caches, for what is to come from memory.
    pub bytes: usize,
}

/// A loop with its memory, ready to run.
#[derive(Debug)]
pub struct Ready {
    state: State,
}

#[derive(Debug)]
enum State {
    Registers(unsafe extern "C" fn(u64)),
    Stream { code: unsafe extern "C" fn(u64, *mut u8, *const u8, *const u8), map: Map, lines: u64 },
    Chase { code: unsafe extern "C" fn(u64, *const u8) -> *const u8, _map: Map, at: *const u8 },
    Faults(Map),
    Switches,
}

impl Kernel {
    /// Gets the memory that it needs, and touches all of it: pages are of the NUMA node of the calling thread. An error where there
    /// is no memory, or where this CPU lacks its instructions.
    pub fn prepare(&self, memory: &Memory) -> io::Result<Ready> {
        if !self.supported {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let state = match self.body {
            Body::Registers(code) => State::Registers(code),
            Body::Stream(code) => {
                let lines = (memory.bytes / 3 / LINE).max(1);
                let mut map = Map::new(3 * lines * LINE, true)?;
                map.words().fill(1.0_f64.to_bits());
                State::Stream { code, map, lines: u64::try_from(lines).map_err(io::Error::other)? }
            }
            Body::Chase(code) => {
                let mut map = Map::new(memory.bytes.max(2 * APART), true)?;
                chain(&mut map);
                let at = map.start().cast_const();
                State::Chase { code, _map: map, at }
            }
            Body::Faults => State::Faults(Map::new(system::PAGES * system::page_size(), false)?),
            Body::Switches => State::Switches,
        };
        Ok(Ready { state })
    }
}

/// A cycle of pointers through the whole mapping, in an order that no prefetcher foresees (Sattolo's algorithm).
fn chain(map: &mut Map) {
    let start = map.start() as u64;
    let step = APART / 8;
    let words = map.words();
    let elements = words.len() / step;
    let mut order: Vec<u32> = (0..u32::try_from(elements).unwrap_or(u32::MAX)).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..order.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let other = usize::try_from(random % last as u64).unwrap_or(0);
        order.swap(last, other);
    }
    for (element, next) in order.iter().enumerate() {
        if let Some(word) = words.get_mut(element * step) {
            *word = start + u64::from(*next) * APART as u64;
        }
    }
}

impl Ready {
    /// Does so many iterations.
    #[expect(unsafe_code, reason = "calls the machine code of the loops")]
    pub fn run(&mut self, iterations: u64) {
        if iterations == 0 {
            return;
        }
        match &mut self.state {
            // SAFETY: `prepare` has looked whether this CPU has its instructions. It works on registers alone, which the ABI lets it.
            State::Registers(code) => unsafe { code(iterations) },
            State::Stream { code, map, lines } => {
                let array = usize::try_from(*lines).unwrap_or(0) * LINE;
                let written = map.start();
                let (first, second) = (written.wrapping_add(array), written.wrapping_add(2 * array));
                let mut left = iterations;
                while left > 0 {
                    let now = left.min(*lines);
                    // SAFETY: as above; the mapping has three arrays of `lines` lines each, one behind the other, and is borrowed
                    // mutably.
                    unsafe { code(now, written, first.cast_const(), second.cast_const()) };
                    left -= now;
                }
            }
            // SAFETY: as above; `chain` has put a pointer to an element of the mapping into each element, and `at` is one of them.
            State::Chase { code, at, .. } => *at = unsafe { code(iterations, *at) },
            State::Faults(map) => system::fault(map, iterations),
            State::Switches => system::switch(iterations),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_chain_of_pointers_visits_every_element_before_it_begins_anew() {
        let mut map = Map::new(1000 * APART, false).unwrap();
        chain(&mut map);
        let start = map.start() as u64;
        let words = map.words();
        let (mut at, mut seen) = (start, BTreeSet::new());
        while seen.insert(at) {
            at = words[usize::try_from(at - start).unwrap() / 8];
        }
        assert_eq!((seen.len(), at), (1000, start));
    }

    #[test]
    fn every_loop_that_this_cpu_has_runs_and_ends() {
        for kernel in crate::kernels().iter().filter(|kernel| kernel.supported) {
            let mut ready = kernel.prepare(&Memory { bytes: 3 << 16 }).unwrap();
            ready.run(0);
            // More than one pass over the arrays.
            ready.run(5000 / if matches!(kernel.body, Body::Switches) { 100 } else { 1 });
        }
    }

    #[test]
    fn the_triad_computes_what_it_says() {
        let kernels = crate::kernels();
        for name in ["triad", "triad_nontemporal"] {
            let Some(kernel) = kernels.iter().find(|kernel| kernel.name == name) else { continue };
            let mut ready = kernel.prepare(&Memory { bytes: 3 << 10 }).unwrap();
            let State::Stream { map, lines, .. } = &mut ready.state else { panic!("{name}") };
            let elements = usize::try_from(*lines).unwrap() * 8;
            for (at, word) in map.words().iter_mut().enumerate().skip(elements) {
                *word = (at as f64).to_bits();
            }
            ready.run(kernel.work.stored / 64 * elements as u64 / 8);
            let State::Stream { map, .. } = &mut ready.state else { panic!("{name}") };
            let values: Vec<f64> = map.words().iter().map(|word| f64::from_bits(*word)).collect();
            for at in 0..elements {
                assert_eq!(values[at], values[at + elements] + values[at + 2 * elements], "{name} {at}");
            }
        }
    }
}
