//! The helper's end: reads questions, checks them, and answers them one by one.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};

use crate::ipmi::answer::{LENOVO, parse_device_id, parse_power_reading, parse_xcc_energy};
use crate::ipmi::bmc::Bmc;
use crate::ipmi::device::{Carry, Device};
use crate::ipmi::protocol::{Answer, DEVICE, Outcome, QUESTION_LENGTH, Question, Reading};

/// The BMC is asked the same at most so often: what it takes to answer passes in its driver.
pub(in crate::ipmi) const PAUSE: Duration = Duration::from_secs(5);

/// What the BMC said, and when it may be asked again.
pub(in crate::ipmi) struct Desk {
    bmc: Bmc,
    /// Whether the BMC has said that it is Lenovo's.
    is_lenovos: bool,
    /// When each question was passed on the last time, and what came of it.
    last: BTreeMap<Question, (Instant, Outcome)>,
}

impl Desk {
    pub(in crate::ipmi) fn new(device: impl Carry + 'static) -> Self {
        Self { bmc: Bmc::new(Box::new(device)), is_lenovos: false, last: BTreeMap::new() }
    }

    /// The answer to a message, `None` to what is no question. Within [`PAUSE`] it is the last one, with its age.
    pub(in crate::ipmi) fn answer(&mut self, message: &[u8], now: Instant) -> Option<Answer> {
        let (number, question) = Question::parse(message).ok()?;
        // What Lenovo's command does elsewhere is not known.
        if question == Question::XccEnergy && !self.is_lenovos {
            return None;
        }
        let age = |(asked, _): &&(Instant, Outcome)| now.saturating_duration_since(*asked);
        if let Some(last) = self.last.get(&question).filter(|last| age(last) < PAUSE) {
            let age_ms = u32::try_from(age(&last).as_millis()).unwrap_or(u32::MAX).max(1);
            return Some(Answer { number, question, age_ms, outcome: last.1 });
        }
        let outcome = self.ask(question, now);
        self.last.insert(question, (now, outcome));
        Some(Answer { number, question, age_ms: 0, outcome })
    }

    fn ask(&mut self, question: Question, now: Instant) -> Outcome {
        let answer = self.bmc.ask(question, now)?;
        Ok(match question {
            Question::DeviceId => {
                let manufacturer = parse_device_id(&answer)?;
                self.is_lenovos = manufacturer == LENOVO;
                Reading { value: manufacturer.into(), time_stamp: None }
            }
            Question::PowerReading => parse_power_reading(&answer)?.into(),
            Question::XccEnergy => parse_xcc_energy(&answer)?.into(),
        })
    }
}

/// Answers until the exporter is gone. What is no question is not answered.
pub(super) fn serve(socket: BorrowedFd<'_>) {
    let Some(device) = receive_device(socket) else { return };
    let mut desk = Desk::new(Device::from(device));
    // One more than there can be, so that a longer one is not taken for its beginning. Descriptors beside it are dropped by
    // the kernel.
    let mut message = [0; QUESTION_LENGTH + 1];
    loop {
        let length = match recv(socket, message.as_mut_slice(), RecvFlags::empty()) {
            Ok((_, 0)) => return,
            Ok((_, length)) => length,
            Err(Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => continue,
            Err(_) => return,
        };
        let message = message.get(..length).unwrap_or_default();
        let Some(answer) = desk.answer(message, Instant::now()) else { continue };
        let answer = answer.write();
        loop {
            match send(socket, &answer, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
    }
}

/// The device, with which the exporter begins.
fn receive_device(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut message = [0; DEVICE.len() + 1];
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => {}
            received => break received.ok()?,
        }
    };
    let device = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    device.filter(|_| message.get(..received.bytes) == Some(&DEVICE[..]))
}
