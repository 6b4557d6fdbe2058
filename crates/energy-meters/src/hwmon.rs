//! Power and energy sensors under hwmon.
//!
//! `/sys/class/hwmon/hwmonN/{name,powerM_average,powerM_oem_info,energyM_input,energyM_label}`, or in `device/` below
//! it, in microwatts and microjoules (Documentation/hwmon/sysfs-interface.rst). All users may read them. A node has
//! dozens of such sensors (graphics cards, regulators, drives, network cards): only those are read that are known to
//! be the node's or a CPU's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::parse::{ParseError, integer, parse_integer};
use kernel_files::{Buffer, Dir, NodeFiles, Roots, SourceError, label_text};
use readings::{Integral, LARGEST_POWER};

use super::counter::{FileCounter, Skips, Words};
use super::{Domain, Meter, Range, Sample, Source, Zone};

const CLASS: &str = "sys/class/hwmon";
const ENERGY: Words = Words { file: "hwmon energy*_input", needs: "the sensor in /sys/class/hwmon" };
const POWER: Words = Words { file: "hwmon power*_average", needs: "the sensor in /sys/class/hwmon" };
/// Power is averaged by the firmware over a second or less: between readings everything is guessed.
const EVERY: Duration = Duration::from_secs(10);

/// A driver that is known, and what of it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// ACPI power meters (Documentation/hwmon/acpi_power_meter.rst): one sensor, `power1_average`. On servers it is
    /// the node's input, asked of the baseboard controller. Grace has several, which `power1_oem_info` names.
    AcpiPowerMeter,
    /// `amd_energy` (5.8 to 5.12, then out of the tree) and its fork `zenergy`: `energyM_input`, of which those of sockets
    /// are read.
    AmdEnergy,
    /// `ibmaem` version 1 (Documentation/hwmon/ibmaem.rst): `energy1_input`, the controller's count of the node. Its
    /// `power1_average` is the same count over a second, during which the reader sleeps.
    Aem,
}

/// By `name`. Left out: `aem2` and `ibmpex` (sensors without labels: which one is the node's is not known), `amdgpu`,
/// `nvme`, `mlx5`, `i915`, and all regulators and supplies, whose sums have no known meaning.
const KNOWN: [(&str, Driver); 4] = [
    ("power_meter", Driver::AcpiPowerMeter),
    ("amd_energy", Driver::AmdEnergy),
    ("zenergy", Driver::AmdEnergy),
    ("aem1", Driver::Aem),
];

/// What an ACPI power meter's `power1_oem_info` says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OemInfo {
    /// One of Grace's: `Grace Power Socket 0`.
    Socket(Domain, u32),
    /// Of the form `... Power Socket N`, but not known.
    Unknown,
    /// Anything else, often nothing: an ordinary server.
    Other,
}

/// Parses `power1_oem_info`. NVIDIA Grace CPU performance tuning guide, "Power Telemetry": `Grace` is the socket with
/// its memory, `CPU` the rail of the cores, `SysIO` that of the rest of the chip, `Module` is all with the GPU.
pub fn parse_oem_info(bytes: &[u8]) -> OemInfo {
    let text = String::from_utf8_lossy(bytes.trim_ascii());
    let Some((what, socket)) = text.split_once(" Power Socket ") else { return OemInfo::Other };
    let Some(socket) = integer(socket.as_bytes()).and_then(|n| u32::try_from(n).ok()) else {
        return OemInfo::Unknown;
    };
    let domain = match what {
        "Grace" => Domain::Package,
        "CPU" => Domain::Core,
        "SysIO" => Domain::SysIo,
        "Module" => Domain::Module,
        _ => return OemInfo::Unknown,
    };
    OemInfo::Socket(domain, socket)
}

/// The socket in a label of `amd_energy`: `Esocket0`. Those of cores are `Ecore000`.
pub fn parse_amd_energy_label(bytes: &[u8]) -> Option<u32> {
    integer(bytes.trim_ascii().strip_prefix(b"Esocket")?).and_then(|n| u32::try_from(n).ok())
}

/// A sensor file's name in two: `("power", "_average")` of `power1_average`.
pub fn parse_sensor(name: &str) -> Option<(&'static str, u32, &str)> {
    let kind = ["power", "energy"].into_iter().find(|kind| name.starts_with(kind))?;
    let rest = name.strip_prefix(kind)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, attribute) = rest.split_at_checked(digits)?;
    Some((kind, u32::try_from(integer(number.as_bytes())?).ok()?, attribute))
}

/// The sensors of energy, which some versions of `amd_energy` give to root alone; not those of its cores, which are many.
pub(super) fn guarded_files(roots: &Roots) -> Vec<String> {
    let class = Dir::open(&roots.sys("class/hwmon")).and_then(|dir| dir.list()).unwrap_or_default();
    let places = class.iter().flat_map(|device| [device.name.clone(), format!("{}/device", device.name)]);
    places.flat_map(|place| guarded_in(roots, &format!("class/hwmon/{place}"))).collect()
}

fn guarded_in(roots: &Roots, place: &str) -> Vec<String> {
    let Ok(dir) = Dir::open(&roots.sys(place)) else { return Vec::new() };
    let mut buffer = Buffer::default();
    let mut guarded = |file: &str| {
        let Some(("energy", number, "_input")) = parse_sensor(file) else { return false };
        let label = dir.read(&format!("energy{number}_label"), &mut buffer);
        label.map_or(true, |label| parse_amd_energy_label(label).is_some())
    };
    let names = dir.list().unwrap_or_default().into_iter().map(|file| file.name);
    names.filter(|file| guarded(file)).map(|file| format!("{place}/{file}")).collect()
}

#[derive(Debug)]
enum Sensor {
    Energy(FileCounter),
    Power(String, Integral),
}

/// Some sensors, all quick or all slow to read.
#[derive(Debug)]
pub(super) struct Hwmon {
    zones: Vec<Zone>,
    sensors: Vec<Sensor>,
    files: NodeFiles,
    skips: Skips,
    slow: bool,
}

/// The zones and refusals under hwmon.
pub(super) struct Found {
    pub(super) meters: Vec<Hwmon>,
    pub(super) ignored: Vec<String>,
}

impl Hwmon {
    fn new(roots: &Arc<Roots>, slow: bool) -> Self {
        Self {
            zones: Vec::new(),
            sensors: Vec::new(),
            files: NodeFiles::new(roots),
            skips: Skips::default(),
            slow,
        }
    }

    fn add(&mut self, domain: Domain, socket: Option<u32>, name: String, sensor: Sensor) {
        let estimated = matches!(sensor, Sensor::Power(..));
        self.zones.push(Zone { domain, socket, source: Source::Hwmon, name, estimated });
        self.sensors.push(sensor);
    }

    /// Looks at every device.
    pub(super) fn find(roots: &Arc<Roots>) -> Found {
        let (mut quick, mut slow) = (Self::new(roots, false), Self::new(roots, true));
        let mut files = NodeFiles::new(roots);
        let mut ignored = Vec::new();
        let class = Dir::open(&roots.sys("class/hwmon")).and_then(|dir| dir.list()).unwrap_or_default();
        for entry in class {
            let Some(device) = Device::look(roots, &mut files, &entry.name) else { continue };
            let known = KNOWN.iter().find(|(known, _)| *known == device.name);
            let took = match known.map(|(_, driver)| driver) {
                Some(Driver::AcpiPowerMeter) => device.acpi(&mut files, &mut quick, &mut slow),
                Some(Driver::AmdEnergy) => device.amd_energy(&mut files, &mut quick),
                Some(Driver::Aem) => device.aem(&mut slow),
                None => false,
            };
            if !took && !ignored.contains(&device.name) {
                ignored.push(device.name);
            }
        }
        let meters = [quick, slow].into_iter().filter(|meter| !meter.zones.is_empty()).collect();
        Found { meters, ignored }
    }
}

/// A device that measures power or energy.
struct Device {
    name: String,
    /// Where its sensors are.
    at: String,
    /// Names of their files.
    sensors: Vec<String>,
}

impl Device {
    /// `None` for one without such sensors. Drivers that register the old way have everything, its name too, in the
    /// device's own directory and not in hwmon's.
    fn look(roots: &Arc<Roots>, files: &mut NodeFiles, entry: &str) -> Option<Self> {
        let places = [entry.to_owned(), format!("{entry}/device")];
        let mut name = |place: &String| {
            files.read(&format!("{CLASS}/{place}/name")).ok().map(|name| label_text(name.trim_ascii()))
        };
        let name = places.iter().find_map(&mut name)?;
        let measures = |file: &str| {
            parse_sensor(file).is_some_and(|(kind, _, attribute)| match attribute {
                "_input" => true,
                "_average" => kind == "power",
                _ => false,
            })
        };
        places.iter().find_map(|place| {
            let list =
                Dir::open(&roots.sys(&format!("class/hwmon/{place}"))).and_then(|dir| dir.list()).ok()?;
            let sensors: Vec<_> = list.into_iter().map(|file| file.name).filter(|f| measures(f)).collect();
            let at = format!("{CLASS}/{place}");
            (!sensors.is_empty()).then(|| Self { name: name.clone(), at, sensors })
        })
    }

    /// A file of it.
    fn file(&self, file: &str) -> String {
        format!("{}/{file}", self.at)
    }

    fn has(&self, sensor: &str) -> bool {
        self.sensors.iter().any(|file| file == sensor)
    }

    fn acpi(&self, files: &mut NodeFiles, quick: &mut Hwmon, slow: &mut Hwmon) -> bool {
        let battery = files.read(&self.file("power1_is_battery")).is_ok_and(|b| b.trim_ascii() == b"1");
        if battery || !self.has("power1_average") {
            return false;
        }
        let sensor = Sensor::Power(self.file("power1_average"), Integral::default());
        let info = files.read(&self.file("power1_oem_info")).unwrap_or_default();
        match parse_oem_info(info) {
            OemInfo::Socket(domain, socket) => {
                quick.add(domain, Some(socket), label_text(info.trim_ascii()), sensor);
            }
            OemInfo::Other => slow.add(Domain::Node, None, self.name.clone(), sensor),
            OemInfo::Unknown => return false,
        }
        true
    }

    fn amd_energy(&self, files: &mut NodeFiles, quick: &mut Hwmon) -> bool {
        let mut took = false;
        for sensor in &self.sensors {
            let Some(("energy", number, _)) = parse_sensor(sensor) else { continue };
            let Ok(label) = files.read(&self.file(&format!("energy{number}_label"))) else { continue };
            if let Some(socket) = parse_amd_energy_label(label) {
                let counter = FileCounter::new(self.file(sensor));
                let name = label_text(label.trim_ascii());
                quick.add(Domain::Package, Some(socket), name, Sensor::Energy(counter));
                took = true;
            }
        }
        took
    }

    fn aem(&self, slow: &mut Hwmon) -> bool {
        let counts = self.has("energy1_input");
        if counts {
            let counter = FileCounter::new(self.file("energy1_input"));
            slow.add(Domain::Node, None, self.name.clone(), Sensor::Energy(counter));
        }
        counts
    }
}

impl Sensor {
    fn read(&mut self, files: &mut NodeFiles, now: Instant) -> Result<Sample, SourceError> {
        match self {
            Self::Energy(counter) => counter.read(files, ENERGY, Range::Full, parse_integer),
            Self::Power(path, integral) => {
                let microwatts = power(files, path).inspect_err(|_| integral.interrupt())?;
                let energy_uj = integral.add(now, microwatts);
                // The sum is this exporter's own and goes on when the sensor was away.
                Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw: Some(microwatts) })
            }
        }
    }
}

fn power(files: &mut NodeFiles, path: &str) -> Result<u64, SourceError> {
    let bytes = files.read(path).map_err(|error| POWER.error(error))?;
    let microwatts = parse_integer(bytes).map_err(SourceError::parsing(POWER.file))?;
    if microwatts > LARGEST_POWER {
        let error = ParseError::new(1, "more power than a node can draw");
        return Err(SourceError::Malformed { file: POWER.file, error });
    }
    Ok(microwatts)
}

impl Meter for Hwmon {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn skip(&mut self, zone: usize) {
        self.skips.add(zone);
    }

    fn read(&mut self, now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        for (zone, sensor) in self.sensors.iter_mut().enumerate().filter(|(z, _)| !self.skips.has(*z)) {
            each(zone, sensor.read(&mut self.files, now));
        }
    }

    fn at_least_every(&self) -> Option<Duration> {
        let estimates = self.zones.iter().enumerate().any(|(z, zone)| zone.estimated && !self.skips.has(z));
        (estimates && !self.slow).then_some(EVERY)
    }

    fn slow(&self) -> bool {
        self.slow
    }
}
