//! Collections on a clock of the test's own: clients and collectors of all kinds, in an order that a seed decides.
//!
//! Nothing here is a thread: a step takes the next thing that happens. So a history that fails is the same at each run.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::*;

const LIMITS: Limits = Limits {
    min_interval: Duration::from_millis(1000),
    longest: Duration::from_millis(8550),
    patience: Duration::from_millis(400),
};
/// What a client with Prometheus' default timeout waits, milliseconds.
const WHOLE: u64 = 9500;
const COLLECTORS: usize = 6;
/// Length of a history, milliseconds.
const LENGTH: u64 = 120_000;

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }
}

/// A snapshot: what it has, and what it says of the others.
#[derive(Debug, Clone, PartialEq)]
struct Shot {
    /// When its collection got the jobs, milliseconds.
    jobs_at: u64,
    made_at: u64,
    parts: BTreeSet<usize>,
    late: BTreeSet<usize>,
}

/// A client that asks again and again.
#[derive(Debug, Clone, Copy)]
struct Client {
    patience: u64,
    pause: u64,
    /// It leaves after so long without waiting for its answer, if it does.
    leaves: Option<u64>,
}

/// How a collector behaves: for how long it runs, milliseconds.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Fast,
    Slow(u64),
    /// It hangs for so long, now and then.
    Hangs(u64),
}

#[derive(Debug)]
enum Event {
    /// A client asks.
    Asks(usize),
    /// A request can wait no longer.
    Deadline { id: u64 },
    /// A client leaves.
    Leaves { id: u64 },
    /// A thread has done its work.
    Done { thread: u64, work: Work },
    /// A thread looks for work.
    Works { thread: u64 },
    /// What watches over the collection looks whether something is due.
    Looks { round: u64 },
}

#[derive(Debug)]
struct Request {
    client: usize,
    arrived: u64,
    over: bool,
}

/// The world of a history.
struct World {
    begin: Instant,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    order: u64,
    random: Random,
    desk: Desk<u64, u64, Rc<Shot>, u64>,
    threads: u64,
    /// The threads that run something.
    busy: BTreeSet<u64>,
    clients: Vec<Client>,
    behaviours: Vec<Behaviour>,
    requests: Vec<Request>,
    is_watched: bool,
    /// Of looks; those before are out of date.
    round: u64,
    /// When each run of a collector under way began.
    began: BTreeMap<usize, u64>,
    shots: Vec<Rc<Shot>>,
    /// What each answered request got: client, whether it is a snapshot.
    answers: Vec<(usize, bool)>,
}

impl World {
    fn new(seed: u64, clients: Vec<Client>, behaviours: Vec<Behaviour>) -> Self {
        let mut world = Self {
            begin: Instant::now(),
            now: 0,
            events: BTreeMap::new(),
            order: 0,
            random: Random(seed),
            desk: Desk::new(behaviours.len(), LIMITS),
            threads: 0,
            busy: BTreeSet::new(),
            clients,
            behaviours,
            requests: Vec::new(),
            is_watched: false,
            round: 0,
            began: BTreeMap::new(),
            shots: Vec::new(),
            answers: Vec::new(),
        };
        for client in 0..world.clients.len() {
            let first = world.random.within(0, 3000);
            world.at(first, Event::Asks(client));
        }
        world
    }

    /// Whatever happens at the same time happens in an order of chance.
    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        let chance = self.random.next() << 20 | self.order;
        self.events.insert((time, chance), event);
    }

    fn instant(&self, time: u64) -> Instant {
        self.begin + Duration::from_millis(time)
    }

    fn run(&mut self) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            assert!(time >= self.now);
            self.now = time;
            self.close();
            self.happens(event);
        }
        assert_eq!(self.desk.waiting(), 0, "nobody waits in the end");
        assert!(self.desk.is_idle(), "a collection ends");
    }

    fn happens(&mut self, event: Event) {
        let now = self.instant(self.now);
        match event {
            Event::Asks(client) => self.asks(client),
            Event::Deadline { id } => {
                let index = usize::try_from(id).unwrap();
                if !self.requests[index].over {
                    let arrived = self.instant(self.requests[index].arrived);
                    match self.desk.at_the_deadline(arrived) {
                        AtDeadline::Snapshot(shot) => self.answer(id, Some(&shot)),
                        AtDeadline::Parts(..) | AtDeadline::Nothing => self.answer(id, None),
                    }
                    self.forget();
                }
            }
            Event::Leaves { id } => {
                self.requests[usize::try_from(id).unwrap()].over = true;
                self.forget();
            }
            Event::Done { thread, work } => {
                self.busy.remove(&thread);
                match work {
                    Work::Jobs(..) => self.desk.got_jobs(thread, work, Some(self.now)),
                    Work::Collect(_, at) => {
                        let began = self.began.remove(&at).unwrap();
                        let _ = self.desk.done(thread, work, began);
                    }
                }
                self.close();
                self.works(thread);
                // A late one may be run again by the thread in charge.
                let thread = self.threads;
                self.at(self.now, Event::Works { thread });
            }
            Event::Works { thread } => self.works(thread),
            Event::Looks { round } => self.looks(round),
        }
        if self.desk.needs_thread(now) {
            self.threads += 1;
            self.desk.in_charge(self.threads);
            let thread = self.threads;
            self.at(self.now, Event::Works { thread });
        }
    }

    fn forget(&mut self) {
        let requests = &self.requests;
        self.desk.forget(|id| requests[usize::try_from(*id).unwrap()].over);
    }

    fn asks(&mut self, index: usize) {
        let client = self.clients[index];
        if self.now < LENGTH {
            let pause = self.random.within(client.pause / 2, client.pause * 3 / 2 + 1);
            self.at(self.now + pause.max(1), Event::Asks(index));
        }
        let id = self.requests.len() as u64;
        self.requests.push(Request { client: index, arrived: self.now, over: false });
        match self.desk.request(self.instant(self.now), || (id, ())) {
            Ok(shot) => {
                let age = self.now - shot.jobs_at;
                assert!(age <= 1000, "a snapshot that is {age} ms old is not fresh");
                self.answer(id, Some(&shot));
            }
            Err(()) => {
                self.at(self.now + client.patience, Event::Deadline { id });
                if let Some(leaves) = client.leaves {
                    self.at(self.now + leaves, Event::Leaves { id });
                }
                if !self.is_watched {
                    self.is_watched = true;
                    self.at(self.now, Event::Looks { round: self.round });
                }
                let thread = self.threads;
                self.at(self.now, Event::Works { thread });
            }
        }
    }

    /// As the engine's task does.
    fn looks(&mut self, round: u64) {
        if round != self.round {
            return;
        }
        let due = self.desk.due(self.instant(self.now));
        self.is_watched = due.is_some();
        if let Some(due) = due {
            let due = u64::try_from((due - self.begin).as_millis()).unwrap();
            self.at(due.max(self.now + 1), Event::Looks { round });
        }
    }

    fn works(&mut self, thread: u64) {
        if self.busy.contains(&thread) {
            return;
        }
        let Some((work, jobs)) = self.desk.next(thread, self.instant(self.now)) else { return };
        let takes = match work {
            Work::Jobs(..) => self.random.within(0, 3),
            Work::Collect(_, at) => {
                assert!(jobs.is_some());
                assert!(self.began.insert(at, self.now).is_none(), "one run of a collector at a time");
                match self.behaviours[at] {
                    Behaviour::Fast => self.random.within(0, 30),
                    Behaviour::Slow(takes) => self.random.within(takes / 2, takes + 1),
                    Behaviour::Hangs(takes) if self.random.within(0, 4) == 0 => takes,
                    Behaviour::Hangs(_) => 1,
                }
            }
        };
        self.busy.insert(thread);
        self.at(self.now + takes, Event::Done { thread, work });
    }

    fn close(&mut self) {
        let (now, began, all) = (self.now, &self.began, self.behaviours.len());
        let made = RefCell::new(None);
        let finish = |jobs_at: u64, parts: Vec<(usize, u64)>, stuck: usize| {
            let parts: BTreeSet<usize> = parts.into_iter().map(|(at, _)| at).collect();
            let late: BTreeSet<usize> = (0..all).filter(|at| !parts.contains(at)).collect();
            assert_eq!(stuck, began.len(), "what still runs");
            for at in &late {
                // On time: done before the collection was over. It was not: it runs, or did until now.
                let since = began.get(at).copied();
                assert!(since.is_some(), "{at} is called late at {now}, and does not run");
                let ran = now - since.unwrap();
                let whole = now.saturating_sub(jobs_at) + 3 >= 8550;
                assert!(whole || since.unwrap() < jobs_at, "{at} is called late after {ran} ms");
            }
            let shot = Rc::new(Shot { jobs_at, made_at: now, parts, late });
            *made.borrow_mut() = Some(shot.clone());
            shot
        };
        let answered = self.desk.close(self.begin + Duration::from_millis(now), finish);
        if let Some(shot) = made.into_inner() {
            if let Some(before) = self.shots.last() {
                assert!(shot.jobs_at >= before.made_at, "one at a time");
                // The jobs come some milliseconds after the beginning.
                assert!(shot.jobs_at + 3 > before.jobs_at + 1000, "and not too often");
            }
            self.shots.push(shot);
        }
        let Some(answered) = answered else { return };
        for id in answered.requests {
            self.answer(id, answered.snapshot.as_ref());
        }
        let thread = self.threads;
        self.at(self.now, Event::Works { thread });
        if self.is_watched {
            self.round += 1;
            self.at(self.now, Event::Looks { round: self.round });
        }
    }

    /// A request is answered with a snapshot, or with less.
    fn answer(&mut self, id: u64, shot: Option<&Rc<Shot>>) {
        let request = &mut self.requests[usize::try_from(id).unwrap()];
        if std::mem::replace(&mut request.over, true) {
            return;
        }
        let waited = self.now - request.arrived;
        let client = self.clients[request.client];
        assert!(waited <= client.patience, "answered by its deadline");
        assert!(client.patience < WHOLE || shot.is_some(), "who waits ten seconds gets a whole page");
        self.answers.push((request.client, shot.is_some()));
    }
}

fn clients(random: &mut Random) -> Vec<Client> {
    let rude = |random: &mut Random| Client {
        patience: random.within(0, 3) * random.within(1, 60) + 1,
        pause: random.within(2, 400),
        leaves: (random.within(0, 3) == 0).then(|| random.within(0, 100)),
    };
    let mut all: Vec<Client> = (0..random.within(0, 5)).map(|_| rude(random)).collect();
    for _ in 0..random.within(1, 4) {
        let leaves = (random.within(0, 4) == 0).then(|| random.within(0, 5000));
        all.push(Client { patience: random.within(500, WHOLE), pause: random.within(900, 15_000), leaves });
    }
    all.push(Client { patience: WHOLE, pause: 5000, leaves: None });
    all
}

fn behaviours(random: &mut Random) -> Vec<Behaviour> {
    let one = |random: &mut Random| match random.within(0, 8) {
        0 => Behaviour::Slow(random.within(100, 3000)),
        1 => Behaviour::Hangs(random.within(3000, 40_000)),
        _ => Behaviour::Fast,
    };
    (0..COLLECTORS).map(|_| one(random)).collect()
}

/// Four clients without patience beside a Prometheus, with collectors that need a while.
#[test]
fn the_history_that_took_scrapes_down() {
    let rude = Client { patience: 1, pause: 2, leaves: None };
    let prometheus = Client { patience: WHOLE, pause: 500, leaves: None };
    let behaviours = vec![Behaviour::Fast, Behaviour::Slow(300), Behaviour::Fast];
    let mut world = World::new(1, vec![rude, rude, rude, rude, prometheus], behaviours);
    world.run();
    let whole: Vec<bool> =
        world.answers.iter().filter(|(client, _)| *client == 4).map(|(_, whole)| *whole).collect();
    assert!(whole.len() > 100 && whole.iter().all(|whole| *whole));
    assert!(world.shots.iter().all(|shot| shot.late.is_empty() && shot.parts.len() == 3));
}

#[test]
fn no_history_denies_a_patient_client_its_page_or_calls_a_collector_late_that_was_on_time() {
    let (mut whole, mut less, mut late) = (0, 0, 0);
    for seed in 2..120 {
        let mut random = Random(seed);
        let (clients, behaviours) = (clients(&mut random), behaviours(&mut random));
        let run = || {
            let mut world = World::new(seed, clients.clone(), behaviours.clone());
            world.run();
            world
        };
        let world = std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("seed {seed}: {behaviours:?}"));
        whole += world.answers.iter().filter(|(_, whole)| *whole).count();
        less += world.answers.iter().filter(|(_, whole)| !whole).count();
        late += world.shots.iter().filter(|shot| !shot.late.is_empty()).count();
    }
    // The histories have something of everything.
    assert!(whole > 10_000 && less > 1000 && late > 100, "{whole} {less} {late}");
}

/// A late collector is missing once, and is there when it came back.
#[test]
fn a_collector_that_comes_back_is_in_the_next_snapshot() {
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let mut desk: Desk<(), (), Vec<usize>, ()> = Desk::new(2, LIMITS);
    let finish = |(), parts: Vec<(usize, ())>, _| parts.into_iter().map(|(at, ())| at).collect::<Vec<_>>();
    assert!(desk.request(at(0), || ((), ())).is_err());
    assert!(desk.needs_thread(at(0)));
    desk.in_charge(1);
    let (jobs, _) = desk.next(1, at(0)).unwrap();
    desk.got_jobs(1, jobs, Some(()));
    let (first, _) = desk.next(1, at(1)).unwrap();
    assert!(!desk.needs_thread(at(400)));
    assert!(desk.needs_thread(at(401)), "it takes long, and another one waits behind it");
    desk.in_charge(2);
    let (second, _) = desk.next(2, at(401)).unwrap();
    assert_eq!(desk.next(1, at(401)), None, "no longer in charge");
    assert_eq!(desk.done(2, second, ()), Ok(()));
    assert!(desk.close(at(8549), finish).is_none());
    let closed = desk.close(at(8550), finish).unwrap();
    assert_eq!((closed.snapshot, closed.requests.len(), desk.stuck()), (Some(vec![1]), 1, 1));

    // The next one does not wait for it.
    assert!(desk.request(at(8600), || ((), ())).is_err());
    let (jobs, _) = desk.next(2, at(8600)).unwrap();
    desk.got_jobs(2, jobs, Some(()));
    let (second, _) = desk.next(2, at(8600)).unwrap();
    assert_eq!(desk.next(2, at(8600)), None);
    assert_eq!(desk.done(2, second, ()), Ok(()));
    assert_eq!(desk.close(at(8601), finish).unwrap().snapshot, Some(vec![1]));

    assert!(desk.request(at(10_000), || ((), ())).is_err());
    assert_eq!(desk.done(1, first, ()), Err(()), "too late for its collection");
    let (jobs, _) = desk.next(2, at(10_000)).unwrap();
    desk.got_jobs(2, jobs, Some(()));
    for _ in 0..2 {
        let (work, _) = desk.next(2, at(10_000)).unwrap();
        assert_eq!(desk.done(2, work, ()), Ok(()));
    }
    assert_eq!(desk.close(at(10_001), finish).unwrap().snapshot, Some(vec![0, 1]));
}

/// What a request gets that comes so long after a collection began.
#[test]
fn a_collection_answers_requests_for_as_long_as_it_is_fresh() {
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let mut desk: Desk<(), (), u8, VecDeque<u8>> = Desk::new(0, LIMITS);
    let wait = || (VecDeque::new(), ());
    assert!(desk.request(at(0), wait).is_err());
    desk.in_charge(1);
    let (jobs, _) = desk.next(1, at(0)).unwrap();
    // One that comes while it runs waits for it; a later one for the next.
    assert!(desk.request(at(1000), wait).is_err());
    assert!(desk.request(at(1001), wait).is_err());
    desk.got_jobs(1, jobs, Some(()));
    assert_eq!(desk.close(at(1100), |(), _, _| 7).unwrap().requests.len(), 2);
    assert_eq!(desk.waiting(), 1);
    assert!(matches!(desk.at_the_deadline(at(1001)), AtDeadline::Snapshot(7)), "better than a part");
    let (jobs, _) = desk.next(1, at(1100)).unwrap();
    desk.got_jobs(1, jobs, Some(()));
    assert_eq!(desk.close(at(1200), |(), _, _| 8).unwrap().requests.len(), 1);
    assert_eq!(desk.request(at(2100), wait), Ok(8));
    assert!(desk.expire(at(2100)).is_some());
    assert_eq!(desk.expire(at(2101)), None);
    assert!(desk.request(at(2101), wait).is_err());
}
