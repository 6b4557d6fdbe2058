use proptest::prelude::*;

use super::*;

const A: LifeId = LifeId(1);
const B: LifeId = LifeId(2);

struct Clock(Instant);

impl Clock {
    fn at(&self, millis: u64) -> Instant {
        self.0 + Duration::from_millis(millis)
    }

    fn look(&self, millis: u64, holders: Holders, heard: &str) -> Look {
        let mut words = Heard::default();
        for word in heard.split_whitespace() {
            let (kind, at) = word.split_at(1);
            let at = self.at(at.parse().unwrap());
            match kind {
                "o" => words.opened(at),
                _ => words.closed(at),
            }
        }
        Look { read: self.at(millis), over: self.at(millis + 1), holders, heard: words }
    }
}

/// Looks up to second 5 that agree on `begin`, and one at second 20.
fn interval(begin: Holders, end: Holders, heard: &str) -> Option<LifeId> {
    let clock = Clock(Instant::now());
    let mut holding = Holding::default();
    assert_eq!(holding.look(&clock.look(1000, begin, "o10")), None);
    assert_eq!(holding.settles(), Some(clock.at(1010)));
    assert_eq!(holding.look(&clock.look(1010, begin, "")), None);
    assert_eq!(holding.settles(), Some(clock.at(2011)));
    holding.look(&clock.look(5000, begin, ""));
    assert!(holding.is_certain() && holding.settles().is_none());
    holding.look(&clock.look(20_000, end, heard))
}

#[test]
fn an_interval_is_a_jobs_if_nobody_else_had_it_open_and_nobody_opened_it() {
    use Holders::{Nobody, One, Others};
    for (begin, end, heard, whose) in [
        (One(A), One(A), "", Some(A)),
        (One(A), Nobody, "c9000", Some(A)),
        (One(A), One(A), "c9000", Some(A)),
        // Whose openings these were cannot be told.
        (One(A), One(A), "o9000", None),
        (One(A), One(A), "o9000 c9001", None),
        (One(A), One(A), "c8000 o9000", None),
        (One(A), Nobody, "o9000 c9001", None),
        (Nobody, One(A), "o9000", None),
        // It changed hands, or several have it.
        (One(A), One(B), "c8000 o9000", None),
        (One(A), Others, "o9000", None),
        (Others, One(A), "c9000", None),
        (Others, Others, "", None),
        // A descriptor that was not heard of: handed over, or opened through another node.
        (One(A), Others, "", None),
        (Nobody, One(A), "", None),
        (One(A), One(B), "", None),
        (Nobody, Nobody, "", None),
        (Nobody, Nobody, "o8000 c9000", None),
    ] {
        assert_eq!(interval(begin, end, heard), whose, "{begin:?} {end:?} {heard}");
    }
}

#[test]
fn nothing_is_booked_before_looks_agreed_for_long_enough() {
    let clock = Clock(Instant::now());
    let mut holding = Holding::default();
    let one = Holders::One(A);
    assert_eq!(holding.look(&clock.look(1000, one, "")), None, "never looked before");
    assert_eq!(holding.look(&clock.look(1500, one, "")), None, "who was there is not certain yet");
    assert!(!holding.is_certain());
    assert_eq!(holding.look(&clock.look(2000, one, "")), None);
    assert!(!holding.is_certain(), "999 ms");
    assert_eq!(holding.look(&clock.look(2001, one, "")), None);
    assert!(holding.is_certain());
    assert_eq!(holding.look(&clock.look(3000, one, "")), Some(A));
    // Another's descriptor is gone before the word of its closing comes.
    assert_eq!(holding.look(&clock.look(4000, Holders::Others, "o3500")), None);
    assert_eq!(holding.look(&clock.look(9000, one, "")), None);
    assert_eq!(holding.look(&clock.look(9500, one, "c9002")), None);
    for (at, whose) in [(10_001, None), (10_002, None), (11_002, None), (11_003, None), (11_004, Some(A))] {
        assert_eq!(holding.look(&clock.look(at, one, "")), whose, "{at}");
    }
    holding.unseen();
    assert_eq!(holding.look(&clock.look(20_000, one, "")), None);
}

/// What happens to the device.
#[derive(Debug, Clone)]
enum Step {
    /// A process of a job (0 is none) opens it; its descriptor shows `late` ms after the word of it.
    Open { who: u64, late: u64 },
    /// One of those that are open is closed; the word comes `late` ms after the descriptor is gone.
    Close { which: usize, late: u64 },
    /// Somebody looks.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let late = || prop_oneof![3 => Just(0_u64), 1 => 0..990_u64];
    let step = prop_oneof![
        2 => (0..3_u64, late()).prop_map(|(who, late)| Step::Open { who, late }),
        2 => (0..4_usize, late()).prop_map(|(which, late)| Step::Close { which, late }),
        4 => Just(Step::Look),
    ];
    prop::collection::vec((prop_oneof![2 => 1..200_u64, 1 => 200..3000_u64], step), 1..60)
}

/// One opening: it is held from `from` (the word of it) to `until` (the word of its closing), and shows in between.
#[derive(Debug, Clone, Copy)]
struct Opening {
    who: u64,
    from: u64,
    shows: u64,
    hidden: u64,
    until: u64,
}

proptest! {
    #[test]
    fn no_interval_is_booked_in_which_anybody_else_had_it_open(history in steps()) {
        let clock = Clock(Instant::now());
        let mut now = 10;
        let mut openings: Vec<Opening> = Vec::new();
        let mut looks = Vec::new();
        for (pause, step) in history {
            now += pause;
            match step {
                Step::Open { who, late } => {
                    openings.push(Opening { who, from: now, shows: now + late, hidden: u64::MAX, until: u64::MAX });
                }
                Step::Close { which, late } => {
                    let open = openings.iter_mut().filter(|o| o.until == u64::MAX && o.shows <= now).nth(which);
                    if let Some(opening) = open {
                        (opening.hidden, opening.until) = (now, now + late);
                    }
                }
                Step::Look => looks.push(now),
            }
        }
        let mut words: Vec<(u64, bool)> = openings
            .iter()
            .flat_map(|o| [(o.from, true), (o.until, false)])
            .filter(|(at, _)| *at != u64::MAX)
            .collect();
        words.sort_unstable();
        let mut holding = Holding::default();
        let mut last = 0;
        for look in looks {
            let mut heard = Heard::default();
            for (at, opened) in words.iter().filter(|(at, _)| (last + 1..=look).contains(at)) {
                if *opened { heard.opened(clock.at(*at)) } else { heard.closed(clock.at(*at)) }
            }
            let mut shown: Vec<u64> =
                openings.iter().filter(|o| o.shows <= look && look < o.hidden).map(|o| o.who).collect();
            shown.sort_unstable();
            shown.dedup();
            let holders = match *shown {
                [] => Holders::Nobody,
                [who] if who > 0 => Holders::One(LifeId(who)),
                _ => Holders::Others,
            };
            let booked = holding.look(&Look { read: clock.at(look), over: clock.at(look), holders, heard });
            if let Some(life) = booked {
                let other = openings.iter().find(|o| LifeId(o.who) != life && o.from < look && o.until > last);
                prop_assert!(other.is_none(), "{last}..{look} booked to {life:?}, {other:?}");
                let own = openings.iter().any(|o| LifeId(o.who) == life && o.from < look && o.until > last);
                prop_assert!(own, "{last}..{look} booked to {life:?}, which did not have it");
            }
            last = look;
        }
    }
}
