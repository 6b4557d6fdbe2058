//! `/proc/self/mountstats` of NFS mounts and the super blocks behind them. Pure.
//!
//! fs/nfs/super.c `nfs_show_stats` (`statvers=1.0` and `1.1`), net/sunrpc/stats.c `rpc_clnt_show_stats`
//! (`RPC iostats version: 1.0`, and 1.1 with errors from 5.3 on), fs/proc_namespace.c. Every other file system is a line.

use kernel_files::parse::{ParseError, fields, integer, lines};

/// The operations that are exported by name.
pub const OPERATIONS: [&str; 15] = [
    "read", "write", "commit", "open", "close", "getattr", "setattr", "lookup", "access", "readdir",
    "create", "remove", "rename", "lock", "other",
];

/// Which of [`OPERATIONS`] a procedure of NFS 3 or 4 is. `None`: the client's upkeep of its session with the server. That is
/// counted at the client that the mounts of a server share, and the kernel adds it to what each of them shows.
fn operation(procedure: &[u8]) -> Option<&'static str> {
    Some(match procedure {
        b"NULL"
        | b"SETCLIENTID"
        | b"SETCLIENTID_CONFIRM"
        | b"RENEW"
        | b"EXCHANGE_ID"
        | b"CREATE_SESSION"
        | b"DESTROY_SESSION"
        | b"DESTROY_CLIENTID"
        | b"BIND_CONN_TO_SESSION"
        | b"SEQUENCE"
        | b"GET_LEASE_TIME"
        | b"RECLAIM_COMPLETE"
        | b"SECINFO_NO_NAME" => return None,
        b"READ" | b"READ_PLUS" => "read",
        b"WRITE" => "write",
        b"COMMIT" => "commit",
        b"OPEN" | b"OPEN_NOATTR" | b"OPEN_CONFIRM" | b"OPEN_DOWNGRADE" => "open",
        b"CLOSE" => "close",
        b"GETATTR" => "getattr",
        b"SETATTR" => "setattr",
        b"LOOKUP" | b"LOOKUP_ROOT" | b"LOOKUPP" => "lookup",
        b"ACCESS" => "access",
        b"READDIR" | b"READDIRPLUS" => "readdir",
        b"CREATE" | b"MKDIR" | b"SYMLINK" | b"MKNOD" | b"LINK" => "create",
        b"REMOVE" | b"RMDIR" => "remove",
        b"RENAME" => "rename",
        b"LOCK" | b"LOCKT" | b"LOCKU" | b"RELEASE_LOCKOWNER" => "lock",
        _ => "other",
    })
}

/// Requests of one kind since the mounting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that were answered.
    pub requests: u64,
    /// Times that they were sent.
    pub transmissions: u64,
    /// Times that they got no answer in time.
    pub timeouts: u64,
    /// Bytes sent, headers included.
    pub sent_bytes: u64,
    /// Bytes received, headers included.
    pub received_bytes: u64,
    /// Milliseconds from sending to the answer.
    pub round_trip_millis: u64,
    /// Milliseconds from the beginning of the request, with its time in the queue, to its end.
    pub millis: u64,
    /// Requests that ended with an error; kernel 5.3.
    pub errors: Option<u64>,
}

impl Requests {
    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.transmissions = self.transmissions.saturating_add(other.transmissions);
        self.timeouts = self.timeouts.saturating_add(other.timeouts);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
        self.round_trip_millis = self.round_trip_millis.saturating_add(other.round_trip_millis);
        self.millis = self.millis.saturating_add(other.millis);
        self.errors = match (self.errors, other.errors) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
    }

    /// `ops transmissions timeouts sent received queue_ms rtt_ms execute_ms [errors]`
    fn parse(numbers: &[u64]) -> Option<Self> {
        let [
            requests,
            transmissions,
            timeouts,
            sent_bytes,
            received_bytes,
            _,
            round_trip_millis,
            millis,
            rest @ ..,
        ] = numbers
        else {
            return None;
        };
        let (requests, transmissions, timeouts) = (*requests, *transmissions, *timeouts);
        let (sent_bytes, received_bytes) = (*sent_bytes, *received_bytes);
        let (round_trip_millis, millis) = (*round_trip_millis, *millis);
        let errors = rest.first().copied();
        Some(Self {
            requests,
            transmissions,
            timeouts,
            sent_bytes,
            received_bytes,
            round_trip_millis,
            millis,
            errors,
        })
    }
}

/// `bytes:`, since the mounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// Read with `read(2)` through the page cache.
    pub read: u64,
    /// Written with `write(2)` through the page cache.
    pub written: u64,
    /// Read with `O_DIRECT`.
    pub read_direct: u64,
    /// Written with `O_DIRECT`.
    pub written_direct: u64,
    /// Read from servers, whoever asked.
    pub read_server: u64,
    /// Written to servers.
    pub written_server: u64,
}

/// A mount of an NFS file system. Paths are as the kernel escapes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NfsMount<'a> {
    /// `server:/export`
    pub export: &'a [u8],
    /// Where it is mounted.
    pub mountpoint: &'a [u8],
    /// Whether its statistics are of a version that is known (1.x).
    pub known: bool,
    /// `vers=`: 3, 4.0, 4.1, 4.2.
    pub version: Option<&'a [u8]>,
    /// `proto=`: tcp, tcp6, rdma, udp.
    pub transport: Option<&'a [u8]>,
    /// `sec=`: sys, krb5, ...
    pub security: Option<&'a [u8]>,
    /// Seconds since the file system was mounted.
    pub age: Option<u64>,
    /// `bytes:`
    pub bytes: Option<Bytes>,
    /// `events:`, in the order of include/linux/nfs_iostat.h.
    pub events: Vec<u64>,
    /// Times that a connection was made, over all connections.
    pub connects: Option<u64>,
    /// In the order of [`OPERATIONS`].
    pub requests: Option<[Requests; OPERATIONS.len()]>,
}

/// Parses `mountstats` and gives the NFS mounts in the kernel's order. Lines with keys that are not known are ignored.
pub fn parse_mountstats(bytes: &[u8]) -> Result<Vec<NfsMount<'_>>, ParseError> {
    let mut mounts: Vec<NfsMount<'_>> = Vec::new();
    // Whether the lines are of the last of `mounts`, and of its operations.
    let (mut inside, mut per_operation) = (false, false);
    for line in lines(bytes) {
        let (number, line) = line?;
        if line.starts_with(b"device ") || line.starts_with(b"no device ") {
            per_operation = false;
            let mount = parse_device(line);
            inside = mount.as_ref().is_some_and(|mount| mount.known);
            mounts.extend(mount);
            continue;
        }
        let Some(mount) = mounts.last_mut().filter(|_| inside) else { continue };
        let line = line.trim_ascii();
        if line == b"per-op statistics" {
            per_operation = true;
            mount.requests = Some(Default::default());
            continue;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (key, rest) = line.split_at(colon);
        let rest = rest.get(1..).unwrap_or_default();
        let all = || numbers(rest).ok_or(ParseError::new(number, "not unsigned integers"));
        match key {
            _ if per_operation => {
                let requests =
                    Requests::parse(&all()?).ok_or(ParseError::new(number, "fewer than 8 numbers"))?;
                let at = operation(key).and_then(|name| OPERATIONS.iter().position(|known| *known == name));
                if let Some(slot) = at.and_then(|at| mount.requests.as_mut()?.get_mut(at)) {
                    slot.add(&requests);
                }
            }
            b"opts" => parse_options(rest, mount),
            b"age" => mount.age = Some(integer(rest.trim_ascii()).ok_or(ParseError::new(number, "no age"))?),
            b"events" => mount.events = all()?,
            b"bytes" => {
                let [read, written, read_direct, written_direct, read_server, written_server, ..] = *all()?
                else {
                    return Err(ParseError::new(number, "fewer than 6 numbers of bytes"));
                };
                mount.bytes =
                    Some(Bytes { read, written, read_direct, written_direct, read_server, written_server });
            }
            b"xprt" => {
                if let Some(connects) = parse_connects(rest) {
                    mount.connects = Some(mount.connects.unwrap_or(0).saturating_add(connects));
                }
            }
            _ => {}
        }
    }
    Ok(mounts)
}

fn numbers(text: &[u8]) -> Option<Vec<u64>> {
    fields(text).map(integer).collect()
}

/// `device SOURCE mounted on TARGET with fstype TYPE statvers=1.1`
fn parse_device(line: &[u8]) -> Option<NfsMount<'_>> {
    let parts: Vec<_> = fields(line).collect();
    let [
        b"device",
        export,
        b"mounted",
        b"on",
        mountpoint,
        b"with",
        b"fstype",
        b"nfs" | b"nfs4",
        ref rest @ ..,
    ] = *parts
    else {
        return None;
    };
    let known = rest.first().is_some_and(|version| version.starts_with(b"statvers=1."));
    Some(NfsMount { export, mountpoint, known, ..NfsMount::default() })
}

fn parse_options<'a>(options: &'a [u8], mount: &mut NfsMount<'a>) {
    for option in options.trim_ascii().split(|byte| *byte == b',') {
        let slot = match option.split(|byte| *byte == b'=').next() {
            Some(b"vers") => &mut mount.version,
            Some(b"proto") => &mut mount.transport,
            Some(b"sec") => &mut mount.security,
            _ => continue,
        };
        *slot = option.splitn(2, |byte| *byte == b'=').nth(1);
    }
}

/// `tcp PORT BINDS CONNECTS ...`, the same for `rdma`; `udp` has no connections.
fn parse_connects(text: &[u8]) -> Option<u64> {
    let mut parts = fields(text);
    matches!(parts.next()?, b"tcp" | b"rdma").then_some(())?;
    integer(parts.nth(2)?)
}

/// A line of `/proc/self/mountinfo` with a network file system that is NFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsTarget<'a> {
    /// `major:minor` of the super block: mounts with the same one are the same file system and have the same counters.
    pub device: u64,
    /// As in `mountstats`.
    pub export: &'a [u8],
    /// As in `mountstats`.
    pub mountpoint: &'a [u8],
}

/// Parses `mountinfo` (Documentation/filesystems/proc.rst 3.5) and gives its NFS mounts.
pub fn parse_mountinfo(bytes: &[u8]) -> Result<Vec<NfsTarget<'_>>, ParseError> {
    let mut targets = Vec::new();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        let (device, mountpoint) = (parts.nth(2), parts.nth(1));
        let mut parts = parts.skip_while(|part| *part != b"-").skip(1);
        let (Some(device), Some(mountpoint), Some(kind)) = (device, mountpoint, parts.next()) else {
            return Err(ParseError::new(
                number,
                "not 'id parent device root mountpoint ... - type source options'",
            ));
        };
        if !matches!(kind, b"nfs" | b"nfs4") {
            continue;
        }
        let device = parse_device_number(device).ok_or(ParseError::new(number, "not major:minor"))?;
        let export = parts.next().ok_or(ParseError::new(number, "no source"))?;
        targets.push(NfsTarget { device, export, mountpoint });
    }
    Ok(targets)
}

fn parse_device_number(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |byte| *byte == b':').map(integer);
    let (major, minor) = (parts.next()??, parts.next()??);
    (major <= u64::from(u32::MAX) && minor <= u64::from(u32::MAX)).then_some(major << 32 | minor)
}

/// A path as the kernel escapes it (`\040` for a blank), as it is.
pub fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        let octal = |digit: &u8| (b'0'..=b'7').contains(digit).then(|| u32::from(digit - b'0'));
        let code = match (first, tail) {
            (b'\\', [a, b, c, ..]) => (|| u8::try_from(octal(a)? * 64 + octal(b)? * 8 + octal(c)?).ok())(),
            _ => None,
        };
        plain.push(code.unwrap_or(*first));
        rest = tail.get(if code.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    plain
}
