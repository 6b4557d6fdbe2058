//! Since when each node counted, and how long.

use std::collections::{BTreeMap, BTreeSet};

use prometheus_api::{Range, Series};
use tokio::task::JoinSet;

use super::countings::{Bin, Counting, countings, uncertain};
use super::{COUNTING, DAY, LOOKBACK, NODES_AT_ONCE, Node, Prometheus, milliseconds};
use crate::Failure;
use crate::source::prometheus::selector::{any_of, range};

/// What is known of a node.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) countings: Vec<Counting>,
    /// Whether it was scraped right before the window, and before its end, with no change.
    pub(super) steady: [bool; 2],
}

impl Prometheus {
    /// Since when each node counted, and how long.
    pub(super) async fn follow(
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
}
