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
    /// Keys from 0 on; a value is the descriptor of a perf event.
    PerfEvents = 4,
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

/// Perf events that programs read, by number.
#[derive(Debug)]
pub struct PerfEvents(OwnedFd);

impl PerfEvents {
    /// Makes one with room for so many.
    pub fn new(name: &str, most: u32) -> Result<Self, BpfError> {
        syscall::map_create(Kind::PerfEvents as u32, (4, 4), most, 0, object_name(name))
            .map(Self)
            .map_err(BpfError::new("making a map"))
    }

    /// Its descriptor, for programs.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Puts an event at a place. The map keeps it open until it is taken out.
    pub fn set(&self, place: u32, event: impl AsFd) -> Result<(), BpfError> {
        let event = event.as_fd().as_raw_fd();
        syscall::map_set(self.0.as_fd(), &[place], &[event]).map_err(BpfError::new("writing a map"))
    }

    /// Takes an event out. It ends when no program can read it any more.
    pub fn clear(&self, place: u32) {
        // An empty place is empty already.
        let _ = syscall::map_delete(self.0.as_fd(), &[place]);
    }
}

/// A map whose values have a length that is known when it is made: so many 64-bit numbers. Its keys are arrays of `K` 64-bit
/// numbers, or with `K` = 0 the 32-bit numbers from 0 on. All of its memory is taken when it is made, as programs of perf
/// events require before Linux 6.1 (kernel/bpf/verifier.c, `check_map_prog_compatibility`).
#[derive(Debug)]
pub struct Table<const K: usize> {
    descriptor: OwnedFd,
    length: usize,
}

impl<const K: usize> Table<K> {
    /// Makes one with room for so many entries.
    pub fn new(name: &str, most: u32, length: usize) -> Result<Self, BpfError> {
        let kind = if K == 0 { Kind::Array } else { Kind::Hash };
        let key = if K == 0 { 4 } else { bytes_of::<K>() };
        let value = u32::try_from(length.saturating_mul(8)).unwrap_or(u32::MAX);
        let descriptor = syscall::map_create(kind as u32, (key, value), most, 0, object_name(name))
            .map_err(BpfError::new("making a map"))?;
        Ok(Self { descriptor, length })
    }

    /// Its descriptor, for programs.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    fn get(&self, key: &[impl Sized], into: &mut Vec<u64>) -> Result<bool, BpfError> {
        into.clear();
        into.resize(self.length, 0);
        match syscall::map_get_into(self.descriptor.as_fd(), key, into) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(BpfError::new("reading a map")(errno)),
        }
    }

    fn put(&self, key: &[impl Sized], value: &[u64]) -> Result<(), BpfError> {
        let mut whole = value.to_vec();
        whole.resize(self.length, 0);
        syscall::map_set(self.descriptor.as_fd(), key, &whole).map_err(BpfError::new("writing a map"))
    }
}

impl Table<0> {
    /// Reads the entry of a number; `false` where there is no room for it.
    pub fn get_at(&self, key: u32, into: &mut Vec<u64>) -> Result<bool, BpfError> {
        self.get(&[key], into)
    }

    /// Sets the entry of a number, filled up with zeros.
    pub fn put_at(&self, key: u32, value: &[u64]) -> Result<(), BpfError> {
        self.put(&[key], value)
    }
}

/// Of a table whose keys are arrays.
impl<const K: usize> Table<K> {
    /// Reads an entry; `false` if there is none.
    pub fn get_of(&self, key: [u64; K], into: &mut Vec<u64>) -> Result<bool, BpfError> {
        const { assert!(K > 0) };
        self.get(&key, into)
    }

    /// Makes or sets an entry, filled up with zeros. `E2BIG` when there is no room.
    pub fn put_of(&self, key: [u64; K], value: &[u64]) -> Result<(), BpfError> {
        const { assert!(K > 0) };
        self.put(&key, value)
    }

    /// Removes an entry, if it is there.
    pub fn remove(&self, key: [u64; K]) {
        const { assert!(K > 0) };
        let _ = syscall::map_delete(self.descriptor.as_fd(), &key);
    }
}
