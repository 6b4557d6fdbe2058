//! What each source of the node costs in a scrape, beside the bare reading of its files, on a machine that has what it reads.

use jobledger_testkit::machine::Machine;

use crate::config;
use crate::direct::Direct;
use crate::floor::Floor;
use crate::stats::{cost, median, row};

/// A collector and a fixture machine with what it reads.
const SOURCES: &[(&str, &str)] = &[
    ("energy", "energy-intel-2s"),
    ("energy", "energy-cray"),
    ("energy", "energy-grace"),
    ("infiniband", "v2-infiniband"),
    ("slingshot", "v2-slingshot"),
    ("node_network", "vm-devices"),
    ("node_disk", "vm-devices"),
    ("nfs", "v2-nfs"),
    ("lustre", "v2-lustre2.15"),
    // A node that has nothing of it.
    ("energy", "v2-idle"),
    ("infiniband", "v2-idle"),
    ("nfs", "v2-idle"),
    ("lustre", "v2-idle"),
];
const ROUNDS: usize = 1000;

pub(crate) fn each() {
    println!("\n## Sources of the node, each alone, on fixture machines\n");
    println!(
        "Median CPU time, microseconds. The floor reads the same files; both are without the table of jobs.\n"
    );
    row(&["source", "machine", "files", "series", "floor", "collector", "ratio"]);
    row(&["---", "---", "---:", "---:", "---:", "---:", "---:"]);
    for (name, fixture) in SOURCES.iter().copied() {
        let machine = Machine::fixture(fixture);
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        flags.push("--collector.disable-defaults".to_owned());
        let mut table = Floor::of_an_exporter(flags.clone());
        flags.push(format!("--collector.{name}"));
        let mut floor = Floor::of_an_exporter(flags.clone());
        let mut direct = Direct::new(&config(&flags));
        for _ in 0..20 {
            direct.scrape();
            floor.run();
            table.run();
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            with.push(cost(|| floor.run()));
            without.push(cost(|| table.run()));
            direct.scrape();
        }
        let bare = median(&mut with) - median(&mut without);
        let own = direct.part(name);
        row(&[
            name,
            fixture,
            &(floor.files() - table.files()).to_string(),
            &direct.series().to_string(),
            &format!("{bare:.0}"),
            &format!("{own:.0}"),
            &format!("{:.2}", own / bare.max(1.0)),
        ]);
    }
}
