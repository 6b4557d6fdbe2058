//! Memory of this process's own, as the kernel gives it.
#![expect(
    unsafe_code,
    reason = "mmap(2) and madvise(2) give memory whose pages are known, which the allocator does not"
)]

use std::io;
use std::ptr::NonNull;

/// A private mapping, given back when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    len: usize,
}

impl Map {
    /// So many bytes, all zero and none of them touched. `huge`: in large pages, where the kernel has some.
    pub(crate) fn new(len: usize, huge: bool) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of others.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range is the mapping that was just made. A kernel without large pages refuses, which changes nothing.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
        Ok(Self { start, len })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Gives the pages back: the next access of each is a page fault.
    pub(crate) fn forget_pages(&mut self) {
        // SAFETY: the range is this mapping; nothing borrows from it while it is borrowed mutably.
        let _ = unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_DONTNEED) };
    }

    /// Its words of 64 bits.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        // SAFETY: mmap aligns to pages, every bit pattern is a u64, and the mapping is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len / 8) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing uses it any more.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
