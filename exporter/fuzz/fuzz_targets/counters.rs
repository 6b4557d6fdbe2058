//! What the kernel answers of counters, and what they add up to.

use perf_counters::tally::{Interval, interval};
use perf_counters::{Event, Group, Precision, Quantity, PlausibilityLimits, Width};
use perf_events::{Attr, Reading, parse_group, parse_unified_perf};

pub fn fuzz(bytes: &[u8]) {
    parse_unified_perf(bytes);
    let events = bytes.first().map_or(0, |first| usize::from(first % 8));
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let (mut last, mut now) = (Reading::default(), Reading::default());
    // With the number of events that it should have, since a random one is seldom it.
    for (bytes, reading) in [(first, &mut last), (second, &mut now)] {
        let mut answer = bytes.to_vec();
        answer.resize((3 + events) * 8, 0);
        if let Some(number) = answer.get_mut(..8) {
            number.copy_from_slice(&(events as u64).to_ne_bytes());
        }
        assert!(parse_group(&answer, events, reading));
        assert_eq!(reading.counts.len(), events);
        assert!(!parse_group(bytes, events + 1, &mut Reading::default()) || bytes.len() == (4 + events) * 8);
    }
    let flops = Quantity::Flops { precision: Precision::Double, width: Width::Bits(512), each: 8 };
    let quantities = [Quantity::Cycles, Quantity::Instructions, flops, Quantity::Branches];
    let event = |quantity: &Quantity| Event { name: "e".into(), quantity: *quantity, attr: Attr::default(), minus: false };
    let group = Group {
        name: "g".into(),
        hardware: true,
        cpus: None,
        events: quantities.iter().cycle().take(events).map(event).collect(),
    };
    let limits = PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: Some(32.0) };
    let mut scaled = Vec::new();
    if let Interval::Counted { enabled, running } = interval(&group, &limits, &last, &now, &mut scaled) {
        assert!(running <= enabled && scaled.len() == events);
        for (index, scaled) in scaled.iter().enumerate() {
            assert!(*scaled >= now.counts[index] - last.counts[index], "never less than was counted");
        }
    }
}
