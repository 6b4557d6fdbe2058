//! One thing done many times by several threads.

use std::num::NonZero;
use std::thread::{Builder, available_parallelism, scope};

use parking_lot::Mutex;

/// More threads would be in each other's way in the kernel.
const MOST: usize = 16;

/// So many threads, but at most as many as this process may have CPUs.
#[must_use]
pub fn threads_for(wanted: usize) -> usize {
    wanted.min(MOST).min(available_parallelism().map_or(1, NonZero::get))
}

/// Does something with each of these on so many threads, this one among them, each with a part of them. All is done when it returns.
/// For calls in which the kernel asks another CPU and waits for it.
pub fn spread<T: Send>(name: &str, items: Vec<T>, threads: usize, each: impl Fn(T) + Sync) {
    let part = items.len().div_ceil(threads.max(1));
    let mut items = items.into_iter();
    let parts: Vec<Mutex<Vec<T>>> =
        (0..threads.max(1)).map(|_| Mutex::new(items.by_ref().take(part).collect())).collect();
    let work = |part: &Mutex<Vec<T>>| std::mem::take(&mut *part.lock()).into_iter().for_each(&each);
    scope(|scope| {
        let start = |part| {
            let thread = Builder::new().name(name.to_owned()).stack_size(64 << 10);
            thread.spawn_scoped(scope, move || work(part)).is_ok()
        };
        let others = parts.iter().skip(1).filter(|part| !part.lock().is_empty());
        // What no thread could be started for is done here.
        let left: Vec<_> = others.filter(|part| !start(*part)).collect();
        parts.iter().take(1).chain(left).for_each(work);
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_is_done_once_and_all_threads_have_a_part() {
        for (items, threads, taking_part) in [(20, 4, 4), (3, 8, 3), (5, 1, 1), (0, 4, 0), (2, 0, 1)] {
            let done = Mutex::new(Vec::new());
            spread("spread", (0..items).collect(), threads, |item: usize| {
                done.lock().push((item, format!("{:?}", std::thread::current().id())));
            });
            let done = done.into_inner();
            let all: BTreeSet<usize> = done.iter().map(|(item, _)| *item).collect();
            assert_eq!((done.len(), all.len()), (items, items));
            let by: BTreeSet<&String> = done.iter().map(|(_, thread)| thread).collect();
            assert_eq!(by.len(), taking_part, "{items} by {threads}");
        }
        assert!((1..=MOST).contains(&threads_for(1000)) && threads_for(1) == 1);
    }
}
