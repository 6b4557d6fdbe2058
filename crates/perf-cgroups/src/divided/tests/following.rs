//! Followed cgroups.

use super::*;

/// A cgroup that is followed, and the groups of events on its CPU once it ran there.
struct FollowedCgroup {
    // Closed before it is not followed any more.
    counters: Option<Groups>,
    following: Box<dyn Following>,
}

impl FollowedCgroup {
    fn of(bench: &Bench, group: &Group) -> Self {
        let following = bench.divided.follow(&File::open(&group.path).unwrap()).unwrap();
        Self { counters: None, following }
    }

    /// What each group counted so far; nothing as long as it did not run.
    fn read(&mut self) -> Option<Vec<Reading>> {
        if self.following.cpus().is_empty() {
            return None;
        }
        assert_eq!(self.following.cpus(), [CPU]);
        let open = |group: &SharedGroup| self.following.open(CPU, &group.events).unwrap();
        Some(read_all(self.counters.get_or_insert_with(|| groups().iter().map(open).collect())))
    }
}

/// A job with steps and tasks beneath, whose entries are made where they run.
#[test]
fn followed_cgroups_are_counted_from_the_first_switch_on_and_add_up_to_the_job() {
    for bench in benches() {
        let job = bench.group("job");
        let paths = ["job/step_0", "job/step_1", "job/step_1/task_0", "job/step_1/task_1", "job/step_2"]
            .map(|name| bench.group(name));
        let mut counted = bench.count(&job);
        let mut followed = paths.each_ref().map(|group| FollowedCgroup::of(&bench, group));
        run(&paths[0], &work(50_000));
        run(&paths[2], &work(100_000));
        run(&paths[3], &work(50_000));
        // Read after it was removed, as short steps are.
        paths[0].paths().for_each(|path| std::fs::remove_dir(path).unwrap());
        let whole = counted.agreed();
        let [first, second, task, other_task, idle] = followed.each_mut().map(FollowedCgroup::read);
        assert_eq!(idle, None, "no entry where nothing ran");
        let sum = |one: &Option<Vec<Reading>>, two: &Option<Vec<Reading>>| -> Vec<(u64, u64, u64)> {
            let pairs = one.as_ref().unwrap().iter().zip(two.as_ref().unwrap());
            pairs
                .map(|(one, two)| {
                    assert!(one.enabled > 0 && two.enabled > 0);
                    (one.enabled + two.enabled, one.running + two.running, one.counts[0] + two.counts[0])
                })
                .collect()
        };
        let of = |readings: &[Reading]| -> Vec<(u64, u64, u64)> {
            readings.iter().map(|reading| (reading.enabled, reading.running, reading.counts[0])).collect()
        };
        assert_eq!(sum(&task, &other_task), of(second.as_ref().unwrap()), "tasks are the step");
        assert_eq!(sum(&first, &second), of(&whole), "steps are the job");
        assert!(followed.iter().all(|followed| followed.following.is_whole()));
        run(&paths[2], &work(50_000));
        let more = followed[2].read();
        assert!(more.unwrap()[0].enabled > task.unwrap()[0].enabled);
    }
}

#[test]
fn a_cgroup_that_is_followed_again_begins_at_zero() {
    for bench in benches() {
        let (job, step) = (bench.group("job"), bench.group("job/step_0"));
        let _counted = bench.count(&job);
        let mut first = FollowedCgroup::of(&bench, &step);
        run(&step, &work(50_000));
        let before = first.read().unwrap()[0].enabled;
        drop(first);
        let mut second = FollowedCgroup::of(&bench, &step);
        assert_eq!(second.read(), None);
        run(&step, &work(10_000));
        let after = second.read().unwrap()[0].enabled;
        assert!(after > 0 && after < before, "{after} {before}");
    }
}

/// As after a hand-over: the counters of the CPU are other ones.
#[test]
fn a_followed_cgroup_on_a_cpu_that_is_opened_again_counts_once() {
    for bench in benches() {
        let (job, step) = (bench.group("job"), bench.group("job/step_0"));
        let first = bench.count(&job);
        let mut followed = FollowedCgroup::of(&bench, &step);
        run(&step, &work(50_000));
        let before = followed.read().unwrap()[0].enabled;
        bench.divided.release();
        assert!(followed.read().unwrap()[0].enabled >= before, "a last time");
        drop(first);
        followed.counters = None;
        let mut counted = bench.count(&job);
        run(&step, &work(10_000));
        let (whole, part) = (counted.agreed(), followed.read().unwrap());
        assert_eq!(part[0].enabled, whole[0].enabled);
    }
}

#[test]
fn a_followed_cgroup_without_room_says_that_it_is_not_whole() {
    for bench in benches() {
        let room = Room { registered: 2, followed: 2 };
        let divided = Divided::with_room(bench.hierarchy, groups(), CPU + 1, room).unwrap();
        let group = |name: &str| {
            let group = bench.group(name);
            (File::open(&group.path).unwrap(), group)
        };
        let (job, _) = group("job");
        let _counted = divided.open(On::Cgroup(&job), CPU, &groups()[0].events).unwrap();
        let steps = ["job/step_0", "job/step_1", "job/step_2"].map(group);
        let one = divided.follow(&steps[0].0).unwrap();
        let two = divided.follow(&steps[1].0).unwrap();
        assert_eq!(divided.follow(&steps[2].0).err(), Some(OpenError::Descriptors));
        // Another CPU, which this machine may not have.
        let entries = &divided.0.tables.followed.as_ref().unwrap().entries;
        entries.put_of([identify(bench.hierarchy.is_unified(), &steps[0].0).unwrap().id, 7], &[]).unwrap();
        run(&steps[0].1, &work(1000));
        run(&steps[1].1, &work(1000));
        assert!(one.is_whole() && !two.is_whole());
        assert_eq!((one.cpus(), two.cpus()), (vec![CPU], vec![]));
    }
}

/// More than the largest plan has: the program's length follows the events.
#[test]
fn the_kernel_takes_programs_of_many_events_that_follow_cgroups() {
    for bench in benches() {
        let group = SharedGroup { events: vec![Attr::new(Attr::SOFTWARE, 0); 8], cpus: None };
        assert!(Divided::new(bench.hierarchy, vec![group; 12], CPU + 1, true).is_ok());
    }
}
