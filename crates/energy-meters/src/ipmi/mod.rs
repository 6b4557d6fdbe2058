//! The whole node's energy or power, from its BMC over IPMI's system interface.
//!
//! `/dev/ipmi0` (`ipmi_si` or `ipmi_ssif`, and `ipmi_devintf`), root's by default, which a [`helper`] holds. DCMI has the node's
//! power, which is added up here; Lenovo's XCC in some servers counts energy. What a BMC takes to answer, up to a second, passes
//! in its driver, and in `kipmid` where the interface has no interrupt: so it is asked at most once in five seconds.

mod answer;
mod bmc;
mod device;
pub mod helper;
pub mod protocol;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::{ReadError, Roots, SourceError};
use parking_lot::Mutex;
use privileges::User;
use readings::Integral;

use self::answer::LENOVO;
pub use self::answer::{
    AnswerError, EnergyReading, Flaw, PowerReading, parse_device_id, parse_power_reading, parse_xcc_energy,
};
use self::device::Device;
use self::helper::{Shared, start_from};
use self::protocol::{Answer, Failure, Outcome, Question};
use super::background::Find;
use super::counter::Skips;
use super::{Domain, Meter, Range, Sample, Source, Zone};

const DEVICE: &str = "/dev/ipmi0";
const NEEDS: &str = "a BMC with a driver (ipmi_si or ipmi_ssif) and ipmi_devintf";
/// A BMC whose clock and value stand still for longer measures no more.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(300);

fn error(error: ReadError) -> SourceError {
    SourceError::reading(DEVICE, NEEDS)(error)
}

/// How the helper is started.
#[derive(Debug)]
pub(super) struct Start {
    binary: PathBuf,
    user: Option<User>,
}

/// Who asks the BMC: nobody by default. Clones share the helper.
#[derive(Debug, Clone, Default)]
pub struct BmcAccess(Arc<Mutex<Access>>);

#[derive(Debug, Default)]
struct Access {
    start: Option<Start>,
    helper: Option<Shared>,
}

impl BmcAccess {
    /// The first discovery may start the helper of a binary, which becomes `user` where one is given. That is before privileges
    /// are dropped and before any thread is started. Later ones use the helper, or do without.
    pub fn starting(binary: &Path, user: Option<User>) -> Self {
        let start = Some(Start { binary: binary.to_owned(), user });
        Self(Arc::new(Mutex::new(Access { start, helper: None })))
    }

    /// What starts the helper, once.
    pub(super) fn take_start(&self) -> Option<Start> {
        self.0.lock().start.take()
    }

    /// The helper, started if it may be. `None` where there is no device. Only a device that is handed on is opened, and it is
    /// closed here.
    fn helper(&self, roots: &Roots, start: Option<Start>) -> Result<Option<Shared>, SourceError> {
        let mut access = self.0.lock();
        if access.helper.is_none() {
            let Some(start) = start else {
                return if Device::exists(roots) { Err(error(ReadError::Denied)) } else { Ok(None) };
            };
            let Some(device) = Device::open(roots).map_err(error)? else { return Ok(None) };
            let helper = start_from(&start.binary, start.user.as_ref(), device).map_err(|why| {
                tracing::warn!(%why, "the BMC cannot be asked");
                SourceError::Denied { what: format!("{DEVICE}: {why}") }
            })?;
            tracing::info!(pid = helper.pid(), landlock = helper.landlock(), "started the BMC helper");
            access.helper = Some(Arc::new(Mutex::new(helper)));
        }
        Ok(access.helper.clone())
    }
}

/// Has a helper hold the device, which takes the right to open it; it may be given up afterwards. Returns what asks the BMC
/// whether it measures; `None` where there is no device.
pub(super) fn find(
    roots: &Roots,
    access: &BmcAccess,
    start: Option<Start>,
) -> Result<Option<Find>, SourceError> {
    let Some(helper) = access.helper(roots, start)? else { return Ok(None) };
    Ok(Some(Box::new(move || {
        let meter = Ipmi::ask(helper.clone(), Instant::now())?;
        let needs =
            || SourceError::Unsupported { needs: "a BMC that knows DCMI's Get Power Reading".to_owned() };
        Ok(Box::new(meter.ok_or_else(needs)?))
    })))
}

/// Has the BMC asked.
trait Ask: Send {
    /// Asks it. `now` is the present time.
    fn ask(&mut self, question: Question, now: Instant) -> Result<Answer, SourceError>;
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
    fn advance(&mut self, stamp: Option<u32>, value: u64, now: Instant) -> Result<(), Flaw> {
        let Some(stamp) = stamp else {
            self.0 = None;
            return Ok(());
        };
        match self.0 {
            Some((before, same, since)) if (stamp, value) == (before, same) => {
                let stands = now.saturating_duration_since(since) > LONGEST_STANDSTILL;
                if stands { Err(Flaw::StoodStill) } else { Ok(()) }
            }
            last => {
                self.0 = Some((stamp, value, now));
                let back = last.is_some_and(|(before, ..)| stamp < before);
                if back { Err(Flaw::WentBack) } else { Ok(()) }
            }
        }
    }
}

/// The BMC as a meter of the node.
pub(super) struct Ipmi {
    bmc: Box<dyn Ask>,
    zones: [Zone; 1],
    measured: Measured,
    progress: Progress,
    skips: Skips,
    /// What came of the last question.
    last: Result<Sample, SourceError>,
}

impl Ipmi {
    /// Asks the BMC what it measures, which may take seconds. `None` where it knows no such command.
    fn ask(mut bmc: impl Ask + 'static, now: Instant) -> Result<Option<Self>, SourceError> {
        let id = bmc.ask(Question::DeviceId, now)?.outcome.map_err(|failed| failed.to(Question::DeviceId))?;
        let mut progress = Progress::default();
        let mut measured = Measured::Energy;
        // Only of Lenovo's: what the command does elsewhere is not known.
        let counted = if id.value == u64::from(LENOVO) {
            let answer = bmc.ask(Question::XccEnergy, now)?;
            match measured.sample(answer.outcome, &mut progress, asked_at(&answer, now)) {
                Err(Failure::Answer(_)) => None,
                reading => Some(reading.map_err(|failed| failed.to(Question::XccEnergy))?),
            }
        } else {
            None
        };
        let last = if let Some(sample) = counted {
            Ok(sample)
        } else {
            measured = Measured::Power(Integral::default());
            let answer = bmc.ask(Question::PowerReading, now)?;
            match measured.sample(answer.outcome, &mut progress, asked_at(&answer, now)) {
                Err(Failure::Answer(answer)) if answer.is_unknown_command() => return Ok(None),
                reading => reading.map_err(|failed| failed.to(Question::PowerReading)),
            }
        };
        let estimated = matches!(measured, Measured::Power(_));
        let name = if estimated { "dcmi power" } else { "xcc energy" }.to_owned();
        let zone = Zone { domain: Domain::Node, socket: None, source: Source::Ipmi, name, estimated };
        Ok(Some(Self {
            bmc: Box::new(bmc),
            zones: [zone],
            measured,
            progress,
            skips: Skips::default(),
            last,
        }))
    }
}

/// When the BMC was asked for this answer.
fn asked_at(answer: &Answer, now: Instant) -> Instant {
    now.checked_sub(Duration::from_millis(answer.age_ms.into())).unwrap_or(now)
}

impl Measured {
    fn question(&self) -> Question {
        match self {
            Self::Energy => Question::XccEnergy,
            Self::Power(_) => Question::PowerReading,
        }
    }

    fn sample(
        &mut self,
        outcome: Outcome,
        progress: &mut Progress,
        asked: Instant,
    ) -> Result<Sample, Failure> {
        let value = outcome.and_then(|reading| {
            progress.advance(reading.time_stamp, reading.value, asked).map_err(AnswerError::from)?;
            Ok(reading.value)
        });
        let (energy_uj, power_uw) = match self {
            Self::Energy => (value?, None),
            Self::Power(integral) => {
                let power = value.inspect_err(|_| integral.interrupt())?.saturating_mul(1_000_000);
                (integral.add(asked, power), Some(power))
            }
        };
        // Where XCC's counter ends is not documented: a fall is no wrap.
        Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw })
    }

    /// A question that has no answer of the BMC's.
    fn interrupt(&mut self) {
        if let Self::Power(integral) = self {
            integral.interrupt();
        }
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
        let question = self.measured.question();
        match self.bmc.ask(question, now) {
            // The BMC was not asked again: this is the last answer.
            Ok(answer) if answer.age_ms > 0 => {}
            Ok(answer) => {
                let sample = self.measured.sample(answer.outcome, &mut self.progress, now);
                self.last = sample.map_err(|failed| failed.to(question));
            }
            Err(error) => {
                self.measured.interrupt();
                self.last = Err(error);
            }
        }
        each(0, self.last.clone());
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
