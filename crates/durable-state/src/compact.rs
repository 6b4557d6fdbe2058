//! postcard's form, with the code for each kind of number once in the program. postcard's own functions are generic and inlined:
//! in every field of every type that is saved.

mod read;
mod write;

pub(crate) use read::Reader;
pub(crate) use write::Writer;

type Outcome<T = ()> = Result<T, postcard::Error>;

#[cfg(test)]
mod tests;
