//! Documents that are made from the program: the committed ones are what it writes. `make docs` rewrites them.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes and fail by panicking"
)]

use std::path::Path;
use std::process::Command;

use jobledger_testkit::golden;

#[test]
fn the_committed_documents_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (document, file) in [
        ("flags", "docs/flags.md"),
        ("metrics", "docs/metrics.md"),
        ("man", "packaging/man/jobledger-exporter.1"),
        ("bash", "packaging/completions/jobledger-exporter.bash"),
        ("zsh", "packaging/completions/_jobledger-exporter"),
        ("fish", "packaging/completions/jobledger-exporter.fish"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_jobledger-exporter"))
            .args(["generate", document])
            .output()
            .unwrap();
        assert!(output.status.success(), "{document}");
        golden::assert_golden(&root.join(file), std::str::from_utf8(&output.stdout).unwrap());
    }
}
