//! The simulated GPUs keep their promises: every number agrees with the others, and is of who has the GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use exposition::{Family, Value};
use gpu_devices::{Quantity, UnitSample, Wanted, families};

use super::super::gpu::{Ask, BOARDS, Device, GpuView, NodeGpus, PARTS, WHOLE};
use super::super::profile::Profile;
use super::super::random::real;
use super::super::simulation::run_to;
use super::super::workloads::WORKLOADS;
use super::super::world::{SECOND, World};
use super::{BEGIN, BOOT};
use crate::barrier::Barrier;

/// A unit was busy for as long as its processes together, if these are the same as a second before; else there was
/// another one, which is gone now.
fn check_clients(device: &Device, was: &Device) {
    let pids = |device: &Device| device.clients.iter().map(|client| client.pid).collect::<Vec<_>>();
    let before = |pid| was.clients.iter().find(|client| client.pid == pid).map_or(0, |client| client.busy);
    let of_clients: u64 = device.clients.iter().map(|client| client.busy - before(client.pid)).sum();
    let busy = device.spent.busy - was.spent.busy;
    assert!(of_clients == busy || pids(device) != pids(was) && of_clients < busy, "{was:?} {device:?}");
}

/// Who has each unit.
fn holders(world: &World) -> BTreeMap<usize, Vec<(u32, Profile)>> {
    let mut holders: BTreeMap<usize, Vec<(u32, Profile)>> = BTreeMap::new();
    for job in &world.jobs {
        for (unit, id) in &job.gpus {
            assert_eq!(*id, world.node_gpus.units[*unit].uuid, "a job's ids are those of its units");
            holders.entry(*unit).or_default().push((job.id, job.workload.profile));
        }
    }
    holders
}

fn check_moment(world: &World, holders: &BTreeMap<usize, Vec<(u32, Profile)>>) {
    for job in &world.jobs {
        let wanted = match job.workload.gpus {
            Ask::Nothing => 0,
            Ask::Whole(number) => number,
            Ask::Shard | Ask::Part(_) => 1,
        };
        assert_eq!(job.gpus.len(), wanted, "{}", job.workload.name);
    }
    for (unit, device) in world.node_gpus.units.iter().enumerate() {
        let jobs = holders.get(&unit).map_or(&[][..], Vec::as_slice);
        let sharing = jobs.iter().all(|(_, profile)| *profile == Profile::Sharing);
        assert!(jobs.len() <= if sharing { 2 } else { 1 }, "{jobs:?}");
        assert!(device.clients.len() <= jobs.len(), "a process of no job: {jobs:?} {device:?}");
        let size =
            unit.checked_sub(WHOLE).map_or(81_559 << 20, |part| [40_448, 20_096, 9_984, 9_984][part] << 20);
        assert!(device.used() < size, "{device:?}");
    }
}

/// The values of the second before: time and energy go together.
fn check_second(before: &NodeGpus, node_gpus: &NodeGpus) {
    let seconds = |device: &Device, was: &Device| {
        let of = |now: u64, was: u64| now - was;
        [
            of(device.spent.busy, was.spent.busy),
            of(device.spent.sm, was.spent.sm),
            of(device.spent.tensor, was.spent.tensor),
            of(device.spent.dram, was.spent.dram),
        ]
    };
    for (device, was) in node_gpus.units.iter().zip(&before.units) {
        let [busy, sm, tensor, dram] = seconds(device, was);
        assert!(busy <= SECOND && sm <= busy && tensor <= sm && dram <= busy, "{device:?}");
    }
}

#[test]
fn an_hour_of_gpus_keeps_every_promise() {
    let mut world = World::new(7, 1.0, BOOT, BEGIN);
    let (mut slow, mut hottest, mut vacant, mut all_vacant) = (0, 0.0_f64, 0, 0);
    let mut used: BTreeMap<Profile, u64> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    run_to(&mut world, BEGIN + SECOND);
    for second in 2..=3600 {
        let was = world.node_gpus.clone();
        run_to(&mut world, BEGIN + second * SECOND);
        let holders = holders(&world);
        check_moment(&world, &holders);
        let node_gpus = &world.node_gpus;
        node_gpus.units.iter().zip(&was.units).for_each(|(now, was)| check_clients(now, was));
        check_second(&was, node_gpus);
        for (board, (now, was)) in node_gpus.boards.iter().zip(was.boards).enumerate() {
            let watts = (now.energy - was.energy) / SECOND;
            assert!((70..=700).contains(&watts), "{watts} W");
            let least = if board == 2 { 38.0 } else { 34.0 };
            assert!((least..93.0).contains(&now.degrees) || second < 60, "board {board}: {now:?}");
            assert!((69.0..=700.0).contains(&now.watts));
            hottest = hottest.max(now.degrees);
            assert!(board == 2 || !now.slow, "only one is cooled badly");
            slow += u64::from(now.slow);
            let unattributed = !holders.contains_key(&board) && board < WHOLE;
            vacant += u64::from(unattributed);
            // A job that ended meanwhile may have had it.
            if unattributed && watts == 70 {
                all_vacant += 1;
            }
        }
        for (unit, jobs) in &holders {
            if jobs.len() == 2 {
                shared.insert(*unit);
            }
            let busy = node_gpus.units[*unit].spent.busy - was.units[*unit].spent.busy;
            jobs.iter().for_each(|(_, profile)| *used.entry(*profile).or_default() += busy);
        }
    }
    assert_eq!(used[&Profile::IdleGpu], 0, "it holds a GPU and never uses it");
    for profile in WORKLOADS.iter().filter(|traits| traits.gpus != Ask::Nothing).map(|traits| traits.profile)
    {
        assert!(profile == Profile::IdleGpu || used[&profile] > 60 * SECOND, "{profile:?}: {used:?}");
    }
    assert!(!shared.is_empty());
    assert!((60..2_000).contains(&slow), "slow for {slow} s, {hottest} degrees");
    assert!(vacant > 1_000 && all_vacant * 10 > vacant * 8, "{vacant} {all_vacant}");
    let slowed = world.node_gpus.boards.map(|board| board.slowed / SECOND);
    assert!(slowed[2].abs_diff(slow) < slow / 5 + 10, "{slowed:?}, slow for {slow} s");
    let worn = world.node_gpus.boards.map(|board| (board.errors, board.rows));
    let busy = world.node_gpus.units[1].spent.busy / SECOND;
    assert_eq!(worn[1], (busy / 20, busy / 600));
    assert!(worn[1].1 >= 2 && worn.iter().filter(|worn| **worn == (0, 0)).count() == 7, "{worn:?}");
    let unattributed: Vec<u64> =
        world.node_gpus.units.iter().skip(WHOLE + 2).map(|device| device.spent.busy).collect();
    assert_eq!(unattributed, [0; PARTS.len() - 2], "two parts have no job");
}

/// Joules of every GPU from what its units did, with the parts of the divided one by their slices. One is slow now and
/// then, and draws less meanwhile.
#[test]
fn energy_is_what_was_done() {
    let mut world = World::new(9, 1.0, BOOT, BEGIN);
    run_to(&mut world, BEGIN + 900 * SECOND);
    let joules = |device: &Device| {
        let s = device.spent;
        60 * s.busy + 180 * s.sm + 260 * (s.tensor + s.fp64 + s.fp32 + s.fp16) + 130 * s.dram
    };
    let clocks = |device: &Device| {
        [device.spent.fp64, device.spent.fp32, device.spent.tensor].map(|micros| micros * 1_980)
    };
    let idle = 70 * world.now;
    for (at, (board, device)) in
        world.node_gpus.boards.iter().zip(&world.node_gpus.units).take(WHOLE).enumerate()
    {
        let (drawn, all) = (board.energy - idle, joules(device));
        if at == 2 {
            assert!(board.slowed > 20 * SECOND && drawn < all && drawn > all / 2, "{board:?}");
            assert!(device.spent.clocks < clocks(device));
        } else {
            assert_eq!((drawn, board.slowed), (all, 0));
            assert_eq!(device.spent.clocks, clocks(device));
        }
    }
    let parts = world.node_gpus.units.iter().skip(WHOLE).zip([3, 2, 1, 1]);
    let expected = idle + parts.map(|(device, slices)| joules(device) * slices).sum::<u64>() / 7;
    assert_eq!(world.node_gpus.boards[BOARDS - 1].energy, expected);
    assert!(expected > idle);
}

#[test]
fn a_job_that_has_done_its_work_holds_its_part_and_does_nothing() {
    let mut world = World::new(7, 1.0, BOOT, BEGIN);
    let mut idle = 0;
    for second in 1..=900 {
        let before = world.node_gpus.units[WHOLE + 1].spent.busy;
        run_to(&mut world, BEGIN + second * SECOND);
        let job = world.jobs.iter().find(|job| job.workload.profile == Profile::Finished);
        let Some(job) = job.filter(|job| world.now > job.started + 122 * SECOND) else { continue };
        assert_eq!(job.gpus[0].0, WHOLE + 1);
        assert_eq!(world.node_gpus.units[WHOLE + 1].spent.busy, before);
        idle += 1;
    }
    assert!(idle > 100, "{idle}");
}

#[test]
fn the_same_seed_has_the_same_gpus_and_gives_them_to_the_same_jobs() {
    let units = |seed| {
        let mut world = World::new(seed, 1.0, BOOT, BEGIN);
        run_to(&mut world, BEGIN + 300 * SECOND);
        let jobs =
            world.jobs.iter().map(|job| (job.id, job.gpus.clone(), job.metadata(BOOT))).collect::<Vec<_>>();
        let spent = world.node_gpus.units.iter().map(|device| device.spent).collect::<Vec<_>>();
        (jobs, spent)
    };
    assert_eq!(units(1), units(1));
    assert_ne!(units(1).0, units(2).0);
    let ids = |seed| {
        World::new(seed, 1.0, BOOT, BEGIN)
            .node_gpus
            .units
            .iter()
            .map(|d| d.uuid.clone())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(ids(1).len(), WHOLE + PARTS.len());
    assert!(ids(1).is_disjoint(&ids(2)));
}

/// Who reads the metadata as the exporter does finds the job's units.
#[test]
fn the_prolog_names_them_by_id_and_by_slurms_index() {
    let mut world = World::new(3, 1.0, BOOT, BEGIN);
    run_to(&mut world, BEGIN + 30 * SECOND);
    let mut seen = 0;
    for job in &world.jobs {
        let text = job.metadata(BOOT);
        let metadata = slurm_jobs::metadata::parse_metadata(text.as_bytes());
        let ids: Vec<_> = job.gpus.iter().map(|(_, id)| id.clone()).collect();
        let indices: Vec<u32> = job.gpus.iter().map(|(unit, _)| u32::try_from(*unit).unwrap()).collect();
        let some = !ids.is_empty();
        assert_eq!(metadata.gpu_ids, some.then_some(ids), "{text}");
        assert_eq!(metadata.gpus, some.then_some(indices), "{text}");
        seen += usize::from(some);
    }
    assert!(seen >= 5, "{seen}");
}

#[test]
fn how_often_somebody_looks_changes_nothing_of_gpus() {
    let spent = |piece: u64| {
        let mut world = World::new(5, 1.0, BOOT, BEGIN);
        for n in 0..90 * SECOND / piece {
            world.step(BEGIN + n * piece);
            world.tick();
        }
        let of = |of: fn(&Device) -> u64| world.node_gpus.units.iter().map(of).sum::<u64>();
        let energy =
            world.node_gpus.boards.iter().map(|board| board.energy).sum::<u64>() - 8 * 70 * world.now;
        [of(|d| d.spent.busy), of(|d| d.spent.tensor), energy]
    };
    for (often, seldom) in spent(SECOND / 50).into_iter().zip(spent(SECOND)) {
        assert!(often.abs_diff(seldom) < seldom / 20, "{often} and {seldom}");
        assert!(seldom > 0);
    }
}

/// The backend reports what the simulation knows, in the exporter's units.
#[test]
fn the_backend_tells_what_the_simulation_knows() {
    let mut world = World::new(4, 1.0, BOOT, BEGIN);
    let at = Instant::now();
    let view = GpuView::new(at, world.node_gpus.clone());
    let (wake, _woken) = channel();
    let mut backend = view.backend(Barrier::new(wake));
    run_to(&mut world, BEGIN + 200 * SECOND);
    let later = at + Duration::from_millis(7);
    view.show(later, &world.node_gpus);
    let sample = backend.sample(Wanted { processes: true }).unwrap();
    assert_eq!((sample.began, sample.failed.len(), sample.units.len()), (later, 0, BOARDS + PARTS.len()));
    let count = |unit: &UnitSample, wanted: &'static Quantity| {
        unit.counts.iter().find(|(quantity, _)| *quantity == wanted).map(|(_, count)| *count)
    };
    let wholes = world.node_gpus.units.iter().take(WHOLE).zip(&sample.units);
    let parts = world.node_gpus.units.iter().skip(WHOLE).zip(&sample.units[BOARDS..]);
    for (at, (device, unit)) in wholes.chain(parts).enumerate() {
        let (s, whole) = (device.spent, at < WHOLE);
        assert_eq!(unit.unit.uuid, device.uuid);
        assert!(!unit.unit.divided);
        let nanos =
            |quantity, micros: u64| assert_eq!(count(unit, quantity), Some(micros * 1000), "{quantity:?}");
        nanos(Quantity::BUSY, s.busy);
        nanos(Quantity::SM_ACTIVE, s.sm);
        nanos(Quantity::SM_OCCUPANCY, s.occupancy);
        nanos(Quantity::TENSOR, s.tensor);
        nanos(Quantity::TENSOR_HALF, s.tensor);
        nanos(Quantity::FP64, s.fp64);
        nanos(Quantity::FP32, s.fp32);
        nanos(Quantity::FP16, s.fp16);
        nanos(Quantity::INTEGER, s.integer);
        nanos(Quantity::DRAM_ACTIVE, s.dram);
        assert_eq!(count(unit, Quantity::ENERGY), whole.then(|| world.node_gpus.boards[at].energy));
        assert_eq!(count(unit, Quantity::PCIE_RECEIVED), whole.then_some(s.pcie[0]));
        assert_eq!(count(unit, Quantity::PCIE_TRANSMITTED), whole.then_some(s.pcie[1]));
        assert_eq!(count(unit, Quantity::NVLINK_RECEIVED), whole.then_some(s.nvlink[0]));
        assert_eq!(count(unit, Quantity::NVLINK_TRANSMITTED), whole.then_some(s.nvlink[1]));
        let multiprocessors = if whole { 132 } else { [60, 32, 16, 16][at - WHOLE] };
        for (quantity, clocks, per_clock) in [
            (Quantity::FLOPS_FP64, s.clocks[0], 128),
            (Quantity::FLOPS_FP32, s.clocks[1], 256),
            (Quantity::FLOPS_TENSOR_HALF, s.clocks[2], 4096),
        ] {
            assert_eq!(
                count(unit, quantity),
                Some(clocks * multiprocessors * per_clock / 1_000_000),
                "millions"
            );
        }
        let memory = unit.memory.unwrap();
        assert_eq!(memory.used, device.used());
        assert_eq!(memory.used + memory.free + memory.reserved.unwrap_or(0), memory.total);
        let reported = unit.processes.as_ref().unwrap();
        let reported: Vec<_> = reported.iter().map(|p| (u64::from(p.pid), p.memory, p.busy_ns)).collect();
        let known = device.clients.iter().map(|c| (c.pid, Some(c.memory), Some(c.busy * 1000)));
        assert_eq!(reported, known.collect::<Vec<_>>());
    }
    // Training runs: the data sheet's 989 TFLOPS are those of its tensor cores at 1755 MHz; these are faster.
    let tensor = world.node_gpus.units[0].spent.tensor;
    let rate = real(count(&sample.units[0], Quantity::FLOPS_TENSOR_HALF).unwrap()) / real(tensor.max(1));
    assert!((1_070.0..1_071.0).contains(&rate), "{rate} million operations in a microsecond");
    let divided = &sample.units[WHOLE];
    assert!(divided.unit.divided && divided.processes.is_none());
    let reported: Vec<_> = divided.counts.iter().map(|(quantity, _)| *quantity).collect();
    let whole = [
        Quantity::PCIE_RECEIVED,
        Quantity::PCIE_TRANSMITTED,
        Quantity::NVLINK_RECEIVED,
        Quantity::NVLINK_TRANSMITTED,
    ];
    assert_eq!(reported, [&[Quantity::ENERGY], &whole[..]].concat(), "activity is known of parts alone");
    assert!(backend.sample(Wanted::default()).unwrap().units.iter().all(|unit| unit.processes.is_none()));
}

/// Every fact has the labels of its row, and is what the board is.
#[test]
fn facts_are_those_of_the_board() {
    let mut world = World::new(7, 1.0, BOOT, BEGIN);
    let (wake, _woken) = channel();
    let view = GpuView::new(Instant::now(), world.node_gpus.clone());
    let mut backend = view.backend(Barrier::new(wake));
    let (mut throttled, mut xids) = (BTreeSet::new(), BTreeSet::new());
    for minute in 1..=30 {
        run_to(&mut world, BEGIN + minute * 60 * SECOND);
        view.show(Instant::now(), &world.node_gpus);
        let sample = backend.sample(Wanted::default()).unwrap();
        for ((at, unit), board) in sample.units.iter().enumerate().zip(&world.node_gpus.boards) {
            let value = |family: &'static Family, labels: &[(&str, &str)]| {
                let fact = unit.facts.iter().find(|fact| {
                    std::ptr::eq(fact.family, family)
                        && labels
                            .iter()
                            .all(|(key, value)| fact.labels.iter().any(|(k, v)| k == key && v == value))
                });
                fact.map(|fact| fact.value)
            };
            let number = |x: f64| Some(Value::from(x));
            let celsius = value(&families::TEMPERATURE, &[("sensor", "gpu")]);
            assert_eq!(celsius, number(board.degrees.round()));
            let throttles = value(&families::THROTTLE, &[("reason", "sw_thermal")]);
            assert_eq!(throttles, Some(Value::from(u64::from(board.slow))));
            let seconds = value(&families::THROTTLE_SECONDS, &[("reason", "sw_thermal")]);
            assert_eq!(seconds, number(real(board.slowed) / 1e6));
            if board.slowed > 0 {
                throttled.insert(at);
            }
            let errors = value(&families::ECC_ERRORS, &[("since", "load"), ("type", "corrected")]);
            assert_eq!(errors, Some(Value::from(board.errors)));
            let xid = value(&families::XID_ERRORS, &[("code", "63")]);
            assert_eq!(xid, (board.rows > 0).then(|| Value::from(board.rows)), "a row, an Xid");
            if xid.is_some() {
                xids.insert(at);
            }
            for fact in &unit.facts {
                let labels = fact.labels.iter().all(|(key, _)| fact.family.labels.contains(key));
                assert!(labels, "{fact:?}");
            }
        }
    }
    assert_eq!((throttled, xids), (BTreeSet::from([2]), BTreeSet::from([1])));
}
