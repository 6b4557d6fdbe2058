//! What owners held and used in a time, from the counters of owners (`jobledger_owner_*`).
//!
//! A counter of an owner goes on for as long as its exporter counts, over restarts that restore its state. So what it grew by in
//! such a time is its last value less the one at the beginning, and nothing is extrapolated. A value that falls is no new beginning: an
//! exporter that crashed restores what it saved last and counts on from there. When counters begin anew is what
//! `jobledger_exporter_counting_start_time_seconds` says. A new counting has the whole of the jobs that run when it begins;
//! what was counted of them before is taken off.

mod amounts;
mod co2;
mod countings;
mod following;
mod looks;
mod notes;
mod retention;

use std::collections::{BTreeMap, BTreeSet};

use prometheus_api::Labels;

use super::selector::range;
use super::{Prometheus, Selection};
use crate::Failure;

use amounts::{JobsThen, Values, before_window, counted_before, part_of};
use countings::{Counting, is_same};
use following::Followed;
use notes::Told;

pub use amounts::Counter;

/// Since when a node counts.
const COUNTING: &str = "jobledger_exporter_counting_start_time_seconds";
/// It is there whenever owners are counted.
const HELD_ON_NODE: &str = "jobledger_node_allocated_cpu_seconds_total";
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
    Jobs(Look, Look),
    /// A node that is new here. With what another name of it had, if there is one. Else, where it counted before the window, with its
    /// first value, and where it did not, with what jobs had until the window.
    New(Vec<(Node, f64, Look)>, Look),
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
                    note(&mut looks_at_jobs, *then, &each.node);
                    note(&mut looks_at_jobs, *now, &each.node);
                }
                Start::New(others, first) => {
                    note(&mut looks, *first, &each.node);
                    note(&mut looks_at_jobs, *first, &each.node);
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
                Start::Jobs(then, now) => before = part_of(counted_before(jobs(*then), jobs(*now)), after),
                Start::New(others, first) => {
                    let (seen, now) = (values(node, *first), jobs(*first));
                    let others: Vec<&Values> = others
                        .iter()
                        .map(|(other, began, last)| (values(other, *last), *began))
                        .filter(|(other, began)| amounts::continues(other, seen, [*began, counting.began]))
                        .map(|(other, _)| other)
                        .collect();
                    if let [other] = others.as_slice() {
                        before.clone_from(other);
                    } else if counting.began >= asking.since {
                        before = part_of(before_window(now, asking.since, first.at), after);
                        if !before.is_empty() {
                            told.old_jobs.insert(node.clone());
                        }
                    } else {
                        told.unseen.insert(node.clone());
                        before.clone_from(seen);
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
                    if then.is_none() && first - asking.since > LOOKBACK {
                        told.late.insert(node.clone());
                    }
                    match then {
                        Some(then) => {
                            *told.anew.entry(node.clone()).or_default() += 1;
                            let pages = (first + FIRST_PAGES).min(counting.last);
                            Start::Jobs(look(then.last, then.first), look(pages, Some(first)))
                        }
                        None => Start::New(other_names(nodes, node, counting), look(first, Some(first))),
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
