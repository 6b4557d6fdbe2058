//! The form of one slot: a head of 64 bytes, and the payload. Pure.
//!
//! ```text
//!  0  magic      8 bytes
//!  8  format     u32, of this head
//! 12  layout     u32, of the payload
//! 16  sequence   u64, the higher is the later
//! 24  length     u64, of the payload
//! 32  boot       16 bytes
//! 48  checksum   u32, CRC-32 of the head before it and of the payload
//! 52  zeros
//! ```
//! Numbers are little-endian.

/// Bytes of the head.
pub const HEAD: usize = 64;
const MAGIC: &[u8; 8] = b"JLSTATE\0";
const FORMAT: u32 = 1;
const CHECKED: usize = 48;

/// Whose state it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Version of the payload's layout.
    pub layout: u32,
    /// The kernel's boot id.
    pub boot: [u8; 16],
}

/// Why a slot is not used, the one nearest to use last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refused {
    /// Nothing was ever written.
    #[error("nothing is saved yet")]
    Empty,
    /// It is torn, or is no slot.
    #[error("it is damaged")]
    Damaged,
    /// Another version of the program wrote it.
    #[error("another version wrote it")]
    OtherVersion,
    /// It is from before the machine was started.
    #[error("it is from before the last boot")]
    OtherBoot,
}

/// A slot that is whole and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The higher is the later.
    pub sequence: u64,
    /// What was saved.
    pub payload: &'a [u8],
}

/// The bytes of a slot.
pub fn write(sequence: u64, identity: Identity, payload: &[u8]) -> Vec<u8> {
    let mut slot = Vec::with_capacity(HEAD + payload.len());
    slot.extend(MAGIC);
    slot.extend(FORMAT.to_le_bytes());
    slot.extend(identity.layout.to_le_bytes());
    slot.extend(sequence.to_le_bytes());
    slot.extend((payload.len() as u64).to_le_bytes());
    slot.extend(identity.boot);
    slot.extend(checksum(&slot, payload).to_le_bytes());
    slot.resize(HEAD, 0);
    slot.extend(payload);
    slot
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// How many bytes the payload has, as a head says: what is to be read after it.
pub fn length(head: &[u8]) -> Option<u64> {
    head.starts_with(MAGIC).then(|| number(head, 24).map(u64::from_le_bytes)).flatten()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Reads a slot, which may be followed by anything.
pub fn read(bytes: &[u8], identity: Identity) -> Result<Slot<'_>, Refused> {
    let head = bytes.get(..HEAD).unwrap_or(bytes);
    if head.iter().all(|byte| *byte == 0) {
        return Err(Refused::Empty);
    }
    let whole = parse(bytes).ok_or(Refused::Damaged)?;
    if whole.format != FORMAT || whole.identity.layout != identity.layout {
        return Err(Refused::OtherVersion);
    }
    if whole.identity.boot != identity.boot {
        return Err(Refused::OtherBoot);
    }
    Ok(Slot { sequence: whole.sequence, payload: whole.payload })
}

struct Whole<'a> {
    format: u32,
    identity: Identity,
    sequence: u64,
    payload: &'a [u8],
}

fn parse(bytes: &[u8]) -> Option<Whole<'_>> {
    let length = usize::try_from(length(bytes)?).ok()?;
    let payload = bytes.get(HEAD..HEAD.checked_add(length)?)?;
    let sum = u32::from_le_bytes(number(bytes, CHECKED)?);
    let zeros = bytes.get(CHECKED + 4..HEAD)?;
    if sum != checksum(bytes.get(..CHECKED)?, payload) || zeros.iter().any(|byte| *byte != 0) {
        return None;
    }
    Some(Whole {
        format: u32::from_le_bytes(number(bytes, 8)?),
        identity: Identity { layout: u32::from_le_bytes(number(bytes, 12)?), boot: number(bytes, 32)? },
        sequence: u64::from_le_bytes(number(bytes, 16)?),
        payload,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: Identity = Identity { layout: 3, boot: [5; 16] };

    #[test]
    fn a_slot_is_read_as_it_was_written_and_what_follows_does_not_matter() {
        let mut slot = write(9, OURS, b"abc");
        assert_eq!(read(&slot, OURS), Ok(Slot { sequence: 9, payload: b"abc" }));
        slot.extend([1; 50]);
        assert_eq!(read(&slot, OURS), Ok(Slot { sequence: 9, payload: b"abc" }));
    }

    #[test]
    fn what_is_foreign_is_refused_with_its_reason() {
        assert_eq!(read(&[], OURS), Err(Refused::Empty));
        assert_eq!(read(&[0; 4096], OURS), Err(Refused::Empty));
        assert_eq!(read(b"some other file", OURS), Err(Refused::Damaged));
        let slot = write(9, Identity { layout: 2, ..OURS }, b"abc");
        assert_eq!(read(&slot, OURS), Err(Refused::OtherVersion));
        let slot = write(9, Identity { boot: [6; 16], ..OURS }, b"abc");
        assert_eq!(read(&slot, OURS), Err(Refused::OtherBoot));
    }

    proptest! {
        #[test]
        fn a_change_of_any_byte_or_a_cut_anywhere_is_noticed(
            payload in proptest::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let slot = write(1, OURS, &payload);
            let at = at.index(slot.len());
            let mut other = slot.clone();
            other[at] ^= 1_u8 << bit;
            prop_assert!(read(&other, OURS).is_err());
            prop_assert!(read(&slot[..at], OURS).is_err());
        }

        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes, OURS);
        }
    }
}
