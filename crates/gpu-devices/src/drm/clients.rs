//! Which processes have DRM descriptors, and what these say.

use kernel_files::parse::parse_pid_stat;
use kernel_files::processes::each_process;
use kernel_files::{Buffer, Dir, ReadError, Roots, SourceError};

use super::{Client, MAJOR, parse_fdinfo};

const FDINFO: &str = "/proc/PID/fdinfo/FD";

/// A process and the clients of its descriptors, each once.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    /// When it started. With the pid, this identifies it.
    pub(crate) start_ticks: u64,
    pub(crate) clients: Vec<Client>,
}

/// Whether a descriptor is of a DRM node. The device number decides, whatever the node's name in a container; a
/// removed node is recognised by its name.
fn is_drm(fds: &Dir, name: &str) -> bool {
    match fds.stat_through(name) {
        Ok((number, _)) => number != 0 && rustix::fs::major(number) == MAJOR,
        Err(ReadError::Gone) => fds.read_link(name).is_ok_and(|target| target.starts_with("/dev/dri/")),
        Err(_) => false,
    }
}

/// Every process that has a DRM descriptor, by pid.
pub(crate) fn scan(roots: &Roots, buffer: &mut Buffer) -> Result<Vec<Holder>, SourceError> {
    let failed = |file| SourceError::reading(file, "procfs");
    let proc = Dir::open(&roots.proc("")).map_err(failed("/proc"))?;
    let mut holders = Vec::new();
    each_process(&proc, |pid, fds, names| {
        let mut clients: Vec<Client> = Vec::new();
        for name in names.iter().filter(|name| is_drm(fds, name)) {
            let bytes = match fds.read(&format!("../fdinfo/{name}"), buffer) {
                Ok(bytes) => bytes,
                // Closed meanwhile, or its process ended.
                Err(ReadError::Gone) => continue,
                Err(error) => return Err(failed(FDINFO)(error)),
            };
            let client = parse_fdinfo(bytes).map_err(SourceError::parsing(FDINFO))?;
            let Some(client) = client.filter(|client| client.id.is_some() && client.pci.is_some()) else {
                continue;
            };
            // A descriptor that was duplicated is the same client.
            if !clients.iter().any(|known| (known.id, &known.pci) == (client.id, &client.pci)) {
                clients.push(client);
            }
        }
        if !clients.is_empty() {
            let start = fds.read("../stat", buffer).ok().and_then(|bytes| parse_pid_stat(bytes).ok());
            if let Some(stat) = start {
                holders.push(Holder { pid, start_ticks: stat.start_ticks, clients });
            }
        }
        Ok(())
    })?;
    holders.sort_by_key(|holder| holder.pid);
    Ok(holders)
}
