//! Networks of IP addresses, as a flag or a file names them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation, or one address.
///
/// All addresses are held as IPv6, IPv4 ones mapped (RFC 4291 §2.5.5.2). So an IPv4 client is the same over a socket of
/// either family, and `::/0` is every address of both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: u128,
    /// Bits that an address has to share with it, 0 to 128.
    prefix: u32,
}

/// Not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a network such as 10.0.0.0/8 or fd00::/64")]
pub struct NotANetwork;

/// An address as IPv6.
#[must_use]
pub fn as_v6(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Network {
    /// Whether the address is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        (as_v6(address) ^ self.address).leading_zeros() >= self.prefix
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let is_number = |prefix: &&str| prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match prefix {
            Some(prefix) => {
                Some(prefix).filter(is_number).and_then(|prefix| prefix.parse().ok()).ok_or(NotANetwork)?
            }
            None => bits,
        };
        if prefix > bits {
            return Err(NotANetwork);
        }
        Ok(Network { address: as_v6(address), prefix: prefix + 128 - bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.address);
        match address.to_ipv4_mapped() {
            Some(address) if self.prefix >= 96 => write!(f, "{address}/{}", self.prefix - 96),
            _ => write!(f, "{address}/{}", self.prefix),
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_addresses_of_either_spelling() {
        for (network, inside, outside) in [
            ("10.1.2.3", &["10.1.2.3", "::ffff:10.1.2.3"][..], &["10.1.2.2", "::10.1.2.3"][..]),
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.255.255", "::ffff:10.9.9.9"],
                &["11.0.0.0", "9.255.255.255"],
            ),
            ("10.9.9.9/8", &["10.0.0.1"], &["11.0.0.1"]),
            ("0.0.0.0/0", &["1.2.3.4", "::ffff:1.2.3.4"], &["::1", "fd00::1"]),
            ("::ffff:10.0.0.0/104", &["10.2.3.4"], &["11.2.3.4"]),
            ("fd00::/64", &["fd00::1", "fd00::ffff:ffff:ffff:ffff"], &["fd00:0:0:1::", "10.0.0.1"]),
            ("fd00::1", &["fd00::1"], &["fd00::2"]),
            ("::/0", &["fd00::1", "1.2.3.4"], &[]),
        ] {
            let parsed: Network = network.parse().unwrap();
            let holds = |address: &&str| parsed.contains(address.parse().unwrap());
            assert!(inside.iter().all(holds), "{network}");
            assert!(!outside.iter().any(holds), "{network}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "node1", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-1", "10.0.0/8"]
        {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }

    #[test]
    fn a_network_is_shown_as_it_was_given() {
        for text in ["10.0.0.0/8", "10.1.2.3/32", "fd00::/64", "::/0"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
    }
}
