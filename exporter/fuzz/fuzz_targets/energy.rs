//! What energy meters say of themselves: factors, events, names, labels, and Cray's counters.

use energy_meters::{Domain, OemInfo, Range, hsmp_energy_unit, parse_amd_energy_label, parse_hwmon_sensor, parse_oem_info, parse_pm_counter, parse_pm_counter_name, parse_power_event, parse_powercap_directory, parse_powercap_zone_name, parse_scale};
use readings::{Integral, LARGEST_POWER};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let word = |at: usize| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes.iter().skip(at)).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    };
    let (low, high) = (word(0).min(word(8)), word(0).max(word(8)));

    let unit = hsmp_energy_unit(u32::try_from(low & 0xffff).unwrap_or(0)).expect("five bits are a unit");
    if let Ok(scale) = parse_scale(bytes) {
        let plain: f64 = text.trim_ascii().parse().expect("what is read is a number");
        assert!(plain > 0.0);
        if let Some(uj) = scale.microjoules(1 << 32) {
            let expected = plain * 1e6 * 4_294_967_296.0;
            assert!((uj as f64 - expected).abs() <= 1.0 + expected * 1e-12, "{uj} {expected}");
        }
        assert!(scale.microjoules(low) <= scale.microjoules(high) || scale.microjoules(high).is_none());
    }
    if let (Some(a), Some(b)) = (unit.microjoules(low), unit.microjoules(high)) {
        let gain = Range::Full.gain(a, b).expect("the count grew");
        let apart = unit.microjoules(high - low).expect("less than the higher one");
        assert!(gain.abs_diff(apart) <= 1, "differences are exact to the microjoule");
    }
    for range in [Range::Full, Range::Wraps { at: high.max(1) }] {
        assert_eq!(range.gain(low, high), Some(high - low));
    }
    if let Some(gain) = (Range::Wraps { at: high.max(1) }).gain(high, low) {
        assert!(gain <= high.max(low));
    }

    if let Ok(event) = parse_power_event(bytes) {
        assert!(event < 256 && bytes.trim_ascii().starts_with(b"event="));
    }
    if let Ok(uj) = parse_pm_counter(bytes) {
        assert!(uj % 1_000_000 == 0 && text.contains('J'));
    }
    prefixes_are_read(bytes, |bytes| if bytes.is_empty() { Ok(0) } else { parse_pm_counter(bytes) });
    if let Some((domain, socket)) = parse_pm_counter_name(&text) {
        assert!(text.ends_with("energy") && (socket.is_none() || domain == Domain::Package));
    }
    if let Some(directory) = parse_powercap_directory(&text) {
        assert!(text.starts_with("intel-rapl") && text.contains(&directory.zone.to_string()));
    }
    if let Some((domain, socket, die)) = parse_powercap_zone_name(bytes) {
        assert_eq!(socket.is_some(), domain == Domain::Package);
        assert!(die.is_none() || socket.is_some());
    }
    if let OemInfo::Socket(_, socket) = parse_oem_info(bytes) {
        assert!(text.contains(" Power Socket ") && text.contains(&socket.to_string()));
    }
    if let Some(socket) = parse_amd_energy_label(bytes) {
        assert!(text.contains(&socket.to_string()));
    }
    if let Some((kind, number, attribute)) = parse_hwmon_sensor(&text) {
        assert!(text.starts_with(kind) && text.ends_with(attribute) && text.contains(&number.to_string()));
    }

    let mut integral = Integral::default();
    let (mut now, mut before) = (std::time::Instant::now(), 0);
    for step in bytes.chunks(2) {
        let [seconds, power] = [step.first(), step.get(1)].map(|b| u64::from(b.copied().unwrap_or(0)));
        now += std::time::Duration::from_secs(seconds);
        let energy = integral.add(now, LARGEST_POWER / 255 * power);
        assert!(energy >= before && energy - before <= LARGEST_POWER * seconds, "never less, never more than at full power");
        before = energy;
    }
}
