//! Logins that were right, as keyed hashes.

use std::collections::VecDeque;
use std::{fmt, io};

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;

/// Enough for a few scrapers whose passwords change.
const CAPACITY: usize = 64;

/// The tag of one login.
#[derive(Clone, Copy)]
pub(crate) struct Tag([u8; 32]);

impl Tag {
    /// In constant time.
    fn is(&self, other: &Tag) -> bool {
        self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

/// Hashes of right logins, a bounded number, under a key of this process alone. Without the key, a list of passwords
/// cannot be tried on them.
pub(crate) struct Remembered {
    key: hmac::Key,
    tags: Mutex<VecDeque<Tag>>,
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remembered")
    }
}

impl Remembered {
    pub(crate) fn new() -> io::Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| io::Error::other("the system has no random numbers"))?;
        Ok(Remembered { key, tags: Mutex::default() })
    }

    /// The tag of these parts. The length precedes each part, so that no other parts make the same input.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> Tag {
        let mut hash = hmac::Context::with_key(&self.key);
        for part in parts {
            hash.update(&part.len().to_le_bytes());
            hash.update(part);
        }
        let mut tag = [0; 32];
        tag.iter_mut().zip(hash.sign().as_ref()).for_each(|(to, from)| *to = *from);
        Tag(tag)
    }

    /// A number for a name. It is always the same one, and a client cannot predict it.
    pub(crate) fn pick(&self, name: &str) -> u64 {
        self.tag(&[name.as_bytes()]).0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn contains(&self, tag: &Tag) -> bool {
        // All tags are compared, so that the time shows neither the position nor the presence of one.
        let tags = self.tags.lock();
        tags.iter().fold(false, |found, known| found | known.is(tag))
    }

    pub(crate) fn insert(&self, tag: Tag) {
        let mut tags = self.tags.lock();
        tags.push_back(tag);
        while tags.len() > CAPACITY {
            tags.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_join_alike_have_different_tags() {
        let memory = Remembered::new().unwrap();
        memory.insert(memory.tag(&[b"ab", b"c", b"d"]));
        assert!(memory.contains(&memory.tag(&[b"ab", b"c", b"d"])));
        for parts in
            [&[&b"a"[..], b"bc", b"d"][..], &[b"ab", b"cd", b""], &[b"abcd"], &[b"ab", b"c", b"d", b""]]
        {
            assert!(!memory.contains(&memory.tag(parts)), "{parts:?}");
        }
    }

    #[test]
    fn another_process_has_another_key() {
        let (one, other) = (Remembered::new().unwrap(), Remembered::new().unwrap());
        one.insert(other.tag(&[b"a"]));
        assert!(!one.contains(&one.tag(&[b"a"])));
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let memory = Remembered::new().unwrap();
        let tag = |nth: usize| memory.tag(&[&nth.to_le_bytes()]);
        (0..=CAPACITY).for_each(|nth| memory.insert(tag(nth)));
        assert!(!memory.contains(&tag(0)));
        assert!(memory.contains(&tag(1)) && memory.contains(&tag(CAPACITY)));
        assert_eq!(memory.tags.lock().len(), CAPACITY);
    }
}
