//! What observers see of steps that are made.

use super::*;

/// Notes each step that grew with the tasks that it has; `any` stands for all that are there.
#[derive(Default)]
struct Growth(parking_lot::Mutex<Vec<String>>);

impl JobObserver for Growth {
    fn step_grew(&self, job: &Job, step: Option<u32>) {
        let of = |step: &Step| {
            let tasks: Vec<String> = step.tasks.iter().map(|task| task.id.to_string()).collect();
            format!("{} {}", step.name, tasks.join(","))
        };
        let step = job.steps.iter().find(|known| Some(known.ordinal) == step);
        self.0.lock().push(step.map_or_else(|| "any".to_owned(), of));
    }
}

#[test]
fn a_step_is_reported_with_each_directory_that_is_made_in_it() {
    let machine = idle();
    let job = format!("{SCOPE}/job_7");
    machine.write(&format!("{job}/cgroup.procs"), "1\n");
    let growth = Arc::new(Growth::default());
    let mut table = table_of(&machine, MOST_RETAINED, vec![growth.clone()]);
    let noted = |growth: &Growth| std::mem::take(&mut *growth.0.lock());
    table.verify();
    assert_eq!(noted(&growth), ["any"], "those that were there before");
    for (made, reported) in [
        ("step_0/cgroup.procs", "step_0 "),
        ("step_0/user/cgroup.procs", "step_0 "),
        ("step_0/user/task_0/cgroup.procs", "step_0 0"),
        ("step_0/user/task_1/cgroup.procs", "step_0 0,1"),
        ("step_1/user/task_0/cgroup.procs", "step_1 0"),
    ] {
        machine.write(&format!("{job}/{made}"), "1\n");
        table.process_events();
        assert_eq!(noted(&growth), [reported], "{made}");
    }
    table.rescan();
    assert_eq!(noted(&growth), ["any"], "events were lost");
    machine.remove(&job);
    table.process_events();
    assert_eq!(noted(&growth), [""; 0]);
}
