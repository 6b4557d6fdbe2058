//! Where the server listens: `--web.listen-address`, or sockets handed over by systemd.
//!
//! These are listeners of the standard library: an exporter opens them before it drops privileges and before the runtime
//! starts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::RawFd;
use std::str::FromStr;
use std::{fmt, io};

use listenfd::ListenFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections that wait to be accepted; the kernel lowers it to net.core.somaxconn, by default this. When the queue is
/// full, the kernel drops a scraper's attempt too, which is repeated after a second.
const BACKLOG: i32 = 4096;

/// One `--web.listen-address`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// `:9810`: every address of the node, IPv6 and IPv4.
    Any(u16),
    /// `127.0.0.1:9810`, `[::1]:9810`.
    Ip(SocketAddr),
    /// `node1:9810`, resolved when it is bound.
    Host(String, u16),
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not of the form `[host]:port`.
    #[error("{address:?} is not a listen address: {reason}")]
    Malformed {
        /// As it was given.
        address: String,
        /// The error.
        reason: &'static str,
    },
    /// The system refused.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// As it was given.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// systemd handed over nothing to listen on, or something else than a listening TCP socket.
    #[error("systemd socket activation: {0}")]
    Systemd(String),
}

/// Reads `:port`, `host:port`, `ipv4:port` or `[ip]:port`, as Go's `net.Listen` takes them.
pub fn parse_listen_address(address: &str) -> Result<ListenAddress, ListenError> {
    let bad = |reason| ListenError::Malformed { address: address.to_owned(), reason };
    if address.starts_with("vsock://") {
        return Err(bad("vsock is not supported"));
    }
    let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?;
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad("the port is not a number"));
    }
    let port = port.parse().map_err(|_| bad("the port is above 65535"))?;
    if host.is_empty() {
        return Ok(ListenAddress::Any(port));
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        // Of either family: a template that inserts a node's own address does not know which it is.
        // Only the resolver reads `fe80::1%eth0`, which names an interface.
        return match inner.parse::<IpAddr>() {
            Ok(ip) => Ok(ListenAddress::Ip((ip, port).into())),
            Err(_) if is_zoned(inner) => Ok(ListenAddress::Host(inner.to_owned(), port)),
            Err(_) => Err(bad("no IP address between the brackets")),
        };
    }
    if host.contains(':') && !host.contains(['/', '@']) {
        return Err(bad("an IPv6 address needs brackets"));
    }
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Err(bad("not a host name"));
    }
    Ok(match host.parse::<IpAddr>() {
        Ok(ip) => ListenAddress::Ip((ip, port).into()),
        Err(_) => ListenAddress::Host(host.to_owned(), port),
    })
}

/// An IPv6 address with the name of an interface (dev_valid_name in net/core/dev.c: at most 15 bytes, no blank, no slash).
fn is_zoned(text: &str) -> bool {
    let Some((ip, zone)) = text.split_once('%') else { return false };
    ip.parse::<Ipv6Addr>().is_ok()
        && (1..16).contains(&zone.len())
        && zone.bytes().all(|b| b.is_ascii_graphic() && !b"/:%]".contains(&b))
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    fn from_str(address: &str) -> Result<Self, ListenError> {
        parse_listen_address(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Any(port) => write!(f, ":{port}"),
            ListenAddress::Ip(address) => write!(f, "{address}"),
            ListenAddress::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            ListenAddress::Host(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// Opens every address, or says which one cannot be.
pub fn bind(addresses: &[ListenAddress]) -> Result<Vec<TcpListener>, ListenError> {
    let open = |address: &ListenAddress| {
        bind_one(address).map_err(|error| ListenError::Bind { address: address.to_string(), error })
    };
    addresses.iter().map(open).collect()
}

fn bind_one(address: &ListenAddress) -> io::Result<TcpListener> {
    match address {
        ListenAddress::Any(port) => match open((Ipv6Addr::UNSPECIFIED, *port).into()) {
            // A kernel without IPv6 (ipv6.disable=1), or one where it is switched off for every interface.
            Err(error)
                if matches!(Errno::from_io_error(&error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)) =>
            {
                open((Ipv4Addr::UNSPECIFIED, *port).into())
            }
            other => other,
        },
        ListenAddress::Ip(address) => open(*address),
        ListenAddress::Host(host, port) => {
            let found: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
            // Go's net.Listen: "at most one of the host's IP addresses", IPv4 before IPv6.
            let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
            open(*first.ok_or_else(|| io::Error::other("the name has no address"))?)
        }
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if let SocketAddr::V6(v6) = address {
        // Not left to net.ipv6.bindv6only: `:port` and `[::]:port` mean both families everywhere.
        sockopt::set_ipv6_v6only(&socket, !v6.ip().is_unspecified())?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The descriptors that systemd hands over, by name (sd_listen_fds_with_names(3)), in their order. They are closed on exec.
pub fn systemd_descriptors() -> Vec<(RawFd, String)> {
    sd_notify::listen_fds_with_names().map(Iterator::collect).unwrap_or_default()
}

/// The listening TCP sockets that systemd hands over (`--web.systemd-socket`); an error when there are none. Descriptors of
/// the names `but` are left alone: services store such for themselves.
///
/// Call it once, before other threads start: it takes the variables of sd_listen_fds(3) from the environment.
pub fn systemd_listeners(but: &[&str]) -> Result<Vec<TcpListener>, ListenError> {
    let descriptors = systemd_descriptors();
    let stored = |nth: &usize| descriptors.get(*nth).is_some_and(|(_, name)| but.contains(&name.as_str()));
    let mut sockets = ListenFd::from_env();
    let wanted: Vec<usize> = (0..sockets.len()).filter(|nth| !stored(nth)).collect();
    if wanted.is_empty() {
        return Err(ListenError::Systemd("no socket was handed over (LISTEN_FDS)".to_owned()));
    }
    let take = |nth| {
        let unusable = |why: io::Error| ListenError::Systemd(format!("socket {nth}: {why}"));
        let listener = sockets.take_tcp_listener(nth).map_err(unusable)?;
        let listener = listener.ok_or_else(|| unusable(Errno::BADF.into()))?;
        check_listening(&listener).map_err(unusable)?;
        Ok(listener)
    };
    wanted.into_iter().map(take).collect()
}

/// A socket that is merely bound passes [`ListenFd`].
fn check_listening(socket: &TcpListener) -> io::Result<()> {
    if sockopt::socket_acceptconn(socket)? { Ok(()) } else { Err(io::Error::other("is not listening")) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        for (text, wanted) in [
            (":9810", ListenAddress::Any(9810)),
            (":0", ListenAddress::Any(0)),
            ("127.0.0.1:80", ListenAddress::Ip("127.0.0.1:80".parse().unwrap())),
            ("[::1]:80", ListenAddress::Ip("[::1]:80".parse().unwrap())),
            ("[::]:80", ListenAddress::Ip("[::]:80".parse().unwrap())),
            ("node-1.site:80", ListenAddress::Host("node-1.site".into(), 80)),
            ("[fe80::1%eth0]:80", ListenAddress::Host("fe80::1%eth0".into(), 80)),
        ] {
            let parsed: ListenAddress = text.parse().unwrap();
            assert_eq!(parsed, wanted);
            assert_eq!(parsed.to_string(), text);
        }
        let bracketed: ListenAddress = "[127.0.0.1]:80".parse().unwrap();
        assert_eq!(bracketed, ListenAddress::Ip("127.0.0.1:80".parse().unwrap()));
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        for (text, reason) in [
            ("9810", "the port is missing"),
            ("", "the port is missing"),
            ("host:", "the port is not a number"),
            (":http", "the port is not a number"),
            (":+80", "the port is not a number"),
            (":65536", "the port is above 65535"),
            ("::1:80", "an IPv6 address needs brackets"),
            ("[::1", "an IPv6 address needs brackets"),
            ("[::1]", "the port is not a number"),
            ("[127.0.0.256]:80", "no IP address between the brackets"),
            ("[node1]:80", "no IP address between the brackets"),
            ("http://host:80", "not a host name"),
            ("a b:80", "not a host name"),
            ("a/b:80", "not a host name"),
            ("a\0b:80", "not a host name"),
            ("[fe80::1%]:80", "no IP address between the brackets"),
            ("[\t%1]:80", "no IP address between the brackets"),
            ("[fe80::1%an-interface-too-long]:80", "no IP address between the brackets"),
            ("vsock://:80", "vsock is not supported"),
        ] {
            let error = parse_listen_address(text).unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not a listen address: {reason}"));
        }
    }

    #[test]
    fn a_bare_port_takes_both_families() {
        let listeners = bind(&[ListenAddress::Any(0)]).unwrap();
        let port = listeners[0].local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        TcpStream::connect(("::1", port)).unwrap();
    }

    #[test]
    fn a_port_in_use_is_named() {
        let first = bind(&["localhost:0".parse().unwrap()]).unwrap();
        let taken = first[0].local_addr().unwrap();
        let error = bind(&[ListenAddress::Any(0), ListenAddress::Ip(taken)]).unwrap_err().to_string();
        assert_eq!(error, format!("cannot listen on {taken}: Address already in use (os error 98)"));
        let error = bind(&["no.such.host.invalid:1".parse().unwrap()]).unwrap_err().to_string();
        assert!(error.starts_with("cannot listen on no.such.host.invalid:1: "), "{error}");
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let [listener]: [TcpListener; 1] = bind(&[ListenAddress::Any(0)]).unwrap().try_into().unwrap();
        assert!(check_listening(&listener).is_ok());
        let bound = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(check_listening(&bound.into()).unwrap_err().to_string(), "is not listening");
    }

    #[test]
    fn without_systemd_there_is_no_socket_to_take() {
        let error = systemd_listeners(&[]).unwrap_err().to_string();
        assert_eq!(error, "systemd socket activation: no socket was handed over (LISTEN_FDS)");
    }
}
