//! `jobledger waste`

use std::collections::{BTreeMap, BTreeSet};

use job_report::show::{digits, percent};
use serde::Serialize;

use super::surroundings::Surroundings;
use crate::arguments::{self, By, Kind as WasteKind, ListFormat};
use crate::formats::table::{self, Head, Numbers, Row};
use crate::source::prometheus::EndedJob;
use crate::text::harmless;
use crate::{Failure, Kind, output};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const HOUR: f64 = 3600.0;

/// What a job, or those of an owner together, held and did not use.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Waste {
    /// The job's number, or whose jobs these are. Empty is not known.
    name: String,
    cluster: String,
    user: String,
    account: String,
    partition: String,
    jobs: usize,
    idle_core_hours: f64,
    idle_gpu_hours: f64,
    unused_gib_hours: f64,
    held_cpu_hours: f64,
    used_cpu_hours: f64,
    held_gpu_hours: f64,
}

impl Waste {
    fn add(&mut self, job: &EndedJob) {
        let hours = |seconds: Option<f64>| seconds.unwrap_or(0.0) / HOUR;
        self.jobs += 1;
        self.idle_core_hours += hours(job.idle_core_seconds);
        self.idle_gpu_hours += hours(job.gpu_idle_seconds);
        self.unused_gib_hours += hours(job.memory_unused_byte_seconds()) / GIB;
        // One without the other is no part of what was used.
        if let (Some(held), Some(used)) = (job.cpu_allocated_seconds, job.cpu_seconds) {
            self.held_cpu_hours += held / HOUR;
            self.used_cpu_hours += used / HOUR;
        }
        self.held_gpu_hours += hours(job.gpu_allocated_seconds);
    }

    fn of(&self, kind: WasteKind) -> f64 {
        match kind {
            WasteKind::Cpu => self.idle_core_hours,
            WasteKind::Gpu => self.idle_gpu_hours,
            WasteKind::Memory => self.unused_gib_hours,
        }
    }
}

/// Adds up, and sorts by what was wasted most.
pub(super) fn waste(jobs: &[EndedJob], by: By, kind: WasteKind) -> Vec<Waste> {
    let mut found: BTreeMap<(String, String), Waste> = BTreeMap::new();
    for job in jobs {
        let name = match by {
            By::Job => job.id.to_string(),
            By::User => job.user.clone(),
            By::Account => job.account.clone(),
            By::Partition => job.partition.clone(),
        };
        // Clusters number their jobs alike.
        let cluster = if by == By::Job { job.cluster.clone() } else { String::new() };
        let waste = found.entry((cluster.clone(), name.clone())).or_default();
        (waste.name, waste.cluster) = (name, harmless(&cluster));
        if by == By::Job {
            (waste.user, waste.account, waste.partition) =
                (job.user.clone(), job.account.clone(), job.partition.clone());
        }
        waste.add(job);
    }
    let mut found: Vec<Waste> = found.into_values().collect();
    found.sort_by(|a, b| b.of(kind).total_cmp(&a.of(kind)));
    found
}

pub(super) async fn run(options: &arguments::Waste, surroundings: &Surroundings) -> Result<(), Failure> {
    let selection = surroundings.selection(&options.whose)?;
    let jobs = surroundings.source.ended(&selection).await?;
    if jobs.is_empty() {
        return Err(Failure::new(Kind::NotFound, "no job ended in that time: --since looks further back"));
    }
    let mut found = waste(&jobs, options.by, options.kind);
    found.truncate(options.top);
    let bytes = match options.format {
        ListFormat::Json => output::json(&found)?,
        ListFormat::Text => {
            let (heads, rows) = rows(&found, options.by, Numbers::Shown);
            table::text(&heads, &rows).into_bytes()
        }
        ListFormat::Parsable => {
            let (heads, rows) = rows(&found, options.by, Numbers::Raw);
            table::parsable(&heads, &rows).into_bytes()
        }
    };
    output::write(None, &bytes)
}

fn rows(found: &[Waste], by: By, numbers: Numbers) -> (Vec<Head>, Vec<Row>) {
    let name = match by {
        By::Job => "job",
        By::User => "user",
        By::Account => "account",
        By::Partition => "partition",
    };
    let clusters: BTreeSet<&str> = found.iter().map(|waste| waste.cluster.as_str()).collect();
    let several = clusters.len() > 1;
    let mut heads = vec![Head { name, number: false }];
    heads.extend(several.then_some(Head { name: "cluster", number: false }));
    let more: &[&str] = if by == By::Job { &["user", "account", "partition"] } else { &[] };
    heads.extend(more.iter().map(|name| Head { name, number: false }));
    if by != By::Job {
        heads.push(Head { name: "jobs", number: true });
    }
    heads.extend(
        ["idle core-h", "cpu used", "idle gpu-h", "of gpu-h", "unused gib-h"]
            .iter()
            .map(|name| Head { name, number: true }),
    );
    let rows = found.iter().map(|waste| {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut row = vec![text(&waste.name)];
        row.extend(several.then(|| text(&waste.cluster)));
        if by == By::Job {
            row.extend([text(&waste.user), text(&waste.account), text(&waste.partition)]);
        } else {
            row.push(Some(waste.jobs.to_string()));
        }
        let used = (waste.held_cpu_hours > 0.0)
            .then(|| numbers.cell(waste.used_cpu_hours / waste.held_cpu_hours, percent));
        let gpus = waste.held_gpu_hours > 0.0;
        let hours = |hours| numbers.cell(hours, digits);
        row.extend([
            Some(hours(waste.idle_core_hours)),
            used,
            gpus.then(|| hours(waste.idle_gpu_hours)),
            gpus.then(|| hours(waste.held_gpu_hours)),
            Some(hours(waste.unused_gib_hours)),
        ]);
        row
    });
    (heads, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_is_added_up_by_owner() {
        let job = |id, user: &str, idle: f64, gpu: f64| EndedJob {
            id,
            user: user.to_owned(),
            idle_core_seconds: Some(idle * HOUR),
            gpu_idle_seconds: Some(gpu * HOUR),
            ..EndedJob::default()
        };
        let jobs = [job(1, "a", 1.0, 0.0), job(2, "b", 2.5, 1.0), job(3, "a", 2.0, 0.5)];
        let names = |by, kind| waste(&jobs, by, kind).into_iter().map(|waste| waste.name).collect::<Vec<_>>();
        assert_eq!(names(By::User, WasteKind::Cpu), ["a", "b"]);
        assert_eq!(names(By::User, WasteKind::Gpu), ["b", "a"]);
        assert_eq!(names(By::Job, WasteKind::Cpu), ["2", "3", "1"]);
        let users = waste(&jobs, By::User, WasteKind::Cpu);
        assert_eq!((users[0].jobs, users[0].idle_core_hours, users[0].idle_gpu_hours), (2, 3.0, 0.5));
        assert_eq!(rows(&users, By::User, Numbers::Shown).0[1].name, "jobs");
        let jobs =
            ["x", "y\u{1b}"].map(|cluster| EndedJob { cluster: cluster.to_owned(), ..job(4, "a", 1.0, 0.0) });
        let found = waste(&jobs, By::Job, WasteKind::Cpu);
        let (heads, rows) = rows(&found, By::Job, Numbers::Raw);
        assert_eq!((found.len(), heads[1].name, rows[1][1].as_deref()), (2, "cluster", Some("y\u{fffd}")));
    }
}
