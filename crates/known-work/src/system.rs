//! Work that the kernel does for a process: it counts it itself, on every machine.

use std::time::Duration;

use crate::map::Map;
use crate::work::Body;
use crate::{Kernel, Work};

/// Pages of the mapping that is touched.
pub(crate) const PAGES: usize = 512;

/// Work of the kernel. Its instructions are not known.
pub(crate) fn kernels() -> [Kernel; 2] {
    [
        Kernel {
            name: "page_faults",
            about: "first accesses of pages",
            work: Work { minor_faults: Some(1), ..Work::default() },
            supported: true,
            body: Body::Faults,
        },
        Kernel {
            name: "context_switches",
            about: "waits of 50 microseconds",
            work: Work { context_switches: Some(1), ..Work::default() },
            supported: true,
            body: Body::Switches,
        },
    ]
}

/// Bytes of a page.
#[expect(unsafe_code, reason = "sysconf(3) has the size of a page")]
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf reads and writes no memory of the caller.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Touches so many pages for the first time.
pub(crate) fn fault(map: &mut Map, pages: u64) {
    let mut left = usize::try_from(pages).unwrap_or(usize::MAX);
    while left > 0 {
        let now = left.min(PAGES);
        map.forget_pages();
        for word in map.words().iter_mut().step_by(page_size() / 8).take(now) {
            *word = 1;
        }
        left -= now;
    }
}

/// Gives up the CPU so often.
#[expect(clippy::disallowed_methods, reason = "a wait without a reason is the work itself")]
pub(crate) fn switch(times: u64) {
    (0..times).for_each(|_| std::thread::sleep(Duration::from_micros(50)));
}
