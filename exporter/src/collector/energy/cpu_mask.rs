//! A set of CPUs as bits: questions are asked of it for every job and socket.

/// A set of CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CpuMask(Vec<u64>);

impl CpuMask {
    pub(super) fn insert(&mut self, cpu: u32) {
        let Ok(word) = usize::try_from(cpu / 64) else { return };
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= 1 << (cpu % 64);
        }
    }

    pub(super) fn contains(&self, cpu: u32) -> bool {
        let word = usize::try_from(cpu / 64).ok().and_then(|word| self.0.get(word));
        word.is_some_and(|bits| bits & (1 << (cpu % 64)) != 0)
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }

    /// The CPUs that are in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, two)| one & two).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0_u32..).step_by(64).zip(&self.0);
        words.flat_map(|(first, bits)| {
            (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| first + bit)
        })
    }
}

impl FromIterator<u32> for CpuMask {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set() {
        let mask: CpuMask = [0, 63, 64, 200].into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 63, 64, 200]);
        assert_eq!((mask.len(), CpuMask::default().len()), (4, 0));
        assert!(mask.contains(64) && !mask.contains(65) && !mask.contains(100_000));
        let other: CpuMask = [63, 64, 65].into_iter().collect();
        assert_eq!(mask.and(&other).iter().collect::<Vec<_>>(), [63, 64]);
        assert_eq!(mask.and(&CpuMask::default()).len(), 0);
    }
}
