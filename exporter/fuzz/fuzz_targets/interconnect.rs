//! Files of InfiniBand and Slingshot devices.

use jobledger_exporter::collector::devices::infiniband::port::{parse_counter, parse_rate, parse_state};
use jobledger_exporter::collector::devices::slingshot::parse_telemetry;
use slurm_jobs::process::parse_cgroups;

/// The digits that a text begins with, read in the plainest way there is.
fn leading(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(bytes.get(..digits)?).ok()?.parse().ok()
}

pub fn fuzz(bytes: &[u8]) {
    let text = bytes.trim_ascii();
    match parse_counter(bytes) {
        Ok(Some(value)) => {
            assert_eq!(leading(text), Some(value));
            assert_eq!(parse_counter(format!("{value}\n").as_bytes()), Ok(Some(value)));
        }
        Ok(None) => assert!(bytes.starts_with(b"N/A")),
        Err(_) => assert!(text.is_empty() || leading(text).is_none() || text.iter().any(|b| !b.is_ascii_digit())),
    }
    if let Ok(state) = parse_state(bytes) {
        assert_eq!(leading(bytes), Some(state));
        assert_eq!(parse_state(format!("{state}: ACTIVE\n").as_bytes()), Ok(state));
    }
    if let Ok(rate) = parse_rate(bytes) {
        assert_eq!(rate % 62_500_000, 0, "a multiple of half a gigabit per second");
        let (whole, half) = (rate / 125_000_000, if rate % 125_000_000 > 0 { ".5" } else { "" });
        assert_eq!(leading(text), Some(whole));
        assert_eq!(parse_rate(format!("{whole}{half} Gb/sec (4X HDR)\n").as_bytes()), Ok(rate));
    }
    if let Ok(value) = parse_telemetry(bytes) {
        assert_eq!(leading(text), Some(value));
        assert_eq!(parse_telemetry(format!("{value}@1.000000001\n").as_bytes()), Ok(value));
    }
    let mut lines = Vec::new();
    if parse_cgroups(bytes, |controllers, path| lines.push((controllers, path))).is_ok() {
        // What was understood is understood again, and is in the text.
        let again: String = lines.iter().map(|(controllers, path)| format!("0:{controllers}:{path}\n")).collect();
        let mut twice = Vec::new();
        assert!(parse_cgroups(again.as_bytes(), |controllers, path| twice.push((controllers, path))).is_ok());
        assert_eq!(lines, twice);
        assert!(lines.len() <= bytes.iter().filter(|byte| **byte == b'\n').count());
    }
}
