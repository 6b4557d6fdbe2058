//! What the fuzz targets share. Every target asserts a property, since "does not panic" finds little in code that has
//! no way to panic.

use std::fmt::Debug;

use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};

/// Makes a value of the bytes, for targets that take more than bytes; too few of them are no input.
pub fn typed<'a, T: Arbitrary<'a>>(bytes: &'a [u8], run: impl FnOnce(T)) {
    if let Ok(value) = T::arbitrary_take_rest(Unstructured::new(bytes)) {
        run(value);
    }
}

/// The whole lines at the beginning of a file, shortest first, with the file itself at the end if it is whole.
pub fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    // A handful says as much as thousands.
    ends.step_by(1 + bytes.len() / 256).filter_map(|end| bytes.get(..end))
}

/// What can be read whole can be read up to any of its lines: a parser looks at nothing that comes later.
pub fn prefixes_are_read<T, E>(bytes: &[u8], parse: impl Fn(&[u8]) -> Result<T, E>) {
    if parse(bytes).is_ok() {
        for prefix in whole_lines(bytes) {
            assert!(parse(prefix).is_ok(), "{:?} is refused", String::from_utf8_lossy(prefix));
        }
    }
}

/// The value of the last line `key value`, read in the plainest way there is.
pub fn last_value(bytes: &[u8], key: &str) -> Option<u64> {
    let mut value = None;
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some(rest) = line.strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b" ")) {
            value = std::str::from_utf8(rest).ok().and_then(|text| text.trim_ascii().parse().ok());
        }
    }
    value
}

/// Holds a parsed file's fields against the plainest way to read them.
pub fn agrees<T: Debug>(bytes: &[u8], parsed: &T, fields: &[(&str, Option<u64>)]) {
    for (key, found) in fields {
        assert_eq!(
            *found,
            last_value(bytes, key),
            "{key} of {:?}: {parsed:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}
