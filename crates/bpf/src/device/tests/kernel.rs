//! Held against the kernel itself: what it lets a process open, and what it shows of the programs that say so.

use std::fs::File;

use jobledger_testkit::cgroups::{OwnedGroup, cgroup2_mount, make_group, skip_without_groups};
use jobledger_testkit::device_programs::{
    ALLOW_MULTI, ALLOW_OVERRIDE, Opener, array, attach, attached, load,
};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// What the kernel shows of the programs in effect, followed for a device.
fn outcome_of(group: &std::path::Path, block: bool, major: u32, minor: u32) -> Option<Outcome> {
    let dir = rustix::fs::open(group, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let mut room = [0; MOST_PROGRAMS];
    let ids = effective(&dir, &mut room).unwrap().unwrap();
    let outcomes = ids.iter().map(|id| {
        let code = Seen::by_id(*id).unwrap().unwrap().instructions().unwrap().unwrap();
        ask(&code, kind(block), major, minor)
    });
    outcomes.reduce(Outcome::and)
}

#[test]
fn the_kernel_decides_every_shape_as_predicted_here() {
    if skip_without_groups() {
        return;
    }
    let group = OwnedGroup::below(&cgroup2_mount().unwrap(), "devices");
    let mut opener = Opener::start(group.path());
    for (name, code) in shapes() {
        attach(group.path(), &load(&code).unwrap_or_else(|e| panic!("{name}: {e}")), ALLOW_OVERRIDE).unwrap();
        for (block, major, minor) in NODES {
            let expected = if opener.may_open(block, major, minor) { Allowed } else { Denied };
            assert_eq!(
                outcome_of(group.path(), block, major, minor),
                Some(expected),
                "{name}: {major}:{minor}"
            );
        }
    }
}

#[test]
fn the_kernel_decides_any_program_as_predicted_here() {
    if skip_without_groups() {
        return;
    }
    let group = OwnedGroup::below(&cgroup2_mount().unwrap(), "devices-any");
    let mut opener = Opener::start(group.path());
    let mut runner = TestRunner::deterministic();
    let (mut taken, mut denied) = (0, 0);
    for _ in 0..300 {
        let code = any_program().new_tree(&mut runner).unwrap().current();
        // The verifier refuses what it cannot prove, such as a register that a way to the end leaves unwritten.
        let Ok(program) = load(&code) else { continue };
        taken += 1;
        attach(group.path(), &program, ALLOW_OVERRIDE).unwrap();
        for (block, major, minor) in [(false, 1, 3), (false, 1, 9), (false, 195, 1), (true, 7, 200)] {
            let expected = if opener.may_open(block, major, minor) { Allowed } else { Denied };
            denied += u32::from(expected == Denied);
            assert_eq!(ask(&code, kind(block), major, minor), expected, "{code:02x?}");
            assert_eq!(
                outcome_of(group.path(), block, major, minor),
                Some(expected),
                "{code:02x?} as it runs"
            );
        }
    }
    assert!(taken > 200 && (200..1000).contains(&denied), "{taken} programs, {denied} times denied");
}

/// Directories as SLURM makes them: a job's, a step's without a program of its own, a task's.
#[test]
fn what_is_inherited_is_in_effect_and_asking_changes_nothing_that_is_attached() {
    if skip_without_groups() {
        return;
    }
    let job = OwnedGroup::below(&cgroup2_mount().unwrap(), "devices-job");
    let (step, task) = (job.path().join("step_0"), job.path().join("step_0/task_0"));
    make_group(&step);
    make_group(&task);
    assert_eq!(outcome_of(job.path(), false, 195, 0), None, "no program: nothing is known");
    attach(job.path(), &load(&slurm(&gpus("0110"))).unwrap(), ALLOW_OVERRIDE).unwrap();
    attach(&task, &load(&slurm(&gpus("0100"))).unwrap(), 0).unwrap();
    let groups = [job.path(), step.as_path(), task.as_path()];
    let before = groups.map(attached);
    assert_eq!(before[1].0, [] as [u32; 0]);
    assert_eq!(before[1].2, before[0].0, "inherited");
    let bits =
        |group| (0..4).map(|minor| outcome_of(group, false, 195, minor) == Some(Allowed)).collect::<Vec<_>>();
    for _ in 0..3 {
        assert_eq!(bits(job.path()), [false, true, true, false]);
        assert_eq!(bits(&step), [false, true, true, false]);
        assert_eq!(bits(&task), [false, true, false, false]);
    }
    assert_eq!(groups.map(attached), before);
    let mut opener = Opener::start(&task);
    let opened: Vec<bool> = (0..4).map(|minor| opener.may_open(false, 195, minor)).collect();
    assert_eq!(opened, bits(&task), "still in force");
}

#[test]
fn programs_that_run_side_by_side_all_have_to_allow() {
    if skip_without_groups() {
        return;
    }
    let outer = OwnedGroup::below(&cgroup2_mount().unwrap(), "devices-multi");
    let inner = outer.path().join("inner");
    make_group(&inner);
    let table = array().unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&table);
    // Looks into a map and allows everything: not followed.
    let calling = [
        i(0x62, 10, 0, -4, 0),
        i(0xbf, 2, 10, 0, 0),
        i(0x07, 2, 0, 0, -4),
        i(0x18, 1, 1, 0, descriptor),
        i(0, 0, 0, 0, 0),
        i(0x85, 0, 0, 0, 1),
        i(0xb7, 0, 0, 0, 1),
        EXIT,
    ];
    attach(outer.path(), &load(&calling).unwrap(), ALLOW_MULTI).unwrap();
    assert!(matches!(outcome_of(&inner, false, 195, 0), Some(NotFollowed(_))));
    attach(&inner, &load(&slurm(&gpus("01"))).unwrap(), ALLOW_MULTI).unwrap();
    assert_eq!(attached(&inner).2.len(), 2);
    assert_eq!(outcome_of(&inner, false, 195, 0), Some(Denied), "denied whatever the other says");
    assert!(matches!(outcome_of(&inner, false, 195, 1), Some(NotFollowed(_))));
    attach(outer.path(), &load(&systemd(&[(195, 1)])).unwrap(), ALLOW_MULTI).unwrap();
    let mut opener = Opener::start(&inner);
    assert_eq!((opener.may_open(false, 195, 0), opener.may_open(false, 195, 1)), (false, true));
}

#[test]
fn a_group_that_is_gone_and_what_is_no_group_are_errors() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "devices-gone");
    let gone = top.path().join("gone");
    make_group(&gone);
    let dir = File::open(&gone).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    let mut room = [0; MOST_PROGRAMS];
    assert_eq!(effective(&dir, &mut room).unwrap_err().errno, Errno::NOENT);
    assert_eq!(effective(File::open("/").unwrap(), &mut room).unwrap_err().errno, Errno::BADF);
    assert_eq!(
        effective(File::open(top.path().join("cgroup.procs")).unwrap(), &mut room).unwrap_err().errno,
        Errno::BADF
    );
    assert!(Seen::by_id(u32::MAX).unwrap().is_none());
}
