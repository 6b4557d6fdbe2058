//! `/proc/PID/fdinfo/FD` of a DRM descriptor (Documentation/gpu/drm-usage-stats.rst; Linux 5.14 for amdgpu, 5.19 for i915,
//! 6.8 for xe).

use kernel_files::label_text;
use kernel_files::parse::{ParseError, fields, integer, lines};

/// What one open descriptor's client uses. Several descriptors, of several processes too, may be of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Client {
    /// `drm-driver`.
    pub driver: String,
    /// `drm-pdev`, the PCI address.
    pub pci: Option<String>,
    /// `drm-client-id`, unique on the device.
    pub id: Option<u64>,
    /// By class of engines.
    pub engines: Vec<Engine>,
    /// By kind of memory.
    pub memory: Vec<Region>,
}

/// A class of engines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engine {
    /// `gfx`, `compute`, `rcs`, ...
    pub class: String,
    /// Time in which they worked for the client, added up over the engines.
    pub busy_ns: Option<u64>,
    /// The same in ticks of the GPU's clock (xe).
    pub cycles: Option<u64>,
    /// What that clock said.
    pub total_cycles: Option<u64>,
    /// How many engines there are; not said: one.
    pub capacity: Option<u64>,
}

/// A kind of memory, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    /// `vram`, `vram0`, `local0`, `gtt`, ...
    pub name: String,
    /// The allocation there.
    pub total: Option<u64>,
    /// What of it is there now.
    pub resident: Option<u64>,
    /// The same, of older drivers.
    pub memory: Option<u64>,
}

impl Client {
    fn engine(&mut self, class: &[u8]) -> Option<&mut Engine> {
        let class = label_text(class);
        let at = self.engines.iter().position(|engine| engine.class == class).unwrap_or_else(|| {
            self.engines.push(Engine { class, ..Engine::default() });
            self.engines.len() - 1
        });
        self.engines.get_mut(at)
    }

    fn region(&mut self, name: &[u8]) -> Option<&mut Region> {
        let name = label_text(name);
        let at = self.memory.iter().position(|region| region.name == name).unwrap_or_else(|| {
            self.memory.push(Region { name, ..Region::default() });
            self.memory.len() - 1
        });
        self.memory.get_mut(at)
    }
}

/// A size with its unit; without one it is bytes.
fn size(value: &[u8]) -> Option<u64> {
    let mut words = fields(value);
    let number = words.next().and_then(integer)?;
    let unit: u64 = match words.next() {
        None => 1,
        Some(b"KiB") => 1 << 10,
        Some(b"MiB") => 1 << 20,
        Some(b"GiB") => 1 << 30,
        Some(_) => return None,
    };
    number.checked_mul(unit)
}

fn nanoseconds(value: &[u8]) -> Option<u64> {
    let mut words = fields(value);
    let number = words.next().and_then(integer)?;
    words.next().is_some_and(|unit| unit == b"ns").then_some(number)
}

/// Parses the file of a descriptor; `None` for one that is not DRM's.
pub fn parse_fdinfo(bytes: &[u8]) -> Result<Option<Client>, ParseError> {
    let mut client = Client::default();
    let mut is_drm = false;
    for line in lines(bytes) {
        let (number, line) = line?;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (key, value) = line.split_at(colon);
        let (key, value) = (key.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii());
        let Some(key) = key.strip_prefix(b"drm-") else { continue };
        let need =
            |value: Option<u64>| value.map(Some).ok_or(ParseError::new(number, "not a number with its unit"));
        // The longer key first: each begins like the one below it.
        if key == b"driver" {
            is_drm = true;
            client.driver = label_text(value);
        } else if key == b"pdev" {
            client.pci = Some(label_text(value));
        } else if key == b"client-id" {
            client.id = need(integer(value))?;
        } else if let Some(class) = key.strip_prefix(b"engine-capacity-") {
            let capacity = need(integer(value))?;
            client.engine(class).into_iter().for_each(|engine| engine.capacity = capacity);
        } else if let Some(class) = key.strip_prefix(b"engine-") {
            let busy = need(nanoseconds(value))?;
            client.engine(class).into_iter().for_each(|engine| engine.busy_ns = busy);
        } else if let Some(class) = key.strip_prefix(b"total-cycles-") {
            let cycles = need(integer(value))?;
            client.engine(class).into_iter().for_each(|engine| engine.total_cycles = cycles);
        } else if let Some(class) = key.strip_prefix(b"cycles-") {
            let cycles = need(integer(value))?;
            client.engine(class).into_iter().for_each(|engine| engine.cycles = cycles);
        } else if let Some(name) = key.strip_prefix(b"total-") {
            let bytes = need(size(value))?;
            client.region(name).into_iter().for_each(|region| region.total = bytes);
        } else if let Some(name) = key.strip_prefix(b"resident-") {
            let bytes = need(size(value))?;
            client.region(name).into_iter().for_each(|region| region.resident = bytes);
        } else if let Some(name) = key.strip_prefix(b"memory-") {
            let bytes = need(size(value))?;
            client.region(name).into_iter().for_each(|region| region.memory = bytes);
        }
    }
    Ok(is_drm.then_some(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Client {
        parse_fdinfo(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn amdgpu_counts_nanoseconds_and_kibibytes() {
        let client = parse(
            "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t741\npasid:\t32771\ndrm-driver:\tamdgpu\ndrm-client-id:\t12\n\
             drm-pdev:\t0000:c1:00.0\ndrm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t16 KiB\namd-requested-vram:\t2052 KiB\n\
             drm-total-vram:\t3 MiB\ndrm-resident-vram:\t2 MiB\ndrm-engine-gfx:\t7 ns\ndrm-engine-compute:\t123456789 ns\n",
        );
        assert_eq!(
            (client.driver.as_str(), client.pci.as_deref(), client.id),
            ("amdgpu", Some("0000:c1:00.0"), Some(12))
        );
        let engine = |class: &str| client.engines.iter().find(|e| e.class == class).and_then(|e| e.busy_ns);
        assert_eq!((engine("gfx"), engine("compute"), engine("dma")), (Some(7), Some(123_456_789), None));
        let vram = Region {
            name: "vram".to_owned(),
            total: Some(3 << 20),
            resident: Some(2 << 20),
            memory: Some(2 << 20),
        };
        assert_eq!(client.memory.first(), Some(&vram));
        assert_eq!(client.memory.get(1).and_then(|gtt| gtt.memory), Some(16 << 10));
    }

    #[test]
    fn xe_counts_ticks_and_says_how_many_engines() {
        let client = parse(
            "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t23992 KiB\ndrm-total-system:\t0\n\
             drm-cycles-ccs:\t28257900\ndrm-total-cycles-ccs:\t7655183225\ndrm-engine-capacity-ccs:\t4\n",
        );
        let ccs = Engine {
            class: "ccs".to_owned(),
            busy_ns: None,
            cycles: Some(28_257_900),
            total_cycles: Some(7_655_183_225),
            capacity: Some(4),
        };
        assert_eq!(client.engines, [ccs]);
        assert_eq!(client.memory.first().and_then(|region| region.total), Some(23992 << 10));
    }

    #[test]
    fn other_descriptors_are_none_and_torn_ones_an_error() {
        assert_eq!(parse_fdinfo(b"pos:\t0\nflags:\t0100002\n"), Ok(None));
        assert_eq!(parse_fdinfo(b""), Ok(None));
        assert_eq!(
            parse_fdinfo(b"drm-driver:\tamdgpu\ndrm-engine-gfx:\t12"),
            Err(ParseError::new(2, "torn line"))
        );
        for bad in [
            "drm-engine-gfx:\t12 ms\n",
            "drm-engine-gfx:\t12\n",
            "drm-total-vram:\t1 TB\n",
            "drm-client-id:\t-1\n",
            "drm-total-vram:\t18446744073709551615 KiB\n",
        ] {
            assert!(parse_fdinfo(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(
            parse("drm-driver:\tnew\ndrm-maxfreq-gfx:\t2 GHz\nodd\n").engines,
            [],
            "unknown keys are passed over"
        );
    }
}
