//! What the exporter and the helper that changes groups say to each other, one message each way on a socket that keeps messages
//! apart. Pure.

use privileges::helper::Malformed;
use rustix::io::Errno;

use crate::resctrl::groups::PREFIX;

/// The longest message, bytes.
pub const LONGEST: usize = 12 + LONGEST_GROUP;
/// A control group's name, `mon_groups` and ours; a name has 255 bytes at most.
const LONGEST_GROUP: usize = 255 + 1 + 10 + 1 + 255;

const ORDER: u8 = 0xd4;
const ANSWER: u8 = 0xd5;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Make the group.
    Make,
    /// Remove it.
    Remove,
    /// Put this task into it.
    Add(u32),
    /// Assign a counter to its bytes.
    Assign,
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Chosen by the exporter, repeated in the answer.
    pub number: u32,
    /// What is to be done.
    pub act: Act,
    /// One of our monitoring groups: `mon_groups/jobledger_job_…`, or that below a control group.
    pub group: String,
}

/// Whether a path is one of our monitoring groups, and nothing above, beside or below one.
pub fn is_ours(group: &str) -> bool {
    let plain = |name: &str| !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']);
    let ours = |name: &str| plain(name) && name.len() > PREFIX.len() && name.starts_with(PREFIX);
    // The file system's own directories are no control groups.
    let control =
        |name: &str| plain(name) && !matches!(name, "." | ".." | "info" | "mon_groups" | "mon_data");
    match group.split_once("mon_groups/") {
        Some(("", name)) => ours(name),
        Some((above, name)) => ours(name) && above.strip_suffix('/').is_some_and(control),
        None => false,
    }
}

fn word(message: &[u8], at: usize) -> Option<[u8; 4]> {
    message.get(at..at + 4)?.try_into().ok()
}

impl Order {
    /// As it is sent; nothing that would not be understood.
    pub fn write(&self) -> Option<Vec<u8>> {
        let (act, task) = match self.act {
            Act::Make => (1, 0),
            Act::Remove => (2, 0),
            Act::Add(task) => (3, task),
            Act::Assign => (4, 0),
        };
        let head = [ORDER, act, 0, 0];
        let message =
            [&head[..], &self.number.to_le_bytes(), &task.to_le_bytes(), self.group.as_bytes()].concat();
        is_ours(&self.group).then_some(message)
    }

    /// Parses an order.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let parsed = || {
            let number = word(message, 4).map(u32::from_le_bytes)?;
            let task = word(message, 8).map(u32::from_le_bytes)?;
            let act = match (message.get(..4)?, task) {
                ([ORDER, 1, 0, 0], 0) => Act::Make,
                ([ORDER, 2, 0, 0], 0) => Act::Remove,
                // 0 would be the writer itself (fs/resctrl/rdtgroup.c, `rdtgroup_move_task`).
                ([ORDER, 3, 0, 0], 1..) => Act::Add(task),
                ([ORDER, 4, 0, 0], 0) => Act::Assign,
                _ => return None,
            };
            let group = std::str::from_utf8(message.get(12..)?).ok()?.to_owned();
            is_ours(&group).then_some(Self { number, act, group })
        };
        parsed().ok_or(Malformed)
    }
}

/// The answer to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The order's.
    pub number: u32,
    /// What the kernel said.
    pub outcome: Result<(), Errno>,
}

impl Answer {
    /// As it is sent.
    pub fn write(&self) -> Vec<u8> {
        let errno = self.outcome.err().map_or(0, Errno::raw_os_error);
        [&[ANSWER, 0, 0, 0][..], &self.number.to_le_bytes(), &errno.to_le_bytes()].concat()
    }

    /// Parses an answer.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let parsed = || {
            let number = word(message, 4).map(u32::from_le_bytes)?;
            let errno = word(message, 8).map(i32::from_le_bytes)?;
            let outcome = match errno {
                0 => Ok(()),
                1..4096 => Err(Errno::from_raw_os_error(errno)),
                _ => return None,
            };
            (message.len() == 12 && message.starts_with(&[ANSWER, 0, 0, 0]))
                .then_some(Self { number, outcome })
        };
        parsed().ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_our_own_monitoring_groups_can_be_named() {
        for ours in [
            "mon_groups/jobledger_job_7_1",
            "gold/mon_groups/jobledger_job_7_1",
            "...x/mon_groups/jobledger_job_x",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        let long = format!("mon_groups/jobledger_job_{}", "x".repeat(300));
        for other in [
            "",
            ".",
            "..",
            "mon_groups",
            "mon_groups/",
            "mon_groups/other",
            "mon_groups/jobledger_job_",
            "gold",
            "gold/mon_groups",
            "jobledger_job_7",
            "/mon_groups/jobledger_job_7",
            "../mon_groups/jobledger_job_7",
            "./mon_groups/jobledger_job_7",
            "a/b/mon_groups/jobledger_job_7",
            "mon_groups/jobledger_job_7/tasks",
            "mon_groups/jobledger_job_7/..",
            "mon_groups/../jobledger_job_7",
            "info/mon_groups/jobledger_job_7",
            "mon_groups/mon_groups/jobledger_job_7",
            "mon_data/mon_groups/jobledger_job_7",
            "gold//mon_groups/jobledger_job_7",
            "gmon_groups/jobledger_job_7",
            "mon_groups/jobledger_job_7\0",
            &long,
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn the_bytes_of_an_order_and_of_an_answer() {
        let group = "mon_groups/jobledger_job_7_1".to_owned();
        let order = Order { number: 0x0403_0201, act: Act::Add(9), group: group.clone() };
        let bytes = [&[0xd4, 3, 0, 0, 1, 2, 3, 4, 9, 0, 0, 0][..], group.as_bytes()].concat();
        assert_eq!(order.write(), Some(bytes.clone()));
        assert_eq!(Order::parse(&bytes), Ok(order));
        let assign = [&[0xd4, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0][..], group.as_bytes()].concat();
        let order = Order { act: Act::Assign, ..Order::parse(&bytes).unwrap() };
        assert_eq!((order.write(), Order::parse(&assign)), (Some(assign.clone()), Ok(order)));
        let with_a_number = [&[0xd4, 4, 0, 0, 1, 2, 3, 4, 9, 0, 0, 0][..], group.as_bytes()].concat();
        assert_eq!(Order::parse(&with_a_number), Err(Malformed), "what is written is the helper's to say");
        let nobody = [&[0xd4, 3, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0][..], group.as_bytes()].concat();
        assert_eq!(Order::parse(&nobody), Err(Malformed), "task 0 is the helper");
        assert_eq!(Order { number: 1, act: Act::Make, group: "gold".to_owned() }.write(), None);
        let answer = Answer { number: 1, outcome: Err(Errno::NOSPC) };
        assert_eq!(answer.write(), [0xd5, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0]);
        assert_eq!(Answer::parse(&answer.write()), Ok(answer));
        for bad in
            [&[][..], &[0xd5, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0], &[0xd5, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0]]
        {
            assert_eq!(Answer::parse(bad), Err(Malformed));
        }
        let longest =
            format!("{}/mon_groups/jobledger_job_{}", "c".repeat(255), "x".repeat(255 - PREFIX.len()));
        let longest = Order { number: 1, act: Act::Make, group: longest };
        assert_eq!(longest.write().map(|bytes| bytes.len()), Some(LONGEST));
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_a_message(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(order) = Order::parse(&bytes) {
                prop_assert_eq!(order.write(), Some(bytes.clone()));
            }
            if let Ok(answer) = Answer::parse(&bytes) {
                prop_assert_eq!(answer.write(), bytes);
            }
        }

        #[test]
        fn a_group_that_is_ours_lies_two_or_three_levels_deep(path in "(mon_groups|jobledger_job_|info|[./a]){1,6}") {
            if is_ours(&path) {
                let parts: Vec<_> = path.split('/').collect();
                prop_assert!(matches!(parts.len(), 2 | 3) && parts.iter().all(|part| !matches!(*part, "" | "." | "..")));
                prop_assert!(parts.last().unwrap().starts_with(PREFIX));
            }
        }
    }
}
