//! `gpu_metrics` of amdgpu: one binary table of what the power firmware measures.
//!
//! The layout depends on the GPU and the driver; its size and two revisions identify it
//! (drivers/gpu/drm/amd/include/kgd_pp_interface.h, `struct gpu_metrics_v1_0` to `v1_9`; little endian, naturally
//! aligned). Values that a GPU does not have are all ones. Unknown layouts are refused: APUs have the formats 2 and
//! 3.

mod attributes;

use kernel_files::parse::ParseError;

/// Most partitions of a GPU (`NUM_XCP`).
const PARTITIONS: usize = 8;
/// Links to other GPUs, and compute dies (`NUM_XGMI_LINKS`, `MAX_XCC`).
const EIGHT: usize = 8;

/// What a table says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuMetrics {
    /// Content revision of format 1.
    pub revision: u8,
    /// Sensor and degrees Celsius.
    pub temperatures: Vec<(&'static str, u16)>,
    /// Mean of the graphics and compute engine over the firmware's window, percent.
    pub gfx_activity: Option<u16>,
    /// The same of the memory controllers.
    pub memory_activity: Option<u16>,
    /// Watts: a mean up to revision 3, the present value from revision 4 on.
    pub socket_power: Option<u16>,
    /// Units of 2^-16 J from revision 4 on (and on MI200).
    pub energy: Option<u64>,
    /// Nanoseconds since the boot, when the driver made the table.
    pub system_clock: Option<u64>,
    /// 10 ns, when the firmware did.
    pub firmware_clock: Option<u64>,
    /// Percent added up once a cycle; wraps.
    pub gfx_activity_sum: Option<u32>,
    /// The same of the memory's bandwidth.
    pub memory_activity_sum: Option<u32>,
    /// Cycles in which was added up, the low 32 bits: revision 6 on.
    pub cycles: Option<u32>,
    /// KiB read over all XGMI links.
    pub xgmi_read: Option<u64>,
    /// KiB written.
    pub xgmi_written: Option<u64>,
    /// PCIe packets sent again.
    pub pcie_replays: Option<u64>,
    /// Lanes.
    pub pcie_width: Option<u16>,
    /// 0.1 GT/s.
    pub pcie_speed: Option<u16>,
    /// Domain and MHz; of several dies the mean.
    pub clocks: Vec<(&'static str, u64)>,
    /// Reasons that hold the clocks down, one bit each (`SMU_THROTTLER_*_BIT`): revision 3.
    pub throttle: Option<u64>,
    /// By partition: percent added up over its dies, and of how many: revisions 6 to 8.
    pub partitions: Vec<Option<(u64, u64)>>,
}

/// Where things are in a revision; 0, the header, is nowhere.
struct Layout {
    size: usize,
    temperatures: &'static [(&'static str, usize)],
    gfx_activity: usize,
    power: usize,
    energy: usize,
    short_energy: bool,
    system_clock: usize,
    firmware_clock: usize,
    sums: usize,
    cycles: usize,
    xgmi: usize,
    replays: usize,
    link: usize,
    short_link: bool,
    clocks: &'static [(&'static str, usize, usize)],
    throttle: usize,
    partitions: Partitions,
}

/// Where the partitions' numbers are: how many there are, the first, the length of each, their sums in it.
struct Partitions {
    count: usize,
    first: usize,
    len: usize,
    sums: usize,
}

const UNDIVIDED: Partitions = Partitions { count: 0, first: 0, len: 0, sums: 0 };
const OLD_TEMPERATURES: &[(&str, usize)] =
    &[("edge", 4), ("junction", 6), ("mem", 8), ("vr_gfx", 10), ("vr_soc", 12), ("vr_mem", 14)];
const NEW_TEMPERATURES: &[(&str, usize)] = &[("junction", 4), ("mem", 6), ("vr_soc", 8)];
const OLD_CLOCKS: &[(&str, usize, usize)] = &[("gfx", 54, 1), ("soc", 56, 1), ("memory", 58, 1)];

const OLD: Layout = Layout {
    size: 96,
    temperatures: OLD_TEMPERATURES,
    gfx_activity: 16,
    power: 22,
    energy: 24,
    short_energy: false,
    system_clock: 32,
    firmware_clock: 0,
    sums: 80,
    cycles: 0,
    xgmi: 0,
    replays: 0,
    link: 74,
    short_link: false,
    clocks: OLD_CLOCKS,
    throttle: 0,
    partitions: UNDIVIDED,
};
const NEW: Layout = Layout {
    size: 288,
    temperatures: NEW_TEMPERATURES,
    gfx_activity: 12,
    power: 10,
    energy: 24,
    short_energy: false,
    system_clock: 32,
    firmware_clock: 232,
    sums: 56,
    cycles: 0,
    xgmi: 104,
    replays: 88,
    link: 48,
    short_link: false,
    clocks: &[("gfx", 240, 8), ("soc", 256, 4), ("memory", 280, 1)],
    throttle: 0,
    partitions: UNDIVIDED,
};

/// By content revision of format 1.
static LAYOUTS: [Layout; 9] = [
    Layout {
        size: 80,
        temperatures: &[
            ("edge", 16),
            ("junction", 18),
            ("mem", 20),
            ("vr_gfx", 22),
            ("vr_soc", 24),
            ("vr_mem", 26),
        ],
        gfx_activity: 28,
        power: 34,
        energy: 36,
        short_energy: true,
        system_clock: 8,
        sums: 0,
        short_link: true,
        ..OLD
    },
    OLD,
    Layout { size: 104, firmware_clock: 96, ..OLD },
    Layout { size: 120, firmware_clock: 96, throttle: 112, ..OLD },
    NEW,
    Layout {
        size: 360,
        energy: 88,
        system_clock: 96,
        firmware_clock: 304,
        sums: 120,
        xgmi: 176,
        replays: 152,
        link: 112,
        clocks: &[("gfx", 312, 8), ("soc", 328, 4), ("memory", 352, 1)],
        ..NEW
    },
    Layout {
        size: 1664,
        energy: 16,
        system_clock: 24,
        firmware_clock: 256,
        sums: 68,
        cycles: 32,
        xgmi: 128,
        replays: 104,
        link: 60,
        clocks: &[("gfx", 264, 8), ("soc", 280, 4), ("memory", 304, 1)],
        partitions: Partitions { count: 306, first: 312, len: 168, sums: 104 },
        ..NEW
    },
    Layout { partitions: Partitions { count: 338, first: 344, len: 232, sums: 104 }, size: 2208, ..SEVENTH },
    Layout { partitions: Partitions { count: 338, first: 344, len: 440, sums: 120 }, size: 3872, ..SEVENTH },
];
const SEVENTH: Layout = Layout {
    firmware_clock: 288,
    sums: 76,
    cycles: 40,
    xgmi: 136,
    replays: 112,
    link: 68,
    clocks: &[("gfx", 296, 8), ("soc", 312, 4), ("memory", 336, 1)],
    ..NEW
};

/// The bytes of a table. A value of all ones is absent, and so is one at offset 0, which is the header.
struct Table<'a>(&'a [u8]);

impl Table<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let bytes: [u8; N] = self.0.get(at..at.checked_add(N)?)?.try_into().ok()?;
        (at > 0 && bytes != [0xff; N]).then_some(bytes)
    }

    fn u8(&self, at: usize) -> Option<u16> {
        self.bytes(at).map(u8::from_le_bytes).map(u16::from)
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    /// Several of eight bytes: how many there are, and their sum.
    fn sum(&self, at: usize, count: usize) -> Option<(u64, u64)> {
        let at = Some(at).filter(|at| *at > 0)?;
        let values = (0..count).filter_map(|n| self.u64(at + n * 8));
        values.map(|value| (value, 1)).reduce(|(sum, n), (value, one)| (sum.wrapping_add(value), n + one))
    }

    /// The mean of several clocks, MHz.
    fn mean(&self, at: usize, count: usize) -> Option<u64> {
        let values: Vec<u64> = (0..count).filter_map(|n| self.u16(at + n * 2)).map(u64::from).collect();
        values.iter().sum::<u64>().checked_div(values.len() as u64)
    }
}

/// Size, format revision and content revision, by which a table's form is known.
pub fn parse_header(bytes: &[u8]) -> Result<(u16, u8, u8), ParseError> {
    match bytes {
        [low, high, format, content, ..] => Ok((u16::from_le_bytes([*low, *high]), *format, *content)),
        _ => Err(ParseError::new(1, "no header of gpu_metrics")),
    }
}

/// Parses a table; `None` for a form that is not known.
pub fn parse_gpu_metrics(bytes: &[u8]) -> Result<Option<GpuMetrics>, ParseError> {
    let (size, format, revision) = parse_header(bytes)?;
    let size = usize::from(size);
    let table = bytes.get(..size).ok_or(ParseError::new(1, "a table shorter than it says"))?;
    match (format, LAYOUTS.get(usize::from(revision))) {
        (1, Some(layout)) if layout.size == size => Ok(Some(read(&Table(table), layout, revision))),
        (1, Some(_)) => Err(ParseError::new(1, "a table of another size than its revision has")),
        (1, None) if revision == attributes::REVISION => attributes::parse(table).map(Some),
        _ => Ok(None),
    }
}

fn read(table: &Table<'_>, layout: &Layout, revision: u8) -> GpuMetrics {
    let after = |at: usize, by: usize| if at > 0 { at + by } else { 0 };
    let link = |n: usize| {
        if layout.short_link { table.u8(layout.link + n) } else { table.u16(layout.link + 2 * n) }
    };
    let energy =
        if layout.short_energy { table.u32(layout.energy).map(u64::from) } else { table.u64(layout.energy) };
    let divided = &layout.partitions;
    let partitions = table.u16(divided.count).map(usize::from).filter(|count| *count <= PARTITIONS);
    let partition = |n: usize| table.sum(divided.first + n * divided.len + divided.sums, EIGHT);
    let xgmi = |at: usize| table.sum(at, EIGHT).map(|(sum, _)| sum);
    GpuMetrics {
        revision,
        temperatures: layout
            .temperatures
            .iter()
            .filter_map(|(name, at)| Some((*name, table.u16(*at)?)))
            .collect(),
        gfx_activity: table.u16(layout.gfx_activity),
        memory_activity: table.u16(layout.gfx_activity + 2),
        socket_power: table.u16(layout.power),
        energy,
        system_clock: table.u64(layout.system_clock),
        firmware_clock: table.u64(layout.firmware_clock),
        gfx_activity_sum: table.u32(layout.sums),
        memory_activity_sum: table.u32(after(layout.sums, 4)),
        cycles: table.u32(layout.cycles),
        xgmi_read: xgmi(layout.xgmi),
        xgmi_written: xgmi(after(layout.xgmi, EIGHT * 8)),
        pcie_replays: table.u64(layout.replays),
        pcie_width: link(0),
        pcie_speed: link(1),
        clocks: layout
            .clocks
            .iter()
            .filter_map(|(name, at, n)| Some((*name, table.mean(*at, *n)?)))
            .collect(),
        throttle: table.u64(layout.throttle),
        partitions: (0..partitions.unwrap_or_default()).map(partition).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as the driver makes it: all ones, a header, and these values.
    fn table(size: u16, revision: u8, put: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::from(size)];
        let [low, high] = size.to_le_bytes();
        bytes[..4].copy_from_slice(&[low, high, 1, revision]);
        for (at, value) in put {
            bytes[*at..*at + value.len()].copy_from_slice(value);
        }
        bytes
    }

    fn parse(size: u16, revision: u8, put: &[(usize, &[u8])]) -> GpuMetrics {
        parse_gpu_metrics(&table(size, revision, put)).unwrap().unwrap()
    }

    const SIZES: [u16; 9] = [80, 96, 104, 120, 288, 360, 1664, 2208, 3872];

    #[test]
    fn what_is_all_ones_is_absent_in_every_revision() {
        for (revision, size) in (0u8..).zip(SIZES) {
            assert_eq!(parse(size, revision, &[]), GpuMetrics { revision, ..GpuMetrics::default() });
        }
    }

    #[test]
    fn the_first_revision_has_narrow_fields() {
        let energy = 70_000u32.to_le_bytes();
        let m = parse(
            80,
            0,
            &[
                (16, &[41, 0]),
                (28, &[37, 0, 12, 0]),
                (34, &[7, 1]),
                (36, &energy),
                (58, &[0xb0, 4]),
                (74, &[16, 160]),
            ],
        );
        assert_eq!(m.temperatures, [("edge", 41)]);
        assert_eq!((m.gfx_activity, m.memory_activity, m.socket_power), (Some(37), Some(12), Some(263)));
        assert_eq!((m.energy, m.pcie_width, m.pcie_speed), (Some(70_000), Some(16), Some(160)));
        assert_eq!(
            (m.clocks.as_slice(), m.gfx_activity_sum, m.firmware_clock),
            (&[("memory", 1200)][..], None, None)
        );
    }

    #[test]
    fn the_third_reports_why_clocks_are_held_down() {
        let sums = [1, 0, 0, 0, 2, 0, 0, 0];
        let m = parse(
            120,
            3,
            &[
                (24, &[9, 0, 0, 0, 1, 0, 0, 0]),
                (80, &sums),
                (96, &[5, 0, 0, 0, 0, 0, 0, 0]),
                (112, &[1, 0, 0, 0, 4, 0, 0, 0]),
            ],
        );
        assert_eq!(
            (m.energy, m.gfx_activity_sum, m.memory_activity_sum),
            (Some((1 << 32) + 9), Some(1), Some(2))
        );
        assert_eq!((m.firmware_clock, m.throttle, m.cycles), (Some(5), Some(1 | 1 << 34), None));
    }

    #[test]
    fn the_later_ones_have_links_and_clocks_of_several_dies() {
        let places = [
            (4, 288, 24, 56, 88, 104, 240),
            (5, 360, 88, 120, 152, 176, 312),
            (6, 1664, 16, 68, 104, 128, 264),
            (7, 2208, 24, 76, 112, 136, 296),
            (8, 3872, 24, 76, 112, 136, 296),
        ];
        for (revision, size, energy, sums, replays, xgmi, clocks) in places {
            let seven = 7u64.to_le_bytes();
            let put: [(usize, &[u8]); 9] = [
                (4, &[61, 0, 55, 0, 49, 0, 0xaf, 1]),
                (energy, &seven),
                (sums, &[3, 0, 0, 0, 4, 0, 0, 0]),
                (replays, &seven),
                (xgmi, &seven),
                (xgmi + 16, &seven),
                (xgmi + 120, &seven),
                (clocks, &[0x34, 8]),
                (clocks + 4, &[0x78, 5]),
            ];
            let m = parse(size, revision, &put);
            assert_eq!(
                m.temperatures,
                [("junction", 61), ("mem", 55), ("vr_soc", 49)],
                "revision {revision}"
            );
            assert_eq!(
                (m.socket_power, m.energy, m.pcie_replays),
                (Some(431), Some(7), Some(7)),
                "revision {revision}"
            );
            assert_eq!(
                (m.gfx_activity_sum, m.memory_activity_sum),
                (Some(3), Some(4)),
                "revision {revision}"
            );
            assert_eq!((m.xgmi_read, m.xgmi_written), (Some(14), Some(7)), "revision {revision}");
            assert_eq!(m.clocks, [("gfx", 1750)], "revision {revision}: the mean of 2100 and 1400");
        }
    }

    #[test]
    fn partitions_have_sums_of_their_dies() {
        for (revision, size, count, first, len, sums) in
            [(6, 1664, 306, 312, 168, 104), (7, 2208, 338, 344, 232, 104), (8, 3872, 338, 344, 440, 120)]
        {
            let (one, second) = (500u64.to_le_bytes(), first + len + sums);
            let m = parse(size, revision, &[(count, &[3, 0]), (second, &one), (second + 56, &one)]);
            assert_eq!(m.partitions, [None, Some((1000, 2)), None], "revision {revision}");
            let many = parse(size, revision, &[(count, &[9, 0])]);
            assert_eq!(many.partitions, [], "more than there can be");
        }
    }

    /// An attribute: id, unit, bytes of a value, values.
    fn attribute(id: u64, unit: u64, width: u32, values: &[u64]) -> Vec<u8> {
        let kind = u64::from(width.trailing_zeros()) * 2;
        let mut bytes = (unit << 24 | kind << 20 | id << 10 | values.len() as u64).to_le_bytes().to_vec();
        values.iter().for_each(|value| bytes.extend(&value.to_le_bytes()[..width as usize]));
        bytes
    }

    fn listed(attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = attributes.concat();
        let size = u16::try_from(body.len() + 8).unwrap().to_le_bytes();
        let count = u8::try_from(attributes.len()).unwrap();
        [&[size[0], size[1], 1, 9, count, 0, 0, 0][..], &body].concat()
    }

    #[test]
    fn the_ninth_is_a_list_of_attributes() {
        let all = [
            attribute(3, 3, 2, &[612]),
            attribute(7, 0, 8, &[1 << 40]),
            attribute(9, 0, 8, &[(1 << 32) + 5]),
            attribute(20, 10, 4, &[99]),
            attribute(29, 9, 8, &[10, 20, u64::MAX]),
            attribute(33, 1, 2, &[2100, 1400, 0xffff]),
            attribute(500, 0, 1, &[1, 2, 3]),
        ];
        let m = parse_gpu_metrics(&listed(&all)).unwrap().unwrap();
        assert_eq!((m.revision, m.socket_power, m.energy, m.cycles), (9, Some(612), Some(1 << 40), Some(5)));
        assert_eq!((m.gfx_activity_sum, m.xgmi_read, m.xgmi_written), (Some(99), Some(30), None));
        assert_eq!(m.clocks, [("gfx", 1750)]);
        let other = listed(&[attribute(3, 9, 2, &[612]), attribute(20, 10, 8, &[99])]);
        let m = parse_gpu_metrics(&other).unwrap().unwrap();
        assert_eq!(
            (m.socket_power, m.gfx_activity_sum),
            (None, None),
            "power in KiB, and a sum that wraps elsewhere"
        );
        let mut short = listed(&all);
        short[4] += 1;
        assert!(parse_gpu_metrics(&short).is_err(), "an attribute too many");
        short[4] -= 2;
        assert!(parse_gpu_metrics(&short).is_err(), "one too few");
    }

    #[test]
    fn other_forms_are_not_guessed_at() {
        for (format, revision) in [(2, 0), (2, 4), (3, 0), (1, 10), (0, 1)] {
            assert_eq!(
                parse_gpu_metrics(&[8, 0, format, revision, 1, 2, 3, 4]),
                Ok(None),
                "{format}.{revision}"
            );
        }
        assert!(parse_gpu_metrics(&table(121, 3, &[])).is_err(), "another size");
        assert!(parse_gpu_metrics(&table(120, 3, &[])[..119]).is_err(), "torn");
        assert!(parse_gpu_metrics(&[120, 0, 1]).is_err());
        assert!(parse_gpu_metrics(&[]).is_err());
    }
}
