//! Lifecycle only: parse, open, drop privileges, start, serve, drain.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use energy_meters::bmc_helper;
use gpu_binding::helper;
use jobledger_exporter::app::{self, Failure, Node, Opened, Output};
use jobledger_exporter::cli::{self, Config, Invocation, Mode, PerfRequest, ValidateRequest};
use jobledger_exporter::control::{self, Control, Order};
use perf_counters::resctrl;

fn main() -> ExitCode {
    if helper::KIND.is_asked_for(std::env::args_os()) {
        return helper::run(std::env::args_os());
    }
    if resctrl::helper::KIND.is_asked_for(std::env::args_os()) {
        return resctrl::helper::run(std::env::args_os());
    }
    if bmc_helper::KIND.is_asked_for(std::env::args_os()) {
        return bmc_helper::run(std::env::args_os());
    }
    let config = match cli::parse(std::env::args_os()) {
        Ok(Invocation::Generate(document)) => return ExitCode::from(app::print(&app::document(document))),
        Ok(Invocation::Order(socket, order)) => return ExitCode::from(give(&socket, order)),
        Ok(Invocation::Perf(request)) => return ExitCode::from(show_plan(&request)),
        Ok(Invocation::Validate(request)) => return ExitCode::from(validate(&request)),
        Ok(Invocation::Run(config)) => config,
        Err(error) => return ExitCode::from(app::refuse(&error)),
    };
    app::log_to_stderr(&config);
    app::end(run(*config))
}

fn give(socket: &Path, order: Order) -> u8 {
    match control::send(socket, order) {
        Ok(done) => app::print(&format!("{done}\n")),
        Err(why) => complain(&Failure::Other(why)),
    }
}

fn show_plan(request: &PerfRequest) -> u8 {
    match app::plan(request) {
        Ok(text) => app::print(&text),
        Err(why) => complain(&Failure::Usage(why)),
    }
}

fn validate(request: &ValidateRequest) -> u8 {
    match app::validate(request) {
        Ok((text, outcome)) => {
            app::print(&text).max(outcome.map_or_else(|failure| complain(&failure), |()| 0))
        }
        Err(failure) => complain(&failure),
    }
}

/// What went wrong in a command that keeps no log.
fn complain(failure: &Failure) -> u8 {
    // Nothing is left to do when not even this can be written.
    let _ = writeln!(std::io::stderr(), "{failure}");
    failure.status()
}

fn run(mut config: Config) -> Result<u8, Failure> {
    let mut output = Output::open(&config)?;
    let user = app::user_to_become(&config)?;
    config.roots = app::hold_files(&config);
    let config = &config;
    let opened = Opened::of_machine(config, user.as_ref())?;
    let control = if config.mode == Mode::Serve { bind_control(&config.control_socket) } else { None };
    app::drop_privileges(config, user.as_ref())?;
    output.after_drop(config);
    let opened = Opened { logins: Some(output.web_config()), ..opened };
    let node = Node::start(config, opened).map_err(Failure::other)?;
    if let Some(control) = control {
        let (gpus, counters) = (node.gpus.clone(), node.counters.clone());
        let handler = move |order, patience| match order {
            Order::Gpus(order) => gpus.as_ref().ok_or("no GPUs are read here")?.obey(order, patience),
            Order::Counters(order) => counters.obey(order),
        };
        control.serve(Box::new(handler)).map_err(Failure::other)?;
    }
    output.run(node, config)
}

/// Orders are a convenience: an exporter that cannot take them does all the rest.
fn bind_control(socket: &Path) -> Option<Control> {
    control::bind(socket).unwrap_or_else(|error| {
        tracing::info!(socket = %socket.display(), %error, "no control socket: the commands that need it do not work");
        None
    })
}
