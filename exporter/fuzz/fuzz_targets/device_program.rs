//! Programs that guard devices: the question (12 bytes), and instructions. Whatever they are, following them ends; and where
//! it ends with an answer, another interpreter gives the same.

use bpf::device::{Access, DeviceKind, Outcome, evaluate};

/// rbpf takes the constant of unsigned comparisons of 64 bits without its sign, knows no register for blinding, and does
/// not look at what is reserved.
fn beyond_the_other([code, registers, _, _, constant @ ..]: &[u8; 8]) -> bool {
    let unsigned = matches!(code, 0x15 | 0x25 | 0x35 | 0x55 | 0xa5 | 0xb5);
    (unsigned && i32::from_ne_bytes(*constant) < 0) || registers & 0xf > 10 || registers >> 4 > 10
}

pub fn fuzz(bytes: &[u8]) {
    let Some((question, code)) = bytes.split_at_checked(12) else { return };
    let word = |at: usize| question.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let kind = if word(0) & 1 == 1 { DeviceKind::Block } else { DeviceKind::Character };
    let (major, minor) = (word(4), word(8));
    let code: Vec<[u8; 8]> = code.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok()).collect();
    let outcome = evaluate(&code, Access::READ_WRITE, kind, major, minor);
    assert_eq!(outcome, outcome.and(Outcome::Allowed));
    assert_eq!(outcome.and(Outcome::Denied), Outcome::Denied);
    if matches!(outcome, Outcome::NotFollowed(_)) || code.iter().any(beyond_the_other) {
        return;
    }
    let flat = code.concat();
    let Ok(other) = rbpf::EbpfVmRaw::new(Some(&flat)) else { return };
    let mut question: Vec<u8> =
        [6 << 16 | kind as u32, major, minor].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    if let Ok(answer) = other.execute_program(&mut question) {
        assert_eq!(answer & 0xffff_ffff == 1, outcome == Outcome::Allowed, "{outcome:?} {answer}");
    }
}
