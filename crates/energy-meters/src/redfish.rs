//! The whole node's energy or power, from a resource of a Redfish service that the site names.
//!
//! A BMC takes up to seconds to answer. What is asked, how and how often is in the crate `redfish`.

use std::time::{Duration, Instant};

use ::redfish::{Answer, Quantity, Service};
use kernel_files::SourceError;
use kernel_files::parse::ParseError;
use readings::Integral;

use super::background::Find;
use super::counter::Skips;
use super::{Domain, Meter, Range, Sample, Source, Zone};

const ANSWER: &str = "Redfish answer";

/// Finds out, by asking, what a service measures.
pub(super) fn find(service: Service) -> Find {
    Box::new(move || Ok(Box::new(Redfish::ask(service.clone(), Instant::now())?)))
}

/// What the resource measures.
#[derive(Debug)]
enum Measured {
    /// The count at the last answer, and how often it fell.
    Energy {
        quantity: Quantity,
        count: u64,
        falls: u32,
    },
    Power(Integral),
}

/// A resource as a meter of the node.
pub(super) struct Redfish {
    service: Service,
    zones: [Zone; 1],
    measured: Measured,
    skips: Skips,
    /// When the service was asked for the answer that was taken into account last, and what came of it.
    last: Option<(Instant, Result<Sample, SourceError>)>,
    given_again: bool,
}

impl Redfish {
    /// Asks what the service measures: what it counts, else its power. That does not change while the meter is there.
    fn ask(service: Service, now: Instant) -> Result<Self, SourceError> {
        let best = service.ask(now).1?.best().map_err(SourceError::parsing(ANSWER))?;
        let zone = Zone {
            domain: Domain::Node,
            socket: None,
            source: Source::Redfish,
            name: service.address().name.clone(),
            estimated: !best.counts(),
        };
        let measured = if best.counts() {
            Measured::Energy { quantity: best, count: 0, falls: 0 }
        } else {
            Measured::Power(Integral::default())
        };
        let skips = Skips::default();
        Ok(Self { service, zones: [zone], measured, skips, last: None, given_again: false })
    }
}

impl Measured {
    fn take(&mut self, at: Instant, answer: Result<Answer, SourceError>) -> Result<Sample, SourceError> {
        let value = |quantity| {
            let value = |answer: &Answer| answer.value(quantity).map_err(SourceError::parsing(ANSWER));
            answer.as_ref().map_err(Clone::clone).and_then(value)
        };
        match self {
            Self::Energy { quantity, count, falls } => {
                let energy_uj = value(*quantity)?;
                let before = std::mem::replace(count, energy_uj);
                if energy_uj < before {
                    *falls = falls.wrapping_add(1);
                    let error = ParseError::new(1, "the counter went back");
                    return Err(SourceError::Malformed { file: ANSWER, error });
                }
                let power_uw = value(Quantity::Watts).ok();
                Ok(Sample { energy_uj, range: Range::Full, epoch: *falls, power_uw })
            }
            Self::Power(integral) => {
                let power = value(Quantity::Watts).inspect_err(|_| integral.interrupt())?;
                let energy_uj = integral.add(at, power);
                Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw: Some(power) })
            }
        }
    }
}

impl Meter for Redfish {
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
        let (at, answer) = self.service.ask(now);
        self.given_again = at != now;
        let sample = match self.last.take() {
            Some((last, sample)) if last == at => sample,
            _ => self.measured.take(at, answer),
        };
        self.last = Some((at, sample.clone()));
        each(0, sample);
    }

    fn at_least_every(&self) -> Option<Duration> {
        None
    }

    fn slow(&self) -> bool {
        true
    }

    fn measured_at(&self, _zone: usize) -> Option<Instant> {
        self.last.as_ref().filter(|_| self.given_again).map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use ::redfish::{Limits, Options, Trust};
    use std::sync::Arc;
    use test_machine::Machine;

    use jobledger_testkit::eventually;
    use jobledger_testkit::scratch::Scratch;
    use jobledger_testkit::service::{Authority, Reply, Service as Site};

    use super::*;

    const TYPE: &str = r##""@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics""##;

    fn reply(properties: &str) -> impl Fn(&str) -> Reply + Send + 'static {
        let reply = Reply::json(&format!("{{{TYPE}, {properties}}}"));
        move |_| reply.clone()
    }

    fn site(properties: &str) -> (Site, Service) {
        let site = Site::start(None, reply(properties));
        let options = Options {
            address: format!("http://{}/redfish/v1/Chassis/1/EnvironmentMetrics", site.address)
                .parse()
                .unwrap(),
            credentials: None,
            trust: None,
            limits: Limits { answer: Duration::from_secs(60), ..Limits::default() },
        };
        let service = Service::open(&options).unwrap();
        (site, service)
    }

    fn read(meter: &mut Redfish, now: Instant) -> Result<Sample, String> {
        let mut samples = Vec::new();
        meter.read(now, &mut |zone, sample| samples.push((zone, sample)));
        let (zone, sample) = samples.pop().unwrap();
        assert!(zone == 0 && samples.is_empty());
        sample.map_err(|error| error.to_string())
    }

    #[test]
    fn power_is_added_up_and_a_reading_that_fails_interrupts_it() {
        let (site, service) = site(r#""PowerWatts": {"Reading": 300}"#);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut meter = Redfish::ask(service, start).unwrap();
        let zone = &meter.zones()[0];
        assert_eq!((zone.domain, zone.source, zone.estimated), (Domain::Node, Source::Redfish, true));
        assert_eq!(zone.name, "EnvironmentMetrics");
        let sample = |joules: u64, watts: u64| {
            let (energy_uj, power_uw) = (joules * 1_000_000, Some(watts * 1_000_000));
            Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw })
        };
        assert_eq!(read(&mut meter, start), sample(0, 300));
        assert_eq!(site.requests().len(), 1, "what it was found by is its first reading");
        site.answer(reply(r#""PowerWatts": {"Reading": 500}"#));
        assert_eq!(read(&mut meter, at(4)), sample(0, 300), "the last sample is given again");
        assert_eq!(meter.measured_at(0), Some(start));
        assert_eq!(read(&mut meter, at(10)), sample(4000, 500));
        assert_eq!(meter.measured_at(0), None);
        site.answer(reply(r#""PowerWatts": {"Reading": null}"#));
        let unknown = "malformed: Redfish answer: line 1: the reading is null or absent";
        assert_eq!(read(&mut meter, at(20)), Err(unknown.to_owned()));
        site.answer(reply(r#""PowerWatts": {"Reading": 500}"#));
        assert_eq!(read(&mut meter, at(30)), sample(4000, 500), "no line is drawn across a gap");
        assert_eq!(read(&mut meter, at(40)), sample(9000, 500));
        assert!(meter.slow() && meter.at_least_every().is_none());
        meter.skip(0);
        meter.read(at(50), &mut |_, _| panic!("it is not read"));
        assert_eq!(site.requests().len(), 5);
    }

    #[test]
    fn a_counter_is_not_estimated_and_one_that_went_back_begins_anew() {
        let energy = |joules: &str| {
            format!(r#""EnergyJoules": {{"Reading": {joules}}}, "PowerWatts": {{"Reading": 300}}"#)
        };
        let (site, service) = site(&energy("9000000.125"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut meter = Redfish::ask(service, start).unwrap();
        assert!(!meter.zones()[0].estimated && meter.zones()[0].counts_by_itself());
        let sample = |energy_uj: u64, epoch| {
            Ok(Sample { energy_uj, range: Range::Full, epoch, power_uw: Some(300_000_000) })
        };
        assert_eq!(read(&mut meter, start), sample(9_000_000_125_000, 0));
        site.answer(reply(&energy("9003000.5")));
        assert_eq!(read(&mut meter, at(10)), sample(9_003_000_500_000, 0));
        site.answer(reply(&energy("12")));
        let back = "malformed: Redfish answer: line 1: the counter went back";
        assert_eq!(read(&mut meter, at(20)), Err(back.to_owned()));
        assert_eq!(read(&mut meter, at(21)), Err(back.to_owned()), "the answer is given again");
        site.answer(reply(&energy("3012")));
        assert_eq!(read(&mut meter, at(30)), sample(3_012_000_000, 1));
        site.answer(reply(r#""PowerWatts": {"Reading": 300}"#));
        let gone = "malformed: Redfish answer: line 1: the property is not there any more";
        assert_eq!(read(&mut meter, at(40)), Err(gone.to_owned()), "power is no count");
    }

    #[test]
    fn a_service_that_measures_nothing_yet_is_asked_again() {
        let (site, service) = site(r#""PowerWatts": {"Reading": 0}"#);
        let start = Instant::now();
        let error = Redfish::ask(service.clone(), start).err().unwrap();
        assert!(!matches!(error, SourceError::Unsupported { .. }), "that would be final: {error}");
        site.answer(reply(r#""PowerWatts": {"Reading": 300}"#));
        assert!(Redfish::ask(service, start + Duration::from_secs(10)).is_ok());
    }

    /// Through TLS and on the thread of slow meters, whose stack is small.
    #[test]
    fn a_named_resource_is_found_and_read_beside_what_the_node_has() {
        let authority = Authority::default();
        let energy = reply(r#""EnergyJoules": {"Reading": 9000}"#);
        let site = Site::start(Some(authority.issue_until(2060)), energy);
        let dir = Scratch::new("redfish-meter");
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        let options = Options {
            address: format!("https://{}/redfish/v1/Chassis/1/EnvironmentMetrics", site.address)
                .parse()
                .unwrap(),
            credentials: None,
            trust: Some(Trust::Authorities(ca)),
            limits: Limits { answer: Duration::from_secs(60), ..Limits::default() },
        };
        let redfish = Some(Service::open(&options).unwrap());
        let reading =
            crate::Options { slow_period: Duration::from_millis(20), redfish, ..Default::default() };
        let machine = Machine::new();
        let mut found = crate::discover(&Arc::new(machine.roots()), &reading);
        let mut read = || {
            let mut samples = Vec::new();
            for meter in &mut found.meters {
                meter.read(Instant::now(), &mut |_, sample| {
                    samples.push(sample.map(|sample| sample.energy_uj))
                });
                meter.has_other_zones();
            }
            samples
        };
        eventually("it is read", || read() == [Ok(9_000_000_000)]);
        assert_eq!(found.zones().iter().map(|zone| zone.source).collect::<Vec<_>>(), [Source::Redfish]);
    }
}
