//! What changed in a run: counters that began anew, and its number of CPUs.

use std::collections::BTreeSet;

use job_report::metric::{self, Kind};
use prometheus_api::{Error, Range, Sample};

use super::Prometheus;
use super::selector::{any_of, named, range};
use crate::source::labels::merged;
use crate::source::measured::{Changes, exporter};

/// Most points of a counter that began anew.
const MOST_POINTS: f64 = 2000.0;
/// And seconds between them at least.
const LEAST_STEP: f64 = 15.0;

impl Prometheus {
    /// What changed between two times. An exporter that is started without its state begins its own counters at 0: what they had before, up to the
    /// last reading, is added up.
    pub(super) async fn changes(
        &self,
        selector: &[String],
        (from, until): (f64, f64),
    ) -> Result<Changes, Error> {
        let counters: Vec<&'static metric::Metric> =
            metric::ALL.iter().copied().filter(|m| m.kind == Kind::Counter && m.is_usual()).collect();
        let names = named(&counters, &[]);
        let matchers = |more: &str| {
            let more = Some(more).filter(|more| !more.is_empty());
            let all: Vec<&str> = selector.iter().map(String::as_str).chain(more).collect();
            self.scope.selector(&all)
        };
        let time = range((until - from).max(1.0));
        let (cluster, cpus) = (&self.scope.cluster_label, format!("jobledger_job_cpus{}", matchers("")));
        let on = format!("(instance, slurm_node, {cluster})");
        // `resets` drops names: of a GPU several counters have the same labels.
        let names_of_counters: BTreeSet<&str> = counters.iter().map(|counter| counter.series).collect();
        let resets: Vec<String> = names_of_counters
            .into_iter()
            .map(|name| format!("max by {on} (resets({name}{}{time})) > 0", matchers("")))
            .collect();
        let query = format!(
            "label_replace({}, \"of\", \"resets\", \"\", \"\") \
             or label_replace(max by {on} (max_over_time({cpus}{time}) - min_over_time({cpus}{time})) > 0, \"of\", \"cpus\", \"\", \"\")",
            resets.join(" or ")
        );
        let mut changes = Changes::default();
        let mut nodes = BTreeSet::new();
        for sample in self.client.query(&query, until).await? {
            match sample.labels.get("of") {
                Some("resets") => drop(nodes.insert(exporter(&sample.labels))),
                _ => drop(changes.cpus.insert(exporter(&sample.labels))),
            }
        }
        if nodes.is_empty() {
            return Ok(changes);
        }
        let instances = any_of("instance", nodes.iter().map(|(instance, _)| instance.as_str()));
        let series = matchers(&format!("{names},{instances}"));
        let step = ((until - from) / MOST_POINTS).max(LEAST_STEP);
        let answer = self.client.query_range(&series, Range { start: from, end: until, step }).await?;
        // Of a target that is scraped twice one counts.
        for series in merged(answer, cluster) {
            let (mut before, mut lost) = (0.0, 0.0);
            for (_, value) in &series.points {
                if *value < before {
                    lost += before;
                }
                before = *value;
            }
            if lost > 0.0 {
                changes.lost.push(Sample { labels: series.labels, value: lost, time: until });
            }
        }
        changes.resets = nodes;
        Ok(changes)
    }
}
