//! The helper programs of this crate (`fake-slurmstepd`, `burn`) for tests of any crate.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
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
    for_everybody(&DIR.get_or_init(build).join(name))
}

/// Copies a program, for every user to start.
///
/// A process of its own does it: while a file is open for writing here, a fork on another thread inherits the
/// descriptor, and to start the program fails with ETXTBSY (execve(2)).
///
/// # Panics
/// If it cannot be copied.
pub fn install(program: &Path, copy: &Path) {
    let installed = Command::new("install").args(["-m", "755"]).args([program, copy]).status();
    assert!(installed.expect("install, of coreutils").success(), "no copy at {}", copy.display());
}

/// A program at a place where every user can start it: itself, or a copy where other users cannot enter a directory above it (a checkout
/// in root's home).
///
/// # Panics
/// If it cannot be copied.
#[must_use]
pub fn for_everybody(program: &Path) -> PathBuf {
    let enters = |dir: &Path| fs::metadata(dir).is_ok_and(|dir| dir.mode() & 0o001 != 0);
    if program.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()).all(enters) {
        return program.to_path_buf();
    }
    let read = |path: &Path| fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (of, within) = (read(program), read(program.parent().expect("a program's directory")));
    let name = program.file_name().expect("a program's name");
    let user = rustix::process::geteuid().as_raw();
    let shelf = std::env::temp_dir().join(format!("jobledger-programs-{user}"));
    let open = |dir: &Path| {
        let _ = DirBuilder::new().mode(0o755).create(dir);
        assert_eq!(read(dir).uid(), user, "{} is another user's", dir.display());
    };
    open(&shelf);
    // Of each program one version. The copy has its name, by which processes are known.
    let kind = format!("{}-{}-", name.to_string_lossy(), within.ino());
    let version = format!("{kind}{}-{}.{}", of.ino(), of.mtime(), of.mtime_nsec());
    let copy = shelf.join(&version).join(name);
    if !copy.exists() {
        for old in fs::read_dir(&shelf).into_iter().flatten().flatten() {
            let old_name = old.file_name();
            if old_name.to_string_lossy().starts_with(&kind) && *old_name != *version {
                let _ = fs::remove_dir_all(old.path());
            }
        }
        open(&shelf.join(&version));
        let partial =
            copy.with_extension(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
        install(program, &partial);
        fs::rename(&partial, &copy).expect("its name");
    }
    copy
}

/// The directory that `JOBLEDGER_TEST_TOOLS` names, for machines without cargo, or where cargo builds them.
fn build() -> PathBuf {
    if let Some(there) = std::env::var_os("JOBLEDGER_TEST_TOOLS") {
        return there.into();
    }
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_lies_in_a_closed_directory_is_copied_once_and_anew_when_it_changed() {
        let dir = std::env::temp_dir().join(format!("jobledger-closed-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let program = dir.join("closed-program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let copy = for_everybody(&program);
        assert_ne!(copy, program);
        assert_eq!(
            (for_everybody(&program), fs::metadata(&copy).unwrap().mode() & 0o777),
            (copy.clone(), 0o755)
        );
        fs::remove_file(&program).unwrap();
        fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        let other = for_everybody(&program);
        assert_eq!((fs::read(&other).unwrap(), copy.exists()), (fs::read(&program).unwrap(), copy == other));
        fs::remove_dir_all(other.parent().unwrap()).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(for_everybody(&program), program);
        fs::remove_dir_all(&dir).unwrap();
    }
}
