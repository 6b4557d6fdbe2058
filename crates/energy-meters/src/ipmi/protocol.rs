//! What the exporter and the helper that holds the BMC's device say to each other, one message each way on a socket that keeps
//! messages apart. Pure.
//!
//! A question is one of three numbers. There is no way to say a message for the BMC.

use std::time::Duration;

use kernel_files::{ReadError, SourceError};
use privileges::helper::Malformed;
use readings::LARGEST_POWER;
use rustix::io::Errno;

use super::answer::{AnswerError, EnergyReading, Flaw, PowerReading};

/// Length of a question, bytes.
pub const QUESTION_LENGTH: usize = 8;
/// Length of an answer, bytes.
pub const ANSWER_LENGTH: usize = 24;
/// What the device comes with, beside it, before the first question.
pub(super) const DEVICE: [u8; 1] = [0xd8];
/// How long the BMC may take. Most answer within a tenth of a second, a busy one within a second.
pub(super) const LIMIT: Duration = Duration::from_secs(2);

/// Distinguish messages from noise. A version is not needed: both ends are the same program.
const QUESTION: u8 = 0xd6;
const ANSWER: u8 = 0xd7;

/// What the BMC is ever asked. There is no way to say a message that sets something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Who made the BMC (IPMI 2.0 section 20.1).
    DeviceId = 1,
    /// The node's power (DCMI 1.5 section 6.6.1), without enhanced statistics.
    PowerReading = 2,
    /// The count of energy of Lenovo's XCC, as SLURM's plugin `acct_gather_energy/xcc` asks for it.
    XccEnergy = 3,
}

impl Question {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::DeviceId, Self::PowerReading, Self::XccEnergy];

    /// Its name, for errors.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::DeviceId => "IPMI Get Device ID",
            Self::PowerReading => "DCMI Get Power Reading",
            Self::XccEnergy => "Lenovo's IPMI command for energy",
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|question| *question as u8 == number)
    }

    /// The largest number that answers it.
    fn largest(self) -> u64 {
        match self {
            Self::DeviceId => 0xf_ffff,
            Self::PowerReading => LARGEST_POWER / 1_000_000,
            Self::XccEnergy => u64::MAX,
        }
    }

    /// As it is sent, under a number that the answer repeats.
    pub fn write(self, number: u32) -> [u8; QUESTION_LENGTH] {
        let [a, b, c, d] = number.to_le_bytes();
        [QUESTION, self as u8, 0, 0, a, b, c, d]
    }

    /// Parses a question: its number and itself.
    pub fn parse(message: &[u8]) -> Result<(u32, Self), Malformed> {
        let [QUESTION, question, 0, 0, number @ ..] = message else { return Err(Malformed) };
        let number = number.try_into().map(u32::from_le_bytes).map_err(|_| Malformed)?;
        Ok((number, Self::of_number(*question).ok_or(Malformed)?))
    }
}

/// What the BMC said, in one number: the manufacturer, watts, or microjoules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The number.
    pub value: u64,
    /// When it was measured, in seconds of the BMC's clock.
    pub time_stamp: Option<u32>,
}

impl From<PowerReading> for Reading {
    fn from(reading: PowerReading) -> Self {
        Self { value: reading.watts.into(), time_stamp: reading.time_stamp }
    }
}

impl From<EnergyReading> for Reading {
    fn from(reading: EnergyReading) -> Self {
        Self { value: reading.microjoules, time_stamp: reading.time_stamp }
    }
}

/// Why a question has no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The device failed.
    Device(Errno),
    /// No answer came in time.
    Late,
    /// The answer holds no number.
    Answer(AnswerError),
}

impl Failure {
    /// The error of a source that asked this.
    pub(super) fn to(self, question: Question) -> SourceError {
        match self {
            Self::Device(failed) => super::error(ReadError::from_errno(failed)),
            Self::Late => {
                let says = format!("no answer within {} s", LIMIT.as_secs());
                SourceError::Driver { call: question.as_str(), says }
            }
            Self::Answer(answer) => answer.to(question.as_str()),
        }
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Device(error)
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        Self::Answer(error)
    }
}

/// What came of a question.
pub type Outcome = Result<Reading, Failure>;

mod kind {
    pub(super) const READING: u8 = 0;
    pub(super) const REFUSED: u8 = 1;
    pub(super) const FLAW: u8 = 2;
    pub(super) const LATE: u8 = 3;
    pub(super) const DEVICE: u8 = 4;
}

/// An answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The question's number.
    pub number: u32,
    /// The question.
    pub question: Question,
    /// How long ago the BMC was asked, milliseconds: 0 where it was asked for this answer.
    pub age_ms: u32,
    /// What came of it.
    pub outcome: Outcome,
}

impl Answer {
    /// As it is sent.
    pub fn write(&self) -> Vec<u8> {
        let (kind, code, stamp, value) = match self.outcome {
            Ok(Reading { value, time_stamp }) => (kind::READING, 0, time_stamp.unwrap_or(0), value),
            Err(Failure::Answer(AnswerError::Refused(code))) => (kind::REFUSED, code, 0, 0),
            Err(Failure::Answer(AnswerError::Unusable(flaw))) => (kind::FLAW, flaw as u8, 0, 0),
            Err(Failure::Late) => (kind::LATE, 0, 0, 0),
            Err(Failure::Device(errno)) => {
                (kind::DEVICE, 0, 0, u64::from(errno.raw_os_error().unsigned_abs()))
            }
        };
        let head = [ANSWER, self.question as u8, kind, code];
        let words = [self.number, self.age_ms, stamp].map(u32::to_le_bytes);
        [&head, words.as_flattened(), &value.to_le_bytes()].concat()
    }

    /// Parses an answer. Numbers that the BMC cannot have said are refused: the helper may have been taken over by it.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        Self::parts(message).ok_or(Malformed)
    }

    fn parts(message: &[u8]) -> Option<Self> {
        let message: &[u8; ANSWER_LENGTH] = message.try_into().ok()?;
        let (head, numbers) = message.split_first_chunk()?;
        let [ANSWER, question, kind, code] = *head else { return None };
        let (number, numbers) = numbers.split_first_chunk()?;
        let (age_ms, numbers) = numbers.split_first_chunk()?;
        let (stamp, value) = numbers.split_first_chunk()?;
        let [number, age_ms, stamp] = [number, age_ms, stamp].map(|word| u32::from_le_bytes(*word));
        let value = u64::from_le_bytes(value.try_into().ok()?);
        let question = Question::of_number(question)?;
        let outcome = match (kind, code, stamp, value) {
            (kind::READING, 0, _, _) if stamp != u32::MAX && value <= question.largest() => {
                Ok(Reading { value, time_stamp: Some(stamp).filter(|stamp| *stamp != 0) })
            }
            (kind::REFUSED, 1.., 0, 0) => Err(AnswerError::Refused(code).into()),
            (kind::FLAW, _, 0, 0) => Err(AnswerError::Unusable(Flaw::of_number(code)?).into()),
            (kind::LATE, 0, 0, 0) => Err(Failure::Late),
            (kind::DEVICE, 0, 0, 1..4096) => {
                Err(Failure::Device(Errno::from_raw_os_error(i32::try_from(value).ok()?)))
            }
            _ => return None,
        };
        Some(Self { number, question, age_ms, outcome })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_of_a_question_and_of_an_answer() {
        for (question, byte) in Question::ALL.into_iter().zip(1..) {
            let message = question.write(0x0403_0201);
            assert_eq!(message, [0xd6, byte, 0, 0, 1, 2, 3, 4]);
            assert_eq!(Question::parse(&message), Ok((0x0403_0201, question)));
        }
        let outcome = Ok(Reading { value: 300, time_stamp: Some(0x0807_0605) });
        let answer = Answer { number: 0x0403_0201, question: Question::PowerReading, age_ms: 4999, outcome };
        let message =
            [&[0xd7, 2, 0, 0, 1, 2, 3, 4, 0x87, 0x13, 0, 0, 5, 6, 7, 8][..], &[0x2c, 1, 0, 0, 0, 0, 0, 0]]
                .concat();
        assert_eq!(answer.write(), message);
        assert_eq!(Answer::parse(&message), Ok(answer));
        for end in 0..message.len() {
            assert_eq!(Answer::parse(&message[..end]), Err(Malformed));
        }
        assert_eq!(Answer::parse(&[message, vec![0]].concat()), Err(Malformed));
    }

    #[test]
    fn every_outcome_is_understood() {
        let flaws = Flaw::ALL.map(|flaw| Err(AnswerError::Unusable(flaw).into()));
        let others = [
            Ok(Reading { value: 50_000, time_stamp: None }),
            Err(AnswerError::Refused(0xc1).into()),
            Err(Failure::Late),
            Err(Failure::Device(Errno::NOTTY)),
        ];
        for outcome in flaws.into_iter().chain(others) {
            let answer = Answer { number: 1, question: Question::PowerReading, age_ms: 0, outcome };
            assert_eq!(answer.write().len(), ANSWER_LENGTH);
            assert_eq!(Answer::parse(&answer.write()), Ok(answer));
        }
    }

    #[test]
    fn what_no_bmc_says_is_no_answer() {
        let answer = |question, value| {
            let outcome = Ok(Reading { value, time_stamp: None });
            Answer::parse(&Answer { number: 1, question, age_ms: 0, outcome }.write()).is_ok()
        };
        assert!(answer(Question::PowerReading, 50_000) && !answer(Question::PowerReading, 50_001));
        assert!(answer(Question::DeviceId, 0xf_ffff) && !answer(Question::DeviceId, 0x10_0000));
        assert!(answer(Question::XccEnergy, u64::MAX));
        let outcome = Ok(Reading { value: 1, time_stamp: None });
        let good = Answer { number: 1, question: Question::DeviceId, age_ms: 0, outcome }.write();
        // No such question, kind or code; a code of completion; no clock; an answer that is a failure and a number.
        for (at, byte) in [(0, 0xd6), (1, 0), (1, 4), (2, 1), (2, 2), (2, 3), (2, 5), (3, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(Answer::parse(&bad), Err(Malformed), "{at} {byte}");
        }
        let mut no_clock = good;
        no_clock[12..16].fill(0xff);
        assert_eq!(Answer::parse(&no_clock), Err(Malformed));
    }

    proptest! {
        #[test]
        fn only_three_questions_can_be_said(mut bytes in proptest::collection::vec(any::<u8>(), 0..20), head: bool) {
            // Noise seldom begins as a question does.
            if head && bytes.len() >= 4 {
                let question = bytes[1] % 5;
                bytes[..4].copy_from_slice(&[0xd6, question, 0, 0]);
            }
            let expected = bytes.len() == 8 && matches!(bytes[..4], [0xd6, 1..=3, 0, 0]);
            let parsed = Question::parse(&bytes);
            prop_assert_eq!(parsed.is_ok(), expected);
            if let Ok((number, question)) = parsed {
                prop_assert_eq!(&question.write(number)[..], &bytes[..]);
            }
        }

        #[test]
        fn an_answer_has_one_meaning(mut bytes in proptest::collection::vec(any::<u8>(), 20..28), zeros in 0..24_usize) {
            bytes[0] = 0xd7;
            bytes[1] %= 5;
            bytes[2] %= 6;
            let length = bytes.len();
            bytes[3.max(zeros).min(length)..].fill(0);
            if let Ok(answer) = Answer::parse(&bytes) {
                prop_assert_eq!(answer.write(), bytes);
            }
        }
    }
}
