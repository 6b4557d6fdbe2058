use test_machine::Machine;

use super::*;
use crate::recording::Line;

fn node(machine: &Machine) {
    machine.write("sys/devices/system/cpu/online", "0-3\n");
    for cpu in 0..4 {
        machine.write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            format!("{}\n", cpu % 2),
        );
    }
    machine.write("proc/meminfo", "MemTotal:        2048 kB\nMemFree:         1024 kB\n");
    for (pid, ticks) in [(70, 9000), (71, 500), (99, 1)] {
        machine.write(&format!("proc/{pid}/stat"), stat(pid, ticks));
    }
}

fn stat(pid: u32, ticks: u32) -> String {
    format!("{pid} (a b) S 1 1 1 0 -1 4194560 517 0 2 0 4 11 0 0 20 0 9 0 {ticks} 480743424 1582 0 0\n")
}

/// `/proc/PID/io`
fn io(times: u64) -> String {
    let counters = ["rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes"];
    let lines =
        counters.iter().zip(1..).map(|(name, number): (_, u64)| format!("{name}: {}\n", number * times));
    lines.collect()
}

/// (name, labels) of a page's samples with their values.
fn samples(page: &str) -> Vec<(String, String)> {
    let one = |line: &str| {
        let line = Line::parse(line).unwrap();
        (format!("{}{{{}}}", line.name, line.labels), line.value.to_owned())
    };
    page.lines().map(one).collect()
}

fn get(page: &str, name: &str) -> Option<String> {
    samples(page).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

#[test]
fn a_job_of_slurm_on_v2() {
    let machine = Machine::new();
    node(&machine);
    let job = "cgroup/system.slice/slurmstepd.scope/job_7";
    machine.write("cgroup/cgroup.controllers", "cpuset cpu memory io\n");
    machine.write("proc/70/io", io(1));
    std::fs::create_dir_all(machine.path.join("sys/dev/block")).unwrap();
    std::os::unix::fs::symlink("../../block/vda", machine.path.join("sys/dev/block/254:0")).unwrap();
    for (file, content) in [
        ("cgroup.controllers", "cpuset cpu memory io\n"),
        ("cpu.stat", "usage_usec 3500000\nuser_usec 3000000\nsystem_usec 500000\nthrottled_usec 7\n"),
        ("cpuset.cpus.effective", "0-1\n"),
        ("memory.current", "5000\n"),
        ("memory.peak", "6000\n"),
        ("memory.max", "max\n"),
        ("memory.high", "8000\n"),
        ("memory.stat", "anon 1000\nfile 2000\nshmem 300\n"),
        ("memory.events", "low 0\nhigh 0\nmax 0\noom 1\noom_kill 1\n"),
        ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"),
        ("io.stat", "254:0 rbytes=462848 wbytes=25296896 rios=11 wios=53 dbytes=4096 dios=1\n8:0 rby"),
        ("step_0/user/task_0/cgroup.procs", "70\n"),
        ("step_batch/slurm/cgroup.procs", "71\n"),
    ] {
        machine.write(&format!("{job}/{file}"), content);
    }
    machine.write("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
    let mut own =
        OwnJob::find("7", vec![("name", "a\"b".to_owned())], 64, &Arc::new(machine.roots())).unwrap();
    let page = own.page(own.start + 10.0).unwrap();
    for (name, value) in [
        (r#"jobledger_job_info{jobid="7",name="a\"b"}"#, "1"),
        (r#"jobledger_job_cpu_seconds_total{jobid="7",mode="user"}"#, "3.000000"),
        (r#"jobledger_job_cpu_seconds_total{jobid="7",mode="system"}"#, "0.500000"),
        (r#"jobledger_job_cpu_throttled_seconds_total{jobid="7"}"#, "0.000007"),
        (r#"jobledger_job_cpus{jobid="7"}"#, "2"),
        (r#"jobledger_job_allocated_cpu_seconds_total{jobid="7"}"#, "20.000"),
        (r#"jobledger_job_memory_used_bytes{jobid="7"}"#, "5000"),
        (r#"jobledger_job_memory_peak_bytes{jobid="7"}"#, "6000"),
        (r#"jobledger_job_memory_anon_bytes{jobid="7"}"#, "1000"),
        (r#"jobledger_job_memory_shmem_bytes{jobid="7"}"#, "300"),
        (r#"jobledger_job_memory_limit_bytes{jobid="7"}"#, "8000"),
        (r#"jobledger_job_oom_kills_total{jobid="7"}"#, "1"),
        (r#"jobledger_job_pressure_seconds_total{jobid="7",resource="io",kind="some"}"#, "1.500000"),
        (r#"jobledger_job_io_read_bytes_total{jobid="7",device="vda"}"#, "462848"),
        (r#"jobledger_job_io_written_bytes_total{jobid="7",device="vda"}"#, "25296896"),
        (r#"jobledger_job_io_operations_total{jobid="7",device="vda",direction="write"}"#, "53"),
        // Of slurmstepd, 71, nothing can be read.
        (r#"jobledger_job_process_read_bytes_total{jobid="7"}"#, "5"),
        (r#"jobledger_job_process_syscall_written_bytes_total{jobid="7"}"#, "2"),
        (r#"jobledger_job_process_io_syscalls_total{jobid="7",direction="read"}"#, "3"),
        ("jobledger_node_cpus{}", "4"),
        ("jobledger_node_cores{}", "2"),
        ("jobledger_node_memory_total_bytes{}", "2097152"),
    ] {
        assert_eq!(get(&page, name).as_deref(), Some(value), "{name}\n{page}");
    }
    // A process ends and another one begins.
    machine.write("proc/70/io", io(10));
    own.page(own.start + 11.0).unwrap();
    std::fs::remove_dir_all(machine.path.join("proc/70")).unwrap();
    machine.write("proc/72/stat", stat(72, 9500));
    machine.write("proc/72/io", io(100));
    machine.write(&format!("{job}/step_0/user/task_0/cgroup.procs"), "72\n");
    let page = own.page(own.start + 12.0).unwrap();
    let read = get(&page, r#"jobledger_job_process_read_bytes_total{jobid="7"}"#);
    assert_eq!(read.as_deref(), Some("550"), "what the one before did is in it");
    // Of the processes of the job the one of the batch step was first.
    let clocks = clock_gettime(ClockId::Realtime).tv_sec - clock_gettime(ClockId::Boottime).tv_sec;
    #[allow(clippy::cast_precision_loss, reason = "seconds")]
    let boot = clocks as f64;
    assert!((own.start - boot - 5.0).abs() < 2.0, "{} {boot}", own.start);
}

#[test]
fn a_job_of_pbs_on_v1() {
    let machine = Machine::new();
    node(&machine);
    let below = "pbs_jobs.service/jobid/1234.server";
    for (file, content) in [
        ("cpuacct/X/cpuacct.usage", "4000000000\n"),
        ("cpuacct/X/cpuacct.stat", "user 300\nsystem 100\n"),
        ("cpuset/X/cpuset.effective_cpus", "0-2\n"),
        ("cpuset/X/cgroup.procs", "70\n"),
        ("memory/X/memory.usage_in_bytes", "5000\n"),
        ("memory/X/memory.max_usage_in_bytes", "6000\n"),
        (
            "memory/X/memory.stat",
            "total_rss 1000\ntotal_cache 2000\nhierarchical_memory_limit 9223372036854771712\n",
        ),
    ] {
        machine.write(&format!("cgroup/{}", file.replace('X', below)), content);
    }
    machine.write(
        "proc/self/cgroup",
        format!("4:memory:/{below}\n3:cpuset:/{below}\n2:cpuacct:/{below}\n1:name=systemd:/init.scope\n"),
    );
    let mut own = OwnJob::find("1234.server", Vec::new(), 64, &Arc::new(machine.roots())).unwrap();
    let page = own.page(own.start + 10.0).unwrap();
    for (name, value) in [
        (r#"jobledger_job_cpu_seconds_total{jobid="1234",mode="user"}"#, Some("3.000000")),
        (r#"jobledger_job_cpus{jobid="1234"}"#, Some("3")),
        (r#"jobledger_job_memory_peak_bytes{jobid="1234"}"#, Some("6000")),
        (r#"jobledger_job_memory_anon_bytes{jobid="1234"}"#, Some("1000")),
        // No limit, and kills that are not counted here.
        (r#"jobledger_job_memory_limit_bytes{jobid="1234"}"#, None),
        (r#"jobledger_job_oom_kills_total{jobid="1234"}"#, None),
    ] {
        assert_eq!(get(&page, name).as_deref(), value, "{name}\n{page}");
    }
    // Ticks came in for the user alone, and no mode falls.
    machine.write(&format!("cgroup/cpuacct/{below}/cpuacct.stat"), "user 900\nsystem 100\n");
    machine.write(&format!("cgroup/cpuacct/{below}/cpuacct.usage"), "4100000000\n");
    let page = own.page(own.start + 11.0).unwrap();
    let system = get(&page, r#"jobledger_job_cpu_seconds_total{jobid="1234",mode="system"}"#);
    assert_eq!(system.as_deref(), Some("1.000000"), "{page}");
    for hierarchy in ["cpuacct", "cpuset", "memory"] {
        std::fs::remove_dir_all(machine.path.join("cgroup").join(hierarchy).join(below)).unwrap();
    }
    assert_eq!(own.page(own.start + 12.0).unwrap(), "", "time that nobody held");
}

#[test]
fn without_a_cgroup_of_the_job_nothing_is_read() {
    let machine = Machine::new();
    node(&machine);
    machine.write("cgroup/cgroup.controllers", "cpu\n").write("cgroup/user.slice/cpu.stat", "usage_usec 1\n");
    machine.write("proc/self/cgroup", "0::/user.slice/user-1000.slice\n");
    let says = OwnJob::find("7", Vec::new(), 1, &Arc::new(machine.roots())).unwrap_err().says;
    assert_eq!(says, "job 7: this process is in no cgroup of it, and no exporter answers");
}

#[test]
fn the_names_are_the_exporters() {
    let documented = include_str!("../../../docs/metrics.md");
    let sources = [include_str!("mod.rs"), include_str!("gpus.rs"), include_str!("io.rs")];
    let names: std::collections::BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| source.split("mod tests").next().unwrap().split('"'))
        .filter(|text| text.starts_with("jobledger_") && !text.contains(' '))
        .collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(documented.contains(&format!("| `{name}` |")), "{name}");
    }
}
