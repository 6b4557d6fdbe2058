//! The loops of x86-64.
//!
//! The accumulators of arithmetic grow by one until they cannot, or are multiplied by one: no operation meets a subnormal number or
//! raises an exception, which would be handled in microcode. Twelve independent ones hide the latency of any core so far (two units
//! of four or five cycles).
#![expect(unsafe_code, reason = "whole functions in assembler, whose names tests look up in the object")]

use std::arch::{is_x86_feature_detected, naked_asm};

use crate::work::{Body, FOLLOWED};
use crate::{Flops, Kernel, Precision, Traffic, Width, Work};

/// Operations of each iteration of arithmetic: twelve accumulators, twice.
const OPERATIONS: u64 = 24;

/// A loop of arithmetic. The constant 1 is in register 15 and the accumulators are 0 to 11; even ones are for `$even`, odd ones for
/// `$odd`.
macro_rules! arithmetic {
    ($symbol:ident, $one:literal, $spread:literal, $zero:literal, $even:literal, $odd:literal, $end:literal) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(_iterations: u64) {
            naked_asm!(
                $one,
                "movq xmm15,rax",
                $spread,
                concat!(".irp n,0,1,2,3,4,5,6,7,8,9,10,11\n", $zero, "\n.endr"),
                "2:",
                ".rept 2",
                concat!(".irp n,0,2,4,6,8,10\n", $even, "\n.endr"),
                concat!(".irp n,1,3,5,7,9,11\n", $odd, "\n.endr"),
                ".endr",
                "sub rdi,1",
                "jnz 2b",
                $end,
                "ret",
            )
        }
    };
    // Scalar and 128 bits without AVX.
    (sse $symbol:ident, $one:literal, $spread:literal, $add:literal, $mul:literal) => {
        arithmetic!($symbol, $one, $spread, "xorps xmm\\n,xmm\\n", $add, $mul, "");
    };
    (avx $symbol:ident, $one:literal, $spread:literal, $even:literal, $odd:literal) => {
        arithmetic!($symbol, $one, $spread, "vxorps xmm\\n,xmm\\n,xmm\\n", $even, $odd, "vzeroupper");
    };
}

arithmetic!(sse known_work_add_scalar_double, "mov rax,0x3ff0000000000000", "unpcklpd xmm15,xmm15", "addsd xmm\\n,xmm15", "mulsd xmm\\n,xmm15");
arithmetic!(sse known_work_add_scalar_single, "mov eax,0x3f800000", "shufps xmm15,xmm15,0", "addss xmm\\n,xmm15", "mulss xmm\\n,xmm15");
arithmetic!(sse known_work_add_128_double, "mov rax,0x3ff0000000000000", "unpcklpd xmm15,xmm15", "addpd xmm\\n,xmm15", "mulpd xmm\\n,xmm15");
arithmetic!(sse known_work_add_128_single, "mov eax,0x3f800000", "shufps xmm15,xmm15,0", "addps xmm\\n,xmm15", "mulps xmm\\n,xmm15");
arithmetic!(avx known_work_add_256_double, "mov rax,0x3ff0000000000000", "vmovddup xmm15,xmm15\nvinsertf128 ymm15,ymm15,xmm15,1", "vaddpd ymm\\n,ymm\\n,ymm15", "vmulpd ymm\\n,ymm\\n,ymm15");
arithmetic!(avx known_work_add_256_single, "mov eax,0x3f800000", "vshufps xmm15,xmm15,xmm15,0\nvinsertf128 ymm15,ymm15,xmm15,1", "vaddps ymm\\n,ymm\\n,ymm15", "vmulps ymm\\n,ymm\\n,ymm15");
arithmetic!(avx known_work_add_512_double, "mov rax,0x3ff0000000000000", "vbroadcastsd zmm15,xmm15", "vaddpd zmm\\n,zmm\\n,zmm15", "vmulpd zmm\\n,zmm\\n,zmm15");
arithmetic!(avx known_work_add_512_single, "mov eax,0x3f800000", "vbroadcastss zmm15,xmm15", "vaddps zmm\\n,zmm\\n,zmm15", "vmulps zmm\\n,zmm\\n,zmm15");
arithmetic!(avx known_work_fma_scalar_double, "mov rax,0x3ff0000000000000", "vmovddup xmm15,xmm15", "vfmadd231sd xmm\\n,xmm15,xmm15", "vfmadd231sd xmm\\n,xmm15,xmm15");
arithmetic!(avx known_work_fma_scalar_single, "mov eax,0x3f800000", "vshufps xmm15,xmm15,xmm15,0", "vfmadd231ss xmm\\n,xmm15,xmm15", "vfmadd231ss xmm\\n,xmm15,xmm15");
arithmetic!(avx known_work_fma_128_double, "mov rax,0x3ff0000000000000", "vmovddup xmm15,xmm15", "vfmadd231pd xmm\\n,xmm15,xmm15", "vfmadd231pd xmm\\n,xmm15,xmm15");
arithmetic!(avx known_work_fma_128_single, "mov eax,0x3f800000", "vshufps xmm15,xmm15,xmm15,0", "vfmadd231ps xmm\\n,xmm15,xmm15", "vfmadd231ps xmm\\n,xmm15,xmm15");
arithmetic!(avx known_work_fma_256_double, "mov rax,0x3ff0000000000000", "vmovddup xmm15,xmm15\nvinsertf128 ymm15,ymm15,xmm15,1", "vfmadd231pd ymm\\n,ymm15,ymm15", "vfmadd231pd ymm\\n,ymm15,ymm15");
arithmetic!(avx known_work_fma_256_single, "mov eax,0x3f800000", "vshufps xmm15,xmm15,xmm15,0\nvinsertf128 ymm15,ymm15,xmm15,1", "vfmadd231ps ymm\\n,ymm15,ymm15", "vfmadd231ps ymm\\n,ymm15,ymm15");
arithmetic!(avx known_work_fma_512_double, "mov rax,0x3ff0000000000000", "vbroadcastsd zmm15,xmm15", "vfmadd231pd zmm\\n,zmm15,zmm15", "vfmadd231pd zmm\\n,zmm15,zmm15");
arithmetic!(avx known_work_fma_512_single, "mov eax,0x3f800000", "vbroadcastss zmm15,xmm15", "vfmadd231ps zmm\\n,zmm15,zmm15", "vfmadd231ps zmm\\n,zmm15,zmm15");

/// Each instruction needs the result of the one before: one cycle each, on every core.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_chain(_iterations: u64) {
    naked_asm!(
        "mov eax,1",
        "mov ecx,2",
        "2:",
        ".rept 128",
        "xor rax,rcx",
        ".endr",
        "sub rdi,1",
        "jnz 2b",
        "ret",
    )
}

/// Branches that are never taken. Six bytes lie between them, so that they do not crowd the predictor's entries.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_branches_never(_iterations: u64) {
    naked_asm!(
        "2:",
        "xor eax,eax",
        ".rept 16",
        "jnz 3f",
        "nop word ptr [rax+rax]",
        "3:",
        ".endr",
        "sub rdi,1",
        "jnz 2b",
        "ret",
    )
}

/// Branches that are always taken.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_branches_always(_iterations: u64) {
    naked_asm!(
        "2:",
        "xor eax,eax",
        ".rept 16",
        "jz 3f",
        "nop word ptr [rax+rax]",
        "3:",
        ".endr",
        "sub rdi,1",
        "jnz 2b",
        "ret",
    )
}

/// A branch by a random bit (xorshift64), which is foreseen wrongly half of the time, and one by the opposite, which follows from
/// it. One of the two instructions that they skip is always done.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_branches_random(_iterations: u64) {
    naked_asm!(
        "mov rax,0x9e3779b97f4a7c15",
        "xor esi,esi",
        "xor edx,edx",
        "2:",
        "mov rcx,rax",
        "shl rcx,13",
        "xor rax,rcx",
        "mov rcx,rax",
        "shr rcx,7",
        "xor rax,rcx",
        "mov rcx,rax",
        "shl rcx,17",
        "xor rax,rcx",
        "test eax,0x10000",
        "jz 3f",
        "add rsi,1",
        "3:",
        "test eax,0x10000",
        "jnz 4f",
        "add rdx,1",
        "4:",
        "sub rdi,1",
        "jnz 2b",
        "ret",
    )
}

/// Reads a line of one array.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_load(_lines: u64, _written: *mut u8, _first: *const u8, _second: *const u8) {
    naked_asm!(
        "2:",
        "movapd xmm0,[rdx]",
        "movapd xmm1,[rdx+16]",
        "movapd xmm2,[rdx+32]",
        "movapd xmm3,[rdx+48]",
        "add rdx,64",
        "sub rdi,1",
        "jnz 2b",
        "ret",
    )
}

/// STREAM's triad, a line of each of three arrays: a = b + q c.
macro_rules! triad {
    ($symbol:ident, $store:literal, $end:literal) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(_lines: u64, _written: *mut u8, _first: *const u8, _second: *const u8) {
            naked_asm!(
                "mov rax,0x3ff0000000000000",
                "movq xmm15,rax",
                "unpcklpd xmm15,xmm15",
                "2:",
                ".irp at,0,16,32,48",
                "movapd xmm0,[rcx+\\at]",
                "mulpd xmm0,xmm15",
                "addpd xmm0,[rdx+\\at]",
                $store,
                ".endr",
                "add rsi,64",
                "add rdx,64",
                "add rcx,64",
                "sub rdi,1",
                "jnz 2b",
                $end,
                "ret",
            )
        }
    };
}

triad!(known_work_triad, "movapd [rsi+\\at],xmm0", "");
triad!(known_work_triad_nontemporal, "movntpd [rsi+\\at],xmm0", "sfence");

/// Follows pointers: each address is the result of the load before.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn known_work_chase(_iterations: u64, _at: *const u8) -> *const u8 {
    naked_asm!("2:", ".rept 8", "mov rsi,[rsi]", ".endr", "sub rdi,1", "jnz 2b", "mov rax,rsi", "ret")
}

pub(crate) fn kernels() -> Vec<Kernel> {
    use Precision::{Double, Single};
    let (avx, fma) = (is_x86_feature_detected!("avx"), is_x86_feature_detected!("fma"));
    let wide = is_x86_feature_detected!("avx512f");
    let works = |instructions, branches| Work {
        instructions: Some(instructions),
        branches: Some(branches),
        ..Work::default()
    };
    let streams = |instructions, loaded, stored, written_are_read: u64| Work {
        loaded,
        stored,
        traffic: Some(Traffic { read: (loaded, loaded + written_are_read), written: stored }),
        flops: (stored > 0).then_some(Flops { precision: Double, width: Width::Bits(128), count: 16 }),
        ..works(instructions, 1)
    };
    vec![
        Kernel::arithmetic("add_scalar_double", true, Double, 0, OPERATIONS, known_work_add_scalar_double),
        Kernel::arithmetic("add_scalar_single", true, Single, 0, OPERATIONS, known_work_add_scalar_single),
        Kernel::arithmetic("add_128_double", true, Double, 128, OPERATIONS, known_work_add_128_double),
        Kernel::arithmetic("add_128_single", true, Single, 128, OPERATIONS, known_work_add_128_single),
        Kernel::arithmetic("add_256_double", avx, Double, 256, OPERATIONS, known_work_add_256_double),
        Kernel::arithmetic("add_256_single", avx, Single, 256, OPERATIONS, known_work_add_256_single),
        Kernel::arithmetic("add_512_double", wide, Double, 512, OPERATIONS, known_work_add_512_double),
        Kernel::arithmetic("add_512_single", wide, Single, 512, OPERATIONS, known_work_add_512_single),
        Kernel::arithmetic("fma_scalar_double", fma, Double, 0, OPERATIONS, known_work_fma_scalar_double),
        Kernel::arithmetic("fma_scalar_single", fma, Single, 0, OPERATIONS, known_work_fma_scalar_single),
        Kernel::arithmetic("fma_128_double", fma, Double, 128, OPERATIONS, known_work_fma_128_double),
        Kernel::arithmetic("fma_128_single", fma, Single, 128, OPERATIONS, known_work_fma_128_single),
        Kernel::arithmetic("fma_256_double", fma, Double, 256, OPERATIONS, known_work_fma_256_double),
        Kernel::arithmetic("fma_256_single", fma, Single, 256, OPERATIONS, known_work_fma_256_single),
        Kernel::arithmetic("fma_512_double", wide, Double, 512, OPERATIONS, known_work_fma_512_double),
        Kernel::arithmetic("fma_512_single", wide, Single, 512, OPERATIONS, known_work_fma_512_single),
        Kernel::other(
            "chain",
            "dependent instructions of one cycle each",
            Work { cycles: Some(128), ..works(130, 1) },
            Body::Registers(known_work_chain),
        ),
        Kernel::other(
            "branches_never",
            "branches that are never taken",
            Work { mispredicted: Some(0.0), ..works(35, 17) },
            Body::Registers(known_work_branches_never),
        ),
        Kernel::other(
            "branches_always",
            "branches that are always taken",
            Work { mispredicted: Some(0.0), ..works(19, 17) },
            Body::Registers(known_work_branches_always),
        ),
        Kernel::other(
            "branches_random",
            "branches by random bits",
            Work { mispredicted: Some(0.5), ..works(16, 3) },
            Body::Registers(known_work_branches_random),
        ),
        Kernel::other("load", "reads of an array", streams(7, 64, 0, 0), Body::Stream(known_work_load)),
        Kernel::other("triad", "STREAM's triad", streams(21, 128, 64, 64), Body::Stream(known_work_triad)),
        Kernel::other(
            "triad_nontemporal",
            "STREAM's triad with stores past the caches",
            streams(21, 128, 64, 0),
            Body::Stream(known_work_triad_nontemporal),
        ),
        Kernel::other(
            "chase",
            "a chain of pointers in random order",
            // Intel's and AMD's prefetchers may fetch the other line of a pair of 128 bytes.
            Work {
                loaded: 8 * FOLLOWED,
                traffic: Some(Traffic { read: (64 * FOLLOWED, 128 * FOLLOWED), written: 0 }),
                ..works(FOLLOWED + 2, 1)
            },
            Body::Chase(known_work_chase),
        ),
    ]
}
