//! An amount split by weights, exactly.

/// The shares and the rest of an amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<K> {
    /// What each gets.
    pub shares: Vec<(K, u64)>,
    /// The part without an owner: the sum of the shares + rest = amount.
    pub rest: u64,
}

/// Splits `amount` by `weights` out of `whole`: a third of the whole gets a third of the amount. What the weights do
/// not cover is the rest. If the weights exceed the whole (readings are not of the same moment), their sum is the
/// whole. Shares are rounded down, so that no one is charged too much; the rest has the rounding, less than one unit
/// each.
pub fn split<K>(amount: u64, weights: Vec<(K, u128)>, whole: u128) -> Split<K> {
    let sum = weights.iter().fold(0_u128, |sum, (_, weight)| sum.saturating_add(*weight));
    // Both fit: amounts are below 2^64, so weights below 2^64 cannot overflow their product.
    let shift = 64_u32.saturating_sub(whole.max(sum).leading_zeros());
    let whole = (whole.max(sum) >> shift).max(1);
    let mut rest = amount;
    let share = |(key, weight): (K, u128)| {
        let share = u128::from(amount) * (weight >> shift) / whole;
        let share = u64::try_from(share).unwrap_or(rest).min(rest);
        rest -= share;
        (key, share)
    };
    let shares = weights.into_iter().map(share).collect();
    Split { shares, rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_by_weight_and_the_rest_is_what_no_weight_claims() {
        let split = split(1000, vec![("a", 1), ("b", 2)], 10);
        assert_eq!(split, Split { shares: vec![("a", 100), ("b", 200)], rest: 700 });
    }

    #[test]
    fn weights_beyond_the_whole_are_the_whole() {
        let split = split(999, vec![("a", 10), ("b", 20)], 10);
        assert_eq!(split, Split { shares: vec![("a", 333), ("b", 666)], rest: 0 });
    }

    #[test]
    fn nobody_and_nothing() {
        assert_eq!(split::<()>(7, Vec::new(), 0), Split { shares: Vec::new(), rest: 7 });
        assert_eq!(split(7, vec![("a", 0)], 0), Split { shares: vec![("a", 0)], rest: 7 });
        assert_eq!(split(0, vec![("a", 5)], 5), Split { shares: vec![("a", 0)], rest: 0 });
    }

    #[test]
    fn the_largest_numbers_neither_overflow_nor_unbalance() {
        let split = split(u64::MAX, vec![("a", u128::MAX), ("b", u128::MAX / 2)], u128::MAX);
        let shares: u64 = split.shares.iter().map(|(_, share)| share).sum();
        assert_eq!(shares + split.rest, u64::MAX);
        assert!(split.shares[0].1 > u64::MAX / 2);
    }
}
