//! The loops of 64-bit ARM.
//!
//! Accumulators as on x86-64. Sixteen independent ones hide the latency of four units of four cycles (Neoverse V2).
#![expect(unsafe_code, reason = "whole functions in assembler, whose names tests look up in the object")]

use std::arch::{is_aarch64_feature_detected, naked_asm};

use crate::work::{Body, FOLLOWED};
use crate::{Flops, Kernel, Precision, Traffic, Width, Work};

/// Operations of each iteration of arithmetic: one for each accumulator.
const OPERATIONS: u64 = 16;

/// A loop of arithmetic. The constant 1 is in register 31; registers 8 to 15 are the caller's.
macro_rules! arithmetic {
    ($symbol:ident, $arch:literal, $one:literal, $even:literal, $odd:literal, $end:literal) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(_iterations: u64) {
            naked_asm!(
                $arch,
                $one,
                ".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23\nmovi v\\n\\().2d,#0\n.endr",
                "2:",
                concat!(".irp n,0,2,4,6,16,18,20,22\n", $even, "\n.endr"),
                concat!(".irp n,1,3,5,7,17,19,21,23\n", $odd, "\n.endr"),
                "subs x0,x0,#1",
                "b.ne 2b",
                "ret",
                $end,
            )
        }
    };
    (fp $symbol:ident, $one:literal, $even:literal, $odd:literal) => {
        arithmetic!($symbol, "", $one, $even, $odd, "");
    };
    (sve $symbol:ident, $one:literal, $both:literal) => {
        arithmetic!($symbol, ".arch_extension sve", $one, $both, $both, ".arch_extension nosve");
    };
}

arithmetic!(fp known_work_add_scalar_double, "fmov d31,#1.0", "fadd d\\n,d\\n,d31", "fmul d\\n,d\\n,d31");
arithmetic!(fp known_work_add_scalar_single, "fmov s31,#1.0", "fadd s\\n,s\\n,s31", "fmul s\\n,s\\n,s31");
arithmetic!(fp known_work_add_128_double, "fmov v31.2d,#1.0", "fadd v\\n\\().2d,v\\n\\().2d,v31.2d", "fmul v\\n\\().2d,v\\n\\().2d,v31.2d");
arithmetic!(fp known_work_add_128_single, "fmov v31.4s,#1.0", "fadd v\\n\\().4s,v\\n\\().4s,v31.4s", "fmul v\\n\\().4s,v\\n\\().4s,v31.4s");
arithmetic!(fp known_work_fma_scalar_double, "fmov d31,#1.0", "fmadd d\\n,d31,d31,d\\n", "fmadd d\\n,d31,d31,d\\n");
arithmetic!(fp known_work_fma_scalar_single, "fmov s31,#1.0", "fmadd s\\n,s31,s31,s\\n", "fmadd s\\n,s31,s31,s\\n");
arithmetic!(fp known_work_fma_128_double, "fmov v31.2d,#1.0", "fmla v\\n\\().2d,v31.2d,v31.2d", "fmla v\\n\\().2d,v31.2d,v31.2d");
arithmetic!(fp known_work_fma_128_single, "fmov v31.4s,#1.0", "fmla v\\n\\().4s,v31.4s,v31.4s", "fmla v\\n\\().4s,v31.4s,v31.4s");
arithmetic!(sve known_work_fma_sve_double, "ptrue p0.d\nfmov z31.d,#1.0", "fmla z\\n\\().d,p0/m,z31.d,z31.d");
arithmetic!(sve known_work_fma_sve_single, "ptrue p0.s\nfmov z31.s,#1.0", "fmla z\\n\\().s,p0/m,z31.s,z31.s");

/// Bytes of a vector of SVE on this CPU, for this process.
#[unsafe(naked)]
extern "C" fn sve_bytes() -> u64 {
    naked_asm!(".arch_extension sve", "cntb x0", "ret", ".arch_extension nosve")
}

/// Each instruction needs the result of the one before: one cycle each, on every core.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_chain(_iterations: u64) {
    naked_asm!(
        "mov x1,#1",
        "mov x2,#2",
        "2:",
        ".rept 128",
        "eor x1,x1,x2",
        ".endr",
        "subs x0,x0,#1",
        "b.ne 2b",
        "ret",
    )
}

/// Branches that are never taken.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_branches_never(_iterations: u64) {
    naked_asm!("2:", ".rept 16", "cbnz xzr,3f", "nop", "3:", ".endr", "subs x0,x0,#1", "b.ne 2b", "ret")
}

/// Branches that are always taken.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_branches_always(_iterations: u64) {
    naked_asm!("2:", ".rept 16", "cbz xzr,3f", "nop", "3:", ".endr", "subs x0,x0,#1", "b.ne 2b", "ret")
}

/// A branch by a random bit (xorshift64), which is foreseen wrongly half of the time, and one by the opposite, which follows from
/// it. One of the two instructions that they skip is always done.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_branches_random(_iterations: u64) {
    naked_asm!(
        "mov x1,#0x7c15",
        "movk x1,#0x7f4a,lsl #16",
        "movk x1,#0x79b9,lsl #32",
        "movk x1,#0x9e37,lsl #48",
        "2:",
        "eor x1,x1,x1,lsl #13",
        "eor x1,x1,x1,lsr #7",
        "eor x1,x1,x1,lsl #17",
        "tbz x1,#16,3f",
        "add x2,x2,#1",
        "3:",
        "tbnz x1,#16,4f",
        "add x3,x3,#1",
        "4:",
        "subs x0,x0,#1",
        "b.ne 2b",
        "ret",
    )
}

/// Reads a line of one array.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_load(_lines: u64, _written: *mut u8, _first: *const u8, _second: *const u8) {
    naked_asm!(
        "2:",
        "ldp q0,q1,[x2]",
        "ldp q2,q3,[x2,#32]",
        "add x2,x2,#64",
        "subs x0,x0,#1",
        "b.ne 2b",
        "ret"
    )
}

/// STREAM's triad, a line of each of three arrays: a = b + q c.
macro_rules! triad {
    ($symbol:ident, $first:literal, $second:literal) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(_lines: u64, _written: *mut u8, _first: *const u8, _second: *const u8) {
            naked_asm!(
                "fmov v31.2d,#1.0",
                "2:",
                "ldp q0,q1,[x3]",
                "ldp q2,q3,[x3,#32]",
                "ldp q4,q5,[x2]",
                "ldp q6,q7,[x2,#32]",
                "fmla v4.2d,v0.2d,v31.2d",
                "fmla v5.2d,v1.2d,v31.2d",
                "fmla v6.2d,v2.2d,v31.2d",
                "fmla v7.2d,v3.2d,v31.2d",
                $first,
                $second,
                "add x1,x1,#64",
                "add x2,x2,#64",
                "add x3,x3,#64",
                "subs x0,x0,#1",
                "b.ne 2b",
                "ret",
            )
        }
    };
}

triad!(known_work_triad, "stp q4,q5,[x1]", "stp q6,q7,[x1,#32]");
triad!(known_work_triad_nontemporal, "stnp q4,q5,[x1]", "stnp q6,q7,[x1,#32]");

/// Follows pointers: each address is the result of the load before.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_chase(_iterations: u64, _at: *const u8) -> *const u8 {
    naked_asm!("2:", ".rept 8", "ldr x1,[x1]", ".endr", "subs x0,x0,#1", "b.ne 2b", "mov x0,x1", "ret")
}

pub(crate) fn kernels() -> Vec<Kernel> {
    use Precision::{Double, Single};
    let sve = is_aarch64_feature_detected!("sve");
    // Without SVE as if it were the narrowest, for a loop that is not run.
    let bits = if sve { u16::try_from(sve_bytes() * 8).unwrap_or(128) } else { 128 };
    let works = |instructions, branches| Work {
        instructions: Some(instructions),
        branches: Some(branches),
        ..Work::default()
    };
    let streams = |instructions, loaded, stored| Work {
        loaded,
        stored,
        // Cores find out that whole lines are written and then do not read them; STNP is a hint.
        traffic: Some(Traffic { read: (loaded, loaded + stored), written: stored }),
        flops: (stored > 0).then_some(Flops { precision: Double, width: Width::Bits(128), count: 16 }),
        ..works(instructions, 1)
    };
    vec![
        Kernel::arithmetic("add_scalar_double", true, Double, 0, OPERATIONS, known_work_add_scalar_double),
        Kernel::arithmetic("add_scalar_single", true, Single, 0, OPERATIONS, known_work_add_scalar_single),
        Kernel::arithmetic("add_128_double", true, Double, 128, OPERATIONS, known_work_add_128_double),
        Kernel::arithmetic("add_128_single", true, Single, 128, OPERATIONS, known_work_add_128_single),
        Kernel::arithmetic("fma_scalar_double", true, Double, 0, OPERATIONS, known_work_fma_scalar_double),
        Kernel::arithmetic("fma_scalar_single", true, Single, 0, OPERATIONS, known_work_fma_scalar_single),
        Kernel::arithmetic("fma_128_double", true, Double, 128, OPERATIONS, known_work_fma_128_double),
        Kernel::arithmetic("fma_128_single", true, Single, 128, OPERATIONS, known_work_fma_128_single),
        Kernel::arithmetic("fma_sve_double", sve, Double, bits, OPERATIONS, known_work_fma_sve_double),
        Kernel::arithmetic("fma_sve_single", sve, Single, bits, OPERATIONS, known_work_fma_sve_single),
        Kernel::other(
            "chain",
            "dependent instructions of one cycle each",
            Work { cycles: Some(128), ..works(130, 1) },
            Body::Registers(known_work_chain),
        ),
        Kernel::other(
            "branches_never",
            "branches that are never taken",
            Work { mispredicted: Some(0.0), ..works(34, 17) },
            Body::Registers(known_work_branches_never),
        ),
        Kernel::other(
            "branches_always",
            "branches that are always taken",
            Work { mispredicted: Some(0.0), ..works(18, 17) },
            Body::Registers(known_work_branches_always),
        ),
        Kernel::other(
            "branches_random",
            "branches by random bits",
            Work { mispredicted: Some(0.5), ..works(8, 3) },
            Body::Registers(known_work_branches_random),
        ),
        Kernel::other("load", "reads of an array", streams(5, 64, 0), Body::Stream(known_work_load)),
        Kernel::other("triad", "STREAM's triad", streams(15, 128, 64), Body::Stream(known_work_triad)),
        Kernel::other(
            "triad_nontemporal",
            "STREAM's triad with stores past the caches",
            streams(15, 128, 64),
            Body::Stream(known_work_triad_nontemporal),
        ),
        Kernel::other(
            "chase",
            "a chain of pointers in random order",
            // A line is of up to 256 bytes (A64FX).
            Work {
                loaded: 8 * FOLLOWED,
                traffic: Some(Traffic { read: (64 * FOLLOWED, 256 * FOLLOWED), written: 0 }),
                ..works(FOLLOWED + 2, 1)
            },
            Body::Chase(known_work_chase),
        ),
    ]
}
