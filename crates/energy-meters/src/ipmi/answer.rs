//! Answers of a BMC. The first byte is the completion code (IPMI 2.0 section 5.2), numbers begin with their lowest byte.

use kernel_files::SourceError;
use kernel_files::parse::ParseError;
use readings::LARGEST_POWER;

/// Why an answer holds no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerError {
    /// The BMC refused, with this completion code.
    Refused(u8),
    /// It cannot be used.
    Unusable(Flaw),
}

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It has no bytes.
    Empty = 1,
    /// An identification is too short.
    IdLength,
    /// A power reading has another length.
    PowerLength,
    /// A power reading is of another group of commands.
    PowerGroup,
    /// Power is not measured now.
    NotActive,
    /// No power.
    NoWatts,
    /// The number that stands for none.
    UnknownWatts,
    /// Power that no node has.
    TooManyWatts,
    /// A count of energy has another length.
    EnergyLength,
    /// A whole joule in millijoules.
    Millijoules,
    /// The BMC measures no more.
    StoodStill,
    /// The BMC's clock was set back.
    WentBack,
}

impl Flaw {
    /// Each of them.
    pub const ALL: [Self; 12] = [
        Self::Empty,
        Self::IdLength,
        Self::PowerLength,
        Self::PowerGroup,
        Self::NotActive,
        Self::NoWatts,
        Self::UnknownWatts,
        Self::TooManyWatts,
        Self::EnergyLength,
        Self::Millijoules,
        Self::StoodStill,
        Self::WentBack,
    ];

    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|flaw| *flaw as u8 == number)
    }

    /// Whether the answer is not of its documented form. Else the BMC has no number to give.
    pub fn is_malformed(self) -> bool {
        use Flaw::{Empty, EnergyLength, IdLength, Millijoules, PowerGroup, PowerLength};
        matches!(self, Empty | IdLength | PowerLength | PowerGroup | EnergyLength | Millijoules)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::IdLength => "fewer than 12 bytes",
            Self::PowerLength => "not 19 bytes",
            Self::PowerGroup => "not of DCMI's group of commands",
            Self::NotActive => "the measurement of power is not active",
            Self::NoWatts => "0 W, which no running node draws",
            Self::UnknownWatts => "65535 W, which means unknown",
            Self::TooManyWatts => "more power than a node can draw",
            Self::EnergyLength => "not 15 bytes",
            Self::Millijoules => "1000 mJ or more beside the joules",
            Self::StoodStill => "time stamp and value have stood still for five minutes",
            Self::WentBack => "the time stamp went back",
        }
    }
}

impl From<Flaw> for AnswerError {
    fn from(flaw: Flaw) -> Self {
        Self::Unusable(flaw)
    }
}

impl AnswerError {
    /// The error of a source; `question` was answered so.
    pub(super) fn to(self, question: &'static str) -> SourceError {
        let says = match self {
            Self::Unusable(flaw) if flaw.is_malformed() => {
                return SourceError::Malformed { file: question, error: ParseError::new(1, flaw.as_str()) };
            }
            Self::Unusable(flaw) => flaw.as_str().to_owned(),
            Self::Refused(code) => format!("completion code {code:#04x}{}", meaning(code)),
        };
        SourceError::Driver { call: question, says }
    }

    /// Whether the BMC does not know the command, or not this group of commands: DCMI shares its network function with
    /// others, by the first byte of data.
    pub(super) fn is_unknown_command(self) -> bool {
        matches!(self, Self::Refused(0xc1 | 0xcc))
    }
}

/// Lenovo's private enterprise number at IANA.
pub(super) const LENOVO: u32 = 19046;

/// IPMI 2.0 table 5-2, those that are answered to readings.
fn meaning(code: u8) -> &'static str {
    match code {
        0xc0 => " (busy)",
        0xc1 => " (invalid command)",
        0xc3 => " (timeout)",
        0xcc => " (invalid data field)",
        0xd0..=0xd2 => " (being updated or initialized)",
        0xd4 => " (insufficient privilege)",
        0xd5 => " (not supported in its present state)",
        _ => "",
    }
}

/// What follows a completion code of 0.
fn completed(answer: &[u8]) -> Result<&[u8], AnswerError> {
    match answer {
        [0, data @ ..] => Ok(data),
        [code, ..] => Err(AnswerError::Refused(*code)),
        [] => Err(Flaw::Empty.into()),
    }
}

/// Seconds of the BMC's clock; `None` where it is not set (IPMI 2.0 section 37.1) or not filled in.
fn time_stamp(bytes: [u8; 4]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes)).filter(|stamp| !matches!(*stamp, 0 | u32::MAX))
}

/// The manufacturer in the answer to Get Device ID (IPMI 2.0 section 20.1), a private enterprise number of 20 bits.
pub fn parse_device_id(answer: &[u8]) -> Result<u32, AnswerError> {
    match completed(answer)? {
        [_, _, _, _, _, _, low, middle, high, _, _, ..] => {
            Ok(u32::from_le_bytes([*low, *middle, high & 0x0f, 0]))
        }
        _ => Err(Flaw::IdLength.into()),
    }
}

/// The node's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerReading {
    /// The power now.
    pub watts: u16,
    /// When it was measured, in seconds of the BMC's clock.
    pub time_stamp: Option<u32>,
}

/// Parses the answer to Get Power Reading (DCMI 1.5 section 6.6.1): group, watts now, least, most, mean, time stamp,
/// period of the statistics in ms, state.
pub fn parse_power_reading(answer: &[u8]) -> Result<PowerReading, AnswerError> {
    const ACTIVE: u8 = 1 << 6;
    let [group, low, high, _, _, _, _, _, _, s0, s1, s2, s3, p0, p1, p2, p3, state] = completed(answer)?
    else {
        return Err(Flaw::PowerLength.into());
    };
    if *group != 0xdc {
        return Err(Flaw::PowerGroup.into());
    }
    let stamp = [*s0, *s1, *s2, *s3];
    // OpenBMC fills in the power only, and leaves the state at 0 (github.com/openbmc/openbmc, issue 3257).
    let power_only = stamp == [0; 4] && [p0, p1, p2, p3] == [&0; 4];
    if state & ACTIVE == 0 && !power_only {
        return Err(Flaw::NotActive.into());
    }
    match u16::from_le_bytes([*low, *high]) {
        0 => Err(Flaw::NoWatts.into()),
        u16::MAX => Err(Flaw::UnknownWatts.into()),
        watts if u64::from(watts) * 1_000_000 > LARGEST_POWER => Err(Flaw::TooManyWatts.into()),
        watts => Ok(PowerReading { watts, time_stamp: time_stamp(stamp) }),
    }
}

/// A count of energy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnergyReading {
    /// Since whenever it began.
    pub microjoules: u64,
    /// When it was measured, in seconds of the BMC's clock.
    pub time_stamp: Option<u32>,
}

/// Parses the answer of Lenovo's XCC in an SD650: index, joules, mJ, seconds, ms. The SD650 V2 and later answer with 39
/// bytes, which are of power, and are left to DCMI. Both are known from SLURM's `acct_gather_energy_xcc.c` alone.
pub fn parse_xcc_energy(answer: &[u8]) -> Result<EnergyReading, AnswerError> {
    let [_, _, j0, j1, j2, j3, m0, m1, s0, s1, s2, s3, _, _] = completed(answer)? else {
        return Err(Flaw::EnergyLength.into());
    };
    let joules = u64::from(u32::from_le_bytes([*j0, *j1, *j2, *j3]));
    let millijoules = u64::from(u16::from_le_bytes([*m0, *m1]));
    if millijoules >= 1000 {
        return Err(Flaw::Millijoules.into());
    }
    let microjoules = joules * 1_000_000 + millijoules * 1000;
    Ok(EnergyReading { microjoules, time_stamp: time_stamp([*s0, *s1, *s2, *s3]) })
}
