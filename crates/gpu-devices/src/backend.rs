//! What reads the GPUs of a vendor.

use kernel_files::SourceError;

use super::{Sample, Vendor};

/// What is read beyond the defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The processes on each GPU and their use of it. Read where a GPU is shared, or where no better source knows its
    /// job.
    pub processes: bool,
}

/// Reads the GPUs of one vendor. It runs on one thread, on which it may hang.
pub trait Backend {
    /// The vendor of its GPUs.
    fn vendor(&self) -> Vendor;

    /// Whether there is anything to read here: a look or two at the file system, no call of a driver.
    fn is_present(&self) -> bool;

    /// Whether the energy of its GPUs is that of whole sockets, with their CPU cores and memory.
    fn counts_sockets(&self) -> bool {
        false
    }

    /// Reads everything. Opens the driver when it is not open. After an error that only opening it again can repair,
    /// it closes the driver, and the next call opens it. A lost GPU has its unit alone.
    fn sample(&mut self, wanted: Wanted) -> Result<Sample, SourceError>;

    /// Releases the driver, so that a GPU can be reset or repartitioned. The next [`Backend::sample`] opens it again.
    fn release(&mut self);
}
