//! The sections of a state, and the form of what is in them.

use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
    pub sections: Vec<(String, Vec<u8>)>,
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
    postcard::to_extend(value, Vec::new()).unwrap_or_default()
}

/// A section's value. Every byte must belong to it.
pub fn decode<T: DeserializeOwned>(section: &[u8]) -> Result<T, Unreadable> {
    match postcard::take_from_bytes(section) {
        Ok((value, [])) => Ok(value),
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
