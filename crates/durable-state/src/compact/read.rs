//! Reading.

use postcard::Error;
use serde::de::{self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Outcome;

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
