//! Writing.

use postcard::Error;
use postcard::ser_flavors::ExtendFlavor;
use serde::{Serialize, Serializer, ser};

use super::Outcome;

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
