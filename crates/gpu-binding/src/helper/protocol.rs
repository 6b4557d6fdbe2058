//! What the exporter and its helper say to each other, one message each way on a socket that keeps messages apart. Pure.
//!
//! A question lists the devices and passes the cgroups as descriptors. An answer has one result for each cgroup: an
//! outcome, ids of programs, and one bit per device. Nothing else that the kernel shows leaves the helper.

use gpu_devices::DeviceNode;
pub use privileges::helper::{Malformed, Ready};
use rustix::io::Errno;

use crate::{DeviceAccess, MOST_NODES};

/// Cgroups of one question; the kernel passes 253 descriptors at most (include/net/scm.h, `SCM_MAX_FD`).
pub const MOST_CGROUPS: usize = 64;

/// The longest question.
pub const LONGEST_QUESTION: usize = 8 + 8 * MOST_NODES;

/// The longest answer: each cgroup with as many programs as there may be.
pub const LONGEST_ANSWER: usize = 8 + MOST_CGROUPS * (2 + 4 * MOST_PROGRAMS + MOST_NODES / 8);

const MOST_PROGRAMS: usize = bpf::device::MOST_PROGRAMS;

/// Distinguishes messages from noise. A version is not needed: both ends are the same program.
const QUESTION: u8 = 0xd1;
const ANSWER: u8 = 0xd2;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Chosen by the client, repeated in the answer.
    pub number: u32,
    /// How many descriptors of cgroups come with it.
    pub cgroups: usize,
    /// Character devices.
    pub nodes: Vec<DeviceNode>,
}

/// Reads parts of a message from its beginning.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn short(&mut self) -> Result<usize, Malformed> {
        self.array().map(u16::from_le_bytes).map(usize::from)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

impl Question {
    /// As it is sent; nothing that would not be understood.
    pub fn write(&self) -> Option<Vec<u8>> {
        let cgroups = u8::try_from(self.cgroups).ok().filter(|_| self.cgroups <= MOST_CGROUPS)?;
        let nodes = u16::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() <= MOST_NODES)?;
        let mut message = vec![QUESTION, cgroups];
        message.extend(nodes.to_le_bytes());
        message.extend(self.number.to_le_bytes());
        for node in &self.nodes {
            message.extend(node.major.to_le_bytes());
            message.extend(node.minor.to_le_bytes());
        }
        Some(message)
    }

    /// Parses a message that came with this many descriptors.
    pub fn parse(message: &[u8], descriptors: usize) -> Result<Self, Malformed> {
        let mut reader = Reader(message);
        if reader.byte()? != QUESTION {
            return Err(Malformed);
        }
        let (cgroups, count, number) = (usize::from(reader.byte()?), reader.short()?, reader.word()?);
        if cgroups > MOST_CGROUPS || cgroups != descriptors || count > MOST_NODES {
            return Err(Malformed);
        }
        let node = |_| Ok(DeviceNode { major: reader.word()?, minor: reader.word()? });
        let nodes = (0..count).map(node).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { number, cgroups, nodes })
    }
}

/// What came of a cgroup.
pub type Answer = Result<DeviceAccess, Errno>;

mod outcome {
    pub(super) const NO_PROGRAM: u8 = 0;
    pub(super) const NOT_FOLLOWED: u8 = 1;
    pub(super) const ALLOWED: u8 = 2;
    pub(super) const FAILED: u8 = 3;
}

/// An answer to the question of this number.
pub fn write_answer(number: u32, answers: &[Answer]) -> Vec<u8> {
    let mut message = vec![ANSWER, u8::try_from(answers.len()).unwrap_or(u8::MAX), 0, 0];
    message.extend(number.to_le_bytes());
    for answers in answers {
        match answers {
            Ok(DeviceAccess::NoProgram) => message.push(outcome::NO_PROGRAM),
            Ok(DeviceAccess::NotFollowed) => message.push(outcome::NOT_FOLLOWED),
            Ok(DeviceAccess::Allowed { nodes, programs }) => {
                let programs = programs.iter().take(MOST_PROGRAMS);
                message.push(outcome::ALLOWED);
                message.push(u8::try_from(programs.len()).unwrap_or(u8::MAX));
                programs.for_each(|id| message.extend(id.to_le_bytes()));
                let bit = |byte: u8, (at, allowed): (usize, &bool)| byte | u8::from(*allowed) << at;
                message.extend(nodes.chunks(8).map(|nodes| nodes.iter().enumerate().fold(0, bit)));
            }
            Err(errno) => {
                message.push(outcome::FAILED);
                message.extend(errno.raw_os_error().to_le_bytes());
            }
        }
    }
    message
}

/// Parses the answer to a question about this many cgroups and devices: its number, and the result for each cgroup.
pub fn parse_answer(message: &[u8], cgroups: usize, nodes: usize) -> Result<(u32, Vec<Answer>), Malformed> {
    let mut reader = Reader(message);
    let (kind, count, padding, number) = (reader.byte()?, reader.byte()?, reader.short()?, reader.word()?);
    if kind != ANSWER || usize::from(count) != cgroups || padding != 0 {
        return Err(Malformed);
    }
    let mut answers = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        answers.push(match reader.byte()? {
            outcome::NO_PROGRAM => Ok(DeviceAccess::NoProgram),
            outcome::NOT_FOLLOWED => Ok(DeviceAccess::NotFollowed),
            outcome::ALLOWED => {
                let programs = usize::from(reader.byte()?);
                if programs == 0 || programs > MOST_PROGRAMS {
                    return Err(Malformed);
                }
                let programs = (0..programs).map(|_| reader.word()).collect::<Result<_, _>>()?;
                let bytes = reader.take(nodes.div_ceil(8))?;
                let mut bits = bytes.iter().flat_map(|byte| (0..8).map(move |at| byte >> at & 1 != 0));
                let nodes = bits.by_ref().take(nodes).collect();
                if bits.any(|bit| bit) {
                    return Err(Malformed);
                }
                Ok(DeviceAccess::Allowed { nodes, programs })
            }
            outcome::FAILED => {
                let errno = reader.array().map(i32::from_le_bytes)?;
                if !(1..4096).contains(&errno) {
                    return Err(Malformed);
                }
                Err(Errno::from_raw_os_error(errno))
            }
            _ => return Err(Malformed),
        });
    }
    reader.end()?;
    Ok((number, answers))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answers() -> Vec<Answer> {
        let nodes = vec![true, false, true, false, false, false, false, true, true];
        vec![
            Ok(DeviceAccess::NoProgram),
            Ok(DeviceAccess::Allowed { nodes, programs: vec![7, u32::MAX] }),
            Err(Errno::NOENT),
            Ok(DeviceAccess::NotFollowed),
        ]
    }

    #[test]
    fn an_answer_has_one_bit_per_device() {
        let message = write_answer(0x0403_0201, &answers());
        assert_eq!(
            message,
            [
                &[0xd2, 4, 0, 0, 1, 2, 3, 4][..],
                &[0],
                &[2, 2, 7, 0, 0, 0, 255, 255, 255, 255, 0b1000_0101, 1],
                &[3, 2, 0, 0, 0],
                &[1],
            ]
            .concat()
        );
        assert_eq!(parse_answer(&message, 4, 9), Ok((0x0403_0201, answers())));
    }

    #[test]
    fn an_answer_to_another_question_or_torn_is_none() {
        let message = write_answer(1, &answers());
        assert!(parse_answer(&message, 3, 9).is_err() && parse_answer(&message, 4, 8).is_err());
        assert!(parse_answer(&message, 4, 17).is_err(), "more devices than were asked for");
        for end in 0..message.len() {
            assert_eq!(parse_answer(&message[..end], 4, 9), Err(Malformed), "{end}");
        }
        assert!(parse_answer(&[message, vec![0]].concat(), 4, 9).is_err());
        for bad in
            [[3, 0, 0, 0, 0], [3, 0, 0x10, 0, 0], [3, 255, 255, 255, 255], [9, 0, 0, 0, 0], [2, 0, 0, 0, 0]]
        {
            let message = [&[0xd2, 1, 0, 0, 0, 0, 0, 0][..], &bad].concat();
            assert!(parse_answer(&message, 1, 24).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_longest_messages_are_as_long_as_said() {
        let nodes = vec![DeviceNode { major: 195, minor: 0 }; MOST_NODES];
        let question = Question { number: 1, cgroups: MOST_CGROUPS, nodes };
        assert_eq!(question.write().unwrap().len(), LONGEST_QUESTION);
        let most = DeviceAccess::Allowed { nodes: vec![true; MOST_NODES], programs: vec![1; MOST_PROGRAMS] };
        assert_eq!(write_answer(1, &vec![Ok(most); MOST_CGROUPS]).len(), LONGEST_ANSWER);
        assert_eq!(Question { cgroups: MOST_CGROUPS + 1, ..question.clone() }.write(), None);
        let more = vec![DeviceNode { major: 195, minor: 0 }; MOST_NODES + 1];
        assert_eq!(Question { nodes: more, ..question }.write(), None);
    }

    proptest! {
        #[test]
        fn a_question_is_understood_as_it_was_meant(
            number: u32,
            cgroups in 0..=MOST_CGROUPS,
            nodes in proptest::collection::vec(any::<(u32, u32)>(), 0..40),
        ) {
            let nodes = nodes.into_iter().map(|(major, minor)| DeviceNode { major, minor }).collect();
            let question = Question { number, cgroups, nodes };
            let message = question.write().unwrap();
            prop_assert_eq!(Question::parse(&message, cgroups), Ok(question));
            prop_assert!(Question::parse(&message, cgroups + 1).is_err());
            for end in 0..message.len() {
                prop_assert!(Question::parse(&message[..end], cgroups).is_err());
            }
            prop_assert!(Question::parse(&[message, vec![0]].concat(), cgroups).is_err());
        }

        #[test]
        fn noise_is_refused_or_a_message(bytes in proptest::collection::vec(any::<u8>(), 0..64), n in 0..9_usize) {
            if let Ok(question) = Question::parse(&bytes, n) {
                prop_assert_eq!(question.write(), Some(bytes.clone()));
            }
            if let Ok((number, answers)) = parse_answer(&bytes, n, n) {
                prop_assert_eq!(write_answer(number, &answers), bytes);
            }
        }
    }
}
