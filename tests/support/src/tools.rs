//! The helper programs of this crate (`fake-slurmstepd`, `burn`) for tests of any crate.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Path of a helper program.
///
/// cargo builds the programs of a dependency for nobody, so the first call does, into the target directory that the test
/// runs from. It costs a fraction of a second when they are there.
///
/// # Panics
/// If they cannot be built.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(build).join(name)
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test program");
    // target/PROFILE/deps/TEST
    let dir = test.ancestors().nth(2).expect("a test program lies in deps/").to_path_buf();
    let profile = dir.file_name().and_then(|n| n.to_str()).unwrap_or("debug");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "jobledger-testkit", "--bins", "--profile"]);
    command.arg(if profile == "debug" { "dev" } else { profile });
    command.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if let Some(target) = dir.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.status().expect("cargo");
    assert!(status.success(), "the helper programs do not build");
    dir
}
