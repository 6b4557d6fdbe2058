//! What of a plan this kernel really counts: each group is opened once, on a CPU that has it, and closed again. A virtual
//! machine, a firmware or an old kernel may have less than its CPU's name promises.

use super::open::{On, Open, OpenError};
use super::{Absent, Group, Plan};
use crate::parse::CpuList;

/// Leaves out of a plan what cannot be opened, and says of it why. An error when the kernel lets this process count nothing of
/// others.
pub fn probe(plan: &Plan, online: &CpuList, open: &dyn Open) -> Result<Plan, OpenError> {
    let mut probed = Plan { groups: Vec::new(), ..plan.clone() };
    for group in &plan.groups {
        let on_it = |cpu: &u32| group.cpus.as_ref().is_none_or(|cpus| cpus.contains(*cpu));
        let Some(cpu) = online.iter().find(on_it) else { continue };
        let try_one = |group: &Group| open.open(On::Everybody, cpu, group).map(drop);
        match try_one(group) {
            Ok(()) => probed.groups.push(group.clone()),
            Err(error @ (OpenError::Denied | OpenError::Descriptors)) => return Err(error),
            Err(_) => {
                // Event by event, in the order of their importance.
                let mut fits = Group { events: Vec::new(), ..group.clone() };
                for event in &group.events {
                    fits.events.push(event.clone());
                    if let Err(error) = try_one(&fits) {
                        fits.events.pop();
                        if matches!(error, OpenError::Denied | OpenError::Descriptors) {
                            return Err(error);
                        }
                        let absent = Absent { what: event.name.clone(), why: error.says().into() };
                        if !probed.absent.contains(&absent) {
                            probed.absent.push(absent);
                        }
                    }
                }
                if !fits.events.is_empty() {
                    probed.groups.push(fits);
                }
            }
        }
    }
    Ok(probed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::open::Counters;
    use crate::perf::{Attr, Event, Quantity, Sound};

    /// Counts events below `kinds` of its own, at most `most` at a time.
    struct Machine {
        kinds: u64,
        most: usize,
        denies: bool,
    }

    struct Nothing;

    impl Counters for Nothing {
        fn read(
            &mut self,
            _into: &mut crate::perf::open::Reading,
        ) -> Result<(), crate::kernel_file::ReadError> {
            Ok(())
        }
    }

    impl Open for Machine {
        fn open(&self, _on: On<'_>, cpu: u32, group: &Group) -> Result<Box<dyn Counters>, OpenError> {
            assert!(group.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)));
            if self.denies {
                return Err(OpenError::Denied);
            }
            if group.events.iter().any(|event| event.attr.config >= self.kinds) {
                return Err(OpenError::Unsupported);
            }
            if group.events.len() > self.most { Err(OpenError::Unfit) } else { Ok(Box::new(Nothing)) }
        }
    }

    fn plan(groups: &[&[u64]]) -> Plan {
        let event = |config: &u64| Event {
            name: format!("event{config}").into(),
            quantity: Quantity::Cycles,
            attr: Attr::new(4, *config),
        };
        let group = |configs: &&[u64]| Group {
            name: "group".into(),
            hardware: true,
            cpus: crate::parse::parse_cpu_list(b"2-3").ok(),
            events: configs.iter().map(event).collect(),
        };
        let sound = Sound { instructions_per_cycle: 8.0, flops_per_cycle: None };
        Plan {
            microarchitecture: None,
            flops: None,
            groups: groups.iter().map(group).collect(),
            absent: vec![],
            sound,
        }
    }

    fn configs(plan: &Plan) -> Vec<Vec<u64>> {
        plan.groups.iter().map(|group| group.events.iter().map(|event| event.attr.config).collect()).collect()
    }

    #[test]
    fn what_is_not_counted_is_left_out_and_named() {
        let online = crate::parse::parse_cpu_list(b"0-7").unwrap();
        let machine = Machine { kinds: 10, most: 3, denies: false };
        let planned = plan(&[&[1, 2, 3], &[4, 11, 5], &[1, 2, 3, 4], &[12]]);
        let probed = probe(&planned, &online, &machine).unwrap();
        assert_eq!(configs(&probed), [vec![1, 2, 3], vec![4, 5], vec![1, 2, 3]]);
        let absent: Vec<_> = probed.absent.iter().map(|absent| (&*absent.what, &*absent.why)).collect();
        assert_eq!(
            absent,
            [
                ("event11", "no PMU of this machine counts it (ENOENT)"),
                ("event4", "it does not fit this machine's counters (EINVAL)"),
                ("event12", "no PMU of this machine counts it (ENOENT)"),
            ]
        );
        let none_online = crate::parse::parse_cpu_list(b"0-1").unwrap();
        assert!(probe(&planned, &none_online, &machine).unwrap().groups.is_empty());
        let denying = Machine { denies: true, ..machine };
        assert_eq!(probe(&planned, &online, &denying).err(), Some(OpenError::Denied));
    }
}
