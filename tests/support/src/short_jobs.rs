//! A node of ordinary files whose jobs come, use their time and go, and a Prometheus that scrapes its exporter.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::eventually;
use crate::exporter::Exporter;
use crate::machine::Machine;
use crate::servers::Prometheus;

const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
/// CPU time that each job uses.
pub const SECONDS: f64 = 42.25;
const USEC: u64 = 42_250_000;
/// Below the ids of all jobs.
pub const FIRST_ID: u32 = 100;

/// The node and its exporter.
#[derive(Debug)]
pub struct ShortJobs {
    machine: Machine,
    exporter: Exporter,
    spent: u64,
    last_id: u32,
}

fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

impl ShortJobs {
    /// A node without a job. `flags` are added to the paths.
    ///
    /// # Panics
    /// As [`Exporter::start`].
    #[must_use]
    pub fn start(binary: &str, flags: &[&str]) -> Self {
        let machine = Machine::empty();
        machine.write("cgroup/cgroup.controllers", "cpu\n").write("cgroup/cgroup.procs", "");
        machine.write("proc/stat", "cpu 1 1 1 1\nbtime 1700000000\n").mkdir(format!("{SCOPE}/system"));
        machine.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), stat(0));
        machine.write("run/jobledger/jobs/.keep", "");
        let mut all = machine.path_flags();
        all.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        // The log says when a job is followed.
        all.push("--log.level=debug".to_owned());
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let exporter = Exporter::start(binary, &all);
        Self { machine, exporter, spent: 0, last_id: FIRST_ID }
    }

    /// Its exporter.
    #[must_use]
    pub fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    /// Id of the latest job.
    #[must_use]
    pub fn last_id(&self) -> u32 {
        self.last_id
    }

    /// A Prometheus that scrapes it every three seconds. `protocols` is empty, or a setting of the job with a comma.
    ///
    /// # Panics
    /// As [`Prometheus::start_program`].
    #[must_use]
    pub fn scraped_by(&self, program: &Path, flags: &[&str], protocols: &str) -> Prometheus {
        let config = format!(
            "global: {{scrape_interval: 3s, scrape_timeout: 3s}}\n\
             scrape_configs: [{{job_name: nodes, {protocols}static_configs: [{{targets: ['{}']}}]}}]\n",
            self.exporter.address()
        );
        let server = Prometheus::start_program(program, flags, &config, &[]);
        server.wait_for("up == 1", |r| r.len() == 1);
        server
    }

    /// A job of alice and an account comes, uses its time, and goes after so long. Its id.
    ///
    /// # Panics
    /// If the exporter does not follow it.
    pub fn run(&mut self, account: &str, time: Duration) -> u32 {
        self.last_id += 1;
        let id = self.last_id;
        let metadata = format!("job_id={id}\nuser=alice\naccount={account}\n");
        self.machine.write(format!("run/jobledger/jobs/{id}"), metadata);
        let job = format!("{SCOPE}/job_{id}");
        let user = format!("{job}/step_0/user");
        self.machine.write(format!("{user}/cgroup.events"), "populated 1\n");
        self.machine.write(format!("{job}/cgroup.procs"), "").write(format!("{job}/cpu.stat"), stat(0));
        self.machine.write(format!("{job}/cgroup.events"), "populated 1\n");
        let followed = format!("job_{id}\"");
        eventually("the job is followed", || self.exporter.log().contains(&followed));
        sleep(time);
        self.spent += USEC;
        self.machine.write(format!("{job}/cpu.stat"), stat(USEC));
        self.machine.write(format!("{SCOPE}/cpu.stat"), stat(self.spent));
        self.machine.write(format!("{user}/cgroup.events"), "populated 0\n");
        sleep(Duration::from_millis(50));
        self.machine.remove(&job);
        id
    }
}
