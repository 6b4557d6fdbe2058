//! What a kernel says of its types: whatever it is, it is refused, or a search in it ends.

pub fn fuzz(bytes: &[u8]) {
    let Ok(types) = bpf::Btf::parse(bytes) else { return };
    for member in ["kn", "ino", "none"] {
        let _ = types.offset("node", member);
    }
    let _ = types.tracepoint("sched_switch");
    let _ = types.value("cgroup_subsys_id", "freezer_cgrp_id");
}
