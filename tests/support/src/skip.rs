//! Tests that this machine cannot run.

use std::fmt::Display;
use std::path::Path;

/// What tests may want and CI need not have, with the reasons.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../skips.md");

/// Says that a test or a part of one is skipped: `name` is what is missing, `why` is for people. The test has to return.
///
/// # Panics
/// Under CI (the variable `CI` is set) where `tests/skips.md` does not name it.
#[allow(clippy::print_stderr, reason = "a skipped test must be seen")]
pub fn skip(name: &str, why: impl Display) {
    let text = std::fs::read_to_string(Path::new(TABLE)).unwrap_or_else(|e| panic!("{TABLE}: {e}"));
    assert!(std::env::var_os("CI").is_none() || names(&text).any(|n| n == name), "{}", refusal(name, &why));
    eprintln!("SKIPPED {name}: {why}");
}

fn refusal(name: &str, why: &dyn Display) -> String {
    format!("skipped under CI, and tests/skips.md does not name {name}: {why}")
}

/// The first cells of the table's lines: `` | `name` | … ``.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0))
}

/// True, and said, where the caller is not root: such a test has to return.
#[must_use]
pub fn skip_without_root(why: &str) -> bool {
    let able = rustix::process::geteuid().is_root();
    if !able {
        skip("root", why);
    }
    !able
}

/// What this kernel says of its own types (BTF); `None`, and said, where it says nothing: such a test has to return.
#[must_use]
pub fn kernel_types() -> Option<Vec<u8>> {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").ok();
    if types.is_none() {
        skip("btf", "a kernel with CONFIG_DEBUG_INFO_BTF has it");
    }
    types
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_table_is_read() {
        let text = "| Name | Needs |\n|---|---|\n| `psi` | a kernel |\n| `energy` | meters |\nno `line`\n";
        assert_eq!(names(text).collect::<Vec<_>>(), ["psi", "energy"]);
    }

    /// Run by the test below, in processes of its own.
    #[test]
    #[ignore = "the other half of a_skip_is_a_failure_under_ci_unless_it_is_named"]
    fn skips_by_a_name() {
        skip(&std::env::var("SKIP_NAME").unwrap(), "by request");
    }

    #[test]
    fn a_skip_is_a_failure_under_ci_unless_it_is_named() {
        let passes = |name: &str, ci: Option<&str>| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "skip::tests::skips_by_a_name"]).env("SKIP_NAME", name);
            command.env_remove("CI").envs(ci.map(|value| ("CI", value)));
            command.output().unwrap().status.success()
        };
        assert!(passes("psi", Some("true")) && passes("psi", None) && passes("no-such-name", None));
        assert!(!passes("no-such-name", Some("true")));
    }
}
