//! The whole node's energy or power, from its BMC over IPMI's system interface.
//!
//! `/dev/ipmi0` (`ipmi_si` or `ipmi_ssif`, and `ipmi_devintf`), root's by default. DCMI has the node's power, which is
//! added up here; Lenovo's XCC in some servers counts energy. What a BMC takes to answer, up to a second, passes in its
//! driver, and in `kipmid` where the interface has no interrupt: so it is asked at most once in five seconds.

mod answer;
mod bmc;
mod device;

use std::time::{Duration, Instant};

use kernel_files::{ReadError, Roots, SourceError};
use readings::Integral;

pub use self::answer::{
    AnswerError, EnergyReading, PowerReading, parse_device_id, parse_power_reading, parse_xcc_energy,
};
use self::bmc::{Bmc, Failure};
use self::device::{Ask, Device, Question};
use super::background::Find;
use super::counter::Skips;
use super::{Domain, Meter, Range, Sample, Source, Zone};

const DEVICE: &str = "/dev/ipmi0";
const NEEDS: &str = "a BMC with a driver (ipmi_si or ipmi_ssif) and ipmi_devintf";
/// Lenovo's private enterprise number at IANA.
const LENOVO: u32 = 19046;
/// The pause between two questions.
const PAUSE: Duration = Duration::from_secs(5);
/// A BMC whose clock and value stand still for longer measures no more.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(300);

fn error(error: ReadError) -> SourceError {
    SourceError::reading(DEVICE, NEEDS)(error)
}

/// Opens the device, which takes the right to; it may be given up afterwards. Returns what asks the BMC whether it measures;
/// `None` where there is no device.
pub(super) fn find(roots: &Roots) -> Result<Option<Find>, SourceError> {
    let Some(device) = Device::open(roots).map_err(error)? else { return Ok(None) };
    Ok(Some(Box::new(move || {
        let device = device.again().map_err(error)?;
        let meter = Ipmi::ask(device, Instant::now())?;
        let needs =
            || SourceError::Unsupported { needs: "a BMC that knows DCMI's Get Power Reading".to_owned() };
        Ok(Box::new(meter.ok_or_else(needs)?))
    })))
}

/// What the BMC measures.
#[derive(Debug)]
enum Measured {
    Energy,
    Power(Integral),
}

/// The time stamp and the value of the last answer.
#[derive(Debug, Default)]
struct Progress(Option<(u32, u64, Instant)>);

impl Progress {
    /// Takes an answer into account; an error if it is not a new reading.
    fn advance(&mut self, stamp: Option<u32>, value: u64, now: Instant) -> Result<(), AnswerError> {
        let Some(stamp) = stamp else {
            self.0 = None;
            return Ok(());
        };
        match self.0 {
            Some((before, same, since)) if (stamp, value) == (before, same) => {
                let stands = now.saturating_duration_since(since) > LONGEST_STANDSTILL;
                let stuck = AnswerError::Absent("time stamp and value have stood still for five minutes");
                if stands { Err(stuck) } else { Ok(()) }
            }
            last => {
                self.0 = Some((stamp, value, now));
                let back = last.is_some_and(|(before, ..)| stamp < before);
                if back { Err(AnswerError::Absent("the time stamp went back")) } else { Ok(()) }
            }
        }
    }
}

/// The BMC as a meter of the node.
pub(super) struct Ipmi {
    bmc: Bmc,
    zones: [Zone; 1],
    measured: Measured,
    progress: Progress,
    skips: Skips,
    /// When the BMC was asked the last time, and what came of it.
    last: (Instant, Result<Sample, SourceError>),
}

impl Ipmi {
    /// Asks the BMC what it measures, which may take seconds. `None` where it knows no such command.
    pub(super) fn ask(device: impl Ask + 'static, now: Instant) -> Result<Option<Self>, SourceError> {
        let mut bmc = Bmc::new(Box::new(device));
        let ask = |bmc: &mut Bmc, question| bmc.ask(question, now).map_err(|failed| failed.to(question));
        let id = ask(&mut bmc, Question::DeviceId)?;
        let manufacturer = parse_device_id(&id).map_err(|failed| failed.to(Question::DeviceId.as_str()))?;
        let mut progress = Progress::default();
        let mut first = |bmc: &mut Bmc, measured: &mut Measured| measured.ask(bmc, &mut progress, now);
        let mut measured = Measured::Energy;
        // Only of Lenovo's: what the command does elsewhere is not known.
        let counted = if manufacturer == LENOVO {
            match first(&mut bmc, &mut measured) {
                Err(Failure::Answer(_)) => None,
                reading => Some(reading.map_err(|failed| failed.to(measured.question()))?),
            }
        } else {
            None
        };
        let reading = if let Some(sample) = counted {
            Ok(sample)
        } else {
            measured = Measured::Power(Integral::default());
            match first(&mut bmc, &mut measured) {
                Err(Failure::Answer(answer)) if answer.is_unknown_command() => return Ok(None),
                reading => reading.map_err(|failed| failed.to(measured.question())),
            }
        };
        let estimated = matches!(measured, Measured::Power(_));
        let name = if estimated { "dcmi power" } else { "xcc energy" }.to_owned();
        let zone = Zone { domain: Domain::Node, socket: None, source: Source::Ipmi, name, estimated };
        let last = (now, reading);
        Ok(Some(Self { bmc, zones: [zone], measured, progress, skips: Skips::default(), last }))
    }
}

impl Measured {
    fn question(&self) -> Question {
        match self {
            Self::Energy => Question::XccEnergy,
            Self::Power(_) => Question::PowerReading,
        }
    }

    fn ask(&mut self, bmc: &mut Bmc, progress: &mut Progress, now: Instant) -> Result<Sample, Failure> {
        let answer = bmc.ask(self.question(), now);
        let (energy_uj, power_uw) = match self {
            Self::Energy => {
                let reading = parse_xcc_energy(&answer?)?;
                progress.advance(reading.time_stamp, reading.microjoules, now)?;
                (reading.microjoules, None)
            }
            Self::Power(integral) => {
                let watts = answer.and_then(|answer| {
                    let reading = parse_power_reading(&answer)?;
                    progress.advance(reading.time_stamp, reading.watts.into(), now)?;
                    Ok(u64::from(reading.watts))
                });
                let power = watts.inspect_err(|_| integral.interrupt())? * 1_000_000;
                (integral.add(now, power), Some(power))
            }
        };
        // Where XCC's counter ends is not documented: a fall is no wrap.
        Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw })
    }
}

impl Meter for Ipmi {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn skip(&mut self, zone: usize) {
        self.skips.add(zone);
    }

    fn read(&mut self, now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        if self.skips.has(0) {
            return;
        }
        if now.saturating_duration_since(self.last.0) >= PAUSE {
            let reading = self.measured.ask(&mut self.bmc, &mut self.progress, now);
            self.last = (now, reading.map_err(|failed| failed.to(self.measured.question())));
        }
        each(0, self.last.1.clone());
    }

    fn at_least_every(&self) -> Option<Duration> {
        None
    }

    fn slow(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
