//! The simulated node's GPUs: eight like NVIDIA's H100, the last of which is divided (MIG).
//!
//! [`rack`] lets them work and [`work`] says what each kind of job does on its own; these know nothing of the exporter.
//! [`backend`] and [`facts`] show them to it, in place of a driver and under the same gate as the files.

mod backend;
mod facts;
mod rack;
mod work;

pub(super) use backend::Panel;
pub(super) use rack::{Ask, Rack};
#[cfg(test)]
pub(super) use rack::{BOARDS, Device, PARTS, WHOLE};
pub(super) use work::Work;
