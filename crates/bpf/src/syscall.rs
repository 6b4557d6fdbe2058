//! The system call. Nothing else in this room is unsafe.

#![allow(unsafe_code, reason = "bpf(2) takes addresses in a structure, for which no safe wrapper exists")]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

/// Commands (include/uapi/linux/bpf.h, `enum bpf_cmd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    #[cfg(any(test, feature = "testing"))]
    ProgramAttach = 8,
    ProgramRun = 10,
    ProgramById = 13,
    ObjectInfo = 15,
    ProgramQuery = 16,
    TracepointOpen = 17,
    MapLookupAndDelete = 21,
    MapLookupBatch = 24,
    LinkCreate = 28,
}

/// An argument of bpf(2): the part of `union bpf_attr` that a command reads. The kernel takes a shorter one as filled
/// up with zeros.
///
/// # Safety
/// Plain numbers without padding between them, laid out as the kernel's (include/uapi/linux/bpf.h); each that is an
/// address is valid for what the command reads or writes there.
pub(super) unsafe trait Attribute {}

fn call<A: Attribute>(command: Command, attribute: &mut A) -> Result<i32, Errno> {
    // SAFETY: the structure outlives the call, its size is passed, and the addresses in it are valid by the contract
    // of `Attribute`.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_int, std::ptr::from_mut(attribute), size_of::<A>())
    };
    i32::try_from(answer).ok().filter(|answer| *answer >= 0).ok_or_else(last_errno)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn call_for_descriptor<A: Attribute>(command: Command, attribute: &mut A) -> Result<OwnedFd, Errno> {
    let descriptor = call(command, attribute)?;
    // SAFETY: a command that makes an object answers with a new descriptor (close-on-exec), which is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn number(descriptor: BorrowedFd<'_>) -> RawFd {
    descriptor.as_raw_fd()
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr().expose_provenance() as u64
}

fn address_mut<T>(of: &mut [T]) -> u64 {
    of.as_mut_ptr().expose_provenance() as u64
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

// SAFETY: eleven words, no address.
unsafe impl Attribute for MapCreate {}

/// Makes a map.
pub(super) fn map_create(
    kind: u32,
    (key_size, value_size): (u32, u32),
    max_entries: u32,
    flags: u32,
    name: [u8; 16],
) -> Result<OwnedFd, Errno> {
    let mut attribute =
        MapCreate { kind, key_size, value_size, max_entries, flags, inner_map: 0, numa_node: 0, name };
    call_for_descriptor(Command::MapCreate, &mut attribute)
}

/// What a map's key and value are made of: whole numbers of 64 bits, which any bytes of the kernel's are.
pub(super) type Words<const N: usize> = [u64; N];

#[repr(C)]
struct Element {
    map: i32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: as the structure of BPF_MAP_*_ELEM; made below alone, from slices that outlive the call. That they are as
// long as the map's key and value is what the callers' types say (`HashMap<K, V>`, `Cell<V>`).
unsafe impl Attribute for Element {}

/// Reads, or reads and removes, the value of a key. `K` and `V` are the map's own sizes.
pub(super) fn map_get<T, const V: usize>(
    command: Command,
    map: BorrowedFd<'_>,
    key: &[T],
) -> Result<Words<V>, Errno> {
    let mut value = [0; V];
    let (key, to) = (address(key), address_mut(&mut value));
    call(command, &mut Element { map: number(map), unused: 0, key, value: to, flags: 0 })?;
    Ok(value)
}

/// Reads the value of a key into a slice. `K` and the length of `value` are the map's own sizes.
pub(super) fn map_get_into<K, V>(map: BorrowedFd<'_>, key: &[K], value: &mut [V]) -> Result<(), Errno> {
    let (key, value) = (address(key), address_mut(value));
    call(Command::MapLookup, &mut Element { map: number(map), unused: 0, key, value, flags: 0 })?;
    Ok(())
}

/// Sets the value of a key. `K` and `V` are the map's own sizes.
pub(super) fn map_set<K, V>(map: BorrowedFd<'_>, key: &[K], value: &[V]) -> Result<(), Errno> {
    let (key, value) = (address(key), address(value));
    call(Command::MapUpdate, &mut Element { map: number(map), unused: 0, key, value, flags: 0 })?;
    Ok(())
}

/// Removes a key.
pub(super) fn map_delete<K>(map: BorrowedFd<'_>, key: &[K]) -> Result<(), Errno> {
    let key = address(key);
    call(Command::MapDelete, &mut Element { map: number(map), unused: 0, key, value: 0, flags: 0 })?;
    Ok(())
}

#[repr(C)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: i32,
    element_flags: u64,
    flags: u64,
}

// SAFETY: as the structure of BPF_MAP_*_BATCH; made below alone, from slices that outlive the call.
unsafe impl Attribute for Batch {}

/// Where a reading in batches goes on; opaque, the kernel's.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position(u64);

/// Reads as many entries as there is room for, from the beginning or from where the last call stopped. How many they
/// were, and where to go on unless that was the end. `ENOSPC`: not even those that share one place fit.
pub(super) fn map_read_batch<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    from: Option<Position>,
    keys: &mut [Words<K>],
    values: &mut [Words<V>],
) -> Result<(usize, Option<Position>), Errno> {
    let room = keys.len().min(values.len());
    let (mut start, mut next) = ([from.unwrap_or_default().0], [0]);
    let mut batch = Batch {
        from: if from.is_some() { address_mut(&mut start) } else { 0 },
        to: address_mut(&mut next),
        keys: address_mut(keys),
        values: address_mut(values),
        count: u32::try_from(room).unwrap_or(u32::MAX),
        map: number(map),
        element_flags: 0,
        flags: 0,
    };
    let answer = call(Command::MapLookupBatch, &mut batch);
    let read = usize::try_from(batch.count).unwrap_or(0).min(room);
    match answer {
        Ok(_) => Ok((read, next.first().map(|next| Position(*next)))),
        // The end of the table; the batch is filled up to it.
        Err(Errno::NOENT) => Ok((read, None)),
        Err(errno) => Err(errno),
    }
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
    /// Descriptions of the program's own types and lines: none.
    unused: [u32; 9],
    attach_to: u32,
}

// SAFETY: as the structure of BPF_PROG_LOAD, zero where older kernels know nothing; made below alone, from slices that outlive the call.
unsafe impl Attribute for ProgramLoad {}

/// Loads a program: numbers of its kind, of how it is attached and of the kernel's type that it is attached to; `log` takes what the verifier says, when there is room for it.
pub(super) fn program_load(
    [kind, attach_type, attach_to]: [u32; 3],
    code: &[[u8; 8]],
    license: &std::ffi::CStr,
    name: [u8; 16],
    log: &mut [u8],
) -> Result<OwnedFd, Errno> {
    let mut attribute = ProgramLoad {
        kind,
        instructions: u32::try_from(code.len()).map_err(|_| Errno::TOOBIG)?,
        code: address(code),
        license: address(license.to_bytes_with_nul()),
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).map_err(|_| Errno::TOOBIG)?,
        log: if log.is_empty() { 0 } else { address_mut(log) },
        kernel_version: 0,
        flags: 0,
        name,
        device: 0,
        attach_type,
        unused: [0; 9],
        attach_to,
    };
    call_for_descriptor(Command::ProgramLoad, &mut attribute)
}

#[repr(C)]
struct ProgramRun {
    program: i32,
    answer: u32,
    data_sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_size: u32,
    context_size_out: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
}

// SAFETY: as the structure of BPF_PROG_TEST_RUN; made below alone, from a slice that outlives the call.
unsafe impl Attribute for ProgramRun {}

/// Runs a program on a CPU, and gives what it returns.
pub(super) fn program_run(program: BorrowedFd<'_>, cpu: u32, context: &mut [u64]) -> Result<u32, Errno> {
    /// `BPF_F_TEST_RUN_ON_CPU`
    const ON_CPU: u32 = 1;
    let mut run = ProgramRun {
        program: number(program),
        answer: 0,
        data_sizes: [0; 2],
        data: [0; 2],
        repeat: 0,
        duration: 0,
        context_size: u32::try_from(size_of_val(context)).map_err(|_| Errno::TOOBIG)?,
        context_size_out: 0,
        context: address_mut(context),
        context_out: 0,
        flags: ON_CPU,
        cpu,
    };
    call(Command::ProgramRun, &mut run)?;
    Ok(run.answer)
}

#[repr(C)]
struct LinkCreate {
    program: i32,
    target: i32,
    attach_type: u32,
    flags: u32,
}

// SAFETY: four words, no address.
unsafe impl Attribute for LinkCreate {}

/// Attaches a program for as long as the link's descriptor is open.
pub(super) fn link_create(
    program: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    attach_type: u32,
) -> Result<OwnedFd, Errno> {
    let mut attribute =
        LinkCreate { program: number(program), target: number(target), attach_type, flags: 0 };
    call_for_descriptor(Command::LinkCreate, &mut attribute)
}

#[repr(C)]
struct TracepointOpen {
    name: u64,
    program: i32,
    unused: u32,
}

// SAFETY: as the structure of BPF_RAW_TRACEPOINT_OPEN, without an address.
unsafe impl Attribute for TracepointOpen {}

/// Has a program run at the tracepoint that it was loaded for, as long as the descriptor is open.
pub(super) fn tracepoint_open(program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut attribute = TracepointOpen { name: 0, program: number(program), unused: 0 };
    call_for_descriptor(Command::TracepointOpen, &mut attribute)
}

#[repr(C)]
struct ProgramQuery {
    target: i32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    unused: u32,
    /// Addresses of lists that are not requested (`prog_attach_flags` with effective programs is EINVAL), and the
    /// revision, which Linux 6.17 and later may write whether there is room for it or not.
    newer: [u64; 4],
}

// SAFETY: as BPF_PROG_QUERY's structure, zero where older kernels know nothing; made below alone, from a slice that
// outlives the call.
unsafe impl Attribute for ProgramQuery {}

/// Which programs are asked for (include/uapi/linux/bpf.h, `BPF_F_QUERY_EFFECTIVE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Which {
    /// Those attached to the target itself.
    Attached = 0,
    /// Those that run for it, wherever they are attached.
    Effective = 1,
}

/// The programs of a target, in their order, and with which flags: as many ids as there is room for, and how many there
/// are. Changes nothing.
pub(super) fn program_query(
    target: BorrowedFd<'_>,
    attach_type: u32,
    which: Which,
    ids: &mut [u32],
) -> Result<(u32, u32), Errno> {
    let mut query = ProgramQuery {
        target: number(target),
        attach_type,
        query_flags: which as u32,
        attach_flags: 0,
        ids: address_mut(ids),
        count: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        unused: 0,
        newer: [0; 4],
    };
    match call(Command::ProgramQuery, &mut query) {
        // There are more than there was room for: `count` says how many.
        Ok(_) | Err(Errno::NOSPC) => Ok((query.attach_flags, query.count)),
        Err(errno) => Err(errno),
    }
}

#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

// SAFETY: three words, no address.
unsafe impl Attribute for ById {}

/// A program by its number. CAP_SYS_ADMIN; `ENOENT` when it is gone.
pub(super) fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    call_for_descriptor(Command::ProgramById, &mut ById { id, next: 0, flags: 0 })
}

/// The beginning of `struct bpf_prog_info`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ProgramInfo {
    pub(super) kind: u32,
    id: u32,
    pub(super) tag: [u8; 8],
    jited_length: u32,
    /// Bytes that exist, whatever fits in the buffer.
    pub(super) length: u32,
    jited: u64,
    /// Zero after the call when the kernel does not show them.
    pub(super) instructions: u64,
}

#[repr(C)]
struct ObjectInfo {
    object: i32,
    length: u32,
    info: u64,
}

// SAFETY: as the structure of BPF_OBJ_GET_INFO_BY_FD; made below alone, from values that outlive the call.
unsafe impl Attribute for ObjectInfo {}

/// What a program is, with as many of its instructions as there is room for.
pub(super) fn program_info(
    program: BorrowedFd<'_>,
    instructions: &mut [[u8; 8]],
) -> Result<ProgramInfo, Errno> {
    let length = u32::try_from(size_of_val(instructions)).map_err(|_| Errno::TOOBIG)?;
    let room = if instructions.is_empty() { 0 } else { address_mut(instructions) };
    let mut info = [ProgramInfo { length, instructions: room, ..ProgramInfo::default() }];
    let length = u32::try_from(size_of::<ProgramInfo>()).map_err(|_| Errno::TOOBIG)?;
    let object = number(program);
    call(Command::ObjectInfo, &mut ObjectInfo { object, length, info: address_mut(&mut info) })?;
    let [info] = info;
    Ok(info)
}

/// For tests: attaches as others do, without a link. The flags are those of BPF_PROG_ATTACH.
#[cfg(any(test, feature = "testing"))]
pub(super) fn program_attach(
    program: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    attach_type: u32,
    flags: u32,
) -> Result<(), Errno> {
    #[repr(C)]
    struct ProgramAttach {
        target: i32,
        program: i32,
        attach_type: u32,
        flags: u32,
        replaced: u32,
    }
    // SAFETY: five words, no address.
    unsafe impl Attribute for ProgramAttach {}
    let (program, target) = (number(program), number(target));
    call(Command::ProgramAttach, &mut ProgramAttach { target, program, attach_type, flags, replaced: 0 })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Offsets as a C compiler gives them for include/uapi/linux/bpf.h.
    #[test]
    fn structures_are_laid_out_as_the_kernels() {
        assert_eq!((offset_of!(MapCreate, name), size_of::<MapCreate>()), (28, 44));
        assert_eq!((offset_of!(Element, key), offset_of!(Element, flags), size_of::<Element>()), (8, 24, 32));
        assert_eq!((offset_of!(Batch, count), offset_of!(Batch, map), size_of::<Batch>()), (32, 36, 56));
        assert_eq!((offset_of!(ProgramLoad, log), offset_of!(ProgramLoad, name)), (32, 48));
        assert_eq!((offset_of!(ProgramLoad, attach_to), size_of::<ProgramLoad>()), (108, 112));
        assert_eq!((offset_of!(ProgramRun, data), offset_of!(ProgramRun, context_size)), (16, 40));
        assert_eq!((offset_of!(ProgramRun, context), offset_of!(ProgramRun, cpu)), (48, 68));
        assert_eq!(size_of::<LinkCreate>(), 16);
        assert_eq!((offset_of!(TracepointOpen, program), size_of::<TracepointOpen>()), (8, 16));
        assert_eq!((offset_of!(ProgramQuery, ids), offset_of!(ProgramQuery, count)), (16, 24));
        assert_eq!((offset_of!(ProgramQuery, newer), size_of::<ProgramQuery>()), (32, 64));
        assert_eq!((offset_of!(ProgramInfo, tag), offset_of!(ProgramInfo, length)), (8, 20));
        assert_eq!((offset_of!(ProgramInfo, instructions), size_of::<ProgramInfo>()), (32, 40));
        assert_eq!((size_of::<ById>(), offset_of!(ObjectInfo, info), size_of::<ObjectInfo>()), (12, 8, 16));
    }
}
