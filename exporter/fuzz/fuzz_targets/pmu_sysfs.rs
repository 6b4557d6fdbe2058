//! How sysfs describes a PMU's events, and what comes of it when one is encoded.

use perf_events::Attr;
use perf_counters::pmu::{Pmu, parse_field, parse_terms};

pub fn fuzz(bytes: &[u8]) {
    let (value, text) = bytes.split_at_checked(8).unwrap_or_default();
    let value = u64::from_le_bytes(value.try_into().unwrap_or_default());
    if parse_field(text).is_ok() {
        let bits = std::str::from_utf8(text).expect("what is read is text");
        let pmu = Pmu::described("cpu", 4, &[("field", bits)]);
        assert!(pmu.field("field").is_some());
        assert_eq!(pmu.encode([("field", 0)]), Some(Attr::new(4, 0)), "nothing sets no bit");
        if let Some(attr) = pmu.encode([("field", value)]) {
            let words = [attr.config, attr.config1, attr.config2];
            assert!(words.iter().filter(|word| **word != 0).count() <= 1, "one field is in one word");
            assert_eq!(value == 0, words == [0; 3]);
        }
        assert_eq!(pmu.encode([("other", 0)]), None);
    }
    if let Ok(terms) = parse_terms(bytes) {
        assert!(!terms.is_empty());
        for term in &terms {
            let again = format!("{}={:#x}", term.field, term.value);
            assert_eq!(parse_terms(again.as_bytes()).as_deref(), Ok(std::slice::from_ref(term)));
        }
    }
}
