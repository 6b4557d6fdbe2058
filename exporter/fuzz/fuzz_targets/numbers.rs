//! CPU lists, limits, pressure, single numbers: print and parse are each other's reverse.

use cpu_topology::CpuSet;
use kernel_files::parse::{Limit, parse_integer, parse_limit, parse_pressure};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    if let Ok(list) = CpuSet::parse(bytes) {
        assert_eq!(list.is_empty(), list.iter().next().is_none());
        if list.len() < 100_000 {
            let cpus: Vec<u32> = list.iter().collect();
            assert_eq!(cpus.len() as u64, list.len());
            assert!(cpus.is_sorted_by(|a, b| a < b), "sorted, and none twice");
            assert!(cpus.iter().all(|cpu| list.contains(*cpu)));
            let one_by_one = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            assert_eq!(CpuSet::parse(one_by_one.as_bytes()).as_ref(), Ok(&list));
        }
        assert_eq!(CpuSet::parse(list.to_string().as_bytes()), Ok(list));
    }
    match parse_limit(bytes) {
        Ok(Limit::Max) => {}
        Ok(limit @ Limit::Value(value)) => {
            assert_eq!(parse_limit(format!("{value}\n").as_bytes()), Ok(limit));
            assert_eq!(parse_integer(bytes), Ok(value));
        }
        Err(_) => assert!(parse_integer(bytes).is_err(), "a number is a limit"),
    }
    if let Ok(pressure) = parse_pressure(bytes) {
        let mut printed = String::new();
        for (name, line) in [("some", pressure.some), ("full", pressure.full)] {
            if let Some(line) = line {
                printed += &format!("{name} avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", line.total_usec);
            }
        }
        assert_eq!(parse_pressure(printed.as_bytes()), Ok(pressure));
    }
    prefixes_are_read(bytes, parse_pressure);
}
