//! Reports from recordings (`jobledger record`), without a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use job_report::metric::{self, Kind as MetricKind};
use job_report::{Curves, Report, Thresholds, busiest_steps};
use prometheus_api::{Labels, Sample, Series};

use super::identity::{Who, choose, identity};
use super::labels::counted;
use super::measured::{Measured, exporter, measured};
use super::{PLOTTED_STEPS, Parts, Source, Wanted, WhichRun, endings, pick_run, round_step};
use crate::job_id::JobId;
use crate::recording::{Recorded, read};
use crate::series::{END, GPU_INFO, GPUS, NODE_GPU_INFO, OF_NODES, START};
use crate::{Failure, Kind};

/// Also where the recordings have no cluster.
const CLUSTER: &str = "cluster";
/// No job runs longer, in seconds: a start before that is none.
const LONGEST: f64 = 366.0 * 86_400.0;
/// Two recordings of a node may have the start of a run so many seconds apart.
const SAME: f64 = 1.0;
/// Of a curve: a week of seconds.
const MOST_BINS: usize = 604_800;
/// A job whose last sample is older than so many of its intervals is not recorded any more.
const INTERVALS: f64 = 3.0;
/// And than so many seconds.
const PATIENCE: f64 = 60.0;

/// Recordings of one job or of several.
#[derive(Debug, Clone)]
pub struct Recordings {
    recorded: Recorded,
    thresholds: Thresholds,
    now: f64,
}

impl Recordings {
    /// Reads the files.
    pub fn read(files: &[PathBuf], thresholds: Thresholds, now: f64) -> Result<Self, Failure> {
        let mut texts = Vec::new();
        for path in files {
            let text = std::fs::read_to_string(path);
            texts.push(text.map_err(|error| Failure::other(format!("{}: {error}", path.display())))?);
        }
        let recordings = Self::new(texts.iter().map(String::as_str), thresholds, now);
        if recordings.recorded.who.is_empty() {
            let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
            let says = format!("{}: no job is recorded there", names.join(", "));
            return Err(Failure::new(Kind::NotFound, says));
        }
        Ok(recordings)
    }

    /// Reads their texts.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, thresholds: Thresholds, now: f64) -> Self {
        let counted = counted(CLUSTER);
        Self { recorded: read(texts, |label| counted.contains(label)), thresholds, now }
    }

    /// The recorded job, if it is one alone.
    pub fn job(&self) -> Result<JobId, Failure> {
        let ids: BTreeSet<u64> =
            self.recorded.who.iter().filter_map(|sample| sample.labels.get("jobid")?.parse().ok()).collect();
        let mut ids = ids.into_iter();
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(JobId::Number(id)),
            (first, second) => {
                let all: Vec<String> =
                    first.into_iter().chain(second).chain(ids).map(|id| id.to_string()).collect();
                Err(Failure::usage(format!("which job? There are {}", all.join(", "))))
            }
        }
    }

    fn find(&self, id: &JobId) -> Result<Who, Failure> {
        let of_it: Vec<Sample> = self
            .recorded
            .who
            .iter()
            .filter(|sample| {
                let number = sample.labels.get("jobid").and_then(|number| number.parse().ok());
                number.is_some_and(|number| id.is_of(number, &identity(&sample.labels)))
            })
            .cloned()
            .collect();
        choose(id, &of_it, CLUSTER)?
            .ok_or_else(|| Failure::new(Kind::NotFound, format!("job {id} is not in these recordings")))
    }
}

/// The series of a job, and of the nodes that ran it.
struct OfJob<'a> {
    series: Vec<&'a Series>,
    nodes: Vec<&'a Series>,
    now: f64,
}

/// When a run started on a node, and when it was first recorded there: that is when the exporter has shown the end of the run before.
#[derive(Debug, Clone, Copy)]
struct Begun {
    start: f64,
    recorded: f64,
}

impl OfJob<'_> {
    /// The last run on each node, as it was before a time.
    fn begun(&self, before: f64) -> BTreeMap<(String, String), Begun> {
        let mut found = BTreeMap::<_, Begun>::new();
        for series in self.named(START) {
            for (recorded, start) in series.points.iter().copied().filter(|point| is_start(*point, before)) {
                let begun = found.entry(exporter(&series.labels)).or_insert(Begun { start, recorded });
                if (start - begun.start).abs() < SAME {
                    begun.recorded = begun.recorded.min(recorded);
                } else if start > begun.start {
                    *begun = Begun { start, recorded };
                }
            }
        }
        found
    }

    /// The job as it was before a time.
    fn measure(&self, before: f64) -> Measured {
        let last = |series: &Series| {
            let (time, value) = *series.points.iter().rfind(|(time, _)| *time < before)?;
            Some(Sample { labels: series.labels.clone(), value, time })
        };
        // What was recorded before a run is of an earlier one, such as other GPUs.
        let begun = self.begun(before);
        let last = |series: &Series| {
            let sample = last(series)?;
            let begun = begun.get(&exporter(&sample.labels));
            let is_of_run = begun.is_none_or(|begun| sample.time >= begun.recorded);
            let is_one = series.labels.name() != Some(START) || is_start((sample.time, sample.value), before);
            (is_of_run && is_one).then_some(sample)
        };
        let mut by_name = BTreeMap::<&str, Vec<Sample>>::new();
        for series in &self.series {
            if let (Some(name), Some(sample)) = (series.labels.name(), last(series)) {
                by_name.entry(name).or_default().push(sample);
            }
        }
        let mut others = by_name.remove(GPU_INFO).unwrap_or_default();
        let (starts, ends) = (by_name.get(START), by_name.get(END));
        // What is still recorded runs.
        for start in starts.into_iter().flatten() {
            let patience = (INTERVALS * self.interval(&start.labels).unwrap_or_default()).max(PATIENCE);
            let has_ended = ends
                .into_iter()
                .flatten()
                .any(|end| exporter(&end.labels) == exporter(&start.labels) && end.value >= start.value);
            if !has_ended && before.min(self.now) - start.time <= patience {
                others.push(start.clone());
            }
        }
        let is_value = |name: &str| {
            let total = |metric: &&metric::Metric| metric.series == name && metric.kind != MetricKind::Gauge;
            [START, END, GPUS].contains(&name) || metric::ALL.iter().copied().any(|metric| total(&metric))
        };
        let values: Vec<Sample> =
            by_name.into_iter().filter(|(name, _)| is_value(name)).flat_map(|(_, samples)| samples).collect();
        measured(&values, &others)
    }

    /// Seconds between the batches of a node: most of them are so far apart.
    fn interval(&self, of: &Labels) -> Option<f64> {
        let starts = self.named(START).find(|series| exporter(&series.labels) == exporter(of))?;
        let times = starts.points.iter().map(|(time, _)| *time);
        let mut gaps: Vec<f64> = times.clone().skip(1).zip(times).map(|(later, time)| later - time).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied().filter(|gap| *gap > 0.0)
    }

    fn named<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b Series> {
        self.series.iter().copied().filter(move |series| series.labels.name() == Some(name))
    }

    /// Adds what is known over the time of a run, of which all samples are before a time: when the next one was first recorded.
    fn over_time(&self, measured: &mut Measured, before: f64, wanted: &Wanted<'_>) {
        let start = measured.nodes.iter().map(|node| node.start).fold(f64::INFINITY, f64::min);
        let end = measured.nodes.iter().map(|node| node.seen_until).fold(start, f64::max).max(start + 1.0);
        // What is read at the end may come a little later, and an ended job is shown for a while.
        let since = |series: &Series, from: f64| Series {
            labels: series.labels.clone(),
            points: series.points.iter().copied().filter(|(time, _)| (from..before).contains(time)).collect(),
        };
        let begun = self.begun(before);
        let of_run = |series: &&Series| {
            let begun = begun.get(&exporter(&series.labels));
            since(series, begun.map_or(start, |begun| begun.recorded.max(start)))
        };
        let others: BTreeSet<_> = (metric::ALL.iter())
            .filter(|metric| !metric.is_of_job())
            .map(|metric| Some(metric.series))
            .collect();
        let of_nodes = self.nodes.iter().filter(|series| others.contains(&series.labels.name()));
        let of_nodes = of_nodes.map(|series| since(series, start));
        let mut series: Vec<Series> = self.series.iter().map(of_run).chain(of_nodes).collect();
        measured.add_held(&held(&series));
        measured.add_others(&facts(&series));
        measured.add_others(&self.hardware());
        let interval = self.series.iter().find_map(|series| self.interval(&series.labels));
        let mut scrapes: Vec<Sample> = series
            .iter()
            .filter(|series| series.labels.name() == Some(START))
            .map(|series| {
                let seen = series.points.iter().filter(|(time, _)| *time <= end).count();
                sample(&series.labels, f64::from(u32::try_from(seen).unwrap_or(u32::MAX)))
            })
            .collect();
        // As a server counts them: in five minutes.
        scrapes.extend(interval.map(|interval| sample(&Labels::default(), 300.0 / interval)));
        measured.add_coverage(&scrapes);
        if wanted.parts != Parts::None {
            let last =
                |series: &Series| series.points.last().map(|(_, value)| sample(&series.labels, *value));
            measured.add_parts(&series.iter().filter_map(last).collect::<Vec<_>>());
        }
        let plotted: Vec<&str> = match wanted.parts {
            Parts::Plots => {
                busiest_steps(&measured.nodes, PLOTTED_STEPS).iter().map(|step| step.name).collect()
            }
            Parts::None | Parts::Totals | Parts::Curves => Vec::new(),
        };
        series.retain(|series| match series.labels.get("step") {
            None => true,
            Some(step) => {
                wanted.parts == Parts::Curves
                    || series.labels.get("task").is_none() && plotted.contains(&step)
            }
        });
        if wanted.curves.is_empty() || wanted.bins == 0 {
            return;
        }
        let least = interval.unwrap_or(1.0).ceil();
        let step = wanted.step.unwrap_or_else(|| round_step(end - start, wanted.bins.min(MOST_BINS), least));
        measured.curves = Some(measured.draw(Curves::new(start, end, step), &series, wanted.curves));
    }

    /// What the nodes are. A server counts GPUs, and gives the count a label of its own.
    fn hardware(&self) -> Vec<Sample> {
        let mut gpus = BTreeMap::<&str, BTreeSet<&str>>::new();
        let mut found = Vec::new();
        for series in &self.nodes {
            let (Some(name), Some(node)) = (series.labels.name(), series.labels.get("instance")) else {
                continue;
            };
            if name == NODE_GPU_INFO && series.labels.get("divided") != Some("true") {
                gpus.entry(node).or_default().extend(series.labels.get("uuid"));
            } else if OF_NODES.contains(&name) {
                found.extend(series.points.last().map(|(_, value)| sample(&series.labels, *value)));
            }
        }
        found.extend(gpus.into_iter().map(|(node, gpus)| {
            let labels = [("instance", node), ("of", "gpus")].into_iter().collect();
            sample(&labels, f64::from(u32::try_from(gpus.len()).unwrap_or(u32::MAX)))
        }));
        found
    }
}

/// Whether a sample before a time says when a run started. A start after its sample is none.
fn is_start((time, start): (f64, f64), before: f64) -> bool {
    time < before && (time - LONGEST..=time).contains(&start)
}

fn sample(labels: &Labels, value: f64) -> Sample {
    Sample { labels: labels.clone(), value, time: 0.0 }
}

/// The most memory that each node held at once.
fn held(series: &[Series]) -> Vec<Sample> {
    let mut nodes = BTreeMap::<(String, String), (Labels, BTreeMap<u64, f64>)>::new();
    for each in series {
        if matches!(
            each.labels.name(),
            Some("jobledger_job_memory_anon_bytes" | "jobledger_job_memory_shmem_bytes")
        ) {
            let (_, times) =
                nodes.entry(exporter(&each.labels)).or_insert_with(|| (each.labels.clone(), BTreeMap::new()));
            for (time, value) in &each.points {
                *times.entry(time.to_bits()).or_default() += value;
            }
        }
    }
    let most = |(labels, times): (Labels, BTreeMap<u64, f64>)| {
        times.into_values().reduce(f64::max).map(|most| sample(&labels, most))
    };
    nodes.into_values().filter_map(most).collect()
}

/// What SLURM's prolog and epilog said.
fn facts(series: &[Series]) -> Vec<Sample> {
    let is_fact = |series: &&Series| endings::SERIES.iter().any(|name| series.labels.name() == Some(name));
    let last = |series: &Series| series.points.last().map(|(_, value)| sample(&series.labels, *value));
    series.iter().filter(is_fact).filter_map(last).collect()
}

impl Source for Recordings {
    async fn report(&self, wanted: &Wanted<'_>) -> Result<Report, Failure> {
        let who = self.find(wanted.id)?;
        let number = who.id.to_string();
        let is_of = |series: &&Series| series.labels.get("jobid") == Some(number.as_str());
        let job = OfJob {
            series: self.recorded.series.iter().filter(is_of).collect(),
            nodes: self
                .recorded
                .series
                .iter()
                .filter(|series| series.labels.get("jobid").is_none())
                .collect(),
            now: self.now,
        };
        // The earliest is the last here. Of a node that ran it twice, the series go on.
        let (mut before, mut runs) = (f64::INFINITY, Vec::new());
        loop {
            let mut measured = job.measure(before);
            let Some(last) = measured.runs().pop() else { break };
            measured.keep(&last.nodes);
            let begun = job.begun(before);
            let recorded = measured.exporters.iter().filter_map(|node| Some(begun.get(node)?.recorded));
            let recorded = recorded.fold(f64::INFINITY, f64::min);
            runs.push((measured, before));
            if recorded >= before {
                break;
            }
            before = recorded;
        }
        runs.reverse();
        let count = runs.len();
        let runs = (1..).zip(runs).collect();
        let (run, (mut measured, before)) = pick_run(wanted, runs)?;
        job.over_time(&mut measured, before, wanted);
        let mut notes = Vec::new();
        if count > 1 && wanted.run == WhichRun::Last {
            notes.push(format!(
                "The job was requeued: this is the last of {count} recorded runs; --run=1 shows the first."
            ));
        }
        Ok(Report::new(measured.into_job(who, (run, count)), &self.thresholds, notes))
    }
}

#[cfg(test)]
mod tests;
