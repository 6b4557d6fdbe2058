//! What memory controllers and resctrl count while a loop runs.

use std::sync::Arc;
use std::time::Duration;

use cpu_topology::Topology;
use kernel_files::{NodeFiles, Roots};
use parking_lot::Mutex;
use perf_counters::resctrl::{
    Mounted, Tree, Unread, parse_domain, parse_features, parse_task_groups, parse_value,
};
use perf_counters::sharing::{CounterOwnership, CounterUser};
use perf_counters::uncore::{Controllers, Direction, Reading};
use perf_events::Kernel;

use crate::compare::{Ran, row};
use crate::idle::pause;
use crate::known::{Known, controllers, monitored};
use crate::results::{Missing, Row, Verdict};

/// For how long the traffic of the rest of the node is looked at.
const IDLE: Duration = Duration::from_millis(250);

/// Bytes by direction, or why there are none.
#[derive(Debug, Clone, Default, PartialEq)]
struct Bytes {
    read: Option<f64>,
    written: Option<f64>,
    both: Option<f64>,
    running: Option<f64>,
    trouble: Option<String>,
}

/// The open events of the controllers. The lock is never held while a loop runs.
struct Held(Mutex<Controllers>);

impl CounterUser for Held {
    fn release(&self) -> bool {
        self.0.lock().close();
        true
    }

    fn resume(&self) {}
}

/// The memory controllers and a monitoring group of resctrl, where they are there.
pub(crate) struct Moved {
    controllers: Option<Arc<Held>>,
    monitor: Option<Monitor>,
    ownership: CounterOwnership,
    /// What others move, by second.
    background: Bytes,
    /// What is not there, and why.
    pub(crate) absent: Vec<Missing>,
}

impl Moved {
    pub(crate) fn find(roots: &Roots, files: &mut NodeFiles, ownership: &CounterOwnership) -> Self {
        let mut absent = Vec::new();
        let mut miss = |what: &str, why: String| absent.push(Missing { what: what.to_owned(), why });
        let topology = Topology::current(files);
        let controllers = Controllers::find(files, &topology, Box::new(Kernel));
        let controllers = controllers.map_err(|error| miss("memory controllers", error.to_string())).ok();
        let controllers = controllers.map(|controllers| Arc::new(Held(Mutex::new(controllers))));
        if let Some(held) = &controllers {
            let user: Arc<dyn CounterUser> = held.clone();
            ownership.take_part(&user);
        }
        let monitor = Monitor::make(roots, files).map_err(|why| miss("resctrl", why)).ok();
        let mut moved =
            Self { controllers, monitor, ownership: ownership.clone(), background: Bytes::default(), absent };
        moved.read();
        pause(IDLE);
        moved.background = moved.read();
        moved
    }

    /// Bytes since the last reading.
    fn read(&mut self) -> Bytes {
        let (mut bytes, ownership) = (Bytes::default(), self.ownership.clone());
        let Some(held) = &self.controllers else { return bytes };
        held.0.lock().read(&|| !ownership.is_yielded(), &mut |place, reading| match reading {
            Ok(Reading::Grown { bytes: more, running }) => {
                let sum = match place.direction {
                    Direction::Read => &mut bytes.read,
                    Direction::Write => &mut bytes.written,
                    Direction::Both => &mut bytes.both,
                };
                *sum = Some(sum.unwrap_or(0.0) + crate::known::float(more));
                bytes.running = Some(bytes.running.map_or(running, |least: f64| least.min(running)));
            }
            Ok(Reading::First) => {}
            Ok(Reading::Idle) => bytes.trouble = Some("an event never had a counter".to_owned()),
            Ok(Reading::Restarted) => bytes.trouble = Some("a count fell".to_owned()),
            Err(error) => bytes.trouble = Some(error.to_string()),
        });
        bytes
    }

    /// A loop is about to run.
    pub(crate) fn begin(&mut self) {
        self.read();
        if let Some(monitor) = &mut self.monitor {
            monitor.last = monitor.read();
        }
    }

    /// It ran for so long.
    pub(crate) fn end(&mut self, ran: Ran<'_>, took: Duration) -> Vec<Row> {
        let bytes = self.read();
        let mut rows = Vec::new();
        if self.controllers.is_some() {
            rows.extend(compare_controllers(ran, &bytes, &self.background, took));
        }
        if let (Some(monitor), Some(known)) = (&mut self.monitor, monitored(&ran.kernel.work)) {
            let counted =
                monitor.read().and_then(|now| monitor.last.clone().map(|before| now.saturating_sub(before)));
            let counted = counted.map(crate::known::float).map_err(|why| (Verdict::Absent, why));
            rows.push(row(known, "resctrl", ran, counted, None));
        }
        rows
    }

    /// Closes what is open.
    pub(crate) fn close(&mut self) {
        if let Some(held) = &self.controllers {
            held.0.lock().close();
        }
    }
}

/// Without what the rest of the node moves when no loop runs.
fn compare_controllers(ran: Ran<'_>, bytes: &Bytes, background: &Bytes, took: Duration) -> Vec<Row> {
    let Some((read, written, both)) = controllers(&ran.kernel.work) else { return Vec::new() };
    let share = took.as_secs_f64() / IDLE.as_secs_f64();
    let one = |known: Option<Known>, counted: Option<f64>, background: Option<f64>| {
        let known = known?;
        let counted = match &bytes.trouble {
            Some(why) => Err((Verdict::NeverRan, why.clone())),
            None => Ok((counted? - background.unwrap_or(0.0) * share).max(0.0)),
        };
        Some(row(known, "memory_controllers", ran, counted, bytes.running))
    };
    let trouble = bytes.trouble.is_some();
    let rows = [
        one(read, bytes.read.or(trouble.then_some(0.0)), background.read),
        one(written, bytes.written.or(trouble.then_some(0.0)), background.written),
        one(both.filter(|_| !trouble), bytes.both, background.both),
    ];
    rows.into_iter().flatten().collect()
}

/// A monitoring group with this thread in it. Removed when dropped.
struct Monitor {
    tree: Box<dyn Tree>,
    group: String,
    last: Result<u64, String>,
}

impl Monitor {
    /// Where resctrl is mounted and measures bandwidth.
    fn make(roots: &Roots, files: &mut NodeFiles) -> Result<Self, String> {
        let own = files
            .read_lines("proc/thread-self/cpu_resctrl_groups")
            .map_err(|_| "this kernel has no resctrl")?;
        let groups =
            parse_task_groups(own).map_err(|error| error.to_string())?.ok_or("resctrl is not mounted")?;
        let below = if groups.control.is_empty() { String::new() } else { format!("{}/", groups.control) };
        let tree = Mounted::at(roots.sys("fs/resctrl"));
        let task = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0);
        Self::below(Box::new(tree), &below, task)
    }

    fn below(tree: Box<dyn Tree>, control: &str, task: u32) -> Result<Self, String> {
        let features =
            tree.read("info/L3_MON/mon_features").map_err(|error| format!("no monitoring: {error}"))?;
        if !parse_features(&features).is_ok_and(|features| features.total) {
            return Err("this CPU does not measure bandwidth (cqm_mbm_total)".to_owned());
        }
        let group = format!("{control}mon_groups/jobledger_validate_{task}");
        let lock =
            tree.lock().map_err(|errno| errno.to_string())?.ok_or("another program changes its groups")?;
        tree.make(&group).map_err(|errno| format!("no group can be made: {errno}"))?;
        let monitor = Self { tree, group, last: Err("not read".to_owned()) };
        let added = monitor.tree.add_task(&monitor.group, task);
        drop(lock);
        added.map_err(|errno| format!("this thread cannot be added: {errno}"))?;
        Ok(monitor)
    }

    /// Bytes of all domains so far.
    fn read(&self) -> Result<u64, String> {
        let at = format!("{}/mon_data", self.group);
        let domains = self.tree.directories(&at).map_err(|error| error.to_string())?;
        let mut sum = None;
        for domain in domains.iter().filter(|name| parse_domain(name).is_some()) {
            let bytes = self
                .tree
                .read(&format!("{at}/{domain}/mbm_total_bytes"))
                .map_err(|error| error.to_string())?;
            match parse_value(&bytes) {
                Ok(bytes) => sum = Some(sum.unwrap_or(0_u64).saturating_add(bytes)),
                // A domain that this thread was never on.
                Err(Unread::Unavailable) => {}
                Err(Unread::Unassigned) => return Err("no counter is assigned to the group".to_owned()),
                Err(Unread::Error) => return Err("the hardware reports an error".to_owned()),
                Err(Unread::Failed) => return Err("a count that is no number".to_owned()),
            }
        }
        sum.ok_or_else(|| "no domain has a count".to_owned())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.tree.remove(&self.group);
    }
}

#[cfg(test)]
mod tests {
    use known_work::kernels;
    use perf_counters::resctrl::testing::Fake;

    use super::*;

    fn verdicts(bytes: &Bytes) -> Vec<(String, Verdict)> {
        let kernel = kernels().into_iter().find(|kernel| kernel.name == "triad").expect("STREAM's");
        let ran = Ran { kernel: &kernel, iterations: 1000, cpu: 0 };
        let background = Bytes { read: Some(1000.0), ..Bytes::default() };
        let rows = compare_controllers(ran, bytes, &background, 4 * IDLE);
        rows.into_iter().map(|row| (row.quantity, row.verdict)).collect()
    }

    /// The triad reads 128 to 192 bytes and writes 64, a thousand times; 4000 bytes are of others.
    fn bytes(read: f64, written: f64) -> Bytes {
        Bytes { read: Some(read), written: Some(written), running: Some(1.0), ..Bytes::default() }
    }

    #[test]
    fn memory_that_is_counted_double_is_found() {
        let of = |read: Verdict, written: Verdict| {
            vec![("memory read".to_owned(), read), ("memory written".to_owned(), written)]
        };
        assert_eq!(verdicts(&bytes(132_000.0, 64_000.0)), of(Verdict::Pass, Verdict::Pass));
        assert_eq!(verdicts(&bytes(2.0 * 192_000.0, 128_000.0)), of(Verdict::Off, Verdict::Off));
        let without = Bytes { trouble: Some("an event never had a counter".into()), ..bytes(1.0, 1.0) };
        assert_eq!(verdicts(&without), of(Verdict::NeverRan, Verdict::NeverRan));
    }

    #[test]
    fn controllers_that_count_both_ways_as_one_are_compared_with_the_sum() {
        let both = Bytes { both: Some(200_000.0), ..Bytes::default() };
        assert_eq!(verdicts(&both), [("memory moved".to_owned(), Verdict::Pass)]);
        let half = Bytes { both: Some(96_000.0), ..Bytes::default() };
        assert_eq!(verdicts(&half), [("memory moved".to_owned(), Verdict::Off)]);
    }

    #[test]
    fn resctrl_measures_the_group_of_this_thread_in_all_domains_and_the_group_is_removed() {
        let machine = test_machine::Machine::new();
        machine.write("cgroup/x/cgroup.threads", "");
        let fake = Fake::mount(&machine, &[0, 1], 1);
        fake.spawn(7, "x", "");
        let make = || Monitor::below(Box::new(fake.clone()), "", 7);
        let monitor = make().expect("a group");
        let before = monitor.read().expect("bytes");
        fake.moves(7, 0, 1000).moves(7, 1, 500);
        assert_eq!(monitor.read().map(|now| now - before), Ok(1500));
        assert!(make().is_err(), "no group is left for another one");
        drop(monitor);
        assert_eq!(fake.state().groups.len(), 1, "the root alone");
    }
}
