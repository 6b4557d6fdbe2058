//! `jobledger-exporter perf --validate` and `--peaks`: known work on this node.

mod text;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use counter_validation::results::{FORMAT, Missing, verdict};
use counter_validation::validate::{Options, validate};
use counter_validation::{Peaks, Results, Session, Stopped, Verdict, facts, idle, peaks};
use cpu_topology::{CpuSet, online};
use kernel_files::NodeFiles;
use perf_counters::catalogue::{Class, Extent};
use perf_counters::planner::{Machine, plan};
use perf_counters::probe::probe;
use perf_counters::sharing::{CounterOwnership, Lock};
use perf_counters::{Absent, Plan};
use perf_events::{Kernel, Open};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::cli::ValidateRequest;

/// Does it. Gives the report for standard output, and what is wrong nevertheless.
pub fn run(request: &ValidateRequest) -> Result<(String, Result<(), Failure>), Failure> {
    if !known_work::has_loops() {
        let arch = std::env::consts::ARCH;
        return Err(Failure::Unavailable(format!("there are no loops of known work for {arch}")));
    }
    let mut files = NodeFiles::new(&Arc::new(request.roots.clone()));
    let usable = usable(&mut files)?;
    let plan = if request.compares { Some(Arc::new(counted(request, &usable)?)) } else { None };
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop).map_err(Failure::other)?;
    let stops = || stop.load(Ordering::Relaxed);
    let mut results = Results {
        format: FORMAT,
        exporter: env!("CARGO_PKG_VERSION").to_owned(),
        date: today(),
        node: facts::read(&mut files),
        verdict: None,
        counted_as: None,
        rows: Vec::new(),
        absent: Vec::new(),
        peaks: None,
    };
    if let Some(plan) = &plan {
        compare(request, &mut files, &usable, plan, &mut results, &stops)?;
    }
    if request.compares && request.cpus.is_some() {
        let why = "only some CPUs were to be used (--peaks measures them alone)".to_owned();
        results.absent.push(Missing { what: "peaks".to_owned(), why });
    } else {
        let cpus = request.cpus.as_ref().map_or_else(|| usable.clone(), |cpus| cpus.and(&usable));
        match idle_enough(request, &mut files, &cpus) {
            Ok(()) => results.peaks = Some(measure(request, &mut files, &cpus, &stops)?),
            Err(failure) if !request.compares => return Err(failure),
            Err(failure) => {
                results.absent.push(Missing { what: "peaks".to_owned(), why: failure.to_string() })
            }
        }
    }
    let json = results.to_json();
    let left = request.output.as_deref().map(|file| super::results::leave(file, &json).map(|()| file));
    let fine = results.verdict.is_none_or(|verdict| verdict <= Verdict::Absent);
    let not_fine = || Failure::Other("some counts are not what they should be".to_owned());
    let (left, outcome) = match left.transpose() {
        Ok(left) => (left, if fine { Ok(()) } else { Err(not_fine()) }),
        Err(why) => (None, Err(Failure::Other(format!("the results are not left: {why}")))),
    };
    Ok((if request.json { json } else { text::text(&results, left) }, outcome))
}

/// The CPUs that are online and that this process may use.
fn usable(files: &mut NodeFiles) -> Result<CpuSet, Failure> {
    let online = online(files).map_err(Failure::other)?.unwrap_or_default();
    let allowed = rustix::thread::sched_getaffinity(None).map_err(Failure::other)?;
    let may = |cpu: &u32| {
        usize::try_from(*cpu).is_ok_and(|cpu| cpu < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(cpu))
    };
    Ok(online.iter().filter(may).collect())
}

/// What is counted on this machine, with at least one group of its hardware.
fn counted(request: &ValidateRequest, usable: &CpuSet) -> Result<Plan, Failure> {
    let catalogue = super::catalogue(request.events_file.as_deref()).map_err(Failure::Usage)?;
    let plan = plan(&Machine::read(&Arc::new(request.roots.clone())), &catalogue, Extent::Full, &Class::ALL);
    let no_pmu = |plan: &Plan| {
        let why: Vec<String> =
            plan.absent.iter().map(|Absent { what, why }| format!("{what}: {why}")).collect();
        Failure::Unavailable(format!(
            "no hardware counters here, nothing is compared; {} (--peaks needs none)",
            why.join("; ")
        ))
    };
    if !plan.groups.iter().any(|group| group.hardware) {
        return Err(no_pmu(&plan));
    }
    let denied = |error| Failure::Other(format!("counting others' work: {error}; run it as root"));
    let probed = probe(&plan, usable, &BTreeSet::new(), &Kernel, &|| false).map_err(denied)?;
    if probed.groups.iter().any(|group| group.hardware) { Ok(probed) } else { Err(no_pmu(&probed)) }
}

/// The last CPU of each kind of core: interrupts come to the first ones.
fn chosen(plan: &Plan, usable: &CpuSet) -> CpuSet {
    let of_group = |cpus: &Option<CpuSet>| {
        usable.iter().filter(|cpu| cpus.as_ref().is_none_or(|cpus| cpus.contains(*cpu))).last()
    };
    plan.groups.iter().filter(|group| group.hardware).filter_map(|group| of_group(&group.cpus)).collect()
}

fn idle_enough(request: &ValidateRequest, files: &mut NodeFiles, cpus: &CpuSet) -> Result<(), Failure> {
    if request.although_busy {
        return Ok(());
    }
    let busy = idle::look(files, cpus).map_err(Failure::other)?;
    let Some((cpu, part)) = busy.first() else { return Ok(()) };
    let others = if busy.len() > 1 { format!(" and {} more", busy.len() - 1) } else { String::new() };
    let percent = part * 100.0;
    Err(Failure::NotNow(format!(
        "CPU {cpu}{others} is busy ({percent:.0} %), so that counts of known work would have other work in them; drain the node, choose \
         other CPUs (--cpus) or run it nevertheless (--although-busy)"
    )))
}

fn compare(
    request: &ValidateRequest,
    files: &mut NodeFiles,
    usable: &CpuSet,
    plan: &Arc<Plan>,
    results: &mut Results,
    stop: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let ownership = CounterOwnership::default();
    let lock = request.lock.as_deref().map(|path| Lock::new(path, ownership.clone()));
    let lock = lock.transpose().map_err(Failure::other)?;
    if let Some(lock) = &lock {
        let owner = lock.look();
        if !owner.is_ours() {
            return Err(Failure::NotNow(format!("the counters are not ours: {owner}")));
        }
        lock.watch();
    }
    let cpus = request.cpus.as_ref().map_or_else(|| chosen(plan, usable), |cpus| cpus.and(usable));
    let Some(first) = cpus.iter().next() else { return Err(none_of_these()) };
    idle_enough(request, files, &cpus)?;
    let open: Arc<dyn Open> = Arc::new(Kernel);
    let mut session = Session::begin(&request.roots, files, plan.clone(), &open, &ownership, first);
    results.counted_as = Some(session.counted_as());
    let options = Options { cpus, time: request.time };
    let found = validate(&mut session, plan, &request.roots, files, &ownership, &options, stop);
    let (rows, absent) = found.map_err(stopped)?;
    let of_plan = plan
        .absent
        .iter()
        .map(|absent| Missing { what: absent.what.to_string(), why: absent.why.to_string() });
    results.verdict = verdict(&rows);
    results.rows = rows;
    results.absent = of_plan.chain(absent).collect();
    Ok(())
}

fn measure(
    request: &ValidateRequest,
    files: &mut NodeFiles,
    cpus: &CpuSet,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Peaks, Failure> {
    if cpus.is_empty() {
        return Err(none_of_these());
    }
    peaks::measure(files, cpus, request.time, stop).map_err(stopped)
}

fn none_of_these() -> Failure {
    Failure::Usage("none of these CPUs can be used".to_owned())
}

fn stopped(stopped: Stopped) -> Failure {
    match stopped {
        Stopped::Yielded => Failure::NotNow(stopped.to_string()),
        Stopped::Interrupted | Stopped::Failed(_) => Failure::Other(stopped.to_string()),
    }
}

/// The day, UTC.
fn today() -> String {
    let now = humantime::format_rfc3339_seconds(clocks::wall()).to_string();
    now.get(..10).unwrap_or_default().to_owned()
}

/// Signals that end a process end it between two loops, so that it removes what it made.
fn stop_on_signals(stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = runtime.block_on(async {
        let of = |kind| signal(kind);
        Ok::<_, std::io::Error>((
            of(SignalKind::interrupt())?,
            of(SignalKind::terminate())?,
            of(SignalKind::hangup())?,
        ))
    })?;
    let stop = stop.clone();
    let wait = move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
        });
        stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("signals".to_owned()).stack_size(256 << 10).spawn(wait).map(drop)
}

#[cfg(test)]
mod tests {
    use perf_counters::{Group, PlausibilityLimits};

    use super::*;

    #[test]
    fn the_last_cpu_of_each_kind_of_core_is_chosen_and_the_date_is_a_day() {
        let group = |hardware, cpus: &str| Group {
            name: "group".into(),
            hardware,
            cpus: CpuSet::parse(cpus.as_bytes()).ok().filter(|cpus| !cpus.is_empty()),
            events: Vec::new(),
        };
        let limits = PlausibilityLimits { instructions_per_cycle: 1.0, flops_per_cycle: None };
        let plan = |groups| Plan { microarchitecture: None, flops: None, groups, absent: Vec::new(), limits };
        let usable: CpuSet = (0..12).collect();
        let hybrid =
            plan(vec![group(true, "0-7"), group(true, "8-15"), group(true, "0-7"), group(false, "")]);
        assert_eq!(chosen(&hybrid, &usable).to_string(), "7,11");
        assert_eq!(chosen(&plan(vec![group(true, "")]), &usable).to_string(), "11");
        let day = today();
        assert!(day.len() == 10 && day.starts_with("20"), "{day}");
    }
}
