//! Bytes within what is saved, written as a whole and not one by one.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is encoded already: a section, or a part of one. The form is that of a sequence of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// The same for bytes of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Borrowed<'a>(pub(crate) &'a [u8]);

impl Serialize for Borrowed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Bytes;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
        Ok(Bytes(bytes))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    #[test]
    fn the_form_is_that_of_a_sequence() {
        for bytes in [vec![], vec![1, 2, 255], vec![7; 300]] {
            let whole = encode(&Bytes(bytes.clone()));
            assert_eq!(whole, encode(&bytes));
            assert_eq!(whole, encode(&Borrowed(&bytes)));
            assert_eq!(decode::<Bytes>(&whole), Ok(Bytes(bytes)));
        }
        assert!(decode::<Bytes>(&[200, 1, 0]).is_err(), "there are fewer than that");
    }
}
