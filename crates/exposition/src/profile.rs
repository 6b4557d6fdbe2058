//! How much of the catalogue a page has.

/// A choice of families: each has all of the one before it. A family's own is the smallest that it is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// What accounting and a job's report take, with the fewest series.
    Lean,
    /// What the rules, alerts and dashboards of the project read.
    Standard,
    /// Everything.
    #[default]
    Full,
}

impl Profile {
    /// From the smallest to the largest.
    pub const ALL: [Self; 3] = [Self::Lean, Self::Standard, Self::Full];

    /// As a flag and the docs have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lean => "lean",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}
