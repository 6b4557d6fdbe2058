//! What owners held and used in a time, from the counters of owners (`jobledger_owner_*`).
//!
//! A counter of an owner goes on for as long as its exporter counts, over restarts that restore its state. So what it grew by in
//! such a time is its last value less the one at the beginning, and nothing is extrapolated. A value that falls is no new beginning: an
//! exporter that crashed restores what it saved last and counts on from there. When counters begin anew is what
//! `jobledger_exporter_counting_start_time_seconds` says. A new counting has the whole of the jobs that run when it begins;
//! what was counted of them before is taken off.

mod amounts;
mod countings;
mod retention;

use std::collections::{BTreeMap, BTreeSet};

use prometheus_api::{Labels, Range, Sample, Series};
use tokio::task::JoinSet;

use super::selector::{any_of, range};
use super::{Prometheus, Selection};
use crate::Failure;
use crate::series::{INFO, START};
use crate::source::labels::ALL_LABELS;

use amounts::{JobsThen, Values, counted_before};
use countings::{Bin, Counting, countings, is_same, uncertain};

pub use amounts::Counter;

/// Since when a node counts.
const COUNTING: &str = "jobledger_exporter_counting_start_time_seconds";
/// It is there whenever owners are counted.
const HELD_ON_NODE: &str = "jobledger_node_allocated_cpu_seconds_total";
const FACTOR: &str = "jobledger:carbon_factor:grams_per_kwh";
/// How long before a time its value is looked for, of a node that was scraped then.
const LOOKBACK: f64 = 300.0;
/// The same of a node that was not.
const DAY: f64 = 86_400.0;
/// Nodes of one query for samples: a day has 2880 of each.
const NODES_AT_ONCE: usize = 50;
/// A new counting has the running jobs in its first pages.
const FIRST_PAGES: f64 = 60.0;
/// Two start times of a job that are one.
const SAME_START: f64 = 1.0;

/// What rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Owners that have the same value of this label.
    Label(&'static str),
    /// Nodes.
    Node,
}

/// What somebody used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Used {
    /// In hours, GiB hours, kilowatt hours and so on of seconds, bytes and joules: as the counters have them. `None` of what nothing counted.
    pub amounts: BTreeMap<Counter, f64>,
    /// The part of the CPU seconds held on nodes where no energy is counted.
    pub held_without_energy: f64,
    /// The part of the GPU seconds held on nodes where it is not counted whether GPUs are busy.
    pub gpu_held_unwatched: f64,
}

/// What was used in a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// By cluster and name. An empty name is not known.
    pub rows: BTreeMap<(String, String), Used>,
    /// What is not in the numbers, and why.
    pub notes: Vec<String>,
}

/// Labels of owners.
const OWNER: &str = "user, account, partition, qos";

/// The label of the cluster, and the instance.
type Node = (String, String);
/// The nodes that are looked at with the same query: at a time, so far back, in milliseconds.
type Looks = BTreeMap<(i64, i64), BTreeSet<Node>>;

/// What a node had at a time.
#[derive(Debug, Default)]
struct Looked {
    values: BTreeMap<(i64, i64, Node), Values>,
    jobs: BTreeMap<(i64, i64, Node), JobsThen>,
}

/// A look at a node: when, and how far back at most.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    at: f64,
    back: f64,
}

impl Look {
    fn key(self) -> (i64, i64) {
        (milliseconds(self.at), milliseconds(self.back))
    }
}

#[allow(clippy::cast_possible_truncation, reason = "times of samples")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

/// Not over the beginning of a counting: an owner without a job since then has a value of before.
fn look(at: f64, first: Option<f64>) -> Look {
    Look { at, back: first.map_or(LOOKBACK, |first| (at - first + 0.001).clamp(0.001, LOOKBACK)) }
}

/// What is known of a node.
#[derive(Debug, Default)]
struct Followed {
    countings: Vec<Counting>,
    /// Whether it was scraped right before the window, and before its end, with no change.
    steady: [bool; 2],
}

impl Prometheus {
    /// What was held and used in the window. It fails where the server does not reach so far back.
    pub async fn usage(&self, of: Of, selection: &Selection, now: f64) -> Result<Usage, Failure> {
        let until = (self.until.min(now) * 1000.0).floor() / 1000.0;
        let since = self.until - self.window;
        self.reaches_back(since, until, now).await?;
        // Bins of a day at most, of whole milliseconds.
        let count = ((until - since) / DAY).ceil().max(1.0);
        let bin = ((until - since) / count * 1000.0).ceil().max(1000.0) / 1000.0;
        let since = until - bin * count;
        let nodes = self.follow(since, until, bin, count).await?;
        let asking = Asking { of, owner: selection.owner(), since, until };
        let mut usage = self.add_up(&asking, &nodes).await?;
        self.add_co2(&asking, &mut usage).await?;
        Ok(usage)
    }

    /// Since when each node counted, and how long.
    async fn follow(
        &self,
        since: f64,
        until: f64,
        bin: f64,
        count: f64,
    ) -> Result<BTreeMap<Node, Followed>, Failure> {
        let counting = format!("{COUNTING}{}", self.scope.selector(&[]));
        let by = format!("by (instance, {})", self.scope.cluster_label);
        let last = |back: f64| format!("max {by} (last_over_time({counting}{}))", range(back));
        // VictoriaMetrics' changes() counts the first sample as a change.
        let moved = |back: f64| {
            let range = range(back);
            format!(
                "max {by} (max_over_time({counting}{range})) - min {by} (min_over_time({counting}{range})) > 0.1"
            )
        };
        let steady = format!("{} unless {}", last(LOOKBACK), moved(LOOKBACK));
        let (last_before, moved_before) = (last(DAY), moved(DAY));
        let (last, moved) = (last(bin), moved(bin));
        let bins = Range { start: until - bin * (count - 1.0), end: until + 0.0005, step: bin };
        let client = &self.client;
        let (at_start, at_end, before, moved_before, last, moved) = tokio::try_join!(
            client.query(&steady, since),
            client.query(&steady, until),
            client.query(&last_before, since),
            client.query(&moved_before, since),
            client.query_range(&last, bins),
            client.query_range(&moved, bins),
        )?;
        let changed: BTreeSet<(Node, i64)> = moved
            .iter()
            .flat_map(|series| {
                series.points.iter().map(|(at, _)| (self.node_of(&series.labels), milliseconds(*at)))
            })
            .chain(moved_before.iter().map(|sample| (self.node_of(&sample.labels), milliseconds(since))))
            .collect();
        let mut found: BTreeMap<Node, (Vec<Bin>, [bool; 2])> = BTreeMap::new();
        let points =
            before
                .iter()
                .map(|sample| (&sample.labels, since, sample.value))
                .chain(last.iter().flat_map(|series| {
                    series.points.iter().map(|(at, value)| (&series.labels, *at, *value))
                }));
        for (labels, end, began) in points {
            let node = self.node_of(labels);
            let changed = changed.contains(&(node.clone(), milliseconds(end)));
            found.entry(node).or_default().0.push(Bin { end, began, changed, samples: Vec::new() });
        }
        for (at, samples) in [at_start, at_end].iter().enumerate() {
            for sample in samples {
                if let Some(steady) =
                    found.get_mut(&self.node_of(&sample.labels)).and_then(|node| node.1.get_mut(at))
                {
                    *steady = true;
                }
            }
        }
        self.add_samples(since, bin, &mut found).await?;
        let followed =
            |(bins, steady): (Vec<Bin>, [bool; 2])| Followed { countings: countings(&bins, since), steady };
        Ok(found.into_iter().map(|(node, bins)| (node, followed(bins))).collect())
    }

    /// Asks for the samples of bins in which a counting begins or ends.
    async fn add_samples(
        &self,
        since: f64,
        bin: f64,
        found: &mut BTreeMap<Node, (Vec<Bin>, [bool; 2])>,
    ) -> Result<(), Failure> {
        let mut wanted: BTreeMap<i64, Vec<Node>> = BTreeMap::new();
        for (node, (bins, steady)) in &*found {
            for bin in uncertain(bins, since, *steady).into_iter().filter_map(|at| bins.get(at)) {
                wanted.entry(milliseconds(bin.end)).or_default().push(node.clone());
            }
        }
        let mut asking = JoinSet::new();
        for (end, nodes) in &wanted {
            let end = *end as f64 / 1000.0;
            let back = if end <= since { DAY } else { bin };
            for nodes in nodes.chunks(NODES_AT_ONCE) {
                let instances = any_of("instance", nodes.iter().map(|(_, instance)| instance.as_str()));
                let (client, series) = (self.client.clone(), self.scope.selector(&[&instances]));
                asking.spawn(async move {
                    Ok::<_, Failure>((
                        end,
                        client.query_samples(&format!("{COUNTING}{series}"), back, end).await?,
                    ))
                });
            }
        }
        while let Some(answer) = asking.join_next().await {
            let (end, answer) = answer.map_err(|error| Failure::other(error.to_string()))??;
            for Series { labels, points } in answer {
                let Some((bins, _)) = found.get_mut(&self.node_of(&labels)) else { continue };
                if let Some(bin) = bins.iter_mut().find(|bin| milliseconds(bin.end) == milliseconds(end)) {
                    // A target that is scraped twice has two series.
                    bin.samples.extend(points);
                    bin.samples.sort_by(|a, b| a.0.total_cmp(&b.0));
                }
            }
        }
        Ok(())
    }

    fn node_of(&self, labels: &Labels) -> Node {
        let get = |name: &str| labels.get(name).unwrap_or_default().to_owned();
        (get(&self.scope.cluster_label), get("instance"))
    }
}

/// What is asked for.
struct Asking {
    of: Of,
    /// Matchers of owners.
    owner: Vec<String>,
    since: f64,
    until: f64,
}

impl Asking {
    fn label(&self) -> Option<&'static str> {
        match self.of {
            Of::Label(label) => Some(label),
            Of::Node => None,
        }
    }

    /// The rest of a node is of nobody, so it belongs to all of its owners together.
    fn has_rest(&self) -> bool {
        self.of == Of::Node && self.owner.is_empty()
    }

    /// The series of owners, and those of nodes.
    fn series(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let series = |counter: Counter| counter.series().iter().copied();
        let of_nodes = Counter::OF_NODES
            .into_iter()
            .filter(|counter| self.has_rest() || *counter == Counter::HeldOnNode);
        (Counter::OF_OWNERS.into_iter().flat_map(series).collect(), of_nodes.flat_map(series).collect())
    }
}

/// Where a counting is looked at.
struct Ends {
    node: Node,
    counting: Counting,
    /// At its end in the window.
    end: Look,
    start: Start,
}

/// With what a counting begins in the window.
enum Start {
    /// With what it had before.
    Value(Look),
    /// With what running jobs had when the counting before was seen last, and have at the first look at it.
    Jobs(Option<Look>, Look),
    /// A node that is new here and counted before: with what another name of it had, if there is one, else with its first value.
    Unseen(Vec<(Node, f64, Look)>, Look),
}

/// What is said of the numbers.
#[derive(Debug, Default)]
struct Told {
    anew: BTreeMap<Node, usize>,
    unseen: BTreeSet<Node>,
    whole_jobs: BTreeSet<Node>,
    late: BTreeSet<Node>,
    gone: BTreeSet<Node>,
    lost: BTreeSet<Node>,
    without_owners: BTreeMap<Node, f64>,
    without_energy: BTreeMap<Node, f64>,
}

impl Prometheus {
    async fn add_up(&self, asking: &Asking, nodes: &BTreeMap<Node, Followed>) -> Result<Usage, Failure> {
        let mut told = Told::default();
        let ends = ends(asking, nodes, &mut told);
        let mut looks = Looks::new();
        let mut looks_at_jobs = Looks::new();
        let note = |looks: &mut Looks, look: Look, node: &Node| {
            looks.entry(look.key()).or_default().insert(node.clone());
        };
        for each in &ends {
            note(&mut looks, each.end, &each.node);
            match &each.start {
                Start::Value(look) => note(&mut looks, *look, &each.node),
                Start::Jobs(then, now) => {
                    then.iter().for_each(|then| note(&mut looks_at_jobs, *then, &each.node));
                    note(&mut looks_at_jobs, *now, &each.node);
                }
                Start::Unseen(others, first) => {
                    note(&mut looks, *first, &each.node);
                    others.iter().for_each(|(node, _, last)| note(&mut looks, *last, node));
                }
            }
        }
        let looked = self.look_at(asking, looks, looks_at_jobs).await?;
        let silent = self.silent_nodes(nodes, asking.until).await?;
        let mut usage = Usage::default();
        let (nothing, nobody) = (Values::new(), JobsThen::new());
        for Ends { node, counting, end, start } in &ends {
            let values = |node: &Node, look: Look| {
                let (at, back) = look.key();
                looked.values.get(&(at, back, node.clone())).unwrap_or(&nothing)
            };
            let jobs = |look: Look| {
                let (at, back) = look.key();
                looked.jobs.get(&(at, back, node.clone())).unwrap_or(&nobody)
            };
            let (mut before, after) = (Values::new(), values(node, *end));
            match start {
                Start::Value(look) => before.clone_from(values(node, *look)),
                Start::Jobs(then, now) => {
                    let now = jobs(*now);
                    match then {
                        Some(then) => before = counted_before(jobs(*then), now),
                        None if now.values().any(|job| job.start < asking.since && job.owner.is_some()) => {
                            told.whole_jobs.insert(node.clone());
                        }
                        None => {}
                    }
                    // A value of less than what was taken off is none of it.
                    before.retain(|key, _| after.contains_key(key));
                    before.iter_mut().for_each(|(key, value)| {
                        *value = value.min(after.get(key).copied().unwrap_or(0.0));
                    });
                }
                Start::Unseen(others, first) => {
                    let first = values(node, *first);
                    let others: Vec<&Values> = others
                        .iter()
                        .map(|(other, began, last)| (values(other, *last), *began))
                        .filter(|(other, began)| amounts::continues(other, first, [*began, counting.began]))
                        .map(|(other, _)| other)
                        .collect();
                    match others.as_slice() {
                        [other] => before.clone_from(other),
                        _ => {
                            told.unseen.insert(node.clone());
                            before.clone_from(first);
                        }
                    }
                }
            }
            let grown = amounts::grown(&before, after);
            if !grown.lost.is_empty() {
                told.lost.insert(node.clone());
            }
            let hours = (end.at - counting.first.unwrap_or(asking.since).max(asking.since)) / 3600.0;
            let has = |counter: Counter| after.keys().any(|(of, _)| *of == counter);
            if !has(Counter::HeldOnNode) {
                *told.without_owners.entry(node.clone()).or_default() += hours;
            }
            let (has_energy, is_watched) = (has(Counter::Energy), has(Counter::GpuBusy));
            if !has_energy && has(Counter::CpuHeld) {
                *told.without_energy.entry(node.clone()).or_default() += hours;
            }
            for ((counter, owner), amount) in grown.amounts {
                if counter == Counter::HeldOnNode {
                    continue;
                }
                let name = if asking.of == Of::Node { node.1.clone() } else { owner };
                let used = usage.rows.entry((node.0.clone(), name)).or_default();
                *used.amounts.entry(counter).or_default() += amount;
                match counter {
                    Counter::CpuHeld if !has_energy => used.held_without_energy += amount,
                    Counter::GpuHeld if !is_watched => used.gpu_held_unwatched += amount,
                    _ => {}
                }
            }
        }
        usage.notes = told.notes(silent);
        // An owner whose last job ended before the window.
        usage.rows.retain(|_, used| used.amounts.values().any(|amount| *amount > 0.0));
        Ok(usage)
    }

    /// How many nodes count owners, and do not say since when.
    async fn silent_nodes(&self, nodes: &BTreeMap<Node, Followed>, until: f64) -> Result<usize, Failure> {
        let (by, all) = (format!("by (instance, {})", self.scope.cluster_label), self.scope.selector(&[]));
        let counted = format!("group {by} (last_over_time({HELD_ON_NODE}{all}{}))", range(LOOKBACK));
        let counted = self.client.query(&counted, until).await?;
        Ok(counted.iter().filter(|sample| !nodes.contains_key(&self.node_of(&sample.labels))).count())
    }

    /// The values at all looks.
    async fn look_at(&self, asking: &Asking, looks: Looks, looks_at_jobs: Looks) -> Result<Looked, Failure> {
        let mut asking_values = JoinSet::new();
        for (key, nodes) in looks {
            let queries = self.queries_of_values(asking, key, &nodes);
            for query in queries {
                let client = self.client.clone();
                asking_values
                    .spawn(async move { Ok::<_, Failure>((key, client.query(&query, at(key)).await?)) });
            }
        }
        let mut asking_jobs = JoinSet::new();
        for (key, nodes) in looks_at_jobs {
            for nodes in nodes.into_iter().collect::<Vec<_>>().chunks(NODES_AT_ONCE) {
                let (client, query) = (self.client.clone(), self.query_of_jobs(asking, key, nodes));
                asking_jobs
                    .spawn(async move { Ok::<_, Failure>((key, client.query(&query, at(key)).await?)) });
            }
        }
        let mut looked = Looked::default();
        let ended = |error: tokio::task::JoinError| Failure::other(error.to_string());
        while let Some(answer) = asking_values.join_next().await {
            let ((at, back), samples) = answer.map_err(ended)??;
            for sample in samples {
                let Some(counter) = sample.labels.name().and_then(Counter::of) else { continue };
                let owner = asking.label().and_then(|label| sample.labels.get(label)).unwrap_or_default();
                let values = looked.values.entry((at, back, self.node_of(&sample.labels))).or_default();
                *values.entry((counter, owner.to_owned())).or_default() += sample.value;
            }
        }
        while let Some(answer) = asking_jobs.join_next().await {
            let ((at, back), samples) = answer.map_err(ended)??;
            for sample in samples {
                let jobs = looked.jobs.entry((at, back, self.node_of(&sample.labels))).or_default();
                note_job(jobs, asking, &sample);
            }
        }
        Ok(looked)
    }

    /// The queries of values of these nodes at a time. Those of many nodes are of all, a series each.
    fn queries_of_values(
        &self,
        asking: &Asking,
        (_, back): (i64, i64),
        nodes: &BTreeSet<Node>,
    ) -> Vec<String> {
        let owner: Vec<&str> = asking.owner.iter().map(String::as_str).collect();
        let labels: Vec<&str> =
            [self.scope.cluster_label.as_str()].into_iter().chain(asking.label()).collect();
        let kept = labels.join(", ");
        let sum = |names: &[&str], matchers: &[&str]| {
            let names = any_of("__name__", names.iter().copied());
            let matchers: Vec<&str> = matchers.iter().copied().chain([names.as_str()]).collect();
            let series = self.scope.selector(&matchers);
            format!(
                "sum by (__name__, instance, {kept}) (max by ({ALL_LABELS}, {OWNER}, {}) (last_over_time({series}[{back}ms])))",
                self.scope.cluster_label
            )
        };
        let (of_owners, of_nodes) = asking.series();
        if nodes.len() > NODES_AT_ONCE {
            let of_owners = of_owners.iter().map(|series| sum(&[series], &owner));
            return of_owners.chain(of_nodes.iter().map(|series| sum(&[series], &[]))).collect();
        }
        let instances = any_of("instance", nodes.iter().map(|(_, instance)| instance.as_str()));
        let of_owner: Vec<&str> = owner.iter().copied().chain([instances.as_str()]).collect();
        vec![sum(&of_owners, &of_owner), sum(&of_nodes, &[&instances])]
    }

    /// The query of the jobs of these nodes at a time.
    fn query_of_jobs(&self, asking: &Asking, (_, back): (i64, i64), nodes: &[Node]) -> String {
        let counters =
            Counter::OF_OWNERS.into_iter().flat_map(|counter| counter.series_of_jobs().iter().copied());
        let names = any_of("__name__", counters.chain([START]));
        let instances = any_of("instance", nodes.iter().map(|(_, instance)| instance.as_str()));
        let owner: Vec<&str> = asking.owner.iter().map(String::as_str).chain([instances.as_str()]).collect();
        let (series, info) = (self.scope.selector(&[&names, &instances]), self.scope.selector(&owner));
        let cluster = &self.scope.cluster_label;
        format!(
            "max by ({ALL_LABELS}, {cluster}) (last_over_time({series}[{back}ms])) \
             or max by (__name__, jobid, instance, slurm_node, {OWNER}, {cluster}) (last_over_time({INFO}{info}[{back}ms]))"
        )
    }

    /// The CO2 of energy by the factor of the rules, where no exporter counts it and the factor is the same all the time.
    async fn add_co2(&self, asking: &Asking, usage: &mut Usage) -> Result<(), Failure> {
        if usage.rows.values().any(|used| used.amounts.contains_key(&Counter::Co2)) {
            return Ok(());
        }
        let cluster = &self.scope.cluster_label;
        let (factor, window) =
            (format!("{FACTOR}{}", self.scope.or_none(&[])), range(asking.until - asking.since));
        let (least, most) =
            (format!("min_over_time({factor}{window})"), format!("max_over_time({factor}{window})"));
        let at_start = format!("last_over_time({factor}{})", range(LOOKBACK));
        let by = |query: &str, of: &str| format!("{of} by ({cluster}) ({query})");
        let (least, most, at_start) = (by(&least, "min"), by(&most, "max"), by(&at_start, "max"));
        let (least, most, at_start) = tokio::try_join!(
            self.client.query(&least, asking.until),
            self.client.query(&most, asking.until),
            self.client.query(&at_start, asking.since + LOOKBACK),
        )?;
        let of = |answer: &[Sample], cluster: &str| {
            let of = |name: &str| {
                let is = |sample: &&Sample| {
                    sample.labels.get(&self.scope.cluster_label).unwrap_or_default() == name
                };
                answer.iter().find(is).map(|sample| sample.value)
            };
            of(cluster).or_else(|| of(""))
        };
        let mut varied = false;
        for ((cluster, _), used) in &mut usage.rows {
            let (Some(least), Some(most)) = (of(&least, cluster), of(&most, cluster)) else { continue };
            if of(&at_start, cluster).is_none() || most - least > most.abs() * 1e-9 {
                varied = true;
                continue;
            }
            let co2 =
                [(Counter::Co2, Counter::Energy), (Counter::Co2Unattributed, Counter::EnergyUnattributed)];
            for (co2, energy) in co2 {
                if let Some(joules) = used.amounts.get(&energy) {
                    used.amounts.insert(co2, joules / 3.6e6 * most);
                }
            }
        }
        if varied {
            let says = "CO2 is left out: its factor was not the same all the time. Exporters with --owner.co2-grams-per-kwh count it";
            usage.notes.push(says.to_owned());
        }
        Ok(())
    }
}

fn at((at, _): (i64, i64)) -> f64 {
    at as f64 / 1000.0
}

/// Adds a series of a job to it.
fn note_job(jobs: &mut JobsThen, asking: &Asking, sample: &Sample) {
    let get = |name: &str| sample.labels.get(name).unwrap_or_default().to_owned();
    let job = jobs.entry((get("jobid"), get("slurm_node"))).or_default();
    match sample.labels.name() {
        Some(START) => job.start = sample.value,
        Some(INFO) => {
            let owner = asking.label().map(get).unwrap_or_default();
            // A series of before its owner was known may be there, too.
            job.owner = job.owner.take().filter(|known| !known.is_empty()).or(Some(owner));
        }
        name => {
            if let Some(counter) = name.and_then(Counter::of_job) {
                *job.values.entry(counter).or_default() += sample.value;
            }
        }
    }
}

/// Where countings are looked at.
fn ends(asking: &Asking, nodes: &BTreeMap<Node, Followed>, told: &mut Told) -> Vec<Ends> {
    let mut found = Vec::new();
    for (node, Followed { countings, steady }) in nodes {
        let mut previous: Option<&Counting> = None;
        for (at, counting) in countings.iter().enumerate() {
            let then = previous.replace(counting);
            let is_last = at + 1 == countings.len();
            if counting.last <= asking.since {
                continue;
            }
            let end = match is_last && steady[1] {
                true => Look { at: asking.until, back: LOOKBACK },
                false => look(counting.last, counting.first),
            };
            if is_last && !steady[1] && asking.until - counting.last > LOOKBACK {
                told.gone.insert(node.clone());
            }
            let start = match (counting.before, counting.first, then) {
                (Some(_), _, _) if steady[0] => Start::Value(Look { at: asking.since, back: LOOKBACK }),
                (Some(before), first, _) => Start::Value(look(before, first)),
                (None, first, then) => {
                    let first = first.unwrap_or(counting.last);
                    let pages = (first + FIRST_PAGES).min(counting.last);
                    let now = look(pages, Some(first));
                    if then.is_none() && first - asking.since > LOOKBACK {
                        told.late.insert(node.clone());
                    }
                    match then {
                        Some(then) => {
                            *told.anew.entry(node.clone()).or_default() += 1;
                            Start::Jobs(Some(look(then.last, then.first)), now)
                        }
                        None if counting.began >= asking.since => Start::Jobs(None, now),
                        None => Start::Unseen(other_names(nodes, node, counting), look(first, Some(first))),
                    }
                }
            };
            found.push(Ends { node: node.clone(), counting: counting.clone(), end, start });
        }
    }
    found
}

/// Nodes of other names whose last counting this one may have gone on with: a target that was renamed.
fn other_names(nodes: &BTreeMap<Node, Followed>, node: &Node, counting: &Counting) -> Vec<(Node, f64, Look)> {
    let Some(first) = counting.first else { return Vec::new() };
    let others = nodes.iter().filter(|(other, _)| other.0 == node.0 && *other != node);
    others
        .filter_map(|(other, followed)| {
            let last = followed.countings.last()?;
            (is_same(last.began, counting.began) && last.last < first)
                .then(|| (other.clone(), last.began, look(last.last, last.first)))
        })
        .collect()
}

impl Told {
    /// A line for each thing that the numbers lack.
    fn notes(&self, silent: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: usize, (one, many): (&str, &str), rest: &str| {
            let who = if count == 1 { format!("1 node {one}") } else { format!("{count} nodes {many}") };
            notes.extend((count > 0).then(|| format!("{who} {rest}")));
        };
        let hours = |of: &BTreeMap<Node, f64>| format!("{:.1} node-hours", of.values().sum::<f64>());
        let times: usize = self.anew.values().sum();
        note(
            self.anew.len(),
            ("began", "began"),
            &format!(
                "to count anew, {times} times in all: what was used from the last scrape to the end of the exporter is missing"
            ),
        );
        note(
            self.unseen.len(),
            ("counted", "counted"),
            "before the first scrape: what was counted until then is left out",
        );
        note(
            self.whole_jobs.len(),
            ("is new and had", "are new and had"),
            "jobs that began before --since: these count from their start",
        );
        note(self.late.len(), ("was", "were"), "first scraped after --since");
        note(self.gone.len(), ("was", "were"), "last scraped before --until");
        note(
            self.without_owners.len(),
            ("has", "have"),
            &format!(
                "no counters of owners, for {}: --collector.owners is off there",
                hours(&self.without_owners)
            ),
        );
        note(
            self.without_energy.len(),
            ("has", "have"),
            &format!("no counters of energy, for {}", hours(&self.without_energy)),
        );
        note(
            self.lost.len(),
            ("has", "have"),
            "counters of owners that ended or fell while others went on: --owner.labels or collectors were changed",
        );
        note(silent, ("does not", "do not"), "say since when the counters go on: left out");
        notes
    }
}
