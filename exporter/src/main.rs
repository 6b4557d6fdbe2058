//! Lifecycle only: parse, validate, bind, drop privileges, start, serve, drain.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use exporter_toolkit::WebConfigHandle;
use jobledger_exporter::app::{self, Node, Opened};
use jobledger_exporter::cli::{self, Config, Invocation, Mode, PerfRequest};
use jobledger_exporter::collector::Meters;
use jobledger_exporter::collector::gpu::{GpuOptions, backends};
use jobledger_exporter::collector::perf::PerfOptions;
use jobledger_exporter::control::{self, Control, Order};
use jobledger_exporter::demo::Demo;
use jobledger_exporter::gpu::binding::{Verdicts, helper};
use jobledger_exporter::gpu::nvml;
use jobledger_exporter::perf::catalogue::Catalogue;
use jobledger_exporter::perf::planner::{Machine, plan};
use jobledger_exporter::scrape::openmetrics_to_text;
use jobledger_exporter::{collector, security};

/// A wrong command line or configuration (EX_USAGE, sysexits.h).
const USAGE: u8 = 64;
/// Anything else that went wrong.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    if helper::is_asked_for(std::env::args_os()) {
        return helper::run();
    }
    let config = match cli::parse(std::env::args_os()) {
        Ok(Invocation::Generate(document)) => return ExitCode::from(print(&app::document(document))),
        Ok(Invocation::Order(socket, order)) => return ExitCode::from(give(&socket, order)),
        Ok(Invocation::Perf(request)) => return ExitCode::from(show_plan(&request)),
        Ok(Invocation::Run(config)) => config,
        Err(error) => {
            // Nothing is left to do when not even this can be written.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    app::log_to_stderr(config.log_level.min(most_told(config.mode)), config.log_json);
    let status = run(*config).unwrap_or_else(|(status, message)| {
        tracing::error!("{message}");
        status
    });
    app::end(status)
}

/// `--check` reports what it finds itself, and who pipes `--once` wants the metrics.
fn most_told(mode: Mode) -> tracing::Level {
    match mode {
        Mode::Serve => tracing::Level::TRACE,
        Mode::Once => tracing::Level::WARN,
        Mode::Check => tracing::Level::ERROR,
    }
}

fn print(text: &str) -> u8 {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => FAILED,
        _ => 0,
    }
}

fn give(socket: &Path, order: Order) -> u8 {
    match control::send(socket, order) {
        Ok(done) => print(&format!("{done}\n")),
        Err(why) => {
            // Nothing is left to do when not even this can be written.
            let _ = writeln!(std::io::stderr(), "{why}");
            FAILED
        }
    }
}

fn show_plan(request: &PerfRequest) -> u8 {
    match app::plan(request) {
        Ok(text) => print(&text),
        Err(why) => {
            // Nothing is left to do when not even this can be written.
            let _ = writeln!(std::io::stderr(), "{why}");
            USAGE
        }
    }
}

fn failure(error: impl ToString) -> (u8, String) {
    (FAILED, error.to_string())
}

fn run(mut config: Config) -> Result<u8, (u8, String)> {
    let web_config =
        WebConfigHandle::load(config.web_config.as_deref()).map_err(|error| (USAGE, error.to_string()))?;
    let nvml = nvml_options(&config).map_err(|error| (USAGE, error))?;
    let catalogue = catalogue(&config).map_err(|error| (USAGE, error))?;
    let listeners = match config.mode {
        Mode::Serve if config.systemd_socket => exporter_toolkit::systemd_listeners().map_err(failure)?,
        Mode::Serve => exporter_toolkit::bind(&config.listen).map_err(failure)?,
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
    let takes_orders = config.mode == Mode::Serve && demo.is_none();
    let control = if takes_orders { bind_control(&config.control_socket) } else { None };
    let verdicts = if demo.is_some() { Verdicts::default() } else { device_verdicts(&config) };
    let backends = demo.as_ref().map_or_else(|| backends(nvml), Demo::gpus);
    let gpus = GpuOptions { verdicts, backends, ..GpuOptions::default() };
    let mut perf = perf_options(&config, catalogue.as_ref());
    if let Some((demo, plan)) = demo.as_ref().zip(perf.plan.as_deref()) {
        perf.open = demo.counters(plan);
    }
    // Before it gives up what it looks with.
    let who = if config.mode == Mode::Check { security::who() } else { String::new() };
    if config.drop_privileges {
        drop_privileges(&config);
    }
    let node = Node::start(&config, Opened { meters, gpus, perf }, demo.as_ref().map(|demo| &demo.gate))
        .map_err(failure)?;
    if let Some(control) = control {
        let (gpus, counters) = (node.gpus.clone(), node.counters.clone());
        let handler = move |order, patience| match order {
            Order::Gpus(order) => gpus.as_ref().ok_or("no GPUs are read here")?.obey(order, patience),
            Order::Counters(order) => counters.obey(order),
        };
        control.serve(Box::new(handler)).map_err(failure)?;
    }
    match config.mode {
        Mode::Serve => {
            app::serve(node, listeners, config.web.clone(), web_config).map_err(failure)?;
            Ok(0)
        }
        Mode::Once => {
            let exposition = app::once(&node, Duration::from_secs(30)).map_err(failure)?.map_err(failure)?;
            Ok(print(&openmetrics_to_text(&exposition.openmetrics)))
        }
        Mode::Check => {
            let (report, fine) = app::check(&node, &config, &who).map_err(failure)?;
            print(&report);
            Ok(if fine { 0 } else { FAILED })
        }
    }
}

/// Orders are a convenience: an exporter that cannot take them does all the rest.
fn bind_control(socket: &Path) -> Option<Control> {
    control::bind(socket).unwrap_or_else(|error| {
        tracing::info!(socket = %socket.display(), %error, "takes no orders");
        None
    })
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

fn nvml_options(config: &Config) -> Result<nvml::Options, String> {
    let library = config.gpu.nvml_library.clone();
    let peaks = app::peaks(config.gpu.peaks.as_deref())?;
    Ok(nvml::Options { library, peaks, ..Default::default() })
}

/// The events of CPUs, where somebody wants to count them: the table is large.
fn catalogue(config: &Config) -> Result<Option<Catalogue>, String> {
    if !config.enabled.iter().any(|entry| entry.name == "perf") {
        return Ok(None);
    }
    app::catalogue(config.perf.events_file.as_deref()).map(Some)
}

/// What this machine's counters are to count.
fn perf_options(config: &Config, catalogue: Option<&Catalogue>) -> PerfOptions {
    let machine = || Machine::read(&Arc::new(config.roots.clone()));
    let plan = catalogue.map(|catalogue| Arc::new(plan(&machine(), catalogue, &config.perf.classes)));
    PerfOptions { plan, ..PerfOptions::default() }
}

/// Who asks the kernel which GPUs jobs may open, where somebody wants to know.
fn device_verdicts(config: &Config) -> Verdicts {
    if !config.gpu.helper || !config.enabled.iter().any(|entry| entry.name == "gpu") {
        return Verdicts::default();
    }
    match helper::start_where_it_matters(&config.roots) {
        Ok(helper) => {
            tracing::info!(pid = helper.pid(), landlock = helper.landlock, "started the device helper");
            Verdicts::from(helper)
        }
        Err(why) => Verdicts::none(why),
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
        let reads_gpus = config.enabled.iter().any(|entry| entry.name == "gpu");
        let devices = if reads_gpus { nvml::devices(&config.roots) } else { Vec::new() };
        let trees = if config.makes_groups() { vec![config.roots.sys("fs/resctrl")] } else { Vec::new() };
        match security::forbid_writing(&devices, &trees) {
            Ok(true) => {}
            Ok(false) => tracing::info!("this kernel has no Landlock: writing is not forbidden by it"),
            Err(error) => tracing::warn!(%error, "could not forbid writing"),
        }
    }
}
