//! For tests: writes down what a kernel says of its types.

#![allow(clippy::unwrap_used, reason = "only tests use it: what fails here fails them")]

use super::{MAGIC, VERSION, kind};

/// Types so far. The first one has number 1.
#[derive(Debug)]
pub struct Writer {
    types: Vec<u32>,
    strings: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }
}

impl Writer {
    /// Where a name is among the strings.
    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    /// A type of any kind, and so many parts of it in these words.
    pub fn add(&mut self, kind: u32, bit_fields: bool, name: &str, parts: u32, words: &[u32]) -> &mut Self {
        let name = self.name(name);
        self.types.extend([name, u32::from(bit_fields) << 31 | kind << 24 | parts, 0]);
        self.types.extend(words);
        self
    }

    /// A structure of members: name, number of the type, and where it is, bits.
    pub fn structure(&mut self, name: &str, members: &[(&str, u32, u32)]) -> &mut Self {
        self.composed(kind::STRUCT, false, name, members)
    }

    /// The same in a union, or where bit fields are among the members.
    pub fn composed(
        &mut self,
        kind: u32,
        bit_fields: bool,
        name: &str,
        members: &[(&str, u32, u32)],
    ) -> &mut Self {
        let words: Vec<u32> =
            members.iter().flat_map(|(name, id, offset)| [self.name(name), *id, *offset]).collect();
        self.add(kind, bit_fields, name, u32::try_from(members.len()).unwrap(), &words)
    }

    /// An enumeration.
    pub fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) -> &mut Self {
        let words: Vec<u32> = values.iter().flat_map(|(name, value)| [self.name(name), *value]).collect();
        self.add(kind::ENUM, false, name, u32::try_from(values.len()).unwrap(), &words)
    }

    /// A tracepoint's function, without its arguments.
    pub fn tracepoint(&mut self, name: &str) -> &mut Self {
        self.add(kind::TYPEDEF, false, &format!("btf_trace_{name}"), 0, &[])
    }

    /// All of it, as the kernel's file has it.
    pub fn bytes(&self) -> Vec<u8> {
        let types: Vec<u8> = self.types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let [types_end, strings] =
            [types.len(), self.strings.len()].map(|length| u32::try_from(length).unwrap());
        let header = [24, 0, types_end, types_end, strings].map(u32::to_ne_bytes).concat();
        [&MAGIC.to_ne_bytes()[..], &[VERSION, 0], &header, &types, &self.strings].concat()
    }
}
