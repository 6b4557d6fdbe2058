//! What the simulated node draws: in whole microjoules, so that nothing is lost between two looks.

/// Watts of a socket that does nothing, and of each core that computes. Microseconds times watts are microjoules.
pub(super) const IDLE_WATTS: u64 = 42;
pub(super) const CORE_WATTS: u64 = 8;
/// Watts of a socket's memory, and of each GiB of it that is in use, in thousandths.
const MEMORY_MILLIWATTS: u64 = 7_000;
const GIB_MILLIWATTS: u64 = 90;

/// Energy of the memory of each socket, microjoules; that of the cores follows from their time.
#[derive(Debug, Default)]
pub(super) struct Power {
    memory: [u64; 2],
}

/// Energy of a socket since the boot `now` microseconds ago, whose cores were busy for as many in all.
pub(super) fn package(now: u64, busy: u64) -> u64 {
    IDLE_WATTS * now + CORE_WATTS * busy
}

impl Power {
    /// Books a time in which so many bytes were in use on each socket.
    pub(super) fn tick(&mut self, elapsed: u64, used: [u64; 2]) {
        for (energy, used) in self.memory.iter_mut().zip(used) {
            *energy += elapsed * (MEMORY_MILLIWATTS + GIB_MILLIWATTS * (used >> 20) / 1024) / 1000;
        }
    }

    /// Energy of the memory of each socket.
    pub(super) fn memory(&self) -> [u64; 2] {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_follows_work_and_memory() {
        let second = 1_000_000;
        assert_eq!(package(second, 0), 42_000_000);
        assert_eq!(package(second, 24 * second), 234_000_000, "below the 250 W that such a CPU may draw");
        let mut power = Power::default();
        power.tick(second, [0, 100 << 30]);
        assert_eq!(power.memory(), [7_000_000, 16_000_000]);
    }
}
