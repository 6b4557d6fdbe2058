//! One port: its files, what they hold, and which of them its numbers come from.

use std::time::Duration;

use exposition::Family;
use kernel_files::parse::{ParseError, integer, parse_integer};
use kernel_files::{Buffer, Dir, ReadError};
use readings::Range;

use super::{MULTICAST, RECEIVED, RECEIVED_PACKETS, TRANSMITTED, TRANSMITTED_PACKETS, UNICAST, WAIT};
use crate::collector::node_counters::NodeCounter;
use crate::collector::{SourceError, Tally};

/// What the file of a charged counter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Units of data of the port's performance management: 4 bytes, on Omni-Path 8.
    Data(Width),
    /// A number.
    Plain(Width),
    /// The same of the driver's `hw_counters`: 64 bits, and as old as their `lifespan`.
    Driver,
}

/// How many bits it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// 64.
    Long,
    /// 64 where the port has extended counters, else 32.
    Either,
    /// 32, also on ports that have extended counters.
    Short,
}

/// A file below the port's directory, and what it holds.
pub(super) type Candidate = (&'static str, Form);

/// Where the charged counters come from: the first file that exists and holds a number. `counters_ext` comes with the
/// drivers of EL6 and EL7 and beside 32-bit files. bnxt_re, efa and others answer no performance management and have
/// bytes and packets among their `hw_counters`, rxe packets alone.
pub(super) static SOURCES: [(&NodeCounter, &[Candidate]); 5] = [
    (
        &RECEIVED,
        &[
            ("counters_ext/port_rcv_data_64", Form::Data(Width::Long)),
            ("counters/port_rcv_data", Form::Data(Width::Either)),
            ("hw_counters/rx_bytes", Form::Driver),
        ],
    ),
    (
        &TRANSMITTED,
        &[
            ("counters_ext/port_xmit_data_64", Form::Data(Width::Long)),
            ("counters/port_xmit_data", Form::Data(Width::Either)),
            ("hw_counters/tx_bytes", Form::Driver),
        ],
    ),
    (
        &RECEIVED_PACKETS,
        &[
            ("counters_ext/port_rcv_packets_64", Form::Plain(Width::Long)),
            ("counters/port_rcv_packets", Form::Plain(Width::Either)),
            ("hw_counters/rx_pkts", Form::Driver),
            ("hw_counters/rcvd_pkts", Form::Driver),
        ],
    ),
    (
        &TRANSMITTED_PACKETS,
        &[
            ("counters_ext/port_xmit_packets_64", Form::Plain(Width::Long)),
            ("counters/port_xmit_packets", Form::Plain(Width::Either)),
            ("hw_counters/tx_pkts", Form::Driver),
            ("hw_counters/sent_pkts", Form::Driver),
        ],
    ),
    (&WAIT, &[("counters/port_xmit_wait", Form::Plain(Width::Short))]),
];

/// Packets by how many they are for: family, direction, files of which the first that is there counts.
pub(super) static CASTS: [(&Family, &str, [&str; 2]); 4] = [
    (&UNICAST, "received", ["counters/unicast_rcv_packets", "counters_ext/port_unicast_rcv_packets"]),
    (&UNICAST, "transmitted", ["counters/unicast_xmit_packets", "counters_ext/port_unicast_xmit_packets"]),
    (&MULTICAST, "received", ["counters/multicast_rcv_packets", "counters_ext/port_multicast_rcv_packets"]),
    (
        &MULTICAST,
        "transmitted",
        ["counters/multicast_xmit_packets", "counters_ext/port_multicast_xmit_packets"],
    ),
];

/// Errors: type (none: discarded packets), bits (drivers/infiniband/core/sysfs.c), file. They saturate at their last
/// value.
pub(super) static ERRORS: &[(&str, u32, &str)] = &[
    ("", 16, "counters/port_xmit_discards"),
    ("symbol", 16, "counters/symbol_error"),
    ("link_error_recovery", 8, "counters/link_error_recovery"),
    ("link_downed", 8, "counters/link_downed"),
    ("receive", 16, "counters/port_rcv_errors"),
    ("receive_remote_physical", 16, "counters/port_rcv_remote_physical_errors"),
    ("receive_switch_relay", 16, "counters/port_rcv_switch_relay_errors"),
    ("receive_constraint", 8, "counters/port_rcv_constraint_errors"),
    ("transmit_constraint", 8, "counters/port_xmit_constraint_errors"),
    ("local_link_integrity", 4, "counters/local_link_integrity_errors"),
    ("excessive_buffer_overrun", 4, "counters/excessive_buffer_overrun_errors"),
    ("vl15_dropped", 16, "counters/VL15_dropped"),
];

/// The `hw_counters` that are exported. Others are traffic by kind, go up and down, or are internal to the driver. A
/// list keeps the series few and every one of them a counter.
pub(super) static EVENTS: &[&str] = &[
    // mlx5: congestion of RoCE, retransmissions, errors.
    "hw_counters/np_cnp_sent",
    "hw_counters/np_ecn_marked_roce_packets",
    "hw_counters/rp_cnp_handled",
    "hw_counters/rp_cnp_ignored",
    "hw_counters/roce_adp_retrans",
    "hw_counters/roce_adp_retrans_to",
    "hw_counters/roce_slow_restart",
    "hw_counters/roce_slow_restart_cnps",
    "hw_counters/roce_slow_restart_trans",
    "hw_counters/out_of_buffer",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/implied_nak_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/rx_icrc_encapsulated",
    "hw_counters/req_cqe_error",
    "hw_counters/resp_cqe_error",
    // mlx5 and rxe.
    "hw_counters/duplicate_request",
    // bnxt_re.
    "hw_counters/tx_cnp_pkts",
    "hw_counters/rx_cnp_pkts",
    "hw_counters/rx_ecn_marked_pkts",
    "hw_counters/to_retransmits",
    "hw_counters/seq_err_naks_rcvd",
    "hw_counters/rnr_naks_rcvd",
    "hw_counters/max_retry_exceeded",
    "hw_counters/oos_drop_count",
    "hw_counters/rx_roce_errors",
    "hw_counters/rx_roce_discards",
    "hw_counters/rx_out_of_buffer",
    // rxe.
    "hw_counters/out_of_seq_request",
    "hw_counters/rcvd_seq_err",
    "hw_counters/rcvd_rnr_err",
    "hw_counters/send_rnr_err",
    "hw_counters/retry_rnr_exceeded_err",
    "hw_counters/retry_exceeded_err",
    "hw_counters/completer_retry_err",
    "hw_counters/send_err",
];

/// Parses a counter. `None` is a port that answers no performance management (`N/A (no PMA)`, kernels before 5.14).
pub fn parse_counter(bytes: &[u8]) -> Result<Option<u64>, ParseError> {
    match bytes.starts_with(b"N/A") {
        true => Ok(None),
        false => parse_integer(bytes).map(Some),
    }
}

/// Parses `state` and `phys_state`: `4: ACTIVE`.
pub fn parse_state(bytes: &[u8]) -> Result<u64, ParseError> {
    let number = bytes.split(|byte| *byte == b':').next().and_then(integer);
    number.ok_or(ParseError::new(1, "not 'number: name'"))
}

/// Parses `rate`, `100 Gb/sec (4X EDR)` or `2.5 Gb/sec (1X SDR)`, as bytes per second.
pub fn parse_rate(bytes: &[u8]) -> Result<u64, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not 'number Gb/sec'" };
    const HALF: u64 = 500_000_000 / 8;
    let mut words = bytes.trim_ascii().splitn(3, |byte| *byte == b' ');
    let (number, unit) = (words.next().ok_or(BAD)?, words.next());
    let (whole, half) = match number.strip_suffix(b".5") {
        Some(whole) => (whole, 1),
        None => (number, 0),
    };
    let halves = integer(whole).and_then(|whole| whole.checked_mul(2)?.checked_add(half));
    halves.filter(|_| unit == Some(b"Gb/sec")).and_then(|halves| halves.checked_mul(HALF)).ok_or(BAD)
}

/// How the link is.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: Option<u64>,
    pub(super) physical_state: Option<u64>,
    /// Bytes per second.
    pub(super) speed: Option<u64>,
}

/// One port, and what was found about it when it appeared.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: String,
    /// Inode of its directory: a port that comes back is another one.
    pub(super) identity: u64,
    pub(super) link_layer: String,
    /// Held open, so that a port that goes answers with "gone" and not with another one's numbers.
    pub(super) dir: Dir,
    /// Files below it that have been there.
    pub(super) files: Vec<String>,
    /// The source of each charged counter, and how many of the family's units one of the file's is.
    pub(super) sources: Vec<(&'static NodeCounter, &'static str, Form, u64)>,
    pub(super) casts: Vec<(&'static Family, &'static str, &'static str)>,
    /// Whether data and packets have 64 bits.
    pub(super) extended: bool,
}

/// What a counter that jobs are charged with says.
#[derive(Debug)]
pub(super) struct Charged {
    pub(super) counter: &'static NodeCounter,
    pub(super) amount: u64,
    pub(super) range: Range,
    /// How old it may be.
    pub(super) age: Duration,
}

/// Reads and parses a file; `None` when it does not exist or has no value.
pub(super) fn read<T>(
    dir: &Dir,
    file: &'static str,
    parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    buffer: &mut Buffer,
) -> Result<Option<T>, SourceError> {
    match dir.read_record(file, buffer) {
        Ok(bytes) => parse(bytes).map(Some).map_err(SourceError::parsing(file)),
        Err(ReadError::Gone | ReadError::Unsupported) => Ok(None),
        Err(error) => Err(SourceError::reading(file, "")(error)),
    }
}

impl Port {
    pub(super) fn has(&self, file: &str) -> bool {
        self.files.iter().any(|there| there == file)
    }

    /// Reads a file that every port has.
    pub(super) fn parsed<T>(
        &self,
        file: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
        tally: &mut Tally,
        buffer: &mut Buffer,
    ) -> Option<T> {
        tally.note(read(&self.dir, file, parse, buffer)).flatten()
    }

    pub(super) fn state(&self, file: &'static str, tally: &mut Tally, buffer: &mut Buffer) -> Option<u64> {
        self.parsed(file, parse_state, tally, buffer)
    }

    /// Reads a counter that some ports have.
    pub(super) fn counter(&self, file: &'static str, tally: &mut Tally, buffer: &mut Buffer) -> Option<u64> {
        if !self.has(file) {
            return None;
        }
        self.parsed(file, parse_counter, tally, buffer).flatten()
    }

    /// Reads a counter of few bits. A saturated one has no value until it is reset.
    pub(super) fn short_counter(
        &self,
        file: &'static str,
        bits: u32,
        tally: &mut Tally,
        buffer: &mut Buffer,
    ) -> Option<u64> {
        let value = self.counter(file, tally, buffer)?;
        if value == (1 << bits) - 1 {
            let needs = format!("a reset of {file}, which is at its end");
            tally.note::<()>(Err(SourceError::Unsupported { needs }));
            return None;
        }
        Some(value)
    }

    /// Reads the counters that jobs are charged with.
    pub(super) fn charged(&self, tally: &mut Tally, buffer: &mut Buffer) -> Vec<Charged> {
        let late = self.sources.iter().any(|(_, _, form, _)| *form == Form::Driver);
        let age = if late { self.age(tally, buffer) } else { Duration::ZERO };
        let mut charged = Vec::with_capacity(self.sources.len());
        for (counter, file, form, unit) in &self.sources {
            let Some(raw) = self.counter(file, tally, buffer) else { continue };
            let Some(amount) = raw.checked_mul(*unit) else {
                let error = ParseError::new(1, "too large a number");
                tally.note::<()>(Err(SourceError::Malformed { file, error }));
                continue;
            };
            let last = u64::from(u32::MAX);
            let range = match form {
                // Whether a port has 64 bits without the counters of the IETF cannot be seen, until it counts so far.
                Form::Data(width) | Form::Plain(width) if self.short(*width) && raw <= last => {
                    Range::Saturates { at: last * unit }
                }
                _ => Range::Full,
            };
            let age = if *form == Form::Driver { age } else { Duration::ZERO };
            charged.push(Charged { counter, amount, range, age });
        }
        charged
    }

    fn short(&self, width: Width) -> bool {
        match width {
            Width::Long => false,
            Width::Either => !self.extended,
            Width::Short => true,
        }
    }

    /// How old what `hw_counters` say may be: the kernel renews them when they are asked for and older than this.
    fn age(&self, tally: &mut Tally, buffer: &mut Buffer) -> Duration {
        // 10 s is the longest that it allows (drivers/infiniband/core/sysfs.c).
        const LONGEST: u64 = 10_000;
        let lifespan = self.parsed("hw_counters/lifespan", parse_integer, tally, buffer);
        Duration::from_millis(lifespan.unwrap_or(LONGEST).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_states_and_rates_as_the_kernel_writes_them() {
        assert_eq!(parse_counter(b"18446744073709551615\n"), Ok(Some(u64::MAX)));
        assert_eq!(parse_counter(b"N/A (no PMA)\n"), Ok(None));
        assert_eq!(parse_state(b"4: ACTIVE\n"), Ok(4));
        assert_eq!(parse_state(b"0: NOP\n"), Ok(0));
        assert_eq!(parse_state(b"4: PortConfigurationTraining\n"), Ok(4));
        for (rate, gigabits) in [
            (&b"2.5 Gb/sec (1X SDR)\n"[..], 2.5),
            (b"10 Gb/sec (4X SDR)\n", 10.0),
            (b"100 Gb/sec (4X EDR)\n", 100.0),
            (b"400 Gb/sec (4X NDR)\n", 400.0),
            (b"1600 Gb/sec (8X XDR)\n", 1600.0),
            (b"0 Gb/sec\n", 0.0),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let bytes = parse_rate(rate).unwrap() as f64;
            assert!((bytes - gigabits * 1e9 / 8.0).abs() < 0.5, "{bytes}");
        }
    }

    #[test]
    fn malformed_ones_are_errors() {
        for bad in [&b""[..], b"\n", b"-1\n", b"1 2\n", b"0x10\n", b"n/a\n"] {
            assert!(parse_counter(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        for bad in [&b""[..], b"ACTIVE\n", b": ACTIVE\n", b"-1: DOWN\n"] {
            assert!(parse_state(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        for bad in [
            &b""[..],
            b"100\n",
            b"100 Gb\n",
            b"1.25 Gb/sec (1X)\n",
            b"fast Gb/sec\n",
            b"18446744073709551615 Gb/sec\n",
        ] {
            assert!(parse_rate(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
