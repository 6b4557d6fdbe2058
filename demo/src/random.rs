//! Numbers that look random and are the same for the same seed.

/// A xorshift64* generator (Marsaglia 2003, Vigna 2016).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Streams of one seed are independent of each other.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        // splitmix64: similar seeds give unrelated states.
        let mut z = seed ^ stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From `low` up to `high`.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low + unit * (high - low)
    }

    /// One of several.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let len = u64::try_from(from.len()).ok().filter(|len| *len > 0)?;
        from.get(usize::try_from(self.next() % len).ok()?)
    }
}

/// The integer part of a non-negative number; else 0.
pub(super) fn whole(x: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and NaN becomes 0"
    )]
    let whole = x as u64;
    whole
}

/// Converts to a floating-point number. All counts here are far below 2^53.
pub(super) fn real(x: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a demo are far below 2^53")]
    let real = x as f64;
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_gives_others() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..100).map(|_| random.between(2.0, 3.0)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 0), numbers(1, 0));
        assert_ne!(numbers(1, 0), numbers(2, 0));
        assert_ne!(numbers(1, 0), numbers(1, 1));
        assert!(numbers(0, 0).iter().all(|x| (2.0..3.0).contains(x)));
    }

    #[test]
    fn whole_numbers_saturate() {
        assert_eq!([whole(-1.0), whole(1.9), whole(f64::NAN)], [0, 1, 0]);
    }
}
