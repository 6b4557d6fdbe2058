//! Loops of which it is known exactly what they do: instructions, branches, floating-point operations, bytes. What counts them can
//! be held against it.
//!
//! The loops are whole functions in assembler (`x86_64.rs`, `aarch64.rs`), so that no compiler changes them. Each declares what one
//! iteration does ([`Work`]); tests/instructions.rs disassembles them and counts for itself. Other architectures have only the work
//! that the kernel does ([`mod@system`]).
//!
//! ```
//! use known_work::{Memory, kernels};
//!
//! let chain = kernels().into_iter().find(|kernel| kernel.name == "chain").filter(|kernel| kernel.supported);
//! if let Some(chain) = chain {
//!     let mut ready = chain.prepare(&Memory { bytes: 1 << 20 }).unwrap();
//!     ready.run(1000);
//!     assert!(chain.work.instructions.unwrap() > 100);
//! }
//! ```
#![deny(unsafe_code)]

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;
mod map;
mod run;
pub mod system;
mod work;

pub use run::{Memory, Ready};
pub use work::{Flops, Kernel, Precision, Traffic, Width, Work};

/// All loops of this architecture, also those that this CPU cannot run ([`Kernel::supported`]), and the kernel's own work.
pub fn kernels() -> Vec<Kernel> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let mut all = machine::kernels();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let mut all = Vec::new();
    all.extend(system::kernels());
    all
}

/// Whether there are loops for this architecture.
pub const fn has_loops() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}
