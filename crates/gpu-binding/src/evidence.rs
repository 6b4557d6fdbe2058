//! What the sources say of a job's units, and what follows from it. No I/O.

use std::sync::Arc;

use gpu_devices::{DeviceNode, Unit};

use super::{Bound, DeviceAccess, Source};

/// What a source says of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) source: Source,
    pub(super) claim: Claim,
}

/// Units are named by their `uuid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// These and no others.
    Exactly(Vec<Arc<str>>),
    /// Unit by unit; of the others it knows nothing.
    Each {
        /// It has these.
        has: Vec<Arc<str>>,
        /// It does not have these.
        lacks: Vec<Arc<str>>,
    },
}

impl Evidence {
    /// Whether it names the job's units, even if there are none.
    pub(super) fn names_units(&self) -> bool {
        match &self.claim {
            Claim::Exactly(_) => true,
            Claim::Each { has, .. } => !has.is_empty(),
        }
    }
}

/// The nodes that the kernel is asked about: those of every unit, each once. Of a divided GPU its parts' are asked.
pub(super) fn nodes_of(units: &[Arc<Unit>]) -> Vec<DeviceNode> {
    let whole = units.iter().filter(|unit| !unit.divided);
    let mut nodes: Vec<_> = whole.flat_map(|unit| unit.nodes.iter().copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The units all of whose nodes may be opened. `None` if no conclusion is possible: the answer does not match the
/// question, or nothing is allowed and some units have no nodes, which the device cgroup does not control.
fn allowed(units: &[Arc<Unit>], nodes: &[DeviceNode], answers: &[bool]) -> Option<Vec<Arc<str>>> {
    if nodes.len() != answers.len() {
        return None;
    }
    let may = |node: &DeviceNode| nodes.iter().zip(answers).any(|(asked, answer)| asked == node && *answer);
    let whole = || units.iter().filter(|unit| !unit.divided);
    let openable = whole().filter(|unit| !unit.nodes.is_empty() && unit.nodes.iter().all(may));
    let openable: Vec<_> = openable.map(|unit| unit.uuid.clone()).collect();
    let unresolved = whole().any(|unit| unit.nodes.is_empty());
    (!openable.is_empty() || !unresolved).then_some(openable)
}

/// The units of a job from the programs in effect at its directory. `above` has the answers for SLURM's own
/// directories above jobs, `None` where a query failed.
///
/// SLURM attaches a program of its own to each job that denies the GRES of other jobs (src/plugins/cgroup/v2/ebpf.c).
/// Where it constrains nothing, a job inherits the programs of a container runtime or systemd above SLURM, which say
/// nothing about the job: such programs have the same ids above.
pub(super) fn by_programs(
    units: &[Arc<Unit>],
    nodes: &[DeviceNode],
    device_access: &DeviceAccess,
    above: &[Option<&DeviceAccess>],
) -> Option<Vec<Arc<str>>> {
    let DeviceAccess::Allowed { nodes: answers, programs } = device_access else { return None };
    let inherited = above.iter().any(|above| match above {
        None => true,
        Some(DeviceAccess::Allowed { programs: theirs, .. }) => programs.iter().all(|id| theirs.contains(id)),
        Some(DeviceAccess::NoProgram | DeviceAccess::NotFollowed) => false,
    });
    if above.is_empty() || inherited || programs.is_empty() {
        return None;
    }
    allowed(units, nodes, answers)
}

/// The same from `devices.list`. There are no ids to compare: a list equal to the one above may be SLURM's or not.
pub(super) fn by_list(
    units: &[Arc<Unit>],
    nodes: &[DeviceNode],
    device_access: &DeviceAccess,
    above: &[Option<&DeviceAccess>],
) -> Option<Vec<Arc<str>>> {
    let DeviceAccess::Allowed { nodes: answers, .. } = device_access else { return None };
    let inherited = above.iter().any(|above| match above {
        None | Some(DeviceAccess::NotFollowed) => true,
        Some(DeviceAccess::Allowed { nodes: theirs, .. }) => theirs == answers,
        Some(DeviceAccess::NoProgram) => false,
    });
    if above.is_empty() || inherited {
        return None;
    }
    allowed(units, nodes, answers)
}

/// The binding of a job now: what was known `before` holds until a stronger source or the same one contradicts it.
pub(super) fn decide(before: Option<&Bound>, statements: &[Evidence]) -> Option<Bound> {
    let mut statements: Vec<_> = statements.iter().collect();
    statements.sort_by_key(|statements| statements.source);
    let mut before = before;
    for Evidence { source, claim } in statements {
        if before.is_some_and(|before| before.source < *source) {
            break;
        }
        let mut units = match claim {
            Claim::Exactly(units) => units.clone(),
            Claim::Each { has, lacks } => {
                let same = before.filter(|before| before.source == *source);
                let kept =
                    same.into_iter().flat_map(|before| &before.units).filter(|had| !lacks.contains(had));
                let units: Vec<_> = has.iter().chain(kept).cloned().collect();
                if units.is_empty() {
                    // All that it said before is taken back.
                    before = before.filter(|before| before.source != *source);
                    continue;
                }
                units
            }
        };
        units.sort_unstable();
        units.dedup();
        return Some(Bound { units, source: *source });
    }
    before.cloned()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gpu, mig, node};
    use super::*;

    fn names(units: &[&str]) -> Vec<Arc<str>> {
        units.iter().map(|unit| Arc::from(*unit)).collect()
    }

    /// What the kernel answers where these nodes are denied.
    fn denies(nodes: &[DeviceNode], denied: &[DeviceNode], programs: &[u32]) -> DeviceAccess {
        DeviceAccess::Allowed {
            nodes: nodes.iter().map(|node| !denied.contains(node)).collect(),
            programs: programs.to_vec(),
        }
    }

    #[test]
    fn a_job_has_the_units_that_it_may_open() {
        let units = [gpu(0), gpu(1), gpu(2), gpu(3)].map(Arc::new);
        let nodes = nodes_of(&units);
        assert_eq!(nodes, [0, 1, 2, 3].map(|minor| node(195, minor)));
        let none = DeviceAccess::NoProgram;
        for (denied, expected) in [
            (&[][..], &["GPU-0", "GPU-1", "GPU-2", "GPU-3"][..]),
            (&[1, 3], &["GPU-0", "GPU-2"]),
            (&[0, 1, 2, 3], &[]),
        ] {
            let denied: Vec<_> = denied.iter().map(|minor| node(195, *minor)).collect();
            let device_access = denies(&nodes, &denied, &[7]);
            let found = by_programs(&units, &nodes, &device_access, &[Some(&none)]);
            assert_eq!(found, Some(names(expected)), "{denied:?}");
        }
    }

    #[test]
    fn what_says_nothing_is_neither_all_nor_none() {
        let units = [gpu(0), gpu(1)].map(Arc::new);
        let nodes = nodes_of(&units);
        let one = |programs: &[u32]| denies(&nodes, &[node(195, 1)], programs);
        let none = DeviceAccess::NoProgram;
        let unfollowed = DeviceAccess::NotFollowed;
        let short = DeviceAccess::Allowed { nodes: vec![true], programs: vec![7] };
        for (why, device_access, above, expected) in [
            ("no program", DeviceAccess::NoProgram, vec![Some(&none)], None),
            ("calls", DeviceAccess::NotFollowed, vec![Some(&none)], None),
            ("no ids", one(&[]), vec![Some(&none)], None),
            ("not an answer to the question", short, vec![Some(&none)], None),
            ("inherited", one(&[7]), vec![Some(&one(&[7]))], None),
            ("inherited, one of two above", one(&[7]), vec![Some(&one(&[6, 7]))], None),
            ("inherited from one of two scopes", one(&[7]), vec![Some(&none), Some(&one(&[7]))], None),
            ("nobody knows what is above", one(&[7]), vec![], None),
            ("what is above could not be asked", one(&[7]), vec![None], None),
            ("its own instead of what is above", one(&[8]), vec![Some(&one(&[7]))], Some(["GPU-0"])),
            ("its own beside what is above", one(&[7, 8]), vec![Some(&one(&[7]))], Some(["GPU-0"])),
            ("its own, what is above calls", one(&[8]), vec![Some(&unfollowed)], Some(["GPU-0"])),
        ] {
            let found = by_programs(&units, &nodes, &device_access, &above);
            assert_eq!(found, expected.map(|units| names(&units)), "{why}");
        }
    }

    #[test]
    fn a_part_is_decided_by_its_own_nodes_and_a_divided_gpu_never() {
        let mut divided = gpu(0);
        divided.divided = true;
        let units = [divided, mig(0, 1, 0), mig(0, 2, 0), mig(0, 2, 1), gpu(1)].map(Arc::new);
        let nodes = nodes_of(&units);
        let none = DeviceAccess::NoProgram;
        for (denied, expected) in [
            // The second compute instance of one GPU instance, and the GPU instance beside it.
            (&[(236, 202), (236, 100), (236, 101), (195, 1)][..], &["MIG-0-2-0"][..]),
            (&[(236, 100), (195, 1)], &["MIG-0-2-0", "MIG-0-2-1"]),
            // A whole GPU on the same node: nothing of the divided one.
            (&[(195, 0)], &["GPU-1"]),
            (&[(236, 100), (236, 200)], &["GPU-1"]),
            (&[(236, 100), (236, 200), (195, 1)], &[]),
        ] {
            let denied: Vec<_> = denied.iter().map(|(major, minor)| node(*major, *minor)).collect();
            let found = by_programs(&units, &nodes, &denies(&nodes, &denied, &[7]), &[Some(&none)]);
            assert_eq!(found, Some(names(expected)), "{denied:?}");
        }
    }

    #[test]
    fn units_without_nodes_remain_undecided() {
        let mut blind = gpu(1);
        blind.nodes.clear();
        let units = [gpu(0), blind].map(Arc::new);
        let nodes = nodes_of(&units);
        let none = DeviceAccess::NoProgram;
        let ask = |denied: &[DeviceNode]| {
            by_programs(&units, &nodes, &denies(&nodes, denied, &[7]), &[Some(&none)])
        };
        assert_eq!(ask(&[]), Some(names(&["GPU-0"])));
        assert_eq!(ask(&[node(195, 0)]), None, "it may have the other");
    }

    #[test]
    fn a_list_that_is_the_same_above_says_nothing() {
        let units = [gpu(0), gpu(1)].map(Arc::new);
        let nodes = nodes_of(&units);
        let (all, one) = (denies(&nodes, &[], &[]), denies(&nodes, &[node(195, 1)], &[]));
        let (everything, unreadable) = (DeviceAccess::NoProgram, DeviceAccess::NotFollowed);
        for (why, device_access, above, expected) in [
            ("SLURM's", &one, vec![Some(&all)], Some(["GPU-0"])),
            ("SLURM's, nothing above", &one, vec![Some(&everything)], Some(["GPU-0"])),
            ("a container's", &one, vec![Some(&one)], None),
            ("all of a container's", &all, vec![Some(&all)], None),
            ("`a *:* rwm`", &everything, vec![Some(&everything)], None),
            ("unknown above", &one, vec![Some(&unreadable)], None),
            ("not asked above", &one, vec![None], None),
            ("nothing above", &one, vec![], None),
        ] {
            assert_eq!(
                by_list(&units, &nodes, device_access, &above),
                expected.map(|units| names(&units)),
                "{why}"
            );
        }
    }

    #[test]
    fn the_strongest_counts_and_what_is_known_does_not_flap() {
        use Source::{DeviceProgram, Environment, Gpustat, Processes, Prolog};
        let exactly = |source, units: &[&str]| Evidence { source, claim: Claim::Exactly(names(units)) };
        let each = |source, has: &[&str], lacks: &[&str]| Evidence {
            source,
            claim: Claim::Each { has: names(has), lacks: names(lacks) },
        };
        let bound = |source, units: &[&str]| Some(Bound { source, units: names(units) });
        for (why, before, statements, expected) in [
            ("nothing", None, vec![], None),
            (
                "the strongest",
                None,
                vec![exactly(Prolog, &["b"]), exactly(DeviceProgram, &["a"]), each(Processes, &["c"], &[])],
                bound(DeviceProgram, &["a"]),
            ),
            ("none is an answer", None, vec![exactly(DeviceProgram, &[])], bound(DeviceProgram, &[])),
            ("silence changes nothing", bound(DeviceProgram, &["a"]), vec![], bound(DeviceProgram, &["a"])),
            (
                "a weaker one changes nothing",
                bound(DeviceProgram, &[]),
                vec![exactly(Prolog, &["b"]), each(Processes, &["c"], &[])],
                bound(DeviceProgram, &[]),
            ),
            (
                "a stronger one does",
                bound(Processes, &["c"]),
                vec![exactly(Prolog, &["b"]), each(Processes, &["c"], &[])],
                bound(Prolog, &["b"]),
            ),
            (
                "so does the same",
                bound(DeviceProgram, &["a", "b"]),
                vec![exactly(DeviceProgram, &["b"])],
                bound(DeviceProgram, &["b"]),
            ),
            (
                "a process that left the GPU does not give it back",
                bound(Processes, &["a"]),
                vec![each(Processes, &["b"], &[])],
                bound(Processes, &["a", "b"]),
            ),
            ("nor do all", bound(Processes, &["a"]), vec![], bound(Processes, &["a"])),
            (
                "a file that is gone takes nothing back",
                bound(Gpustat, &["a", "b"]),
                vec![each(Gpustat, &["b"], &[])],
                bound(Gpustat, &["a", "b"]),
            ),
            (
                "one that names another job does",
                bound(Gpustat, &["a", "b"]),
                vec![each(Gpustat, &["b"], &["a"])],
                bound(Gpustat, &["b"]),
            ),
            (
                "a file that always named another says nothing",
                None,
                vec![each(Gpustat, &[], &["a"]), each(Processes, &["a"], &[])],
                bound(Processes, &["a"]),
            ),
            (
                "all taken back: the next source decides",
                bound(Gpustat, &["a"]),
                vec![each(Gpustat, &[], &["a"]), each(Environment, &["c"], &[])],
                bound(Environment, &["c"]),
            ),
            ("all taken back", bound(Gpustat, &["a"]), vec![each(Gpustat, &[], &["a"])], None),
            ("each once", None, vec![exactly(Prolog, &["b", "a", "b"])], bound(Prolog, &["a", "b"])),
        ] {
            assert_eq!(decide(before.as_ref(), &statements), expected, "{why}");
        }
    }
}
