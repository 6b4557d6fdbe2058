//! Numbers as people read them.

/// `D-HH:MM:SS` as SLURM writes times, rounded to seconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
pub fn time(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let clock = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

/// A time of less than a minute with its fractions, such as `0.4 s`.
pub fn short_time(seconds: f64) -> String {
    if seconds < 59.5 { format!("{} s", digits(seconds)) } else { time(seconds) }
}

/// Binary units: `12.9 GiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Decimal units of anything: `1.39 kW`.
pub fn si(value: f64, unit: &str) -> String {
    format!("{}{unit}", scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"]))
}

/// `49 %`; one digit after the point below ten.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent != 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// A number with three digits that count: `1.97`, `48`, `1240`.
pub fn digits(value: f64) -> String {
    // An empty sum of floats is -0, which nobody wants to read.
    let value = value + 0.0;
    let places = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    if places == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

fn scaled(value: f64, base: f64, prefixes: &[&str]) -> String {
    let (mut value, mut chosen) = (value, "");
    for (prefix, next) in prefixes.iter().zip(prefixes.iter().skip(1).map(Some).chain([None])) {
        chosen = prefix;
        if next.is_none() || value.abs() < base * 0.9995 {
            break;
        }
        value /= base;
    }
    format!("{} {chosen}", digits(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(time(67_316.4), "18:41:56");
        assert_eq!(time(345_600.0), "4-00:00:00");
        assert_eq!(short_time(0.42), "0.42 s");
        assert_eq!(short_time(59.4), "59.4 s");
        assert_eq!(short_time(59.9), "00:01:00");
        assert_eq!(bytes(13_851_000_000.0), "12.9 GiB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1023.9), "1 KiB");
        assert_eq!(si(1390.0, "W"), "1.39 kW");
        assert_eq!(si(610.0, "W"), "610 W");
        assert_eq!(si(2.5e21, "FLOP"), "2500 EFLOP");
        assert_eq!(
            [percent(0.0), percent(0.099), percent(0.49), percent(1.0)],
            ["0 %", "9.9 %", "49 %", "100 %"]
        );
        assert_eq!([digits(-0.0), bytes(-0.0), digits(-0.5)], ["0", "0 B", "-0.5"]);
        assert_eq!(
            [digits(1.97), digits(48.0), digits(1240.4), digits(0.2), digits(99.96)],
            ["1.97", "48", "1240", "0.2", "100"]
        );
    }
}
