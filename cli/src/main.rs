//! Parses the command line, and ends with the status that scripts ask for.

use std::process::ExitCode;

use clap::Parser;
use jobledger::arguments::Arguments;
use jobledger::commands::{self, Environment};

#[allow(clippy::print_stderr, reason = "why it failed")]
fn main() -> ExitCode {
    // clap ends the program with 2 where the command line is wrong.
    let arguments = Arguments::parse();
    match commands::run(arguments, &Environment::of_this_process()) {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("jobledger: {failure}");
            ExitCode::from(failure.kind as u8)
        }
    }
}
