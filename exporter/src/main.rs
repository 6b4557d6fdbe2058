//! Lifecycle only: parse, validate, bind, drop privileges, start, serve, drain.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jobledger_exporter::app::{self, Node};
use jobledger_exporter::cli::{self, Config, Invocation, Mode};
use jobledger_exporter::collector::Meters;
use jobledger_exporter::demo::Demo;
use jobledger_exporter::web::{self, WebConfigHandle};
use jobledger_exporter::{collector, security};

/// A wrong command line or configuration (EX_USAGE, sysexits.h).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let config = match cli::parse(std::env::args_os()) {
        Ok(Invocation::Generate(document)) => return print(&app::document(document)),
        Ok(Invocation::Run(config)) => config,
        Err(error) => {
            // Nothing is left to do when not even this can be written.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    app::log_to_stderr(config.log_level.min(most_told(config.mode)), config.log_json);
    match run(*config) {
        Ok(code) => code,
        Err((code, message)) => {
            tracing::error!("{message}");
            ExitCode::from(code)
        }
    }
}

/// `--check` reports what it finds itself, and who pipes `--once` wants the metrics.
fn most_told(mode: Mode) -> tracing::Level {
    match mode {
        Mode::Serve => tracing::Level::TRACE,
        Mode::Once => tracing::Level::WARN,
        Mode::Check => tracing::Level::ERROR,
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn failure(error: impl ToString) -> (u8, String) {
    (1, error.to_string())
}

fn run(mut config: Config) -> Result<ExitCode, (u8, String)> {
    let web_config =
        WebConfigHandle::load(config.web_config.as_deref()).map_err(|error| (USAGE, error.to_string()))?;
    let listeners = match config.mode {
        Mode::Serve if config.systemd_socket => web::systemd_listeners().map_err(failure)?,
        Mode::Serve => web::bind(&config.listen).map_err(failure)?,
        Mode::Once | Mode::Check => Vec::new(),
    };
    raise_descriptor_limit();
    // Before privileges are given up: its thread goes on writing when the rest of the process may not any more.
    let demo = config.demo.as_ref().map(Demo::start).transpose().map_err(failure)?;
    if let Some(demo) = &demo {
        config.roots = demo.roots.clone();
        config.jobs_dir = demo.jobs_dir.clone();
    }
    // What only a privileged process may open stays open when the privileges are gone.
    let meters = config.enabled.iter().any(|entry| entry.name == "energy");
    let meters = if meters { Meters::find(&Arc::new(config.roots.clone())) } else { Meters::default() };
    if config.drop_privileges {
        drop_privileges(&config);
    }
    let node = Node::start(&config, meters, demo.as_ref().map(|demo| &demo.gate)).map_err(failure)?;
    match config.mode {
        Mode::Serve => {
            app::serve(node, listeners, config.web.clone(), web_config).map_err(failure)?;
            Ok(ExitCode::SUCCESS)
        }
        Mode::Once => {
            let exposition = app::once(&node, Duration::from_secs(30)).map_err(failure)?.map_err(failure)?;
            Ok(print(&web::openmetrics_to_text(&exposition.openmetrics)))
        }
        Mode::Check => {
            let (report, fine) = app::check(&node, &config).map_err(failure)?;
            print(&report);
            Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// Each running job has a directory held open (on v1 one per hierarchy), and the usual soft limit is 1024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

fn drop_privileges(config: &Config) {
    let needed = collector::capabilities(&config.enabled, config.looks_into_processes());
    match security::drop_capabilities(needed) {
        Ok(dropped) if dropped.changed => tracing::info!(kept = ?dropped.kept, "gave up capabilities"),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "could not give up capabilities"),
    }
    // Landlock keeps a process from looking into others too, whatever its capabilities (security/landlock/task.c).
    let looks_into_others = needed.contains(rustix::thread::CapabilitySet::SYS_PTRACE);
    if config.landlock && looks_into_others {
        tracing::info!(
            "doing without Landlock, which would forbid what was turned on: looking into processes"
        );
    } else if config.landlock {
        match security::forbid_writing() {
            Ok(true) => {}
            Ok(false) => tracing::info!("this kernel has no Landlock: writing is not forbidden by it"),
            Err(error) => tracing::warn!(%error, "could not forbid writing"),
        }
    }
}
