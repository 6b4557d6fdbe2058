//! A global allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator with a count of what was asked of it, for a test or benchmark to declare as its own.
#[derive(Debug)]
pub struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNT_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Since the start of the process, over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Allocations made, and made larger or smaller.
    pub count: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes not given back.
    pub live: u64,
}

/// What was counted until now; all 0 where [`Counting`] is not the global allocator.
#[must_use]
pub fn so_far() -> Allocations {
    Allocations { count: COUNT.load(Relaxed), bytes: BYTES.load(Relaxed), live: LIVE.load(Relaxed) }
}

/// Allocations that this thread made until now: other threads of the process make no difference.
#[must_use]
pub fn of_this_thread() -> u64 {
    COUNT_HERE.get()
}

fn note(grown: usize, shrunk: usize) {
    COUNT_HERE.set(COUNT_HERE.get() + 1);
    COUNT.fetch_add(1, Relaxed);
    BYTES.fetch_add(grown as u64, Relaxed);
    LIVE.fetch_add(grown as u64, Relaxed);
    LIVE.fetch_sub(shrunk as u64, Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
#[allow(unsafe_code, reason = "an allocator cannot be declared without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
