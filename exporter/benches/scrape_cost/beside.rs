//! Jobs and floors for a comparison with other exporters (tests/peers), by orders on standard input.
//!
//! `beside v1|v2 [FLAG...]`: the flags are those of the exporter whose files the floors read. It prints one JSON object a line: first
//! where the jobs are, then an answer to each order. Whatever it made goes at the end of its input.

use std::io::{BufRead, stdin};

use jobledger_testkit::cgroups::Site;
use jobledger_testkit::crowd::{Crowd, Shape};
use serde_json::{Value, json};

use crate::floor::Floor;
use crate::stats::cost;

/// What a small parallel job has. Its owner is one whom every node knows (nobody): others look the names up in each scrape.
const SHAPE: Shape = Shape { steps: &["step_0"], tasks: 2, owners: &[65_534] };

/// Carries out orders: `jobs N` adds jobs until there are so many, `floor` reads everything once in both ways.
pub(crate) fn serve(arguments: &[String]) {
    let site = match arguments.first().map(String::as_str) {
        Some("v1") => Site::v1_with_memory().expect("v1's memory controller"),
        Some("v2") => Site::v2("slurmstepd.scope").expect("a cgroup2 mount"),
        other => panic!("{other:?}: not a hierarchy"),
    };
    let flags: Vec<String> = arguments.iter().filter(|flag| flag.starts_with("--")).cloned().collect();
    let mut crowd = Crowd::shaped(site, SHAPE);
    say(&json!({
        "exporter": env!("CARGO_BIN_EXE_jobledger-exporter"),
        "cgroupfs": crowd.cgroupfs(),
        "flags": crowd.flags(),
    }));
    let mut floor = None;
    for order in stdin().lock().lines().map_while(Result::ok) {
        match (order.split_once(' '), &mut floor) {
            (Some(("jobs", count)), _) => {
                crowd.grow_to(count.parse().expect("a number of jobs"));
                let traced = of(&crowd, &flags);
                say(&json!({"files": traced.files(), "calls": traced.calls()}));
                floor = Some(traced);
            }
            (None, Some(floor)) if order == "floor" => {
                let opened = cost(|| floor.run());
                say(&json!({"opened": opened, "held": cost(|| floor.run_held())}));
            }
            _ => panic!("{order:?}: not an order here"),
        }
    }
}

/// The files of a scrape with these flags, by one that opens each.
fn of(crowd: &Crowd, flags: &[String]) -> Floor {
    let once = "--jobs.descriptors=0".to_owned();
    Floor::of_an_exporter([&*crowd.flags(), flags, &[once]].concat())
}

fn say(line: &Value) {
    println!("{line}");
}
