//! Processes, parts of divided GPUs, and Xids.

use super::*;

#[test]
fn processes_are_read_on_request() {
    let text = "gpu 0 process 100 5000 50 compute\ngpu 0 process 101 - 0 graphics\ngpu 0 process 102 7 25 mps\n\
                gpu 0 sample 1000000 75\n";
    let fake = FakeNvml::new(text);
    let mut backend = backend(&fake);
    let none = backend.sample(LITTLE).unwrap();
    assert!(
        unit(&none, "0000").processes.is_none()
            && !facts(unit(&none, "0000")).contains_key("processes{compute}")
    );
    let first = backend.sample(ALL).unwrap();
    let listed = unit(&first, "0000").processes.clone().unwrap();
    let shape: Vec<_> = listed.iter().map(|p| (p.pid, p.kind, p.memory, p.busy_ns)).collect();
    assert_eq!(
        shape,
        [
            (100, ProcessKind::Compute, Some(5000), Some(0)),
            (101, ProcessKind::Graphics, None, Some(0)),
            (102, ProcessKind::Mps, Some(7), Some(0)),
        ]
    );
    assert_eq!(facts(unit(&first, "0000")).get("processes{mps}"), Some(&1.0));
    let mut backend = self::backend(&fake);
    backend.sample(ALL).unwrap();
    // The samples that are new cover a second, whatever passed.
    let later = format!("{text}gpu 0 sample 1500000 75\ngpu 0 sample 2000000 75\n");
    fake.set(&later);
    let second = backend.sample(ALL).unwrap();
    let listed = unit(&second, "0000").processes.clone().unwrap();
    let busy: Vec<_> = listed.iter().map(|p| p.busy_ns).collect();
    assert_eq!(busy, [Some(500_000_000), Some(0), Some(250_000_000)]);
    let again = unit(&backend.sample(ALL).unwrap(), "0000").processes.clone().unwrap();
    assert_eq!(again, listed, "nothing new");
    let before = listed[0].busy_ns;
    fake.set("gpu 0 process 101 - 0 graphics\n");
    let third = unit(&backend.sample(ALL).unwrap(), "0000").processes.clone().unwrap();
    assert_eq!(third.len(), 1);
    fake.set(text);
    let fourth = unit(&backend.sample(ALL).unwrap(), "0000").processes.clone().unwrap();
    assert!(fourth[0].busy_ns < before, "a pid that comes again is another process: {fourth:?}");
    fake.set("code nvmlDeviceGetProcessUtilization 6\ngpu 0 process 5 1 0 compute\n");
    assert_eq!(unit(&backend.sample(ALL).unwrap(), "0000").processes.as_ref().unwrap()[0].busy_ns, Some(0));
}

const DIVIDED: &str = "gpus 2\ngpu 0 mig 1\n\
    gpu 0 part 0 MIG-aaaa 1 0 3 4 60 40448 NVIDIA H100 80GB HBM3 MIG 3g.40gb\n\
    gpu 0 part 2 MIG-bbbb 5 0 1 2 16 20096 NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb\n\
    gpu 0 part 3 MIG-cccc 5 1 1 2 16 20096 NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb\n\
    gpu 0 process 7 1000 0 compute 1 0\ngpu 0 process 8 2000 0 compute 5 1\n\
    gpu 0 activity 1 60 1\ngpu 0 activity 2 30 1\ngpu 0 activity 12 10 1\ngpu 0 activity 1 90 5\ngpu 0 clocks 0 1000 0 0\n";

#[test]
fn parts_of_a_divided_gpu_are_units_with_their_own_memory_activity_and_processes() {
    let proc = Scratch::new("nvml-proc");
    let at = |path: &str, text: &str| {
        let path = proc.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    at("devices", "Character devices:\n195 nvidia\n508 nvidia-caps\n");
    at("driver/nvidia-caps/mig-minors", "gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi5/access 48\n");
    let roots = Arc::new(Roots::new(proc.path(), "/nowhere", "/nowhere", "/nowhere"));
    let fake = FakeNvml::new(DIVIDED);
    let mut backend = NvmlBackend::new(roots, options(&fake.library()));
    let between = Between::samples(&mut backend, ALL);
    let sample = &between.second;
    assert_eq!(sample.failed, []);
    let names: Vec<_> = sample.units.iter().map(|u| (&*u.unit.uuid, u.unit.divided)).collect();
    let gpu = "GPU-00000000-0000-0000-0000-00000000000";
    assert_eq!(names.len(), 5);
    assert_eq!(names[0], (&*format!("{gpu}0"), true));
    assert_eq!([names[1].0, names[2].0, names[3].0], ["MIG-aaaa", "MIG-bbbb", "MIG-cccc"]);
    assert_eq!(names[4], (&*format!("{gpu}1"), false));

    let whole = unit(sample, "0000");
    assert!(count(whole, Quantity::BUSY).is_none() && count(whole, Quantity::ENERGY).is_some());
    assert_eq!(whole.processes.as_ref().unwrap().len(), 2);
    let a = unit(sample, "aaaa");
    let part = a.unit.part.clone().unwrap();
    assert_eq!((&*part.parent, part.gpu_instance, part.compute_instance), (&*format!("{gpu}0"), 1, 0));
    assert_eq!((&*part.profile, part.slices), ("3g.40gb", Some((3, 7))));
    assert_eq!(
        a.unit.nodes,
        [(195, 0), (508, 12), (508, 13)].map(|(major, minor)| DeviceNode { major, minor })
    );
    assert_eq!(a.memory.map(|m| m.total), Some(40448 << 20));
    for (quantity, a_second) in
        // Its own multiprocessors.
        [
            (Quantity::BUSY, 0.6e9),
            (Quantity::SM_ACTIVE, 0.3e9),
            (Quantity::FLOPS_FP32, 0.1 * 60.0 * 256.0 * 1e3),
        ]
    {
        assert!(between.gives(count(a, quantity), a_second), "{quantity:?}");
    }
    assert!(count(a, Quantity::ENERGY).is_none());
    assert_eq!(
        a.processes.as_ref().unwrap().iter().map(|p| (p.pid, p.busy_ns)).collect::<Vec<_>>(),
        [(7, None)]
    );
    for (shared, pids) in [("bbbb", &[][..]), ("cccc", &[8][..])] {
        let unit = unit(sample, shared);
        assert_eq!(unit.counts, [], "{shared}: activity is that of the GPU instance, which two share");
        assert_eq!(&*unit.unit.part.as_ref().unwrap().profile, "1c.2g.20gb");
        assert_eq!(unit.unit.nodes, [], "its own capability is not known");
        assert_eq!(unit.processes.as_ref().unwrap().iter().map(|p| p.pid).collect::<Vec<_>>(), pids);
    }
}

#[test]
fn parts_of_a_gpu_that_measures_no_activity_have_their_memory_alone() {
    let fake = FakeNvml::new(&format!("{DIVIDED}gpu 0 gpm 0\ngpu 0 capability 8 0\n"));
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    wait(110);
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(sample.failed, [], "it has no such thing");
    for part in ["aaaa", "bbbb", "cccc"] {
        let part = unit(&sample, part);
        assert!(part.counts.is_empty() && part.memory.is_some());
    }
}

#[test]
fn a_gpu_divided_anew_is_looked_at_anew() {
    let fake = FakeNvml::new(DIVIDED);
    let mut backend = backend(&fake);
    let before = backend.sample(LITTLE).unwrap();
    let (kept, whole) = (unit(&before, "bbbb").epoch, unit(&before, "0000").epoch);
    // The handle of the first is another part's now; the event says so.
    let anew = DIVIDED.replace("MIG-aaaa 1 0 3", "MIG-dddd 2 0 3") + "gpu 0 migchange 1\n";
    fake.set(&anew);
    let after = backend.sample(LITTLE).unwrap();
    let names: Vec<_> =
        after.units.iter().map(|u| &*u.unit.uuid).filter(|uuid| uuid.starts_with("MIG")).collect();
    assert_eq!(names, ["MIG-dddd", "MIG-bbbb", "MIG-cccc"]);
    assert_eq!((unit(&after, "bbbb").epoch, unit(&after, "0000").epoch), (kept, whole), "others go on");
    assert!(unit(&after, "dddd").epoch != unit(&before, "aaaa").epoch);
    // Without an event: a handle that is another's is not read, and the next sample has the parts that there are.
    fake.set(&anew.replace("MIG-dddd", "MIG-eeee"));
    let torn = backend.sample(LITTLE).unwrap();
    assert!(!torn.units.iter().any(|u| u.unit.uuid.ends_with("dddd") || u.unit.uuid.ends_with("eeee")));
    assert_eq!(backend.sample(LITTLE).unwrap().units.len(), 5);
    fake.set("gpus 2\ngpu 0 migchange 2\n");
    let whole = backend.sample(LITTLE).unwrap();
    assert_eq!(whole.units.len(), 2);
    assert!(!unit(&whole, "0000").unit.divided && count(unit(&whole, "0000"), Quantity::BUSY).is_some());
}

#[test]
fn xids_are_counted_by_code_also_of_lost_gpus_and_over_a_new_driver() {
    let fake = FakeNvml::new("gpus 2\ngpu 0 xid 1 13\n");
    let mut backend = backend(&fake);
    let xids = |sample: &Sample, uuid: &str| {
        let listed = facts(unit(sample, uuid));
        listed.into_iter().filter(|(name, _)| name.starts_with("xid")).collect::<Vec<_>>()
    };
    assert_eq!(xids(&backend.sample(LITTLE).unwrap(), "0000"), [], "earlier events were not received");
    fake.set("gpus 2\ngpu 0 xid 1 13\ngpu 0 xid 2 48\ngpu 0 xid 3 48\ngpu 1 xid 1 31\n");
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(xids(&sample, "0000"), [("xid_errors_total{48}".to_owned(), 2.0)]);
    assert_eq!(xids(&sample, "0001"), [("xid_errors_total{31}".to_owned(), 1.0)]);
    fake.set("gpus 2\ngpu 0 lost 15\ngpu 0 xid 4 79\n");
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(unit(&sample, "0000").down, Some("lost"));
    assert_eq!(
        xids(&sample, "0000"),
        [("xid_errors_total{48}".to_owned(), 2.0), ("xid_errors_total{79}".to_owned(), 1.0)]
    );
    fake.set("gpus 2\n");
    backend.release();
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(xids(&sample, "0000").len(), 2, "kept over a new beginning");
}

#[test]
fn an_xid_of_a_part_is_the_parts() {
    let fake = FakeNvml::new(DIVIDED);
    let mut backend = backend(&fake);
    backend.sample(LITTLE).unwrap();
    fake.set(&format!("{DIVIDED}gpu 0 xid 1 13 5 1\ngpu 0 xid 2 31 9 9\n"));
    let sample = backend.sample(LITTLE).unwrap();
    assert_eq!(facts(unit(&sample, "cccc")).get("xid_errors_total{13}"), Some(&1.0));
    assert_eq!(
        facts(unit(&sample, "0000")).get("xid_errors_total{31}"),
        Some(&1.0),
        "a part that is not known"
    );
}
