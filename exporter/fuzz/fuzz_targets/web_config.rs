//! The web configuration file: an error names a line that the file has, and no secret of it.

use std::path::Path;

use exporter_toolkit::WebConfig;

pub fn fuzz(bytes: &[u8]) {
    let path = Path::new("/etc/jobledger/web.yml");
    // A carriage return alone ends a line of YAML 1.1, too, and so do three others (yaml.org/spec/1.1, "Line Break Characters").
    let ends = |c: &char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let lines = String::from_utf8_lossy(bytes).chars().filter(ends).count() + 1;
    match WebConfig::parse(bytes, path) {
        Ok(config) => {
            let shown = format!("{config:?}");
            assert!(!shown.contains("$2b$") && !shown.contains("PRIVATE KEY"), "a secret is shown");
            assert!(std::str::from_utf8(bytes).is_ok());
        }
        Err(error) => {
            assert!(error.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{error} of {lines} lines");
            assert!(error.to_string().starts_with("/etc/jobledger/web.yml"), "{error}");
            assert!(!error.reason.is_empty());
        }
    }
}
