//! A BMC that answers from a script.

use std::collections::VecDeque;
use std::ffi::c_long;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::device::Carry;
use super::helper::{Desk, PAUSE};
use super::*;

/// What the BMC does with a question.
#[derive(Clone)]
enum Act {
    Answer(Vec<u8>),
    /// The answer is there when the next question is asked.
    Late(Vec<u8>),
    Silent,
    Fail(Errno),
}

#[derive(Default)]
struct State {
    /// By question, the last one again and again.
    acts: Vec<(Question, VecDeque<Act>)>,
    /// Every question that was sent.
    asked: Vec<Question>,
    ready: VecDeque<(c_long, Vec<u8>)>,
    late: VecDeque<(c_long, Vec<u8>)>,
}

#[derive(Clone, Default)]
struct Script(Arc<Mutex<State>>);

impl Script {
    /// What it does with the next questions of this kind, the last one with all others.
    fn does(&self, question: Question, acts: &[Act]) -> &Self {
        let mut state = self.0.lock().unwrap();
        state.acts.retain(|(of, _)| *of != question);
        state.acts.push((question, acts.iter().cloned().collect()));
        self
    }

    fn says(&self, question: Question, answer: &[u8]) -> &Self {
        self.does(question, &[Act::Answer(answer.to_vec())])
    }

    fn asked(&self, question: Question) -> usize {
        self.0.lock().unwrap().asked.iter().filter(|asked| **asked == question).count()
    }

    /// Behind the helper's rules, with all of the two's messages.
    fn helped(&self) -> Messages {
        Messages(Desk::new(self.clone()))
    }

    fn meter(&self, now: Instant) -> Ipmi {
        Ipmi::ask(self.helped(), now).unwrap().unwrap()
    }
}

/// The helper without its process.
struct Messages(Desk);

impl Ask for Messages {
    fn ask(&mut self, question: Question, now: Instant) -> Result<Answer, SourceError> {
        let answer = self.0.answer(&question.write(7), now).unwrap();
        let received = Answer::parse(&answer.write()).unwrap();
        assert_eq!((received, received.number, received.question), (answer, 7, question));
        Ok(received)
    }
}

impl Carry for Script {
    fn send(&mut self, number: c_long, question: Question) -> Result<(), Errno> {
        let mut state = self.0.lock().unwrap();
        state.asked.push(question);
        let acts = state.acts.iter_mut().find(|(of, _)| *of == question).map(|(_, acts)| acts);
        let act = match acts {
            Some(acts) if acts.len() > 1 => acts.pop_front().unwrap(),
            Some(acts) => acts[0].clone(),
            None => Act::Answer(vec![0xc1]),
        };
        match act {
            Act::Answer(answer) => state.ready.push_back((number, answer)),
            Act::Late(answer) => state.late.push_back((number, answer)),
            Act::Silent => {}
            Act::Fail(error) => return Err(error),
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(c_long, Vec<u8>)>, Errno> {
        Ok(self.0.lock().unwrap().ready.pop_front())
    }

    fn wait(&mut self, limit: Duration) -> Result<bool, Errno> {
        assert!(limit <= Duration::from_secs(2));
        let mut state = self.0.lock().unwrap();
        let late = std::mem::take(&mut state.late);
        state.ready.extend(late);
        Ok(false)
    }
}

/// Get Device ID of a manufacturer, 20 bits.
fn device_id(manufacturer: u32) -> Vec<u8> {
    let [low, middle, high, _] = manufacturer.to_le_bytes();
    vec![0, 0x20, 0x81, 0x03, 0x10, 0x02, 0xbf, low, middle, 0xf0 | high, 0x34, 0x12]
}

/// Get Power Reading.
fn power(watts: u16, stamp: u32, state: u8) -> Vec<u8> {
    let mut answer = vec![0, 0xdc];
    for statistic in [watts, 1, 999, 500] {
        answer.extend(statistic.to_le_bytes());
    }
    answer.extend(stamp.to_le_bytes());
    answer.extend(1000_u32.to_le_bytes());
    answer.push(state);
    answer
}

fn energy(joules: u32, millijoules: u16, stamp: u32) -> Vec<u8> {
    let mut answer = vec![0, 7, 0];
    answer.extend(joules.to_le_bytes());
    answer.extend(millijoules.to_le_bytes());
    answer.extend(stamp.to_le_bytes());
    answer.extend([10, 0]);
    answer
}

const ACTIVE: u8 = 0x40;

fn node(watts: u16) -> Script {
    let bmc = Script::default();
    bmc.says(Question::DeviceId, &device_id(674)).says(Question::PowerReading, &power(watts, 1000, ACTIVE));
    bmc
}

fn read(meter: &mut Ipmi, now: Instant) -> Result<Sample, SourceError> {
    let mut readings = Vec::new();
    meter.read(now, &mut |zone, reading| readings.push((zone, reading)));
    assert_eq!(readings.len(), 1);
    assert_eq!(readings[0].0, 0);
    readings.remove(0).1
}

fn text(reading: Result<Sample, SourceError>) -> String {
    reading.unwrap_err().to_string()
}

#[test]
fn power_is_added_up() {
    let bmc = node(300);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut meter = bmc.meter(start);
    let zones: Vec<_> = meter
        .zones()
        .iter()
        .map(|zone| (zone.domain, zone.source.as_str(), &*zone.name, zone.estimated))
        .collect();
    assert_eq!(zones, [(Domain::Node, "ipmi", "dcmi power", true)]);
    assert!(meter.slow());
    assert_eq!(meter.at_least_every(), None);
    assert_eq!(
        read(&mut meter, at(10)).map(|s| (s.energy_uj, s.power_uw)),
        Ok((3_000_000_000, Some(300_000_000)))
    );
    bmc.says(Question::PowerReading, &power(500, 1020, ACTIVE));
    assert_eq!(read(&mut meter, at(20)).map(|s| s.energy_uj), Ok(7_000_000_000));
    assert_eq!(bmc.asked(Question::XccEnergy), 0, "that is Lenovo's");
}

#[test]
fn the_bmc_is_asked_at_most_once_in_five_seconds() {
    let bmc = node(300);
    let start = Instant::now();
    let mut meter = bmc.meter(start);
    assert_eq!(bmc.asked(Question::PowerReading), 1);
    let first = read(&mut meter, start + Duration::from_millis(4999));
    assert_eq!(first.as_ref().map(|s| s.energy_uj), Ok(0));
    assert_eq!(bmc.asked(Question::PowerReading), 1);
    assert_eq!(read(&mut meter, start + PAUSE).map(|s| s.energy_uj), Ok(1_500_000_000));
    assert_eq!(bmc.asked(Question::PowerReading), 2);
    // A failure is repeated, too.
    bmc.says(Question::PowerReading, &[0xc0]);
    for seconds in [10, 11, 14] {
        let reading = read(&mut meter, start + Duration::from_secs(seconds));
        assert_eq!(text(reading), "failed: DCMI Get Power Reading: completion code 0xc0 (busy)");
    }
    assert_eq!(bmc.asked(Question::PowerReading), 3);
    meter.skip(0);
    meter.read(start + Duration::from_secs(60), &mut |_, _| panic!("it is skipped"));
    assert_eq!(bmc.asked(Question::PowerReading), 3);
}

#[test]
fn what_is_no_power_is_an_error_and_adds_no_energy() {
    let start = Instant::now();
    let mut inactive = power(300, 1010, 0x80);
    let mut longer = power(300, 1010, ACTIVE);
    longer.push(0);
    let mut other_group = power(300, 1010, ACTIVE);
    other_group[1] = 0x00;
    for (answer, expected) in [
        (power(0, 1010, ACTIVE), "failed: DCMI Get Power Reading: 0 W, which no running node draws"),
        (power(u16::MAX, 1010, ACTIVE), "failed: DCMI Get Power Reading: 65535 W, which means unknown"),
        (power(50_001, 1010, ACTIVE), "failed: DCMI Get Power Reading: more power than a node can draw"),
        (inactive.clone(), "failed: DCMI Get Power Reading: the measurement of power is not active"),
        (power(300, 999, ACTIVE), "failed: DCMI Get Power Reading: the time stamp went back"),
        (vec![0xc1], "failed: DCMI Get Power Reading: completion code 0xc1 (invalid command)"),
        (vec![0xff], "failed: DCMI Get Power Reading: completion code 0xff"),
        (longer, "malformed: DCMI Get Power Reading: line 1: not 19 bytes"),
        (other_group, "malformed: DCMI Get Power Reading: line 1: not of DCMI's group of commands"),
        (vec![], "malformed: DCMI Get Power Reading: line 1: empty"),
    ] {
        let bmc = node(300);
        let mut meter = bmc.meter(start);
        bmc.says(Question::PowerReading, &answer);
        assert_eq!(text(read(&mut meter, start + Duration::from_secs(10))), expected);
        bmc.says(Question::PowerReading, &power(100, 1020, ACTIVE));
        let later = read(&mut meter, start + Duration::from_secs(20));
        assert_eq!(later.map(|s| s.energy_uj), Ok(0), "what was not read is not made up: {expected}");
        let last = read(&mut meter, start + Duration::from_secs(30));
        assert_eq!(last.map(|s| s.energy_uj), Ok(1_000_000_000), "{expected}");
    }
    // OpenBMC leaves out all but the power.
    inactive = power(300, 0, 0);
    inactive[14..18].fill(0);
    assert_eq!(parse_power_reading(&inactive), Ok(PowerReading { watts: 300, time_stamp: None }));
    assert_eq!(
        parse_power_reading(&power(300, u32::MAX, ACTIVE)).unwrap().time_stamp,
        None,
        "the clock is not set"
    );
}

#[test]
fn a_bmc_that_stands_still_is_stuck() {
    let bmc = node(300);
    let start = Instant::now();
    let mut meter = bmc.meter(start);
    let at = |meter: &mut Ipmi, seconds| read(meter, start + Duration::from_secs(seconds));
    assert_eq!(at(&mut meter, 300).map(|s| s.energy_uj), Ok(90_000_000_000));
    let stuck = "failed: DCMI Get Power Reading: time stamp and value have stood still for five minutes";
    assert_eq!(text(at(&mut meter, 310)), stuck);
    assert_eq!(text(at(&mut meter, 900)), stuck);
    bmc.says(Question::PowerReading, &power(300, 1900, ACTIVE));
    assert!(at(&mut meter, 910).is_ok());
    // A node without load draws the same for hours: its clock goes on.
    for minute in 16_u32..60 {
        bmc.says(Question::PowerReading, &power(300, 2000 + minute, ACTIVE));
        assert!(at(&mut meter, u64::from(minute) * 60).is_ok());
    }
    // Another value under the same time stamp is a reading, and so is any without a clock.
    bmc.says(Question::PowerReading, &power(301, 2059, ACTIVE));
    assert!(at(&mut meter, 4000).is_ok());
    let mut without_clock = power(300, u32::MAX, ACTIVE);
    bmc.says(Question::PowerReading, &without_clock);
    assert!(at(&mut meter, 5000).is_ok());
    assert!(at(&mut meter, 6000).is_ok());
    without_clock.pop();
    bmc.says(Question::PowerReading, &without_clock);
    assert_eq!(at(&mut meter, 6010).unwrap_err().reason(), "malformed");
}

#[test]
fn no_answer_is_an_error_and_questions_do_not_pile_up() {
    let bmc = node(300);
    let start = Instant::now();
    let mut meter = bmc.meter(start);
    let at = |meter: &mut Ipmi, seconds| read(meter, start + Duration::from_secs(seconds));
    bmc.does(Question::PowerReading, &[Act::Silent]);
    let silent = "failed: DCMI Get Power Reading: no answer within 2 s";
    for seconds in [10, 20, 30, 40, 50, 60, 69] {
        assert_eq!(text(at(&mut meter, seconds)), silent);
    }
    assert_eq!(bmc.asked(Question::PowerReading), 2, "the driver has the question still");
    assert_eq!(text(at(&mut meter, 75)), silent);
    assert_eq!(bmc.asked(Question::PowerReading), 3, "that one is lost");
    // The next answer is late, and is not taken for the one to the next question.
    bmc.does(
        Question::PowerReading,
        &[Act::Late(power(999, 1100, ACTIVE)), Act::Answer(power(100, 1200, ACTIVE))],
    );
    assert_eq!(text(at(&mut meter, 140)), silent);
    assert_eq!(at(&mut meter, 150).map(|s| s.power_uw), Ok(Some(100_000_000)));
    assert_eq!(at(&mut meter, 160).map(|s| s.energy_uj), Ok(1_000_000_000));
    bmc.does(Question::PowerReading, &[Act::Fail(Errno::NODEV)]);
    assert_eq!(at(&mut meter, 170).unwrap_err().reason(), "unsupported");
    bmc.does(Question::PowerReading, &[Act::Fail(Errno::IO)]);
    assert_eq!(at(&mut meter, 180).unwrap_err().reason(), "io");
}

#[test]
fn a_bmc_without_such_a_reading_is_no_meter_and_one_without_an_id_is_an_error() {
    let now = Instant::now();
    for code in [0xc1, 0xcc] {
        let bmc = node(300);
        bmc.says(Question::PowerReading, &[code]);
        assert!(Ipmi::ask(bmc.helped(), now).unwrap().is_none());
    }
    // It may be able to answer later.
    for act in [Act::Silent, Act::Answer(vec![0xc0]), Act::Answer(power(0, 1, ACTIVE))] {
        let bmc = node(300);
        bmc.does(Question::PowerReading, &[act]);
        let mut meter = bmc.meter(now);
        assert_eq!(read(&mut meter, now).unwrap_err().reason(), "io");
    }
    for (act, expected) in [
        (Act::Silent, "failed: IPMI Get Device ID: no answer within 2 s"),
        (Act::Answer(vec![0xc3]), "failed: IPMI Get Device ID: completion code 0xc3 (timeout)"),
        (Act::Answer(vec![0; 11]), "malformed: IPMI Get Device ID: line 1: fewer than 12 bytes"),
        (Act::Fail(Errno::ACCESS), "denied: /dev/ipmi0"),
    ] {
        let bmc = node(300);
        bmc.does(Question::DeviceId, &[act]);
        assert_eq!(Ipmi::ask(bmc.helped(), now).err().unwrap().to_string(), expected);
    }
    assert_eq!(error(ReadError::Denied).to_string(), "denied: /dev/ipmi0");
}

#[test]
fn lenovos_controllers_count_energy() {
    let bmc = node(300);
    bmc.says(Question::DeviceId, &device_id(19046)).says(Question::XccEnergy, &energy(1000, 250, 50));
    let start = Instant::now();
    let mut meter = bmc.meter(start);
    assert_eq!((&*meter.zones()[0].name, meter.zones()[0].estimated), ("xcc energy", false));
    bmc.says(Question::XccEnergy, &energy(4_294_967_295, 999, 60));
    let sample = read(&mut meter, start + Duration::from_secs(10)).unwrap();
    assert_eq!((sample.energy_uj, sample.power_uw), (4_294_967_295_999_000, None));
    assert_eq!(bmc.asked(Question::PowerReading), 0, "one question for each reading");
    bmc.says(Question::XccEnergy, &energy(5, 1000, 70));
    assert_eq!(read(&mut meter, start + Duration::from_secs(20)).unwrap_err().reason(), "malformed");
    bmc.says(Question::XccEnergy, &energy(5, 0, 4));
    let back = "failed: Lenovo's IPMI command for energy: the time stamp went back";
    assert_eq!(text(read(&mut meter, start + Duration::from_secs(30))), back);
}

#[test]
fn lenovos_controllers_without_a_counter_have_power() {
    let now = Instant::now();
    // The SD650 V2 answers with 39 bytes.
    for answer in [vec![0; 39], vec![0xc1]] {
        let bmc = node(300);
        bmc.says(Question::DeviceId, &device_id(19046)).says(Question::XccEnergy, &answer);
        assert_eq!(bmc.meter(now).zones()[0].name, "dcmi power");
    }
    let bmc = node(300);
    bmc.says(Question::DeviceId, &device_id(19046)).does(Question::XccEnergy, &[Act::Silent]);
    let silent = Ipmi::ask(bmc.helped(), now).err().unwrap();
    assert_eq!(silent.to_string(), "failed: Lenovo's IPMI command for energy: no answer within 2 s");
}

#[test]
fn without_a_device_there_is_no_meter() {
    assert!(find(&test_machine::Machine::new().roots(), &BmcAccess::default(), None).unwrap().is_none());
}

#[test]
fn a_manufacturer_has_20_bits() {
    assert_eq!(parse_device_id(&device_id(0xf_1234)), Ok(0xf_1234));
    let mut with_auxiliary = device_id(674);
    with_auxiliary.extend([0; 4]);
    assert_eq!(parse_device_id(&with_auxiliary), Ok(674));
    assert_eq!(parse_device_id(&[]), Err(Flaw::Empty.into()));
}
