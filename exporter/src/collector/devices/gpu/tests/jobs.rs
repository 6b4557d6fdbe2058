//! The samples of jobs.

use super::*;

#[test]
fn two_gpus_of_one_id_are_one_and_that_is_exported() {
    let driver = Driver::new(vec![unit(0), unit(1), unit(0)]);
    let mut node = Node::new(&driver);
    let text = node.eventually(|text| text.contains("jobledger_gpu_up"));
    assert_eq!(text.matches("\njobledger_gpu_up{").count(), 2, "{text}");
    let (outcome, _) = node.scrape();
    assert!(outcome.as_ref().is_err_and(|error| error.to_string().contains("the id GPU-0")), "{outcome:?}");
}

#[test]
fn what_a_gpu_does_is_charged_to_who_may_open_it() {
    let driver = Driver::new(vec![unit(0), unit(1)]);
    let mut node = Node::new(&driver);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.comes(7, Some(&[1]));
    node.comes(8, Some(&[]));
    node.eventually(|text| is(text, "jobledger_job_gpus{jobid=\"7\",source=\"device_program\"}", 1.0));
    node.read_anew();
    driver.change(|units| {
        units[0].counts = vec![(Quantity::BUSY, SECOND), (Quantity::ENERGY, 5_000_000)];
        units[1].counts = vec![(Quantity::BUSY, 2 * SECOND), (Quantity::ENERGY, 9_000_000)];
        units[1].counts.extend([
            (Quantity::PCIE_RECEIVED, 700),
            (Quantity::FLOPS_FP64, 5),
            (Quantity::TENSOR, SECOND / 4),
        ]);
        units[1].memory = Some(Memory { total: 80 * GIB, used: 3 * GIB, free: 77 * GIB, reserved: None });
    });
    let busy = "jobledger_job_gpu_busy_seconds_total{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\",method=\"alone\"}";
    let text = node.eventually(|text| is(text, busy, 2.0));
    for (series, wanted) in [
        ("jobledger_job_gpu_energy_joules_total{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\",method=\"alone\"}", 9.0),
        ("jobledger_gpu_energy_joules_total{gpu=\"1\",uuid=\"GPU-1\"}", 9.0),
        ("jobledger_gpu_unattributed_energy_joules_total{gpu=\"1\",uuid=\"GPU-1\"}", 0.0),
        ("jobledger_gpu_unattributed_busy_seconds_total{gpu=\"0\",uuid=\"GPU-0\"}", 1.0),
        ("jobledger_job_gpu_memory_used_bytes{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\"}", 3.0 * 1_073_741_824.0),
        (
            "jobledger_job_gpu_memory_limit_bytes{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\"}",
            80.0 * 1_073_741_824.0,
        ),
        ("jobledger_gpu_jobs{gpu=\"1\",uuid=\"GPU-1\"}", 1.0),
        ("jobledger_job_gpu_pcie_received_bytes_total{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\"}", 700.0),
        (
            "jobledger_job_gpu_pipe_active_seconds_total{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\",pipe=\"tensor\"}",
            0.25,
        ),
        // Read in millions.
        (
            "jobledger_job_gpu_estimated_flops_total{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\",pipe=\"fp64\",assumption=\"fma\"}",
            5e6,
        ),
        // Known to have none, which is another thing than not known.
        ("jobledger_job_gpus{jobid=\"8\",source=\"device_program\"}", 0.0),
    ] {
        assert!(is(&text, series, wanted), "{series} {wanted}\n{text}");
    }
    assert!(!text.contains("jobledger_job_gpu_busy_seconds_total{jobid=\"8\""), "{text}");
    let info = "jobledger_job_gpu_info{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\",vendor=\"nvidia\",model=\"NVIDIA Test\",\
                profile=\"\",parent=\"\",minor=\"1\",source=\"device_program\",shared=\"false\"}";
    assert!(is(&text, info, 1.0), "{text}");

    node.goes(7);
    node.read_anew();
    driver
        .change(|units| units[1].counts = vec![(Quantity::BUSY, 9 * SECOND), (Quantity::ENERGY, 9_000_000)]);
    let unattributed = "jobledger_gpu_unattributed_busy_seconds_total{gpu=\"1\",uuid=\"GPU-1\"}";
    let text = node.eventually(|text| is(text, unattributed, 7.0));
    assert!(is(&text, busy, 2.0), "kept while it is retained\n{text}");
    for series in ["jobledger_job_gpu_memory_peak_bytes", "jobledger_job_gpu_memory_limit_bytes"] {
        assert!(text.contains(&format!("{series}{{jobid=\"7\"")), "{text}");
    }
    assert!(
        !text.contains("jobledger_job_gpu_memory_used_bytes{jobid=\"7\""),
        "no gauge of what ended\n{text}"
    );
    assert!(!text.contains("jobledger_job_gpus{jobid=\"7\""), "{text}");
}

#[test]
fn an_allocated_gpu_on_which_nothing_runs_is_on_the_ledger_as_idle() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.comes(7, Some(&[0]));
    let labels = "{jobid=\"7\",gpu=\"0\",uuid=\"GPU-0\"}";
    let idle = format!("jobledger_job_gpu_idle_seconds_total{labels}");
    let text = node.eventually(|text| value(text, &idle).is_some_and(|idle| idle > 0.05));
    let allocated = value(&text, &format!("jobledger_job_gpu_allocated_seconds_total{labels}")).unwrap();
    assert!(value(&text, &idle).unwrap() <= allocated, "{text}");
    assert!(is(&text, &format!("jobledger_job_gpu_utilization_ratio{labels}"), 0.0), "{text}");
    assert!(is(
        &text,
        &format!("jobledger_job_gpu_busy_seconds_total{}", labels.replace('}', ",method=\"alone\"}")),
        0.0
    ));
}

#[test]
fn a_job_that_nothing_constrains_is_not_said_to_have_all() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.comes(7, None);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.read_anew();
    let text = node.scrape().1;
    assert!(!text.contains("jobledger_job_gpu"), "{text}");
    assert!(driver.wanted.lock().processes, "processes may help");
}

#[test]
fn two_jobs_on_one_gpu_share_it_by_their_processes() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    runs(&node, &[(100, 7), (200, 8)]);
    node.comes(7, Some(&[0]));
    node.comes(8, Some(&[0]));
    let process =
        |pid, memory, busy_ns| Process { pid, kind: ProcessKind::Compute, memory, busy_ns: Some(busy_ns) };
    driver.change(|units| {
        units[0].processes = Some(vec![process(100, Some(GIB), 0), process(200, Some(2 * GIB), 0)]);
    });
    let processes = "jobledger_job_gpu_processes{jobid=\"8\",gpu=\"0\",uuid=\"GPU-0\"}";
    node.eventually(|text| is(text, processes, 1.0));
    node.read_anew();
    driver.change(|units| {
        units[0].counts = vec![(Quantity::BUSY, 4 * SECOND), (Quantity::ENERGY, 0)];
        // The same process computes and draws: it is one.
        let draws = Process { kind: ProcessKind::Graphics, ..process(200, Some(2 * GIB), 3 * SECOND) };
        units[0].processes =
            Some(vec![process(100, Some(GIB), SECOND), process(200, Some(2 * GIB), 3 * SECOND), draws]);
    });
    let busy = |job| {
        format!(
            "jobledger_job_gpu_busy_seconds_total{{jobid=\"{job}\",gpu=\"0\",uuid=\"GPU-0\",method=\"processes\"}}"
        )
    };
    let text = node.eventually(|text| is(text, &busy(8), 3.0));
    assert!(is(&text, &busy(7), 1.0), "{text}");
    let memory =
        |job| format!("jobledger_job_gpu_memory_used_bytes{{jobid=\"{job}\",gpu=\"0\",uuid=\"GPU-0\"}}");
    assert!(is(&text, &memory(7), 1_073_741_824.0) && is(&text, &memory(8), 2_147_483_648.0), "{text}");
    assert!(text.contains("shared=\"true\"") && !text.contains("shared=\"false\""), "{text}");
    assert!(!text.contains("jobledger_job_gpu_process_"), "only when asked for");
}

#[test]
fn processes_are_exported_one_by_one_on_request() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::with(&driver, GpuOptions { processes: true, ..GpuOptions::default() });
    runs(&node, &[(100, 7)]);
    node.comes(7, Some(&[0]));
    let process =
        Process { pid: 100, kind: ProcessKind::Compute, memory: Some(GIB), busy_ns: Some(3 * SECOND / 2) };
    let unattributed = Process { pid: 300, ..process.clone() };
    driver.change(|units| units[0].processes = Some(vec![process, unattributed]));
    let labels = "{jobid=\"7\",gpu=\"0\",uuid=\"GPU-0\",pid=\"100\"}";
    let memory = format!("jobledger_job_gpu_process_memory_bytes{labels}");
    let text = node.eventually(|text| is(text, &memory, 1_073_741_824.0));
    assert!(is(&text, &format!("jobledger_job_gpu_process_busy_seconds_total{labels}"), 1.5), "{text}");
    assert!(!text.contains("pid=\"300\""), "no job's\n{text}");
}

#[test]
fn a_job_whose_id_is_not_known_yet_is_in_no_sum_until_it_is_exported() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.comes(7, Some(&[0]));
    node.eventually(|text| text.contains("jobledger_job_gpu_info"));
    let job = node.jobs.pop().unwrap();
    node.comes(8, Some(&[]));
    node.goes(8);
    node.read_anew();
    driver.change(|units| units[0].counts = vec![(Quantity::BUSY, 5 * SECOND)]);
    node.read_anew();
    node.read_anew();
    let total = "jobledger_gpu_busy_seconds_total{gpu=\"0\",uuid=\"GPU-0\"}";
    let text = node.scrape().1;
    assert!(is(&text, total, 0.0), "no job is charged with it\n{text}");
    node.jobs.push(job);
    let text = node.eventually(|text| is(text, total, 5.0));
    assert!(
        is(
            &text,
            "jobledger_job_gpu_busy_seconds_total{jobid=\"7\",gpu=\"0\",uuid=\"GPU-0\",method=\"alone\"}",
            5.0
        ),
        "{text}"
    );
}

#[test]
fn a_job_that_left_is_not_looked_for_again_though_a_scrape_began_before() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.comes(7, Some(&[0]));
    node.eventually(|text| text.contains("jobledger_job_gpu_info"));
    let there = |node: &Node| {
        node.control.0.accounts.with(LONG, |accounts| accounts.jobs.contains_key(&JobRunId(7))).unwrap()
    };
    assert!(there(&node));
    let running = node.jobs[0].clone();
    node.goes(7);
    drop(node.scrape());
    assert!(!there(&node));
    node.jobs[0] = running;
    let text = node.scrape().1;
    assert!(!there(&node), "the job as it was before it left\n{text}");
    assert!(
        text.contains("jobledger_job_gpu_allocated_seconds_total{jobid=\"7\""),
        "what it had is known\n{text}"
    );
}

#[test]
fn a_run_that_was_dropped_after_the_snapshot_was_made_does_not_come_back() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    node.comes(7, Some(&[0]));
    node.eventually(|text| is(text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 1.0));
    let observer = node.built.observer.clone().unwrap();
    observer.job_left_node(JobRunId(7));
    observer.job_removed(JobRunId(7), Disposition::Dropped);
    drop(node.scrape());
    let text = node.scrape().1;
    assert!(is(&text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 0.0), "{text}");
    assert!(!text.contains("jobledger_job_gpus{"), "{text}");
}

/// The kernel's device program of a job that is over is there as long as its directory.
#[test]
fn a_directory_without_a_process_has_no_gpu() {
    let driver = Driver::new(vec![unit(0)]);
    let mut node = Node::new(&driver);
    let left_behind = node.directory(6, Some(&[0]));
    node.pending.push(left_behind);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.comes(7, Some(&[0]));
    let text = node.eventually(|text| text.contains("jobledger_job_gpu_info{jobid=\"7\""));
    assert!(is(&text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 1.0), "{text}");
    assert!(text.contains("shared=\"false\"") && !text.contains("shared=\"true\""), "{text}");
}

/// They wait for their ids, or for readers of the run before them.
#[test]
fn jobs_that_were_pending_when_the_driver_came_have_their_gpus() {
    let driver = Driver::new(vec![unit(0)]);
    driver.present.store(false, Ordering::Relaxed);
    let mut node = Node::new(&driver);
    let waiting = node.directory(7, Some(&[0]));
    node.built.observer.as_ref().unwrap().job_started(&waiting);
    node.pending.push(waiting);
    assert!(node.scrape().0.is_err());
    driver.present.store(true, Ordering::Relaxed);
    node.eventually(|text| text.contains("jobledger_gpu_up"));
    node.jobs.append(&mut node.pending);
    node.eventually(|text| is(text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 1.0));
}

/// The state is saved now and then, on nodes without a GPU too.
#[test]
fn a_save_without_a_driver_takes_no_job_in() {
    let driver = Driver::new(vec![unit(0)]);
    driver.present.store(false, Ordering::Relaxed);
    let mut node = Node::new(&driver);
    node.comes(7, Some(&[0]));
    node.built.durable.as_ref().unwrap().save().unwrap();
    node.built.observer.as_ref().unwrap().job_removed(JobRunId(7), Disposition::Dropped);
    node.jobs.clear();
    assert!(node.scrape().0.is_err());
    driver.present.store(true, Ordering::Relaxed);
    let text = node.eventually(|text| text.contains("jobledger_gpu_up"));
    assert!(is(&text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 0.0), "{text}");
}

#[test]
fn jobs_that_came_before_the_driver_have_their_gpus() {
    let driver = Driver::new(vec![unit(0)]);
    driver.present.store(false, Ordering::Relaxed);
    let mut node = Node::new(&driver);
    node.comes(7, Some(&[0]));
    assert!(node.scrape().0.is_err());
    driver.present.store(true, Ordering::Relaxed);
    node.eventually(|text| is(text, "jobledger_gpu_jobs{gpu=\"0\",uuid=\"GPU-0\"}", 1.0));
}

const BUSY: &str =
    "jobledger_job_gpu_busy_seconds_total{jobid=\"7\",gpu=\"1\",uuid=\"GPU-1\",method=\"alone\"}";

/// A node where job 7 had the second of two GPUs for two seconds of work, and ended.
fn with_the_end_of_a_job() -> Node {
    let mut node = Node::new(&Driver::new(vec![unit(0), unit(1)]));
    node.comes(7, Some(&[1]));
    node.eventually(|text| is(text, "jobledger_gpu_jobs{gpu=\"1\",uuid=\"GPU-1\"}", 1.0));
    node.read_anew();
    node.driver.change(|units| units[1].counts = vec![(Quantity::BUSY, 2 * SECOND)]);
    node.read_anew();
    node.goes(7);
    node
}

/// The page with the end of its job has it, and it is no unit of the node any more.
#[test]
fn a_unit_that_is_gone_is_shown_of_the_jobs_that_had_it() {
    let mut node = with_the_end_of_a_job();
    node.driver.change(|units| units.truncate(1));
    node.read_anew();
    node.read_anew();
    let text = node.scrape().1;
    for (series, wanted) in [
        (BUSY, 2.0),
        ("jobledger_gpu_busy_seconds_total{gpu=\"1\",uuid=\"GPU-1\"}", 2.0),
        ("jobledger_gpu_unattributed_busy_seconds_total{gpu=\"1\",uuid=\"GPU-1\"}", 0.0),
    ] {
        assert!(is(&text, series, wanted), "{series} {wanted}\n{text}");
    }
    for family in ["jobledger_job_gpu_info{", "jobledger_job_gpu_allocated_seconds_total{"] {
        assert!(text.contains(family), "{family}\n{text}");
    }
    assert!(!text.contains("jobledger_gpu_up{gpu=\"1\""), "no alert\n{text}");
    node.built.observer.as_ref().unwrap().job_removed(JobRunId(7), Disposition::Exported);
    node.jobs.clear();
    node.eventually(|text| !text.contains("GPU-1"));
}

#[test]
fn a_unit_that_goes_before_a_restart_or_during_it_is_shown_of_the_jobs_that_had_it() {
    for before in [true, false] {
        let mut node = with_the_end_of_a_job();
        drop(node.scrape());
        node.driver.change(|units| units.truncate(1));
        if before {
            node.read_anew();
            drop(node.scrape());
        }
        node.restart();
        let text = node.eventually(|text| text.contains("jobledger_gpu_up{gpu=\"0\"") && is(text, BUSY, 2.0));
        assert!(text.contains("jobledger_job_gpu_memory_limit_bytes{jobid=\"7\",gpu=\"1\""), "{text}");
        assert!(!text.contains("jobledger_gpu_up{gpu=\"1\""), "no alert\n{text}");
    }
}
