//! What SLURM's prolog and epilog say of a job: time limit, nodes, restarts, exit code, and the state that follows from them
//! (docs/metadata.md).
//!
//! Reads no file: the job table has it from root's files.

use exposition::{Family, Profile, Section, SubjectId};
use slurm_jobs::Job;
use slurm_jobs::metadata::Metadata;

static TIME_LIMIT: Family = Family::gauge("jobledger_job_time_limit_seconds").retained().help(
    "Time limit of the job when it started, from SLURM 23.02 on; absent without one, and of 365 days, which SLURM's \
     prolog says of both",
);
static NODES: Family = Family::gauge("jobledger_job_nodes_asked")
    .retained()
    .help("Nodes that SLURM gave the job, whether or not an exporter runs on them; from SLURM 22.05 on");
static RESTARTS: Family = Family::gauge("jobledger_job_restarts")
    .retained()
    .help("How often the job was requeued before this run; from SLURM 22.05 on");
static EXIT_CODE: Family = Family::gauge("jobledger_job_exit_code").retained().help(
    "Exit code of an ended job as SLURM's epilog gets it, from 22.05 on: 0 is also a job that SLURM ended, at its time limit \
     or because it was cancelled; absent if a signal ended it, and of a run that was requeued",
);
static EXIT_SIGNAL: Family = Family::gauge("jobledger_job_exit_signal").retained().help(
    "Signal that ended a job, as SLURM's epilog gets it: 125 is the out-of-memory killer; absent if none did, and of a job \
     that SLURM ended",
);
static DERIVED_EXIT_CODE: Family = Family::gauge("jobledger_job_derived_exit_code").retained().help(
    "Highest exit code of the steps of an ended job, without its script; absent if a signal ended that step",
);
static DERIVED_EXIT_SIGNAL: Family = Family::gauge("jobledger_job_derived_exit_signal")
    .profile(Profile::Full)
    .retained()
    .help("Signal that ended the step with the highest status of an ended job; absent if none did");
static STATE: Family = Family::info("jobledger_job_state_info").labels(&["state", "origin"]).retained().help(
    "SLURM's state of an ended job where exit code, signal and time limit decide it, so its origin is derived: \
     FAILED, OUT_OF_MEMORY or TIMEOUT. Absent for exit code 0 before the time limit, which is a job that is COMPLETED \
     or CANCELLED",
);

/// Its rows of the catalogue.
pub(super) const FAMILIES: [&Family; 8] = [
    &TIME_LIMIT,
    &NODES,
    &RESTARTS,
    &EXIT_CODE,
    &EXIT_SIGNAL,
    &DERIVED_EXIT_CODE,
    &DERIVED_EXIT_SIGNAL,
    &STATE,
];

/// The state of an ended job as slurmctld finds it (`job_complete` in src/slurmctld/job_mgr.c), where the numbers decide it. A
/// job that SLURM ended has neither code nor signal in its epilog; whether it was at its time limit shows in its times.
fn state(metadata: &Metadata) -> Option<&'static str> {
    // SIG_OOM in src/common/slurm_protocol_defs.h, as an exit status shows it.
    const OUT_OF_MEMORY: u8 = 125;
    let ending = &metadata.ending;
    match (ending.exit_code?, ending.signal?) {
        (_, OUT_OF_MEMORY) => Some("OUT_OF_MEMORY"),
        (0, 0) => (ending.elapsed? >= metadata.time_limit?).then_some("TIMEOUT"),
        _ => Some("FAILED"),
    }
}

/// Exit code and signal of which one ended it.
fn exit(code: Option<u8>, signal: Option<u8>) -> (Option<u64>, Option<u64>) {
    match signal {
        Some(0) => (code.map(u64::from), None),
        Some(signal) => (None, Some(u64::from(signal))),
        None => (None, None),
    }
}

pub(super) fn push(job: &Job, subject: SubjectId, out: &mut Section) {
    let m = &job.metadata;
    let asked = [
        (&TIME_LIMIT, m.time_limit),
        (&NODES, m.nodes.map(u64::from)),
        (&RESTARTS, m.restarts.map(u64::from)),
    ];
    let (code, signal) = exit(m.ending.exit_code, m.ending.signal);
    let (derived_code, derived_signal) = exit(m.ending.derived_exit_code, m.ending.derived_signal);
    let ended = [
        (&EXIT_CODE, code),
        (&EXIT_SIGNAL, signal),
        (&DERIVED_EXIT_CODE, derived_code),
        (&DERIVED_EXIT_SIGNAL, derived_signal),
    ];
    let has_ended = !job.is_running();
    for (family, value) in asked.into_iter().chain(ended.into_iter().filter(|_| has_ended)) {
        if let Some(value) = value {
            out.push(family, subject, &[], value);
        }
    }
    if let Some(state) = state(m).filter(|_| has_ended) {
        out.push(&STATE, subject, &[("state", state), ("origin", "derived")], 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slurm_jobs::metadata::parse_metadata;

    use super::super::info::ENTRY;
    use super::*;
    use crate::collector::testing::{Machine, collect, ended, job, snapshot_of};

    /// The samples of a job with this file, running or ended, without those that every job has.
    fn samples(file: &str, has_ended: bool) -> Vec<String> {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        let metadata = Arc::new(parse_metadata(file.as_bytes()));
        let running = Job { metadata, ..job(7, machine.v2("job_7"), &[]) };
        let job = if has_ended { ended(&running) } else { running };
        let (outcome, text) = collect(&ENTRY, &snapshot_of(Machine::new().roots(), vec![job]));
        assert_eq!(outcome, Ok(()));
        let facts: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        let is_fact = |line: &&str| facts.iter().any(|name| line.starts_with(&format!("{name}{{")));
        let short = |line: &str| line.replace("jobledger_job_", "").replace("jobid=\"7\"", "");
        text.lines().filter(is_fact).map(short).collect()
    }

    const PROLOG: &str = "start_time=1000\ntime_limit=60\nnodes=2\nrestarts=1\n";
    const ASKED: [&str; 3] = ["time_limit_seconds{} 60", "nodes_asked{} 2", "restarts{} 1"];

    fn after(epilog: &str) -> Vec<String> {
        samples(&format!("{PROLOG}{epilog}"), true).split_off(ASKED.len())
    }

    #[test]
    fn what_the_prolog_says_is_there_from_the_start_and_what_it_does_not_say_is_absent() {
        assert_eq!(samples(PROLOG, false), ASKED);
        assert_eq!(samples(PROLOG, true), ASKED);
        assert_eq!(samples("", true), Vec::<String>::new());
        assert_eq!(samples("restarts=0\n", false), ["restarts{} 0"]);
    }

    #[test]
    fn a_running_job_has_no_exit_code_whatever_its_file_says() {
        assert_eq!(samples(&format!("{PROLOG}elapsed=10\nexit_code=3\nsignal=0\n"), false), ASKED);
    }

    #[test]
    fn the_exit_code_or_the_signal_of_an_ended_job() {
        let failed = "state_info{,state=\"FAILED\",origin=\"derived\"} 1";
        let oom = "state_info{,state=\"OUT_OF_MEMORY\",origin=\"derived\"} 1";
        assert_eq!(after("elapsed=10\nexit_code=3\nsignal=0\n"), ["exit_code{} 3", failed]);
        assert_eq!(after("elapsed=10\nexit_code=0\nsignal=9\n"), ["exit_signal{} 9", failed]);
        assert_eq!(after("elapsed=10\nexit_code=0\nsignal=125\n"), ["exit_signal{} 125", oom]);
        // At its time limit a job that failed is FAILED, too.
        assert_eq!(after("elapsed=60\nexit_code=1\nsignal=0\n"), ["exit_code{} 1", failed]);
        let steps = "exit_code=0\nsignal=0\nderived_exit_code=5\nderived_signal=0\n";
        assert_eq!(after(steps), ["exit_code{} 0", "derived_exit_code{} 5"]);
        let killed = "exit_code=0\nsignal=0\nderived_exit_code=0\nderived_signal=11\n";
        assert_eq!(after(killed), ["exit_code{} 0", "derived_exit_signal{} 11"]);
        assert_eq!(after("exit_code=3\n"), Vec::<String>::new(), "without the signal the code is not known");
    }

    #[test]
    fn a_job_without_code_and_signal_ended_at_its_time_limit_or_nobody_knows_how() {
        let state = |file: &str| state(&parse_metadata(file.as_bytes()));
        let success = "exit_code=0\nsignal=0\n";
        assert_eq!(state(&format!("{PROLOG}{success}elapsed=60\n")), Some("TIMEOUT"));
        assert_eq!(state(&format!("{PROLOG}{success}elapsed=59\n")), None);
        assert_eq!(state(&format!("{PROLOG}{success}elapsed=-1\n")), None);
        assert_eq!(state(&format!("{PROLOG}{success}")), None);
        assert_eq!(state(&format!("start_time=1000\n{success}elapsed=9999\n")), None, "no limit");
    }
}
