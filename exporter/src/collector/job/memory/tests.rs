use slurm_jobs::Levels;
use slurm_jobs::testing::moment;

use super::*;
use crate::collector::testing::{Bench, Machine, collect, collect_many, ended, job, snapshot_of, value};

/// 6.12, SLURM 26.05, cut.
const STAT_V2: &str = "anon 61636608\nfile 8658944\nkernel 2109440\nkernel_stack 344064\nshmem 8388608\nfile_mapped 208896\n\
    slab_reclaimable 112\nslab 614120\npgscan 0\npgfault 7969\npgmajfault 3\nthp_fault_alloc 39\n";
/// 4.18 (EL8), cut: own fields first, then the hierarchical ones.
const STAT_V1: &str = "cache 10\nrss 20\nshmem 1\nmapped_file 2\nswap 0\npgfault 30\npgmajfault 0\n\
    hierarchical_memory_limit 419430400\nhierarchical_memsw_limit 629145600\ntotal_cache 8658944\ntotal_rss 61636608\n\
    total_rss_huge 0\ntotal_shmem 8388608\ntotal_mapped_file 208896\ntotal_swap 4096\ntotal_pgpgin 5\ntotal_pgfault 7969\n\
    total_pgmajfault 3\ntotal_unevictable 0\n";

fn v2(machine: &Machine) {
    for (file, content) in [
        ("memory.current", "72445952\n"),
        ("memory.stat", STAT_V2),
        ("memory.max", "629145600\n"),
        ("memory.high", "419430400\n"),
        ("memory.peak", "72552448\n"),
        ("memory.swap.current", "4096\n"),
        ("memory.swap.max", "max\n"),
        ("memory.events", "low 0\nhigh 7\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n"),
    ] {
        machine.write(&format!("cgroup/job_7/{file}"), content);
    }
}

#[test]
fn a_v2_job_with_everything() {
    let machine = Machine::new();
    v2(&machine);
    let (outcome, text) =
        collect(&ENTRY, &snapshot_of(machine.roots(), vec![job(7, machine.v2("job_7"), &[])]));
    assert_eq!(outcome, Ok(()));
    for (series, expected) in [
        ("memory_used_bytes{jobid=\"7\"}", 72_445_952.0),
        ("memory_anon_bytes{jobid=\"7\"}", 61_636_608.0),
        ("memory_kernel_bytes{jobid=\"7\"}", 2_109_440.0),
        ("memory_limit_bytes{jobid=\"7\"}", 419_430_400.0),
        ("memory_peak_bytes{jobid=\"7\"}", 72_552_448.0),
        ("swap_used_bytes{jobid=\"7\"}", 4096.0),
        ("oom_events_total{jobid=\"7\"}", 1.0),
        ("oom_kills_total{jobid=\"7\"}", 1.0),
        ("memory_limit_hits_total{jobid=\"7\",limit=\"max\"}", 2.0),
        ("memory_limit_hits_total{jobid=\"7\",limit=\"high\"}", 7.0),
        ("page_faults_total{jobid=\"7\",type=\"minor\"}", 7966.0),
        ("page_faults_total{jobid=\"7\",type=\"major\"}", 3.0),
    ] {
        assert_eq!(value(&text, &format!("jobledger_job_{series}")), Some(expected), "{series}");
    }
    assert!(!text.contains("swap_limit"), "max is no number");
}

#[test]
fn limits_follow_what_slurm_sets_at_run_time_and_a_steps_are_on_its_user_directory() {
    let machine = Machine::new();
    v2(&machine);
    machine
        .write("cgroup/job_7/step_0/memory.current", "5\n")
        .write("cgroup/job_7/step_0/memory.max", "max\n");
    machine.write("cgroup/job_7/step_0/user/memory.max", "1000\n");
    machine.write("cgroup/job_7/step_0/user/memory.high", "max\n");
    let mut snapshot = snapshot_of(machine.roots(), vec![job(7, machine.v2("job_7"), &[("0", &[])])]);
    snapshot.levels = Levels { steps: true, tasks: false };
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let text = bench.collect(&snapshot).1;
    assert_eq!(value(&text, "jobledger_job_memory_limit_bytes{jobid=\"7\"}"), Some(419_430_400.0));
    assert_eq!(value(&text, "jobledger_step_memory_limit_bytes{jobid=\"7\",step=\"0\"}"), Some(1000.0));
    machine.write("cgroup/job_7/memory.high", "max\n").write("cgroup/job_7/step_0/user/memory.max", "max\n");
    let text = bench.collect(&snapshot).1;
    assert_eq!(value(&text, "jobledger_job_memory_limit_bytes{jobid=\"7\"}"), Some(629_145_600.0));
    assert!(!text.contains("jobledger_step_memory_limit_bytes{"), "no limit is no number");
}

#[test]
fn counters_the_peak_and_the_limit_outlive_the_job_and_other_gauges_do_not() {
    let machine = Machine::new();
    v2(&machine);
    let job = job(7, machine.v2("job_7"), &[]);
    let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
    let mut bench = Bench::new(&ENTRY, &snapshot);
    bench.checkpoint(&job);
    machine.remove("cgroup/job_7");
    // Between its end and the news of it.
    for snapshot in [snapshot, snapshot_of(machine.roots(), vec![ended(&job)])] {
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&text, "jobledger_job_memory_peak_bytes{jobid=\"7\"}"), Some(72_552_448.0));
        assert_eq!(value(&text, "jobledger_job_oom_kills_total{jobid=\"7\"}"), Some(1.0));
        assert_eq!(value(&text, "jobledger_job_memory_used_bytes{jobid=\"7\"}"), None, "{text}");
        assert_eq!(value(&text, "jobledger_job_memory_limit_bytes{jobid=\"7\"}"), Some(419_430_400.0));
        assert!(!text.contains("swap_limit_bytes{"));
        assert!(
            value(&text, "jobledger_job_memory_allocated_byte_seconds_total{jobid=\"7\"}").is_some(),
            "{text}"
        );
    }
}

/// A job that no scrape sees before its end is read when a part of it ends.
#[test]
fn memory_is_held_from_the_start_to_the_end_and_not_taken_back() {
    let machine = Machine::new();
    v2(&machine);
    let job = job(7, machine.v2("job_7"), &[]);
    let memory = Memory::default();
    let series = "jobledger_job_memory_allocated_byte_seconds_total{jobid=\"7\"}";
    memory.allocated.read(&job, Some(1000), moment(1002.0).boottime);
    assert_eq!(memory.allocated.nanoseconds(&job), Some(2000 * NANOSECONDS));
    memory.allocated.read(&job, None, moment(1003.0).boottime);
    memory.allocated.read(&job, Some(10), moment(1004.0).boottime);
    assert_eq!(memory.allocated.nanoseconds(&ended(&job)), Some(13_965 * NANOSECONDS));
    machine.write("cgroup/job_7/memory.high", "max\n").write("cgroup/job_7/memory.max", "max\n");
    let snapshot = snapshot_of(machine.roots(), vec![job]);
    let text = Bench::new(&ENTRY, &snapshot).collect(&snapshot).1;
    assert_eq!(value(&text, series), None, "no limit is no number");
}

#[test]
fn a_kernel_without_peak_is_asked_once_and_a_vanished_job_proves_nothing() {
    let machine = Machine::new();
    v2(&machine);
    machine.remove("cgroup/job_7/memory.peak");
    let memory = Memory::default();
    let mut buffer = Buffer::default();
    let job = job(7, machine.v2("job_7"), &[]);
    machine.remove("cgroup/job_7/cgroup.procs");
    memory.read(&Group::of_job(&job), &mut buffer).unwrap();
    assert!(!memory.lacks_peak.load(Ordering::Relaxed), "it may have vanished");
    machine.write("cgroup/job_7/cgroup.procs", "");
    memory.read(&Group::of_job(&job), &mut buffer).unwrap();
    assert!(memory.lacks_peak.load(Ordering::Relaxed));
    let group = Group::of_job(&job);
    assert_eq!(memory.read(&group, &mut buffer).unwrap().peak, None);
    assert_eq!(group.view.missing(), 0, "not tried again");
}

fn v1(machine: &Machine) -> Job {
    for (file, content) in [
        ("memory.usage_in_bytes", "72445952\n"),
        ("memory.max_usage_in_bytes", "72552448\n"),
        ("memory.kmem.usage_in_bytes", "614400\n"),
        ("memory.stat", STAT_V1),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ("memory.failcnt", "0\n"),
        ("step_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ("step_0/memory.failcnt", "0\n"),
        ("step_0/task_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
    ] {
        machine.write(&format!("cgroup/memory/slurm/uid_0/job_7/{file}"), content);
    }
    job(7, machine.v1(&[("memory", "slurm/uid_0/job_7")]), &[("0", &["0"])])
}

#[test]
fn a_v1_job_has_its_hierarchical_numbers() {
    let machine = Machine::new();
    let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), vec![v1(&machine)]));
    assert_eq!(outcome, Ok(()));
    for (series, expected) in [
        ("memory_used_bytes", 72_445_952.0),
        ("memory_anon_bytes", 61_636_608.0),
        ("memory_kernel_bytes", 614_400.0),
        ("memory_limit_bytes", 419_430_400.0),
        ("memory_peak_bytes", 72_552_448.0),
        ("swap_used_bytes", 4096.0),
        ("swap_limit_bytes", 209_715_200.0),
    ] {
        assert_eq!(
            value(&text, &format!("jobledger_job_{series}{{jobid=\"7\"}}")),
            Some(expected),
            "{series}"
        );
    }
    assert!(!text.contains("oom_kills_total{") && !text.contains("limit_hits_total{"), "0 would be a claim");
    assert!(!text.contains("slab"));
}

#[test]
fn v1_kills_are_counted_where_they_happen_and_kept_when_the_place_is_gone() {
    let machine = Machine::new();
    let mut job = v1(&machine);
    let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    let base = "cgroup/memory/slurm/uid_0/job_7";
    machine.write(&format!("{base}/step_0/task_0/memory.oom_control"), "oom_kill 2\n");
    machine.write(&format!("{base}/step_0/memory.failcnt"), "40\n");
    bench.checkpoint(&job);
    machine.remove(&format!("{base}/step_0"));
    job.steps[0].ended = Some(std::time::Instant::now());
    for snapshot in
        [snapshot_of(machine.roots(), vec![job.clone()]), snapshot_of(machine.roots(), vec![ended(&job)])]
    {
        let text = bench.collect(&snapshot).1;
        assert_eq!(value(&text, "jobledger_job_oom_kills_total{jobid=\"7\"}"), Some(2.0), "{text}");
        assert_eq!(
            value(&text, "jobledger_job_memory_limit_hits_total{jobid=\"7\",limit=\"max\"}"),
            Some(40.0)
        );
    }
}

#[test]
fn without_the_controller_it_is_unsupported_and_a_malformed_job_costs_itself() {
    let machine = Machine::new();
    v2(&machine);
    machine.write("cgroup/job_8/cgroup.procs", "").write("cgroup/job_9/memory.current", "x\n");
    let [good, without, bad] = [7, 8, 9].map(|id| job(id, machine.v2(&format!("job_{id}")), &[]));
    let scenes = [snapshot_of(machine.roots(), vec![without]), snapshot_of(machine.roots(), vec![good, bad])];
    let collected = collect_many(&ENTRY, &[&scenes[0], &scenes[1]]);
    assert!(matches!(collected[0].0, Err(SourceError::Unsupported { .. })));
    assert!(matches!(&collected[1].0, Err(SourceError::Partial { ok: 1, failed: 1, first })
        if matches!(**first, SourceError::Malformed { file: "memory.current", .. })));
    assert!(collected[1].1.contains("jobledger_job_memory_used_bytes{jobid=\"7\"}"));
}
