//! The two programs: one at each switch between tasks, which goes on only if their cgroups differ, and one at each reading.

use bpf::assemble::{AssembleError, Condition, Helper, Label};
use bpf::{Assembler, Register, Width};

use crate::cgroup::MOST_LEVELS;
use crate::hierarchy::Hierarchy;
use crate::layout::{Layout, TIMES, state};

/// Descriptors of the maps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maps {
    /// By number of event and CPU ([`place`]).
    pub(crate) events: i32,
    /// By CPU.
    pub(crate) states: i32,
    /// By cgroup and CPU.
    pub(crate) entries: i32,
    /// One entry ([`levels`]): bit n of a word is set when there are such cgroups of level n.
    pub(crate) levels: i32,
    /// Where cgroups may be followed.
    pub(crate) followed: Option<FollowedMaps>,
}

/// Descriptors of the maps of followed cgroups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowedMaps {
    /// By cgroup ([`followed`]).
    pub(crate) cgroups: i32,
    /// By cgroup and CPU. The program makes them.
    pub(crate) entries: i32,
}

/// Words of the map of followed cgroups.
pub(crate) mod followed {
    /// Not 0 when an entry was refused.
    pub(crate) const REFUSED: usize = 0;
    /// How many entries were made.
    pub(crate) const MADE: usize = 1;
    /// How many these are.
    pub(crate) const WORDS: usize = 2;
}

/// Words of the map of levels.
pub(crate) mod levels {
    /// Registered cgroups.
    pub(crate) const REGISTERED: usize = 0;
    /// Followed ones.
    pub(crate) const FOLLOWED: usize = 1;
    /// How many these are.
    pub(crate) const WORDS: usize = 2;
}

/// When the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// At each switch.
    Switch,
    /// When this process starts it, with what to do and the cgroup whose entry is asked for, or 0 for the rest.
    Started,
}

/// What the program that is started is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Order {
    /// Takes in what was counted.
    Read = 0,
    /// Counting begins. What was counted before belongs to no cgroup.
    Begin = 1,
    /// Takes in what was counted, and counting ends.
    End = 2,
}

/// What the program that is started returns.
pub(crate) mod answer {
    /// The entry is in the CPU's state.
    pub(crate) const DONE: i32 = 0;
    /// No such entry.
    pub(crate) const NO_ENTRY: i32 = 1;
    /// The CPU is not counted.
    pub(crate) const NOT_READY: i32 = 2;
    /// An event could not be read.
    pub(crate) const UNREAD: i32 = 3;
}

/// Where an event of a CPU is in the map of events.
pub(crate) fn place(number: usize, cpu: u32, cpus: u32) -> Option<u32> {
    u32::try_from(number).ok()?.checked_mul(cpus)?.checked_add(cpu)
}

/// Below the end of the stack.
mod stack {
    /// A 32-bit key of a map.
    pub(super) const KEY: i16 = -8;
    /// `struct bpf_perf_event_value`: count, enabled, running.
    pub(super) const VALUE: i16 = -32;
    pub(super) const VALUE_SIZE: i32 = 24;
    /// The key of an entry: cgroup and CPU.
    pub(super) const CGROUP: i16 = -48;
    pub(super) const CPU: i16 = -40;
    /// What is to be done.
    pub(super) const ORDER: i16 = -56;
    pub(super) const ASKED: i16 = -64;
    /// Whether an entry was found.
    pub(super) const FOUND: i16 = -72;
    /// What is kept of a followed cgroup.
    pub(super) const FOLLOWED: i16 = -80;
    /// Whether a switch was not seen.
    pub(super) const UNSEEN: i16 = -88;
}

/// The task that is switched to, among the arguments of the tracepoint `sched_switch` (include/trace/events/sched.h).
const NEXT: i16 = 16;

/// Stands for the pid of a task to which the CPU switches and of which nothing is known. A pid has 32 bits.
const ANY_TASK: i32 = -1;
/// The same where the next interval is to be no cgroup's.
const NO_TASK: i32 = -2;

/// `ENOENT`, which is what the kernel answers for a place without an event.
const NO_EVENT: i32 = -2;
/// include/uapi/linux/bpf.h, `BPF_NOEXIST`: makes an entry, and does not set one.
const ONLY_MAKE: i32 = 1;
/// include/linux/err.h, `MAX_ERRNO`.
const MOST_ERRNO: i32 = 4095;

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
const DOUBLE: Width = Width::Double;

/// Of a word.
fn offset(word: usize) -> i16 {
    // `Layout` has no more words than that.
    i16::try_from(word * 8).unwrap_or(i16::MAX)
}

/// Puts the place of an event of this CPU (in `R7`) where the kernel wants it.
fn name_event(asm: &mut Assembler, maps: Maps, number: usize, cpus: u32) {
    let first = place(number, 0, cpus).and_then(|first| i32::try_from(first).ok()).unwrap_or(i32::MAX);
    asm.map(R1, maps.events).copy(R2, R7).add(R2, first);
}

/// Reads a leader with its times onto the stack. What this kind of core does not have is 0: the kernel clears the buffer.
fn read_leader(asm: &mut Assembler, maps: Maps, number: usize, cpus: u32, unread: Label) {
    let next = asm.label();
    name_event(asm, maps, number, cpus);
    asm.copy(R3, R10).add(R3, i32::from(stack::VALUE)).set(R4, stack::VALUE_SIZE).call(Helper::ReadPerfEvent);
    asm.jump_if(R0, Condition::Equal, 0, next).jump_if(R0, Condition::NotEqual, NO_EVENT, unread).place(next);
}

/// Reads a count into `R0`: working out times that are not wanted is most of what the other way takes.
fn read_count(asm: &mut Assembler, maps: Maps, number: usize, cpus: u32, unread: Label) {
    let [there, next] = [(); 2].map(|()| asm.label());
    name_event(asm, maps, number, cpus);
    asm.call(Helper::CountPerfEvent).jump_if(R0, Condition::NotEqual, NO_EVENT, there);
    asm.set(R0, 0)
        .jump(next)
        .place(there)
        .jump_if(R0, Condition::Greater, -MOST_ERRNO - 1, unread)
        .place(next);
}

/// Copies the third of `struct bpf_perf_event_value` that is this far in, to a word of the state (in `R8`).
fn keep(asm: &mut Assembler, third: i16, word: usize) {
    asm.load(DOUBLE, R1, R10, stack::VALUE + third).store(DOUBLE, R8, offset(word), R1);
}

/// Adds what came since the last interval to the words from `to` on behind `R0` or `R8`.
fn add_more(asm: &mut Assembler, layout: &Layout, base: Register, to: usize) {
    for word in 0..layout.words {
        asm.load(DOUBLE, R1, R8, offset(layout.more() + word))
            .load(DOUBLE, R2, base, offset(to + word))
            .add_register(R2, R1)
            .store(DOUBLE, base, offset(to + word), R2);
    }
}

/// Looks up what the key on the stack leads to.
fn look_up(asm: &mut Assembler, map: i32, key: i16) {
    asm.map(R1, map).copy(R2, R10).add(R2, i32::from(key)).call(Helper::MapLookup);
}

/// Writes a program down, for a machine whose CPUs are numbered below `cpus`.
pub(crate) fn write(
    when: When,
    hierarchy: &Hierarchy,
    layout: &Layout,
    maps: Maps,
    cpus: u32,
) -> Result<Vec<[u8; 8]>, AssembleError> {
    let started = when == When::Started;
    let mut assembler = Assembler::default();
    let asm = &mut assembler;
    let [not_ready, unread, done] = [(); 3].map(|()| asm.label());
    if started {
        asm.load(DOUBLE, R2, R1, 0).store(DOUBLE, R10, stack::ORDER, R2);
        asm.load(DOUBLE, R2, R1, 8).store(DOUBLE, R10, stack::ASKED, R2);
    } else {
        asm.load(DOUBLE, R6, R1, NEXT);
    }
    // R7 is the CPU, R8 its state.
    asm.call(Helper::CurrentCpu).copy(R7, R0).store(Width::Word, R10, stack::KEY, R7);
    asm.store(DOUBLE, R10, stack::CPU, R7);
    look_up(asm, maps.states, stack::KEY);
    asm.jump_if(R0, Condition::Equal, 0, not_ready).copy(R8, R0);
    let begins = asm.label();
    if started {
        asm.load(DOUBLE, R1, R10, stack::ORDER).jump_if(R1, Condition::Equal, Order::Begin as i32, begins);
    }
    asm.load(DOUBLE, R1, R8, offset(state::READY)).jump_if(R1, Condition::Equal, 0, not_ready);
    asm.place(begins);
    look_for_unseen(asm, when, hierarchy);
    if !started {
        pass_over(asm, hierarchy, done);
    }
    read_all(asm, layout, maps, cpus, unread);

    // What is more than at the last interval.
    for word in 0..layout.words {
        asm.load(DOUBLE, R1, R8, offset(layout.more() + word))
            .load(DOUBLE, R2, R8, offset(layout.last() + word))
            .store(DOUBLE, R8, offset(layout.last() + word), R1)
            .subtract(R1, R2)
            .store(DOUBLE, R8, offset(layout.more() + word), R1);
    }
    let [to_rest, seen, taken_in] = [(); 3].map(|()| asm.label());
    if started {
        asm.load(DOUBLE, R1, R10, stack::ORDER).jump_if(R1, Condition::Equal, Order::Begin as i32, to_rest);
    }
    asm.load(DOUBLE, R1, R10, stack::UNSEEN).jump_if(R1, Condition::Equal, 0, seen);
    count(asm, state::UNSEEN);
    asm.jump(to_rest).place(seen);
    to_cgroups(asm, hierarchy, layout, maps, to_rest);
    asm.jump(taken_in).place(to_rest);
    add_more(asm, layout, R8, layout.rest());
    asm.place(taken_in);
    if started {
        obey(asm, layout, maps);
    }
    asm.place(done).set(R0, answer::DONE).exit();
    asm.place(not_ready).set(R0, answer::NOT_READY).exit();
    asm.place(unread);
    count(asm, state::UNREAD);
    // The next interval has what this one has, too.
    asm.store_value(DOUBLE, R8, offset(state::TASK), NO_TASK).set(R0, answer::UNREAD).exit();
    assembler.finish()
}

/// Adds 1 to a word of the state (in `R8`).
fn count(asm: &mut Assembler, word: usize) {
    asm.load(DOUBLE, R1, R8, offset(word)).add(R1, 1).store(DOUBLE, R8, offset(word), R1);
}

/// Finds out whether the current task is the one to which the CPU switched last, and at a switch takes note of the one in `R6`. Otherwise
/// a switch was not seen, and what the CPU counted since is that of several tasks: it belongs to no cgroup. Seen in virtual
/// machines whose kernel raises no event when certain threads leave the CPU.
fn look_for_unseen(asm: &mut Assembler, when: When, task: &Hierarchy) {
    let [seen, noted] = [(); 2].map(|()| asm.label());
    asm.store_value(DOUBLE, R10, stack::UNSEEN, 0).call(Helper::CurrentTask);
    asm.load(Width::Word, R1, R0, task.pid).load(DOUBLE, R2, R8, offset(state::TASK));
    if when == When::Switch {
        // Linux 5.18 has another argument there, which is the current task.
        asm.store_value(DOUBLE, R8, offset(state::TASK), ANY_TASK).jump_if_same(R0, R6, noted);
        asm.load(Width::Word, R3, R6, task.pid).store(DOUBLE, R8, offset(state::TASK), R3);
    } else {
        asm.store(DOUBLE, R8, offset(state::TASK), R1);
    }
    asm.place(noted).jump_if_same(R1, R2, seen).jump_if(R2, Condition::Equal, ANY_TASK, seen);
    asm.store_value(DOUBLE, R10, stack::UNSEEN, 1).place(seen);
}

/// Ends the program if the task in `R6`, to which the CPU switches, is in the same cgroup as the current one, and all switches were seen.
/// Not in the root: what runs there may move itself into a job, which would be charged with all that others did there before.
fn pass_over(asm: &mut Assembler, task: &Hierarchy, done: Label) {
    let differs = asm.label();
    asm.load(DOUBLE, R1, R10, stack::UNSEEN).jump_if(R1, Condition::NotEqual, 0, differs);
    asm.call(Helper::CurrentTask).jump_if_same(R0, R6, differs);
    asm.load(DOUBLE, R9, R0, task.cgroups).load(DOUBLE, R9, R9, task.state);
    asm.load(DOUBLE, R1, R9, task.parent).jump_if(R1, Condition::Equal, 0, differs);
    asm.load(DOUBLE, R6, R6, task.cgroups).load(DOUBLE, R6, R6, task.state);
    asm.jump_if_same(R6, R9, done).place(differs);
}

/// Reads every event into the words of what is more.
fn read_all(asm: &mut Assembler, layout: &Layout, maps: Maps, cpus: u32, unread: Label) {
    for group in &layout.places {
        read_leader(asm, maps, group.event, cpus, unread);
        keep(asm, 8, layout.more() + group.word);
        keep(asm, 16, layout.more() + group.word + 1);
        keep(asm, 0, layout.more() + group.word + TIMES);
        for event in 1..group.events {
            read_count(asm, maps, group.event + event, cpus, unread);
            asm.store(DOUBLE, R8, offset(layout.more() + group.word + TIMES + event), R0);
        }
    }
}

/// Adds what is more to the entries of the cgroups that the running task is in, or goes on at a label if there is none.
fn to_cgroups(asm: &mut Assembler, hierarchy: &Hierarchy, layout: &Layout, maps: Maps, none: Label) {
    asm.store_value(DOUBLE, R10, stack::FOUND, 0);
    each_level(asm, hierarchy, maps, levels::REGISTERED, |asm, next| {
        look_up(asm, maps.entries, stack::CGROUP);
        asm.jump_if(R0, Condition::Equal, 0, next);
        add_more(asm, layout, R0, 0);
        asm.store_value(DOUBLE, R10, stack::FOUND, 1);
    });
    asm.load(DOUBLE, R1, R10, stack::FOUND).jump_if(R1, Condition::Equal, 0, none);
    // Followed ones are below a registered one.
    let Some(FollowedMaps { cgroups, entries }) = maps.followed else { return };
    each_level(asm, hierarchy, maps, levels::FOLLOWED, |asm, next| {
        let [known, refused] = [(); 2].map(|()| asm.label());
        look_up(asm, entries, stack::CGROUP);
        asm.jump_if(R0, Condition::NotEqual, 0, known);
        look_up(asm, cgroups, stack::CGROUP);
        asm.jump_if(R0, Condition::Equal, 0, next).store(DOUBLE, R10, stack::FOLLOWED, R0);
        // The first time on this CPU: what is more is all.
        asm.map(R1, entries).copy(R2, R10).add(R2, i32::from(stack::CGROUP));
        asm.copy(R3, R8).add(R3, i32::from(offset(layout.more()))).set(R4, ONLY_MAKE).call(Helper::MapUpdate);
        asm.load(DOUBLE, R2, R10, stack::FOLLOWED);
        asm.jump_if(R0, Condition::NotEqual, 0, refused).set(R1, 1);
        // Other CPUs make theirs.
        asm.add_atomically(DOUBLE, R2, offset(followed::MADE), R1).jump(next);
        asm.place(refused).store_value(DOUBLE, R2, offset(followed::REFUSED), 1).jump(next);
        asm.place(known);
        add_more(asm, layout, R0, 0);
    });
}

/// Goes over the levels of a word of the map of levels. `body` has the running task's cgroup of the level on the stack, as a key
/// begins, and goes on at the label. It leaves `R6`, `R7` and `R9` alone.
fn each_level(
    asm: &mut Assembler,
    task: &Hierarchy,
    maps: Maps,
    word: usize,
    body: impl FnOnce(&mut Assembler, Label),
) {
    let [level, next, end] = [(); 3].map(|()| asm.label());
    asm.store_value(Width::Word, R10, stack::KEY, 0);
    look_up(asm, maps.levels, stack::KEY);
    // R6 has the bits of the levels, R7 a cgroup's state, from the task's own cgroup on, and R9 counts up to the most levels.
    asm.jump_if(R0, Condition::Equal, 0, end).load(DOUBLE, R6, R0, offset(word)).set(R9, 0);
    asm.call(Helper::CurrentTask).load(DOUBLE, R7, R0, task.cgroups).load(DOUBLE, R7, R7, task.state);
    asm.place(level).jump_if(R7, Condition::Equal, 0, end).load(DOUBLE, R2, R7, task.cgroup);
    asm.load(DOUBLE, R7, R7, task.parent).load(Width::Word, R3, R2, task.level);
    asm.copy(R1, R6).shift_right_by(R1, R3).and(R1, 1).jump_if(R1, Condition::Equal, 0, next);
    asm.load(DOUBLE, R2, R2, task.node).load(task.inode, R0, R2, task.id);
    asm.store(DOUBLE, R10, stack::CGROUP, R0);
    body(asm, next);
    asm.place(next).add(R9, 1);
    asm.jump_if(R9, Condition::Less, i32::try_from(MOST_LEVELS).unwrap_or(0), level).place(end);
}

/// Begins or ends, and copies the entry that is asked for to where the answer is.
fn obey(asm: &mut Assembler, layout: &Layout, maps: Maps) {
    let [end, is_set, rest, found] = [(); 4].map(|()| asm.label());
    asm.load(DOUBLE, R1, R10, stack::ORDER);
    asm.jump_if(R1, Condition::Equal, Order::Read as i32, is_set).jump_if(
        R1,
        Condition::Equal,
        Order::End as i32,
        end,
    );
    asm.store_value(DOUBLE, R8, offset(state::READY), 1).jump(is_set);
    asm.place(end).store_value(DOUBLE, R8, offset(state::READY), 0).place(is_set);
    asm.load(DOUBLE, R1, R10, stack::ASKED).jump_if(R1, Condition::Equal, 0, rest);
    asm.store(DOUBLE, R10, stack::CGROUP, R1);
    for entries in [Some(maps.entries), maps.followed.map(|followed| followed.entries)].into_iter().flatten()
    {
        look_up(asm, entries, stack::CGROUP);
        asm.jump_if(R0, Condition::NotEqual, 0, found);
    }
    asm.set(R0, answer::NO_ENTRY).exit();
    asm.place(rest).copy(R0, R8).add(R0, i32::from(offset(layout.rest()))).place(found);
    for word in 0..layout.words {
        asm.load(DOUBLE, R1, R0, offset(word)).store(DOUBLE, R8, offset(layout.answer() + word), R1);
    }
}
