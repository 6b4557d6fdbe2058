//! The energy of the simulated node, in whole microjoules, so that no rounding errors add up.

/// Watts of an idle socket, and of each busy core. Microseconds times watts are microjoules.
pub(super) const IDLE_WATTS: u64 = 42;
pub(super) const CORE_WATTS: u64 = 8;
/// Watts of a socket's memory, and of each GiB of it that is in use, in thousandths.
const MEMORY_MILLIWATTS: u64 = 7_000;
const GIB_MILLIWATTS: u64 = 90;

/// Energy of each socket's memory in microjoules. The energy of cores follows from their CPU time.
#[derive(Debug, Default)]
pub(super) struct Power {
    memory: [u64; 2],
}

/// Energy of a socket, booted `now` microseconds ago, whose cores were busy for `busy` microseconds in total.
pub(super) fn package(now: u64, busy: u64) -> u64 {
    IDLE_WATTS * now + CORE_WATTS * busy
}

/// Watts of the board and the fans, and what supplies lose of each joule of the parts, in thousandths.
pub(super) const BOARD_WATTS: u64 = 60;
pub(super) const LOSS: u64 = 120;

/// What the node's controller counts, `now` microseconds after the boot: its parts and what they do not explain.
pub(super) fn wall(now: u64, parts: u64) -> u64 {
    BOARD_WATTS * now + parts + parts / 1000 * LOSS
}

impl Power {
    /// Adds `elapsed` microseconds with `used` bytes in use on each socket.
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
        assert_eq!(wall(second, 100_000_000), 172_000_000);
        let mut power = Power::default();
        power.tick(second, [0, 100 << 30]);
        assert_eq!(power.memory(), [7_000_000, 16_000_000]);
    }
}
