//! The kernel's description of its own types (BTF, Documentation/bpf/btf.rst): where a member is in a structure, and what a name of
//! an enumeration stands for. Pure.
//!
//! A running kernel has it at `/sys/kernel/btf/vmlinux` (Linux 5.4, `CONFIG_DEBUG_INFO_BTF`), in its own byte order.

#[cfg(any(test, feature = "testing"))]
pub mod writer;

/// include/uapi/linux/btf.h, `BTF_MAGIC` and `BTF_VERSION`.
const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;

/// Bytes of `struct btf_type`, and of an element of a structure, an enumeration and so on.
const HEAD: usize = 12;
const MEMBER: usize = 12;
const VALUE: usize = 8;

/// Structures that are searched for a member: with those in it without a name, `task_struct` is some ten.
const MOST_NESTED: usize = 128;

/// Kinds of types, as far as something is asked of them (include/uapi/linux/btf.h, `BTF_KIND_*`).
mod kind {
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
}

/// Those that have members.
const COMPOSED: &[u32] = &[kind::STRUCT, kind::UNION];

/// Bytes that are no BTF, or one of a newer format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel's description of its types (BTF) is not understood: {0}")]
pub struct BtfError(&'static str);

/// All types of a kernel.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins. The first one has number 1.
    begins: Vec<u32>,
}

/// A type, without the names of its parts.
#[derive(Debug, Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Whether offsets of members have the size of a bit field in them.
    bit_fields: bool,
    parts: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

/// So many bytes from a place on.
fn part(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

fn number(of: u32) -> Option<usize> {
    usize::try_from(of).ok()
}

/// How many bytes follow the head of a type; `None` for kinds that are not known.
fn length(kind: u32, parts: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, names for types, modifiers, functions, floats, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // An array.
        3 => 12,
        kind::STRUCT | kind::UNION => parts * MEMBER,
        // Enumerations; parameters of functions.
        kind::ENUM | 13 => parts * VALUE,
        // Sections; enumerations of 64 bits.
        15 | 19 => parts * 12,
        _ => return None,
    })
}

impl<'a> Btf<'a> {
    /// Finds where each type is.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let head = (bytes.get(..2), bytes.get(2));
        let (Some(&[first, second]), Some(&version)) = head else { return Err(BtfError("no header")) };
        if u16::from_ne_bytes([first, second]) != MAGIC || version != VERSION {
            return Err(BtfError("another format"));
        }
        let section = |at: usize| {
            let header = number(word(bytes, 4)?)?;
            let (begin, length) = (number(word(bytes, at)?)?, number(word(bytes, at + 4)?)?);
            part(bytes, header.checked_add(begin)?, length)
        };
        let (Some(types), Some(strings)) = (section(8), section(16)) else {
            return Err(BtfError("it is cut off"));
        };
        let mut btf = Self { types, strings, begins: Vec::new() };
        let mut at = 0;
        while at < types.len() {
            let (_, next) = btf.at(at).ok_or(BtfError("a type of an unknown kind"))?;
            btf.begins.push(u32::try_from(at).map_err(|_| BtfError("it is too large"))?);
            at = next;
        }
        Ok(btf)
    }

    /// The type that begins here, and where the next one does.
    fn at(&self, at: usize) -> Option<(Type<'a>, usize)> {
        let (name, info) = (word(self.types, at)?, word(self.types, at + 4)?);
        let kind = info >> 24 & 0x1f;
        let length = length(kind, number(info & 0xffff)?)?;
        let parts = part(self.types, at + HEAD, length)?;
        Some((Type { name, kind, bit_fields: info >> 31 == 1, parts }, at + HEAD + length))
    }

    fn numbered(&self, id: u32) -> Option<Type<'a>> {
        let begin = self.begins.get(number(id)?.checked_sub(1)?)?;
        self.at(number(*begin)?).map(|(found, _)| found)
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let there = number(name).and_then(|at| self.strings.get(at..));
        there
            .and_then(|text| text.strip_prefix(wanted.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Types of these kinds and this name: a kernel may have several.
    fn named(&self, kinds: &'static [u32], name: &str) -> impl Iterator<Item = Type<'a>> {
        let all = self.begins.iter().filter_map(|begin| self.at(number(*begin)?));
        all.map(|(found, _)| found)
            .filter(move |found| kinds.contains(&found.kind) && self.is_named(found.name, name))
    }

    /// Where a member is in a structure or union, bytes; also one that is in a part without a name. `None` for bit fields.
    pub fn offset(&self, of: &str, member: &str) -> Option<u32> {
        self.named(COMPOSED, of).find_map(|found| self.member(found, member))
    }

    fn member(&self, of: Type<'a>, wanted: &str) -> Option<u32> {
        let mut inside = vec![(of, 0_u32)];
        let mut next = 0;
        while let Some((composed, begin)) = inside.get(next).copied() {
            next += 1;
            for member in composed.parts.chunks_exact(MEMBER) {
                let (name, id, offset) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
                let (bits, size) =
                    if composed.bit_fields { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
                let at = begin.saturating_add(bits / 8);
                if self.is_named(name, wanted) {
                    return (size == 0 && bits % 8 == 0).then_some(at);
                }
                if self.is_named(name, "") && inside.len() < MOST_NESTED {
                    inside.extend(
                        self.numbered(id).filter(|part| COMPOSED.contains(&part.kind)).map(|part| (part, at)),
                    );
                }
            }
        }
        None
    }

    /// The number of a tracepoint, by which a program is loaded for it: of the type that names its function (Linux 5.5, include/trace/bpf_probe.h).
    pub fn tracepoint(&self, name: &str) -> Option<u32> {
        let wanted = format!("btf_trace_{name}");
        let is_it =
            |(found, _): (Type<'_>, usize)| found.kind == kind::TYPEDEF && self.is_named(found.name, &wanted);
        let at = |begin: &u32| number(*begin).and_then(|begin| self.at(begin));
        let position = self.begins.iter().position(|begin| at(begin).is_some_and(is_it))?;
        u32::try_from(position + 1).ok()
    }

    /// What a name of an enumeration stands for.
    pub fn value(&self, of: &str, name: &str) -> Option<u32> {
        let value = |entry: &[u8]| self.is_named(word(entry, 0)?, name).then(|| word(entry, 4))?;
        self.named(&[kind::ENUM], of).find_map(|found| found.parts.chunks_exact(VALUE).find_map(value))
    }
}

#[cfg(test)]
mod tests {
    use super::writer::Writer;
    use super::*;

    /// One type of each kind, and what is asked of.
    fn kernel() -> Vec<u8> {
        let mut types = Writer::default();
        types.add(1, false, "u64", 0, &[64]);
        types.structure("", &[("ino", 1, 0), ("generation", 1, 32)]);
        types.composed(kind::UNION, false, "", &[("", 2, 0), ("id", 1, 0)]);
        let members = [("flags", 1, 3 << 24 | 64), ("odd", 1, 67), ("", 3, 128), ("kn", 1, 192)];
        types.composed(kind::STRUCT, true, "node", &members);
        for (kind, parts, words) in [
            (3, 0, 3),
            (12, 0, 0),
            (13, 2, 4),
            (14, 0, 1),
            (15, 1, 3),
            (16, 0, 0),
            (17, 0, 1),
            (18, 0, 0),
            (19, 1, 3),
        ] {
            types.add(kind, false, "node", parts, &vec![0; words]);
        }
        types.enumeration("cgroup_subsys_id", &[("cpuset_cgrp_id", 0), ("freezer_cgrp_id", 6)]);
        types.tracepoint("sched_switch");
        // The same name with other members.
        types.structure("node", &[("other", 1, 320)]);
        types.bytes()
    }

    #[test]
    fn members_and_values_are_found_by_their_names() {
        let bytes = kernel();
        let btf = Btf::parse(&bytes).unwrap();
        let offset = |member| btf.offset("node", member);
        assert_eq!(
            [offset("kn"), offset("id"), offset("ino"), offset("generation"), offset("other")],
            [24, 16, 16, 20, 40].map(Some)
        );
        assert_eq!([offset("flags"), offset("odd"), offset("k"), btf.offset("nodes", "kn")], [None; 4]);
        assert_eq!(
            [btf.value("cgroup_subsys_id", "freezer_cgrp_id"), btf.value("cgroup_subsys_id", "freezer")],
            [Some(6), None]
        );
        assert_eq!([btf.tracepoint("sched_switch"), btf.tracepoint("sched")], [Some(15), None]);
    }

    /// Cut off anywhere, or with a wrong byte, it is refused or has what it has.
    #[test]
    fn what_is_damaged_is_refused_or_answered() {
        let whole = kernel();
        for length in 0..whole.len() {
            assert!(Btf::parse(&whole[..length]).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            if let Ok(btf) = Btf::parse(&damaged) {
                let _ = (btf.offset("node", "none"), btf.value("cgroup_subsys_id", "none"));
            }
        }
        let mut foreign = whole;
        foreign[..2].reverse();
        assert_eq!(Btf::parse(&foreign).err(), Some(BtfError("another format")));
    }

    /// A structure that is a part of itself, without a name.
    #[test]
    fn a_search_ends() {
        let bytes = Writer::default().structure("node", &[("", 1, 8), ("", 1, u32::MAX)]).bytes();
        assert_eq!(Btf::parse(&bytes).unwrap().offset("node", "kn"), None);
    }

    /// This kernel's: what is at the beginning of a structure, and what is not.
    #[test]
    fn this_kernels_types_are_understood() {
        let Some(bytes) = jobledger_testkit::kernel_types() else { return };
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("list_head", "next"), Some(0));
        assert_eq!(btf.offset("list_head", "prev"), Some(8));
        // In a union in a structure, and a structure in that.
        assert_eq!(btf.offset("cgroup_subsys_state", "cgroup"), Some(0));
        assert!(btf.offset("task_struct", "cgroups") > btf.offset("task_struct", "pid"));
        assert_eq!(btf.value("pid_type", "PIDTYPE_PID"), Some(0));
        assert_eq!(btf.value("pid_type", "PIDTYPE_TGID"), Some(1));
        assert!(btf.tracepoint("sched_switch").is_some());
    }
}
