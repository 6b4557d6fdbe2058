//! Releasing counters by order, for profilers that do not use LIKWID's lock.
//!
//! An order stands until it is lifted, or its time is over, or the exporter ends.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use perf_counters::sharing::{CounterOwnership, Lock, Reason};
use worker_threads::Worker;

use super::CounterOrder;

const HELD_UP: &str = "releasing: some hardware counters are still open, a reading of them hangs";

/// The order that stands.
#[derive(Debug)]
struct CurrentOrder {
    /// When it ends, if it has a time limit.
    until: Mutex<Option<Instant>>,
    /// Ends it then.
    worker: Worker,
}

impl CurrentOrder {
    /// Lifts the order if its time is over. Returns when that will be.
    fn end(&self, ownership: &CounterOwnership) -> Option<Instant> {
        let mut until = self.until.lock();
        if until.is_some_and(|until| until <= Instant::now()) {
            *until = None;
            // With the lock held: an order that comes now comes after this.
            ownership.resume_from(Reason::Order);
            tracing::info!("the time for which counters were released by order is over");
        }
        *until
    }
}

/// Carries out orders. Its clones are the same.
#[derive(Debug, Clone)]
pub struct Orders {
    ownership: CounterOwnership,
    lock: Option<Arc<Lock>>,
    current: Arc<CurrentOrder>,
}

fn rounded(duration: Duration) -> humantime::FormattedDuration {
    let whole = if duration < Duration::from_secs(10) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(whole)
}

impl Orders {
    /// For this ownership; the lock is only mentioned in answers.
    pub fn new(ownership: CounterOwnership, lock: Option<Arc<Lock>>) -> Self {
        let current = CurrentOrder { until: Mutex::new(None), worker: Worker::new("order", 256 << 10) };
        Self { ownership, lock, current: Arc::new(current) }
    }

    /// Carries out an order. Returns what was done, or why not, in a line.
    pub fn obey(&self, order: CounterOrder) -> Result<String, String> {
        match order {
            CounterOrder::Yield(limit) => self.release(limit),
            CounterOrder::Resume => Ok(self.resume()),
            CounterOrder::Status => Ok(self.status()),
        }
    }

    fn release(&self, limit: Option<Duration>) -> Result<String, String> {
        let until = limit.map(|limit| Instant::now().checked_add(limit).ok_or("that is too long"));
        let until = until.transpose()?;
        let mut current = self.current.until.lock();
        let worker = &self.current.worker;
        if until.is_some() && !worker.is_started() {
            // First, so that no order stands that cannot end.
            let (this, ownership) = (Arc::downgrade(&self.current), self.ownership.clone());
            let started = worker.start(move || move || this.upgrade()?.end(&ownership));
            started.map_err(|error| format!("no thread to end the order on: {error}"))?;
        }
        *current = until;
        worker.notify();
        let began = Instant::now();
        let all = self.ownership.yield_for(Reason::Order);
        let took = began.elapsed();
        tracing::info!(?took, ?limit, all, "hardware counters are released by order");
        if !all {
            return Err(format!("{HELD_UP}; the order stands"));
        }
        let limit = limit.map(|limit| format!(", for {} at most", rounded(limit))).unwrap_or_default();
        if self.ownership.ownership_status().counter_users {
            Ok(format!(
                "no hardware counter is open any more, after {:.1} ms{limit}",
                took.as_secs_f64() * 1e3
            ))
        } else {
            Ok(format!("nothing that runs here holds hardware counters; none will be opened{limit}"))
        }
    }

    fn resume(&self) -> String {
        let mut current = self.current.until.lock();
        *current = None;
        let stood = self.ownership.reasons().contains(&Reason::Order);
        self.ownership.resume_from(Reason::Order);
        let what = if stood { "the order is lifted" } else { "no order stood" };
        if self.ownership.is_yielded() {
            format!("{what}; the counters remain yielded: {}", self.owner())
        } else {
            format!("{what}; the counters are held")
        }
    }

    fn owner(&self) -> String {
        self.lock.as_ref().map_or("no lock is watched".to_owned(), |lock| lock.look().to_string())
    }

    /// `held` or `yielded` first, for scripts, and `yielded` not before it is true of all.
    fn status(&self) -> String {
        let owner = self.owner();
        let current = self.current.until.lock();
        let ends = *current;
        let before = self.ownership.ownership_status();
        if before.held_up && before.reasons.contains(&Reason::Order) {
            // The hanging reading may be over. With the lock held: nothing lifts the order meanwhile.
            self.ownership.yield_for(Reason::Order);
        }
        drop(current);
        let ownership_status = self.ownership.ownership_status();
        let counts = if ownership_status.counter_users {
            ""
        } else {
            "; nothing that runs here holds hardware counters"
        };
        let Some(since) = ownership_status.since else { return format!("held; {owner}{counts}") };
        let word = if ownership_status.held_up { HELD_UP } else { "yielded" };
        let reasons: Vec<_> = ownership_status.reasons.iter().map(|reason| reason.as_str()).collect();
        let ends = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        let ends = ends.map(|left| format!("; the order ends in {}", rounded(left))).unwrap_or_default();
        let at = clocks::wall().checked_sub(since.elapsed()).unwrap_or(SystemTime::UNIX_EPOCH);
        let at = humantime::format_rfc3339_seconds(at);
        format!(
            "{word} since {at} ({}), by {}; {owner}{ends}{counts}",
            rounded(since.elapsed()),
            reasons.join(" and ")
        )
    }
}

#[cfg(test)]
mod tests {
    use jobledger_testkit::eventually;
    use perf_counters::sharing::CounterUser;

    use super::*;

    struct Double;

    impl CounterUser for Double {
        fn release(&self) -> bool {
            std::thread::sleep(Duration::from_millis(5));
            true
        }

        fn resume(&self) {}
    }

    #[test]
    fn an_order_stands_until_it_is_lifted() {
        let ownership = CounterOwnership::default();
        let orders = Orders::new(ownership.clone(), None);
        assert_eq!(
            orders.status(),
            "held; no lock is watched; nothing that runs here holds hardware counters"
        );
        let counter_user: Arc<dyn CounterUser> = Arc::new(Double);
        ownership.take_part(&counter_user);
        assert_eq!(orders.obey(CounterOrder::Status).unwrap(), "held; no lock is watched");
        let done = orders.obey(CounterOrder::Yield(None)).unwrap();
        let took = done
            .strip_prefix("no hardware counter is open any more, after ")
            .and_then(|d| d.strip_suffix(" ms"));
        assert!(took.unwrap().parse::<f64>().unwrap() >= 5.0, "{done}");
        assert!(ownership.is_yielded());
        let status = orders.obey(CounterOrder::Status).unwrap();
        assert!(
            status.starts_with("yielded since 20") && status.ends_with(", by order; no lock is watched"),
            "{status}"
        );
        ownership.yield_for(Reason::Lock);
        assert!(orders.status().contains("by lock and order"));
        assert!(
            orders
                .obey(CounterOrder::Resume)
                .unwrap()
                .starts_with("the order is lifted; the counters remain yielded")
        );
        ownership.resume_from(Reason::Lock);
        assert_eq!(orders.obey(CounterOrder::Resume).unwrap(), "no order stood; the counters are held");
    }

    struct Stuck;

    impl CounterUser for Stuck {
        fn release(&self) -> bool {
            false
        }

        fn resume(&self) {}
    }

    #[test]
    fn what_may_still_be_open_is_not_reported_as_closed() {
        let ownership = CounterOwnership::default();
        let orders = Orders::new(ownership.clone(), None);
        let counter_user: Arc<dyn CounterUser> = Arc::new(Stuck);
        ownership.take_part(&counter_user);
        let refused = orders.obey(CounterOrder::Yield(None)).unwrap_err();
        assert!(refused.contains("still open") && refused.ends_with("the order stands"), "{refused}");
        let status = orders.status();
        assert!(ownership.is_yielded() && status.starts_with("releasing: some"), "{status}");
        drop(counter_user);
        let status = orders.status();
        assert!(status.starts_with("yielded since"), "what held them is gone: {status}");
        assert!(orders.obey(CounterOrder::Yield(None)).is_ok());
    }

    #[test]
    fn one_with_a_limit_ends_by_itself_and_the_last_order_counts() {
        let ownership = CounterOwnership::default();
        let orders = Orders::new(ownership.clone(), None);
        let release =
            |limit: Option<u64>| orders.obey(CounterOrder::Yield(limit.map(Duration::from_millis))).unwrap();
        let began = Instant::now();
        assert!(release(Some(30)).ends_with(", for 30ms at most"));
        assert!(orders.status().contains("; the order ends in "));
        eventually("its end", || !ownership.is_yielded());
        assert!(began.elapsed() >= Duration::from_millis(30));

        // Longer, shorter and without an end: each takes the place of the one before.
        release(Some(20));
        release(Some(600_000));
        std::thread::sleep(Duration::from_millis(60));
        assert!(ownership.is_yielded());
        release(Some(20));
        eventually("the shorter one's end", || !ownership.is_yielded());
        release(Some(20));
        release(None);
        std::thread::sleep(Duration::from_millis(60));
        assert!(ownership.is_yielded() && !orders.status().contains("ends"));
        orders.resume();

        // Lifted before its time, and an order after it is not ended by it.
        release(Some(40));
        orders.resume();
        assert!(!ownership.is_yielded());
        release(None);
        std::thread::sleep(Duration::from_millis(80));
        assert!(ownership.is_yielded());
        assert_eq!(orders.obey(CounterOrder::Yield(Some(Duration::MAX))), Err("that is too long".to_owned()));
    }

    #[test]
    fn one_thread_serves_all_orders_and_ends_with_them() {
        let orders = Orders::new(CounterOwnership::default(), None);
        for _ in 0..20 {
            orders.release(Some(Duration::from_secs(600))).unwrap();
        }
        let current = Arc::downgrade(&orders.current);
        drop(orders);
        eventually("its end", || current.strong_count() == 0);
    }
}
