//! A zone with its accounts, and what its counter gained from one reading to the next.

use std::time::Instant;

use attribution::EnergyAccounts;
use energy_meters::{Domain, Sample, Zone, ZoneRole};
use readings::Gain;

/// A zone and its accounts. They are kept when it goes, since what jobs were charged with remains theirs.
pub(super) struct Account {
    pub(super) zone: Zone,
    /// `None` where no meter has the zone, and it never was attributed.
    pub(super) role: Option<ZoneRole>,
    pub(super) energy: EnergyAccounts,
    /// What it counted while it was not attributed, microjoules. It is no job's, and not in what is unattributed.
    pub(super) beside: u64,
    /// Whether another zone was charged, since the last reading, with what this one may count, too.
    pub(super) overtaken: bool,
    pub(super) last: Option<(Sample, Instant)>,
    /// Whether the latest reading succeeded.
    pub(super) read: bool,
    pub(super) power_uw: Option<u64>,
}

impl Account {
    pub(super) fn new(zone: Zone, energy: EnergyAccounts) -> Self {
        Self {
            zone,
            role: None,
            energy,
            beside: 0,
            overtaken: false,
            last: None,
            read: false,
            power_uw: None,
        }
    }

    /// That of an exporter before this one. Its zone is to be found yet.
    pub(super) fn restored(
        zone: Zone,
        energy: EnergyAccounts,
        (beside, overtaken): (u64, bool),
        last: Option<(Sample, Instant)>,
    ) -> Self {
        let mut account = Self { beside, overtaken, last, ..Self::new(zone, energy) };
        account.role = account.is_split().then_some(ZoneRole::Retired);
        account
    }

    /// What the zone is from now on; `None` where no meter has it. One that was attributed and is not read any more is retired.
    pub(super) fn becomes(&mut self, role: Option<ZoneRole>) {
        let is_overtaken = role.is_some() && std::mem::take(&mut self.overtaken);
        if is_overtaken && role == Some(ZoneRole::Attributed) {
            self.last = None;
        }
        let ends = matches!(role, None | Some(ZoneRole::Duplicate));
        // A restored one may be found yet, and goes on from its last reading.
        if ends && (self.is_measured() || role.is_some()) {
            (self.last, self.read, self.power_uw) = (None, false, None);
        }
        self.role = if ends && self.is_split() { Some(ZoneRole::Retired) } else { role };
    }

    /// Whether it is there to be read.
    pub(super) fn is_measured(&self) -> bool {
        !matches!(self.role, None | Some(ZoneRole::Duplicate | ZoneRole::Retired))
    }

    /// Whether its energy is split over jobs, or some of what it counted earlier was.
    pub(super) fn is_split(&self) -> bool {
        let account = self.energy.account();
        matches!(self.role, Some(ZoneRole::Attributed | ZoneRole::Retired))
            || account.exported_total() > self.beside
            || account.runs().next().is_some()
    }

    /// Its energy that no job can be charged with, microjoules.
    pub(super) fn unattributed(&self) -> u64 {
        self.energy.account().residual().saturating_sub(self.beside)
    }

    /// Whether another zone may measure the same energy in its place.
    pub(super) fn overlaps(&self, other: &Zone) -> bool {
        let alike =
            self.zone.domain == other.domain || [self.zone.domain, other.domain].contains(&Domain::Node);
        alike && (self.zone.socket == other.socket || self.zone.socket.is_none() || other.socket.is_none())
    }

    /// What the counter gained since the last reading, and when that was; `None` if it was not measured since.
    pub(super) fn take(&mut self, sample: Sample, now: Instant) -> Option<(Gain, Instant)> {
        if self.last.is_some_and(|(_, at)| at >= now) {
            return None;
        }
        let last = self.last.replace((sample, now));
        let Some((earlier, at)) = last.filter(|(earlier, _)| earlier.epoch == sample.epoch) else {
            return Some((Gain::First, now));
        };
        let gain = sample.gain_since(&earlier, now.saturating_duration_since(at));
        Some((gain.map_or(Gain::Restarted, Gain::Grown), at))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use attribution::{Basis, IdlePower};
    use energy_meters::{Domain, Range, Source};

    use super::*;

    #[test]
    fn a_gain_is_what_lies_between_two_readings_of_one_counter() {
        let zone = Zone {
            domain: Domain::Package,
            socket: Some(0),
            source: Source::Powercap,
            name: "package-0".to_owned(),
            estimated: false,
        };
        let energy = EnergyAccounts::new(Basis::Cpus, IdlePower::Set(0));
        let mut account = Account::new(zone, energy);
        let (wraps, begin) = (Range::Wraps { at: 1000 }, Instant::now());
        let readings = [
            (900, wraps, 0, Gain::First),
            (950, wraps, 0, Gain::Grown(50)),
            (20, wraps, 0, Gain::Grown(70)),
            // The range differs, so it is another counter: its gain is not known, though the value is higher.
            (60, Range::Full, 0, Gain::Restarted),
            (65, Range::Full, 0, Gain::Grown(5)),
            (15, Range::Full, 0, Gain::Restarted),
            (99, Range::Full, 1, Gain::First),
        ];
        for (seconds, (energy_uj, range, epoch, wanted)) in (0..).zip(readings) {
            let sample = Sample { energy_uj, range, epoch, power_uw: None };
            let gain = account.take(sample, begin + Duration::from_secs(seconds));
            assert_eq!(gain.map(|(gain, _)| gain), Some(wanted), "{energy_uj}");
        }
    }
}
