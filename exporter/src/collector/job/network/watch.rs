//! The kernel's side: two programs at each of SLURM's cgroups, and the table that they count in.

use std::collections::HashMap;
use std::sync::Arc;

use bpf::assemble::{AssembleError, Condition, Helper};
use bpf::map::Cell;
use bpf::program::Kind;
use bpf::{self, Assembler, Attached, BpfError, Direction, Link, Program, Register, Width};
use cgroups::Version;
use kernel_files::Dir;
use rustix::io::Errno;
use slurm_jobs::SlurmCgroup;

use super::accounts::{Counts, Key};
use crate::collector::SourceError;

/// Entries that the table has room for: jobs, and steps where they are counted separately. Entries of ended ones are
/// removed when they did not grow between two scrapes.
const MOST: u32 = 16_384;

/// Both programs at one cgroup of SLURM, and the cgroups above it, whose programs must keep running.
#[derive(Debug)]
struct Watched {
    _links: [Link; 2],
    above: Vec<Dir>,
    node: Option<Arc<str>>,
}

/// Everything of ours in the kernel. It goes with this value.
#[derive(Debug)]
pub(super) struct Watch {
    table: bpf::HashMap<2, 6>,
    overflow: Cell<6>,
    most: u32,
    steps: bool,
    scopes: HashMap<u64, Watched>,
}

/// What the kernel counted: the table, and what did not fit into it.
pub(super) type Reading = (HashMap<Key, Counts>, Counts);

impl Watch {
    /// Makes the table. With `steps` it has an entry for each step.
    pub(super) fn new(steps: bool) -> Result<Self, SourceError> {
        Self::with_room(steps, MOST)
    }

    /// The same with room for this many entries.
    pub(super) fn with_room(steps: bool, most: u32) -> Result<Self, SourceError> {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        // bpf_skb_ancestor_cgroup_id for programs of cgroups; links are of 5.7, ids that are inodes of 5.5.
        if parse_release(&release).is_some_and(|version| version < (5, 8)) {
            return Err(SourceError::Unsupported { needs: "Linux 5.8".to_owned() });
        }
        let table = bpf::HashMap::new("jobledger_net", most).map_err(refused)?;
        let overflow = Cell::new("jobledger_more").map_err(refused)?;
        Ok(Self { table, overflow, most, steps, scopes: HashMap::new() })
    }

    /// Attaches to new cgroups of SLURM and detaches from those that are gone. Returns the first failure; the other
    /// cgroups are counted nevertheless.
    pub(super) fn follow(&mut self, scopes: &[Arc<SlurmCgroup>]) -> Result<(), SourceError> {
        self.scopes.retain(|inode, _| scopes.iter().any(|scope| scope.inode == *inode));
        let mut failure = None;
        for scope in scopes {
            let outcome = match self.scopes.get(&scope.inode) {
                Some(watched) => tolerated(&watched.above, scope),
                None => self.attach(scope).map(|watched| {
                    self.scopes.insert(scope.inode, watched);
                }),
            };
            if let Err(error) = outcome {
                self.scopes.remove(&scope.inode);
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// SLURM's names of the nodes with counted jobs.
    pub(super) fn counted(&self) -> impl Iterator<Item = &Option<Arc<str>>> {
        self.scopes.values().map(|watched| &watched.node)
    }

    fn attach(&self, scope: &SlurmCgroup) -> Result<Watched, SourceError> {
        let dir = scope.cgroup.dirs().next().filter(|_| scope.cgroup.version() == Version::V2);
        let dir = dir.ok_or_else(no_v2)?;
        let above = above(dir)?;
        tolerated(&above, scope)?;
        let level = i32::try_from(above.len()).unwrap_or(i32::MAX);
        let attach = |direction, name| -> Result<Link, SourceError> {
            let code = count_packets(direction, self, level).map_err(|error| SourceError::Unsupported {
                needs: format!("a program that can be written down ({error})"),
            })?;
            let program = Program::load(Kind::CgroupPacket(direction), name, &code).map_err(refused)?;
            Link::new(&program, dir, direction).map_err(|error| not_attached(error, dir, direction))
        };
        let links =
            [attach(Direction::Ingress, "jobledger_in")?, attach(Direction::Egress, "jobledger_out")?];
        tracing::info!(scope = scope.path(), level, "counting packets");
        Ok(Watched { _links: links, above, node: scope.node.clone() })
    }

    /// Reads the whole table.
    pub(super) fn read(&mut self) -> Result<Reading, SourceError> {
        let overflow = self.overflow.get().map_err(refused)?;
        let mut table = HashMap::new();
        self.table
            .for_each(|[group, step], counts| {
                table.insert(Key { group: *group, step: *step }, Counts(*counts));
            })
            .map_err(refused)?;
        Ok((table, Counts(overflow)))
    }

    /// Whether entries should go that could still be of use.
    pub(super) fn is_crowded(&self, entries: usize) -> bool {
        u32::try_from(entries).is_ok_and(|entries| entries > self.most / 2)
    }

    /// Removes an entry and gives its last value.
    pub(super) fn take(&self, key: Key) -> Result<Option<Counts>, SourceError> {
        Ok(self.table.take(&[key.group, key.step]).map_err(refused)?.map(Counts))
    }
}

/// `6.1.0-18-amd64`: the first two numbers.
pub(super) fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn no_v2() -> SourceError {
    SourceError::Unsupported { needs: "cgroup v2 for SLURM's cgroups".to_owned() }
}

fn refused(error: BpfError) -> SourceError {
    match error.errno {
        Errno::PERM => SourceError::Denied { what: format!("BPF: {error}") },
        _ => SourceError::Unsupported {
            needs: format!("a kernel with CONFIG_CGROUP_BPF, Linux 5.8 or later ({error})"),
        },
    }
}

/// The kernel says EPERM for want of privilege and for a program that is there and tolerates no other.
fn not_attached(error: BpfError, dir: &Dir, direction: Direction) -> SourceError {
    match Attached::of(dir, direction) {
        Ok(attached) if attached.tolerates_no_other() => another_one("SLURM's scope itself"),
        _ => refused(error),
    }
}

fn another_one(place: &str) -> SourceError {
    SourceError::Unsupported {
        needs: format!(
            "programs attached with BPF_F_ALLOW_MULTI: one at {place} allows no other beside it, and is left as it is"
        ),
    }
}

/// Whether programs above keep running beside a program here. With one below, the kernel passes over those that were
/// attached above without BPF_F_ALLOW_MULTI (kernel/bpf/cgroup.c, `compute_effective_progs`), for example a firewall.
fn tolerated(above: &[Dir], scope: &SlurmCgroup) -> Result<(), SourceError> {
    for (steps, dir) in above.iter().enumerate() {
        for direction in [Direction::Ingress, Direction::Egress] {
            if Attached::of(dir, direction).map_err(refused)?.tolerates_no_other() {
                let parts: Vec<&str> = scope.path().split('/').collect();
                let place = parts.get(..parts.len().saturating_sub(steps + 1)).unwrap_or_default().join("/");
                return Err(another_one(if place.is_empty() {
                    "a cgroup above SLURM's scope"
                } else {
                    &place
                }));
            }
        }
    }
    Ok(())
}

/// The directories above a cgroup up to the root of the hierarchy, the nearest first.
fn above(scope: &Dir) -> Result<Vec<Dir>, SourceError> {
    /// Inode of the root of the v2 hierarchy (kernel/cgroup/cgroup.c, `cgroup_setup_root`).
    const ROOT: u64 = 1;
    /// `CGROUP2_SUPER_MAGIC`
    const CGROUP2: u64 = 0x6367_7270;
    let kind = rustix::fs::fstatfs(scope).map_err(|_| no_v2())?.f_type;
    if u64::try_from(kind) != Ok(CGROUP2) {
        return Err(no_v2());
    }
    let file = "..";
    let failed = |error| SourceError::Io { file, error };
    let stat = scope.stat().map_err(failed)?;
    let (mut inode, device) = (stat.inode, stat.device);
    let mut above: Vec<Dir> = Vec::new();
    while inode != ROOT {
        let up = above.last().unwrap_or(scope).open_dir(file).map_err(failed)?;
        let stat = up.stat().map_err(failed)?;
        // Beyond the root of a mount that shows a part of the hierarchy: how deep that is cannot be known.
        if stat.device != device || stat.inode == inode {
            let needs = "the whole cgroup hierarchy: not a cgroup namespace of the exporter's own";
            return Err(SourceError::Unsupported { needs: needs.to_owned() });
        }
        inode = stat.inode;
        above.push(up);
    }
    Ok(above)
}

/// Offsets in the program's argument (include/uapi/linux/bpf.h, `struct __sk_buff`).
mod packet {
    pub(super) const LENGTH: i16 = 0;
    pub(super) const DEVICE: i16 = 40;
}

/// The loopback device is the first of every network namespace (include/net/flow.h, `LOOPBACK_IFINDEX`).
const LOOPBACK: i32 = 1;

/// The program: adds the packet to the entry of its socket's cgroups, at `level` + 1 and + 2 of the hierarchy, makes
/// the entry if there is none, and counts at the side when there is no room for it. A packet over the loopback device
/// is passed over when it comes back in. Every packet passes.
fn count_packets(direction: Direction, watch: &Watch, level: i32) -> Result<Vec<[u8; 8]>, AssembleError> {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R10};
    const DOUBLE: Width = Width::Double;
    /// On the stack: the key, a value of zeros for a new entry, an index.
    const KEY: i16 = -16;
    const VALUE: i16 = -64;
    const INDEX: i16 = -72;
    /// Places in the value.
    const RECEIVED: i16 = 0;
    const SENT: i16 = 16;
    const LOOPED: i32 = 32;
    /// `BPF_NOEXIST`: another CPU may have made the entry meanwhile.
    const IF_ABSENT: i32 = 1;

    let mut asm = Assembler::default();
    let (count, pass) = (asm.label(), asm.label());
    asm.copy(R6, R1).load(Width::Word, R7, R6, packet::LENGTH).load(Width::Word, R8, R6, packet::DEVICE);
    if direction == Direction::Ingress {
        asm.jump_if(R8, Condition::Equal, LOOPBACK, pass);
    }
    asm.copy(R1, R6).set(R2, level + 1).call(Helper::PacketAncestorCgroup).store(DOUBLE, R10, KEY, R0);
    if watch.steps {
        asm.copy(R1, R6).set(R2, level + 2).call(Helper::PacketAncestorCgroup);
        asm.store(DOUBLE, R10, KEY + 8, R0);
    } else {
        asm.store_value(DOUBLE, R10, KEY + 8, 0);
    }
    let find = |asm: &mut Assembler| {
        asm.map(R1, watch.table.descriptor()).copy(R2, R10).add(R2, i32::from(KEY)).call(Helper::MapLookup);
        asm.jump_if(R0, Condition::NotEqual, 0, count);
    };
    find(&mut asm);
    for place in 0..6 {
        asm.store_value(DOUBLE, R10, VALUE + 8 * place, 0);
    }
    asm.map(R1, watch.table.descriptor()).copy(R2, R10).add(R2, i32::from(KEY));
    asm.copy(R3, R10).add(R3, i32::from(VALUE)).set(R4, IF_ABSENT).call(Helper::MapUpdate);
    find(&mut asm);
    asm.store_value(Width::Word, R10, INDEX, 0);
    asm.map(R1, watch.overflow.descriptor()).copy(R2, R10).add(R2, i32::from(INDEX)).call(Helper::MapLookup);
    asm.jump_if(R0, Condition::Equal, 0, pass);
    asm.place(count);
    let place = match direction {
        Direction::Ingress => RECEIVED,
        Direction::Egress => {
            let outside = asm.label();
            asm.jump_if(R8, Condition::NotEqual, LOOPBACK, outside).add(R0, LOOPED - i32::from(SENT));
            asm.place(outside);
            SENT
        }
    };
    asm.add_atomically(DOUBLE, R0, place, R7).set(R1, 1).add_atomically(DOUBLE, R0, place + 8, R1);
    asm.place(pass).set(R0, 1).exit();
    asm.finish()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use bpf::cgroup::attach_alone;
    use cgroups::Cgroup;
    use jobledger_testkit::cgroups::{Site, make_group, skip_without_groups};

    use super::*;

    #[test]
    fn releases_are_compared_by_their_first_two_numbers() {
        assert_eq!(parse_release("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(parse_release("5.10.0"), Some((5, 10)));
        assert_eq!(parse_release("4.18.0-553.el8_10.x86_64"), Some((4, 18)));
        assert!(
            parse_release("5.4.0-150-generic").unwrap() < (5, 8) && parse_release("5.10").unwrap() > (5, 8)
        );
        assert_eq!((parse_release(""), parse_release("6"), parse_release("x.y")), (None, None, None));
    }

    #[test]
    fn a_directory_of_another_file_system_is_no_cgroup() {
        let dir = Dir::open(&std::env::temp_dir()).unwrap();
        assert_eq!(above(&dir).unwrap_err(), no_v2());
    }

    fn site() -> (Site, PathBuf, Arc<SlurmCgroup>) {
        let site = Site::v2("slurmstepd.scope").unwrap();
        let path = site.job_dir("", 0);
        let dir = Dir::open(&path).unwrap();
        let inode = dir.stat().unwrap().inode;
        let paths = vec!["system.slice/slurmstepd.scope".to_owned()];
        let scope = Arc::new(SlurmCgroup { paths, node: None, inode, cgroup: Cgroup::v2(dir) });
        (site, path, scope)
    }

    /// Has a process in a group send datagrams of 100 bytes over the loopback device.
    fn send(group: &Path, count: u32) {
        let script = format!(
            "import socket; r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(('127.0.0.1', 0)); \
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
             [(s.sendto(b'x' * 100, r.getsockname()), r.recv(100)) for _ in range({count})]"
        );
        let enter = format!("echo 0 > {}/cgroup.procs && exec python3 -c \"$0\"", group.display());
        assert!(Command::new("sh").args(["-c", &enter, &script]).status().unwrap().success());
    }

    fn sent(count: u64) -> Counts {
        Counts([0, 0, 0, 0, count * 128, count])
    }

    #[test]
    fn what_does_not_fit_into_the_table_is_counted_at_the_side() {
        if skip_without_groups() {
            return;
        }
        let (_site, path, scope) = site();
        let mut watch = Watch::with_room(false, 2).unwrap();
        watch.follow(&[scope]).unwrap();
        for job in ["job_1", "job_2", "job_3", "job_4"] {
            make_group(&path.join(job));
            send(&path.join(job), 10);
        }
        send(&path.join("job_1"), 5);
        let (table, overflow) = watch.read().unwrap();
        assert_eq!((table.len(), overflow), (2, sent(20)));
        let group = |job: &str| Dir::open(&path.join(job)).unwrap().stat().unwrap().inode;
        let key = Key { group: group("job_1"), step: 0 };
        assert_eq!(table.get(&key), Some(&sent(15)));
        assert_eq!(table.get(&Key { group: group("job_2"), step: 0 }), Some(&sent(10)));
        assert!(watch.is_crowded(table.len()) && !watch.is_crowded(1));
        // An entry that goes makes room for the next.
        assert_eq!(watch.take(key), Ok(Some(sent(15))));
        assert_eq!(watch.take(key), Ok(None));
        send(&path.join("job_4"), 3);
        let (table, overflow) = watch.read().unwrap();
        assert_eq!(table.get(&Key { group: group("job_4"), step: 0 }), Some(&sent(3)));
        assert_eq!(overflow, sent(20));
    }

    /// More entries than are read in one go, whatever place of the table they share.
    #[test]
    fn a_large_table_is_read_whole_and_every_entry_once() {
        if skip_without_groups() {
            return;
        }
        let mut watch = Watch::with_room(true, 8192).unwrap();
        for n in 0..5000 {
            watch.table.set(&[n, n + 1], &[n, 0, 0, 0, 0, 1]).unwrap();
        }
        let (table, overflow) = watch.read().unwrap();
        assert_eq!((table.len(), overflow), (5000, Counts::default()));
        let right = |n: u64| table.get(&Key { group: n, step: n + 1 }) == Some(&Counts([n, 0, 0, 0, 0, 1]));
        assert!((0..5000).all(right));
    }

    /// A firewall that was attached above without BPF_F_ALLOW_MULTI: with a program below, the kernel would pass it
    /// over for all jobs.
    #[test]
    fn a_program_above_that_tolerates_no_other_remains_in_force() {
        if skip_without_groups() {
            return;
        }
        for override_allowed in [false, true] {
            let (_site, path, scope) = site();
            let slice = Dir::open(path.parent().unwrap()).unwrap();
            let mut watch = Watch::new(false).unwrap();
            watch.follow(std::slice::from_ref(&scope)).unwrap();
            assert_eq!(ids(&scope).map(|ids| ids.len()), [1, 1]);
            // It may come later, too: then ours go.
            let mut asm = Assembler::default();
            asm.set(Register::R0, 1).exit();
            let kind = Kind::CgroupPacket(Direction::Egress);
            let other = Program::load(kind, "other", &asm.finish().unwrap()).unwrap();
            attach_alone(&other, &slice, Direction::Egress, override_allowed);
            for _ in 0..2 {
                let error = watch.follow(std::slice::from_ref(&scope)).unwrap_err();
                assert_eq!(error.reason(), "unsupported");
                assert!(error.to_string().contains("one at system.slice allows no other"), "{error}");
                assert_eq!(watch.counted().count(), 0);
            }
            let gone = || ids(&scope).iter().all(Vec::is_empty);
            jobledger_testkit::eventually("the kernel takes the links apart", gone);
        }
    }

    /// The same at the scope itself: the kernel refuses ours, as it does for want of privilege.
    #[test]
    fn a_program_at_the_scope_that_tolerates_no_other_is_reported_as_the_reason() {
        if skip_without_groups() {
            return;
        }
        let (_site, _, scope) = site();
        let mut asm = Assembler::default();
        asm.set(Register::R0, 1).exit();
        let kind = Kind::CgroupPacket(Direction::Ingress);
        let other = Program::load(kind, "other", &asm.finish().unwrap()).unwrap();
        attach_alone(&other, scope.cgroup.dirs().next().unwrap(), Direction::Ingress, true);
        let error = Watch::new(false).unwrap().follow(std::slice::from_ref(&scope)).unwrap_err();
        assert!(error.to_string().contains("one at SLURM's scope itself allows no other"), "{error}");
        assert_eq!(ids(&scope).map(|ids| ids.len()), [1, 0], "theirs");
    }

    fn ids(scope: &SlurmCgroup) -> [Vec<u32>; 2] {
        let dir = || scope.cgroup.dirs().next().unwrap();
        [Direction::Ingress, Direction::Egress].map(|direction| Attached::of(dir(), direction).unwrap().ids)
    }
}
