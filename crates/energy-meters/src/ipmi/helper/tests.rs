//! What the helper passes on to the BMC, whatever the exporter says.

use std::ffi::c_long;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::serve::{Desk, PAUSE};
use super::*;
use crate::ipmi::answer::LENOVO;
use crate::ipmi::device::Carry;
use crate::ipmi::protocol::{Failure, Reading};

/// A BMC that answers everything at once, under the maker that it is given, and counts.
#[derive(Clone)]
struct Counting {
    maker: u32,
    asked: Arc<Mutex<Vec<Question>>>,
    answers: Vec<(c_long, Vec<u8>)>,
}

impl Counting {
    fn new(maker: u32) -> Self {
        Self { maker, asked: Arc::default(), answers: Vec::new() }
    }

    fn asked(&self, question: Question) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| **asked == question).count()
    }
}

impl Carry for Counting {
    fn send(&mut self, number: c_long, question: Question) -> Result<(), Errno> {
        self.asked.lock().unwrap().push(question);
        let [low, middle, high, _] = self.maker.to_le_bytes();
        let answer = match question {
            Question::DeviceId => vec![0, 0x20, 0x81, 0x03, 0x10, 0x02, 0xbf, low, middle, high, 0x34, 0x12],
            Question::PowerReading => [&[0, 0xdc, 0x2c, 1][..], &[0; 14], &[0x40]].concat(),
            Question::XccEnergy => vec![0, 7, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        };
        self.answers.push((number, answer));
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(c_long, Vec<u8>)>, Errno> {
        Ok(self.answers.pop())
    }

    fn wait(&mut self, _: Duration) -> Result<bool, Errno> {
        Ok(false)
    }
}

#[test]
fn the_same_is_asked_once_in_five_seconds_and_answered_from_memory_with_its_age() {
    let bmc = Counting::new(674);
    let mut desk = Desk::new(bmc.clone());
    let start = Instant::now();
    let power = Ok(Reading { value: 300, time_stamp: None });
    for (after, age_ms, asked) in
        [(0, 0, 1), (0, 1, 1), (1500, 1500, 1), (4999, 4999, 1), (5000, 0, 2), (5001, 1, 2)]
    {
        let message = Question::PowerReading.write(after);
        let answer = desk.answer(&message, start + Duration::from_millis(after.into())).unwrap();
        let expected = Answer { number: after, question: Question::PowerReading, age_ms, outcome: power };
        assert_eq!((answer, bmc.asked(Question::PowerReading)), (expected, asked), "after {after} ms");
    }
}

#[test]
fn lenovos_command_goes_to_lenovos_alone() {
    let now = Instant::now();
    for (maker, answered) in [(674, false), (LENOVO, true)] {
        let bmc = Counting::new(maker);
        let mut desk = Desk::new(bmc.clone());
        assert_eq!(desk.answer(&Question::XccEnergy.write(1), now), None, "it is not known yet whose it is");
        let id = desk.answer(&Question::DeviceId.write(2), now).unwrap();
        assert_eq!(id.outcome, Ok(Reading { value: maker.into(), time_stamp: None }));
        let energy = desk.answer(&Question::XccEnergy.write(3), now);
        assert_eq!(energy.is_some(), answered);
        assert_eq!(bmc.asked(Question::XccEnergy), usize::from(answered));
    }
}

#[test]
fn a_failure_is_answered_from_memory_too() {
    struct Broken;
    impl Carry for Broken {
        fn send(&mut self, _: c_long, _: Question) -> Result<(), Errno> {
            Err(Errno::IO)
        }
        fn receive(&mut self) -> Result<Option<(c_long, Vec<u8>)>, Errno> {
            Ok(None)
        }
        fn wait(&mut self, _: Duration) -> Result<bool, Errno> {
            Ok(false)
        }
    }
    let (mut desk, start) = (Desk::new(Broken), Instant::now());
    for (after, age_ms) in [(0, 0), (2, 2000)] {
        let answer = desk.answer(&Question::DeviceId.write(1), start + Duration::from_secs(after)).unwrap();
        assert_eq!((answer.outcome, answer.age_ms), (Err(Failure::Device(Errno::IO)), age_ms));
    }
}

proptest! {
    /// Whatever an exporter that was taken over says, and whenever.
    #[test]
    fn a_flood_does_not_reach_the_bmc(
        messages in proptest::collection::vec((any::<u8>(), 0..12_usize, 0..2000_u64), 1..200),
        lenovos: bool,
    ) {
        let bmc = Counting::new(if lenovos { LENOVO } else { 674 });
        let mut desk = Desk::new(bmc.clone());
        let start = Instant::now();
        let mut elapsed = Duration::ZERO;
        for (kind, length, pause) in messages {
            elapsed += Duration::from_millis(pause);
            let mut message = Question::PowerReading.write(1).to_vec();
            // Mostly the right length, with a kind that is often right.
            message[1] = if kind < 200 { kind % 4 } else { kind };
            message.truncate(length.max(1));
            let before = bmc.asked.lock().unwrap().len();
            let answer = desk.answer(&message, start + elapsed);
            let known = message.len() == 8 && (1..=3).contains(&message[1]);
            prop_assert!(answer.is_none() || known);
            prop_assert!(known || bmc.asked.lock().unwrap().len() == before);
        }
        let most = usize::try_from(elapsed.as_millis() / PAUSE.as_millis()).unwrap() + 1;
        for question in Question::ALL {
            prop_assert!(bmc.asked(question) <= most);
        }
        prop_assert!(lenovos || bmc.asked(Question::XccEnergy) == 0);
    }
}
