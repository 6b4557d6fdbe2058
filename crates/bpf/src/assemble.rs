//! A small assembler for BPF (Documentation/bpf/standardization/instruction-set.rst). Jumps go to labels; what comes
//! out is checked by the kernel's verifier, so nothing here has to be.

/// A register. `R0` is a call's answer, `R1` to `R5` its arguments and lost by it, `R10` the end of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "their numbers are their names")]
pub enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// How much a load or a store moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// 32 bits.
    Word = 0x00,
    /// 64 bits.
    Double = 0x18,
}

/// What a conditional jump asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// The register has the value.
    Equal = 0x10,
    /// It has another.
    NotEqual = 0x50,
    /// It is more, both taken as unsigned.
    Greater = 0x20,
    /// It is less, both taken as unsigned.
    Less = 0xa0,
}

/// Functions of the kernel that programs may call (include/uapi/linux/bpf.h, `enum bpf_func_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: address of the value, or 0.
    MapLookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`.
    MapUpdate = 2,
    /// `bpf_get_smp_processor_id()`: the CPU that the program runs on.
    CurrentCpu = 8,
    /// `bpf_perf_event_read(map, index)`: an event's count alone, or a negative errno. Linux 4.3; as the one below.
    CountPerfEvent = 22,
    /// `bpf_perf_event_read_value(map, index, buffer, size)`: an event's count, enabled and running time, three 64-bit
    /// numbers; 0, or a negative errno. The event is one of this CPU. Linux 4.15; for programs under a licence that is
    /// compatible with the GPL.
    ReadPerfEvent = 55,
    /// `bpf_get_current_task_btf()`: the running task, whose members may be loaded, and what they point to. Linux 5.11; as the one
    /// above, for programs under a licence that is compatible with the GPL.
    CurrentTask = 158,
    /// `bpf_skb_ancestor_cgroup_id(skb, level)`: id of the cgroup at that depth above the packet's socket, or 0.
    /// For programs of cgroups from Linux 5.8.
    PacketAncestorCgroup = 83,
}

/// A place to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program that cannot be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A jump to a label that was never placed.
    #[error("a jump leads nowhere")]
    Unplaced,
    /// A jump over more than 32767 instructions.
    #[error("a jump is too far")]
    TooFar,
}

/// Class and operation of an instruction.
mod code {
    pub(super) const LOAD_IMMEDIATE_DOUBLE: u8 = 0x18;
    pub(super) const LOAD: u8 = 0x61;
    pub(super) const STORE_IMMEDIATE: u8 = 0x62;
    pub(super) const STORE: u8 = 0x63;
    pub(super) const ATOMIC: u8 = 0xc3;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP_IF_SAME: u8 = 0x1d;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
    pub(super) const ADD_IMMEDIATE: u8 = 0x07;
    pub(super) const ADD: u8 = 0x0f;
    pub(super) const SUBTRACT: u8 = 0x1f;
    pub(super) const AND_IMMEDIATE: u8 = 0x57;
    pub(super) const SHIFT_RIGHT: u8 = 0x7f;
    pub(super) const MOVE_IMMEDIATE: u8 = 0xb7;
    pub(super) const MOVE: u8 = 0xbf;
}

/// Source register of a 64-bit load that says: the value is the descriptor of a map.
const IS_MAP: u8 = 1;

/// Writes a program down, instruction by instruction.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<[u8; 8]>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> &mut Self {
        let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
        let [o0, o1] = offset.to_ne_bytes();
        let [i0, i1, i2, i3] = immediate.to_ne_bytes();
        self.code.push([code, registers, o0, o1, i0, i1, i2, i3]);
        self
    }

    /// `to = value`
    pub fn set(&mut self, to: Register, value: i32) -> &mut Self {
        self.emit(code::MOVE_IMMEDIATE, to as u8, 0, 0, value)
    }

    /// `to = from`
    pub fn copy(&mut self, to: Register, from: Register) -> &mut Self {
        self.emit(code::MOVE, to as u8, from as u8, 0, 0)
    }

    /// `to += value`
    pub fn add(&mut self, to: Register, value: i32) -> &mut Self {
        self.emit(code::ADD_IMMEDIATE, to as u8, 0, 0, value)
    }

    /// `to += from`
    pub fn add_register(&mut self, to: Register, from: Register) -> &mut Self {
        self.emit(code::ADD, to as u8, from as u8, 0, 0)
    }

    /// `to -= from`
    pub fn subtract(&mut self, to: Register, from: Register) -> &mut Self {
        self.emit(code::SUBTRACT, to as u8, from as u8, 0, 0)
    }

    /// `to &= value`, sign-extended.
    pub fn and(&mut self, to: Register, value: i32) -> &mut Self {
        self.emit(code::AND_IMMEDIATE, to as u8, 0, 0, value)
    }

    /// `to >>= bits`, filled up with zeros.
    pub fn shift_right_by(&mut self, to: Register, bits: Register) -> &mut Self {
        self.emit(code::SHIFT_RIGHT, to as u8, bits as u8, 0, 0)
    }

    /// `to = *(base + offset)`
    pub fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) -> &mut Self {
        self.emit(code::LOAD | width as u8, to as u8, base as u8, offset, 0)
    }

    /// `*(base + offset) = from`
    pub fn store(&mut self, width: Width, base: Register, offset: i16, from: Register) -> &mut Self {
        self.emit(code::STORE | width as u8, base as u8, from as u8, offset, 0)
    }

    /// `*(base + offset) = value`
    pub fn store_value(&mut self, width: Width, base: Register, offset: i16, value: i32) -> &mut Self {
        self.emit(code::STORE_IMMEDIATE | width as u8, base as u8, 0, offset, value)
    }

    /// `*(base + offset) += from`, in one, whatever other CPUs do.
    pub fn add_atomically(&mut self, width: Width, base: Register, offset: i16, from: Register) -> &mut Self {
        self.emit(code::ATOMIC | width as u8, base as u8, from as u8, offset, 0)
    }

    /// `to =` the map behind a descriptor of this process.
    pub fn map(&mut self, to: Register, descriptor: i32) -> &mut Self {
        self.emit(code::LOAD_IMMEDIATE_DOUBLE, to as u8, IS_MAP, 0, descriptor);
        self.emit(0, 0, 0, 0, 0)
    }

    /// `R0 = helper(R1, ...)`
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.emit(code::CALL, 0, 0, 0, helper as i32)
    }

    /// Ends the program with the value of `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.emit(code::EXIT, 0, 0, 0, 0)
    }

    /// A label, to be placed later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Here is where a label leads.
    pub fn place(&mut self, label: Label) -> &mut Self {
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
        self
    }

    /// Goes on at a label.
    pub fn jump(&mut self, label: Label) -> &mut Self {
        self.jumps.push((self.code.len(), label));
        self.emit(code::JUMP, 0, 0, 0, 0)
    }

    /// Goes on at a label if the condition holds.
    pub fn jump_if(&mut self, register: Register, is: Condition, value: i32, label: Label) -> &mut Self {
        self.jumps.push((self.code.len(), label));
        self.emit(code::JUMP | is as u8, register as u8, 0, 0, value)
    }

    /// Goes on at a label if both registers have the same value.
    pub fn jump_if_same(&mut self, one: Register, other: Register, label: Label) -> &mut Self {
        self.jumps.push((self.code.len(), label));
        self.emit(code::JUMP_IF_SAME, one as u8, other as u8, 0, 0)
    }

    /// The program, its jumps resolved.
    pub fn finish(mut self) -> Result<Vec<[u8; 8]>, AssembleError> {
        for (at, label) in self.jumps {
            let target = self.labels.get(label.0).copied().flatten().ok_or(AssembleError::Unplaced)?;
            // Counted from the instruction after the jump.
            let distance = i64::try_from(target).ok().zip(i64::try_from(at).ok()).map(|(to, at)| to - at - 1);
            let distance =
                distance.and_then(|d| i16::try_from(d).ok()).ok_or(AssembleError::TooFar)?.to_ne_bytes();
            if let Some([_, _, low, high, ..]) = self.code.get_mut(at) {
                [*low, *high] = distance;
            }
        }
        Ok(self.code)
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::Register::*;
    use super::*;

    fn one(write: impl for<'a> FnOnce(&'a mut Assembler) -> &'a mut Assembler) -> [u8; 8] {
        let mut asm = Assembler::default();
        write(&mut asm);
        let code = asm.finish().unwrap();
        assert_eq!(code.len(), 1);
        code[0]
    }

    /// The bytes that clang writes for the same instructions of the BPF instruction set.
    #[test]
    fn every_instruction_has_its_documented_bytes() {
        assert_eq!(one(|a| a.set(R0, 1)), [0xb7, 0x00, 0, 0, 1, 0, 0, 0]);
        assert_eq!(one(|a| a.set(R9, -2)), [0xb7, 0x09, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(one(|a| a.copy(R6, R1)), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.add(R2, -16)), [0x07, 0x02, 0, 0, 0xf0, 0xff, 0xff, 0xff]);
        assert_eq!(one(|a| a.add_register(R2, R1)), [0x0f, 0x12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.subtract(R1, R2)), [0x1f, 0x21, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.and(R1, 1)), [0x57, 0x01, 0, 0, 1, 0, 0, 0]);
        assert_eq!(one(|a| a.shift_right_by(R3, R2)), [0x7f, 0x23, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.load(Width::Word, R7, R6, 40)), [0x61, 0x67, 40, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.load(Width::Double, R0, R10, -8)), [0x79, 0xa0, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store(Width::Double, R10, -16, R0)), [0x7b, 0x0a, 0xf0, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store(Width::Word, R10, -4, R3)), [0x63, 0x3a, 0xfc, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store_value(Width::Double, R10, -8, 0)), [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store_value(Width::Word, R10, -4, 7)), [0x62, 0x0a, 0xfc, 0xff, 7, 0, 0, 0]);
        assert_eq!(one(|a| a.add_atomically(Width::Double, R0, 24, R7)), [0xdb, 0x70, 24, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.add_atomically(Width::Word, R0, 0, R1)), [0xc3, 0x10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.call(Helper::MapLookup)), [0x85, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(one(|a| a.call(Helper::PacketAncestorCgroup)), [0x85, 0, 0, 0, 83, 0, 0, 0]);
        assert_eq!(one(|a| a.exit()), [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_map_takes_two_places() {
        let mut asm = Assembler::default();
        asm.map(R1, 0x1234);
        let code = asm.finish().unwrap();
        assert_eq!(code, [[0x18, 0x11, 0, 0, 0x34, 0x12, 0, 0], [0; 8]]);
    }

    #[test]
    fn jumps_are_counted_from_the_next_instruction_both_ways() {
        let mut asm = Assembler::default();
        let (start, end) = (asm.label(), asm.label());
        asm.place(start).jump_if(R0, Condition::NotEqual, 5, end).set(R0, 1).jump(start).place(end).exit();
        let code = asm.finish().unwrap();
        assert_eq!(code[0], [0x55, 0x00, 2, 0, 5, 0, 0, 0]);
        assert_eq!(code[2], [0x05, 0x00, 0xfd, 0xff, 0, 0, 0, 0]);
        let mut asm = Assembler::default();
        let there = asm.label();
        asm.jump_if(R8, Condition::Equal, 1, there).place(there).exit();
        assert_eq!(asm.finish().unwrap()[0], [0x15, 0x08, 0, 0, 1, 0, 0, 0]);
        let mut asm = Assembler::default();
        let there = asm.label();
        asm.jump_if(R7, Condition::Less, 16, there).place(there).exit();
        assert_eq!(asm.finish().unwrap()[0], [0xa5, 0x07, 0, 0, 16, 0, 0, 0]);
        let mut asm = Assembler::default();
        let there = asm.label();
        asm.jump_if_same(R1, R9, there).place(there).exit();
        assert_eq!(asm.finish().unwrap()[0], [0x1d, 0x91, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_jump_that_leads_nowhere_or_too_far_is_no_program() {
        let mut asm = Assembler::default();
        let nowhere = asm.label();
        asm.jump(nowhere);
        assert_eq!(asm.finish(), Err(AssembleError::Unplaced));
        let mut asm = Assembler::default();
        let far = asm.label();
        asm.jump(far);
        for _ in 0..=32_767 {
            asm.exit();
        }
        asm.place(far);
        assert_eq!(asm.finish(), Err(AssembleError::TooFar));
    }
}
