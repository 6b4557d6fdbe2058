//! Messages to AMD's management firmware through `/dev/hsmp` (Documentation/arch/x86/amd_hsmp.rst and the header
//! uapi/asm/amd_hsmp.h).

use std::os::fd::OwnedFd;
use std::path::Path;

use kernel_files::ReadError;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::ioctl::{Updater, ioctl, opcode};

/// The messages that are ever sent: all of them ask. There is no way to say one that sets something, and the driver
/// would refuse it on a descriptor that is open for reading only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(in super::super) enum Question {
    /// Version of the protocol.
    Protocol = 0x03,
    /// Power of the socket, milliwatts.
    SocketPower = 0x04,
    /// Units of energy: 2^-n joules with n in bits 8 to 12. Protocol 7.
    EnergyUnits = 0x30,
    /// Energy of the package: low word, high word. Protocol 7.
    PackageEnergy = 0x32,
}

impl Question {
    /// Words of the answer, which the driver checks.
    fn words(self) -> u16 {
        match self {
            Self::Protocol | Self::SocketPower | Self::EnergyUnits => 1,
            Self::PackageEnergy => 2,
        }
    }
}

/// Answers questions.
pub(in super::super) trait Ask: Send {
    /// Asks a socket, by its index. Words that do not belong to the answer are 0.
    fn ask(&self, socket: u16, question: Question) -> Result<[u32; 2], ReadError>;
}

/// `struct hsmp_message`, which the header packs to 4 bytes; so it is without that.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Message {
    id: u32,
    arguments: u16,
    answer_words: u16,
    words: [u32; 8],
    socket: u16,
}

/// The device, open for reading.
#[derive(Debug)]
pub(in super::super) struct Device(OwnedFd);

impl Device {
    pub(in super::super) fn open(path: &Path) -> Result<Self, ReadError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
        openat(CWD, path, flags, Mode::empty()).map(Self).map_err(ReadError::from_errno)
    }
}

impl Ask for Device {
    #[expect(unsafe_code, reason = "the driver speaks ioctl only")]
    fn ask(&self, socket: u16, question: Question) -> Result<[u32; 2], ReadError> {
        const COMMAND: rustix::ioctl::Opcode = opcode::read_write::<Message>(0xF8, 0);
        let mut message =
            Message { id: question as u32, answer_words: question.words(), socket, ..Message::default() };
        // SAFETY: the opcode is HSMP_IOCTL_CMD, whose argument is a pointer to a `struct hsmp_message`; `Message` has its
        // layout (the test holds size and offsets), every bit pattern is valid for it, and it runs through the call.
        let command = unsafe { Updater::<COMMAND, Message>::new(&mut message) };
        // SAFETY: as above. The driver writes into the message and nowhere else; another driver behind the descriptor
        // answers an opcode that is not its own with ENOTTY.
        unsafe { ioctl(&self.0, command) }.map_err(ReadError::from_errno)?;
        let [low, high, ..] = message.words;
        Ok([low, if question.words() > 1 { high } else { 0 }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_laid_out_as_the_header_says() {
        assert_eq!((size_of::<Message>(), align_of::<Message>()), (44, 4));
        assert_eq!(std::mem::offset_of!(Message, words), 8);
        assert_eq!(std::mem::offset_of!(Message, socket), 40);
        assert_eq!(opcode::read_write::<Message>(0xF8, 0), 0xC02C_F800);
    }

    #[test]
    fn another_device_does_not_understand() {
        let device = Device::open(Path::new("/dev/null")).unwrap();
        let answer = device.ask(0, Question::Protocol);
        assert!(
            matches!(answer, Err(ReadError::Io(errno)) if errno == rustix::io::Errno::NOTTY.raw_os_error())
        );
    }
}
