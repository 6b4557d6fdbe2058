//! Unpacks every fixture machine below a directory: `unpack-machines DIR`.
#![allow(clippy::expect_used, reason = "a tool of the tests")]

use std::path::Path;

use jobledger_testkit::machine::{Machine, fixture_names, fixtures_dir};

fn main() {
    let dir = std::env::args_os().nth(1).expect("usage: unpack-machines DIR");
    for name in fixture_names() {
        let archive = fixtures_dir().join(&name).join("machine.txt");
        let _ = Machine::unpack(&archive, &Path::new(&dir).join(name));
    }
}
