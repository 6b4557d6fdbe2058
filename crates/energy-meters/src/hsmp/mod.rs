//! AMD EPYC's management port: energy or power of each socket.
//!
//! `/dev/hsmp` (`amd_hsmp`, 5.18; EPYC from Zen 3 on), readable for everybody by the driver's default. The counter of
//! energy needs protocol 7; before that there is power, which is added up here. Each message takes the firmware up to
//! a millisecond, so this source is asked only where nothing else measures the package. Messages that the firmware
//! does not know are logged by the kernel: what may be asked follows from the protocol's version.

mod device;

use std::time::{Duration, Instant};

use kernel_files::parse::ParseError;
use kernel_files::{ReadError, SourceError};
use readings::{Integral, LARGEST_POWER};

pub(super) use self::device::{Ask, Device, Question};
use super::counter::Skips;
use super::scale::Scale;
use super::{Domain, Meter, Range, Sample, Source, Zone};

const DEVICE: &str = "/dev/hsmp";
const NEEDS: &str = "an AMD EPYC (Zen 3 or later) with the amd_hsmp driver and HSMP enabled in the firmware";
const FIRST_WITH_ENERGY: u32 = 7;
/// The firmware averages over about a second.
const EVERY: Duration = Duration::from_secs(10);

/// The unit of energy in the answer to message 0x30.
pub fn energy_unit(answer: u32) -> Option<Scale> {
    Scale::binary(u8::try_from(answer >> 8 & 0x1f).ok()?)
}

#[derive(Debug)]
enum Socket {
    Energy(Scale),
    Power(Integral),
}

/// The sockets behind the port.
pub(super) struct Hsmp {
    device: Box<dyn Ask>,
    zones: Vec<Zone>,
    sockets: Vec<Socket>,
    skips: Skips,
}

pub(super) fn error(error: ReadError) -> SourceError {
    SourceError::reading(DEVICE, NEEDS)(error)
}

impl Hsmp {
    /// Asks every socket for its energy; the driver numbers the sockets.
    pub(super) fn find(device: Box<dyn Ask>, sockets: &[u32]) -> Result<Self, SourceError> {
        let mut found = Self { device, zones: Vec::new(), sockets: Vec::new(), skips: Skips::default() };
        for (index, socket) in (0_u16..).zip(sockets) {
            let [protocol, _] = found.device.ask(index, Question::Protocol).map_err(error)?;
            let unit = if protocol >= FIRST_WITH_ENERGY {
                found.device.ask(index, Question::EnergyUnits).ok().and_then(|[unit, _]| energy_unit(unit))
            } else {
                None
            };
            found.zones.push(Zone {
                domain: Domain::Package,
                socket: Some(*socket),
                source: Source::Hsmp,
                name: if unit.is_some() { "package energy" } else { "socket power" }.to_owned(),
                estimated: unit.is_none(),
            });
            found.sockets.push(unit.map_or_else(|| Socket::Power(Integral::default()), Socket::Energy));
        }
        if found.zones.is_empty() {
            return Err(SourceError::Unsupported { needs: NEEDS.to_owned() });
        }
        Ok(found)
    }
}

fn implausible(reason: &'static str) -> SourceError {
    SourceError::Malformed { file: DEVICE, error: ParseError::new(1, reason) }
}

impl Socket {
    fn read(&mut self, device: &dyn Ask, index: u16, now: Instant) -> Result<Sample, SourceError> {
        let (energy_uj, power_uw) = match self {
            Self::Energy(unit) => {
                let [low, high] = device.ask(index, Question::PackageEnergy).map_err(error)?;
                let count = u64::from(high) << 32 | u64::from(low);
                let energy = unit.microjoules(count);
                (energy.ok_or(implausible("more microjoules than 64 bits hold"))?, None)
            }
            Self::Power(integral) => {
                let answer = device.ask(index, Question::SocketPower).map_err(error);
                let power = answer.map(|[milliwatts, _]| u64::from(milliwatts) * 1000).and_then(|power| {
                    let plausible = power <= LARGEST_POWER;
                    plausible.then_some(power).ok_or(implausible("more power than a socket can draw"))
                });
                let power = power.inspect_err(|_| integral.interrupt())?;
                (integral.add(now, power), Some(power))
            }
        };
        Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw })
    }
}

impl Meter for Hsmp {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn skip(&mut self, zone: usize) {
        self.skips.add(zone);
    }

    fn read(&mut self, now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        for (index, (zone, socket)) in (0_u16..).zip(self.sockets.iter_mut().enumerate()) {
            if !self.skips.has(zone) {
                each(zone, socket.read(&*self.device, index, now));
            }
        }
    }

    fn at_least_every(&self) -> Option<Duration> {
        let estimates = self.zones.iter().enumerate().any(|(z, zone)| zone.estimated && !self.skips.has(z));
        estimates.then_some(EVERY)
    }
}

#[cfg(test)]
pub(super) mod tests;
