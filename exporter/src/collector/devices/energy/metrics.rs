//! The samples of the energy.

use std::collections::{BTreeMap, BTreeSet};

use attribution::{Account as Attributed, IdleEstimate, IdlePower, Method};
use energy_meters::{Domain, Source, ZoneRole};
use exposition::{Family, Profile, Section, SubjectId, Value};
use slurm_jobs::{Job, NodeSnapshot};

use super::account::Account;
use super::accounts::Accounts;

pub(in crate::collector) static JOB_ENERGY: Family = Family::counter("jobledger_job_energy_joules_total")
    .profile(Profile::Lean)
    .labels(&["domain", "socket", "method"])
    .help(
        "Energy charged to the job; the domains are disjoint and may \
         be added up, the method says how it was split",
    );
pub(in crate::collector) static NODE_ENERGY: Family = Family::counter("jobledger_node_energy_joules_total")
    .profile(Profile::Lean)
    .labels(&["domain", "socket", "source"])
    .help(
        "Energy as measured since this exporter started; domains overlap and \
         sources overlap, jobledger_node_energy_zone_info says which",
    );
pub(in crate::collector) static UNATTRIBUTED: Family =
    Family::counter("jobledger_node_energy_unattributed_joules_total")
        .profile(Profile::Lean)
        .labels(&["domain", "socket"])
        .help(
            "Energy that no job can be charged with: of CPUs that no job holds, \
         of memory that others use or move, and of the system's own work",
        );
static ZONE: Family = Family::info("jobledger_node_energy_zone_info")
    .profile(Profile::Lean)
    .labels(&["domain", "socket", "source", "standing", "estimated"])
    .help(
        "What measures energy: booked (attributed to jobs), contained in or wider than what is attributed, \
         a duplicate, the total of the node, or retired (was attributed, and is not read any more); estimated ones are added up from power",
    );
static POWER: Family = Family::gauge("jobledger_node_power_watts")
    .profile(Profile::Full)
    .labels(&["domain", "socket", "source"])
    .help("Momentary or short-time mean power, as read from a power meter");
static IDLE: Family =
    Family::gauge("jobledger_node_energy_idle_watts").labels(&["domain", "socket", "origin"]).help(
        "Idle power that is shared by the CPUs held: set by --collector.energy.idle-watts, the least seen \
         while idle (learned), or a straight line through the power under load (fitted)",
    );
static IDLE_ERROR: Family = Family::gauge("jobledger_node_energy_idle_error_watts")
    .profile(Profile::Full)
    .labels(&["domain", "socket"])
    .help("Standard error of a fitted idle power");
static MOVING: Family = Family::gauge("jobledger_node_energy_moved_byte_joules")
    .profile(Profile::Full)
    .labels(&["domain", "socket"])
    .help(
        "Energy of memory beyond its idle power for a byte that is moved, by a straight line through \
         power and traffic",
    );

static DEFICIT: Family = Family::gauge("jobledger_node_energy_overhead_deficit_joules").help(
    "By how much packages, memory and GPUs together counted more than the meter of the whole node; \
         it is subtracted from later overhead, and one that grows shows a meter that is wrong",
);

/// Rows of the catalogue.
pub(super) fn families() -> Vec<&'static Family> {
    vec![&JOB_ENERGY, &NODE_ENERGY, &UNATTRIBUTED, &ZONE, &POWER, &IDLE, &IDLE_ERROR, &MOVING, &DEFICIT]
}

/// A socket's number as a label; empty for a zone that is not of one socket.
fn socket_label(socket: Option<u32>) -> String {
    socket.map(|socket| socket.to_string()).unwrap_or_default()
}

/// Whose energy is added up for a job: zones of all sources, since one may take over from another.
type Part = (Domain, Option<u32>);
/// Where energy was measured: zones of the same place (dies of a socket) are added up.
type Place = (Domain, Option<u32>, Source);

impl Accounts {
    pub(super) fn emit(&mut self, snapshot: &NodeSnapshot, out: &mut Section) {
        out.note_restarts(std::mem::take(&mut self.restarts));
        let measured = self.accounts.iter().filter(|account| account.is_measured());
        let unread: BTreeSet<Part> = measured.filter(|account| !account.read).map(Account::part).collect();
        for account in &mut self.accounts {
            let read = !unread.contains(&account.part());
            let shown = snapshot.jobs.iter().filter(|job| shows(job, read));
            shown.for_each(|job| account.energy.export(job.run));
        }
        let wall = self.wall();
        let wall_read = wall.is_none_or(|wall| wall.read);
        let overhead_role = if wall.is_some() { ZoneRole::Attributed } else { ZoneRole::Retired };
        let wall = wall.or(self.lost_wall()).map(|wall| (wall.zone.source, wall.zone.estimated));
        if let Some(overhead) = &mut self.overhead {
            let shown = snapshot.jobs.iter().filter(|job| shows(job, wall_read));
            shown.for_each(|job| overhead.export(job.run));
        }
        let since_start = out.node_since(Some(snapshot.following_since));
        self.emit_zones(&unread, since_start, out);
        self.emit_parts(&unread, since_start, out);
        if let Some((overhead, (source, estimated))) = self.overhead.as_ref().zip(wall) {
            emit_zone((Domain::Overhead, None, source), overhead_role, estimated, out);
            if wall_read {
                let place = [("domain", Domain::Overhead.as_str()), ("socket", "")];
                let total = Value::micro(overhead.account().exported_total());
                let with_source = [place[0], place[1], ("source", source.as_str())];
                out.push(&NODE_ENERGY, since_start, &with_source, total);
                out.push(&UNATTRIBUTED, since_start, &place, Value::micro(overhead.account().residual()));
                out.push(&DEFICIT, SubjectId::NODE, &[], Value::micro(overhead.deficit()));
                emit_idle(&[overhead.idle()], place, out);
            }
        }
        for job in &snapshot.jobs {
            let zones = self.accounts.iter().filter(|account| shows(job, !unread.contains(&account.part())));
            let zones =
                zones.map(|account| (account.zone.domain, account.zone.socket, account.energy.account()));
            let overhead = self.overhead.iter().filter(|_| shows(job, wall_read));
            let overhead = overhead.map(|overhead| (Domain::Overhead, None, overhead.account()));
            emit_job(job, snapshot, zones.chain(overhead), self.is_charged_with_gpu(job.run), out);
        }
    }

    /// What each source measured. A value that was not read now is absent: the last one would look like a part that draws
    /// nothing.
    fn emit_zones(&self, unread: &BTreeSet<Part>, since_start: SubjectId, out: &mut Section) {
        let mut places: BTreeMap<Place, Vec<(ZoneRole, &Account)>> = BTreeMap::new();
        for account in &self.accounts {
            if let Some(role) = account.role {
                places.entry(account.place()).or_default().push((role, account));
            }
        }
        for ((domain, socket, source), accounts) in places {
            let there = accounts.iter().find(|(_, account)| account.is_measured());
            if let Some((role, account)) = there.or(accounts.first()) {
                emit_zone((domain, socket, source), *role, account.zone.estimated, out);
            }
            let duplicate = accounts.iter().all(|(role, _)| *role == ZoneRole::Duplicate);
            if duplicate || unread.contains(&(domain, socket)) {
                continue;
            }
            let socket = socket_label(socket);
            let place = [("domain", domain.as_str()), ("socket", &*socket), ("source", source.as_str())];
            let total = accounts.iter().map(|(_, account)| account.energy.account().exported_total()).sum();
            out.push(&NODE_ENERGY, since_start, &place, Value::micro(total));
            let there = accounts.iter().filter(|(_, account)| account.is_measured());
            let powers = there.map(|(_, account)| account.power_uw);
            if let Some(power) = powers.reduce(|sum, power| Some(sum?.saturating_add(power?))).flatten() {
                out.push(&POWER, SubjectId::NODE, &place, Value::micro(power));
            }
        }
    }

    /// What is no job's of each part of the node, and its idle power.
    fn emit_parts(&self, unread: &BTreeSet<Part>, since_start: SubjectId, out: &mut Section) {
        let mut parts: BTreeMap<Part, Vec<&Account>> = BTreeMap::new();
        for account in self.accounts.iter().filter(|account| account.is_split()) {
            parts.entry(account.part()).or_default().push(account);
        }
        parts.retain(|part, _| !unread.contains(part));
        for ((domain, socket), accounts) in parts {
            let socket = socket_label(socket);
            let part = [("domain", domain.as_str()), ("socket", &*socket)];
            let residual = accounts.iter().map(|account| account.unattributed()).sum();
            out.push(&UNATTRIBUTED, since_start, &part, Value::micro(residual));
            let there = accounts.iter().filter(|account| account.role == Some(ZoneRole::Attributed));
            let idle: Vec<&IdleEstimate> = there.map(|account| account.energy.idle()).collect();
            emit_idle(&idle, part, out);
            if domain == Domain::Memory {
                emit_moving(&idle, part, out);
            }
        }
    }
}

impl Account {
    fn part(&self) -> Part {
        (self.zone.domain, self.zone.socket)
    }

    fn place(&self) -> Place {
        (self.zone.domain, self.zone.socket, self.zone.source)
    }
}

/// Whether a scrape shows the charges of a job of a part of the node: only if all meters of it were read. An ended job's are
/// always shown, and so are those of a part that no meter measures any more: they cannot change.
fn shows(job: &Job, read: bool) -> bool {
    read || !job.is_running()
}

fn emit_zone((domain, socket, source): Place, role: ZoneRole, estimated: bool, out: &mut Section) {
    let socket = socket_label(socket);
    let labels = [
        ("domain", domain.as_str()),
        ("socket", socket.as_str()),
        ("source", source.as_str()),
        ("standing", role.as_str()),
        ("estimated", if estimated { "true" } else { "false" }),
    ];
    out.push(&ZONE, SubjectId::NODE, &labels, 1);
}

/// The idle power of a place, of all its dies.
fn emit_idle(dies: &[&IdleEstimate], place: [(&'static str, &str); 2], out: &mut Section) {
    if dies.is_empty() {
        return;
    }
    let known: Option<u64> = dies.iter().map(|die| die.seen().microwatts()).sum();
    let fitted = || dies.iter().map(|die| die.fitted()).collect::<Option<Vec<_>>>();
    let set = dies.iter().any(|die| matches!(die.seen(), IdlePower::Set(_)));
    let mut push = |origin: &str, microwatts| {
        let labels = [place[0], place[1], ("origin", origin)];
        out.push(&IDLE, SubjectId::NODE, &labels, Value::micro(microwatts));
    };
    if let Some(microwatts) = known {
        push(if set { "set" } else { "learned" }, microwatts);
    } else if let Some(fitted) = fitted() {
        push("fitted", fitted.iter().map(|power| power.microwatts).sum());
        // Dies of a socket: as if they erred alike.
        let error = fitted.iter().map(|power| power.error_microwatts).sum();
        out.push(&IDLE_ERROR, SubjectId::NODE, &place, Value::micro(error));
    }
}

/// What a byte takes in the memory of a place. Its parts share the same bytes, and each has its own energy of them.
fn emit_moving(parts: &[&IdleEstimate], place: [(&'static str, &str); 2], out: &mut Section) {
    const BYTES: u64 = 1_000_000_000;
    if parts.is_empty() {
        return;
    }
    if let Some(microjoules) = parts.iter().map(|part| part.energy_of_work()).sum::<Option<u64>>() {
        out.push(&MOVING, SubjectId::NODE, &place, Value::parts(microjoules, 1_000_000 * BYTES));
    }
}

fn emit_job<'a>(
    job: &Job,
    snapshot: &NodeSnapshot,
    accounts: impl Iterator<Item = (Domain, Option<u32>, &'a Attributed<Method>)>,
    with_gpu: bool,
    out: &mut Section,
) {
    let mut attributed: BTreeMap<(Domain, Option<u32>, Method), u64> = BTreeMap::new();
    for (domain, socket, account) in accounts {
        for (method, energy) in account.of(job.run) {
            let sum = attributed.entry((domain, socket, method)).or_insert(0);
            *sum = sum.saturating_add(energy);
        }
    }
    if attributed.is_empty() && !with_gpu {
        return;
    }
    let subject = out.subject_since(job.labels(), job.followed_from(snapshot));
    for ((domain, socket, method), energy) in attributed {
        let socket = socket_label(socket);
        let labels = [("domain", domain.as_str()), ("socket", socket.as_str()), ("method", method.as_str())];
        out.push(&JOB_ENERGY, subject, &labels, Value::micro(energy));
    }
    if with_gpu {
        // The sum of a job's energy wants a package. This one is charged with the job's GPU: nothing of it is left.
        let labels = [("domain", Domain::Package.as_str()), ("socket", ""), ("method", "with_gpu")];
        out.push(&JOB_ENERGY, subject, &labels, Value::micro(0));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use attribution::{Basis, Busy, EnergyAccounts, Interval, Measured};
    use exposition::encode_openmetrics;
    use readings::Gain;

    use super::*;

    /// What is exported of the idle power of a socket with one die or two, each of four CPUs, 40 W idle and 8 W for a busy CPU.
    fn exported(dies: u32, idle: IdlePower, readings: u32) -> String {
        let accounts: Vec<EnergyAccounts> = (0..dies)
            .map(|_| {
                let mut energy = EnergyAccounts::new(Basis::Cpus, idle);
                for number in 0..readings {
                    let busy = 1 + number % 3;
                    let nanos = |cpus: u32| u128::from(cpus) * 10_000_000_000;
                    let length = Duration::from_secs(10);
                    let interval = Interval {
                        length,
                        cpu_ns: nanos(4),
                        busy: Some(Busy::of_cores(nanos(busy))),
                        ..Interval::default()
                    };
                    energy.observe(&interval, Some(Gain::Grown(u64::from(40 + 8 * busy) * 10_000_000)));
                }
                energy
            })
            .collect();
        let mut section = Section::default();
        let place = [("domain", "package"), ("socket", "0")];
        emit_idle(&accounts.iter().map(EnergyAccounts::idle).collect::<Vec<_>>(), place, &mut section);
        samples(section)
    }

    fn samples(section: Section) -> String {
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_energy_of_a_byte_is_that_of_all_parts_of_the_memory() {
        let exported = |readings: u64| {
            let part = |of_a_gigabyte: u64| {
                let mut energy = EnergyAccounts::new(Basis::Memory, IdlePower::Set(10_000_000));
                for number in 0..readings {
                    let gigabytes = 100 + number % 3 * 50;
                    let traffic = Some(Measured::of_nobody(gigabytes * 1_000_000_000));
                    let interval =
                        Interval { length: Duration::from_secs(10), traffic, ..Interval::default() };
                    energy.observe(&interval, Some(Gain::Grown(100_000_000 + gigabytes * of_a_gigabyte)));
                }
                energy
            };
            let parts = [part(1_000_000), part(200_000)];
            let mut section = Section::default();
            let place = [("domain", "dram"), ("socket", "0")];
            emit_moving(&parts.each_ref().map(EnergyAccounts::idle), place, &mut section);
            samples(section)
        };
        assert_eq!(exported(5), "", "not enough of it");
        let series = "jobledger_node_energy_moved_byte_joules{domain=\"dram\",socket=\"0\"}";
        assert_eq!(exported(20), format!("{series} 0.0000000012"));
    }

    #[test]
    fn an_idle_power_is_exported_with_its_origin_and_a_fitted_one_with_its_error() {
        let labels = "domain=\"package\",socket=\"0\"";
        let watts = |origin: &str, watts: &str| {
            format!("jobledger_node_energy_idle_watts{{{labels},origin=\"{origin}\"}} {watts}")
        };
        let error = format!("jobledger_node_energy_idle_error_watts{{{labels}}} 0.0");
        let unknown = IdlePower::Learned(None);
        assert_eq!(exported(1, unknown, 5), "");
        assert_eq!(exported(1, unknown, 20), format!("{}\n{error}", watts("fitted", "40.0")));
        assert_eq!(exported(2, unknown, 20), format!("{}\n{error}", watts("fitted", "80.0")));
        assert_eq!(exported(1, IdlePower::Learned(Some(39_000_000)), 20), watts("learned", "39.0"));
        assert_eq!(exported(1, IdlePower::Set(41_000_000), 20), watts("set", "41.0"));
    }
}
