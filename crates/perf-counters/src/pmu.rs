//! A PMU as sysfs describes it: `/sys/bus/event_source/devices/<pmu>`
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-{events,format}).

use cpu_topology::CpuSet;
use kernel_files::parse::{ParseError, integer, parse_integer};
use kernel_files::{NodeFiles, ReadError, Roots};
use perf_events::Attr;
use rustix::fs::{Mode, OFlags};

/// Where the PMUs are.
pub const DEVICES: &str = "sys/bus/event_source/devices";

/// A PMU's file with the length of a turn, which root may write (Documentation/ABI/testing/sysfs-bus-event_source-devices,
/// kernel/events/core.c `perf_event_mux_interval_ms_store`).
pub const TURN: &str = "perf_event_mux_interval_ms";

/// Where a field of an event's description goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Which word: 0 to 2 for `config`, `config1`, `config2`.
    word: usize,
    /// First and last bit of each range; the low bits of a value fill them in this order.
    ranges: Vec<(u32, u32)>,
}

/// Parses a file of `format/`: `config:0-7,32-35`. A word that `perf_event_attr` did not have when this was written is an
/// error: no event is encoded in parts.
pub fn parse_field(bytes: &[u8]) -> Result<Field, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not a field of config, config1 or config2" };
    let text = bytes.trim_ascii();
    let colon = text.iter().position(|b| *b == b':').ok_or(BAD)?;
    let (word, bits) = text.split_at_checked(colon).ok_or(BAD)?;
    let word = match word {
        b"config" => 0,
        b"config1" => 1,
        b"config2" => 2,
        _ => return Err(BAD),
    };
    let mut ranges = Vec::new();
    for range in bits.get(1..).unwrap_or_default().split(|b| *b == b',') {
        let mut ends = range.splitn(2, |b| *b == b'-');
        let mut end = || ends.next().map(|end| integer(end).filter(|bit| *bit < 64).ok_or(BAD)).transpose();
        let first = end()?.ok_or(BAD)?;
        let last = end()?.unwrap_or(first);
        if last < first {
            return Err(BAD);
        }
        let bit = |bit: u64| u32::try_from(bit).map_err(|_| BAD);
        ranges.push((bit(first)?, bit(last)?));
    }
    Ok(Field { word, ranges })
}

impl Field {
    /// The value spread over its bits; `None` when it does not fit.
    fn place(&self, value: u64) -> Option<u64> {
        let mut left = value;
        let mut word = 0_u64;
        for (first, last) in &self.ranges {
            let width = last - first + 1;
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            word |= (left & mask) << first;
            left = left.checked_shr(width).unwrap_or(0);
        }
        (left == 0).then_some(word)
    }
}

/// A term of an event's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The field.
    pub field: String,
    /// Its value; a bare word is 1.
    pub value: u64,
}

/// Parses a file of `events/`: `event=0x04,umask=0x0c`. A term whose value the user has to fill in (`ldlat=?`) is an
/// error.
pub fn parse_terms(bytes: &[u8]) -> Result<Vec<Term>, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not field=number,..." };
    let text = std::str::from_utf8(bytes.trim_ascii()).map_err(|_| BAD)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.split(',')
        .map(|term| {
            let (field, value) = term.split_once('=').map_or((term, None), |(f, v)| (f, Some(v)));
            if field.is_empty() || !field.chars().all(plain) {
                return Err(BAD);
            }
            let value = match value {
                None => Some(1),
                Some(value) => match value.strip_prefix("0x") {
                    None => integer(value.as_bytes()),
                    Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                        u64::from_str_radix(digits, 16).ok()
                    }
                    Some(_) => None,
                },
            };
            Ok(Term { field: field.to_owned(), value: value.ok_or(BAD)? })
        })
        .collect()
}

/// One PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    /// Its directory's name.
    pub name: String,
    /// `perf_event_attr.type` of its events.
    pub kind: u32,
    /// `cpumask`: one CPU per instance, on which an event is opened that counts for all CPUs of it.
    pub cpumask: Option<CpuSet>,
    /// `cpus`: the CPUs that it is of, where there are several kinds of them.
    pub cpus: Option<CpuSet>,
    /// [`TURN`]: how long a turn of groups is that do not fit its counters at once, milliseconds.
    pub turn_ms: Option<u64>,
    fields: Vec<(String, Field)>,
}

/// An event that sysfs names.
#[derive(Debug, Clone, PartialEq)]
pub struct Alias {
    /// Its attributes.
    pub attr: Attr,
    /// The factor of a count.
    pub scale: Option<f64>,
    /// What comes out.
    pub unit: Option<String>,
}

impl Pmu {
    /// Reads a PMU's description; `Gone` where there is none.
    pub fn read(files: &mut NodeFiles, name: &str) -> Result<Self, ReadError> {
        let at = |file: &str| format!("{DEVICES}/{name}/{file}");
        let kind = parse_integer(files.read(&at("type"))?).ok().and_then(|kind| u32::try_from(kind).ok());
        let kind = kind.ok_or(ReadError::Gone)?;
        let mut list = |file| files.read(&at(file)).ok().and_then(|bytes| CpuSet::parse(bytes).ok());
        let (cpumask, cpus) = (list("cpumask"), list("cpus"));
        let turn_ms = files.read(&at(TURN)).ok().and_then(|bytes| parse_integer(bytes).ok());
        let mut names = Vec::new();
        match files.open(&at("format")) {
            Ok(dir) => {
                dir.for_each(|name, _, _| names.extend(std::str::from_utf8(name).map(str::to_owned)))?
            }
            // The software PMUs have none.
            Err(ReadError::Gone) => {}
            Err(error) => return Err(error),
        }
        names.sort_unstable();
        let mut fields = Vec::new();
        for field in names {
            // One of a later kernel's words is left out, and with it the events that need it.
            if let Ok(parsed) = parse_field(files.read(&at(&format!("format/{field}")))?) {
                fields.push((field, parsed));
            }
        }
        Ok(Self { name: name.to_owned(), kind, cpumask, cpus, turn_ms, fields })
    }

    /// A PMU that is not this machine's, with fields as files of `format/` describe them; those that are none are left out.
    pub fn described(name: &str, kind: u32, fields: &[(&str, &str)]) -> Self {
        let parsed =
            |(field, bits): &(&str, &str)| Some(((*field).to_owned(), parse_field(bits.as_bytes()).ok()?));
        let fields = fields.iter().filter_map(parsed).collect();
        Self { name: name.to_owned(), kind, cpumask: None, cpus: None, turn_ms: None, fields }
    }

    /// Sets the length of its turns, milliseconds. The kernel refuses 0, and whoever is not root.
    pub fn set_turn(&self, roots: &Roots, ms: u64) -> Result<(), ReadError> {
        let path = roots.sys(&format!("bus/event_source/devices/{}/{TURN}", self.name));
        let file = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(ReadError::from_errno)?;
        rustix::io::write(&file, format!("{ms}\n").as_bytes()).map(drop).map_err(ReadError::from_errno)
    }

    /// A field of its events.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| field)
    }

    /// The names of all PMUs, in order.
    pub fn names(files: &mut NodeFiles) -> Result<Vec<String>, ReadError> {
        let mut names = Vec::new();
        let dir = files.open(DEVICES)?;
        dir.for_each(|name, _, _| names.extend(std::str::from_utf8(name).map(str::to_owned)))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Encodes an event; fields that are not named are 0, as for `perf`. `None` when it has no such field, or the
    /// value does not fit.
    pub fn encode<'t>(&self, terms: impl IntoIterator<Item = (&'t str, u64)>) -> Option<Attr> {
        let mut words = [0_u64; 3];
        for (name, value) in terms {
            let field = self.field(name)?;
            *words.get_mut(field.word)? |= field.place(value)?;
        }
        let [config, config1, config2] = words;
        Some(Attr { kind: self.kind, config, config1, config2 })
    }

    /// An event that sysfs names; `None` when it names none of this name, or one that cannot be encoded.
    pub fn alias(&self, files: &mut NodeFiles, name: &str) -> Option<Alias> {
        let at = |suffix: &str| format!("{DEVICES}/{}/events/{name}{suffix}", self.name);
        let terms = parse_terms(files.read(&at("")).ok()?).ok()?;
        let attr = self.encode(terms.iter().map(|term| (term.field.as_str(), term.value)))?;
        let mut text = |suffix| {
            let bytes = files.read(&at(suffix)).ok()?;
            Some(std::str::from_utf8(bytes).ok()?.trim().to_owned())
        };
        let scale =
            text(".scale").and_then(|scale| scale.parse().ok()).filter(|scale: &f64| scale.is_finite());
        Some(Alias { attr, scale, unit: text(".unit") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_fills_its_ranges_from_its_low_bits() {
        let amd = parse_field(b"config:0-7,32-35\n").unwrap();
        assert_eq!(amd.place(0x1c7), Some(0x1_0000_00c7));
        assert_eq!(amd.place(0x1000), None, "thirteen bits do not fit twelve");
        let whole = parse_field(b"config1:0-63").unwrap();
        assert_eq!(whole.place(u64::MAX), Some(u64::MAX));
        assert_eq!(parse_field(b"config2:5").unwrap().place(1), Some(32));
        for bad in [
            "",
            "config",
            "config:",
            "config3:0-7",
            "config:7-0",
            "config:0-64",
            "config:a",
            "conf:1",
            "config:1-",
        ] {
            assert!(parse_field(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_description_is_fields_with_numbers() {
        let term = |field: &str, value| Term { field: field.to_owned(), value };
        assert_eq!(
            parse_terms(b"event=0x04,umask=12,edge\n").unwrap(),
            [term("event", 4), term("umask", 12), term("edge", 1)]
        );
        for bad in ["", "event=", "event=0x", "ldlat=?", "=1", "event=0x+1", "a b=1", "event=1,,umask=2"] {
            assert!(parse_terms(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_event_is_encoded_as_sysfs_says() {
        let machine = test_machine::Machine::new();
        let device = format!("{DEVICES}/uncore_imc_3");
        for (file, text) in [
            ("type", "21\n"),
            ("cpumask", "0,32\n"),
            ("format/event", "config:0-7\n"),
            ("format/umask", "config:8-15\n"),
            ("format/later", "config9:0-3\n"),
            ("events/cas_count_read", "event=0x04,umask=0x0f\n"),
            ("events/cas_count_read.scale", "6.103515625e-5\n"),
            ("events/cas_count_read.unit", "MiB\n"),
            ("events/of_later", "event=1,later=1\n"),
        ] {
            machine.write(&format!("{device}/{file}"), text);
        }
        let mut files = NodeFiles::new(&std::sync::Arc::new(machine.roots()));
        let pmu = Pmu::read(&mut files, "uncore_imc_3").unwrap();
        assert_eq!((pmu.kind, pmu.cpumask.as_ref().map(CpuSet::len), &pmu.cpus), (21, Some(2), &None));
        let alias = pmu.alias(&mut files, "cas_count_read").unwrap();
        assert_eq!(alias.attr, Attr::new(21, 0xf04));
        assert_eq!((alias.scale, alias.unit.as_deref()), (Some(6.103_515_625e-5), Some("MiB")));
        assert_eq!(pmu.alias(&mut files, "of_later"), None);
        assert_eq!(pmu.alias(&mut files, "none"), None);
        assert_eq!(pmu.encode([("umask", 0x100)]), None);
        assert_eq!(pmu.turn_ms, None);
        machine.write(&format!("{device}/{TURN}"), "4\n");
        pmu.set_turn(&machine.roots(), 100).unwrap();
        assert_eq!(Pmu::read(&mut files, "uncore_imc_3").unwrap().turn_ms, Some(100));
        assert_eq!(Pmu::names(&mut files).unwrap(), ["uncore_imc_3"]);
        assert_eq!(Pmu::read(&mut files, "cpu").err(), Some(ReadError::Gone));
    }
}
