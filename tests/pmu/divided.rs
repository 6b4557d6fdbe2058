//! Counters that a CPU has, divided by control group in BPF, of v2 and of v1.

use std::fs::File;

use crate::machine::{Job, Pmu, STAND_INS, Work, assert_counted, count, dividing, hierarchies, of};

#[test]
fn two_jobs_have_what_they_executed_and_with_the_rest_that_is_all() {
    let Some(pmu) = Pmu::find() else { return };
    for hierarchy in hierarchies() {
        let (job, other) = (Job::of(hierarchy, 1), Job::of(hierarchy, 2));
        let (divided, mut counting) = dividing(hierarchy, pmu.plan(&[(true, 3)]), false);
        let mut all = pmu.open(0, &[crate::machine::INSTRUCTIONS]).unwrap();
        let begun = all.read().counts[0];
        let mut counted = [&job, &other].map(|job| count(&mut counting, job, "0"));
        let mine = Work::of(100_000_000).start(&job.task(0));
        let theirs = Work::of(150_000_000).start(&other.task(0));
        for mut child in [mine, theirs] {
            assert!(child.wait().unwrap().success());
        }
        let mut sum = 0;
        for (counted, executed) in counted.iter_mut().zip([100_000_000, 150_000_000]) {
            counting.read(counted);
            let instructions = of(&counting, counted, STAND_INS[0]);
            assert_counted(instructions, executed, 2);
            sum += instructions.unwrap();
        }
        let rest = divided.rest(0).unwrap()[0].counts[1];
        let whole = all.read().counts[0] - begun;
        println!("  jobs {sum}, rest {rest}, CPU {whole}");
        // What was executed between the readings: nothing of a job.
        assert!(sum + rest <= whole && whole - (sum + rest) < 3_000_000);
    }
}

/// Two steps with two tasks each, one after the other and at once.
#[test]
fn steps_and_tasks_have_what_they_executed_and_are_all_of_their_job() {
    let Some(pmu) = Pmu::find() else { return };
    for hierarchy in hierarchies() {
        let job = Job::of(hierarchy, 1);
        job.add_step(1);
        let (_divided, mut counting) = dividing(hierarchy, pmu.plan(&[(true, 3)]), true);
        let mut whole = count(&mut counting, &job, "0");
        let tasks = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(step, task)| job.task_of(step, task));
        let directories = [job.step(0), job.step(1)].into_iter().chain(tasks.clone());
        let mut parts: Vec<_> = directories
            .map(|directory| counting.follow(&File::open(directory).unwrap(), None).unwrap())
            .collect();
        let work = [50_000_000, 100_000_000, 150_000_000, 200_000_000];
        Work::of(work[0]).run(&tasks[0]);
        let running = [1, 2, 3].map(|task| Work::of(work[task]).start(&tasks[task]));
        for mut child in running {
            assert!(child.wait().unwrap().success());
        }
        counting.read(&mut whole);
        let counts: Vec<u64> = parts
            .iter_mut()
            .map(|part| {
                counting.open_where_it_ran(part);
                counting.read(part);
                assert!(part.is_whole());
                of(&counting, part, STAND_INS[0]).unwrap()
            })
            .collect();
        let [first, second, of_tasks @ ..] = &counts[..] else { panic!("{counts:?}") };
        for (counted, executed) in of_tasks.iter().zip(work) {
            assert_counted(Some(*counted), executed, 3);
        }
        assert_eq!([*first, *second], [of_tasks[0] + of_tasks[1], of_tasks[2] + of_tasks[3]]);
        assert_eq!(of(&counting, &whole, STAND_INS[0]), Some(first + second));
    }
}

#[test]
fn jobs_of_fifty_milliseconds_and_bursts_are_counted() {
    let Some(pmu) = Pmu::find() else { return };
    for hierarchy in hierarchies() {
        let (_divided, mut counting) =
            dividing(hierarchy, pmu.plan(&[(true, 3), (true, 3), (true, 3)]), false);
        for number in 1..=4 {
            let job = Job::of(hierarchy, number);
            let mut counted = count(&mut counting, &job, "0");
            Work::of(50_000_000).run(&job.task(0));
            job.remove();
            counting.close(&mut counted);
            for quantity in [STAND_INS[0], STAND_INS[3], STAND_INS[6]] {
                assert_counted(of(&counting, &counted, quantity), 50_000_000, 4);
            }
        }
        let job = Job::of(hierarchy, 9);
        let mut counted = count(&mut counting, &job, "0");
        let work = Work { instructions: 200_000, bursts: 200, pause_us: 2000 };
        work.run(&job.task(0));
        counting.read(&mut counted);
        assert_counted(of(&counting, &counted, STAND_INS[0]), work.total(), 25);
    }
}

#[test]
fn a_hand_over_takes_all_counters_off_the_cpu_whatever_the_jobs_are() {
    let Some(pmu) = Pmu::find() else { return };
    for hierarchy in hierarchies() {
        let (divided, mut counting) = dividing(hierarchy, pmu.plan(&[(true, 3), (true, 3)]), false);
        let jobs: Vec<Job> = (1..=8).map(|id| Job::of(hierarchy, id)).collect();
        let counted: Vec<_> = jobs.iter().map(|job| count(&mut counting, job, "0")).collect();
        let open = divided.descriptors();
        assert!((8..=9).contains(&open), "{open} descriptors for {} jobs", counted.len());
        divided.release();
        assert_eq!(divided.descriptors(), 0);
        let mut profiler = pmu.open(0, &[crate::machine::INSTRUCTIONS; crate::machine::GENERAL]).unwrap();
        Work::of(20_000_000).run(&jobs[0].task(0));
        let reading = profiler.read();
        assert_eq!(reading.running, reading.enabled);
    }
}
