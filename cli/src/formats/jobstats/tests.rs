use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::*;
use crate::testing;

fn zone() -> TimeZone {
    TimeZone::get("America/New_York").unwrap()
}

fn page(report: &Report) -> String {
    render(report, &Options { node_rows: 8, zone: zone() })
}

fn decoded(blob: &Blob) -> Value {
    use base64::Engine;
    let content = blob.text.strip_prefix("JS1:H4sI").unwrap_or_else(|| panic!("{}", blob.text));
    let bytes = base64::engine::general_purpose::STANDARD.decode(format!("H4sI{content}")).unwrap();
    assert_eq!(bytes[4..8], [0; 4], "no time");
    let mut json = String::new();
    GzDecoder::new(bytes.as_slice()).read_to_string(&mut json).unwrap();
    assert!(json.is_ascii() && json.starts_with(r#"{"nodes":{"#) && json.ends_with(r#""gpus":4}"#), "{json}");
    serde_json::from_str(&json).unwrap()
}

/// Lines that jobstats 1.0 prints of a job with these numbers.
const OF_JOBSTATS: [&str; 24] = [
    "                              Slurm Job Statistics",
    "         Job ID: 39798795",
    "   User/Account: aturing/math",
    "          State: COMPLETED",
    "          Nodes: 2",
    "      CPU Cores: 48",
    "           GPUs: 4",
    "  QOS/Partition: della-gpu/gpu",
    "        Cluster: della",
    "     Start Time: Fri Mar 4, 2022 at 6:56 AM",
    "       Run Time: 18:41:56",
    "     Time Limit: 4-00:00:00",
    "  CPU utilization  [||||                                            9%]",
    "  CPU memory usage [|||                                             6%]",
    "  GPU utilization  [||||||||||||||||||||||||                       49%]",
    "  GPU memory usage [|||||||||||||||||||||||||||||||||              66%]",
    "  CPU utilization per node (CPU time used/run time)",
    "      node1: 1-21:41:20/18-16:46:24 (efficiency=10.2%)",
    "  Total used/runtime: 3-16:30:15/37-09:32:48, efficiency=9.9%",
    "      node1: 7.9GB/128GB (337.1MB/5.3GB per core of 24)",
    "  CPU memory usage per node - used/allocated",
    "      node2 (GPU 2): 0% <-- GPU was not used",
    "      node2 (GPU 3): 67.5%",
    "      node1 (GPU 0): 26.5GB/40GB (66.2%)",
];

#[test]
fn the_page_is_that_of_jobstats() {
    let page = page(&testing::report(testing::job()));
    for line in OF_JOBSTATS {
        assert!(page.lines().any(|own| own == line), "{line:?} is not in\n{page}");
    }
    assert!(page.contains("      #SBATCH --mem=16G\n"), "{page}");
}

/// What is before the notes.
fn utilization(page: &str) -> &str {
    page.split_once("  Notes\n").map_or(page, |(before, _)| before)
}

#[test]
fn what_is_not_known_has_no_line() {
    let mut job = testing::job();
    (job.ended, job.time_limit, job.cluster) = (None, None, None);
    job.identity.account.clear();
    job.nodes[1].values = job_report::Values::default();
    let page = page(&testing::report(job));
    for line in ["          State: UNKNOWN", "   User/Account: aturing/-"] {
        assert!(page.lines().any(|own| own == line), "{line:?} is not in\n{page}");
    }
    assert!(
        !page.contains("Time Limit:") && !page.contains("Cluster:") && !utilization(&page).contains("node2"),
        "{page}"
    );
    assert!(page.contains("Of 1 of the nodes something is not known"), "{page}");
}

#[test]
fn of_many_nodes_the_worst_are_shown() {
    let mut job = testing::job();
    for number in 0..20u32 {
        let mut node = job.nodes[0].clone();
        node.name = format!("more{number}");
        job.nodes.push(node);
    }
    let page = render(&testing::report(job), &Options { node_rows: 2, zone: zone() });
    // node2 has the GPU that was never used.
    assert_eq!(utilization(&page).matches("node2").count(), 1 + 1 + 2 + 2, "{page}");
    assert_eq!(page.matches("      and 20 nodes that were used more\n").count(), 4, "{page}");
}

#[test]
fn sizes_are_those_of_jobstats() {
    assert_eq!(size(353_468_416.0), "337.1MB");
    assert_eq!([allocated(1023.0), allocated(1024.0), allocated(5.5 * 1024.0)], ["1023B", "1KB", "5.5KB"]);
}

#[test]
fn the_blob_has_what_its_readers_divide() {
    let report = testing::report(testing::job());
    let gib = 1_073_741_824u64;
    let node = |seconds: u64, held: f64, gpus: Value| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let held = (held * 1_073_741_824.0).round() as u64;
        let all = |value: u64| {
            gpus.as_object().unwrap().keys().map(|gpu| (gpu.clone(), json!(value))).collect::<Value>()
        };
        json!({
            "total_memory": 128 * gib, "used_memory": held, "total_time": seconds, "cpus": 24,
            "gpu_total_memory": all(40 * gib), "gpu_used_memory": all(53 * gib / 2), "gpu_utilization": gpus,
        })
    };
    let expected = json!({
        "nodes": {
            "node1": node(164_480, 7.9, json!({"1": 64.6, "0": 65.5})),
            "node2": node(154_135, 7.8, json!({"2": 0, "3": 67.5})),
        },
        "total_time": 67_316,
        "gpus": 4,
    });
    assert_eq!(decoded(&blob(&report).unwrap()), expected);
    let text = String::from_utf8(json(&report).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    assert!(text.starts_with(
        "{\n    \"gpus\": 4,\n    \"nodes\": {\n        \"node1\": {\n            \"cpus\": 24,\n"
    ));
}

#[test]
fn readers_find_nothing_used_beyond_what_there_is() {
    let mut job = testing::job();
    let node = &mut job.nodes[0];
    node.values.set(&metric::CPU_SECONDS, 24.0 * 67_316.0 * 1.002);
    node.memory_held_bytes = Some(129.0 * 1024f64.powi(3));
    node.gpus[0].values.set(&metric::GPU_MEMORY_PEAK_BYTES, 41.0 * 1024f64.powi(3));
    // Two parts of a GPU have its minor number.
    for part in &mut node.gpus {
        (part.minor, part.profile) = ("1".to_owned(), "1g.5gb".to_owned());
    }
    let node = &decoded(&blob(&testing::report(job)).unwrap())["nodes"]["node1"];
    assert_eq!(node["total_time"], 24 * 67_316);
    assert_eq!(node["used_memory"], node["total_memory"]);
    assert_eq!(node["gpu_used_memory"]["0"], node["gpu_total_memory"]["0"]);
    assert_eq!(node["gpu_utilization"], json!({"0": 64.6, "1": 65.5}));
}

#[test]
fn names_that_are_alike_hide_no_node() {
    let blob = decoded(&blob(&testing::report(testing::named("né"))).unwrap());
    assert_eq!(blob["nodes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["né", "né_2"]);
    assert_eq!(blob["nodes"]["né"]["gpu_utilization"], json!({"né": 64.6, "né_2": 65.5}));
}

#[test]
fn a_job_of_less_than_a_minute_is_short_and_one_without_numbers_has_none() {
    let mut job = testing::job();
    job.nodes.iter_mut().for_each(|node| node.values = job_report::Values::default());
    let none = blob(&testing::report(job)).unwrap();
    let mut job = testing::job();
    for node in &mut job.nodes {
        node.seen_until = node.start + 59.0;
        node.end = Some(node.seen_until);
    }
    let short = blob(&testing::report(job)).unwrap();
    assert_eq!([none.text.as_str(), short.text.as_str()], ["JS1:None", "JS1:Short"]);
}

#[test]
fn what_has_no_room_is_left_out_and_said() {
    // Numbers that do not repeat, since those would take no room.
    let job = |nodes: u32| {
        let mut job = testing::job();
        let first = job.nodes.remove(0);
        let mut state = 1u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state) / f64::from(u32::MAX)
        };
        job.nodes = (0..nodes)
            .map(|number| {
                let mut node = first.clone();
                node.name = format!("node{number}");
                node.values.set(&metric::CPU_SECONDS, random() * 1e6);
                node.memory_held_bytes = Some(random() * 1e11);
                node.gpus = (0..8)
                    .map(|gpu| {
                        let mut each = node.gpus[0].clone();
                        each.minor = gpu.to_string();
                        each.values.set(&metric::GPU_MEMORY_PEAK_BYTES, random() * 4e10);
                        each.values.set(&metric::GPU_BUSY_SECONDS, random() * 6e4);
                        each
                    })
                    .collect();
                node
            })
            .collect();
        testing::report(job)
    };
    let some = blob(&job(1000)).unwrap();
    assert!(some.text.len() < 60_004 && some.remark.unwrap().contains("GPUs"), "{}", some.text.len());
    assert!(some.text.starts_with("JS1:H4s"));
    let none = blob(&job(4000)).unwrap();
    assert_eq!(none.text, "JS1:None");
    assert!(none.remark.unwrap().contains("no data"));
}
