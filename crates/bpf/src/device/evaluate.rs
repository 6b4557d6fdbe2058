//! What a program answers, by doing what its instructions say (Documentation/bpf/standardization/instruction-set.rst).
//!
//! Supported are the programs of those that guard devices (SLURM, systemd, runc, crun, HTCondor; also with blinded
//! constants): loads of the question, arithmetic, jumps. A program that does anything else on the way to its answer
//! (calls, maps, memory) is `NotFollowed`. The kernel's verifier has accepted the program; nothing here relies on
//! that.

/// What a process wants to do with a device (include/uapi/linux/bpf.h, `BPF_DEVCG_ACC_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Open it for reading and writing.
    pub const READ_WRITE: Self = Self(6);
}

/// Kinds of devices (`BPF_DEVCG_DEV_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceKind {
    /// Disks.
    Block = 1,
    /// All else.
    Character = 2,
}

/// What a program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It lets the process have it, as far as this program goes.
    Allowed,
    /// It refuses, and no other can change that.
    Denied,
    /// It does something that is not supported here.
    NotFollowed(&'static str),
}

impl Outcome {
    /// The answer of two programs that both run: one refusal is enough, whatever the other does. Without a refusal,
    /// an unknown answer of one is an unknown answer of both.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Denied, _) | (_, Self::Denied) => Self::Denied,
            (Self::NotFollowed(why), _) | (_, Self::NotFollowed(why)) => Self::NotFollowed(why),
            (Self::Allowed, Self::Allowed) => Self::Allowed,
        }
    }
}

/// An instruction taken apart.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn new([code, registers, o0, o1, i0, i1, i2, i3]: [u8; 8]) -> Self {
        let (low, high) = (registers & 0xf, registers >> 4);
        let (to, from) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        let (offset, immediate) = (i16::from_ne_bytes([o0, o1]), i32::from_ne_bytes([i0, i1, i2, i3]));
        Self { code, to, from, offset, immediate }
    }

    /// The constant as 64-bit instructions see it.
    #[expect(clippy::cast_sign_loss, reason = "sign-extended to 64 bits, as the instruction set says")]
    fn wide(self) -> u64 {
        i64::from(self.immediate) as u64
    }
}

/// Parts of `code`.
mod part {
    pub(super) const CLASS: u8 = 0x07;
    pub(super) const LOAD: u8 = 0x01;
    pub(super) const ALU32: u8 = 0x04;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP32: u8 = 0x06;
    pub(super) const ALU64: u8 = 0x07;
    pub(super) const OPERATION: u8 = 0xf0;
    pub(super) const FROM_REGISTER: u8 = 0x08;
}

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Nothing,
    Number(u64),
    /// The address of the question.
    Question,
    /// The end of the stack.
    Frame,
}

/// R0 to R10, and the one that constants are blinded with (include/linux/filter.h, `BPF_REG_AX`).
const REGISTERS: usize = 12;

/// Programs without a loop have no more steps than instructions, and loops are rare.
const MOST_STEPS: usize = super::MOST_INSTRUCTIONS;

type Reason = &'static str;

struct Machine {
    registers: [Value; REGISTERS],
    /// `struct bpf_cgroup_dev_ctx` as it lies in memory: the kernel converts no access to it (kernel/bpf/cgroup.c,
    /// `cg_dev_verifier_ops`), so narrow loads see these bytes.
    question: [u8; 12],
}

impl Machine {
    fn new(access: Access, kind: DeviceKind, major: u32, minor: u32) -> Self {
        let mut registers = [Value::Nothing; REGISTERS];
        let [_, first, .., frame, _] = &mut registers;
        (*first, *frame) = (Value::Question, Value::Frame);
        let mut question = [0; 12];
        for (slot, word) in question.chunks_exact_mut(4).zip([access.0 << 16 | kind as u32, major, minor]) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        Self { registers, question }
    }

    fn get(&self, register: u8) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or(Value::Nothing)
    }

    fn number(&self, register: u8) -> Result<u64, Reason> {
        match self.get(register) {
            Value::Number(number) => Ok(number),
            Value::Nothing => Err("a register is read before it was written"),
            Value::Question | Value::Frame => Err("an address is used as a number"),
        }
    }

    fn set(&mut self, register: u8, value: Value) -> Result<(), Reason> {
        // R10 is never written.
        let slot = self.registers.get_mut(usize::from(register)).filter(|_| register != 10);
        *slot.ok_or("a register that cannot be written")? = value;
        Ok(())
    }

    /// The second operand, of 64 bits.
    fn operand(&self, instruction: Instruction) -> Result<u64, Reason> {
        if instruction.code & part::FROM_REGISTER == 0 {
            return if instruction.from == 0 { Ok(instruction.wide()) } else { Err(RESERVED) };
        }
        self.number(instruction.from)
    }

    fn load(&mut self, instruction: Instruction) -> Result<(), Reason> {
        let size = match instruction.code {
            0x61 => 4,
            0x69 => 2,
            0x71 => 1,
            _ => return Err("a load of another kind"),
        };
        let (Value::Question, Ok(at), 0) =
            (self.get(instruction.from), usize::try_from(instruction.offset), instruction.immediate)
        else {
            return Err("memory is read");
        };
        // As the kernel has it: aligned, and parts of the first word alone (`cgroup_dev_is_valid_access`).
        if at % size != 0 || (at >= 4 && size != 4) {
            return Err("a load that the kernel refuses");
        }
        let bytes = self.question.get(at..at + size).ok_or("memory is read")?;
        let number = match *bytes {
            [byte] => u64::from(byte),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => return Err("memory is read"),
        };
        self.set(instruction.to, Value::Number(number))
    }

    fn arithmetic(&mut self, instruction: Instruction, wide: bool) -> Result<(), Reason> {
        let from_register = instruction.code & part::FROM_REGISTER != 0;
        let operation = instruction.code & part::OPERATION;
        // A move with an offset extends signs or makes addresses of other spaces; one of 32 bits to the register itself
        // has a 1 as constant where the verifier put it in (include/linux/filter.h, `insn_is_zext`).
        let extends =
            operation == 0xb0 && !wide && instruction.to == instruction.from && instruction.immediate == 1;
        if instruction.offset != 0 || (from_register && instruction.immediate != 0 && !extends) {
            return Err(RESERVED);
        }
        if operation == 0xb0 && wide && from_register {
            return match self.get(instruction.from) {
                Value::Nothing => Err("a register is read before it was written"),
                value => self.set(instruction.to, value),
            };
        }
        let operand = self.operand(instruction)?;
        let bits = if wide { 64 } else { 32 };
        let shift = || match u32::try_from(operand) {
            _ if from_register => Ok(u32::try_from(operand & (bits - 1)).unwrap_or(0)),
            Ok(shift) if u64::from(shift) < bits => Ok(shift),
            _ => Err("a shift by more than there is"),
        };
        let low = |number: u64| if wide { number } else { number & 0xffff_ffff };
        let number = match operation {
            0xb0 => operand,
            0x00 => self.number(instruction.to)?.wrapping_add(operand),
            0x40 => self.number(instruction.to)? | operand,
            0x50 => self.number(instruction.to)? & operand,
            0xa0 => self.number(instruction.to)? ^ operand,
            0x60 => low(self.number(instruction.to)?).wrapping_shl(shift()?),
            0x70 => low(self.number(instruction.to)?).wrapping_shr(shift()?),
            _ => return Err("arithmetic of another kind"),
        };
        self.set(instruction.to, Value::Number(low(number)))
    }

    /// Whether a conditional jump is taken.
    #[expect(clippy::cast_possible_wrap, reason = "signed comparisons see the same bits with a sign")]
    fn jumps(&self, instruction: Instruction, wide: bool) -> Result<bool, Reason> {
        if instruction.code & part::FROM_REGISTER != 0 && instruction.immediate != 0 {
            return Err(RESERVED);
        }
        let (a, b) = (self.number(instruction.to)?, self.operand(instruction)?);
        let (a, b, signed) = if wide {
            (a, b, (a as i64, b as i64))
        } else {
            let sign = |number: u64| i64::from((number & 0xffff_ffff) as u32 as i32);
            (a & 0xffff_ffff, b & 0xffff_ffff, (sign(a), sign(b)))
        };
        Ok(match instruction.code & part::OPERATION {
            0x10 => a == b,
            0x20 => a > b,
            0x30 => a >= b,
            0x40 => a & b != 0,
            0x50 => a != b,
            0x60 => signed.0 > signed.1,
            0x70 => signed.0 >= signed.1,
            0xa0 => a < b,
            0xb0 => a <= b,
            0xc0 => signed.0 < signed.1,
            0xd0 => signed.0 <= signed.1,
            _ => return Err("a jump of another kind"),
        })
    }

    fn run(&mut self, code: &[[u8; 8]]) -> Result<u64, Reason> {
        let mut next = 0_usize;
        for _ in 0..MOST_STEPS {
            let instruction = *code.get(next).ok_or("its end is missing")?;
            let instruction = Instruction::new(instruction);
            next += 1;
            let mut leap = false;
            match instruction.code & part::CLASS {
                part::LOAD => self.load(instruction)?,
                part::ALU32 => self.arithmetic(instruction, false)?,
                part::ALU64 => self.arithmetic(instruction, true)?,
                part::JUMP if matches!(instruction.code, 0x05 | 0x95) => {
                    if (instruction.to, instruction.from, instruction.immediate) != (0, 0, 0) {
                        return Err(RESERVED);
                    }
                    leap = instruction.code == 0x05;
                    if !leap {
                        return if instruction.offset == 0 { self.number(0) } else { Err(RESERVED) };
                    }
                }
                part::JUMP if instruction.code == 0x85 => return Err("it calls a function"),
                part::JUMP => leap = self.jumps(instruction, true)?,
                part::JUMP32 => leap = self.jumps(instruction, false)?,
                0x00 => return Err("it has a map or a constant of 64 bits"),
                _ => return Err("memory is written"),
            }
            if leap {
                next = next.checked_add_signed(instruction.offset.into()).ok_or("a jump leads nowhere")?;
            }
        }
        Err("it takes too long")
    }
}

const RESERVED: Reason = "an instruction of another kind";

/// What the program answers to this question. It is given as the kernel shows it (`xlated_prog_insns`).
pub fn evaluate(code: &[[u8; 8]], access: Access, kind: DeviceKind, major: u32, minor: u32) -> Outcome {
    match Machine::new(access, kind, major, minor).run(code).map(|answer| answer & 0xffff_ffff) {
        Ok(0) => Outcome::Denied,
        Ok(1) => Outcome::Allowed,
        // The verifier lets no other answer pass.
        Ok(_) => Outcome::NotFollowed("its answer is neither yes nor no"),
        Err(why) => Outcome::NotFollowed(why),
    }
}
