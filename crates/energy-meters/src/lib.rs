//! Everything on a node that measures energy or power: how it is found and read, and what each meter covers.
//! Attribution to jobs is elsewhere.
//!
//! A [`Meter`] reads the [`Zone`]s of one source; [`discover`] finds those of this node; [`roles`] says which zones
//! may be added up and which measure the same once more.
//!
//! ```
//! use std::sync::Arc;
//! use kernel_files::Roots;
//!
//! let found = energy_meters::discover(&Arc::new(Roots::default()), &Default::default());
//! println!("{} zones can be read", found.zones().len());
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

mod background;
mod counter;
mod cray;
mod hsmp;
mod hwmon;
mod ipmi;
mod perf;
mod powercap;
mod redfish;
mod sample;
mod scale;
#[cfg(test)]
mod tests;
mod zone;
mod zone_role;

use std::sync::Arc;
use std::time::{Duration, Instant};

use background::Background;
use cpu_topology::Topology;
pub use cray::{parse_energy as parse_pm_counter, parse_name as parse_pm_counter_name};
pub use hsmp::energy_unit as hsmp_energy_unit;
pub use hwmon::{OemInfo, parse_amd_energy_label, parse_oem_info, parse_sensor as parse_hwmon_sensor};
pub use ipmi::{
    AnswerError as IpmiAnswerError, BmcAccess, EnergyReading, Flaw as IpmiFlaw, PowerReading,
    helper as bmc_helper, parse_device_id as parse_ipmi_device_id,
    parse_power_reading as parse_dcmi_power_reading, parse_xcc_energy, protocol as bmc_protocol,
};
use kernel_files::{NodeFiles, ReadError, Roots, SourceError};
pub use perf::parse_event as parse_power_event;
use perf_events::{Kernel, Open};
pub use powercap::{
    parse_directory as parse_powercap_directory, parse_zone_name as parse_powercap_zone_name,
};
pub use sample::{LARGEST_WRAPPED_POWER, Range, Sample};
pub use scale::{Scale, parse_scale};
pub use zone::{Domain, Source, Zone};
pub use zone_role::{ZoneRole, roles};

/// How meters are read.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often those that answer late are read, on a thread of their own. Controllers average over a second or more, and
    /// asking one is not free.
    pub slow_period: Duration,
    /// The Redfish service that measures the node, where the site has named one.
    pub redfish: Option<::redfish::Service>,
    /// Who asks the BMC over IPMI.
    pub bmc: BmcAccess,
}

impl Default for Options {
    fn default() -> Self {
        Self { slow_period: Duration::from_secs(10), redfish: None, bmc: BmcAccess::default() }
    }
}

/// What is called after a reading on a meter's own thread.
pub type AfterReading = Arc<dyn Fn() + Send + Sync>;

/// Reads the zones of one source.
pub trait Meter: Send {
    /// Its zones. None ever goes; further ones may follow these.
    fn zones(&self) -> &[Zone];

    /// Whether there are further zones since the last call.
    fn has_other_zones(&mut self) -> bool {
        false
    }

    /// Reads every zone and calls `each` with its index among [`zones`](Self::zones). A zone that fails costs no other.
    /// `now` is the time of the reading, by which power is added up to energy.
    fn read(&mut self, now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>));

    /// Stops reading a zone: its value is not used, and most readings interrupt a CPU.
    fn skip(&mut self, zone: usize);

    /// How far apart readings may be at most, so that no wrap is missed and no estimate gets too coarse; `None` where
    /// it does not matter.
    fn at_least_every(&self) -> Option<Duration>;

    /// Whether reading may take long (a baseboard controller answers in up to seconds): it is read on a thread of its own.
    fn slow(&self) -> bool {
        false
    }

    /// When the value of the last reading was measured, where that was before the reading.
    fn measured_at(&self, _zone: usize) -> Option<Instant> {
        None
    }

    /// Has this called after each reading that was not asked for, on a thread of the meter's.
    fn notify(&mut self, _after: AfterReading) {}

    /// What could not be found or read as a whole, by now.
    fn refused(&self) -> Vec<SourceError> {
        Vec::new()
    }

    /// What of it can still be read, for one that takes a right to be opened again.
    fn kept(self: Box<Self>) -> Option<Box<dyn Meter>> {
        None
    }
}

/// The meters of a node.
#[derive(Default)]
pub struct Discovery {
    /// What can be read.
    pub meters: Vec<Box<dyn Meter>>,
    /// Zones that exist, cannot be read and are measured by nothing else, each with its fix.
    pub refused: Vec<SourceError>,
    /// What finds slow meters.
    finders: Vec<background::Find>,
    /// hwmon devices with power or energy sensors that are neither the node's nor a CPU's, by name: not read.
    pub ignored: Vec<String>,
}

impl Discovery {
    /// Every zone, of all meters in their order.
    pub fn zones(&self) -> Vec<Zone> {
        self.meters.iter().flat_map(|meter| meter.zones()).cloned().collect()
    }

    fn add(&mut self, meter: impl Meter + 'static) {
        self.meters.push(Box::new(meter));
    }

    /// Cray's counters, and the sensors under hwmon.
    fn add_sensors(&mut self, roots: &Arc<Roots>) {
        cray::PmCounters::find(roots).into_iter().for_each(|meter| self.add(meter));
        let sensors = hwmon::Hwmon::find(roots);
        self.ignored = sensors.ignored;
        sensors.meters.into_iter().for_each(|meter| self.add(meter));
    }

    /// Has what answers late read on a thread of its own.
    fn with_slow_apart(mut self, period: Duration) -> Self {
        let (slow, quick) = std::mem::take(&mut self.meters).into_iter().partition(|meter| meter.slow());
        self.meters = quick;
        let finders = std::mem::take(&mut self.finders);
        Background::new(slow, finders, period).into_iter().for_each(|meter| self.add(meter));
        self
    }
}

/// The files below sysfs that may be root's, to be opened by a process that will not be root when it reads them.
pub fn guarded_files(roots: &Roots) -> Vec<String> {
    [powercap::guarded_files(roots), hwmon::guarded_files(roots)].concat()
}

/// Finds all meters of this node, and reads each source once.
pub fn discover(roots: &Arc<Roots>, options: &Options) -> Discovery {
    discover_again(roots, options, Discovery::default())
}

/// Does so again, since CPUs came or went, or a driver was loaded: that opens all sources again, and estimates restart at 0. Of
/// those before, perf events that may not be opened any more are kept.
pub fn discover_again(roots: &Arc<Roots>, options: &Options, before: Discovery) -> Discovery {
    let start = options.bmc.take_start();
    let mut found = discover_with(
        roots,
        before,
        Box::new(Kernel),
        |device| hsmp::Device::open(device).map(|device| -> Box<dyn hsmp::Ask> { Box::new(device) }),
        || ipmi::find(roots, &options.bmc, start),
    );
    found.finders.extend(options.redfish.clone().map(redfish::find));
    found.with_slow_apart(options.slow_period)
}

/// Finds those that are files of sysfs, which all users may read where the kernel or the site lets them. Nothing else is asked or opened.
pub fn discover_files(roots: &Arc<Roots>, slow_period: Duration) -> Discovery {
    let mut found = Discovery::default();
    let topology = Topology::current(&mut NodeFiles::new(roots));
    let (powercap, refused) = powercap::Powercap::find(roots, &topology);
    found.refused = refused;
    powercap.into_iter().for_each(|meter| found.add(meter));
    found.add_sensors(roots);
    found.with_slow_apart(slow_period)
}

/// The perf events of before, where none can be opened now: open ones count on while a CPU of their socket is online. That others
/// were refused matters if a socket has none.
fn keep_perf(
    before: Discovery,
    topology: &Topology,
    refused: Vec<SourceError>,
) -> (Option<Box<dyn Meter>>, Vec<SourceError>) {
    let Some(kept) = before.meters.into_iter().find_map(Meter::kept) else { return (None, refused) };
    let has = |socket: &u32| kept.zones().iter().any(|zone| zone.socket == Some(*socket));
    let refused = if topology.sockets.keys().all(has) { Vec::new() } else { refused };
    (Some(kept), refused)
}

fn discover_with(
    roots: &Arc<Roots>,
    before: Discovery,
    open: Box<dyn Open>,
    hsmp: impl FnOnce(&std::path::Path) -> Result<Box<dyn hsmp::Ask>, ReadError>,
    bmc: impl FnOnce() -> Result<Option<background::Find>, SourceError>,
) -> Discovery {
    let mut found = Discovery::default();
    let topology = Topology::current(&mut NodeFiles::new(roots));
    let (opened, perf_refused) = perf::PerfRapl::find(roots, &topology, open);
    let some_opened = opened.is_some();
    let (perf, perf_refused) = match opened {
        Some(opened) => (Some(Box::new(opened) as Box<dyn Meter>), perf_refused),
        None => keep_perf(before, &topology, perf_refused),
    };
    let (powercap, powercap_refused) = powercap::Powercap::find(roots, &topology);
    // Both read the same registers: one is enough, and errors of the other do not matter.
    if some_opened || powercap.is_empty() {
        found.refused.extend(perf_refused);
    }
    if perf.is_none() {
        found.refused.extend(powercap_refused);
    }
    found.meters.extend(perf);
    powercap.into_iter().for_each(|meter| found.add(meter));
    found.add_sensors(roots);
    let node = |zone: &Zone| zone.domain == Domain::Node;
    // A BMC is not asked for what another source counts.
    if !found.zones().iter().any(|zone| node(zone) && !zone.estimated) {
        match bmc() {
            Ok(find) => found.finders.extend(find),
            // Where sockets are measured it is no failure that a site leaves the BMC to root.
            Err(error) if found.zones().is_empty() => found.refused.push(error),
            Err(_) => {}
        }
    }
    let counted = |zone: &Zone| zone.domain == Domain::Package && zone.socket.is_some() && !zone.estimated;
    if !found.zones().iter().any(counted) {
        let outcome = match hsmp(&roots.dev("hsmp")) {
            Ok(device) => hsmp::Hsmp::find(device, &topology.sockets.keys().copied().collect::<Vec<_>>())
                .map(|meter| found.add(meter)),
            Err(ReadError::Gone) => Ok(()),
            Err(error) => Err(hsmp::error(error)),
        };
        found.refused.extend(outcome.err());
    }
    found
}
