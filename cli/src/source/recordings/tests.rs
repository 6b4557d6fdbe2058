use std::fmt::Write;

use super::*;
use crate::testing::THRESHOLDS;

/// Job 7 on a node from 1000 s on, read every 5 s from 1010 until `until`; requeued at 1100.
fn recording(node: &str, until: u32, requeued: bool) -> String {
    let mut text = String::new();
    for time in (1010..=until).step_by(5) {
        let start = if requeued && time >= 1100 { 1100 } else { 1000 };
        let ran = time - start;
        let mut put = |name: &str, labels: &str, value: f64| {
            writeln!(text, "{name}{{jobid=\"7\",{labels}instance=\"{node}\"}} {value} {time}.000").unwrap();
        };
        put("jobledger_job_info", "user=\"alice\",", 1.0);
        put(START, "", f64::from(start));
        put("jobledger_job_cpus", "", 2.0);
        put("jobledger_job_allocated_cpu_seconds_total", "", f64::from(2 * ran));
        put("jobledger_job_cpu_seconds_total", "mode=\"user\",", f64::from(ran));
        put("jobledger_job_cpu_seconds_total", "mode=\"system\",", f64::from(ran) / 2.0);
        put("jobledger_job_memory_anon_bytes", "", f64::from(time));
        put("jobledger_job_memory_shmem_bytes", "", 1.0);
    }
    text + "# EOF\n"
}

async fn report(texts: &[&str], run: WhichRun, now: f64) -> Result<Report, Failure> {
    let recordings = Recordings::new(texts.iter().copied(), THRESHOLDS.clone(), now);
    let id = recordings.job()?;
    let curves = [&metric::CPU_SECONDS];
    recordings
        .report(&Wanted { id: &id, run, bins: 100, step: None, curves: &curves, parts: Parts::Curves })
        .await
}

#[tokio::test]
async fn totals_curves_and_coverage_are_those_of_the_samples() {
    let texts = [recording("n1", 1100, false), recording("n2", 1060, false)];
    let job = report(&[&texts[0], &texts[1]], WhichRun::Last, 1e6).await.unwrap().job;
    let nodes: Vec<_> = job
        .nodes
        .iter()
        .map(|node| {
            let cpu = node.values.get(&metric::CPU_SECONDS).unwrap();
            (node.name.as_str(), node.start, node.seen_until, cpu, node.memory_held_bytes, node.running)
        })
        .collect();
    assert_eq!(
        nodes,
        [
            ("n1", 1000.0, 1100.0, 150.0, Some(1101.0), false),
            ("n2", 1000.0, 1060.0, 90.0, Some(1061.0), false)
        ]
    );
    assert_eq!((job.id, job.identity.user.as_str(), job.state()), (7, "alice", job_report::State::NotSeen));
    // 19 readings of 5 s, and what is before the first.
    assert_eq!(job.nodes[0].coverage, Some(1.0));
    let curves = job.curves.unwrap();
    assert_eq!((curves.start, curves.end, curves.step, curves.bins()), (1000.0, 1100.0, 5.0, 20));
    let of_n1 = curves.curves.iter().find(|curve| curve.node == Some(0)).unwrap();
    assert!(of_n1.values.iter().all(|value| (value - 1.5).abs() < 1e-9), "{:?}", of_n1.values);
    let of_n2 = curves.curves.iter().find(|curve| curve.node == Some(1)).unwrap();
    assert!(of_n2.values[..12].iter().all(|value| (value - 1.5).abs() < 1e-9), "{:?}", of_n2.values);
    assert!(of_n2.values[12..].iter().all(|value| value.is_nan()), "{:?}", of_n2.values);
}

/// Step 0 with two tasks runs from 1033 to 1067 on 1.2 CPUs, and is read every 5 s from 1035 on; its counters remain.
fn with_step(node: &str, text: &str) -> String {
    let mut more = String::new();
    for time in (1035..=1100_u32).step_by(5) {
        let mut put = |name: &str, labels: &str, value: f64| {
            writeln!(more, "{name}{{jobid=\"7\",step=\"0\",{labels}instance=\"{node}\"}} {value} {time}")
                .unwrap();
        };
        let ran = f64::from(time.min(1067) - 1033);
        put("jobledger_step_cpu_seconds_total", "mode=\"user\",", ran);
        put("jobledger_step_cpu_seconds_total", "mode=\"system\",", ran / 5.0);
        put("jobledger_task_cpu_seconds_total", "task=\"1\",mode=\"user\",", ran / 2.0);
        put("jobledger_task_cpu_seconds_total", "task=\"0\",mode=\"user\",", ran / 4.0);
        if time < 1067 {
            put("jobledger_step_processes", "", 3.0);
        }
    }
    text.replace("# EOF\n", &(more + "# EOF\n"))
}

#[tokio::test]
async fn steps_and_tasks_are_apart_from_the_job() {
    let text = with_step("n1", &recording("n1", 1100, false));
    let recordings = Recordings::new([text.as_str()], THRESHOLDS.clone(), 1e6);
    let id = recordings.job().unwrap();
    let curves = [&metric::CPU_SECONDS, &metric::PROCESSES];
    let wanted =
        Wanted { id: &id, run: WhichRun::Last, bins: 100, step: None, curves: &curves, parts: Parts::Curves };
    let job = recordings.report(&wanted).await.unwrap().job;
    let parts: Vec<_> = job.nodes[0]
        .parts
        .iter()
        .map(|part| (part.step.as_str(), part.task.as_deref(), part.values.get(&metric::CPU_SECONDS)))
        .collect();
    let expected = [("0", None, Some(34.0 * 1.2)), ("0", Some("0"), Some(8.5)), ("0", Some("1"), Some(17.0))];
    assert_eq!(parts, expected);
    assert_eq!(job.nodes[0].values.get(&metric::CPU_SECONDS), Some(150.0));
    let curves = job.curves.unwrap();
    assert_eq!((curves.step, curves.curves.len(), curves.of_parts.len()), (5.0, 1, 4));
    let used =
        curves.of_parts.iter().find(|curve| curve.metric == &metric::CPU_SECONDS && curve.part == Some(0));
    let used: Vec<f64> = used.unwrap().values.iter().map(|value| (value * 100.0).round() / 100.0).collect();
    // It began between 1030 and 1035, and ended between 1065 and 1070.
    assert!(used[..6].iter().chain(&used[14..]).all(|value| value.is_nan()), "{used:?}");
    assert_eq!(used[6..14], [0.48, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 0.48]);
    let none = recordings.report(&Wanted { parts: Parts::None, ..wanted }).await.unwrap().job;
    assert!(none.nodes[0].parts.is_empty() && none.curves.unwrap().of_parts.is_empty());
}

#[tokio::test]
async fn a_job_runs_while_it_is_recorded() {
    let text = recording("n1", 1100, false);
    let running = async |now| report(&[&text], WhichRun::Last, now).await.unwrap().job.nodes[0].running;
    assert_eq!((running(1130.0).await, running(1170.0).await), (true, false));
    let ended = text + "jobledger_job_end_time_seconds{jobid=\"7\",instance=\"n1\"} 1098 1101\n";
    let job = report(&[&ended], WhichRun::Last, 1102.0).await.unwrap().job;
    assert_eq!((job.nodes[0].running, job.nodes[0].end), (false, Some(1098.0)));
}

#[tokio::test]
async fn runs_are_told_apart() {
    let end = "jobledger_job_exit_code{jobid=\"7\",instance=\"n1\"} 3 1150\n\
               jobledger_job_state_info{jobid=\"7\",state=\"FAILED\",instance=\"n1\"} 1 1150\n\
               jobledger_job_end_time_seconds{jobid=\"7\",instance=\"n1\"} 1150 1150\n";
    let text = recording("n1", 1150, true) + end;
    // Memory grows with time, and the exit code is the second run's.
    let first = report(&[&text], WhichRun::Number(1), 1e6).await.unwrap().job;
    assert_eq!((first.nodes[0].memory_held_bytes, first.ended), (Some(1096.0), None));
    let last = report(&[&text], WhichRun::Last, 1e6).await.unwrap().job;
    assert_eq!((last.nodes[0].memory_held_bytes, last.ended.unwrap().exit_code), (Some(1151.0), Some(3)));
    let cpu = async |run| {
        let report = report(&[&text], run, 1e6).await?;
        let node = &report.job.nodes[0];
        Ok::<_, Failure>((report.job.run, report.job.runs, node.start, node.values.get(&metric::CPU_SECONDS)))
    };
    assert_eq!(cpu(WhichRun::Last).await, Ok((2, 2, 1100.0, Some(75.0))));
    assert_eq!(cpu(WhichRun::Number(1)).await, Ok((1, 2, 1000.0, Some(142.5))));
    assert_eq!(
        cpu(WhichRun::Number(3)).await.unwrap_err().says,
        "job 7 was seen in these runs: --run with one of 1, 2"
    );
}

#[tokio::test]
async fn gpus_are_those_of_their_run() {
    let mut text = recording("n1", 1150, true);
    for time in (1010..=1150_u32).step_by(5) {
        let gpu = if time < 1100 { "a" } else { "b" };
        let labels = format!("jobid=\"7\",instance=\"n1\",gpu=\"0\",uuid=\"{gpu}\"");
        for (name, value) in [(GPU_INFO, 1), ("jobledger_job_gpu_allocated_seconds_total", time)] {
            writeln!(text, "{name}{{{labels}}} {value} {time}.000").unwrap();
        }
    }
    let gpus = async |run| {
        let job = report(&[&text.replace("# EOF\n", "")], run, 1e6).await.unwrap().job;
        job.gpus().map(|(_, gpu)| gpu.uuid.clone()).collect::<Vec<_>>()
    };
    assert_eq!(gpus(WhichRun::Number(1)).await, ["a"]);
    assert_eq!(gpus(WhichRun::Last).await, ["b"]);
}

#[tokio::test]
async fn a_run_that_was_recorded_twice_is_one() {
    let text = recording("n1", 1100, false);
    let later = text.replace(" 1000 1", " 1000.01 1");
    let job = report(&[&text, &later], WhichRun::Last, 1e6).await.unwrap().job;
    assert_eq!((job.runs, job.nodes[0].start, job.nodes[0].coverage), (1, 1000.01, Some(1.0)));
}

/// The next run is shown once all readers have the end of the one before.
#[tokio::test]
async fn a_run_has_nothing_of_the_one_before_that_is_still_shown() {
    let mut text = recording("n1", 1120, false).replace("# EOF\n", "");
    for time in (1010..=1150_u32).step_by(5) {
        let gpu = if time <= 1120 { "a" } else { "b" };
        let mut put = |name: &str, labels: &str, value: u32| {
            writeln!(text, "{name}{{jobid=\"7\",{labels}instance=\"n1\"}} {value} {time}.000").unwrap();
        };
        let labels = format!("gpu=\"0\",uuid=\"{gpu}\",");
        put(GPU_INFO, &labels, 1);
        put("jobledger_job_gpu_allocated_seconds_total", &labels, time);
        if time > 1120 {
            put(START, "", 1105);
            put("jobledger_job_memory_anon_bytes", "", 9);
        } else if time > 1090 {
            put(END, "", 1090);
        }
    }
    let job = async |run| {
        let job = report(&[&text], run, 1e6).await.unwrap().job;
        let node = &job.nodes[0];
        let gpus: Vec<_> = job.gpus().map(|(_, gpu)| gpu.uuid.clone()).collect();
        (job.runs, node.start, node.end, node.memory_held_bytes, gpus)
    };
    let first = (2, 1000.0, Some(1090.0), Some(1121.0), vec!["a".to_owned()]);
    assert_eq!(job(WhichRun::Number(1)).await, first);
    assert_eq!(job(WhichRun::Last).await, (2, 1105.0, None, Some(9.0), vec!["b".to_owned()]));
}

#[tokio::test]
async fn odd_recordings_are_errors_or_reports() {
    let info = "jobledger_job_info{jobid=\"7\",instance=\"n\"} 1 10\n";
    let of = async |more: &str| report(&[&format!("{info}{more}")], WhichRun::Last, 1e6).await.map(|_| ());
    assert!(of("").await.is_err());
    // A start after its sample, and numbers that are none.
    for start in ["1e300", "NaN", "-Inf", "1e18", "-1e18"] {
        assert!(of(&format!("{START}{{jobid=\"7\",instance=\"n\"}} {start} 10\n")).await.is_err(), "{start}");
    }
    let two = report(&[info, "jobledger_job_info{jobid=\"8\"} 1 1\n"], WhichRun::Last, 0.0).await;
    assert_eq!(two.unwrap_err().says, "which job? There are 7, 8");
}
