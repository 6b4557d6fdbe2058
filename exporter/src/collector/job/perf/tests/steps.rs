//! Steps and tasks of jobs, where cgroups are followed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use kernel_files::Buffer;
use slurm_jobs::Step;

use super::*;

const LEVELS: Levels = Levels { steps: true, tasks: true };

/// A job with a batch script and a step of two tasks.
struct Steps {
    node: Node,
    job: Job,
}

impl Steps {
    /// `follows` as where counters are divided in BPF.
    fn new(follows: bool) -> Self {
        let options = PerfOptions { plan: Some(Arc::new(plan())), levels: LEVELS, ..PerfOptions::default() };
        let node = Node::with(options, |world| {
            *world.followed.lock().unwrap() = follows.then(BTreeMap::new);
        });
        let bare = node.v2(7, "0-1", 1000);
        let steps: [(&str, &[&str]); 2] = [("batch", &["0"]), ("0", &["0", "1"])];
        for (step, tasks) in steps {
            for task in tasks {
                node.machine.write(&format!("cgroup/job_7/step_{step}/user/task_{task}/cgroup.procs"), "1\n");
            }
        }
        let steps = job(7, node.machine.v2("job_7"), &steps).steps;
        Self { node, job: Job { steps, ..bare } }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.node.machine.roots().cgroup(&format!("job_7/{below}"))
    }

    /// A task counts cycles and instructions on a CPU.
    fn run(&self, (step, task): (&str, &str), cpu: u32, counts: [u64; 2]) {
        let [of_step, of_task] =
            [step.to_owned(), format!("{step}/user/{task}")].map(|below| self.path(&below));
        let cgroups = [&*self.path(""), &of_step, &of_task];
        self.node.world.run_in(&cgroups, cpu, "flops", 1_000_000, &counts);
        self.node.world.run_in(&cgroups, cpu, "branches", 1_000_000, &[1]);
    }

    fn scrape(&mut self, jobs: &[&Job]) -> String {
        self.node.start(jobs);
        let mut snapshot =
            snapshot_of(self.node.machine.roots(), jobs.iter().map(|job| (*job).clone()).collect());
        snapshot.levels = LEVELS;
        let (outcome, text) = self.node.bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()), "{text}");
        text
    }

    /// The job without the step of this ordinal, whose directory is gone.
    fn ends(&mut self, name: &str) -> u32 {
        let step: &mut Step = self.job.steps.iter_mut().find(|step| &*step.name == name).unwrap();
        step.ended = Some(Instant::now());
        let ordinal = step.ordinal;
        self.node.machine.remove(&format!("cgroup/job_7/{name}"));
        self.node.bench.run().checkpoint(&self.job, Some(ordinal), LEVELS, &mut Buffer::default());
        ordinal
    }
}

fn step(text: &str, name: &str, step: &str) -> Option<f64> {
    value(text, &format!("jobledger_step_{name}{{jobid=\"7\",step=\"{step}\"}}"))
}

fn task(text: &str, name: &str, step: &str, task: &str) -> Option<f64> {
    value(text, &format!("jobledger_task_{name}{{jobid=\"7\",step=\"{step}\",task=\"{task}\"}}"))
}

#[test]
fn steps_and_tasks_are_counted_from_their_start_on_and_add_up_to_the_job() {
    let mut steps = Steps::new(true);
    let bare = Job { steps: Vec::new(), ..steps.job.clone() };
    steps.node.bench.run().job_started(&bare);
    steps.node.bench.run().step_grew(&steps.job, Some(steps.job.steps[0].ordinal));
    let world = steps.node.world.clone();
    jobledger_testkit::eventually("the batch step and its task, without a scrape", || world.follows() == 2);
    steps.node.bench.run().step_grew(&steps.job, None);
    jobledger_testkit::eventually("all of them", || world.follows() == 5);
    steps.run(("step_batch", "task_0"), 0, [1000, 100]);
    steps.run(("step_0", "task_0"), 0, [2000, 200]);
    steps.run(("step_0", "task_1"), 1, [4000, 400]);
    let job = steps.job.clone();
    let text = steps.scrape(&[&job]);
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(7000.0), "{text}");
    assert_eq!(step(&text, "cycles_total", "batch"), Some(1000.0));
    assert_eq!(step(&text, "cycles_total", "0"), Some(6000.0));
    assert_eq!(step(&text, "instructions_total", "0"), Some(600.0));
    assert_eq!(step(&text, "counted_cpu_seconds_total", "0"), Some(0.002));
    assert_eq!(task(&text, "cycles_total", "batch", "0"), Some(1000.0));
    assert_eq!(task(&text, "instructions_total", "0", "0"), Some(200.0));
    assert_eq!(task(&text, "instructions_total", "0", "1"), Some(400.0));
    assert_eq!(task(&text, "counted_cpu_seconds_total", "0", "1"), Some(0.001));
    for of_jobs in ["branches", "counters_info", "counters_running", "counters_coverage", "busiest"] {
        assert!(!text.contains(&format!("jobledger_step_{of_jobs}")), "{text}");
    }
    assert!(!text.contains("what=\"steps\""), "{text}");
    // A task on a CPU that is new to it.
    steps.run(("step_0", "task_1"), 0, [10, 1]);
    let text = steps.scrape(&[&job]);
    assert_eq!(task(&text, "cycles_total", "0", "1"), Some(4010.0));
    assert_eq!(step(&text, "cycles_total", "0"), Some(6010.0));
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(7010.0));
}

#[test]
fn a_step_that_is_over_keeps_its_counts_as_long_as_the_job_has_it() {
    let mut steps = Steps::new(true);
    let (begun, world) = (steps.job.clone(), steps.node.world.clone());
    steps.node.bench.run().job_started(&begun);
    jobledger_testkit::eventually("steps that were there are followed", || world.follows() == 5);
    steps.run(("step_0", "task_0"), 0, [2000, 200]);
    // Nobody reads until it is over.
    steps.ends("step_0");
    jobledger_testkit::eventually("only the batch step is", || world.follows() == 2);
    let job = steps.job.clone();
    let text = steps.scrape(&[&job]);
    assert_eq!(step(&text, "cycles_total", "0"), Some(2000.0), "{text}");
    assert_eq!(task(&text, "cycles_total", "0", "0"), Some(2000.0));
    steps.run(("step_batch", "task_0"), 1, [1, 1]);
    steps.node.bench.run().job_left_node(job.run);
    jobledger_testkit::eventually("nothing is", || world.follows() == 0);
    let text = steps.scrape(&[&ended(&job)]);
    assert_eq!(step(&text, "cycles_total", "batch"), Some(1.0), "{text}");
    assert_eq!(step(&text, "cycles_total", "0"), Some(2000.0));
    steps.node.bench.run().job_removed(job.run, Disposition::Exported);
    assert_eq!(step(&steps.scrape(&[&ended(&job)]), "cycles_total", "0"), None);
}

#[test]
fn without_events_a_scrape_sees_which_steps_came_and_went() {
    let mut steps = Steps::new(true);
    let world = steps.node.world.clone();
    let begun = steps.job.clone();
    steps.scrape(&[&begun]);
    assert_eq!(world.follows(), 5);
    steps.run(("step_0", "task_0"), 0, [2000, 200]);
    let over = steps.job.steps.iter_mut().find(|step| &*step.name == "step_0").unwrap();
    over.ended = Some(Instant::now());
    let over = steps.job.clone();
    assert_eq!(step(&steps.scrape(&[&over]), "cycles_total", "0"), Some(2000.0));
    assert_eq!(world.follows(), 2);
}

/// A scrape may have an older list of steps than the events.
#[test]
fn a_step_that_a_scrape_does_not_know_yet_is_counted_on() {
    let mut steps = Steps::new(true);
    let (known, world) = (steps.job.clone(), steps.node.world.clone());
    let older = Job { steps: known.steps.iter().take(1).cloned().collect(), ..known.clone() };
    steps.node.bench.run().job_started(&older);
    steps.node.bench.run().step_grew(&known, None);
    jobledger_testkit::eventually("all are followed", || world.follows() == 5);
    steps.run(("step_0", "task_0"), 0, [2000, 200]);
    steps.scrape(&[&older]);
    assert_eq!(world.follows(), 5);
    steps.run(("step_0", "task_0"), 0, [1, 1]);
    assert_eq!(step(&steps.scrape(&[&known]), "cycles_total", "0"), Some(2001.0));
}

/// A job with a hundred thousand steps: the table of jobs drops the oldest, and so do the accounts.
#[test]
fn counts_of_steps_that_a_job_has_dropped_are_dropped() {
    let mut steps = Steps::new(true);
    let begun = steps.job.clone();
    steps.scrape(&[&begun]);
    steps.ends("step_0");
    let over = steps.job.clone();
    steps.scrape(&[&over]);
    let saved = |steps: &Steps| steps.node.bench.durable().save().unwrap().len();
    let before = saved(&steps);
    steps.job.steps.retain(|step| step.ended.is_none());
    steps.job.steps.iter_mut().for_each(|step| step.tasks.clear());
    let rest = steps.job.clone();
    steps.scrape(&[&rest]);
    assert!(saved(&steps) < before, "{before}");
}

#[test]
fn where_nothing_is_followed_steps_have_no_counters_and_that_is_said_once() {
    let mut steps = Steps::new(false);
    let job = steps.job.clone();
    steps.node.bench.run().job_started(&job);
    steps.node.bench.run().step_grew(&job, None);
    let text = steps.scrape(&[&job]);
    let absent = "jobledger_node_counters_absent_info{what=\"steps\",reason=\"counters of steps take --collector.perf.method=bpf\"}";
    assert_eq!(value(&text, absent), Some(1.0), "{text}");
    assert!(!text.contains("jobledger_step_") && !text.contains("jobledger_task_"), "{text}");
    let (_, text) = steps.node.scrape(&[&job]);
    assert!(!text.contains("what=\"steps\""), "nobody asked for them: {text}");
}

#[test]
fn a_step_without_room_is_named_and_has_no_count_that_looks_whole() {
    let mut steps = Steps::new(true);
    *steps.node.world.followed_at_most.lock().unwrap() = 3;
    let job = steps.job.clone();
    steps.scrape(&[&job]);
    steps.run(("step_batch", "task_0"), 0, [1000, 100]);
    steps.run(("step_0", "task_1"), 1, [4000, 400]);
    *steps.node.world.followed_at_most.lock().unwrap() = usize::MAX;
    let text = steps.scrape(&[&job]);
    let lacks = |text: &str, series: &str| {
        value(text, &format!("jobledger_{series},mode=\"none\",reason=\"room\"}}"))
    };
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(5000.0), "{text}");
    assert_eq!(step(&text, "cycles_total", "0"), Some(4000.0), "the third that is followed");
    for number in ["0", "1"] {
        let series = format!("task_counters_info{{jobid=\"7\",step=\"0\",task=\"{number}\"");
        assert_eq!(lacks(&text, &series), Some(1.0), "{text}");
        assert_eq!(task(&text, "cycles_total", "0", number), None);
        assert_eq!(task(&text, "counted_cpu_seconds_total", "0", number), None);
    }
    // There was no room for one of its CPUs.
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(steps.path("step_batch")).unwrap());
    steps.node.world.cut.lock().unwrap().insert(inode);
    let text = steps.scrape(&[&job]);
    assert_eq!(lacks(&text, "step_counters_info{jobid=\"7\",step=\"batch\""), Some(1.0), "{text}");
    assert_eq!(step(&text, "cycles_total", "batch"), None);
    assert_eq!(task(&text, "cycles_total", "batch", "0"), Some(1000.0));
    steps.node.ownership.yield_for(Reason::Lock);
    steps.node.ownership.resume_from(Reason::Lock);
    let text = steps.scrape(&[&job]);
    assert_eq!(step(&text, "cycles_total", "batch"), None, "not after a gap either: {text}");
}

/// Another plan is made: what was counted under the one before is kept.
#[test]
fn steps_go_on_when_somebody_keeps_counters() {
    const LONG: u64 = 4_000_000_000;
    let mut steps = Steps::new(true);
    let job = steps.job.clone();
    steps.scrape(&[&job]);
    steps.run(("step_0", "task_0"), 0, [2000, 200]);
    steps.scrape(&[&job]);
    let world = steps.node.world.clone();
    world.kept.lock().unwrap().insert("branches".to_owned());
    world.run(0, "branches", (LONG, 0), &[0]);
    steps.scrape(&[&job]);
    steps.run(("step_0", "task_0"), 0, [3, 1]);
    let text = steps.scrape(&[&job]);
    assert!(text.contains("it never has its turn"), "{text}");
    assert_eq!(step(&text, "cycles_total", "0"), Some(2003.0), "{text}");
    assert_eq!(task(&text, "cycles_total", "0", "0"), Some(2003.0));
}

#[test]
fn steps_go_on_after_a_restart_and_after_a_gap() {
    let mut steps = Steps::new(true);
    let begun = steps.job.clone();
    steps.scrape(&[&begun]);
    steps.run(("step_batch", "task_0"), 0, [1000, 100]);
    steps.run(("step_0", "task_0"), 0, [2000, 200]);
    steps.ends("step_0");
    let job = steps.job.clone();
    steps.scrape(&[&job]);
    steps.node.ownership.yield_for(Reason::Lock);
    assert_eq!(steps.node.world.follows(), 0);
    // Nobody counts.
    steps.run(("step_batch", "task_0"), 0, [500_000, 5]);
    assert!(!steps.scrape(&[&job]).contains("jobledger_step_"), "a gap, never an old value");
    steps.node.ownership.resume_from(Reason::Lock);
    let world = steps.node.world.clone();
    jobledger_testkit::eventually("they are followed again", || world.follows() == 2);
    steps.run(("step_batch", "task_0"), 0, [30, 3]);
    let text = steps.scrape(&[&job]);
    assert_eq!(step(&text, "cycles_total", "batch"), Some(1030.0), "{text}");
    assert_eq!(step(&text, "cycles_total", "0"), Some(2000.0));
    steps.node.restart(plan(), &[job.run]);
    jobledger_testkit::eventually("the one before is gone", || world.follows() == 0);
    steps.run(("step_batch", "task_0"), 0, [500_000, 5]);
    steps.scrape(&[&job]);
    steps.run(("step_batch", "task_0"), 0, [7, 1]);
    let text = steps.scrape(&[&job]);
    assert_eq!(step(&text, "cycles_total", "batch"), Some(1037.0), "{text}");
    assert_eq!(task(&text, "cycles_total", "batch", "0"), Some(1037.0));
    assert_eq!(step(&text, "cycles_total", "0"), Some(2000.0));
    assert_eq!(step(&text, "counted_cpu_seconds_total", "0"), Some(0.001));
    // A job that was over before the restart.
    steps.node.restart(plan(), &[job.run]);
    let text = steps.scrape(&[&ended(&job)]);
    assert_eq!(step(&text, "cycles_total", "batch"), Some(1037.0), "{text}");
}
