//! What resctrl's files say, what the exporter and the helper that changes groups say to each other, and the remainder of a whole whose parts come and go.

use readings::{Remainder, Round};
use perf_counters::resctrl::{Unread, parse_assign_mode, parse_assignments, parse_counters, parse_domain, parse_event_filter, parse_features, parse_millionths, parse_package, parse_task_groups, parse_value};
use perf_counters::resctrl::helper::protocol::{Answer, LONGEST, Order};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let word = |why: Unread| match why {
        Unread::Unavailable => Some("Unavailable"),
        Unread::Unassigned => Some("Unassigned"),
        Unread::Error => Some("Error"),
        Unread::Failed => None,
    };
    match parse_value(bytes) {
        Ok(number) => assert_eq!(text.trim_ascii().parse(), Ok(number)),
        Err(why) => assert!(word(why).is_none_or(|word| text.trim_ascii() == word)),
    }
    match parse_millionths(bytes) {
        Ok(millionths) => {
            let number: f64 = text.trim_ascii().parse().unwrap();
            // A float has 53 bits.
            assert!((number * 1e6 - millionths as f64).abs() <= 1.0 + number * 1e6 / 1e15);
            if let Ok(whole) = parse_value(bytes) {
                assert_eq!(Some(millionths), whole.checked_mul(1_000_000));
            }
        }
        Err(why) => assert!(word(why).is_none_or(|word| text.trim_ascii() == word)),
    }
    if let Some(domain) = parse_domain(&text) {
        assert_eq!(text.strip_prefix("mon_L3_").and_then(|number| number.parse().ok()), Some(domain));
        assert_eq!(parse_package(&text), None, "a directory is of one resource");
    }
    if let Some(package) = parse_package(&text) {
        assert_eq!(text.strip_prefix("mon_PERF_PKG_").and_then(|number| number.parse().ok()), Some(package));
    }
    if let Ok(features) = parse_features(bytes) {
        let has = |name: &str| text.split('\n').any(|line| line == name);
        assert_eq!(features.occupancy, has("llc_occupancy"));
        assert_eq!(features.total, has("mbm_total_bytes"));
        assert_eq!(features.local, has("mbm_local_bytes"));
    }
    prefixes_are_read(bytes, parse_features);
    if let Some(mode) = parse_assign_mode(bytes) {
        assert!(text.contains(&format!("[{mode}]")));
    }
    if let Ok(counters) = parse_counters(bytes) {
        assert!(!counters.is_empty() && counters.len() <= text.split(';').count());
    }
    if let Ok(assignments) = parse_assignments(bytes) {
        assert!(assignments.is_empty() || text.contains("mbm_total_bytes:"));
        let assigned = assignments.values().filter(|assigned| **assigned).count();
        assert!(assigned <= text.matches("=e").count() && assignments.len() - assigned <= text.matches("=_").count());
    }
    prefixes_are_read(bytes, parse_assignments);
    if let Some(kinds) = parse_event_filter(bytes) {
        // They become a label.
        assert!(kinds.is_sorted() && kinds.iter().all(|kind| text.contains(kind) && !kind.contains(['"', '\n', ','])));
    }
    if let Ok(Some(groups)) = parse_task_groups(bytes) {
        // Names that become parts of paths.
        for name in [groups.control, groups.monitor] {
            assert!(!name.contains('/') && name != ".." && !name.contains('\n') && text.contains(name));
        }
    }

    // Either end may have been taken over.
    if let Ok(order) = Order::parse(bytes) {
        assert_eq!(order.write().as_deref(), Some(bytes), "one message, one meaning");
        let (above, name) = order.group.rsplit_once('/').unwrap();
        assert!(name.starts_with("jobledger_job_") && !name.contains('\0') && bytes.len() <= LONGEST);
        assert!(above == "mon_groups" || above.strip_suffix("/mon_groups").is_some_and(|control| {
            !control.contains('/') && !["", ".", "..", "info", "mon_groups", "mon_data"].contains(&control)
        }));
    }
    if let Ok(answer) = Answer::parse(bytes) {
        assert_eq!(answer.write(), bytes);
    }

    // Parts and the whole grow, parts come and go: never more than the unattributed amount.
    let (mut remainder, mut own, mut parts, mut remainders) = (Remainder::default(), 0_u64, vec![0_u64], 0_u64);
    let mut history = None;
    for step in bytes.chunks(4) {
        let [grown, late, part, change] = [0, 1, 2, 3].map(|at| step.get(at).copied().map_or(0, u64::from));
        own += grown;
        match change % 8 {
            0 => parts.push(0),
            1 => drop(parts.pop()),
            _ => {}
        }
        let before = own + parts.iter().sum::<u64>();
        parts.iter_mut().for_each(|bytes| *bytes += part);
        let read = parts.iter().sum();
        parts.iter_mut().for_each(|bytes| *bytes += late);
        let after = own + parts.iter().sum::<u64>();
        remainders += remainder.observe(Round { before, parts: read, after }).expect("it never went back");
        let since = *history.get_or_insert(own);
        assert!(remainders <= own - since);
    }
}
