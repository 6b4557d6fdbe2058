//! Files of GPUs: amdgpu's tables, DRM descriptors, hwmon values, KFD's properties.

use gpu_devices::amd::{parse_errors, parse_gpu_metrics, parse_header, parse_properties};
use gpu_devices::drm::{link_generation, parse_fdinfo, parse_signed};
use jobledger_exporter_fuzz::prefixes_are_read;

pub fn fuzz(bytes: &[u8]) {
    metrics(bytes);
    // The same as a table of each form, since random headers are seldom one.
    for (revision, size) in [80u16, 96, 104, 120, 288, 360, 1664, 2208, 3872].into_iter().enumerate() {
        let mut table = vec![0xff; usize::from(size)];
        for (to, from) in table.iter_mut().zip(bytes) {
            *to = *from;
        }
        let [low, high] = size.to_le_bytes();
        table[..4].copy_from_slice(&[low, high, 1, u8::try_from(revision).unwrap_or_default()]);
        assert!(
            matches!(parse_gpu_metrics(&table), Ok(Some(_))),
            "a whole table of revision {revision} is read"
        );
        metrics(&table);
    }
    fdinfo(bytes);
    if let Ok(value) = parse_signed(bytes) {
        assert_eq!(parse_signed(format!("{value}\n").as_bytes()), Ok(value));
    }
    assert!(link_generation(bytes).is_none_or(|generation| (1..=6).contains(&generation)));
    prefixes_are_read(bytes, parse_properties);
    if let Ok(p) = parse_properties(bytes) {
        let rows = [
            ("domain", p.domain),
            ("location_id", p.location_id),
            ("drm_render_minor", p.drm_render_minor),
            ("simd_count", p.simd_count),
        ];
        let text: String =
            rows.iter().filter_map(|(key, value)| Some(format!("{key} {}\n", (*value)?))).collect();
        assert_eq!(parse_properties(text.as_bytes()), Ok(p), "what was understood is understood again");
    }
    if let Ok(errors) = parse_errors(bytes) {
        let rows = [("ue", errors.uncorrected), ("ce", errors.corrected), ("de", errors.deferred)];
        let text: String =
            rows.iter().filter_map(|(key, value)| Some(format!("{key}: {}\n", (*value)?))).collect();
        assert_eq!(parse_errors(text.as_bytes()), Ok(errors));
    }
}

/// Nothing beyond the size that the header says matters, and nothing is taken of a table that is shorter.
fn metrics(bytes: &[u8]) {
    let Ok(Some(metrics)) = parse_gpu_metrics(bytes) else { return };
    let Ok((size, format, revision)) = parse_header(bytes) else { panic!("a table without a header") };
    assert_eq!((format, revision), (1, metrics.revision));
    let (table, _) = bytes.split_at(usize::from(size));
    assert_eq!(parse_gpu_metrics(table).as_ref(), Ok(&Some(metrics.clone())));
    assert!(parse_gpu_metrics(&[table, b"more"].concat()) == Ok(Some(metrics.clone())));
    assert!(parse_gpu_metrics(&table[..table.len() - 1]).is_err(), "a torn table");
    assert!(
        metrics.partitions.len() <= 8
            && metrics.partitions.iter().flatten().all(|(_, dies)| (1..=8).contains(dies))
    );
    assert!(
        metrics.socket_power != Some(u16::MAX) && metrics.gfx_activity_sum != Some(u32::MAX),
        "all ones is absent"
    );
}

fn fdinfo(bytes: &[u8]) {
    prefixes_are_read(bytes, parse_fdinfo);
    let Ok(Some(client)) = parse_fdinfo(bytes) else { return };
    let mut text = format!("drm-driver:\t{}\n", client.driver);
    for engine in &client.engines {
        let rows = [
            ("engine-capacity", engine.capacity, ""),
            ("engine", engine.busy_ns, " ns"),
            ("total-cycles", engine.total_cycles, ""),
            ("cycles", engine.cycles, ""),
        ];
        for (key, value, unit) in rows {
            text.extend(value.map(|value| format!("drm-{key}-{}:\t{value}{unit}\n", engine.class)));
        }
    }
    let sizes = client.memory.iter().flat_map(|r| {
        [("total", &r.name, r.total), ("resident", &r.name, r.resident), ("memory", &r.name, r.memory)]
    });
    for (key, name, value) in sizes {
        text.extend(value.map(|value| format!("drm-{key}-{name}:\t{value}\n")));
    }
    let again = parse_fdinfo(text.as_bytes());
    // Names of odd bytes are not written as they were.
    if text.is_ascii() {
        let (again, sum) = (again.ok().flatten(), |c: &gpu_devices::drm::Client| {
            let busy = c.engines.iter().filter_map(|e| e.busy_ns).fold(0, u64::wrapping_add);
            c.memory.iter().filter_map(|r| r.total).fold(busy, u64::wrapping_add)
        });
        assert_eq!(again.as_ref().map(sum), Some(sum(&client)), "{text}");
    }
}
