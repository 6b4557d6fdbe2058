//! What the program does.

mod admin_comment;
mod array;
mod check;
mod compare;
mod digest;
mod export;
mod idle_gpus;
mod list;
mod mail;
mod node;
mod patience;
mod record;
mod report;
mod snapshot;
mod spool;
mod surroundings;
mod top;
mod usage;
mod waste;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;

use crate::arguments::{Arguments, Command};
use crate::{Failure, documents, output};

use self::node::{More, Node};
pub use surroundings::{Environment, Surroundings};

/// Does what the command line says; the exit status is that of a command that it runs.
pub fn run(arguments: Arguments, environment: &Environment) -> Result<ExitCode, Failure> {
    let done: Result<(), Failure> = match arguments.command {
        Command::Record(options) => {
            return block_on(async {
                let more = More { whole_node: options.whole_node, own_devices: true };
                let new = Node::new(&options.node, more, &arguments.common, environment);
                let mut node = new.await?;
                let done = record::run(&options, &mut node).await;
                if node.is_stuck() {
                    gpu_devices::end_process(done.unwrap_or_else(|failure| {
                        surroundings::warn(&failure.says);
                        failure.kind as u8
                    }));
                }
                done.map(ExitCode::from)
            });
        }
        Command::Completions { shell } => output::write(None, &documents::completions(shell)),
        Command::Man { command } => output::write(None, &documents::man(command.as_deref())?),
        Command::Flags => output::write(None, documents::flags().as_bytes()),
        Command::Report(options) if !options.recording.is_empty() => {
            let here = Surroundings::of_recordings(&arguments.common, environment, &options.recording)?;
            block_on(patience::interrupted(report::of_recordings(&options, &here)))
        }
        Command::Export(options) if !options.recording.is_empty() => {
            let here = Surroundings::of_recordings(&arguments.common, environment, &options.recording)?;
            block_on(patience::interrupted(export::of_recordings(&options, &here)))
        }
        Command::Snapshot(options) => {
            let here = Surroundings::without_source(&arguments.common, environment)?;
            block_on(async {
                let new = Node::new(&options, More::default(), &arguments.common, environment);
                snapshot::run(&mut new.await?, &here).await
            })
        }
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
        // It has the terminal to itself.
        Command::Top(options) => {
            let here = Surroundings::new(&arguments.common, environment, "1d")?;
            let done = block_on(patience::interrupted(top::run(&options, &here)));
            here.show_log();
            done
        }
        Command::Waste(options) => with(&Surroundings::new(&arguments.common, environment, "7d")?, |here| {
            Box::pin(waste::run(&options, here))
        }),
        Command::Usage(options) => with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
            Box::pin(usage::run(&options, here))
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
        Command::AdminComment(options) => admin_comment::run(&options, &arguments.common, environment),
        Command::Spool => {
            let here = Surroundings::new(&arguments.common, environment, "30d")?;
            block_on(patience::interrupted(spool::run(&arguments.common, &here)))
        }
        Command::Check => with(&Surroundings::new(&arguments.common, environment, "30d")?, |here| {
            Box::pin(check::run(arguments.common.config.as_deref(), here))
        }),
    };
    done.map(|()| ExitCode::SUCCESS)
}

type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>;

/// Does the work, and shows how far it is and what was asked for it.
fn with<'a, T>(
    surroundings: &'a Surroundings,
    work: impl FnOnce(&'a Surroundings) -> Work<'a, T>,
) -> Result<T, Failure> {
    let work = patience::shown(work(surroundings), &surroundings.source.client);
    let done = block_on(patience::interrupted(work));
    surroundings.show_log();
    done
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(error.to_string()))?;
    runtime.block_on(work)
}
