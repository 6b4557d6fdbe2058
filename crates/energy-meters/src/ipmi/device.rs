//! Messages through the kernel's IPMI driver (Documentation/driver-api/ipmi.rst, uapi/linux/ipmi.h).

use std::ffi::{c_int, c_long, c_short, c_uchar, c_uint, c_ushort};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use kernel_files::{ReadError, Roots};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::ioctl::{Setter, Updater, ioctl, opcode};

use super::protocol::Question;

/// Where udev and older scripts put the first interface.
const PATHS: [&str; 3] = ["ipmi0", "ipmi/0", "ipmidev/0"];
/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE` and `IPMI_BMC_CHANNEL`: the BMC itself.
const SYSTEM_INTERFACE: c_int = 0x0c;
const BMC_CHANNEL: c_short = 0xf;
/// `IPMI_RESPONSE_RECV_TYPE`; other messages are events and commands.
const RESPONSE: c_int = 1;
/// `IPMI_MAX_MSG_LENGTH`, and the size of `struct ipmi_addr`.
const LONGEST_MESSAGE: u16 = 272;
const LONGEST_ADDRESS: u32 = 40;

/// Network function, command and data of a question: all that is ever sent.
fn message(question: Question) -> (c_uchar, c_uchar, &'static [u8]) {
    match question {
        Question::DeviceId => (0x06, 0x01, &[]),
        Question::PowerReading => (0x2c, 0x02, &[0xdc, 0x01, 0x00, 0x00]),
        Question::XccEnergy => (0x3a, 0x32, &[0x04, 0x02, 0x00, 0x00, 0x00]),
    }
}

/// Carries questions to the BMC, and its answers.
pub(super) trait Carry: Send {
    /// Sends a question under a number.
    fn send(&mut self, number: c_long, question: Question) -> Result<(), Errno>;

    /// The next answer that is there, with the number of its question. It does not wait.
    fn receive(&mut self) -> Result<Option<(c_long, Vec<u8>)>, Errno>;

    /// Waits for an answer. False when none came in this time.
    fn wait(&mut self, limit: Duration) -> Result<bool, Errno>;
}

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Address {
    kind: c_int,
    channel: c_short,
    lun: c_uchar,
}

/// `struct ipmi_msg`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Message {
    network_function: c_uchar,
    command: c_uchar,
    length: c_ushort,
    data: *mut c_uchar,
}

/// `struct ipmi_req`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Request {
    address: *mut Address,
    address_length: c_uint,
    number: c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Received {
    kind: c_int,
    address: *mut c_uchar,
    address_length: c_uint,
    number: c_long,
    message: Message,
}

pub(super) const SEND_COMMAND: rustix::ioctl::Opcode = opcode::read::<Request>(b'i', 13);
pub(super) const RECEIVE_MSG_TRUNC: rustix::ioctl::Opcode = opcode::read_write::<Received>(b'i', 11);

/// The device. The driver gives answers to the descriptor that asked, so other programs get none of these.
#[derive(Debug)]
pub(super) struct Device(OwnedFd);

impl Device {
    /// `None` where there is no interface to a BMC.
    pub(super) fn open(roots: &Roots) -> Result<Option<Self>, ReadError> {
        // The driver asks for no right to write.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
        for path in PATHS {
            match openat(CWD, roots.dev(path), flags, Mode::empty()).map_err(ReadError::from_errno) {
                Ok(device) => return Ok(Some(Self(device))),
                Err(ReadError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether there is an interface, without opening it.
    pub(super) fn exists(roots: &Roots) -> bool {
        PATHS.iter().any(|path| roots.dev(path).exists())
    }
}

impl From<OwnedFd> for Device {
    fn from(device: OwnedFd) -> Self {
        Self(device)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Carry for Device {
    #[expect(unsafe_code, reason = "the driver speaks ioctl only")]
    fn send(&mut self, number: c_long, question: Question) -> Result<(), Errno> {
        let (network_function, command, data) = message(question);
        let mut address = Address { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, lun: 0 };
        let length = c_ushort::try_from(data.len()).map_err(|_| Errno::TOOBIG)?;
        let message = Message { network_function, command, length, data: data.as_ptr().cast_mut() };
        let address_length = c_uint::try_from(size_of::<Address>()).map_err(|_| Errno::TOOBIG)?;
        let request = Request { address: &raw mut address, address_length, number, message };
        // SAFETY: the opcode is IPMICTL_SEND_COMMAND, whose argument is a pointer to a `struct ipmi_req`; `Request` has its
        // layout (the test holds size and offsets).
        let command = unsafe { Setter::<SEND_COMMAND, Request>::new(request) };
        // SAFETY: as above. The driver copies the address and the data, whose lengths are beside their pointers, before it
        // returns, and writes nothing; both outlive the call. Another driver behind the descriptor answers ENOTTY.
        unsafe { ioctl(&self.0, command) }
    }

    #[expect(unsafe_code, reason = "the driver speaks ioctl only")]
    fn receive(&mut self) -> Result<Option<(c_long, Vec<u8>)>, Errno> {
        loop {
            let mut address = [0; LONGEST_ADDRESS as usize];
            let mut data = [0; LONGEST_MESSAGE as usize];
            let message =
                Message { network_function: 0, command: 0, length: LONGEST_MESSAGE, data: data.as_mut_ptr() };
            let mut received = Received {
                kind: 0,
                address: address.as_mut_ptr(),
                address_length: LONGEST_ADDRESS,
                number: 0,
                message,
            };
            // SAFETY: the opcode is IPMICTL_RECEIVE_MSG_TRUNC, whose argument is a pointer to a `struct ipmi_recv`;
            // `Received` has its layout (the test holds size and offsets), every bit pattern that the driver leaves is valid
            // for it, and it outlives the call.
            let command = unsafe { Updater::<RECEIVE_MSG_TRUNC, Received>::new(&mut received) };
            // SAFETY: as above. The driver writes the two buffers, which outlive the call, up to the lengths beside their
            // pointers. Another driver behind the descriptor answers ENOTTY.
            match unsafe { ioctl(&self.0, command) } {
                Ok(()) if received.kind == RESPONSE => {
                    let answer = data.get(..usize::from(received.message.length)).unwrap_or(&data);
                    return Ok(Some((received.number, answer.to_vec())));
                }
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn wait(&mut self, limit: Duration) -> Result<bool, Errno> {
        let limit = Timespec::try_from(limit).map_err(|_| Errno::TOOBIG)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use test_machine::Machine;

    use super::*;

    #[test]
    fn messages_are_laid_out_as_the_header_says() {
        assert_eq!(size_of::<Address>(), 8);
        assert_eq!((offset_of!(Address, channel), offset_of!(Address, lun)), (4, 6));
        assert_eq!(size_of::<Message>(), 16);
        assert_eq!(
            (offset_of!(Message, command), offset_of!(Message, length), offset_of!(Message, data)),
            (1, 2, 8)
        );
        assert_eq!(size_of::<Request>(), 40);
        let request =
            (offset_of!(Request, address_length), offset_of!(Request, number), offset_of!(Request, message));
        assert_eq!(request, (8, 16, 24));
        assert_eq!(size_of::<Received>(), 48);
        let received = (
            offset_of!(Received, address),
            offset_of!(Received, address_length),
            offset_of!(Received, number),
            offset_of!(Received, message),
        );
        assert_eq!(received, (8, 16, 24, 32));
        // Of a C program that prints them, on x86_64; _IOC is the same on arm64 (asm-generic/ioctl.h).
        assert_eq!((SEND_COMMAND, RECEIVE_MSG_TRUNC), (0x8028_690d, 0xc030_690b));
    }

    #[test]
    fn without_an_interface_there_is_no_device() {
        assert!(Device::open(&Machine::new().roots()).unwrap().is_none());
    }

    #[test]
    fn the_older_names_are_known() {
        let machine = Machine::new();
        machine.write("dev/ipmi/0", "");
        assert!(Device::open(&machine.roots()).unwrap().is_some());
        let machine = Machine::new();
        machine.write("dev/ipmidev/0", "");
        assert!(Device::open(&machine.roots()).unwrap().is_some());
    }

    #[test]
    fn another_device_does_not_understand() {
        let machine = Machine::new();
        machine.write("dev/ipmi0", "");
        let mut device = Device::open(&machine.roots()).unwrap().unwrap();
        assert_eq!(device.send(1, Question::PowerReading), Err(Errno::NOTTY));
        assert_eq!(device.receive(), Err(Errno::NOTTY));
    }
}
