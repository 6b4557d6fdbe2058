use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{decode, encode};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Kind {
    None,
    One(u16),
    Two(i32, String),
    Named { signed: i64, long: u128 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct All {
    kinds: Vec<Kind>,
    map: BTreeMap<String, (u8, i8, bool)>,
    numbers: (u32, u64, i16, i128, f64, char),
    maybe: Option<Option<Box<str>>>,
    fixed: [u64; 3],
    new: New,
    unit: (),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct New(u64);

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::None),
        any::<u16>().prop_map(Kind::One),
        any::<(i32, String)>().prop_map(|(one, other)| Kind::Two(one, other)),
        any::<(i64, u128)>().prop_map(|(signed, long)| Kind::Named { signed, long }),
    ]
}

fn all() -> impl Strategy<Value = All> {
    let map = proptest::collection::btree_map(any::<String>(), any::<(u8, i8, bool)>(), 0..4);
    let numbers = (any::<u32>(), any::<u64>(), any::<i16>(), any::<i128>(), -1e300..1e300, any::<char>());
    let maybe = any::<Option<Option<String>>>();
    (proptest::collection::vec(kind(), 0..5), map, numbers, maybe, any::<[u64; 3]>(), any::<u64>()).prop_map(
        |(kinds, map, numbers, maybe, fixed, new)| All {
            kinds,
            map,
            numbers,
            maybe: maybe.map(|text| text.map(String::into_boxed_str)),
            fixed,
            new: New(new),
            unit: (),
        },
    )
}

proptest! {
    #[test]
    fn the_form_is_postcards(all in all()) {
        let bytes = encode(&all);
        prop_assert_eq!(&bytes, &postcard::to_extend(&all, Vec::new()).unwrap());
        prop_assert_eq!(decode::<All>(&bytes), Ok(all));
    }

    #[test]
    fn what_is_damaged_is_an_error_or_another_value(all in all(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encode(&all);
        let cut = at.index(bytes.len());
        prop_assert!(decode::<All>(bytes.get(..cut).unwrap()).is_err());
        if let Some(byte) = bytes.get_mut(cut) {
            *byte = to;
        }
        let _ = decode::<All>(&bytes);
    }
}

#[test]
fn a_number_that_is_too_large_for_its_type_is_an_error() {
    assert!(decode::<u16>(&encode(&70_000_u64)).is_err());
    assert!(decode::<i32>(&encode(&i64::MIN)).is_err());
    assert!(decode::<Option<u8>>(&[2, 1]).is_err());
}
