//! What the GPUs of AMD and Intel have in common: nodes and devices of the kernel's direct rendering manager (DRM),
//! hwmon sensors, and the usage that DRM descriptors report for each process.

mod attributes;
mod busy;
mod card;
mod clients;
mod fdinfo;
mod hwmon;
#[cfg(test)]
pub(crate) mod testing;

pub(super) use attributes::Attributes;
pub use attributes::{link_generation, parse_signed};
pub(super) use busy::{Busy, Engines};
pub(super) use card::{Card, cards, is_present};
pub(super) use clients::scan;
pub use fdinfo::{Client, Engine, Region, parse_fdinfo};
pub(super) use hwmon::{Hwmon, facts as hwmon_facts};

/// Major number of DRM's nodes (include/uapi/linux/major.h; drivers/gpu/drm/drm_internal.h).
pub const MAJOR: u32 = 226;
