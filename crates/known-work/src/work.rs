//! What an iteration of a loop does.

/// The numbers of a floating-point operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// 64 bits.
    Double,
    /// 32 bits.
    Single,
}

impl Precision {
    /// `double`, `single`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Single => "single",
        }
    }
}

/// How wide its instructions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// One number at a time.
    Scalar,
    /// A vector of so many bits.
    Bits(u16),
}

impl std::fmt::Display for Width {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scalar => f.write_str("scalar"),
            Self::Bits(bits) => bits.fmt(f),
        }
    }
}

/// Floating-point operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flops {
    /// Of which numbers.
    pub precision: Precision,
    /// By which instructions.
    pub width: Width,
    /// How many; a fused multiply-add is two.
    pub count: u64,
}

/// Bytes between the caches and the memory, in whole lines. A range where it is the CPU's affair: whether a line is read that is
/// wholly written, and whether the neighbour of a line is fetched with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// From memory, at least and at most.
    pub read: (u64, u64),
    /// To memory.
    pub written: u64,
}

/// What one iteration does. `None` where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Instructions retired, in user mode.
    pub instructions: Option<u64>,
    /// Branches retired, in user mode.
    pub branches: Option<u64>,
    /// Branches that are foreseen wrongly.
    pub mispredicted: Option<f64>,
    /// Cycles of the core.
    pub cycles: Option<u64>,
    /// Floating-point operations.
    pub flops: Option<Flops>,
    /// Bytes that its instructions load.
    pub loaded: u64,
    /// Bytes that its instructions store.
    pub stored: u64,
    /// Where it works on more memory than the caches hold.
    pub traffic: Option<Traffic>,
    /// Page faults without I/O.
    pub minor_faults: Option<u64>,
    /// Switches to another thread.
    pub context_switches: Option<u64>,
}

/// Pointers that an iteration of the chain follows.
pub(crate) const FOLLOWED: u64 = 8;

/// The machine code of a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    /// Registers alone: so many iterations.
    Registers(unsafe extern "C" fn(u64)),
    /// So many lines of each array: written, read, read.
    Stream(unsafe extern "C" fn(u64, *mut u8, *const u8, *const u8)),
    /// So many iterations from a pointer on; returns where it is then.
    Chase(unsafe extern "C" fn(u64, *const u8) -> *const u8),
    /// First accesses of pages.
    Faults,
    /// Waits for another thread.
    Switches,
}

/// A loop of known work.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Its name, of letters, digits and `_`.
    pub name: &'static str,
    /// What it does, in words.
    pub about: &'static str,
    /// What one iteration does.
    pub work: Work,
    /// Whether this CPU has its instructions.
    pub supported: bool,
    pub(crate) body: Body,
}

impl Kernel {
    /// Arithmetic of so many instructions, and a decrement and a branch; `bits` of its vectors, 0 for scalar. Its name begins with
    /// `fma` if each instruction is a fused multiply-add.
    pub(crate) fn arithmetic(
        name: &'static str,
        supported: bool,
        precision: Precision,
        bits: u16,
        operations: u64,
        code: extern "C" fn(u64),
    ) -> Self {
        let number = if precision == Precision::Double { 64 } else { 32 };
        let fused = name.starts_with("fma");
        let lanes = u64::from((bits / number).max(1));
        let width = if bits == 0 { Width::Scalar } else { Width::Bits(bits) };
        let count = operations * lanes * if fused { 2 } else { 1 };
        Self {
            name,
            about: if fused { "fused multiply-adds" } else { "additions and multiplications" },
            work: Work {
                instructions: Some(operations + 2),
                branches: Some(1),
                flops: Some(Flops { precision, width, count }),
                ..Work::default()
            },
            supported,
            body: Body::Registers(code),
        }
    }

    /// What every CPU of the architecture can do.
    pub(crate) fn other(name: &'static str, about: &'static str, work: Work, body: Body) -> Self {
        Self { name, about, work, supported: true, body }
    }
}
