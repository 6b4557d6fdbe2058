//! The body of an answer, which notices when all of it was handed over.

use std::fmt;

use hyper::body::{Buf, Bytes};

/// What is done when an answer was handed over.
pub(crate) type OnDelivery = Box<dyn FnOnce() + Send + Sync>;

/// The bytes of an answer. hyper takes from them what the socket has taken, or the TLS layer above it, and drops them unread if
/// the connection ends before.
pub(crate) struct Payload {
    bytes: Bytes,
    on_delivery: Option<OnDelivery>,
}

impl Payload {
    /// Calls `on_delivery` when the last byte was taken.
    pub(crate) fn new(bytes: Bytes, on_delivery: Option<OnDelivery>) -> Self {
        Self { bytes, on_delivery }
    }
}

impl<B: Into<Bytes>> From<B> for Payload {
    fn from(bytes: B) -> Self {
        Self::new(bytes.into(), None)
    }
}

impl Buf for Payload {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if !self.bytes.has_remaining()
            && let Some(on_delivery) = self.on_delivery.take()
        {
            on_delivery();
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_the_last_byte_delivers_it_and_once() {
        let delivered = Arc::new(AtomicUsize::new(0));
        let counted = delivered.clone();
        let note: OnDelivery = Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let mut payload = Payload::new(Bytes::from_static(b"abc"), Some(note));
        for (count, wanted) in [(0, 0), (2, 0), (1, 1), (0, 1)] {
            payload.advance(count);
            assert_eq!(delivered.load(Ordering::Relaxed), wanted);
        }
        let counted = delivered.clone();
        let note: OnDelivery = Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        drop(Payload::new(Bytes::from_static(b"abc"), Some(note)));
        assert_eq!(delivered.load(Ordering::Relaxed), 1, "what is dropped is not delivered");
    }
}
