//! A call of the driver that does not return. Row 10.

use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::http;
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// One thread hangs and nothing waits for it: no scrape, no order for ever, not the end.
#[test]
fn a_call_that_hangs_costs_one_thread_and_the_gauges() {
    let gpus = Gpus::new(EIGHT);
    let mut exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    let before =
        eventually(&exporter, "GPUs", |now| all_up(now) && of_job(now, "jobledger_job_gpus", 1) == Some(1.0));
    accounts.check(&before);
    let allocated = |now: &Exposition| of_job(now, "jobledger_job_gpu_allocated_seconds_total", 1).unwrap();
    // Threads of the web side come and go.
    let of_gpus =
        |exporter: &Exporter| threads(exporter).iter().filter(|name| name.starts_with("gpu-")).count();
    assert_eq!(of_gpus(&exporter), 1);
    let most = threads(&exporter).len() + 4;

    gpus.fake.set(&format!("{EIGHT}hang nvmlDeviceGetTemperature\n"));
    let begun = Instant::now();
    let mut scrapes = 0;
    let hanging = loop {
        let (slept, now) = quiet_time(|| scrape(&exporter));
        assert!(slept < Duration::from_secs(2), "{slept:?}");
        assert!(threads(&exporter).len() <= most, "{:?}", threads(&exporter));
        accounts.check(&now);
        scrapes += 1;
        if state(&now, NVIDIA) == "hanging" {
            break now;
        }
        assert!(begun.elapsed() < LONGEST);
        thread::sleep(Duration::from_millis(50));
    };
    assert!(
        begun.elapsed() > Duration::from_secs(8),
        "a slow call is not one that hangs: {:?}",
        begun.elapsed()
    );
    assert!(scrapes > 5, "{scrapes}");
    assert_eq!(of_gpus(&exporter), 1, "no second one beside it");
    assert_eq!(success(&hanging, "gpu"), Some(0.0));
    assert!(errors(&hanging, "gpu", "timeout") >= Some(1.0));
    assert!(hanging.family(TEMPERATURE).is_none(), "what is not known is absent");
    assert!(hanging.family("jobledger_job_gpu_utilization_ratio").is_none());
    assert!(up(&hanging).len() == 8 && up(&hanging).values().all(|up| !up), "known from before, and not up");
    assert!(allocated(&hanging) > allocated(&before) + 8.0, "the job has it, whether it can be read or not");
    assert!(user_seconds(&hanging, 1).is_some(), "the other collectors go on");
    let (slept, release) = quiet_time(|| gpus.order("release"));
    assert!(!release.status.success() && slept < Duration::from_secs(26), "{slept:?} {release:?}");
    assert!(String::from_utf8_lossy(&release.stderr).contains("hangs"), "{release:?}");
    gpus.order("resume");

    gpus.fake.set(EIGHT);
    let back = eventually(&exporter, "recovery", |now| all_up(now) && now.family(TEMPERATURE).is_some());
    accounts.check(&back);
    assert_eq!(success(&back, "gpu"), Some(1.0), "{}", detail(&back, "gpu"));
    assert_eq!(of_gpus(&exporter), 1);

    gpus.fake.set(&format!("{EIGHT}hang nvmlDeviceGetFieldValues\nhang exit\n"));
    thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_raw(exporter.pid().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(exporter.wait(Duration::from_secs(6)).success());
}

/// A driver that never answers at all, from the start.
#[test]
fn a_driver_that_does_not_even_open_holds_up_neither_start_nor_end() {
    let gpus = Gpus::new(&format!("{EIGHT}hang nvmlInit_v2\n"));
    let (slept, mut exporter) = quiet_time(|| gpus.start(&[]));
    assert!(slept < Duration::from_secs(5), "{slept:?}");
    let (slept, now) = quiet_time(|| scrape(&exporter));
    assert!(slept < Duration::from_secs(2) && state(&now, NVIDIA) == "starting", "{slept:?}");
    assert!(now.family("jobledger_gpu_up").is_none() && user_seconds(&now, 2).is_some());
    assert_eq!(of_job(&now, "jobledger_job_gpus", 1), None, "which GPUs there are is not known");
    kill_process(Pid::from_raw(exporter.pid().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(exporter.wait(Duration::from_secs(6)).success());
}

/// Somebody asks what is wrong on a node whose driver hangs, and gets an answer and his shell back.
#[test]
fn a_check_ends_beside_a_driver_that_hangs_and_says_so() {
    let gpus = Gpus::new(&format!("{EIGHT}hang nvmlDeviceGetFieldValues\nhang exit\n"));
    let flags = gpus.flags(&["--check"]);
    let (slept, output) = quiet_time(|| Command::new(BINARY).args(&flags).output().unwrap());
    assert!(slept < Duration::from_secs(20), "{slept:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    let line = report.lines().find(|line| line.starts_with("gpu ")).unwrap();
    assert!(line.contains("timeout") && output.status.code() == Some(1), "{report}");
}

/// Row 16: no scrape asks the driver, however many there are.
#[test]
fn a_hundred_scrapes_at_once_ask_the_driver_nothing() {
    let gpus = Gpus::new(EIGHT);
    let exporter = gpus.start(&["--collector.gpu.period=5m", "--web.max-requests=128", "--web.scrapers="]);
    eventually(&exporter, "GPUs", |now| all_up(now) && of_job(now, "jobledger_job_gpus", 2) == Some(1.0));
    // The reading that jobs which came at the start asked for.
    thread::sleep(Duration::from_secs(2));
    let ((), calls) = gpus.fake.calls(|| {
        thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    let answer = http::get(exporter.address(), "/metrics", &[], QUIET).unwrap();
                    assert!(answer.status == 200 && answer.text().contains(TEMPERATURE));
                });
            }
        });
    });
    assert!(calls.is_empty(), "{calls:?}");
}
