//! As whom this process runs.

use rustix::thread::CapabilitySet;

/// The user and the effective capabilities of this process, in words; asks the name service.
pub fn who() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let user = slurm_jobs::name_service(uid).map_or_else(String::new, |name| format!("{name} "));
    let held = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // EINVAL for one that this kernel does not know.
    let known = CapabilitySet::all()
        .iter()
        .filter(|capability| rustix::thread::capability_is_in_bounding_set(*capability).is_ok());
    format!("{user}(uid {uid}) {}", in_words(held, known.collect()))
}

fn in_words(held: CapabilitySet, known: CapabilitySet) -> String {
    if held.is_empty() {
        return "without capabilities".to_owned();
    }
    let lacks = known.difference(held);
    if lacks.is_empty() {
        return "with all capabilities".to_owned();
    }
    // A container or a machine may keep a few from root.
    if lacks.iter().count() < held.iter().count() / 2 {
        return format!("with all capabilities but {}", names(lacks));
    }
    format!("with {}", names(held))
}

/// `CAP_PERFMON, CAP_BPF`
pub fn names(capabilities: CapabilitySet) -> String {
    let names: Vec<_> = capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_names_all_some_or_no_capabilities() {
        let known = CapabilitySet::PERFMON | CapabilitySet::BPF | CapabilitySet::SYS_PTRACE;
        assert_eq!(in_words(CapabilitySet::empty(), known), "without capabilities");
        assert_eq!(in_words(known, known), "with all capabilities");
        let some = CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE;
        assert_eq!(in_words(some, known), "with CAP_SYS_PTRACE, CAP_PERFMON");
        let most = CapabilitySet::all().difference(CapabilitySet::SYS_RESOURCE);
        assert_eq!(in_words(most, CapabilitySet::all()), "with all capabilities but CAP_SYS_RESOURCE");
        let uid = rustix::process::geteuid().as_raw();
        assert!(who().contains(&format!("(uid {uid}) with")), "{}", who());
    }
}
