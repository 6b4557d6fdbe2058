//! Two network namespaces joined by a wire (veth), for traffic whose every byte is known: IPv4 only, neighbours set, so
//! that nothing is sent but what a test sends.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Address of the near end, where jobs are.
pub const NEAR: &str = "10.213.7.1";
/// Address of the far end.
pub const FAR: &str = "10.213.7.2";

/// True, and said loudly, where no network namespace can be made: such a test has to return.
#[must_use]
pub fn skip_without_networks() -> bool {
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    let able = ip && rustix::process::geteuid().is_root();
    if !able {
        crate::skip("networks", "network namespaces need root and the package iproute2");
    }
    !able
}

/// The pair, removed on drop. Processes in it keep a namespace alive until they end, and nothing else.
#[derive(Debug)]
pub struct Wire {
    near: String,
    far: String,
}

impl Wire {
    /// Makes both ends.
    ///
    /// # Panics
    /// Without root and iproute2.
    #[must_use]
    pub fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("jobledger-{}-{serial}-{end}", std::process::id());
        let wire = Self { near: name("near"), far: name("far") };
        for name in [&wire.near, &wire.far] {
            ip(&["netns", "add", name]);
            for devices in ["all", "default"] {
                let write = format!("echo 1 > /proc/sys/net/ipv6/conf/{devices}/disable_ipv6");
                // Without IPv6 there is nothing to switch off.
                ip(&["netns", "exec", name, "sh", "-c", &format!("[ ! -d /proc/sys/net/ipv6 ] || {write}")]);
            }
        }
        // Made inside, so that the host's own network sees nothing of it.
        let (near, far) = ("02:00:00:00:07:01", "02:00:00:00:07:02");
        ip(&[
            "-n", &wire.near, "link", "add", "jlnear", "address", near, "type", "veth", "peer", "name",
            "jlfar", "address", far, "netns", &wire.far,
        ]);
        let ends = [(&wire.near, "jlnear", NEAR, FAR, far), (&wire.far, "jlfar", FAR, NEAR, near)];
        for (name, device, own, other, address) in ends {
            ip(&["-n", name, "address", "add", &format!("{own}/30"), "dev", device]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            ip(&["-n", name, "link", "set", device, "up"]);
            let neighbour =
                ["neighbour", "replace", other, "lladdr", address, "nud", "permanent", "dev", device];
            ip(&[&["-n", name][..], &neighbour].concat());
        }
        wire
    }

    /// The words of a command line that runs this Python script at the near end.
    #[must_use]
    pub fn near(&self, script: &str) -> Vec<String> {
        Self::command(&self.near, script)
    }

    /// The same at the far end.
    #[must_use]
    pub fn far(&self, script: &str) -> Vec<String> {
        Self::command(&self.far, script)
    }

    fn command(name: &str, script: &str) -> Vec<String> {
        ["ip", "netns", "exec", name, "python3", "-c", script].map(str::to_owned).to_vec()
    }

    /// Bytes and packets that the near end's device has received and sent, Ethernet headers included.
    ///
    /// # Panics
    /// If the device is not listed.
    #[must_use]
    pub fn near_counters(&self) -> [u64; 4] {
        let output = Command::new("ip").args(["netns", "exec", &self.near, "cat", "/proc/net/dev"]).output();
        let text = String::from_utf8(output.expect("ip").stdout).expect("text");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("jlnear:")).expect("the device");
        let columns: Vec<u64> = line.split_whitespace().filter_map(|column| column.parse().ok()).collect();
        [0, 1, 8, 9].map(|column| columns.get(column).copied().expect("sixteen columns"))
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status();
        }
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap_or_else(|e| panic!("ip: {e}"));
    assert!(status.success(), "ip {arguments:?}: {status}");
}
