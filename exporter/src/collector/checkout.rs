//! What one thread at a time works with, while others may find out that it is taken and go without.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Holds a value that one thread at a time takes out. A thread may keep it for ever when the kernel hangs.
#[derive(Debug)]
pub struct Checkout<T> {
    value: Mutex<Option<Box<T>>>,
    back: Condvar,
}

/// The value while it is taken; it goes back in the end, by a panic too.
struct Taken<'a, T> {
    slot: &'a Checkout<T>,
    value: Option<Box<T>>,
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        *self.slot.value.lock() = self.value.take();
        self.slot.back.notify_one();
    }
}

impl<T> Checkout<T> {
    /// Holds this.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(Some(Box::new(value))), back: Condvar::new() }
    }

    /// Works with the value; `None` when another thread has it for longer than `patience`.
    pub fn with<R>(&self, patience: Duration, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut held = self.value.lock();
        self.back.wait_while_for(&mut held, |value| value.is_none(), patience);
        let value = held.take()?;
        drop(held);
        let mut taken = Taken { slot: self, value: Some(value) };
        taken.value.as_deref_mut().map(work)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_at_a_time_and_the_others_go_without() {
        let slot = Arc::new(Checkout::new(1));
        let (taken, is_taken) = channel();
        let (go, may_go) = channel::<()>();
        let other = slot.clone();
        let thread = std::thread::spawn(move || {
            other.with(Duration::ZERO, |value| {
                taken.send(()).unwrap();
                may_go.recv().unwrap();
                *value += 1;
            })
        });
        is_taken.recv().unwrap();
        assert_eq!(slot.with(Duration::from_millis(10), |value| *value), None);
        go.send(()).unwrap();
        assert_eq!(slot.with(Duration::from_secs(20), |value| *value), Some(2), "waited for");
        assert_eq!(thread.join().unwrap(), Some(()));
    }

    #[test]
    fn it_is_back_after_a_panic() {
        let slot = Checkout::new(1);
        let panics = || slot.with(Duration::ZERO, |_| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(slot.with(Duration::ZERO, |value| *value), Some(1));
    }
}
