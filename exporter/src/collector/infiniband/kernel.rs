//! Whether something in the kernel may use a port: what it moves there is no job's.
//!
//! `/sys/module/*/holders` says which modules use the RDMA core. Those that are drivers or gates for processes move
//! nothing themselves; IP over InfiniBand does while its device is up, and NFS while it has connections. Any other one
//! counts as a user by being loaded.

use kernel_files::parse::{ParseError, parse_integer};
use kernel_files::{Buffer, Dir, ReadError};

use super::super::CollectError;
use super::FIX;

/// Modules whose symbols a user of a port needs.
const CORES: [&str; 4] = ["ib_core", "ib_cm", "iw_cm", "rdma_cm"];

/// Drivers, and gates for processes.
const NO_USERS: &[&str] = &[
    "ib_cm",
    "ib_umad",
    "ib_uverbs",
    "iw_cm",
    "rdma_cm",
    "rdma_ucm",
    "rdmavt",
    "nv_peer_mem",
    "nvidia_peermem",
    "bnxt_re",
    "efa",
    "erdma",
    "hfi1",
    "hns_roce_hw_v2",
    "i40iw",
    "ib_qib",
    "irdma",
    "iw_cxgb4",
    "mana_ib",
    "mlx4_ib",
    "mlx5_ib",
    "ocrdma",
    "qedr",
    "rdma_rxe",
    "siw",
    "usnic_verbs",
    "vmw_pvrdma",
];

/// NFS over RDMA, which holds itself while it has connections (net/sunrpc/xprtrdma/transport.c, `xprt_setup_rdma`;
/// net/sunrpc/svc_xprt.c) and is loaded on many nodes that have none.
const HELD_IN_USE: &str = "rpcrdma";

/// ARPHRD_INFINIBAND and IFF_UP (include/uapi/linux/if_arp.h, if.h).
const INFINIBAND: u64 = 32;
const UP: u64 = 1;

/// Parses `flags` of a network device, `0x1003`.
pub fn parse_flags(bytes: &[u8]) -> Result<u64, ParseError> {
    let digits = bytes.trim_ascii().strip_prefix(b"0x").and_then(|digits| std::str::from_utf8(digits).ok());
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(ParseError::new(1, "not 0x and digits"))
}

/// The modules that use ports of this node now, and whether IP over InfiniBand is loaded.
pub(super) struct Modules {
    pub(super) user: Option<String>,
    ip: bool,
}

/// Looks at the modules.
pub(super) fn modules(sys: &Dir, buffer: &mut Buffer) -> Result<Modules, CollectError> {
    let failed = |error| CollectError::reading("/sys/module", "", FIX)(error);
    let mut found = Modules { user: None, ip: false };
    for core in CORES {
        let holders = match sys.open_link(&format!("module/{core}/holders")).and_then(|dir| dir.list()) {
            Ok(holders) => holders,
            Err(ReadError::Gone) if core == CORES[0] => {
                found.user =
                    Some("the kernel (RDMA is built into it, so its users cannot be seen)".to_owned());
                return Ok(found);
            }
            Err(ReadError::Gone) => continue,
            Err(error) => return Err(failed(error)),
        };
        for module in holders.into_iter().map(|entry| entry.name) {
            let uses = match module.as_str() {
                "ib_ipoib" => {
                    found.ip = true;
                    false
                }
                HELD_IN_USE => {
                    let held = sys.read_record("module/rpcrdma/refcnt", buffer).map(parse_integer);
                    !matches!(held, Ok(Ok(0)))
                }
                name => !NO_USERS.contains(&name),
            };
            if uses {
                found.user = Some(module);
            }
        }
    }
    Ok(found)
}

impl Modules {
    /// Who uses ports of a device with so many InfiniBand ports, if anybody does.
    pub(super) fn user_of(
        &self,
        sys: &Dir,
        device: &str,
        ports: usize,
        buffer: &mut Buffer,
    ) -> Option<String> {
        if self.user.is_some() || !self.ip || ports == 0 {
            return self.user.clone();
        }
        let identity = |path: &str| Some(sys.open_link(path).ok()?.stat().ok()?.inode);
        let of_device = identity(&format!("class/infiniband/{device}/device"));
        let mut seen = 0;
        for entry in sys.open_link("class/net").and_then(|dir| dir.list()).unwrap_or_default() {
            let at = format!("class/net/{}", entry.name);
            let kind = sys.read_record(&format!("{at}/type"), buffer).map(parse_integer);
            if !matches!(kind, Ok(Ok(INFINIBAND))) {
                continue;
            }
            let of = identity(&format!("{at}/device"));
            if of.is_some() && of != of_device {
                continue;
            }
            seen += usize::from(of.is_some());
            let flags = sys.read_record(&format!("{at}/flags"), buffer).map(parse_flags);
            if !matches!(flags, Ok(Ok(flags)) if flags & UP == 0) {
                return Some(entry.name);
            }
        }
        // Each InfiniBand port has one; those that are in another network namespace are not seen here.
        (seen < ports).then(|| "IP over InfiniBand in another network namespace".to_owned())
    }
}
