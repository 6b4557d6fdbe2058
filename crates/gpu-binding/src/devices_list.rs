//! Which devices a v1 cgroup may open: `devices.list` (Documentation/admin-guide/cgroup-v1/devices.rst). Any user may read
//! it.
//!
//! A line is a kind, `MAJOR:MINOR` (each may be `*`) and the permitted operations: `c 195:0 rwm`. The list shows what
//! is allowed only if everything else is denied. Where everything is allowed by default, the kernel prints `a *:*
//! rwm` and does not show the exceptions (security/device_cgroup.c, `devcgroup_seq_show`). That is so with SLURM,
//! which denies single devices, unless the site first denies all by `devices.deny`.

use cgroups::{Controller, View};
use gpu_devices::DeviceNode;
use kernel_files::parse::{ParseError, fields, integer, lines};
use kernel_files::{Buffer, SourceError};

use super::DeviceAccess;

/// A character device that may be read and written; `None` is any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    major: Option<u32>,
    minor: Option<u32>,
}

/// What the list says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DevicesList {
    /// Everything is allowed that is not listed.
    ByDefault,
    /// Only this is.
    Only(Vec<Allowed>),
}

/// Parses `devices.list`. A torn last line is an error, since a shorter list would deny what is allowed.
pub fn parse_devices_list(bytes: &[u8]) -> Result<DevicesList, ParseError> {
    let (mut allowed, mut everything) = (Vec::new(), false);
    for numbered in lines(bytes) {
        let (line, text) = numbered?;
        let wrong = |reason| ParseError::new(line, reason);
        let mut words = fields(text);
        let (Some(kind), Some(numbers), Some(access)) = (words.next(), words.next(), words.next()) else {
            return Err(wrong("not a kind, numbers and access"));
        };
        let mut numbers = numbers.splitn(2, |byte| *byte == b':');
        let mut number = || match numbers.next() {
            Some(b"*") => Ok(None),
            word => {
                let number = word.and_then(integer).and_then(|number| u32::try_from(number).ok());
                number.map(Some).ok_or(wrong("neither a device number nor *"))
            }
        };
        let device = Allowed { major: number()?, minor: number()? };
        match kind {
            b"a" => everything = true,
            // One line has to allow both (security/device_cgroup.c, `match_exception`).
            b"c" if access.contains(&b'r') && access.contains(&b'w') => allowed.push(device),
            b"c" | b"b" => {}
            _ => return Err(wrong("neither a, b nor c")),
        }
    }
    Ok(if everything { DevicesList::ByDefault } else { DevicesList::Only(allowed) })
}

impl DevicesList {
    /// The access to these character devices.
    pub fn device_access(&self, nodes: &[DeviceNode]) -> DeviceAccess {
        let Self::Only(allowed) = self else { return DeviceAccess::NoProgram };
        let covers = |allowed: &Allowed, node: &DeviceNode| {
            allowed.major.is_none_or(|major| major == node.major)
                && allowed.minor.is_none_or(|minor| minor == node.minor)
        };
        let nodes = nodes.iter().map(|node| allowed.iter().any(|allowed| covers(allowed, node)));
        DeviceAccess::Allowed { nodes: nodes.collect(), programs: Vec::new() }
    }
}

/// What a job's cgroup may open; `None` when it has no directory in the devices hierarchy.
pub fn read_devices_list(
    cgroup: &View<'_>,
    nodes: &[DeviceNode],
    buffer: &mut Buffer,
) -> Result<Option<DeviceAccess>, SourceError> {
    const FILE: &str = "devices.list";
    let read = cgroup.read_list_of(Controller::Devices, FILE, buffer);
    let Some(bytes) = read.map_err(SourceError::reading(FILE, ""))? else { return Ok(None) };
    let list = parse_devices_list(bytes).map_err(SourceError::parsing(FILE))?;
    Ok(Some(list.device_access(nodes)))
}

#[cfg(test)]
mod tests {
    use cgroups::Cgroup;
    use jobledger_testkit::cgroups::{OwnedGroup, skip_without_groups, v1_mount};
    use jobledger_testkit::device_programs::Opener;
    use kernel_files::Dir;

    use super::*;

    const NODES: [DeviceNode; 4] = [
        DeviceNode { major: 195, minor: 0 },
        DeviceNode { major: 195, minor: 1 },
        DeviceNode { major: 1, minor: 3 },
        DeviceNode { major: 226, minor: 128 },
    ];

    fn answers_to(list: &str) -> Option<Vec<bool>> {
        match parse_devices_list(list.as_bytes()).unwrap().device_access(&NODES) {
            DeviceAccess::Allowed { nodes, programs } => {
                assert_eq!(programs, [] as [u32; 0]);
                Some(nodes)
            }
            DeviceAccess::NoProgram => None,
            DeviceAccess::NotFollowed => panic!("nothing is followed here"),
        }
    }

    #[test]
    fn what_a_line_covers_for_reading_and_writing_is_allowed() {
        for (list, expected) in [
            ("", [false; 4]),
            ("c 195:1 rwm\n", [false, true, false, false]),
            ("c 195:1 rw\nc 1:3 rwm\n", [false, true, true, false]),
            ("c 195:* rwm\n", [true, true, false, false]),
            ("c *:* rw\n", [true; 4]),
            ("c *:3 rw\n", [false, false, true, false]),
            ("c *:* m\nb *:* rwm\n", [false; 4]),
            ("b 195:1 rwm\n", [false; 4]),
            ("c 195:0 r\nc 195:0 w\n", [false; 4]),
            ("c 195:11 rwm\nc 19:1 rwm\n", [false; 4]),
        ] {
            assert_eq!(answers_to(list), Some(expected.to_vec()), "{list:?}");
        }
    }

    #[test]
    fn where_all_is_allowed_by_default_nothing_is_known() {
        assert_eq!(answers_to("a *:* rwm\n"), None);
        assert_eq!(answers_to("c 195:0 rwm\na *:* rwm\n"), None);
    }

    #[test]
    fn what_is_no_list_or_torn_is_an_error() {
        for (list, line) in [
            ("c 195:1 rwm", 1),
            ("c 195:1 rwm\nc 195:1", 2),
            ("\n", 1),
            ("c 195:1\n", 1),
            ("c 195 rwm\n", 1),
            ("c 195:x rwm\n", 1),
            ("c :1 rwm\n", 1),
            ("c 195: rwm\n", 1),
            ("c 4294967296:1 rwm\n", 1),
            ("d 195:1 rwm\n", 1),
        ] {
            assert_eq!(parse_devices_list(list.as_bytes()).unwrap_err().line, line, "{list:?}");
        }
    }

    /// The kernel's list against the devices that a process may open.
    #[test]
    fn the_kernel_lets_open_what_its_list_says() {
        let Some(mount) = v1_mount("devices").filter(|_| !skip_without_groups()) else {
            jobledger_testkit::skip("v1", "no v1 devices hierarchy is mounted");
            return;
        };
        let group = OwnedGroup::below(&mount, "devices-list");
        let write = |file: &str, line: &str| std::fs::write(group.path().join(file), line).unwrap();
        let cgroup = Cgroup::v1(vec![(vec![Controller::Devices], Dir::open(group.path()).unwrap())]);
        let read = || read_devices_list(&cgroup.view(), &NODES, &mut Buffer::default()).unwrap().unwrap();
        assert_eq!(read(), DeviceAccess::NoProgram);
        let mut opener = Opener::start(group.path());
        // As SLURM does: single devices are denied, and the kernel does not say which.
        write("devices.deny", "c 195:0 rwm");
        assert!(!opener.may_open(false, 195, 0) && opener.may_open(false, 195, 1));
        assert_eq!(read(), DeviceAccess::NoProgram);
        write("devices.deny", "a");
        for line in ["c 195:1 rwm", "c 1:3 rw", "c 226:* r"] {
            write("devices.allow", line);
        }
        let opened = NODES.map(|node| opener.may_open(false, node.major, node.minor)).to_vec();
        assert_eq!(opened, [false, true, true, false]);
        assert_eq!(read(), DeviceAccess::Allowed { nodes: opened, programs: Vec::new() });
        write("devices.allow", "c 226:* w");
        assert!(opener.may_open(false, 226, 128), "merged by the kernel");
        let DeviceAccess::Allowed { nodes, .. } = read() else { panic!("a list") };
        assert_eq!(nodes, [false, true, true, true]);
    }
}
