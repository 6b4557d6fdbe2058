//! What devices and file systems of the node count, and which job it belongs to. One file per source.

pub mod disk;
pub mod energy;
pub mod gpu;
pub mod infiniband;
pub mod lustre;
pub mod memory_traffic;
pub mod nfs;
pub mod slingshot;
