//! The simulated node's GPUs: eight like NVIDIA's H100, the last of which is divided (MIG).
//!
//! [`node_gpus`] lets them work and [`work`] says what each kind of job does on its own; these know nothing of the exporter.
//! [`backend`] and [`facts`] show them to it, in place of a driver and under the same gate as the files.

mod backend;
mod facts;
mod node_gpus;
mod work;

pub(super) use backend::GpuView;
pub(super) use node_gpus::{Ask, NodeGpus};
#[cfg(test)]
pub(super) use node_gpus::{BOARDS, Device, PARTS, WHOLE};
pub(super) use work::Work;
