//! Time that processes kept engines busy, from what their DRM clients say.
//!
//! Clients come and go while a process runs, and their values may fall for a while (drm-usage-stats.rst). So the
//! growth of a client is added to its process, whose sum only grows. A client of several processes (an inherited
//! descriptor) is charged to the lowest pid, once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::clients::Holder;
use super::{Client, Engine};
use crate::{Process, ProcessKind};

/// What of a driver's engines and memory is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Engines {
    /// Classes on which kernels run.
    pub(crate) classes: &'static [&'static str],
    /// Those of them that draw only when nothing of the others was used.
    pub(crate) drawing: &'static [&'static str],
    /// Beginnings of the names of the GPU's own memory.
    pub(crate) memory: &'static [&'static str],
}

impl Engines {
    fn has(&self, engine: &Engine) -> bool {
        self.classes.contains(&engine.class.as_str())
    }

    /// Bytes of the GPU's own memory that a client has there now.
    fn memory_of(&self, client: &Client) -> Option<u64> {
        let own = |name: &str| self.memory.iter().any(|prefix| name.starts_with(prefix));
        let sizes = client.memory.iter().filter(|region| own(&region.name));
        sizes.filter_map(|r| r.resident.or(r.memory).or(r.total)).reduce(u64::saturating_add)
    }
}

/// A process: pid and start.
type Who = (u32, u64);

#[derive(Debug)]
struct Known {
    busy_ns: u64,
    cycles: u64,
}

/// The clock of xe's ticks, against the system's.
#[derive(Debug, Clone, Copy)]
struct Clock {
    since: (Instant, u64),
    now: (Instant, u64),
}

impl Clock {
    /// Ticks as nanoseconds; `None` until it was seen twice.
    fn nanoseconds(&self, ticks: u64) -> Option<u64> {
        let elapsed = self.now.0.saturating_duration_since(self.since.0).as_nanos();
        let counted = u128::from(self.now.1.checked_sub(self.since.1)?);
        u64::try_from((u128::from(ticks) * elapsed).checked_div(counted)?).ok()
    }
}

/// The clients of one vendor.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    clients: HashMap<(Arc<str>, u64), Known>,
    sums: HashMap<(Arc<str>, Who), u64>,
    clocks: HashMap<Arc<str>, Clock>,
}

/// What the clients of a process on a GPU add up to.
#[derive(Debug, Default)]
struct Sum {
    memory: Option<u64>,
    computes: bool,
    draws: bool,
    timed: bool,
}

impl Busy {
    /// Adds a scan made at `now`, and returns the processes of each GPU, by its PCI address. A process that only has
    /// the node open is not on the GPU: it must have used an engine or have memory.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        holders: &[Holder],
        gpus: &[Arc<str>],
        engines: &Engines,
    ) -> HashMap<Arc<str>, Vec<Process>> {
        self.set_clocks(now, holders, gpus);
        let mut seen = HashSet::new();
        let mut present = HashSet::new();
        let mut found: HashMap<Arc<str>, Vec<Process>> = HashMap::new();
        for holder in holders {
            let who = (holder.pid, holder.start_ticks);
            for gpu in gpus {
                let mut sum = Sum::default();
                let key = (gpu.clone(), who);
                for client in holder.clients.iter().filter(|c| c.pci.as_deref() == Some(gpu.as_ref())) {
                    let Some(id) = client.id else { continue };
                    present.insert(key.clone());
                    let first = seen.insert((gpu.clone(), id));
                    let added = if first { self.added(gpu, id, client, engines) } else { 0 };
                    *self.sums.entry(key.clone()).or_default() += added;
                    sum.take(client, engines, first);
                }
                let busy = self.sums.get(&key).copied().unwrap_or_default();
                if present.contains(&key)
                    && (busy > 0 || sum.computes || sum.draws || sum.memory.is_some_and(|m| m > 0))
                {
                    let kind =
                        if sum.draws && !sum.computes { ProcessKind::Graphics } else { ProcessKind::Compute };
                    let busy_ns = sum.timed.then_some(busy);
                    found.entry(gpu.clone()).or_default().push(Process {
                        pid: holder.pid,
                        kind,
                        memory: sum.memory,
                        busy_ns,
                    });
                }
            }
        }
        self.clients.retain(|client, _| seen.contains(client));
        self.sums.retain(|key, _| present.contains(key));
        found
    }

    /// What a client used since it was looked at last, nanoseconds; of a new one all that it used.
    fn added(&mut self, gpu: &Arc<str>, id: u64, client: &Client, engines: &Engines) -> u64 {
        let wanted = || client.engines.iter().filter(|engine| engines.has(engine));
        // Engines of a class work side by side: all of them busy for a second are a second.
        let each = |value: u64, engine: &Engine| value / engine.capacity.unwrap_or(1).max(1);
        let busy_ns = wanted().filter_map(|e| Some(each(e.busy_ns?, e))).fold(0, u64::saturating_add);
        let cycles = wanted().filter_map(|e| Some(each(e.cycles?, e))).fold(0, u64::saturating_add);
        let clock = self.clocks.get(gpu).copied();
        let known = self.clients.entry((gpu.clone(), id)).or_insert(Known { busy_ns: 0, cycles: 0 });
        let ticks = cycles.saturating_sub(known.cycles);
        // Ticks of a clock whose rate is not known yet are lost: those before the first reading.
        let of_ticks = clock.and_then(|clock| clock.nanoseconds(ticks)).unwrap_or_default();
        let added = busy_ns.saturating_sub(known.busy_ns).saturating_add(of_ticks);
        known.busy_ns = known.busy_ns.max(busy_ns);
        known.cycles = known.cycles.max(cycles);
        added
    }

    fn set_clocks(&mut self, now: Instant, holders: &[Holder], gpus: &[Arc<str>]) {
        for gpu in gpus {
            let clients = holders.iter().flat_map(|holder| &holder.clients);
            let of_gpu = clients.filter(|client| client.pci.as_deref() == Some(gpu.as_ref()));
            let Some(ticks) = of_gpu.flat_map(|c| &c.engines).filter_map(|e| e.total_cycles).max() else {
                continue;
            };
            let seen = (now, ticks);
            let clock = self.clocks.entry(gpu.clone()).or_insert(Clock { since: seen, now: seen });
            clock.now = seen;
            if ticks < clock.since.1 {
                // The GPU was reset.
                clock.since = seen;
            }
        }
    }
}

impl Sum {
    fn take(&mut self, client: &Client, engines: &Engines, first: bool) {
        if let Some(memory) = engines.memory_of(client).filter(|_| first) {
            self.memory = Some(self.memory.unwrap_or_default().saturating_add(memory));
        }
        for engine in client.engines.iter().filter(|engine| engines.has(engine)) {
            self.timed |= engine.busy_ns.is_some() || engine.cycles.is_some();
            let used = engine.busy_ns.or(engine.cycles).is_some_and(|used| used > 0);
            let draws = engines.drawing.contains(&engine.class.as_str());
            self.draws |= used && draws;
            self.computes |= used && !draws;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::parse_fdinfo;
    use super::*;

    const GPU: &str = "0000:03:00.0";
    const ENGINES: Engines =
        Engines { classes: &["gfx", "compute", "ccs"], drawing: &["gfx"], memory: &["vram"] };

    fn holder(pid: u32, clients: &[&str]) -> Holder {
        let client = |text: &&str| {
            let text = format!(
                "drm-driver:\tx\ndrm-pdev:\t{GPU}\n{}\n",
                text.replace(' ', "\n").replace('=', ":\t").replace('_', " ")
            );
            parse_fdinfo(text.as_bytes()).unwrap().unwrap()
        };
        Holder { pid, start_ticks: u64::from(pid) * 10, clients: clients.iter().map(client).collect() }
    }

    fn add(busy: &mut Busy, now: Instant, holders: &[Holder]) -> Vec<(u32, Option<u64>, Option<u64>)> {
        let gpus = [Arc::from(GPU)];
        let mut found = busy.add(now, holders, &gpus, &ENGINES);
        let processes = found.remove(GPU).unwrap_or_default();
        processes.iter().map(|p| (p.pid, p.memory, p.busy_ns)).collect()
    }

    #[test]
    fn a_process_s_sum_only_grows_whatever_its_clients_do() {
        let mut busy = Busy::default();
        let now = Instant::now();
        let one = "drm-client-id=1 drm-engine-gfx=100_ns drm-engine-compute=1000_ns drm-engine-dma=77_ns drm-memory-vram=4_KiB";
        let two = "drm-client-id=2 drm-engine-compute=50_ns drm-resident-vram=8_KiB drm-total-vram=9_KiB";
        assert_eq!(add(&mut busy, now, &[holder(5, &[one, two])]), [(5, Some(12288), Some(1150))]);
        let less = "drm-client-id=1 drm-engine-compute=900_ns";
        assert_eq!(
            add(&mut busy, now, &[holder(5, &[less])]),
            [(5, None, Some(1150))],
            "less, and one is closed"
        );
        let more = "drm-client-id=1 drm-engine-compute=1200_ns";
        assert_eq!(add(&mut busy, now, &[holder(5, &[more])]), [(5, None, Some(1250))]);
        let again = "drm-client-id=3 drm-engine-compute=10_ns";
        assert_eq!(add(&mut busy, now, &[holder(5, &[more, again])]), [(5, None, Some(1260))]);
    }

    #[test]
    fn an_inherited_client_is_counted_once() {
        let mut busy = Busy::default();
        let now = Instant::now();
        let client = |ns| format!("drm-client-id=1 drm-engine-compute={ns}_ns drm-memory-vram=4_KiB");
        let (first, second) = (client(1000), client(1600));
        let both = [holder(5, &[&first]), holder(6, &[&first])];
        assert_eq!(add(&mut busy, now, &both), [(5, Some(4096), Some(1000)), (6, None, Some(0))]);
        assert_eq!(
            add(&mut busy, now, &[holder(6, &[&second])]),
            [(6, Some(4096), Some(600))],
            "what the other left"
        );
    }

    #[test]
    fn ticks_are_exported_as_time_by_the_gpu_s_own_clock() {
        let mut busy = Busy::default();
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let client = |id, busy, total| {
            format!(
                "drm-client-id={id} drm-cycles-ccs={busy} drm-total-cycles-ccs={total} drm-engine-capacity-ccs=4"
            )
        };
        // 19.2 MHz; four engines.
        let old = client(1, 400_000_000u64, 5_000_000_000u64);
        assert_eq!(
            add(&mut busy, at(0), &[holder(5, &[&old])]),
            [(5, None, Some(0))],
            "before the clock is known"
        );
        let later = client(1, 400_000_000 + 4 * 96_000_000, 5_192_000_000);
        let new = client(2, 4 * 19_200_000, 5_192_000_000);
        let both = [holder(5, &[&later]), holder(6, &[&new])];
        assert_eq!(
            add(&mut busy, at(10), &both),
            [(5, None, Some(5_000_000_000)), (6, None, Some(1_000_000_000))],
            "5 s of 10, and a new process whole"
        );
        let reset = client(1, 400_000_000, 1_000);
        assert_eq!(add(&mut busy, at(20), &[holder(5, &[&reset])]), [(5, None, Some(5_000_000_000))]);
    }

    #[test]
    fn who_only_opened_the_node_is_not_on_the_gpu() {
        let mut busy = Busy::default();
        let idle = "drm-client-id=1 drm-engine-compute=0_ns drm-memory-vram=0";
        assert_eq!(add(&mut busy, Instant::now(), &[holder(5, &[idle])]), []);
        let old = "drm-client-id=1 drm-memory-vram=4_KiB";
        assert_eq!(
            add(&mut busy, Instant::now(), &[holder(5, &[old])]),
            [(5, Some(4096), None)],
            "time is not known"
        );
    }
}
