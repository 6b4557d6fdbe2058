//! Results of known work, as a file of root's has them, and the ticks of CPUs.

use counter_validation::Results;
use counter_validation::idle::{busy, parse_ticks};
use cpu_topology::CpuSet;
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    if let Ok(results) = Results::parse(bytes) {
        let again = Results::parse(results.to_json().as_bytes()).expect("what was read can be written");
        assert_eq!(again.date, results.date);
        assert_eq!(results.hold_for(&results.node), Ok(()));
        let peaks = results.peaks.iter().flat_map(|peaks| &peaks.flops);
        assert!(peaks.map(|peak| peak.per_second).all(|rate| rate > 0.0));
    }
    prefixes_are_read(bytes, parse_ticks);
    if let Ok(ticks) = parse_ticks(bytes) {
        let cpus: CpuSet = ticks.keys().copied().take(64).collect();
        assert_eq!(busy(&ticks, &ticks, &cpus), [], "no time passed");
    }
}
