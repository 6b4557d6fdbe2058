//! The hierarchy whose cgroups are counted, and how a program finds the cgroup of a task in it.

use bpf::{Btf, Width};

use crate::unavailable::Unavailable;

/// A hierarchy of cgroups, and where this kernel keeps the cgroup of a task in it: a state, whose `cgroup` has a `level` and in `kn->id`
/// the id, and whose `parent` is the state of the cgroup above. On v1 it is the controller's, `task->cgroups->subsys[controller]`; on v2
/// the cgroup's own, `task->cgroups->dfl_cgrp->self` (include/linux/cgroup-defs.h, include/linux/kernfs.h). Offsets of members, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hierarchy {
    pub(crate) unified: bool,
    /// Of a task, as `cgroups`.
    pub(crate) pid: i16,
    pub(crate) cgroups: i16,
    pub(crate) state: i16,
    pub(crate) parent: i16,
    pub(crate) cgroup: i16,
    pub(crate) level: i16,
    pub(crate) node: i16,
    pub(crate) id: i16,
    /// The number of the tracepoint `sched_switch`.
    pub(crate) switch: u32,
    /// Of the part of the id that is the directory's inode: all of it from Linux 5.5 on.
    pub(crate) inode: Width,
}

impl Hierarchy {
    /// That of v2, by what the kernel says of its types (`/sys/kernel/btf/vmlinux`).
    pub fn unified(types: &[u8]) -> Result<Self, Unavailable> {
        Self::find(&Btf::parse(types)?, None).ok_or(Unavailable::NoCgroup)
    }

    /// That of a controller of v1 (`freezer`).
    pub fn v1(types: &[u8], controller: &str) -> Result<Self, Unavailable> {
        Self::find(&Btf::parse(types)?, Some(controller)).ok_or(Unavailable::NoCgroup)
    }

    /// Whether it is that of v2.
    #[must_use]
    pub fn is_unified(&self) -> bool {
        self.unified
    }

    fn find(types: &Btf<'_>, controller: Option<&str>) -> Option<Self> {
        let offset = |of: &str, member: &str| i16::try_from(types.offset(of, member)?).ok();
        let state = match controller {
            Some(controller) => {
                let number = types.value("cgroup_subsys_id", &format!("{controller}_cgrp_id"))?;
                offset("css_set", "subsys")?.checked_add(i16::try_from(number).ok()?.checked_mul(8)?)?
            }
            // Its own state is where it begins itself.
            None => offset("css_set", "dfl_cgrp").filter(|_| offset("cgroup", "self") == Some(0))?,
        };
        // Before Linux 5.5 the id is a union: the inode of 32 bits, and how often that was used.
        let inode = if types.offset("kernfs_node_id", "ino").is_some() { Width::Word } else { Width::Double };
        Some(Self {
            unified: controller.is_none(),
            pid: offset("task_struct", "pid")?,
            cgroups: offset("task_struct", "cgroups")?,
            state,
            parent: offset("cgroup_subsys_state", "parent")?,
            cgroup: offset("cgroup_subsys_state", "cgroup")?,
            level: offset("cgroup", "level")?,
            node: offset("cgroup", "kn")?,
            id: offset("kernfs_node", "id")?,
            switch: types.tracepoint("sched_switch")?,
            inode,
        })
    }
}

#[cfg(test)]
mod tests {
    use bpf::btf::writer::Writer;

    use super::*;

    fn kernel() -> Writer {
        let mut types = Writer::default();
        types.structure("task_struct", &[("pid", 0, 0x4d0 * 8), ("cgroups", 0, 0x4d8 * 8)]);
        types.structure("css_set", &[("subsys", 0, 0), ("dfl_cgrp", 0, 0x80 * 8)]);
        types.structure("cgroup_subsys_state", &[("cgroup", 0, 0), ("parent", 0, 0xa8 * 8)]);
        types.structure("cgroup", &[("self", 3, 0), ("level", 0, 0xe8 * 8), ("kn", 0, 0x100 * 8)]);
        types.structure("kernfs_node", &[("id", 0, 0x60 * 8)]);
        types.enumeration("cgroup_subsys_id", &[("cpuset_cgrp_id", 0), ("freezer_cgrp_id", 6)]);
        types.tracepoint("sched_switch");
        types
    }

    #[test]
    fn the_way_to_a_tasks_cgroup_is_in_the_kernels_types() {
        let there = |types: &Writer| Hierarchy::v1(&types.bytes(), "freezer");
        let expected = Hierarchy {
            unified: false,
            pid: 0x4d0,
            cgroups: 0x4d8,
            state: 48,
            parent: 0xa8,
            cgroup: 0,
            level: 0xe8,
            node: 0x100,
            id: 0x60,
            switch: 7,
            inode: Width::Double,
        };
        assert_eq!(there(&kernel()), Ok(expected));
        let unified = Hierarchy { unified: true, state: 0x80, ..expected };
        assert_eq!(Hierarchy::unified(&kernel().bytes()), Ok(unified));
        let mut moved = Writer::default();
        moved.structure("cgroup", &[("level", 0, 0), ("self", 0, 64)]);
        assert_eq!(Hierarchy::unified(&moved.bytes()), Err(Unavailable::NoCgroup));
        // Linux 4.18: the inode is a part of the id.
        let mut old = kernel();
        old.structure("", &[("ino", 0, 0), ("generation", 0, 32)]).composed(
            5,
            false,
            "kernfs_node_id",
            &[("", 8, 0), ("id", 0, 0)],
        );
        assert_eq!(there(&old), Ok(Hierarchy { inode: Width::Word, ..expected }));
        assert_eq!(Hierarchy::v1(&kernel().bytes(), "net_cls"), Err(Unavailable::NoCgroup));
        assert!(matches!(Hierarchy::v1(b"", "freezer"), Err(Unavailable::Types(_))));
    }
}
