//! The device nodes of parts of NVIDIA's GPUs, and the table of peaks.

use gpu_devices::nvml::{parse_capability, parse_character_major, parse_mig_minors};
use gpu_devices::peaks::parse_peaks;
use gpu_devices::{Quantity, Vendor};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    prefixes_are_read(bytes, parse_mig_minors);
    if let Ok(minors) = parse_mig_minors(bytes) {
        for found in &minors {
            let part = found.compute_instance.map_or(String::new(), |_| "/ci".to_owned());
            assert!(text.contains("/gi") && text.contains(&part) && text.contains("/access"), "{found:?}");
        }
        assert!(minors.len() <= text.lines().count());
    }
    if let Some(minor) = parse_capability(bytes) {
        let plain = text.lines().rev().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim_ascii() == "DeviceFileMinor"));
        assert_eq!(plain.and_then(|(_, value)| value.trim_ascii().parse().ok()), Some(minor));
    }
    if parse_character_major(bytes, "nvidia-caps").is_some() {
        assert!(text.contains("Character devices:") && text.contains("nvidia-caps"));
    }
    if let Ok(peaks) = parse_peaks(bytes) {
        for capability in ["7.0", "9.0", text.get(..3).unwrap_or_default()] {
            if let Some(peak) = peaks.find(capability, Vendor::Nvidia.as_str()) {
                assert!(text.contains(capability));
                let multiprocessors = peak.multiprocessors(16896);
                assert!(multiprocessors.is_none_or(|n| n > 0 && 16896 % n == 0));
                assert_eq!(peak.of(Quantity::BUSY), None);
            }
        }
    }
}
