//! An HTTP/1.1 client small enough to be obviously right: one request per connection, plain TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::wait::{LONGEST, QuietClock};

/// Between two looks at whether anything runs.
const LOOK: Duration = Duration::from_millis(100);

/// A whole response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case, in the order sent.
    pub headers: Vec<(String, String)>,
    /// As sent, with the chunks of a chunked transfer put together and nothing else decoded.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name, given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }
}

/// `GET path`, with further headers. An answer for which nothing runs in `timeout` does not come ([`crate::wait`]).
///
/// # Errors
/// As the socket's; `InvalidData` for what is no whole response.
pub fn get(
    addr: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    timeout: Duration,
) -> io::Result<Response> {
    request(addr, "GET", path, headers, timeout)
}

/// As [`get`], with any method and no body.
///
/// # Errors
/// As [`get`].
pub fn request(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    timeout: Duration,
) -> io::Result<Response> {
    ask(TcpStream::connect_timeout(&addr, LONGEST)?, addr, method, path, headers, timeout)
}

/// As [`request`], from an IPv4 address of this host.
///
/// # Errors
/// As [`get`].
pub fn request_from(
    from: Ipv4Addr,
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    timeout: Duration,
) -> io::Result<Response> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from((from, 0)))?;
    connect(&socket, &addr)?;
    ask(socket.into(), addr, method, path, headers, timeout)
}

fn ask(
    mut stream: TcpStream,
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    timeout: Duration,
) -> io::Result<Response> {
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LONGEST))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    let raw = read_all(&mut stream, timeout)?;
    parse(&raw, method == "HEAD")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a whole response"))
}

fn read_all(stream: &mut TcpStream, limit: Duration) -> io::Result<Vec<u8>> {
    let (mut raw, mut clock) = (Vec::new(), QuietClock::new());
    loop {
        let before = raw.len();
        match stream.read_to_end(&mut raw) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if raw.len() > before {
                    clock.restart();
                } else if clock.is_over(limit) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            other => return other.map(|_| raw),
        }
    }
}

/// Percent-encodes a query parameter.
#[must_use]
pub fn encode(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn parse(raw: &[u8], head_only: bool) -> Option<Response> {
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(raw.get(..end)?).ok()?, raw.get(end + 4..)?);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let headers: Option<Vec<_>> = lines
        .map(|l| l.split_once(':').map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned())))
        .collect();
    let mut response = Response { status, headers: headers?, body: body.to_vec() };
    if head_only {
        return body.is_empty().then_some(response);
    }
    if response.header("transfer-encoding") == Some("chunked") {
        response.body = unchunk(body)?;
    } else if let Some(length) = response.header("content-length") {
        // A body cut short must not pass for a short body.
        if length.parse() != Ok(body.len()) {
            return None;
        }
    }
    Some(response)
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..end)?).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        rest = rest.get(end + 2..)?;
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_whole_or_not_at_all() {
        let ok = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A:  b \r\n\r\nhi", false).unwrap();
        assert_eq!((ok.status, ok.text(), ok.header("x-a")), (200, "hi", Some("b")));
        let chunked =
            b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked, false).unwrap().text(), "abcde");
        for torn in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
            b"HTTP/1.1 200 OK\r\n",
            b"garbage\r\n\r\n",
            b"",
        ] {
            assert_eq!(parse(torn, false), None, "{}", String::from_utf8_lossy(torn));
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true).is_some());
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(encode("sum(rate(x{a=\"b\"}[5m]))"), "sum%28rate%28x%7Ba%3D%22b%22%7D%5B5m%5D%29%29");
    }
}
