//! Text of the driver. Row 19.

use super::*;

#[test]
fn text_of_the_driver_becomes_short_printable_labels() {
    let long = "x".repeat(300);
    let mut text = b"gpus 8\ndriver 550\x1b[31m.54\"}\n".to_vec();
    for name in [
        &b"gpu 0 name NVIDIA \x1b[31m\x07\"} 1\\n#\n"[..],
        b"gpu 1 name NVIDIA \xff\xfe H100\n",
        b"gpu 2 name \n",
        b"gpu 4 uuid GPU-\x1b[2J\"{}\n",
        b"gpu 5 uuid GPU-\xff\xfe\n",
        b"gpu 6 uuid GPU-00000000-0000-0000-0000-000000000007\n",
        b"gpu 7 mig 1\ngpu 7 part 0 MIG-\x07a 1 0 1 1 16 9856 NVIDIA MIG \x1b1g\x07\"\n",
    ] {
        text.extend(name);
    }
    text.extend(format!("gpu 3 name {long}\n").as_bytes());
    let gpus = Gpus::new("");
    gpus.fake.set_bytes(&text);
    let exporter = gpus.start(&[]);
    let now = eventually(&exporter, "GPUs", |now| up(now).len() >= 6);
    for sample in now.samples() {
        for (name, value) in &sample.labels {
            assert!(
                value.len() <= 256 && !value.chars().any(char::is_control),
                "{} {name}={value:?}",
                sample.name
            );
        }
        let known = ["jobledger_", "process_"].iter().any(|prefix| sample.name.starts_with(prefix));
        assert!(known, "{}", sample.name);
    }
    let model = |gpu: &str| {
        let info = now.named("jobledger_gpu_info").find(|s| s.label("gpu") == Some(gpu)).unwrap();
        info.label("model").unwrap().to_owned()
    };
    assert_eq!(model("0"), "NVIDIA \u{fffd}[31m\u{fffd}\"} 1\\n#");
    assert_eq!(model("1"), "unknown", "no UTF-8");
    // One whose id is no text, and one with that of another, are no GPUs of their own.
    assert!(!up(&now).contains_key("5"), "{:?}", up(&now));
    let twins = ["6", "7"].iter().filter(|gpu| up(&now).contains_key(**gpu)).count();
    assert_eq!(twins, 1, "{:?}", up(&now));
    assert_eq!(success(&now, "gpu"), Some(0.0), "what could not be exported is reported");
}
