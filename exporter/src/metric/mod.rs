//! From typed samples to the exposition: the catalogue's rows, what one collector yields, and the text.

mod encode;
mod family;
mod section;

pub use encode::encode_openmetrics;
pub use family::{Family, Kind, Level, PerCgroup, Unit};
pub(crate) use family::{node_family, per_cgroup};
pub use section::{Section, SubjectId, Value};
