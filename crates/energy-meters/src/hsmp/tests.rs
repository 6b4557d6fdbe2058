//! A port that answers from a script.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;

type Answers = BTreeMap<(u16, u32), [u32; 2]>;

/// Answers by socket and question; ENOMSG to any other.
#[derive(Clone, Default)]
pub(in super::super) struct Firmware(Arc<Mutex<Answers>>);

impl Firmware {
    pub(in super::super) fn says(&self, socket: u16, question: Question, answer: [u32; 2]) -> &Self {
        self.0.lock().unwrap().insert((socket, question as u32), answer);
        self
    }
}

impl Ask for Firmware {
    fn ask(&self, socket: u16, question: Question) -> Result<[u32; 2], ReadError> {
        self.0.lock().unwrap().get(&(socket, question as u32)).copied().ok_or(ReadError::Io(42))
    }
}

fn read(meter: &mut Hsmp, now: Instant) -> Vec<Result<Sample, SourceError>> {
    let mut readings = Vec::new();
    meter.read(now, &mut |_, reading| readings.push(reading));
    readings
}

#[test]
fn protocol_7_counts_energy() {
    let firmware = Firmware::default();
    for socket in 0..2 {
        firmware.says(socket, Question::Protocol, [7, 0]);
        firmware.says(socket, Question::EnergyUnits, [0x000a_1003, 0]);
    }
    let mut meter = Hsmp::find(Box::new(firmware.clone()), &[0, 1]).unwrap();
    let zones: Vec<_> = meter.zones().iter().map(|z| (z.socket, z.estimated)).collect();
    assert_eq!(zones, [(Some(0), false), (Some(1), false)]);
    assert_eq!(meter.at_least_every(), None, "64 bits do not wrap");
    firmware.says(0, Question::PackageEnergy, [1 << 16, 0]).says(1, Question::PackageEnergy, [0, 1]);
    let energies: Vec<_> =
        read(&mut meter, Instant::now()).into_iter().map(|r| r.map(|sample| sample.energy_uj)).collect();
    assert_eq!(energies, [Ok(1_000_000), Ok(65_536_000_000)]);
    firmware.says(1, Question::PackageEnergy, [u32::MAX, u32::MAX]);
    let readings = read(&mut meter, Instant::now());
    assert_eq!(readings[1].as_ref().unwrap_err().reason(), "malformed");
    assert!(readings[0].is_ok());
}

#[test]
fn older_firmware_reports_power_and_is_not_asked_for_more() {
    let firmware = Firmware::default();
    firmware.says(0, Question::Protocol, [5, 0]).says(0, Question::SocketPower, [200_000, 0]);
    // It would answer, and the kernel would log if it did not: not asked.
    firmware.says(0, Question::EnergyUnits, [0x1000, 0]);
    let mut meter = Hsmp::find(Box::new(firmware.clone()), &[0]).unwrap();
    assert!(meter.zones()[0].estimated);
    assert_eq!(meter.at_least_every(), Some(Duration::from_secs(10)));
    let start = Instant::now();
    let mut at = |seconds| read(&mut meter, start + Duration::from_secs(seconds)).pop().unwrap();
    assert_eq!(at(0).map(|s| (s.energy_uj, s.power_uw)), Ok((0, Some(200_000_000))));
    assert_eq!(at(10).map(|s| s.energy_uj), Ok(2_000_000_000));
    firmware.says(0, Question::SocketPower, [u32::MAX, 0]);
    assert_eq!(at(20).unwrap_err().reason(), "malformed", "4 MW");
    firmware.says(0, Question::SocketPower, [100_000, 0]);
    assert_eq!(at(30).map(|s| s.energy_uj), Ok(2_000_000_000), "what was not read is not made up");
    assert_eq!(at(31).map(|s| s.energy_uj), Ok(2_100_000_000));
}

#[test]
fn a_port_that_does_not_answer_is_an_error_and_no_socket_is_no_meter() {
    let silent = Hsmp::find(Box::new(Firmware::default()), &[0]).err().unwrap();
    assert_eq!(silent.reason(), "io");
    assert_eq!(Hsmp::find(Box::new(Firmware::default()), &[]).err().unwrap().reason(), "unsupported");
    assert_eq!(super::error(ReadError::Denied).to_string(), "denied: /dev/hsmp");
}

#[test]
fn the_unit_is_in_bits_8_to_12() {
    assert_eq!(energy_unit(0x000a_1003), Scale::binary(16));
    assert_eq!(energy_unit(0x0e00), Scale::binary(14));
    assert_eq!(energy_unit(0xffff_e0ff), Scale::binary(0));
}
