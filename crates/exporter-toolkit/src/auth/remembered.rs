//! Logins that were right, as keyed hashes.

use std::collections::VecDeque;
use std::{fmt, io};

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Enough for a few scrapers whose passwords change.
const CAPACITY: usize = 64;

/// The tag of one login.
#[derive(Clone, Copy)]
pub(crate) struct Tag([u8; TAG_BYTES]);

impl Tag {
    /// In constant time.
    fn is(&self, other: &Tag) -> bool {
        self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

/// The beginning of exported logins: what it is, and its version.
const MAGIC: &[u8] = b"exporter-logins\x01";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;

/// Not logins that this version exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the remembered logins of this version")]
pub struct NotLogins;

/// Hashes of right logins, a bounded number, under a secret key. Without the key, a list of passwords cannot be tried on
/// them. The hash in the configuration is a part of what is hashed, so a changed password is not remembered.
pub(crate) struct Remembered(Mutex<Secrets>);

struct Secrets {
    bytes: [u8; KEY_BYTES],
    key: hmac::Key,
    tags: VecDeque<Tag>,
}

impl Secrets {
    fn new(bytes: [u8; KEY_BYTES], tags: VecDeque<Tag>) -> Self {
        Secrets { bytes, key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), tags }
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remembered")
    }
}

impl Remembered {
    /// None yet, under a new key. `Err` when the system has no random numbers.
    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| io::Error::other("the system has no random numbers"))?;
        Ok(Remembered(Mutex::new(Secrets::new(bytes, VecDeque::new()))))
    }

    /// The key and the hashes.
    pub(crate) fn export(&self) -> Vec<u8> {
        let secrets = self.0.lock();
        let tags = secrets.tags.iter().flat_map(|tag| &tag.0);
        MAGIC.iter().chain(&secrets.bytes).chain(tags).copied().collect()
    }

    /// Takes over the key and the hashes of another process, and forgets its own.
    pub(crate) fn import(&self, exported: &[u8]) -> Result<(), NotLogins> {
        let rest = exported.strip_prefix(MAGIC).ok_or(NotLogins)?;
        let (key, tags) = rest.split_first_chunk::<KEY_BYTES>().ok_or(NotLogins)?;
        let (tags, torn) = tags.as_chunks::<TAG_BYTES>();
        // A key of nothing but zeros is a file that was never written.
        if !torn.is_empty() || tags.len() > CAPACITY || key.iter().all(|byte| *byte == 0) {
            return Err(NotLogins);
        }
        *self.0.lock() = Secrets::new(*key, tags.iter().copied().map(Tag).collect());
        Ok(())
    }

    /// The tag of these parts. The length precedes each part, so that no other parts make the same input.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> Tag {
        let mut hash = hmac::Context::with_key(&self.0.lock().key);
        for part in parts {
            hash.update(&part.len().to_le_bytes());
            hash.update(part);
        }
        let mut tag = [0; TAG_BYTES];
        tag.iter_mut().zip(hash.sign().as_ref()).for_each(|(to, from)| *to = *from);
        Tag(tag)
    }

    /// A number for a name. It is always the same one, and a client cannot predict it.
    pub(crate) fn pick(&self, name: &str) -> u64 {
        self.tag(&[name.as_bytes()]).0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn contains(&self, tag: &Tag) -> bool {
        // All tags are compared, so that the time shows neither the position nor the presence of one.
        let secrets = self.0.lock();
        secrets.tags.iter().fold(false, |found, known| found | known.is(tag))
    }

    pub(crate) fn insert(&self, tag: Tag) {
        let tags = &mut self.0.lock().tags;
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
        assert_eq!(memory.0.lock().tags.len(), CAPACITY);
    }

    #[test]
    fn what_is_exported_is_remembered_elsewhere() {
        let (one, other) = (Remembered::new().unwrap(), Remembered::new().unwrap());
        let login: &[&[u8]] = &[b"alice", b"$2b$04$hash", b"right"];
        one.insert(one.tag(login));
        assert_eq!(other.import(&one.export()), Ok(()));
        assert!(other.contains(&other.tag(login)));
        assert!(
            !other.contains(&other.tag(&[b"alice", b"$2b$04$other hash", b"right"])),
            "a changed password"
        );
        assert_eq!(other.pick("mallory"), one.pick("mallory"));
        (0..CAPACITY).for_each(|nth| one.insert(one.tag(&[&nth.to_le_bytes()])));
        assert_eq!(other.import(&one.export()), Ok(()));
    }

    #[test]
    fn what_is_torn_too_long_or_of_another_version_is_refused_and_changes_nothing() {
        let memory = Remembered::new().unwrap();
        memory.insert(memory.tag(&[b"a"]));
        let whole = memory.export();
        let mut newer = whole.clone();
        newer[MAGIC.len() - 1] += 1;
        let mut unwritten = whole.clone();
        unwritten[MAGIC.len()..].fill(0);
        let mut long = whole.clone();
        long.extend([1; TAG_BYTES * CAPACITY]);
        for bad in [&[][..], MAGIC, &whole[..whole.len() - 1], &newer, &unwritten, &long] {
            assert_eq!(memory.import(bad), Err(NotLogins));
        }
        assert!(memory.contains(&memory.tag(&[b"a"])));
    }
}
