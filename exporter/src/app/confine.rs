//! As whom the process runs once everything is open, and what it forbids itself then.

use gpu_devices::nvml;
use kernel_files::{Buffer, Dir, Held, Roots};
use privileges::{DropError, Extra, Leave, User};
use rustix::thread::CapabilitySet;

use super::Failure;
use crate::cli::Config;
use crate::collector;
use crate::collector::devices::{lustre, nfs};
use crate::security;

/// The longest list of users that is read.
const LONGEST_LIST: usize = 8 << 20;

fn is_on(config: &Config, collector: &str) -> bool {
    config.enabled.iter().any(|entry| entry.name == collector)
}

/// The user that a process started as root becomes. `None` where it remains who it is: it was not started as root, or is to
/// keep its privileges or to be root. An error where it cannot become the one that was asked for.
pub fn user_to_become(config: &Config) -> Result<Option<User>, Failure> {
    let asked = config.user.as_deref();
    if !config.drop_privileges {
        return Ok(None);
    }
    if !rustix::process::geteuid().is_root() {
        if let Some(user) = asked {
            tracing::info!(user, "not started as root: --security.user changes nothing");
        }
        return Ok(None);
    }
    let (passwd, group) = (list("passwd"), list("group"));
    let user = match asked {
        Some(wanted) => User::find(wanted, &passwd, &group).map_err(Failure::usage)?,
        None => User::usual(&passwd, &group),
    };
    if user.uid == 0 {
        tracing::warn!(
            "remains root, which may read root's files and signal root's processes without any capability"
        );
        return Ok(None);
    }
    match user.try_it() {
        Ok(()) => Ok(Some(user)),
        Err(error) if asked.is_some() => Err(Failure::Other(format!("cannot become {user}: {error}"))),
        Err(error) => {
            tracing::warn!(
                %user, %error,
                "cannot become this user and remains root; give it CAP_SETUID and CAP_SETGID, or start it as a user of its own"
            );
            Ok(None)
        }
    }
}

/// `/etc/passwd` or `/etc/group`, empty where there is none.
fn list(name: &str) -> Vec<u8> {
    let etc = Dir::open(std::path::Path::new("/etc"));
    let mut buffer = Buffer::default();
    let read =
        etc.and_then(|etc| etc.read_long(name, &mut buffer, LONGEST_LIST).map(|(text, _)| text.to_vec()));
    read.unwrap_or_default()
}

/// Opens what only root may, so that it can be read when this process is not root any more: energy counters, Lustre's
/// statistics in debugfs, and this process's own mount statistics, which are root's once it dumps no core.
pub fn hold_files(config: &Config) -> Roots {
    let roots = config.roots.clone();
    let mut names = Vec::new();
    if is_on(config, "energy") {
        names.extend(energy_meters::guarded_files(&roots).into_iter().map(|file| format!("sys/{file}")));
    }
    if is_on(config, "lustre") {
        names.push(lustre::DEBUGFS.to_owned());
    }
    if is_on(config, "nfs") {
        names.push(nfs::STATS.to_owned());
    }
    let held = Held::open(names.into_iter().filter_map(|name| {
        let path = match name.split_once('/')? {
            ("proc", below) => roots.proc(below),
            (_, below) => roots.sys(below),
        };
        Some((name, path))
    }));
    roots.holding(held)
}

/// Becomes `user`, and drops what no enabled collector needs: capabilities, writing, system calls. Not where the
/// configuration keeps all of it.
pub fn drop_privileges(config: &Config, user: Option<&User>) -> Result<(), Failure> {
    if !config.drop_privileges {
        return Ok(());
    }
    let needed = capabilities(config);
    let dropped = match user {
        Some(user) => privileges::become_user(user, needed),
        None => privileges::drop_capabilities(needed).map_err(DropError::Capabilities),
    };
    match (dropped, user) {
        (Ok(dropped), user) => {
            if let Some(user) = user {
                tracing::info!(%user, "became an ordinary user");
            }
            if dropped.changed {
                tracing::info!(kept = security::names(dropped.kept), "gave up capabilities");
            }
        }
        // It was tried before anything was started, so this is no ordinary refusal.
        (Err(error), Some(user)) => return Err(Failure::Other(format!("cannot become {user}: {error}"))),
        (Err(error), None) => tracing::warn!(%error, "could not give up capabilities"),
    }
    if let Err(error) = privileges::forbid_dumps() {
        tracing::warn!(%error, "could not forbid core dumps");
    }
    forbid_writing(config, needed);
    if config.seccomp {
        match privileges::restrict_system_calls(extra(config)) {
            Ok(()) => {}
            Err(error) => tracing::info!(%error, "does without a filter of system calls"),
        }
    }
    Ok(())
}

/// The capabilities that are kept.
fn capabilities(config: &Config) -> CapabilitySet {
    let needed = collector::capabilities(&config.enabled, config.environment_hints);
    if divides_in_bpf(config) { needed | CapabilitySet::BPF } else { needed }
}

/// Whether counters may be divided by BPF programs.
fn divides_in_bpf(config: &Config) -> bool {
    is_on(config, "perf") && config.perf.method.may_use_bpf()
}

fn forbid_writing(config: &Config, needed: CapabilitySet) {
    // Landlock keeps a process from looking into others too, whatever its capabilities (security/landlock/task.c).
    let looks_into_others = needed.contains(CapabilitySet::SYS_PTRACE);
    if config.landlock && looks_into_others {
        tracing::info!(
            "doing without Landlock, which would forbid what was turned on: looking into processes"
        );
    } else if config.landlock {
        match privileges::forbid_writing(&leave(config)) {
            Ok(true) => {}
            Ok(false) => tracing::info!("this kernel has no Landlock: writing is not forbidden by it"),
            Err(error) => tracing::warn!(%error, "could not forbid writing"),
        }
    }
}

/// What Landlock does not forbid.
fn leave(config: &Config) -> Leave {
    let devices = if is_on(config, "gpu") { nvml::devices(&config.roots) } else { Vec::new() };
    // A helper makes groups, unless the exporter remains root.
    let itself = config.makes_groups() && rustix::process::geteuid().is_root();
    let trees = if itself { vec![config.roots.sys("fs/resctrl")] } else { Vec::new() };
    // A path, or @ and an abstract name (sd_notify(3)).
    let notified = config.notify_socket.as_deref();
    let abstract_sockets = notified.is_some_and(|socket| socket.to_string_lossy().starts_with('@'));
    let sockets = notified.filter(|socket| socket.is_absolute()).map(Into::into).into_iter().collect();
    let redfish = config.redfish.as_ref().filter(|_| is_on(config, "energy"));
    let ports = redfish.map(|options| options.address.port).into_iter().collect();
    Leave { devices, trees, sockets, ports, abstract_sockets }
}

/// The system calls that only some collectors make. RAPL's events are opened anew when CPUs come back.
fn extra(config: &Config) -> Extra {
    let rapl = || config.roots.sys("bus/event_source/devices/power").exists();
    Extra {
        perf_events: is_on(config, "perf")
            || is_on(config, "memory_traffic")
            || (is_on(config, "energy") && rapl()),
        bpf: is_on(config, "network") || divides_in_bpf(config),
    }
}
