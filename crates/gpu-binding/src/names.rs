//! From the names that others have for GPUs to units.

use std::sync::Arc;

use gpu_devices::{Unit, Vendor};

/// Which GPU has an index in SLURM's list, as the admin says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GresName {
    /// By its id; a part of a GPU too.
    Id(Arc<str>),
    /// By the minor of its device, a whole GPU.
    Minor(u32),
}

/// The names of a node's units. No name leads to a divided GPU: no job has that as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    units: &'a [Arc<Unit>],
    order: Option<&'a [GresName]>,
    /// Whether SLURM, the vendor's tools and the device nodes count alike.
    plain: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(units: &'a [Arc<Unit>], order: Option<&'a [GresName]>) -> Self {
        Self { units, order, plain: count_alike(units) }
    }

    fn one(&self, wanted: impl Fn(&Unit) -> bool) -> Option<&'a Arc<Unit>> {
        let mut found = self.units.iter().filter(|unit| !unit.divided && wanted(unit));
        found.next().filter(|_| found.next().is_none())
    }

    /// By the id. ROCm puts `GPU-` before AMD's unique id; NVIDIA's drivers before 470 name a part `MIG-<id of the
    /// GPU>/<GPU instance>/<compute instance>`.
    pub(super) fn by_id(&self, id: &str) -> Option<&'a Arc<Unit>> {
        let of_amd = |unit: &Unit| {
            let unique = id.strip_prefix("GPU-").filter(|_| unit.vendor == Vendor::Amd);
            unique.is_some_and(|unique| unique.eq_ignore_ascii_case(&unit.uuid))
        };
        self.one(|unit| *unit.uuid == *id || of_amd(unit)).or_else(|| {
            let mut parts = id.strip_prefix("MIG-")?.splitn(3, '/');
            let (parent, gpu, compute) = (parts.next()?, parts.next()?, parts.next()?);
            let (gpu, compute) = (gpu.parse::<u32>().ok()?, compute.parse::<u32>().ok()?);
            self.one(|unit| {
                unit.part.as_ref().is_some_and(|part| {
                    *part.parent == *parent && (part.gpu_instance, part.compute_instance) == (gpu, compute)
                })
            })
        })
    }

    /// By the index in SLURM's list, where it is certain which GPU that is.
    pub(super) fn by_gres_index(&self, index: u32) -> Option<&'a Arc<Unit>> {
        let Some(order) = self.order else {
            return self.one(|unit| self.plain && unit.minor == Some(index));
        };
        match order.get(usize::try_from(index).ok()?)? {
            GresName::Id(id) => self.by_id(id),
            GresName::Minor(minor) => self.one(|unit| unit.part.is_none() && unit.minor == Some(*minor)),
        }
    }

    /// The number in the name of a unit's file. Prologs write SLURM's index into it, and their readers look for the
    /// vendor's, so a whole GPU has such a name only where both are the same. A part has its GPU's index and its own
    /// instance, `0.7`.
    pub(super) fn number_of(&self, unit: &Unit) -> Option<String> {
        let index = unit.index?;
        match &unit.part {
            None => {
                self.by_gres_index(index).filter(|found| found.uuid == unit.uuid).map(|_| index.to_string())
            }
            Some(part) => {
                let same = |other: &Unit| {
                    other.index == Some(index)
                        && other.part.as_ref().is_some_and(|of| of.gpu_instance == part.gpu_instance)
                };
                let name = || format!("{index}.{}", part.gpu_instance);
                (unit.vendor == Vendor::Nvidia && self.one(same).is_some()).then(name)
            }
        }
    }
}

/// Whether a number names the same GPU for whoever counts: whole GPUs of one model, minors from 0 on without a gap, and the
/// vendor's order is that of minors. SLURM sorts by file (gres_gpu.c), except that gres.conf may list types of GPUs in any
/// order, and that parts come in an order of their own.
fn count_alike(units: &[Arc<Unit>]) -> bool {
    let Some(first) = units.first() else { return false };
    let mut minors: Vec<u32> = units.iter().filter_map(|unit| unit.minor).collect();
    minors.sort_unstable();
    minors.len() == units.len()
        && (0..).zip(&minors).all(|(expected, minor)| expected == *minor)
        && units.iter().all(|unit| {
            unit.part.is_none()
                && !unit.divided
                && (unit.vendor, &unit.model) == (first.vendor, &first.model)
                && unit.index == unit.minor
        })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gpu, mig};
    use super::*;

    fn uuid(unit: Option<&Arc<Unit>>) -> Option<&str> {
        unit.map(|unit| &*unit.uuid)
    }

    /// Four GPUs, changed before they are named.
    fn four(change: impl Fn(u32, &mut Unit)) -> Vec<Arc<Unit>> {
        let changed = |minor| {
            let mut unit = gpu(minor);
            change(minor, &mut unit);
            Arc::new(unit)
        };
        (0..4).map(changed).collect()
    }

    #[test]
    fn an_index_is_a_gpu_only_where_everybody_counts_alike() {
        let plain = four(|_, _| ());
        let names = Names::new(&plain, None);
        assert_eq!(uuid(names.by_gres_index(2)), Some("GPU-2"));
        assert_eq!(names.by_gres_index(4), None);
        assert_eq!(names.number_of(&plain[3]).as_deref(), Some("3"));

        type Change = fn(u32, &mut Unit);
        let differently: [(&str, Change); 8] = [
            ("PCI order is not that of minors", |minor, unit| unit.index = Some(3 - minor)),
            ("no index", |minor, unit| unit.index = Some(minor).filter(|minor| *minor != 1)),
            ("a minor is missing", |minor, unit| {
                let minor = minor + u32::from(minor > 1);
                (unit.minor, unit.index) = (Some(minor), Some(minor));
            }),
            ("no minor", |_, unit| unit.minor = None),
            ("a minor twice", |_, unit| (unit.minor, unit.index) = (Some(0), Some(0))),
            ("two models", |minor, unit| unit.model = if minor == 3 { "V100".into() } else { "A100".into() }),
            ("two vendors", |minor, unit| {
                unit.vendor = if minor == 3 { Vendor::Amd } else { Vendor::Nvidia }
            }),
            ("one is divided", |minor, unit| unit.divided = minor == 3),
        ];
        for (why, change) in differently {
            let units = four(change);
            let names = Names::new(&units, None);
            for index in 0..4 {
                assert_eq!(names.by_gres_index(index), None, "{why}");
                assert_eq!(names.number_of(&units[index as usize]), None, "{why}");
            }
        }
        assert_eq!(Names::new(&[], None).by_gres_index(0), None);
    }

    #[test]
    fn a_given_order_takes_precedence() {
        let mut units = four(|minor, unit| unit.index = Some(3 - minor));
        units.push(Arc::new(mig(9, 1, 0)));
        let order = [GresName::Minor(3), GresName::Id("GPU-0".into()), GresName::Id("MIG-9-1-0".into())];
        let names = Names::new(&units, Some(&order));
        let found: Vec<_> = (0..4).map(|index| uuid(names.by_gres_index(index))).collect();
        assert_eq!(found, [Some("GPU-3"), Some("GPU-0"), Some("MIG-9-1-0"), None]);
        assert_eq!(names.number_of(&units[3]).as_deref(), Some("0"), "SLURM's index and the vendor's agree");
        assert_eq!(names.number_of(&units[0]), None, "they do not");
    }

    #[test]
    fn ids_are_certain_and_never_those_of_a_divided_gpu() {
        let mut divided = gpu(0);
        divided.divided = true;
        let mut amd = gpu(2);
        (amd.vendor, amd.uuid) = (Vendor::Amd, "15f2d0c1a0b1c2d3".into());
        let units: Vec<Arc<Unit>> =
            [divided, mig(0, 7, 0), mig(0, 8, 0), mig(0, 8, 1), gpu(1), amd].map(Arc::new).into();
        let names = Names::new(&units, None);
        for (id, expected) in [
            ("GPU-1", Some("GPU-1")),
            ("GPU-0", None),
            ("GPU-", None),
            ("GPU-15F2D0C1A0B1C2D3", Some("15f2d0c1a0b1c2d3")),
            ("15f2d0c1a0b1c2d3", Some("15f2d0c1a0b1c2d3")),
            ("1", None),
            ("MIG-0-7-0", Some("MIG-0-7-0")),
            ("MIG-GPU-0/7/0", Some("MIG-0-7-0")),
            ("MIG-GPU-0/8/1", Some("MIG-0-8-1")),
            ("MIG-GPU-0/9/0", None),
            ("MIG-GPU-0/7", None),
            ("MIG-GPU-1/7/0", None),
        ] {
            assert_eq!(uuid(names.by_id(id)), expected, "{id}");
        }
        let numbers: Vec<_> = units.iter().map(|unit| names.number_of(unit)).collect();
        assert_eq!(
            numbers,
            [None, Some("0.7".to_owned()), None, None, None, None],
            "8 is two compute instances"
        );
    }
}
