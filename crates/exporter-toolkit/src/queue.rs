//! Waiting for one of a few places, fairly: the passwords' checks and the scrapes.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::peer::Peer;

/// Turns that are remembered. With more, those of peers that do not wait are forgotten.
const MOST_SERVED: usize = 1024;

/// Who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Lower goes first. Rank 0 may also use the places of the reserve.
    pub(crate) rank: u8,
    /// Those of a rank have turns by peer.
    pub(crate) peer: Peer,
    /// Those of a peer have turns by name.
    pub(crate) name: String,
}

/// Who is next among those of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Who came first.
    Arrival,
    /// In turn who came first and anyone. A small flood costs its length in time; in a large one everybody has a chance.
    Chance,
}

/// Places, and who waits for them.
#[derive(Debug)]
pub(crate) struct Queue {
    order: Order,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    reserve: usize,
    waiting: Vec<Waiting>,
    /// The turn in which a peer, or a name of it, was last served.
    served: HashMap<(Peer, Option<String>), u64>,
    turn: u64,
    next: u64,
    random: RandomState,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    ask: Ask,
    wake: oneshot::Sender<Turn>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Queue>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Takes one that gives up out of the queue.
struct Leaving<'a>(&'a Queue, u64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiting.retain(|waiting| waiting.id != self.1);
        if state.waiting.is_empty() {
            state.served.clear();
        }
    }
}

impl Queue {
    /// With so many places, `reserve` of them for rank 0.
    pub(crate) fn new(places: usize, reserve: usize, order: Order) -> Arc<Self> {
        let state = State {
            free: places,
            reserve,
            waiting: Vec::new(),
            served: HashMap::new(),
            turn: 0,
            next: 0,
            random: RandomState::new(),
        };
        Arc::new(Queue { order, state: Mutex::new(state) })
    }

    /// Waits for a place. Whoever drops the future leaves the queue.
    pub(crate) async fn wait(self: &Arc<Self>, ask: Ask) -> Option<Turn> {
        let (id, turn) = {
            let mut state = self.state.lock();
            if state.admits(ask.rank) {
                state.free -= 1;
                return Some(Turn(Arc::clone(self)));
            }
            let (wake, turn) = oneshot::channel();
            let id = state.next;
            state.next += 1;
            state.waiting.push(Waiting { id, ask, wake });
            (id, turn)
        };
        let _leaving = Leaving(self, id);
        turn.await.ok()
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    fn give_back(self: &Arc<Self>) {
        let next = {
            let mut state = self.state.lock();
            state.free += 1;
            let next = state.pick(self.order);
            state.free -= usize::from(next.is_some());
            next
        };
        if let Some(next) = next {
            // If that one has just left, the place comes back with the error.
            let _ = next.wake.send(Turn(Arc::clone(self)));
        }
    }
}

impl State {
    fn admits(&self, rank: u8) -> bool {
        self.free > if rank == 0 { 0 } else { self.reserve }
    }

    fn served(&self, peer: Peer, name: Option<&str>) -> u64 {
        self.served.get(&(peer, name.map(str::to_owned))).copied().unwrap_or(0)
    }

    /// Takes the next one out of the queue.
    fn pick(&mut self, order: Order) -> Option<Waiting> {
        let rank =
            self.waiting.iter().map(|waiting| waiting.ask.rank).min().filter(|rank| self.admits(*rank))?;
        let of_rank =
            || self.waiting.iter().filter(|waiting| waiting.ask.rank == rank).map(|waiting| &waiting.ask);
        let peer = of_rank().map(|ask| ask.peer).min_by_key(|peer| self.served(*peer, None))?;
        let names = of_rank().filter(|ask| ask.peer == peer).map(|ask| ask.name.as_str());
        let name = names.min_by_key(|name| self.served(peer, Some(name)))?.to_owned();
        let wanted = Ask { rank, peer, name };
        let mut alike: Vec<u64> =
            self.waiting.iter().filter(|waiting| waiting.ask == wanted).map(|waiting| waiting.id).collect();
        alike.sort_unstable();
        self.turn += 1;
        let nth = match order {
            Order::Chance if self.turn.is_multiple_of(2) => {
                let count = u64::try_from(alike.len()).unwrap_or(1).max(1);
                usize::try_from(self.random.hash_one(self.turn) % count).unwrap_or(0)
            }
            Order::Chance | Order::Arrival => 0,
        };
        let id = *alike.get(nth)?;
        if self.served.len() > MOST_SERVED {
            let waiting = &self.waiting;
            self.served.retain(|(peer, _), _| waiting.iter().any(|waiting| waiting.ask.peer == *peer));
        }
        self.served.insert((peer, None), self.turn);
        self.served.insert((peer, Some(wanted.name)), self.turn);
        let position = self.waiting.iter().position(|waiting| waiting.id == id)?;
        Some(self.waiting.swap_remove(position))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use super::*;

    const NODE: Peer = Peer::Node;
    const OTHER: Peer = Peer::Remote(7);

    fn ask(rank: u8, peer: Peer, name: &str) -> Ask {
        Ask { rank, peer, name: name.to_owned() }
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test)
    }

    /// In which order these are served by one place that is taken while they come.
    fn served(order: Order, asks: &[Ask]) -> Vec<usize> {
        run(async {
            let queue = Queue::new(1, 0, order);
            let first = queue.wait(ask(9, NODE, "first")).await;
            let done = Arc::new(StdMutex::new(Vec::new()));
            let mut all = tokio::task::JoinSet::new();
            for (nth, ask) in asks.iter().cloned().enumerate() {
                let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
                all.spawn(async move {
                    let _turn = queue.wait(ask).await.unwrap();
                    done.lock().unwrap().push(nth);
                });
            }
            tokio::task::yield_now().await;
            assert_eq!(queue.waiting(), asks.len());
            drop(first);
            all.join_all().await;
            assert_eq!(queue.state.lock().free, 1);
            Arc::try_unwrap(done).unwrap().into_inner().unwrap()
        })
    }

    #[test]
    fn ranks_go_first_then_peers_have_turns_then_names() {
        let asks = [
            ask(2, OTHER, "a"),
            ask(1, NODE, "a"),
            ask(1, NODE, "a"),
            ask(1, NODE, "a"),
            ask(1, NODE, "b"),
            ask(1, OTHER, "a"),
            ask(0, NODE, "z"),
        ];
        assert_eq!(served(Order::Arrival, &asks), [6, 5, 1, 4, 2, 3, 0]);
    }

    #[test]
    fn by_chance_a_late_one_overtakes_and_the_first_one_does_not_starve() {
        let asks = vec![ask(1, NODE, "a"); 41];
        let places: Vec<usize> = (0..20)
            .map(|_| served(Order::Chance, &asks).iter().position(|nth| *nth == 40).unwrap())
            .collect();
        assert!(places.iter().any(|place| *place < 40), "{places:?}");
        let first = served(Order::Chance, &asks).iter().position(|nth| *nth == 0).unwrap();
        assert!(first < 2, "{first}");
    }

    #[test]
    fn peers_that_come_once_are_not_remembered_for_ever() {
        run(async {
            let queue = Queue::new(1, 0, Order::Arrival);
            let mut turn = queue.wait(ask(1, NODE, "")).await;
            // One that never gets its turn keeps the queue from being empty.
            let mut last = Box::pin(queue.wait(ask(9, NODE, "")));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(last.as_mut().poll(cx))).await.is_pending()
            );
            for nth in 0..2_000 {
                let mut next = Box::pin(queue.wait(ask(1, Peer::Remote(nth), "")));
                assert!(
                    std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx)))
                        .await
                        .is_pending()
                );
                drop(turn);
                turn = next.await;
            }
            let remembered = queue.state.lock().served.len();
            assert!((1..=MOST_SERVED + 2).contains(&remembered), "{remembered}");
        });
    }

    #[test]
    fn who_leaves_is_not_waited_for() {
        run(async {
            let queue = Queue::new(1, 0, Order::Arrival);
            let turn = queue.wait(ask(1, NODE, "")).await;
            let gone = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.wait(ask(1, NODE, "")).await }
            });
            tokio::task::yield_now().await;
            assert_eq!(queue.waiting(), 1);
            gone.abort();
            assert!(gone.await.is_err());
            assert_eq!(queue.waiting(), 0);
            drop(turn);
            assert!(queue.wait(ask(1, NODE, "")).await.is_some());
        });
    }

    #[test]
    fn a_place_that_is_given_to_one_who_leaves_goes_to_the_next() {
        run(async {
            let queue = Queue::new(1, 0, Order::Arrival);
            let turn = queue.wait(ask(1, NODE, "")).await;
            let mut gone = Box::pin(queue.wait(ask(1, NODE, "")));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(gone.as_mut().poll(cx))).await.is_pending()
            );
            drop(turn);
            drop(gone);
            assert_eq!(queue.state.lock().free, 1);
        });
    }

    #[test]
    fn the_reserve_is_for_rank_0() {
        run(async {
            let queue = Queue::new(2, 1, Order::Arrival);
            let one = queue.wait(ask(1, NODE, "")).await;
            let mut second = Box::pin(queue.wait(ask(1, NODE, "")));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx)))
                    .await
                    .is_pending()
            );
            let preferred = queue.wait(ask(0, OTHER, "")).await;
            assert!(preferred.is_some());
            drop(one);
            assert_eq!(queue.waiting(), 1, "one place is the reserve");
            drop(preferred);
            assert!(second.await.is_some());
        });
    }
}
