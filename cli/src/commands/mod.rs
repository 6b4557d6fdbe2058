//! What the program does.

mod array;
mod check;
mod compare;
mod digest;
mod export;
mod idle_gpus;
mod list;
mod mail;
mod report;
mod surroundings;
mod top;
mod waste;

use std::future::Future;
use std::pin::Pin;

use crate::arguments::{Arguments, Command};
use crate::{Failure, documents, output};

pub use surroundings::{Environment, Surroundings};

/// Does what the command line says.
pub fn run(arguments: Arguments, environment: &Environment) -> Result<(), Failure> {
    match arguments.command {
        Command::Completions { shell } => output::write(None, &documents::completions(shell)),
        Command::Man { command } => output::write(None, &documents::man(command.as_deref())?),
        Command::Flags => output::write(None, documents::flags().as_bytes()),
        Command::Report(options) => {
            with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
                Box::pin(report::run(&options, here))
            })
        }
        Command::List(options) => with(&Surroundings::new(&arguments.common, environment, "1d")?, |here| {
            Box::pin(list::run(&options, here))
        }),
        Command::Export(options) => {
            with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
                Box::pin(export::run(&options, here))
            })
        }
        Command::Array(options) => with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
            Box::pin(array::run(&options, here))
        }),
        Command::Compare(options) => {
            with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
                Box::pin(compare::run(&options, here))
            })
        }
        Command::Top(options) => with(&Surroundings::new(&arguments.common, environment, "1d")?, |here| {
            Box::pin(top::run(&options, here))
        }),
        Command::Waste(options) => with(&Surroundings::new(&arguments.common, environment, "7d")?, |here| {
            Box::pin(waste::run(&options, here))
        }),
        Command::Digest(options) => with(&Surroundings::new(&arguments.common, environment, "7d")?, |here| {
            Box::pin(digest::run(&options, here))
        }),
        Command::IdleGpus(options) => {
            with(&Surroundings::new(&arguments.common, environment, "1h")?, |here| {
                Box::pin(idle_gpus::run(&options, here))
            })
        }
        Command::Mail(options) => mail::run(&options, &arguments.common, environment),
        Command::Check => with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
            Box::pin(check::run(here))
        }),
    }
}

type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>;

/// Does the work, and shows what was asked for it.
fn with<'a, T>(
    surroundings: &'a Surroundings,
    work: impl FnOnce(&'a Surroundings) -> Work<'a, T>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(error.to_string()))?;
    let done = runtime.block_on(work(surroundings));
    surroundings.show_log();
    done
}
