//! What reads the GPUs of a vendor.

use kernel_files::CollectError;

use super::{Sample, Vendor};

/// What is asked for beyond what is always read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The processes on each GPU and their use of it. Read where a GPU is shared, or where no better source knows its
    /// job.
    pub processes: bool,
}

/// Reads the GPUs of one vendor. It runs on one thread, on which it may hang.
pub trait Backend {
    /// Whose GPUs.
    fn vendor(&self) -> Vendor;

    /// Whether there is anything to read here: a look or two at the file system, no call of a driver.
    fn is_present(&self) -> bool;

    /// Reads everything. Opens the driver when it is not open; after an error that only a new beginning can mend it closes
    /// it, so that the next call begins anew. What there is of a GPU that is lost is its unit alone.
    fn sample(&mut self, wanted: Wanted) -> Result<Sample, CollectError>;

    /// Releases the driver, so that a GPU can be reset or repartitioned. The next [`Backend::sample`] opens it again.
    fn release(&mut self);
}
