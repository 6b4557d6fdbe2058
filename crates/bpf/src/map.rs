//! Tables that programs of the kernel write and this process reads.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::syscall::{self, Command};
use super::{BpfError, object_name};

/// Kinds of maps (include/uapi/linux/bpf.h, `enum bpf_map_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Any key; entries come and go.
    Hash = 1,
    /// Keys from 0 on; every entry is there from the beginning.
    Array = 2,
}

/// Memory of an entry is taken when it is made (Documentation/bpf/map_hash.rst).
const NO_PREALLOC: u32 = 1;

fn bytes_of<const N: usize>() -> u32 {
    u32::try_from(N.saturating_mul(8)).unwrap_or(u32::MAX)
}

/// A hash table whose keys and values are arrays of 64-bit numbers.
#[derive(Debug)]
pub struct HashMap<const K: usize, const V: usize> {
    descriptor: OwnedFd,
    keys: Vec<[u64; K]>,
    values: Vec<[u64; V]>,
}

impl<const K: usize, const V: usize> HashMap<K, V> {
    /// Makes one. It takes memory as it fills.
    pub fn new(name: &str, most: u32) -> Result<Self, BpfError> {
        let sizes = (bytes_of::<K>(), bytes_of::<V>());
        let descriptor = syscall::map_create(Kind::Hash as u32, sizes, most, NO_PREALLOC, object_name(name))
            .map_err(BpfError::new("making a map"))?;
        Ok(Self { descriptor, keys: Vec::new(), values: Vec::new() })
    }

    /// Its descriptor, for programs.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Calls `f` for every entry. One that is made or removed meanwhile may be among them or not; every other is
    /// there once.
    pub fn for_each(&mut self, mut f: impl FnMut(&[u64; K], &[u64; V])) -> Result<(), BpfError> {
        if self.keys.is_empty() {
            self.make_room(128);
        }
        let mut from = None;
        loop {
            match syscall::map_read_batch(self.descriptor.as_fd(), from, &mut self.keys, &mut self.values) {
                Ok((read, next)) => {
                    self.keys.iter().zip(&self.values).take(read).for_each(|(key, value)| f(key, value));
                    let Some(next) = next else { return Ok(()) };
                    from = Some(next);
                }
                // The entries of one place of the table do not fit.
                Err(Errno::NOSPC) => self.make_room(self.keys.len() * 2),
                Err(errno) => return Err(BpfError::new("reading a map")(errno)),
            }
        }
    }

    fn make_room(&mut self, entries: usize) {
        self.keys.resize(entries, [0; K]);
        self.values.resize(entries, [0; V]);
    }

    /// Sets a value, as programs do.
    #[cfg(any(test, feature = "testing"))]
    pub fn set(&self, key: &[u64; K], value: &[u64; V]) -> Result<(), BpfError> {
        syscall::map_set(self.descriptor.as_fd(), key, value).map_err(BpfError::new("writing a map"))
    }

    /// Removes an entry and gives its last value; `None` if there is none.
    pub fn take(&self, key: &[u64; K]) -> Result<Option<[u64; V]>, BpfError> {
        let map = self.descriptor.as_fd();
        // In one call from Linux 5.14; before, additions between the two calls are lost.
        match syscall::map_get(Command::MapLookupAndDelete, map, key) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::PERM) => Err(BpfError::new("taking from a map")(Errno::PERM)),
            Err(_) => match syscall::map_get(Command::MapLookup, map, key) {
                Ok(value) => {
                    syscall::map_delete(map, key).map_err(BpfError::new("taking from a map"))?;
                    Ok(Some(value))
                }
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(BpfError::new("taking from a map")(errno)),
            },
        }
    }
}

/// A map of one entry, there from the beginning.
#[derive(Debug)]
pub struct Cell<const V: usize>(OwnedFd);

impl<const V: usize> Cell<V> {
    /// Makes one, all zeros.
    pub fn new(name: &str) -> Result<Self, BpfError> {
        syscall::map_create(Kind::Array as u32, (4, bytes_of::<V>()), 1, 0, object_name(name))
            .map(Self)
            .map_err(BpfError::new("making a map"))
    }

    /// Its descriptor, for programs; the key is a 32-bit 0.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Its value.
    pub fn get(&self) -> Result<[u64; V], BpfError> {
        syscall::map_get(Command::MapLookup, self.0.as_fd(), &[0_u32]).map_err(BpfError::new("reading a map"))
    }
}
