//! The three line formats of kernel files: `key value`, `key a=b c=d`, `Key: value`.

use kernel_files::parse::{colon_keyed, fields, flat_keyed, integer, lines, nested_keyed};
use jobledger_exporter_fuzz::{prefixes_are_read, whole_lines};

fn flat(bytes: &[u8]) -> (Vec<(Vec<u8>, u64)>, bool) {
    let mut seen = Vec::new();
    let fine = flat_keyed(bytes, |key, value| seen.push((key.to_vec(), value))).is_ok();
    (seen, fine)
}

/// A key, a name within it, and the value.
type Nested = (Vec<u8>, Vec<u8>, u64);

fn nested(bytes: &[u8]) -> (Vec<Nested>, bool) {
    let mut seen = Vec::new();
    let fine = nested_keyed(bytes, |k, n, v| seen.push((k.to_vec(), n.to_vec(), v))).is_ok();
    (seen, fine)
}

pub fn fuzz(bytes: &[u8]) {
    let (pairs, fine) = flat(bytes);
    let printed: Vec<u8> =
        pairs.iter().flat_map(|(key, value)| [key, &b" "[..], value.to_string().as_bytes(), b"\n"].concat()).collect();
    assert_eq!(flat(&printed), (pairs.clone(), true), "what is read and printed is read the same");
    assert!(!fine || pairs.len() == bytes.iter().filter(|b| **b == b'\n').count(), "one pair per line");
    let (triples, _) = nested(bytes);
    for prefix in whole_lines(bytes) {
        assert!(pairs.starts_with(&flat(prefix).0), "what comes later changes nothing");
        assert!(triples.starts_with(&nested(prefix).0));
    }
    prefixes_are_read(bytes, |bytes| flat_keyed(bytes, |_, _| ()));
    prefixes_are_read(bytes, |bytes| nested_keyed(bytes, |_, _, _| ()));

    colon_keyed(bytes, |key, value| {
        assert!(key.trim_ascii() == key && value.trim_ascii() == value && !key.contains(&b':'));
        assert!(!key.contains(&b'\n') && !value.contains(&b'\n'));
    });
    for (number, line) in lines(bytes).map_while(Result::ok) {
        assert!(number > 0 && !line.contains(&b'\n'));
        assert!(fields(line).all(|field| !field.is_empty() && !field.iter().any(u8::is_ascii_whitespace)));
    }
    let plain = std::str::from_utf8(bytes).ok().filter(|text| !text.starts_with('+'));
    assert_eq!(integer(bytes), plain.and_then(|text| text.parse().ok()));
}
