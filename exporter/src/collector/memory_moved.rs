//! What was moved in memory and what cores spent, on their way from the collector that measures it to the one that splits energy.
//!
//! Both are compared with what a meter counted, so they have to be of the same time: the collector of energy asks when it reads its
//! meters.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use attribution::Measured;
use parking_lot::Mutex;

/// By socket; `None` where it is not known for all of the time.
pub type BySocket = BTreeMap<Option<u32>, Option<Measured>>;

/// Who counts what is moved.
pub trait MovedSource: Send + Sync {
    /// Reads what was moved since the last call. Must not wait for a reading that hangs on another thread.
    fn moved(&self) -> BySocket;

    /// Reads what cores spent since the last call, microjoules, in the same way. Empty where the CPU does not measure it.
    fn core_energy(&self) -> BySocket;
}

/// The source, once there is one.
#[derive(Default)]
pub struct MemoryMoved(Mutex<Option<Weak<dyn MovedSource>>>);

impl std::fmt::Debug for MemoryMoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryMoved")
    }
}

impl MemoryMoved {
    /// This one counts, for as long as somebody holds it.
    pub fn set(&self, source: &Arc<dyn MovedSource>) {
        *self.0.lock() = Some(Arc::downgrade(source));
    }

    fn source(&self) -> Option<Arc<dyn MovedSource>> {
        self.0.lock().as_ref().and_then(Weak::upgrade)
    }

    /// What was moved since the last call; nothing where nobody counts.
    pub fn take(&self) -> BySocket {
        self.source().map(|source| source.moved()).unwrap_or_default()
    }

    /// What cores spent since the last call.
    pub fn take_core_energy(&self) -> BySocket {
        self.source().map(|source| source.core_energy()).unwrap_or_default()
    }
}

/// What was measured on a part of the node: a socket, or all of them.
pub fn of_part(moved: &BySocket, part: Option<u32>) -> Option<Measured> {
    if part.is_some() {
        return moved.get(&part).cloned().flatten();
    }
    let mut sockets = moved.values().map(Option::as_ref);
    let first = sockets.next()??.clone();
    sockets.try_fold(first, |sum, more| Some(sum.plus(more?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_known_if_all_of_its_sockets_are() {
        let of = |bytes| Some(Measured::of_nobody(bytes));
        let mut moved = BySocket::from([(Some(0), of(3)), (Some(1), of(4))]);
        assert_eq!([Some(1), Some(2), None].map(|part| of_part(&moved, part)), [of(4), None, of(7)]);
        moved.insert(Some(0), None);
        assert_eq!([Some(0), Some(1), None].map(|part| of_part(&moved, part)), [None, of(4), None]);
        assert_eq!(of_part(&BySocket::default(), None), None);
        assert_eq!(MemoryMoved::default().take(), BySocket::default());
    }
}
