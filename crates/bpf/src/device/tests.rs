//! Held against the instruction set and against another interpreter; [`kernel`] against the kernel.

mod kernel;

use jobledger_testkit::device_programs::{Rule, instruction as i, slurm};
use proptest::prelude::*;

use super::Outcome::{Allowed, Denied, NotFollowed};
use super::*;

type Code = Vec<[u8; 8]>;

fn ask(code: &[[u8; 8]], kind: DeviceKind, major: u32, minor: u32) -> Outcome {
    evaluate(code, Access::READ_WRITE, kind, major, minor)
}

fn ask_character(code: &[[u8; 8]], major: u32, minor: u32) -> Outcome {
    ask(code, DeviceKind::Character, major, minor)
}

/// Loads of the question as everybody begins: kind in R2, access in R3, major in R4, minor in R5.
fn prelude() -> Code {
    vec![
        i(0x61, 2, 1, 0, 0),
        i(0x54, 2, 0, 0, 0xffff),
        i(0x61, 3, 1, 0, 0),
        i(0x74, 3, 0, 0, 16),
        i(0x61, 4, 1, 4, 0),
        i(0x61, 5, 1, 8, 0),
    ]
}

const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// In the manner of container runtimes: kind, wanted access, major, minor; denied unless a rule says otherwise.
fn runtime(rules: &[(i32, i32)], jump_at_end: bool) -> Code {
    let mut code = prelude();
    for (major, minor) in rules {
        code.extend([
            i(0x55, 2, 0, 7, 2),
            i(0xbc, 1, 3, 0, 0),
            i(0x54, 1, 0, 0, 6),
            i(0x5d, 1, 3, 4, 0),
            i(0x55, 4, 0, 3, *major),
            i(0x55, 5, 0, 2, *minor),
            i(0xb4, 0, 0, 0, 1),
            EXIT,
        ]);
    }
    if jump_at_end {
        code.push(i(0x05, 0, 0, 0, 0));
    }
    code.extend([i(0xb4, 0, 0, 0, 0), EXIT]);
    code
}

/// In systemd's: each rule jumps to one end.
fn systemd(rules: &[(i32, i32)]) -> Code {
    let mut code = prelude();
    for (n, (major, minor)) in rules.iter().enumerate() {
        let left = i16::try_from(rules.len() - n - 1).unwrap();
        code.extend([
            i(0xbc, 1, 3, 0, 0),
            i(0x54, 1, 0, 0, 6),
            i(0x5d, 1, 3, 4, 0),
            i(0x55, 2, 0, 3, 2),
            i(0x55, 4, 0, 2, *major),
            i(0x55, 5, 0, 1, *minor),
            i(0x05, 0, 0, left * 7 + 2, 0),
        ]);
    }
    code.extend([i(0xb7, 0, 0, 0, 0), i(0x05, 0, 0, 1, 0), i(0xb7, 0, 0, 0, 1), EXIT]);
    code
}

/// In HTCondor's: what is denied is named, by jumps of 32 bits.
fn condor(denied: &[(i32, i32)]) -> Code {
    let mut code = vec![i(0xb4, 0, 0, 0, 1), i(0x61, 2, 1, 4, 0), i(0x61, 3, 1, 8, 0)];
    for (major, minor) in denied {
        code.extend([i(0x56, 2, 0, 3, *major), i(0x56, 3, 0, 2, *minor), i(0xb4, 0, 0, 0, 0), EXIT]);
    }
    code.push(EXIT);
    code
}

/// As compilers write it: narrow loads of kind and access, a range of minors by one unsigned comparison.
fn compiled(major: i32, (first, count): (i32, i32)) -> Code {
    let narrow = if cfg!(target_endian = "little") { (0, 2) } else { (2, 0) };
    vec![
        i(0xb7, 0, 0, 0, 1),
        i(0x69, 2, 1, narrow.0, 0),
        i(0x55, 2, 0, 8, 2),
        i(0x69, 3, 1, narrow.1, 0),
        i(0x45, 3, 0, 1, 4),
        i(0x05, 0, 0, 5, 0),
        i(0x61, 4, 1, 4, 0),
        i(0x56, 4, 0, 3, major),
        i(0x61, 5, 1, 8, 0),
        i(0x04, 5, 0, 0, -first),
        i(0xa6, 5, 0, 1, count),
        EXIT,
        i(0xb7, 0, 0, 0, 0),
        EXIT,
    ]
}

/// `null`, `zero`, `full`, `urandom`, a GPU, its control node, a disk.
const NODES: [(bool, u32, u32); 9] = [
    (false, 1, 3),
    (false, 1, 5),
    (false, 1, 7),
    (false, 1, 9),
    (false, 195, 0),
    (false, 195, 1),
    (false, 195, 255),
    (false, 509, 40_000),
    (true, 7, 200),
];

fn kind(block: bool) -> DeviceKind {
    if block { DeviceKind::Block } else { DeviceKind::Character }
}

fn gpus(allowed: &str) -> Vec<Rule> {
    let rule = |(minor, allowed): (usize, char)| Rule {
        allowed: allowed == '1',
        major: 195,
        minor: minor.try_into().unwrap(),
    };
    allowed.chars().enumerate().map(rule).collect()
}

fn shapes() -> Vec<(&'static str, Code)> {
    let rule = |allowed, major, minor| Rule { allowed, major, minor };
    let mixed = [rule(false, 1, 3), rule(true, 1, 5), rule(false, 195, 1), rule(true, 195, 0)];
    vec![
        ("slurm", slurm(&mixed)),
        ("slurm, nothing listed", slurm(&[])),
        ("runc", runtime(&[(1, 3), (1, 9), (195, 0)], false)),
        ("crun", runtime(&[(1, 5), (195, 1)], true)),
        ("systemd", systemd(&[(1, 3), (1, 7), (195, 255)])),
        ("htcondor", condor(&[(1, 5), (195, 0), (509, 40_000)])),
        ("compiled", compiled(195, (0, 2))),
        ("compiled, memory devices", compiled(1, (4, 3))),
        ("allow", vec![i(0xb7, 0, 0, 0, 1), EXIT]),
        ("deny", vec![i(0xb7, 0, 0, 0, 0), EXIT]),
    ]
}

fn recorded() -> [(&'static str, &'static [u8]); 4] {
    macro_rules! recorded {
        ($name:literal) => {
            ($name, include_bytes!(concat!("../../../../exporter/fuzz/corpus/device_program/slurm_", $name)))
        };
    }
    [recorded!("0000"), recorded!("0010"), recorded!("1100"), recorded!("1111")]
}

fn code_of(bytes: &[u8]) -> Code {
    bytes.chunks_exact(8).map(|bytes| bytes.try_into().unwrap()).collect()
}

/// Programs that SLURM 22.05, 24.11 and 26.05 attached to jobs with these of four GPUs.
#[test]
#[cfg(target_endian = "little")]
fn slurms_own_programs_say_which_gpus_a_job_has() {
    for (allowed, bytes) in recorded() {
        let code = code_of(&bytes[12..]);
        assert_eq!(code, slurm(&gpus(allowed)), "the template is what SLURM writes");
        for (minor, allowed) in (0..).zip(allowed.chars()) {
            let expected = if allowed == '1' { Allowed } else { Denied };
            assert_eq!(ask_character(&code, 195, minor), expected, "{minor}");
            assert_eq!(ask(&code, DeviceKind::Block, 195, minor), Allowed, "a disk of that number");
        }
        assert_eq!(ask_character(&code, 195, 255), Allowed, "the control node");
        assert_eq!(ask_character(&code, 226, 128), Allowed);
    }
}

#[test]
fn constants_that_are_blinded_and_moves_that_clear_the_upper_half_are_seen_through() {
    // if r4 != 195, with the constant hidden from who reads the machine code.
    let mut blinded = prelude();
    blinded.extend([
        i(0xb7, 11, 0, 0, 0x7a6b_5c4d),
        i(0xa7, 11, 0, 0, 0x7a6b_5c4d ^ 195),
        i(0x5d, 4, 11, 2, 0),
        i(0xb4, 11, 0, 0, 0x1111),
        i(0xa4, 11, 0, 0, 0x1111),
        i(0xbc, 0, 11, 0, 0),
        EXIT,
    ]);
    // The end of the program for others.
    blinded[8] = i(0x5d, 4, 11, 4, 0);
    blinded.extend([i(0xbc, 4, 4, 0, 1), i(0xb4, 0, 0, 0, 1), EXIT]);
    assert_eq!(ask_character(&blinded, 195, 0), Denied);
    assert_eq!(ask_character(&blinded, 196, 0), Allowed);
}

/// Leaves a number in R6, and says whether it is the expected one.
fn yields(instructions: &[[u8; 8]], expected: u64) -> bool {
    let half = |word: u64| i32::from_ne_bytes(u32::try_from(word & 0xffff_ffff).unwrap().to_ne_bytes());
    let mut code = instructions.to_vec();
    code.extend([
        i(0xb4, 7, 0, 0, half(expected >> 32)),
        i(0x67, 7, 0, 0, 32),
        i(0xb4, 8, 0, 0, half(expected)),
        i(0x4f, 7, 8, 0, 0),
        i(0xb7, 0, 0, 0, 1),
        i(0x1d, 6, 7, 1, 0),
        i(0xb7, 0, 0, 0, 0),
        EXIT,
    ]);
    match ask_character(&code, 195, 3) {
        Allowed => true,
        Denied => false,
        NotFollowed(why) => panic!("{why}"),
    }
}

#[test]
fn signs_are_extended_and_upper_halves_cleared_where_the_instruction_set_says() {
    let minus_one = i(0xb7, 6, 0, 0, -1);
    for (code, expected) in [
        (vec![minus_one], u64::MAX),
        (vec![i(0xb4, 6, 0, 0, -1)], 0xffff_ffff),
        (vec![minus_one, i(0x07, 6, 0, 0, -1)], u64::MAX - 1),
        (vec![minus_one, i(0x04, 6, 0, 0, 1)], 0),
        (vec![i(0xb7, 6, 0, 0, 0), i(0x47, 6, 0, 0, -2)], u64::MAX - 1),
        (vec![i(0xb7, 6, 0, 0, 0), i(0x44, 6, 0, 0, -2)], 0xffff_fffe),
        (vec![minus_one, i(0x57, 6, 0, 0, -16)], u64::MAX - 15),
        (vec![minus_one, i(0x54, 6, 0, 0, -16)], 0xffff_fff0),
        (vec![minus_one, i(0xa7, 6, 0, 0, -1)], 0),
        (vec![minus_one, i(0xa4, 6, 0, 0, 0)], 0xffff_ffff),
        (vec![minus_one, i(0x67, 6, 0, 0, 63)], 1 << 63),
        (vec![minus_one, i(0x64, 6, 0, 0, 31)], 1 << 31),
        (vec![minus_one, i(0x77, 6, 0, 0, 63)], 1),
        (vec![minus_one, i(0x74, 6, 0, 0, 4)], 0x0fff_ffff),
        (vec![minus_one, i(0xbc, 6, 6, 0, 0)], 0xffff_ffff),
        (vec![minus_one, i(0xbc, 6, 6, 0, 1)], 0xffff_ffff),
        (vec![minus_one, i(0xb7, 2, 0, 0, 68), i(0x7f, 6, 2, 0, 0)], u64::MAX >> 4),
        (vec![minus_one, i(0xb7, 2, 0, 0, 33), i(0x6c, 6, 2, 0, 0)], 0xffff_fffe),
        (vec![i(0x61, 6, 1, 4, 0)], 195),
        (vec![i(0x61, 6, 1, 8, 0)], 3),
        (vec![i(0x61, 6, 1, 0, 0)], 6 << 16 | 2),
    ] {
        assert!(yields(&code, expected), "{code:?} is not {expected:#x}");
        assert!(!yields(&code, expected ^ 1 << 40));
    }
}

#[test]
#[expect(clippy::cast_sign_loss, reason = "the same bits without a sign")]
fn comparisons_know_signs_and_widths() {
    let holds = |a: i32, code: u8, b: i32, from_register: bool| {
        let jump = if from_register { i(code | 8, 6, 7, 1, 0) } else { i(code, 6, 0, 1, b) };
        let program =
            [i(0xb7, 6, 0, 0, a), i(0xb7, 7, 0, 0, b), i(0xb7, 0, 0, 0, 1), jump, i(0xb7, 0, 0, 0, 0), EXIT];
        ask_character(&program, 0, 0) == Allowed
    };
    type Holds = fn(i64, i64) -> bool;
    let table: [(u8, Holds); 11] = [
        (0x10, |a, b| a == b),
        (0x20, |a, b| (a as u64) > (b as u64)),
        (0x30, |a, b| (a as u64) >= (b as u64)),
        (0x40, |a, b| a & b != 0),
        (0x50, |a, b| a != b),
        (0x60, |a, b| a > b),
        (0x70, |a, b| a >= b),
        (0xa0, |a, b| (a as u64) < (b as u64)),
        (0xb0, |a, b| (a as u64) <= (b as u64)),
        (0xc0, |a, b| a < b),
        (0xd0, |a, b| a <= b),
    ];
    for (operation, expected) in table {
        for (a, b) in [(0, 0), (1, 2), (2, 1), (-1, 1), (1, -1), (-1, -1), (-2, -1), (i32::MIN, i32::MAX)] {
            for register in [false, true] {
                let wanted = expected(a.into(), b.into());
                assert_eq!(holds(a, operation | 5, b, register), wanted, "{operation:#x} {a} {b}");
                // Of 32 bits: the same, since both fit.
                assert_eq!(holds(a, operation | 6, b, register), wanted, "{operation:#x} {a} {b}, 32 bits");
            }
        }
    }
    // The upper half is there for one and not for the other.
    let upper = |code: u8| {
        [
            i(0xb7, 6, 0, 0, 1),
            i(0x67, 6, 0, 0, 32),
            i(0xb7, 0, 0, 0, 0),
            i(code, 6, 0, 1, 0),
            i(0xb7, 0, 0, 0, 1),
            EXIT,
        ]
    };
    assert_eq!(ask_character(&upper(0x15), 0, 0), Allowed);
    assert_eq!(ask_character(&upper(0x16), 0, 0), Denied);
}

#[test]
fn what_cannot_be_followed_is_said_to_be_so() {
    let ok = i(0xb7, 0, 0, 0, 1);
    for (what, code) in [
        ("nothing", vec![]),
        ("no end", vec![ok]),
        ("its answer is not written", vec![EXIT]),
        ("a call", vec![i(0x85, 0, 0, 0, 5), ok, EXIT]),
        ("a constant of 64 bits", vec![i(0x18, 2, 0, 0, 0), i(0, 0, 0, 0, 0), ok, EXIT]),
        ("a map", vec![i(0x18, 1, 1, 0, 3), i(0, 0, 0, 0, 0), ok, EXIT]),
        ("memory is written", vec![i(0x7a, 10, 0, -8, 0), ok, EXIT]),
        ("the stack is read", vec![i(0x79, 2, 10, -8, 0), ok, EXIT]),
        ("64 bits of the question", vec![i(0x79, 2, 1, 0, 0), ok, EXIT]),
        ("beyond the question", vec![i(0x61, 2, 1, 12, 0), ok, EXIT]),
        ("before the question", vec![i(0x61, 2, 1, -4, 0), ok, EXIT]),
        ("across its words", vec![i(0x61, 2, 1, 2, 0), ok, EXIT]),
        ("a part of the major", vec![i(0x69, 2, 1, 4, 0), ok, EXIT]),
        ("with sign", vec![i(0x81, 2, 1, 0, 0), ok, EXIT]),
        ("an address as answer", vec![i(0xbf, 0, 1, 0, 0), EXIT]),
        ("an address as number", vec![ok, i(0x0f, 0, 1, 0, 0), EXIT]),
        ("an address compared", vec![ok, i(0x15, 1, 0, 0, 0), EXIT]),
        ("half of an address", vec![i(0xbc, 0, 1, 0, 0), EXIT]),
        ("arithmetic with an address", vec![i(0x07, 1, 0, 0, 4), ok, EXIT]),
        ("a register never written", vec![ok, i(0x1d, 0, 7, 0, 0), EXIT]),
        ("the frame is written", vec![i(0xb7, 10, 0, 0, 1), ok, EXIT]),
        ("no such register", vec![i(0xb7, 12, 0, 0, 1), ok, EXIT]),
        ("division", vec![ok, i(0x37, 0, 0, 0, 1), EXIT]),
        ("a byte swap", vec![ok, i(0xdc, 0, 0, 0, 16), EXIT]),
        ("a move with sign", vec![ok, i(0xbf, 0, 0, 8, 0), EXIT]),
        ("a shift too far", vec![ok, i(0x67, 0, 0, 0, 64), EXIT]),
        ("a negative shift", vec![ok, i(0x64, 0, 0, 0, -1), EXIT]),
        ("a jump of 32 bits", vec![i(0x06, 0, 0, 0, 0), ok, EXIT]),
        ("a jump before the start", vec![i(0x05, 0, 0, -2, 0), ok, EXIT]),
        ("a jump behind the end", vec![i(0x05, 0, 0, 9, 0), ok, EXIT]),
        ("for ever", vec![i(0x05, 0, 0, -1, 0)]),
        ("neither yes nor no", vec![i(0xb7, 0, 0, 0, 2), EXIT]),
        ("reserved", vec![i(0xb7, 0, 3, 0, 1), EXIT]),
        ("reserved in the end", vec![ok, i(0x95, 0, 0, 0, 1)]),
    ] {
        assert!(matches!(ask_character(&code, 1, 3), NotFollowed(_)), "{what}");
    }
    // What lies beside the way is not looked at.
    let beside = [ok, i(0x05, 0, 0, 1, 0), i(0x85, 0, 0, 0, 5), EXIT];
    assert_eq!(ask_character(&beside, 1, 3), Allowed);
}

#[test]
fn one_refusal_is_enough_and_uncertainty_is_no_permission() {
    let unknown = NotFollowed("why");
    for (a, b, both) in [
        (Allowed, Allowed, Allowed),
        (Allowed, Denied, Denied),
        (unknown, Denied, Denied),
        (unknown, Allowed, unknown),
        (unknown, unknown, unknown),
        (Denied, Denied, Denied),
    ] {
        assert_eq!((a.and(b), b.and(a)), (both, both));
    }
}

/// Programs of any arithmetic and jumps that the verifier takes.
fn any_program() -> impl Strategy<Value = Code> {
    // R1 remains the question; R2 to R9 are numbers from the beginning.
    let register = || prop_oneof![Just(0_u8), 2..=9_u8];
    let constant = || prop_oneof![-4..=4_i32, any::<i32>(), Just(195), Just(i32::MIN)];
    let operation =
        prop_oneof![Just(0x00_u8), Just(0x40), Just(0x50), Just(0xa0), Just(0xb0), Just(0x60), Just(0x70)];
    let arithmetic = (operation, any::<bool>(), any::<bool>(), register(), register(), constant()).prop_map(
        |(operation, wide, from_register, to, from, constant)| {
            let class = if wide { 7 } else { 4 };
            let shift = matches!(operation, 0x60 | 0x70);
            let constant = if shift { constant & if wide { 63 } else { 31 } } else { constant };
            if from_register {
                i(operation | class | 8, to, from, 0, 0)
            } else {
                i(operation | class, to, 0, 0, constant)
            }
        },
    );
    let condition = prop_oneof![(1..=7_u8).prop_map(|n| n << 4), (10..=13_u8).prop_map(|n| n << 4)];
    let jump = (condition, any::<bool>(), any::<bool>(), register(), register(), constant(), 0..4_i16)
        .prop_map(|(condition, wide, from_register, a, b, constant, distance)| {
            let class = if wide { 5 } else { 6 };
            if from_register {
                i(condition | class | 8, a, b, distance, 0)
            } else {
                i(condition | class, a, 0, distance, constant)
            }
        });
    let load = (
        register(),
        prop_oneof![
            Just((0x61_u8, 0_i16)),
            Just((0x61, 4)),
            Just((0x61, 8)),
            (0..2_i16).prop_map(|n| (0x69, n * 2)),
            (0..4_i16).prop_map(|n| (0x71, n))
        ],
    )
        .prop_map(|(to, (code, at))| i(code, to, 1, at, 0));
    let body = proptest::collection::vec(prop_oneof![5 => arithmetic, 2 => jump.clone(), 1 => load], 0..24);
    (body, jump, proptest::collection::vec(constant(), 4)).prop_map(|(body, last, constants)| {
        let mut code = prelude();
        code.push(i(0xb4, 0, 0, 0, 7));
        for (register, constant) in (6..=9).zip(constants) {
            code.push(i(0xb7, register, 0, 0, constant));
        }
        code.extend(body);
        // Whatever the last jump compares decides; jumps of the body end here at the latest.
        let [kind, registers, _, _, constant @ ..] = last;
        let [near, far] = 2_i16.to_ne_bytes();
        let [a, b, c, d] = constant;
        code.extend([
            [kind, registers, near, far, a, b, c, d],
            i(0xb7, 0, 0, 0, 0),
            EXIT,
            i(0xb7, 0, 0, 0, 1),
            EXIT,
        ]);
        code
    })
}

fn by_another(code: &[[u8; 8]], major: u32, minor: u32) -> Option<u64> {
    let bytes: Vec<u8> = code.concat();
    let machine = rbpf::EbpfVmRaw::new(Some(&bytes)).ok()?;
    let mut question: Vec<u8> =
        [6_u32 << 16 | 2, major, minor].iter().flat_map(|word| word.to_ne_bytes()).collect();
    machine.execute_program(&mut question).ok()
}

/// rbpf takes the constant of unsigned comparisons of 64 bits without its sign, the kernel with it (kernel/bpf/core.c,
/// `___bpf_prog_run`; the test with the kernel has such programs).
fn takes_a_constant_without_sign([code, _, _, _, constant @ ..]: &[u8; 8]) -> bool {
    matches!(code, 0x15 | 0x25 | 0x35 | 0x55 | 0xa5 | 0xb5) && i32::from_ne_bytes(*constant) < 0
}

fn agree(code: &[[u8; 8]], major: u32, minor: u32) {
    if code.iter().any(takes_a_constant_without_sign) {
        return;
    }
    let theirs = match by_another(code, major, minor).expect("it is a program") & 0xffff_ffff {
        0 => Denied,
        1 => Allowed,
        _ => NotFollowed("its answer is neither yes nor no"),
    };
    assert_eq!(ask_character(code, major, minor), theirs, "{code:02x?} asked for {major}:{minor}");
}

#[test]
fn another_interpreter_says_the_same_of_every_shape() {
    let recorded = recorded().map(|(name, bytes)| (name, code_of(&bytes[12..])));
    for (_, code) in shapes().into_iter().chain(recorded) {
        for (_, major, minor) in NODES {
            agree(&code, major, minor);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn another_interpreter_says_the_same_of_any_program(
        code in any_program(),
        major in prop_oneof![Just(195_u32), any::<u32>()],
        minor in prop_oneof![0..4_u32, any::<u32>()],
    ) {
        agree(&code, major, minor);
    }

    #[test]
    fn no_bytes_make_it_stumble(bytes in proptest::collection::vec(any::<[u8; 8]>(), 0..40)) {
        let first = ask_character(&bytes, 195, 0);
        prop_assert_eq!(first, ask_character(&bytes, 195, 0));
    }
}
