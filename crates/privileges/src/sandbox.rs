//! What a process that only reads can do without, by Landlock (Documentation/userspace-api/landlock.rst).

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest ABI whose rights are named here; an older kernel has fewer of them.
const NEWEST: ABI = ABI::V9;

/// The sockets of what answers a C library's questions for users (nscd, sssd, nslcd, winbind, systemd), and of NVIDIA's
/// persistence daemon, which its library asks.
const SERVICES: [&str; 7] = [
    "/run/nscd",
    "/var/lib/sss/pipes",
    "/run/nslcd",
    "/run/samba/winbindd",
    "/run/systemd/userdb",
    "/run/systemd/notify",
    "/run/nvidia-persistenced",
];

/// What is not forbidden.
#[derive(Debug, Clone, Default)]
pub struct Leave {
    /// Devices to be written and asked by ioctl(2), or directories of them.
    pub devices: Vec<PathBuf>,
    /// Where files are written, and directories made and removed.
    pub trees: Vec<PathBuf>,
    /// Sockets to connect to, or directories of them, beside those of name services.
    pub sockets: Vec<PathBuf>,
    /// TCP ports to connect to.
    pub ports: Vec<u16>,
    /// Whether abstract sockets of other processes may be connected to.
    pub abstract_sockets: bool,
}

/// Forbids this thread, and those that it starts, for good:
///
/// - to write, create, remove or execute a file (Linux 5.13), to truncate (6.2) and to call ioctl(2) of a device (6.10),
/// - to connect by TCP, but to ports that are named, and to bind a port (6.7),
/// - to send signals to processes outside and to connect to their abstract sockets (6.12),
/// - to connect to sockets in the file system (the kernel of ABI 9), but for those of name services and of systemd.
///
/// Reading is not restricted: the sources are spread over procfs and sysfs, and certificates lie where admins put them.
/// False when the kernel has no Landlock.
pub fn forbid_writing(but: &Leave) -> Result<bool, RulesetError> {
    let scopes = Scope::from_all(NEWEST) & !scope_of(but.abstract_sockets);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(NEWEST) | AccessFs::Execute)?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(scopes)?
        .create()?
        .add_rules(rules(&but.devices, AccessFs::WriteFile | AccessFs::IoctlDev))?
        .add_rules(rules(&but.trees, AccessFs::WriteFile | AccessFs::MakeDir | AccessFs::RemoveDir))?
        .add_rules(rules(&SERVICES.map(PathBuf::from), AccessFs::ResolveUnix.into()))?
        .add_rules(rules(&but.sockets, AccessFs::ResolveUnix.into()))?
        .add_rules(
            but.ports.iter().map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp))),
        )?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

fn scope_of(abstract_sockets: bool) -> BitFlags<Scope> {
    if abstract_sockets { Scope::AbstractUnixSocket.into() } else { BitFlags::EMPTY }
}

/// One that is not there needs no leave.
fn rules(paths: &[PathBuf], access: BitFlags<AccessFs>) -> Vec<Result<PathBeneath<PathFd>, RulesetError>> {
    let there = paths.iter().filter_map(|path| PathFd::new(path).ok());
    there.map(|path| Ok(PathBeneath::new(path, access))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
    use std::path::Path;

    use rustix::io::Errno;
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::tests::apart;

    /// The kernel's ABI: 0 without Landlock.
    fn abi() -> i32 {
        let best = apart(|| {
            Ruleset::default().handle_access(AccessFs::from_all(ABI::V1)).unwrap().create().unwrap();
            // What each later ABI added, refused where the kernel does not know it.
            let knows = |access: BitFlags<AccessFs>| {
                let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
                ruleset.handle_access(access).and_then(|ruleset| ruleset.create()).is_ok()
            };
            let network = |ruleset: Ruleset| {
                let ruleset = ruleset.set_compatibility(CompatLevel::HardRequirement);
                ruleset.handle_access(AccessNet::ConnectTcp).and_then(|ruleset| ruleset.create()).is_ok()
            };
            let scoped = |ruleset: Ruleset| {
                let ruleset = ruleset.set_compatibility(CompatLevel::HardRequirement);
                ruleset.scope(Scope::Signal).and_then(|ruleset| ruleset.create()).is_ok()
            };
            [
                (1, knows(AccessFs::WriteFile.into())),
                (4, network(Ruleset::default())),
                (5, knows(AccessFs::IoctlDev.into())),
                (6, scoped(Ruleset::default())),
                (9, knows(AccessFs::ResolveUnix.into())),
            ]
        });
        best.into_iter().filter(|(_, known)| *known).map(|(abi, _)| abi).max().unwrap_or(0)
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("jobledger-landlock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// On a thread of its own, since it is for good. `None` where the kernel has no Landlock.
    fn confined<T: Send + 'static>(but: Leave, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        apart(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            forbid_writing(&but).unwrap().then(f)
        })
    }

    #[test]
    fn nothing_can_be_written_once_that_is_forbidden_but_everything_read() {
        let dir = scratch("files");
        let file = dir.join("file");
        std::fs::write(&file, "before").unwrap();
        let done = confined(Leave::default(), move || {
            (std::fs::write(&file, "after"), std::fs::read_to_string(&file).unwrap())
        });
        std::fs::remove_dir_all(&dir).unwrap();
        let Some((written, read)) = done else { return };
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(read, "before");
    }

    /// The driver of a GPU is asked through nodes that are opened for writing.
    #[test]
    fn a_device_that_is_named_can_be_written_and_another_cannot() {
        let dir = scratch("devices");
        std::fs::create_dir_all(dir.join("caps")).unwrap();
        for file in ["ctl", "other", "caps/cap1"] {
            std::fs::write(dir.join(file), "").unwrap();
        }
        let at = dir.clone();
        let devices = vec![dir.join("ctl"), dir.join("caps"), dir.join("gone")];
        let opened = confined(Leave { devices, ..Leave::default() }, move || {
            ["ctl", "caps/cap1", "other"]
                .map(|file| std::fs::OpenOptions::new().read(true).write(true).open(at.join(file)).is_ok())
        });
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(opened.unwrap_or([true, true, false]), [true, true, false]);
    }

    /// resctrl's groups are directories that the kernel fills.
    #[test]
    fn below_a_tree_that_is_named_directories_are_made_and_removed() {
        let dir = scratch("trees");
        std::fs::create_dir_all(dir.join("resctrl/mon_groups")).unwrap();
        std::fs::write(dir.join("resctrl/tasks"), "").unwrap();
        let at = dir.clone();
        let done = confined(Leave { trees: vec![dir.join("resctrl")], ..Leave::default() }, move || {
            let group = at.join("resctrl/mon_groups/x");
            [
                std::fs::create_dir(&group).is_ok(),
                std::fs::OpenOptions::new().write(true).open(at.join("resctrl/tasks")).is_ok(),
                std::fs::remove_dir(&group).is_ok(),
                std::fs::write(at.join("resctrl/new"), "").is_ok(),
                std::fs::create_dir(at.join("other")).is_ok(),
            ]
        });
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(done.unwrap_or([true, true, true, false, false]), [true, true, true, false, false]);
    }

    #[test]
    #[expect(unsafe_code, reason = "ioctl(2) of a device")]
    fn devices_that_are_not_named_answer_no_ioctl() {
        let asked = |devices: &[&str]| {
            let devices = devices.iter().map(PathBuf::from).collect();
            confined(Leave { devices, ..Leave::default() }, || {
                let null = std::fs::File::open("/dev/null").unwrap();
                // SAFETY: no terminal answers, and the kernel writes nothing to a null pointer.
                let answer =
                    unsafe { libc::ioctl(null.as_raw_fd(), libc::TIOCGWINSZ, std::ptr::null_mut::<u8>()) };
                (answer, std::io::Error::last_os_error().raw_os_error())
            })
        };
        if abi() >= 5 {
            assert_eq!(asked(&[]), Some((-1, Some(libc::EACCES))));
            assert_eq!(asked(&["/dev/null"]), Some((-1, Some(libc::ENOTTY))), "the driver's own answer");
        }
    }

    #[test]
    fn a_socket_that_listens_serves_on_and_none_is_connected_or_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || TcpStream::connect(address).map(drop));
        let done = confined(Leave::default(), move || {
            let accepted = listener.accept().is_ok();
            (accepted, TcpStream::connect(address).is_ok(), TcpListener::bind("127.0.0.1:0").is_ok())
        });
        if abi() >= 4 {
            assert_eq!(done, Some((true, false, false)));
            client.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_port_that_is_named_is_connected_to_and_another_is_not() {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let ports = vec![addresses[0].port()];
        let connected = confined(Leave { ports, ..Leave::default() }, move || {
            addresses.map(|address| TcpStream::connect(address).is_ok())
        });
        assert_eq!(connected.unwrap_or([true, true]), [true, abi() < 4]);
    }

    #[test]
    fn no_signal_leaves_it_and_no_abstract_socket_is_connected_unless_that_is_left() {
        let name = format!("jobledger-landlock-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _socket = UnixDatagram::bind_addr(&address).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let done = [false, true].map(|abstract_sockets| {
            let address = address.clone();
            confined(Leave { abstract_sockets, ..Leave::default() }, move || {
                let sent = UnixDatagram::unbound().unwrap().send_to_addr(b"READY=1", &address).is_ok();
                (kill_process(pid, Signal::CONT), sent)
            })
        });
        child.kill().unwrap();
        child.wait().unwrap();
        if abi() >= 6 {
            assert_eq!(done, [Some((Err(Errno::PERM), false)), Some((Err(Errno::PERM), true))]);
        }
    }

    #[test]
    fn sockets_of_the_file_system_are_connected_where_that_is_left() {
        let dir = scratch("sockets");
        let _listeners = ["left", "other"].map(|name| UnixListener::bind(dir.join(name)).unwrap());
        let at = dir.clone();
        let connected = confined(Leave { sockets: vec![dir.join("left")], ..Leave::default() }, move || {
            ["left", "other"].map(|name| UnixStream::connect(at.join(name)).is_ok())
        });
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(connected.unwrap_or([true, true]), [true, abi() < 9]);
        assert!(SERVICES.iter().all(|service| Path::new(service).is_absolute()));
    }
}
