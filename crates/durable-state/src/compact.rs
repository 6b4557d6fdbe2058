//! postcard's form, with the code for each kind of number once in the program. postcard's own functions are generic and inlined:
//! in every field of every type that is saved.

use postcard::Error;
use postcard::ser_flavors::ExtendFlavor;
use serde::de::{self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

type Outcome<T = ()> = Result<T, Error>;

/// Writes.
pub(crate) struct Writer(postcard::Serializer<ExtendFlavor<Vec<u8>>>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(postcard::Serializer { output: ExtendFlavor::new(Vec::new()) })
    }

    pub(crate) fn finish(self) -> Outcome<Vec<u8>> {
        postcard::ser_flavors::Flavor::finalize(self.0.output)
    }

    #[inline(never)]
    fn byte(&mut self, value: u8) -> Outcome {
        value.serialize(&mut self.0)
    }

    #[inline(never)]
    fn unsigned(&mut self, value: u64) -> Outcome {
        value.serialize(&mut self.0)
    }

    #[inline(never)]
    fn signed(&mut self, value: i64) -> Outcome {
        value.serialize(&mut self.0)
    }

    #[inline(never)]
    fn long(&mut self, value: u128) -> Outcome {
        value.serialize(&mut self.0)
    }

    #[inline(never)]
    fn long_signed(&mut self, value: i128) -> Outcome {
        value.serialize(&mut self.0)
    }

    #[inline(never)]
    fn text(&mut self, value: &str) -> Outcome {
        value.serialize(&mut self.0)
    }

    /// A sequence whose length is not known cannot be written.
    #[inline(never)]
    fn length(&mut self, length: Option<usize>) -> Outcome {
        let length = length.and_then(|length| u64::try_from(length).ok());
        self.unsigned(length.ok_or(Error::SerializeSeqLengthUnknown)?)
    }
}

impl Serializer for &mut Writer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Outcome {
        self.byte(value.into())
    }

    fn serialize_i8(self, value: i8) -> Outcome {
        self.byte(value.cast_unsigned())
    }

    fn serialize_i16(self, value: i16) -> Outcome {
        self.signed(value.into())
    }

    fn serialize_i32(self, value: i32) -> Outcome {
        self.signed(value.into())
    }

    fn serialize_i64(self, value: i64) -> Outcome {
        self.signed(value)
    }

    fn serialize_i128(self, value: i128) -> Outcome {
        self.long_signed(value)
    }

    fn serialize_u8(self, value: u8) -> Outcome {
        self.byte(value)
    }

    fn serialize_u16(self, value: u16) -> Outcome {
        self.unsigned(value.into())
    }

    fn serialize_u32(self, value: u32) -> Outcome {
        self.unsigned(value.into())
    }

    fn serialize_u64(self, value: u64) -> Outcome {
        self.unsigned(value)
    }

    fn serialize_u128(self, value: u128) -> Outcome {
        self.long(value)
    }

    fn serialize_f32(self, value: f32) -> Outcome {
        value.serialize(&mut self.0)
    }

    fn serialize_f64(self, value: f64) -> Outcome {
        value.serialize(&mut self.0)
    }

    fn serialize_char(self, value: char) -> Outcome {
        value.serialize(&mut self.0)
    }

    fn serialize_str(self, value: &str) -> Outcome {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Outcome {
        self.0.serialize_bytes(value)
    }

    fn serialize_none(self) -> Outcome {
        self.byte(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        self.byte(1)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Outcome {
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Outcome {
        Ok(())
    }

    fn serialize_unit_variant(self, _name: &'static str, index: u32, _variant: &'static str) -> Outcome {
        self.unsigned(index.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        value: &T,
    ) -> Outcome {
        self.unsigned(index.into())?;
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Outcome<Self> {
        self.length(length)?;
        Ok(self)
    }

    fn serialize_tuple(self, _length: usize) -> Outcome<Self> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Outcome<Self> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Outcome<Self> {
        self.unsigned(index.into())?;
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Outcome<Self> {
        self.length(length)?;
        Ok(self)
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Outcome<Self> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Outcome<Self> {
        self.unsigned(index.into())?;
        Ok(self)
    }
}

/// The parts of what is composed follow each other.
macro_rules! composed {
    ($($composed:ident: $($part:ident($($key:ident)?)),+;)+) => {$(
        impl ser::$composed for &mut Writer {
            type Ok = ();
            type Error = Error;

            $(fn $part<T: Serialize + ?Sized>(&mut self, $($key: &'static str,)? value: &T) -> Outcome {
                $(let _ = $key;)?
                value.serialize(&mut **self)
            })+

            fn end(self) -> Outcome {
                Ok(())
            }
        }
    )+};
}

composed! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(_name);
    SerializeStructVariant: serialize_field(_name);
}

/// Reads.
pub(crate) struct Reader<'de>(postcard::Deserializer<'de, postcard::de_flavors::Slice<'de>>);

impl<'de> Reader<'de> {
    pub(crate) fn new(bytes: &'de [u8]) -> Self {
        Self(postcard::Deserializer::from_bytes(bytes))
    }

    /// What was not read.
    pub(crate) fn finish(self) -> Outcome<&'de [u8]> {
        self.0.finalize()
    }

    #[inline(never)]
    fn byte(&mut self) -> Outcome<u8> {
        u8::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn flag(&mut self) -> Outcome<bool> {
        bool::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn unsigned(&mut self) -> Outcome<u64> {
        u64::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn signed(&mut self) -> Outcome<i64> {
        i64::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn long(&mut self) -> Outcome<u128> {
        u128::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn long_signed(&mut self) -> Outcome<i128> {
        i128::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn text(&mut self) -> Outcome<&'de str> {
        Deserialize::deserialize(&mut self.0)
    }

    #[inline(never)]
    fn length(&mut self) -> Outcome<usize> {
        usize::try_from(self.unsigned()?).map_err(|_| Error::DeserializeBadVarint)
    }
}

/// A number that may be narrower than it is written.
fn narrow<N: TryFrom<W>, W>(wide: W) -> Outcome<N> {
    N::try_from(wide).map_err(|_| Error::DeserializeBadVarint)
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    /// What is written does not say what it is.
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Outcome<V::Value> {
        Err(Error::WontImplement)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_bool(self.flag()?)
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_i8(self.byte()?.cast_signed())
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_i16(narrow(self.signed()?)?)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_i32(narrow(self.signed()?)?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_i128(self.long_signed()?)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_u8(self.byte()?)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_u16(narrow(self.unsigned()?)?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_u32(narrow(self.unsigned()?)?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_u128(self.long()?)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_f32(f32::deserialize(&mut self.0)?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_f64(f64::deserialize(&mut self.0)?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_char(char::deserialize(&mut self.0)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.0.deserialize_bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.0.deserialize_byte_buf(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match self.byte()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            _ => Err(Error::DeserializeBadOption),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Outcome<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Outcome<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        let left = self.length()?;
        visitor.visit_seq(Parts { reader: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Outcome<V::Value> {
        visitor.visit_seq(Parts { reader: self, left: length })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Outcome<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        let left = self.length()?;
        visitor.visit_map(Parts { reader: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Outcome<V::Value> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Outcome<V::Value> {
        visitor.visit_enum(self)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _visitor: V) -> Outcome<V::Value> {
        Err(Error::WontImplement)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _visitor: V) -> Outcome<V::Value> {
        Err(Error::WontImplement)
    }
}

/// The parts of what is composed, so many of which are left.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
}

impl Parts<'_, '_> {
    fn next(&mut self) -> bool {
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Outcome<Option<T::Value>> {
        self.next().then(|| seed.deserialize(&mut *self.reader)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Outcome<Option<T::Value>> {
        self.next().then(|| seed.deserialize(&mut *self.reader)).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Outcome<T::Value> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut Reader<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Outcome<(T::Value, Self)> {
        let index: u32 = narrow(self.unsigned()?)?;
        let index: de::value::U32Deserializer<Error> = de::IntoDeserializer::into_deserializer(index);
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Reader<'de> {
    type Error = Error;

    fn unit_variant(self) -> Outcome {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Outcome<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Outcome<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Outcome<V::Value> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
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
        (proptest::collection::vec(kind(), 0..5), map, numbers, maybe, any::<[u64; 3]>(), any::<u64>())
            .prop_map(|(kinds, map, numbers, maybe, fixed, new)| All {
                kinds,
                map,
                numbers,
                maybe: maybe.map(|text| text.map(String::into_boxed_str)),
                fixed,
                new: New(new),
                unit: (),
            })
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
}
