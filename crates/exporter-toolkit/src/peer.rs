//! For whom connections are counted.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use config_files::as_v6;

/// One client, as far as addresses can say: what it may hold is counted for all its connections together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// The node itself. Any of its users may connect from each of its addresses.
    Node,
    /// An IPv4 address, or the /64 of an IPv6 one: a host may have as many addresses there as it likes.
    Remote(u128),
}

/// Says which addresses are the node's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnAddresses {
    /// Whether the kernel lets a socket be bound to no other address (net.ipv4.ip_nonlocal_bind).
    only_own_bind: bool,
}

/// An address for documentation (RFC 5737), which no node has.
const NEVER_OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

impl OwnAddresses {
    pub(crate) fn new() -> Self {
        OwnAddresses { only_own_bind: !binds(NEVER_OWN) }
    }

    /// The peer of a connection between these addresses.
    pub(crate) fn peer(self, client: IpAddr, server: IpAddr) -> Peer {
        let client = client.to_canonical();
        let own =
            client.is_loopback() || client == server.to_canonical() || (self.only_own_bind && binds(client));
        match client {
            _ if own => Peer::Node,
            IpAddr::V4(_) => Peer::Remote(as_v6(client)),
            IpAddr::V6(address) => Peer::Remote(address.to_bits() >> 64 << 64),
        }
    }

    /// Whether a peer may be the node: where a socket can be bound to any address, that cannot be excluded.
    pub(crate) fn may_be(self, peer: Peer) -> bool {
        peer == Peer::Node || !self.only_own_bind
    }
}

/// Whether a socket can be bound to the address. Nothing is sent.
fn binds(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(client: &str, server: &str) -> Peer {
        OwnAddresses::new().peer(client.parse().unwrap(), server.parse().unwrap())
    }

    #[test]
    fn all_addresses_of_the_node_are_one_peer() {
        for (client, server) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.9.8.7", "127.0.0.1"),
            ("::1", "::1"),
            ("::ffff:127.0.0.2", "::ffff:127.0.0.1"),
            ("198.51.100.7", "198.51.100.7"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
            ("2001:db8::7", "2001:db8::7"),
        ] {
            assert_eq!(peer(client, server), Peer::Node, "{client}");
        }
        assert!(binds("127.3.2.1".parse().unwrap()), "an own address can be bound to");
    }

    #[test]
    fn others_differ_by_address_and_by_network_of_ipv6() {
        let server = "198.51.100.1";
        assert_eq!(peer("198.51.100.7", server), peer("::ffff:198.51.100.7", server));
        assert_ne!(peer("198.51.100.7", server), peer("198.51.100.8", server));
        assert_eq!(peer("2001:db8::1", "2001:db8:1::1"), peer("2001:db8::2", "2001:db8:1::1"));
        assert_ne!(peer("2001:db8::1", "2001:db8:1::1"), peer("2001:db8:0:1::1", "2001:db8:1::1"));
        assert_ne!(peer("198.51.100.7", server), Peer::Node);
    }

    #[test]
    fn where_every_address_can_be_bound_to_anybody_may_be_on_the_node() {
        let elsewhere = peer("198.51.100.7", "198.51.100.1");
        assert!(!OwnAddresses { only_own_bind: true }.may_be(elsewhere));
        assert!(OwnAddresses { only_own_bind: true }.may_be(Peer::Node));
        assert!(OwnAddresses { only_own_bind: false }.may_be(elsewhere));
    }
}
