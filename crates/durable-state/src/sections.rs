//! The sections of a state, and the form of what is in them.

use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::compact::{Reader, Writer};
use crate::instant;

/// Bytes that are not what was expected: of another layout, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a section of this layout")]
pub struct Unreadable;

/// The whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sections {
    /// When it was made.
    #[serde(with = "instant")]
    pub saved: Instant,
    /// The sections by name.
    #[serde(with = "whole")]
    pub sections: Vec<(String, Vec<u8>)>,
}

/// Sections as they are saved.
mod whole {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::bytes::{Borrowed, Bytes};

    pub(super) fn serialize<S: Serializer>(
        sections: &[(String, Vec<u8>)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(sections.iter().map(|(name, section)| (name, Borrowed(section))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, Vec<u8>)>, D::Error> {
        let sections = Vec::<(String, Bytes)>::deserialize(deserializer)?;
        Ok(sections.into_iter().map(|(name, section)| (name, section.0)).collect())
    }
}

impl Sections {
    /// The section of a name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.sections.iter().find(|(known, _)| known == name).map(|(_, section)| &**section)
    }
}

/// The bytes of a section. Empty in the one case that a value cannot be encoded (a sequence of unknown length), and empty
/// is no section.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut writer = Writer::new();
    value.serialize(&mut writer).and_then(|()| writer.finish()).unwrap_or_default()
}

/// A section's value. Every byte must belong to it.
pub fn decode<T: DeserializeOwned>(section: &[u8]) -> Result<T, Unreadable> {
    let mut reader = Reader::new(section);
    let value = T::deserialize(&mut reader).map_err(|_| Unreadable)?;
    match reader.finish() {
        Ok([]) => Ok(value),
        Ok(_) | Err(_) => Err(Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_whole_or_unreadable() {
        let section = encode(&(7_u32, "text", vec![1_u128]));
        assert_eq!(decode::<(u32, String, Vec<u128>)>(&section), Ok((7, "text".to_owned(), vec![1])));
        assert_eq!(decode::<(u32, String)>(&section), Err(Unreadable), "bytes are left");
        let (head, _) = section.split_at(section.len() - 1);
        assert_eq!(decode::<(u32, String, Vec<u128>)>(head), Err(Unreadable), "bytes are missing");
    }

    #[test]
    fn a_length_that_cannot_be_is_no_allocation() {
        assert_eq!(decode::<Vec<u64>>(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(Unreadable));
    }
}
