//! What an iteration of each loop does, counted in the machine code of this very program: objdump disassembles the function, and this
//! test walks through one iteration. It knows nothing of what the loops declare.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: what fails here fails it"
)]

use std::collections::BTreeMap;
use std::process::Command;

use known_work::{Kernel, Precision, Width, kernels};

/// An instruction: its address, its name and its operands.
#[derive(Debug, Clone, PartialEq)]
struct Instruction {
    at: u64,
    name: String,
    operands: String,
}

/// What a walk through one iteration met.
#[derive(Debug, Default, PartialEq)]
struct Met {
    instructions: u64,
    branches: u64,
    taken: u64,
    /// By precision and width in bits, 0 for scalar.
    flops: BTreeMap<(Precision, u16), u64>,
    loaded: u64,
    stored: u64,
    nontemporal: bool,
}

/// The functions of this program whose names begin so.
fn functions() -> BTreeMap<String, Vec<Instruction>> {
    let objdump = if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu-objdump" } else { "objdump" };
    let own = std::env::current_exe().unwrap();
    let output =
        Command::new(objdump).args(["-d", "--no-show-raw-insn", "-M"]).arg(syntax()).arg(own).output();
    let output =
        output.unwrap_or_else(|error| panic!("{objdump}: {error} (binutils, binutils-aarch64-linux-gnu)"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut functions, mut current) = (BTreeMap::<String, Vec<Instruction>>::new(), None);
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            current = name.strip_prefix("known_work_").map(str::to_owned);
        } else if let (Some(function), Some((at, text))) = (&current, line.split_once(":\t")) {
            let text = text.split(" //").next().unwrap().trim();
            let (name, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let at = u64::from_str_radix(at.trim(), 16).unwrap();
            let (name, operands) = (name.to_owned(), operands.trim().to_owned());
            functions.entry(function.clone()).or_default().push(Instruction { at, name, operands });
        }
    }
    functions
}

fn syntax() -> &'static str {
    if cfg!(target_arch = "aarch64") { "no-aliases" } else { "intel" }
}

/// Where a branch goes, if it is one: `401020 <known_work_chain+0x10>`, on ARM behind other operands.
fn target(instruction: &Instruction) -> Option<u64> {
    let (before, _) = instruction.operands.split_once(" <known_work_")?;
    let address = before.rsplit([',', ' ', '\t']).next()?;
    u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()
}

/// Walks through one iteration: from the target of the last backward branch to this branch. `bit` is what the random bit is.
fn walk(code: &[Instruction], bit: bool) -> Met {
    let back =
        code.iter().rposition(|one| target(one).is_some_and(|target| target <= one.at)).expect("a loop");
    let start = target(&code[back]).unwrap();
    let mut at = code.iter().position(|one| one.at == start).expect("its begin");
    let (mut met, mut zero) = (Met::default(), None);
    loop {
        let one = &code[at];
        met.instructions += 1;
        match target(one) {
            Some(target) => {
                met.branches += 1;
                let taken = at == back || is_taken(one, zero);
                met.taken += u64::from(taken);
                if at == back {
                    return met;
                }
                at = if taken { code.iter().position(|other| other.at == target).unwrap() } else { at + 1 };
            }
            None => {
                note(one, &mut met);
                zero = flags(one, zero, bit);
                at += 1;
            }
        }
        if cfg!(target_arch = "aarch64") {
            zero = Some(bit);
        }
    }
}

/// Whether the last result was 0: known of `xor` of a register with itself, and by `bit` of `test`.
fn flags(one: &Instruction, before: Option<bool>, bit: bool) -> Option<bool> {
    let mut operands = one.operands.split(',');
    match one.name.as_str() {
        "xor" if operands.next() == operands.next() => Some(true),
        "test" => Some(!bit),
        "nop" | "mov" => before,
        _ => None,
    }
}

/// Whether a branch within the loop is taken. On x86 `zero` is the flag, on ARM it is the random bit.
fn is_taken(one: &Instruction, zero: Option<bool>) -> bool {
    let of_nothing = one.operands.starts_with("xzr,");
    match one.name.as_str() {
        "je" => zero.expect("known flags"),
        "jne" => !zero.expect("known flags"),
        "cbz" if of_nothing => true,
        "cbnz" if of_nothing => false,
        "tbz" => !zero.unwrap(),
        "tbnz" => zero.unwrap(),
        other => panic!("{other} {}", one.operands),
    }
}

#[cfg(target_arch = "x86_64")]
fn note(one: &Instruction, met: &mut Met) {
    let name = one.name.strip_prefix('v').unwrap_or(&one.name);
    let width = if one.operands.contains("zmm") {
        512
    } else if one.operands.contains("ymm") {
        256
    } else {
        128
    };
    let operations = if name.starts_with("fmadd") {
        2
    } else {
        u64::from(name.starts_with("add") || name.starts_with("mul"))
    };
    // `add rdx,0x40` is of integers.
    if operations > 0 && one.operands.contains("mm") {
        let (precision, bits) = match name.chars().last().unwrap() {
            'd' => (Precision::Double, 64),
            's' => (Precision::Single, 32),
            _ => panic!("{one:?}"),
        };
        let packed = name.chars().rev().nth(1) == Some('p');
        let (width, lanes) = if packed { (width, u64::from(width) / bits) } else { (0, 1) };
        *met.flops.entry((precision, width)).or_default() += lanes * operations;
    }
    if one.operands.contains('[') && name != "nop" {
        let bytes = if one.operands.contains("mm") { u64::from(width) / 8 } else { 8 };
        if one.operands.split(',').next().unwrap().contains('[') {
            met.stored += bytes;
        } else {
            met.loaded += bytes;
        }
    }
    met.nontemporal |= name.starts_with("movnt");
}

#[cfg(target_arch = "aarch64")]
fn note(one: &Instruction, met: &mut Met) {
    let operations = match one.name.as_str() {
        "fadd" | "fmul" => 1,
        "fmadd" | "fmla" => 2,
        _ => 0,
    };
    if operations > 0 {
        let first = one.operands.split(',').next().unwrap();
        let (precision, width) = match first.as_bytes() {
            [b'd', ..] => (Precision::Double, 0),
            [b's', ..] => (Precision::Single, 0),
            [b'z', .., b'd'] => (Precision::Double, sve_bits()),
            [b'z', .., b's'] => (Precision::Single, sve_bits()),
            [b'v', .., b'2', b'd'] => (Precision::Double, 128),
            [b'v', .., b'4', b's'] => (Precision::Single, 128),
            _ => panic!("{one:?}"),
        };
        let number = if precision == Precision::Double { 64 } else { 32 };
        *met.flops.entry((precision, width)).or_default() += u64::from((width / number).max(1)) * operations;
    }
    let bytes = if one.operands.starts_with('q') { 16 } else { 8 };
    match one.name.as_str() {
        "ldp" => met.loaded += 2 * bytes,
        "ldr" => met.loaded += bytes,
        "stp" | "stnp" => met.stored += 2 * bytes,
        _ => {}
    }
    met.nontemporal |= one.name == "stnp";
}

/// As the kernel says it of this thread, not as the loops find out.
#[cfg(target_arch = "aarch64")]
#[expect(unsafe_code, reason = "prctl(2)")]
fn sve_bits() -> u16 {
    const PR_SVE_GET_VL: libc::c_int = 51;
    // SAFETY: this prctl takes no further argument, and reads and writes no memory of the caller.
    let length = unsafe { libc::prctl(PR_SVE_GET_VL) };
    // Refused without SVE: then its loops are not compared.
    if length < 0 { 128 } else { u16::try_from(length & 0xffff).unwrap() * 8 }
}

fn loops() -> Vec<Kernel> {
    kernels().into_iter().filter(|kernel| kernel.work.instructions.is_some()).collect()
}

#[test]
fn every_loop_does_what_it_declares() {
    let functions = functions();
    assert_eq!(functions.len(), loops().len(), "each loop is declared once");
    for kernel in loops() {
        let code = functions.get(kernel.name).unwrap_or_else(|| panic!("no function {}", kernel.name));
        let met = walk(code, false);
        let other = walk(code, true);
        let of_random = kernel.name == "branches_random";
        assert_eq!(other.instructions, met.instructions, "{}: whatever the bit is", kernel.name);
        assert_eq!(other.taken == met.taken, !of_random || met.taken == 2, "{}", kernel.name);
        let work = kernel.work;
        assert_eq!(work.instructions, Some(met.instructions), "{}", kernel.name);
        assert_eq!(work.branches, Some(met.branches), "{}", kernel.name);
        assert_eq!((work.loaded, work.stored), (met.loaded, met.stored), "{}", kernel.name);
        let flops: BTreeMap<(Precision, u16), u64> = work
            .flops
            .into_iter()
            .map(|flops| {
                let width = if let Width::Bits(bits) = flops.width { bits } else { 0 };
                ((flops.precision, width), flops.count)
            })
            .collect();
        // What a CPU without SVE would do is not known.
        if kernel.supported || !kernel.name.contains("sve") {
            assert_eq!(flops, met.flops, "{}", kernel.name);
        }
        assert_eq!(met.nontemporal, kernel.name == "triad_nontemporal");
        match kernel.name {
            "branches_always" => assert_eq!(met.taken, met.branches),
            "branches_random" => assert_eq!((met.taken, met.branches), (2, 3), "one of the two by the bit"),
            _ => assert_eq!(met.taken, 1, "{}: the loop's own", kernel.name),
        }
    }
}

#[test]
fn streams_and_chains_move_what_their_instructions_do() {
    for kernel in loops() {
        let Some(traffic) = kernel.work.traffic else { continue };
        let (least, most) = traffic.read;
        assert!(least <= most && traffic.written == kernel.work.stored, "{}", kernel.name);
        // A stream uses each byte of its lines; of a line of the chain eight are used.
        if kernel.name == "chase" {
            assert_eq!(least, kernel.work.loaded * 64 / 8);
        } else {
            assert_eq!(least, kernel.work.loaded, "{}", kernel.name);
        }
    }
}

#[test]
fn the_walk_takes_and_leaves_branches_as_a_cpu_does() {
    let text = if cfg!(target_arch = "aarch64") {
        [
            "eor x1, x1, x1",
            "tbz w1, #16, 10 <known_work_x+0x10>",
            "add x2, x2, #1",
            "add x2, x2, #1",
            "b.ne 0 <known_work_x>",
        ]
    } else {
        ["xor rax,rcx", "test eax,0x1", "je 10 <known_work_x+0x10>", "add rsi,0x1", "jne 0 <known_work_x>"]
    };
    let code: Vec<Instruction> = (0_u64..)
        .zip(text)
        .map(|(number, text)| {
            let (name, operands) = text.split_once(' ').unwrap();
            Instruction { at: number * 4, name: name.to_owned(), operands: operands.to_owned() }
        })
        .collect();
    let code = if cfg!(target_arch = "aarch64") {
        let mut code = code;
        code[1].operands = code[1].operands.replace("10 <", "c <");
        code
    } else {
        code
    };
    let (clear, set) = (walk(&code, false), walk(&code, true));
    assert_eq!((clear.instructions, clear.branches, clear.taken), (4, 2, 2));
    assert_eq!((set.instructions, set.branches, set.taken), (5, 2, 1));
}
