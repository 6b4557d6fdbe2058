use std::collections::BTreeMap;

use super::*;

const INIT: u32 = 1;
const STEPD: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    Zombie,
    /// Its parent has its numbers and it is still to be seen.
    Dead,
}

#[derive(Debug, Clone, Copy)]
struct Fake {
    start: u64,
    ppid: u32,
    io: u64,
    state: State,
    ignores_children: bool,
    subreaper: bool,
}

/// A kernel that counts as Linux does and goes on while it is looked at.
#[derive(Debug)]
struct Kernel {
    processes: BTreeMap<u32, Fake>,
    clock: u64,
    /// All that the job's processes ever did.
    truth: u64,
    random: u64,
    /// Things that happen before each look at a process.
    busy: u64,
    /// Whether parents may ignore their children or end before them.
    unruly: bool,
}

impl Kernel {
    fn new(seed: u64) -> Self {
        let stepd = Fake {
            start: 1,
            ppid: INIT,
            io: 0,
            state: State::Alive,
            ignores_children: false,
            subreaper: false,
        };
        Self {
            processes: BTreeMap::from([(STEPD, stepd)]),
            clock: 1,
            truth: 0,
            random: seed,
            busy: 0,
            unruly: true,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    fn any(&mut self, want: impl Fn(&Fake) -> bool) -> Option<u32> {
        let those: Vec<u32> = self.processes.iter().filter(|(_, p)| want(p)).map(|(pid, _)| *pid).collect();
        let index = self.below(u64::try_from(those.len()).unwrap().max(1));
        those.get(usize::try_from(index).unwrap()).copied()
    }

    fn does(&mut self, pid: u32, bytes: u64) {
        self.processes.get_mut(&pid).unwrap().io += bytes;
        self.truth += bytes;
    }

    fn fork(&mut self, parent: u32) -> u32 {
        // Few ids, so that they come again soon.
        let pid = (3..).find(|pid| !self.processes.contains_key(pid)).unwrap();
        self.clock += 1;
        let (ignores_children, subreaper) = (self.unruly && self.below(8) == 0, self.below(8) == 0);
        let start = self.clock;
        let child = Fake { start, ppid: parent, io: 0, state: State::Alive, ignores_children, subreaper };
        self.processes.insert(pid, child);
        pid
    }

    fn reaper_of(&self, mut pid: u32) -> u32 {
        while let Some(process) = self.processes.get(&pid) {
            pid = process.ppid;
            if self.processes.get(&pid).is_some_and(|p| p.subreaper && p.state == State::Alive) {
                return pid;
            }
        }
        INIT
    }

    fn exit(&mut self, pid: u32) {
        let reaper = self.reaper_of(pid);
        for child in self.processes.values_mut().filter(|p| p.ppid == pid) {
            child.ppid = reaper;
        }
        let parent = self.processes[&pid].ppid;
        if self.processes.get(&parent).is_some_and(|p| p.ignores_children) {
            self.processes.remove(&pid);
        } else {
            self.processes.get_mut(&pid).unwrap().state = State::Zombie;
        }
    }

    fn reap(&mut self, pid: u32) {
        let Fake { ppid, io, .. } = self.processes[&pid];
        if let Some(parent) = self.processes.get_mut(&ppid) {
            parent.io += io;
        }
        self.processes.get_mut(&pid).unwrap().state = State::Dead;
    }

    fn end(&mut self, pid: u32) {
        self.exit(pid);
        if self.processes.contains_key(&pid) {
            self.reap(pid);
            self.processes.remove(&pid);
        }
    }

    fn happens(&mut self) {
        match self.below(10) {
            0..=2 => {
                let bytes = self.below(1000);
                if let Some(pid) = self.any(|p| p.state == State::Alive) {
                    self.does(pid, bytes);
                }
            }
            3..=4 => {
                if self.processes.len() < 12
                    && let Some(parent) = self.any(|p| p.state == State::Alive)
                {
                    self.fork(parent);
                }
            }
            5 => {
                let victim = self.any(|p| p.state == State::Alive && p.start > 1);
                let alone = |k: &Self, pid: u32| !k.processes.values().any(|p| p.ppid == pid);
                if let Some(pid) = victim.filter(|pid| self.unruly || alone(self, *pid)) {
                    self.exit(pid);
                }
            }
            6..=7 => {
                if let Some(pid) = self.any(|p| p.state == State::Zombie) {
                    self.reap(pid);
                }
            }
            _ => {
                if let Some(pid) = self.any(|p| p.state == State::Dead) {
                    self.processes.remove(&pid);
                }
            }
        }
    }

    fn goes_on(&mut self) {
        for _ in 0..self.below(self.busy + 1) {
            self.happens();
        }
    }

    fn look(&mut self, account: &mut Account) -> u64 {
        let alive = self.processes.iter().filter(|(_, p)| p.state == State::Alive);
        let listed: Vec<_> = alive.map(|(pid, _)| Listed { pid: *pid, stepd: *pid == STEPD }).collect();
        account.look(&listed, self).unwrap();
        account.exported().unwrap().0[0]
    }
}

impl Procs for Kernel {
    type Error = ();

    fn stat(&mut self, pid: u32) -> Result<Option<PidStat>, ()> {
        self.goes_on();
        Ok(self.processes.get(&pid).map(|p| {
            let state = match p.state {
                State::Alive => b'S',
                State::Zombie => b'Z',
                State::Dead => b'X',
            };
            PidStat { state, ppid: p.ppid, start_ticks: p.start, vsize: 0 }
        }))
    }

    fn io(&mut self, pid: u32) -> Result<Option<Counters>, ()> {
        self.goes_on();
        Ok(self.processes.get(&pid).map(|p| {
            let mut counters = Counters::default();
            counters.0[0] = p.io;
            counters
        }))
    }
}

#[test]
fn never_too_much_and_never_less_than_before_whatever_happens_meanwhile() {
    let mut exported_part = 0.0;
    for seed in 1..=300 {
        let mut kernel = Kernel::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        kernel.busy = seed % 4;
        let mut account = Account::default();
        let mut last = 0;
        for _ in 0..40 {
            for _ in 0..kernel.below(12) {
                kernel.happens();
            }
            let exported = kernel.look(&mut account);
            assert!(exported <= kernel.truth, "seed {seed}: {exported} of {}", kernel.truth);
            assert!(exported >= last, "seed {seed}: fell from {last} to {exported}");
            assert!(account.processes() <= 16);
            last = exported;
        }
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let share = last as f64 / kernel.truth.max(1) as f64;
        exported_part += share / 300.0;
    }
    assert!(exported_part > 0.85, "a bound that is too low is of no use: {exported_part}");
}

#[test]
fn all_is_exported_when_every_child_is_waited_for() {
    for seed in 1..=100 {
        let mut kernel = Kernel::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        kernel.unruly = false;
        kernel.busy = seed % 4;
        let mut account = Account::default();
        for _ in 0..30 {
            for _ in 0..kernel.below(12) {
                kernel.happens();
            }
            kernel.look(&mut account);
        }
        kernel.busy = 0;
        while let Some(pid) = kernel.any(|p| p.state == State::Zombie) {
            kernel.reap(pid);
        }
        kernel.processes.retain(|_, p| p.state == State::Alive);
        // A pid that came again is seen at the second look.
        kernel.look(&mut account);
        assert_eq!(kernel.look(&mut account), kernel.truth, "seed {seed}");
    }
}

#[test]
fn a_child_that_is_waited_for_moves_and_is_not_counted_twice() {
    let mut kernel = Kernel::new(1);
    let mut account = Account::default();
    let child = kernel.fork(STEPD);
    kernel.does(child, 1000);
    assert_eq!(kernel.look(&mut account), 1000);
    kernel.exit(child);
    assert_eq!(kernel.look(&mut account), 1000, "a zombie is in no list and still there");
    kernel.reap(child);
    assert_eq!(kernel.look(&mut account), 1000, "being reaped");
    kernel.processes.remove(&child);
    assert_eq!(kernel.look(&mut account), 1000);
    assert_eq!(account.carried, Counters::default());
}

#[test]
fn an_orphan_that_init_reaps_is_carried_on_whatever_the_others_do() {
    let mut kernel = Kernel::new(1);
    kernel.unruly = false;
    let mut account = Account::default();
    let shell = kernel.fork(STEPD);
    let daemon = kernel.fork(shell);
    kernel.processes.get_mut(&shell).unwrap().subreaper = false;
    kernel.end(shell);
    kernel.does(daemon, 1000);
    kernel.look(&mut account);
    kernel.end(daemon);
    kernel.does(STEPD, 5000);
    assert_eq!(kernel.look(&mut account), 6000);
}

#[test]
fn a_child_that_its_parent_ignores_is_carried_on_as_far_as_it_is_proven() {
    let mut kernel = Kernel::new(1);
    let mut account = Account::default();
    let shell = kernel.fork(STEPD);
    kernel.processes.get_mut(&shell).unwrap().ignores_children = true;
    let child = kernel.fork(shell);
    kernel.does(child, 1000);
    kernel.look(&mut account);
    kernel.end(child);
    kernel.does(shell, 300);
    assert_eq!(kernel.look(&mut account), 1000, "300 of the shell may be the child's");
    assert_eq!(account.carried.0[0], 700);
    kernel.does(shell, 300);
    assert_eq!(kernel.look(&mut account), 1300);
}

#[test]
fn a_zombie_has_lost_its_children_to_another_parent() {
    let mut kernel = Kernel::new(1);
    kernel.unruly = false;
    let mut account = Account::default();
    let shell = kernel.fork(STEPD);
    let child = kernel.fork(shell);
    for (pid, subreaper) in [(STEPD, true), (shell, false)] {
        kernel.processes.get_mut(&pid).unwrap().subreaper = subreaper;
    }
    kernel.does(child, 1000);
    kernel.look(&mut account);
    kernel.exit(shell);
    kernel.end(child);
    assert_eq!(kernel.look(&mut account), 1000, "slurmstepd got it, not the shell");
    assert_eq!(account.carried, Counters::default());
}

#[test]
fn a_slurmstepd_and_a_session_from_outside_leave_their_numbers_when_they_end() {
    let mut kernel = Kernel::new(1);
    let mut account = Account::default();
    kernel.processes.get_mut(&STEPD).unwrap().ppid = 999;
    let other = kernel.fork(STEPD);
    let session = kernel.fork(STEPD);
    kernel.processes.get_mut(&other).unwrap().ppid = INIT;
    kernel.processes.get_mut(&session).unwrap().ppid = 998;
    kernel.does(STEPD, 1000);
    kernel.does(session, 500);
    kernel.look(&mut account);
    kernel.look(&mut account);
    kernel.processes.remove(&STEPD);
    kernel.processes.remove(&session);
    kernel.does(other, 5000);
    assert_eq!(kernel.look(&mut account), 6500);
}

#[test]
fn a_pid_that_comes_again_is_another_process() {
    let mut kernel = Kernel::new(1);
    let mut account = Account::default();
    let first = kernel.fork(STEPD);
    kernel.does(first, 1000);
    kernel.look(&mut account);
    kernel.end(first);
    let second = kernel.fork(STEPD);
    assert_eq!(first, second);
    kernel.does(second, 10);
    for _ in 0..2 {
        kernel.look(&mut account);
    }
    assert_eq!(kernel.look(&mut account), 1010);
}
