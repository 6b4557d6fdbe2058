//! Documents that are made from the program: the committed ones are what it writes. `make docs` rewrites them.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes and fail by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use jobledger::arguments::Arguments;
use jobledger_testkit::golden;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_written(file: &str, words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_jobledger")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}");
    golden::assert_golden(&root().join(file), std::str::from_utf8(&output.stdout).unwrap());
}

#[test]
fn the_committed_documents_are_up_to_date() {
    is_written("docs/cli-flags.md", &["flags"]);
    for (shell, file) in [("bash", "jobledger.bash"), ("zsh", "_jobledger"), ("fish", "jobledger.fish")] {
        is_written(&format!("packaging/completions/{file}"), &["completions", shell]);
    }
}

#[test]
fn every_command_has_its_page_and_no_other() {
    is_written("packaging/man/jobledger.1", &["man"]);
    let mut pages = BTreeSet::from(["jobledger.1".to_owned(), "jobledger-exporter.1".to_owned()]);
    for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let page = format!("jobledger-{}.1", command.get_name());
        is_written(&format!("packaging/man/{page}"), &["man", command.get_name()]);
        pages.insert(page);
    }
    let names = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let there: BTreeSet<String> = root().join("packaging/man").read_dir().unwrap().map(names).collect();
    assert_eq!(there, pages);
}
