//! Who has a place, and who loses it to a newcomer. No clocks and no sockets: time is the number of a change.

use std::collections::HashMap;

use crate::peer::Peer;

/// What a connection is doing, as far as its place is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A TLS handshake has begun, and its first message is not whole.
    Handshake,
    /// The server has answered the first message of the handshake.
    Greeted,
    /// No request is whole yet.
    Head,
    /// It waits for the next request.
    Idle,
    /// Its password waits for a check. `doubtful`: an unknown user, or the connection had a wrong password before.
    Login { doubtful: bool },
    /// A request is being answered.
    Answering,
    /// The client does not read the answer.
    Unread,
}

/// Why a connection lost its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It had not sent a whole request, or not finished its handshake.
    HalfOpen,
    /// It was idle.
    Idle,
    /// Its password waited for a check, and there was little hope for it.
    Login,
    /// Its client did not read.
    Unread,
    /// Its request was under way, and its peer had more places than others.
    Answering,
}

impl Reason {
    pub(crate) const ALL: [Reason; 5] =
        [Reason::HalfOpen, Reason::Idle, Reason::Login, Reason::Unread, Reason::Answering];

    /// As a label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::HalfOpen => "half_open",
            Reason::Idle => "idle",
            Reason::Login => "login",
            Reason::Unread => "unread",
            Reason::Answering => "answering",
        }
    }
}

/// One connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    peer: Peer,
    /// One of the site's scrapers: these have places of their own.
    scraper: bool,
    stage: Stage,
    /// When the stage began.
    since: u64,
    /// When it had a whole exposition for the first time.
    scraped: Option<u64>,
    /// Bytes of an answer that the kernel could not take yet.
    unread: u64,
}

impl Entry {
    /// Who goes first: the class, then the order in it. Lower goes first.
    fn rank(&self) -> (u8, u64) {
        match (self.stage, self.scraped) {
            (Stage::Handshake, _) => (0, self.since),
            (Stage::Greeted, _) => (1, self.since),
            (Stage::Head, _) => (2, self.since),
            (Stage::Idle, None) => (3, self.since),
            (Stage::Login { doubtful: true }, _) => (4, self.since),
            (Stage::Unread, None) => (5, self.since),
            (Stage::Unread, Some(_)) => (6, self.since),
            // The connection that has scraped for the longest time is the last: whoever comes to push it out is younger.
            (Stage::Idle, Some(scraped)) => (LAST_OF_OWN, u64::MAX - scraped),
            (Stage::Login { doubtful: false } | Stage::Answering, scraped) => {
                (UNDER_WAY, u64::MAX - scraped.unwrap_or(u64::MAX))
            }
        }
    }

    fn reason(&self) -> Reason {
        match self.stage {
            Stage::Handshake | Stage::Greeted | Stage::Head => Reason::HalfOpen,
            Stage::Idle => Reason::Idle,
            Stage::Login { .. } => Reason::Login,
            Stage::Unread => Reason::Unread,
            Stage::Answering => Reason::Answering,
        }
    }
}

/// Classes up to this one never were of use to their client.
const LAST_USELESS: u8 = 3;
/// Classes up to this one make way for a connection of the same peer.
const LAST_OF_OWN: u8 = 7;
/// Requests under way make way only for a peer that has less.
const UNDER_WAY: u8 = 8;

/// All connections, by number.
#[derive(Debug)]
pub(crate) struct Table {
    /// Places of the site's scrapers, and of everybody else.
    places: [usize; 2],
    entries: HashMap<u64, Entry>,
    /// Connections of each peer, scrapers apart.
    peers: HashMap<(bool, Peer), usize>,
    unread: u64,
    now: u64,
}

/// What became of a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It has a place.
    Free,
    /// It has the place of another one.
    Instead(u64, Reason),
    /// There is none for it.
    Refused,
}

impl Table {
    /// With so many places, of which a quarter is for the site's scrapers if there are any.
    pub(crate) fn new(places: usize, with_scrapers: bool) -> Self {
        let reserve = if with_scrapers { (places / 4).max(1) } else { 0 };
        let places = [places.saturating_sub(reserve).max(1), reserve];
        Table { places, entries: HashMap::new(), peers: HashMap::new(), unread: 0, now: 0 }
    }

    /// Takes in a connection under a new number.
    pub(crate) fn admit(&mut self, id: u64, peer: Peer, scraper: bool, stage: Stage) -> Admitted {
        self.now += 1;
        let entry = Entry { peer, scraper, stage, since: self.now, scraped: None, unread: 0 };
        self.entries.insert(id, entry);
        *self.peers.entry((scraper, peer)).or_default() += 1;
        let places = self.places(scraper);
        let taken = self
            .peers
            .iter()
            .filter(|((other, _), _)| *other == scraper)
            .map(|(_, count)| count)
            .sum::<usize>();
        if taken <= places {
            return Admitted::Free;
        }
        match self.victim(id, peer, scraper) {
            Some((victim, reason)) => {
                self.remove(victim);
                Admitted::Instead(victim, reason)
            }
            None => {
                self.remove(id);
                Admitted::Refused
            }
        }
    }

    fn places(&self, scraper: bool) -> usize {
        let [others, scrapers] = self.places;
        if scraper { scrapers } else { others }
    }

    /// Who makes way for this newcomer.
    fn victim(&self, newcomer: u64, peer: Peer, scraper: bool) -> Option<(u64, Reason)> {
        // An eighth for each. While places are free a peer may have more; when they are not, it pays first.
        let budget = (self.places(scraper) / 8).max(1);
        let count = |peer: Peer| self.peers.get(&(scraper, peer)).copied().unwrap_or(0);
        let first = |wanted: &dyn Fn(&Entry) -> bool, last: u8| {
            let candidates = self.entries.iter().filter(|(id, entry)| {
                **id != newcomer && entry.scraper == scraper && wanted(entry) && entry.rank().0 <= last
            });
            candidates.min_by_key(|(_, entry)| entry.rank()).map(|(id, entry)| (*id, entry.reason()))
        };
        if count(peer) > budget {
            return first(&|entry| entry.peer == peer, LAST_OF_OWN);
        }
        let peers = self.peers.iter().filter(|((other, _), _)| *other == scraper);
        let (most, largest) = peers.map(|((_, peer), count)| (*count, *peer)).max()?;
        if most > budget {
            return first(&|entry| entry.peer == largest, UNDER_WAY);
        }
        let useless = first(&|_| true, LAST_USELESS);
        useless.or_else(|| first(&|entry| count(entry.peer) == most, LAST_OF_OWN))
    }

    /// Takes a place from a connection that is of little use, whoever has it.
    pub(crate) fn relieve(&mut self) -> Option<(u64, Reason)> {
        let useless = self.entries.iter().filter(|(_, entry)| entry.rank().0 < LAST_OF_OWN);
        let (id, reason) =
            useless.min_by_key(|(_, entry)| entry.rank()).map(|(id, entry)| (*id, entry.reason()))?;
        self.remove(id);
        Some((id, reason))
    }

    /// Notes what a connection does now.
    pub(crate) fn set(&mut self, id: u64, stage: Stage) {
        self.now += 1;
        let now = self.now;
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.stage != stage) {
            (entry.stage, entry.since) = (stage, now);
        }
    }

    /// Notes that a connection had a whole exposition.
    pub(crate) fn scraped(&mut self, id: u64) {
        self.now += 1;
        let now = self.now;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.scraped.get_or_insert(now);
        }
    }

    /// Whether a connection had a whole exposition.
    pub(crate) fn has_scraped(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.scraped.is_some())
    }

    /// Notes how many bytes of its answer a connection has not taken. With more than `most` in all, the peer that has the
    /// most loses the connection that has not read for the longest time.
    pub(crate) fn set_unread(&mut self, id: u64, bytes: u64, most: u64) -> Option<u64> {
        let entry = self.entries.get_mut(&id)?;
        self.unread = self.unread - entry.unread + bytes;
        entry.unread = bytes;
        if self.unread <= most {
            return None;
        }
        let mut peers: HashMap<(bool, Peer), u64> = HashMap::new();
        for entry in self.entries.values() {
            *peers.entry((!entry.scraper, entry.peer)).or_default() += entry.unread;
        }
        let holding = peers.into_iter().filter(|(_, bytes)| *bytes > 0);
        // The site's scrapers come last.
        let ((other, peer), _) = holding.max_by_key(|((other, peer), bytes)| (*other, *bytes, *peer))?;
        let of_peer = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.peer == peer && entry.scraper != other && entry.unread > 0);
        let (victim, _) = of_peer.min_by_key(|(_, entry)| entry.since)?;
        let victim = *victim;
        self.remove(victim);
        Some(victim)
    }

    /// A connection is over, or has lost its place.
    pub(crate) fn remove(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.unread -= entry.unread;
        let key = (entry.scraper, entry.peer);
        if let Some(count) = self.peers.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&key);
            }
        }
    }

    /// Bytes that clients have not taken.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// Connections in each state.
    pub(crate) fn states(&self) -> [(&'static str, usize); 4] {
        let mut states = [("handshake", 0), ("head", 0), ("answering", 0), ("idle", 0)];
        let [(_, handshake), (_, head), (_, answering), (_, idle)] = &mut states;
        for entry in self.entries.values() {
            *match entry.stage {
                Stage::Handshake | Stage::Greeted => &mut *handshake,
                Stage::Head => &mut *head,
                Stage::Login { .. } | Stage::Answering | Stage::Unread => &mut *answering,
                Stage::Idle => &mut *idle,
            } += 1;
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Peer = Peer::Remote(1);
    const B: Peer = Peer::Remote(2);

    fn reason(admitted: Admitted) -> Option<(u64, Reason)> {
        match admitted {
            Admitted::Instead(id, reason) => Some((id, reason)),
            _ => None,
        }
    }

    /// A table of 8 places in which these connections of one peer are, numbered from 0.
    fn full(peer: Peer, stages: &[Stage]) -> Table {
        let mut table = Table::new(stages.len(), false);
        for (id, stage) in (0..).zip(stages) {
            assert_eq!(table.admit(id, peer, false, Stage::Head), Admitted::Free);
            table.set(id, *stage);
        }
        table
    }

    #[test]
    fn the_oldest_half_open_connection_goes_first() {
        let mut table = full(Peer::Node, &[Stage::Idle, Stage::Answering, Stage::Head, Stage::Head]);
        table.scraped(0);
        assert_eq!(table.admit(10, Peer::Node, false, Stage::Head), Admitted::Instead(2, Reason::HalfOpen));
        assert_eq!(table.admit(11, Peer::Node, false, Stage::Head), Admitted::Instead(3, Reason::HalfOpen));
        assert_eq!(table.admit(12, Peer::Node, false, Stage::Head), Admitted::Instead(10, Reason::HalfOpen));
    }

    #[test]
    fn a_handshake_that_goes_on_is_kept_before_one_that_does_not() {
        let stages = [Stage::Greeted, Stage::Head, Stage::Handshake, Stage::Handshake];
        let mut table = full(A, &stages);
        let order = [10, 11, 12].map(|id| {
            let gone = reason(table.admit(id, A, false, Stage::Handshake)).unwrap().0;
            table.set(id, Stage::Answering);
            gone
        });
        assert_eq!(order, [2, 3, 0]);
    }

    #[test]
    fn the_first_to_have_scraped_is_the_last_to_go() {
        let mut table = full(Peer::Node, &[Stage::Idle; 4]);
        [2, 0, 3].into_iter().for_each(|id| table.scraped(id));
        let order = [10, 11, 12].map(|id| {
            let gone = reason(table.admit(id, Peer::Node, false, Stage::Head)).unwrap();
            table.set(id, Stage::Answering);
            gone
        });
        assert_eq!(order, [(1, Reason::Idle), (3, Reason::Idle), (0, Reason::Idle)]);
        assert!(table.has_scraped(2));
    }

    #[test]
    fn who_does_not_read_makes_way_and_who_is_served_does_not() {
        let stages = [
            Stage::Answering,
            Stage::Unread,
            Stage::Login { doubtful: true },
            Stage::Login { doubtful: false },
        ];
        let mut table = full(Peer::Node, &stages);
        for (id, gone) in [(10, Some((2, Reason::Login))), (11, Some((1, Reason::Unread))), (12, None)] {
            assert_eq!(reason(table.admit(id, Peer::Node, false, Stage::Head)), gone);
            table.set(id, Stage::Answering);
        }
        assert_eq!(table.admit(13, Peer::Node, false, Stage::Head), Admitted::Refused);
        assert_eq!(table.states(), [("handshake", 0), ("head", 0), ("answering", 4), ("idle", 0)]);
    }

    #[test]
    fn a_peer_with_more_than_its_budget_pays_for_another_peers_connection() {
        for stage in [Stage::Head, Stage::Unread, Stage::Idle, Stage::Answering] {
            let mut table = full(Peer::Node, &[stage; 16]);
            (0..16).for_each(|id| table.scraped(id));
            assert!(
                matches!(table.admit(20, A, false, Stage::Head), Admitted::Instead(0..16, _)),
                "{stage:?}"
            );
            // The one of A is half open, and the many cannot push it out.
            assert_ne!(reason(table.admit(21, Peer::Node, false, Stage::Head)).map(|(id, _)| id), Some(20));
            assert!(matches!(table.admit(22, B, false, Stage::Head), Admitted::Instead(0..16 | 21, _)));
        }
    }

    #[test]
    fn among_many_small_peers_half_open_connections_go_first() {
        let mut table = Table::new(16, false);
        for id in 0..16 {
            assert_eq!(table.admit(id, Peer::Remote(id.into()), false, Stage::Head), Admitted::Free);
            table.set(id, if id == 7 { Stage::Head } else { Stage::Idle });
            table.scraped(id);
        }
        assert_eq!(
            table.admit(20, Peer::Remote(20), false, Stage::Head),
            Admitted::Instead(7, Reason::HalfOpen)
        );
        table.set(20, Stage::Answering);
        assert_eq!(
            table.admit(21, Peer::Remote(21), false, Stage::Head),
            Admitted::Instead(15, Reason::Idle)
        );
    }

    #[test]
    fn the_sites_scrapers_have_places_of_their_own() {
        let mut table = Table::new(8, true);
        for id in 0..6 {
            assert_eq!(table.admit(id, A, false, Stage::Answering), Admitted::Free);
        }
        assert_eq!(table.admit(6, A, false, Stage::Answering), Admitted::Refused);
        for id in 10..12 {
            assert_eq!(table.admit(id, A, true, Stage::Head), Admitted::Free);
        }
        assert_eq!(table.admit(12, B, true, Stage::Head), Admitted::Instead(10, Reason::HalfOpen));
    }

    #[test]
    fn too_many_unread_bytes_cost_the_peer_that_has_most_its_slowest_reader() {
        let mut table = Table::new(8, true);
        for (id, peer, scraper) in [(0, A, false), (1, A, false), (2, B, false), (3, B, true)] {
            table.admit(id, peer, scraper, Stage::Head);
            table.set(id, Stage::Unread);
        }
        for (id, bytes) in [(0, 30), (1, 30), (2, 35)] {
            assert_eq!(table.set_unread(id, bytes, 100), None);
        }
        assert_eq!(table.set_unread(2, 50, 100), Some(0));
        assert_eq!((table.unread(), table.set_unread(0, 99, 100)), (80, None));
        assert_eq!(table.set_unread(3, 90, 100), Some(2), "the scraper itself has most");
        assert_eq!(table.set_unread(3, 95, 100), Some(1));
        assert_eq!(table.set_unread(3, 101, 100), Some(3), "nobody else is left");
        assert_eq!(table.unread(), 0);
    }

    #[test]
    fn who_is_of_no_use_makes_way_for_a_descriptor() {
        let mut table = full(A, &[Stage::Idle, Stage::Unread, Stage::Head, Stage::Answering]);
        table.scraped(0);
        assert_eq!(table.relieve(), Some((2, Reason::HalfOpen)));
        assert_eq!(table.relieve(), Some((1, Reason::Unread)));
        assert_eq!(table.relieve(), None);
    }
}
