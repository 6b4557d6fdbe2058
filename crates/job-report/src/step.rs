//! The steps of a job on all its nodes.

use crate::job::Node;
use crate::metric::{self, Metric};
use crate::part::Part;
use crate::values::{most, sum};

/// A step on all nodes that have it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<'a> {
    /// Its name.
    pub name: &'a str,
    /// It on each node.
    pub parts: Vec<&'a Part>,
    /// Its tasks, where the exporter publishes them.
    pub tasks: usize,
}

impl Step<'_> {
    /// A total over all nodes; `None` if no node has it.
    pub fn total(&self, metric: &Metric) -> Option<f64> {
        sum(self.parts.iter().map(|part| part.values.get(metric)))
    }

    /// The greatest of its nodes.
    pub fn most(&self, metric: &Metric) -> Option<f64> {
        most(self.parts.iter().map(|part| part.values.get(metric)))
    }
}

/// The steps of nodes, in the order of [`Part::order`].
pub fn steps(nodes: &[Node]) -> Vec<Step<'_>> {
    let mut parts: Vec<&Part> = nodes.iter().flat_map(|node| &node.parts).collect();
    parts.sort_by(|one, other| one.order(other));
    parts
        .chunk_by(|a, b| a.step == b.step)
        .filter_map(|parts| {
            let name = parts.first()?.step.as_str();
            let (tasks, parts): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.task.is_some());
            Some(Step { name, parts, tasks: tasks.len() })
        })
        .collect()
}

/// At most so many of them: those with the most CPU time, in their order.
pub fn busiest_steps(nodes: &[Node], most: usize) -> Vec<Step<'_>> {
    let mut found: Vec<(usize, Step<'_>)> = steps(nodes).into_iter().enumerate().collect();
    let used = |step: &Step<'_>| step.total(&metric::CPU_SECONDS).unwrap_or(0.0);
    found.sort_by(|(_, a), (_, b)| used(b).total_cmp(&used(a)));
    found.truncate(most);
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, step)| step).collect()
}
