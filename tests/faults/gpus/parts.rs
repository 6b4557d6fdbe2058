//! GPUs that are divided anew while they are read. Row 13.

use std::collections::BTreeSet;

use super::*;

fn part(slot: u32, name: &str, instance: u32) -> String {
    format!("gpu 0 part {slot} {name} {instance} 0 1 1 16 9856 NVIDIA H100 80GB HBM3 MIG 1g.10gb\n")
}

fn uuids(now: &Exposition, family: &str) -> BTreeSet<String> {
    now.named(family).map(|s| s.label("uuid").unwrap().to_owned()).collect()
}

/// The checks of every scrape include that no series comes twice.
#[test]
fn a_gpu_divided_anew_has_no_part_twice_and_none_that_is_gone() {
    const BOTH: &str = "gpus 2\n";
    let gpus = Gpus::new(BOTH);
    let exporter = gpus.start(&[]);
    let mut accounts = Accounts::default();
    eventually(&exporter, "whole GPUs", |now| up(now).len() == 2);
    // Slots and instances are used again, and parts change places.
    let layouts = [
        vec![(0, "MIG-a", 1), (1, "MIG-b", 2)],
        vec![(0, "MIG-b", 2), (1, "MIG-c", 1), (2, "MIG-d", 3)],
        vec![(0, "MIG-e", 1)],
        vec![(0, "MIG-e", 1), (1, "MIG-e", 1)],
        vec![],
        vec![(6, "MIG-a", 1), (2, "MIG-b", 2)],
    ];
    for (serial, layout) in (1..).zip(layouts) {
        let parts: String =
            layout.iter().map(|(slot, name, instance)| part(*slot, name, *instance)).collect();
        gpus.fake.set(&format!("{BOTH}gpu 0 mig 1\n{parts}gpu 0 migchange {serial}\n"));
        let wholes = (0..2).map(|gpu| format!("GPU-00000000-0000-0000-0000-{gpu:012}"));
        let wanted: BTreeSet<String> =
            wholes.chain(layout.iter().map(|(_, name, _)| (*name).to_owned())).collect();
        let now = eventually(&exporter, &format!("{layout:?}"), |now| {
            accounts_of(now);
            uuids(now, "jobledger_gpu_info") == wanted
        });
        accounts.check(&now);
        assert_eq!(uuids(&now, "jobledger_gpu_up"), wanted);
        assert_eq!(now.value("jobledger_gpu_info", &[("gpu", "0"), ("divided", "true")]), Some(1.0));
        for sample in now.samples().filter(|s| s.name.starts_with("jobledger_gpu_")) {
            assert!(sample.label("uuid").is_none_or(|uuid| wanted.contains(uuid)), "{sample:?}");
        }
        assert!(now.named("jobledger_gpu_up").all(|s| s.value == 1.0));
    }
    gpus.fake.set(&format!("{BOTH}gpu 0 migchange 99\n"));
    let now = eventually(&exporter, "whole again", |now| uuids(now, "jobledger_gpu_up").len() == 2);
    accounts.check(&read_anew(&exporter));
    assert_eq!(now.value("jobledger_gpu_info", &[("gpu", "0"), ("divided", "false")]), Some(1.0));
}

/// While it is divided, too, every account balances.
fn accounts_of(now: &Exposition) {
    Accounts::default().check(now);
}

/// An epilog may do away with the part before any page has the end of its job: the job keeps its series as long as it is retained.
#[test]
fn a_part_is_given_to_a_job_and_taken_away() {
    let two = format!("gpus 1\ngpu 0 mig 1\n{}{}", part(0, "MIG-a", 1), part(1, "MIG-b", 2));
    let gpus = Gpus::new(&two);
    gpus.node.0.remove("run/gpustat/0").remove("run/gpustat/1");
    gpus.node.0.write("run/gpustat/MIG-a", "1\n").write("run/gpustat/MIG-b", "2\n");
    let exporter = gpus.start(&["--jobs.retention=1s"]);
    let mut accounts = Accounts::default();
    let of = |now: &Exposition, job: u32, uuid: &str| {
        now.value("jobledger_job_gpu_info", &[("jobid", &job.to_string()), ("uuid", uuid)])
    };
    let now = eventually(&exporter, "parts of jobs", |now| {
        of(now, 1, "MIG-a").is_some() && of(now, 2, "MIG-b").is_some()
    });
    assert_eq!((of(&now, 1, "MIG-b"), of(&now, 2, "MIG-a")), (None, None));
    gpus.fake.set(&format!("gpus 1\ngpu 0 mig 1\n{}gpu 0 migchange 1\n", part(1, "MIG-b", 2)));
    let of_a = |now: &Exposition, name: &str| now.named(name).any(|s| s.label("uuid") == Some("MIG-a"));
    let now = eventually(&exporter, "a part gone", |now| !of_a(now, "jobledger_gpu_info"));
    accounts.check(&now);
    assert!(!of_a(&now, "jobledger_gpu_up") && !of_a(&now, "jobledger_gpu_down_info"));
    assert!(of(&now, 1, "MIG-a").is_some() && of(&now, 2, "MIG-b").is_some());
    gpus.node.remove_job(1);
    let now = eventually(&exporter, "its end", |now| {
        now.value("jobledger_job_end_time_seconds", &[("jobid", "1")]).is_some()
    });
    accounts.check(&now);
    assert!(of(&now, 1, "MIG-a").is_some() && of_a(&now, "jobledger_job_gpu_allocated_seconds_total"));
    eventually(&exporter, "nothing of it", |now| now.samples().all(|s| s.label("uuid") != Some("MIG-a")));
}
