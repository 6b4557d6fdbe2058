use std::fs::File;
use std::os::fd::AsFd;

use jobledger_testkit::cgroups::{OwnedGroup, cgroup2_mount, make_group, skip_without_groups};
use jobledger_testkit::device_programs::{
    ALLOW_MULTI, ALLOW_OVERRIDE, Rule, array, attach, attached, instruction, load, slurm,
};

use super::*;

fn gpus(count: u32) -> Vec<DeviceNode> {
    (0..count).map(|minor| DeviceNode { major: 195, minor }).collect()
}

fn program(allowed: &str) -> std::os::fd::OwnedFd {
    let rule = |(minor, allowed)| Rule { allowed: allowed == '1', major: 195, minor };
    load(&slurm(&(0..).zip(allowed.chars()).map(rule).collect::<Vec<_>>())).unwrap()
}

fn allowed(device_access: &DeviceAccess) -> String {
    match device_access {
        DeviceAccess::Allowed { nodes, .. } => {
            nodes.iter().map(|node| if *node { '1' } else { '0' }).collect()
        }
        other => format!("{other:?}"),
    }
}

fn ask(
    access_source: &mut KernelDeviceAccess,
    group: &std::path::Path,
    nodes: &[DeviceNode],
) -> DeviceAccess {
    let dir = File::open(group).unwrap();
    access_source.ask(&[dir.as_fd()], nodes).unwrap().pop().unwrap().unwrap()
}

#[test]
fn what_is_remembered_is_what_programs_are_and_not_their_numbers() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "verdicts");
    let (one, two) = (top.path().join("job_1"), top.path().join("job_2"));
    make_group(&one);
    make_group(&two);
    let mut access_source = KernelDeviceAccess::default();
    assert_eq!(ask(&mut access_source, &one, &gpus(4)), DeviceAccess::NoProgram);
    attach(&one, &program("1100"), ALLOW_OVERRIDE).unwrap();
    attach(&two, &program("0010"), ALLOW_OVERRIDE).unwrap();
    let first = ask(&mut access_source, &one, &gpus(4));
    assert_eq!(
        first,
        DeviceAccess::Allowed { nodes: vec![true, true, false, false], programs: attached(&one).2 }
    );
    assert_eq!(allowed(&ask(&mut access_source, &two, &gpus(4))), "0010");
    assert_eq!((access_source.answers.len(), access_source.numbers.len()), (2, 2));
    // The next step: the same program under another number.
    attach(&one, &program("1100"), ALLOW_OVERRIDE).unwrap();
    let second = ask(&mut access_source, &one, &gpus(4));
    assert!(first != second && allowed(&second) == "1100", "{first:?} {second:?}");
    assert_eq!((access_source.answers.len(), access_source.numbers.len()), (2, 3));
    // A new right is seen at once.
    attach(&one, &program("1000"), ALLOW_OVERRIDE).unwrap();
    assert_eq!(allowed(&ask(&mut access_source, &one, &gpus(4))), "1000");
    // Other devices are other questions of the same programs.
    let others: Vec<DeviceNode> = gpus(4).into_iter().rev().collect();
    assert_eq!(allowed(&ask(&mut access_source, &one, &others)), "0001");
    assert_eq!(allowed(&ask(&mut access_source, &two, &others)), "0100");
    assert_eq!(allowed(&ask(&mut access_source, &two, &[])), "");
    assert_eq!(allowed(&ask(&mut access_source, &two, &gpus(5))), "00101", "what no rule names is allowed");
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "verdicts-many");
    let mut access_source = KernelDeviceAccess::default();
    let count = MOST_ANSWERS + 10;
    for n in 0..count {
        let wanted = format!("{n:012b}");
        attach(top.path(), &program(&wanted), ALLOW_OVERRIDE).unwrap();
        assert_eq!(allowed(&ask(&mut access_source, top.path(), &gpus(12))), wanted);
        assert!(access_source.answers.len() <= MOST_ANSWERS);
    }
    assert!(
        access_source.numbers.len() <= 2 * usize::try_from(ROUNDS).unwrap(),
        "{}",
        access_source.numbers.len()
    );
    for _ in 0..2 * ROUNDS {
        ask(&mut access_source, top.path(), &gpus(12));
    }
    assert_eq!(access_source.numbers.len(), 1, "only what is in effect is known by its number");
}

#[test]
fn each_cgroup_has_an_answer_of_its_own() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "verdicts-each");
    let groups = ["followed", "calling", "both", "gone"].map(|name| top.path().join(name));
    groups.iter().for_each(|group| make_group(group));
    let table = array().unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&table);
    let looks_into_a_map = load(&[
        instruction(0x62, 10, 0, -4, 0),
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, -4),
        instruction(0x18, 1, 1, 0, descriptor),
        instruction(0, 0, 0, 0, 0),
        instruction(0x85, 0, 0, 0, 1),
        instruction(0xb7, 0, 0, 0, 1),
        instruction(0x95, 0, 0, 0, 0),
    ])
    .unwrap();
    attach(&groups[0], &program("01"), ALLOW_OVERRIDE).unwrap();
    attach(&groups[1], &looks_into_a_map, ALLOW_OVERRIDE).unwrap();
    attach(&groups[2], &looks_into_a_map, ALLOW_MULTI).unwrap();
    attach(&groups[2], &program("00"), ALLOW_MULTI).unwrap();
    let dirs = groups.each_ref().map(|group| File::open(group).unwrap());
    std::fs::remove_dir(&groups[3]).unwrap();
    let answers = KernelDeviceAccess::default().ask(&dirs.each_ref().map(AsFd::as_fd), &gpus(2)).unwrap();
    assert_eq!(allowed(answers[0].as_ref().unwrap()), "01");
    assert_eq!(answers[1], Ok(DeviceAccess::NotFollowed));
    let both = DeviceAccess::Allowed { nodes: vec![false, false], programs: attached(&groups[2]).2 };
    assert_eq!(answers[2], Ok(both), "denied, whatever the other program does");
    assert_eq!(answers[3].as_ref().unwrap_err().reason(), "io");
    assert!(answers[3].as_ref().unwrap_err().to_string().contains("device programs"), "{:?}", answers[3]);
}

#[test]
fn without_the_capability_it_is_denied() {
    if skip_without_groups() {
        return;
    }
    use rustix::thread::CapabilitySet;
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "verdicts-denied");
    attach(top.path(), &program("01"), ALLOW_OVERRIDE).unwrap();
    let dir = File::open(top.path()).unwrap();
    for kept in [CapabilitySet::empty(), CapabilitySet::NET_ADMIN] {
        let dir = dir.try_clone().unwrap();
        let refused = std::thread::spawn(move || {
            privileges::drop_capabilities(kept).unwrap();
            KernelDeviceAccess::default().ask(&[dir.as_fd()], &gpus(2)).unwrap_err()
        });
        let refused = refused.join().unwrap();
        assert_eq!(refused.to_string(), "denied: the programs that guard the devices of jobs");
    }
    let many = KernelDeviceAccess::default().ask(&[dir.as_fd()], &gpus(1025)).unwrap_err();
    assert_eq!(many.reason(), "unsupported");
}

#[test]
fn refusals_of_the_kernel_are_distinguished() {
    for (errno, everywhere, reason) in [
        (Errno::PERM, true, "denied"),
        (Errno::ACCESS, true, "denied"),
        (Errno::NOSYS, true, "unsupported"),
        (Errno::INVAL, true, "unsupported"),
        (Errno::NOENT, false, "io"),
        (Errno::BADF, false, "io"),
        (Errno::NOMEM, false, "io"),
        (Errno::AGAIN, false, "io"),
    ] {
        let (is_everywhere, error) = match fault(errno) {
            Fault::Everywhere(error) => (true, error),
            Fault::Here(error) => (false, error),
        };
        assert_eq!((is_everywhere, error.reason()), (everywhere, reason), "{errno}");
    }
}

#[test]
fn a_program_that_is_replaced_meanwhile_is_asked_again() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "verdicts-race");
    attach(top.path(), &program("10"), ALLOW_OVERRIDE).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..500 {
                attach(top.path(), &program(if n % 2 == 0 { "01" } else { "10" }), ALLOW_OVERRIDE).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut access_source = KernelDeviceAccess::default();
        let mut asked = [0, 0];
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            match &*allowed(&ask(&mut access_source, top.path(), &gpus(2))) {
                "10" => asked[0] += 1,
                "01" => asked[1] += 1,
                other => panic!("{other}"),
            }
        }
        asked
    });
    assert!(asked.iter().all(|times| *times > 0), "{asked:?}");
}
