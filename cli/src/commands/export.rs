//! `jobledger export`

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use job_files::table::{self, Table};
use job_files::{Error, anonymize, atomic, clustercockpit, csv, hdf5, json, parquet, supremm};
use job_report::Report;
use job_report::metric::{self, Metric};

use super::surroundings::Surroundings;
use crate::arguments::{self, ExportBy, ExportLayout};
use crate::job_id::JobId;
use crate::source::recordings::Recordings;
use crate::source::{Parts, Source, Wanted, WhichRun};
use crate::text::is_like;
use crate::{Failure, Kind};

/// What a file's name says of its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Parquet,
    Json,
    Hdf5,
}

impl Format {
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("csv") => Ok(Format::Csv),
            Some("parquet" | "pq") => Ok(Format::Parquet),
            Some("json") => Ok(Format::Json),
            Some("h5" | "hdf5") => Ok(Format::Hdf5),
            _ => Err(Failure::usage(format!(
                "{}: the name has to end in .csv, .parquet, .json or .h5",
                path.display()
            ))),
        }
    }
}

/// Names are alike above this; the same one has 1.
const LIKE: f64 = 0.85;

/// Bins of a curve if `--step` does not say how long they are.
const STEP_SECONDS: f64 = 60.0;

/// From a server.
pub(super) async fn run(options: &arguments::Export, surroundings: &Surroundings) -> Result<(), Failure> {
    let id = options.job.clone().ok_or_else(|| Failure::usage("which job?"))?;
    exported(options, surroundings, &id, Some(STEP_SECONDS)).await
}

/// From recordings.
pub(super) async fn of_recordings(
    options: &arguments::Export,
    surroundings: &Surroundings<Recordings>,
) -> Result<(), Failure> {
    let id = options.job.clone().map_or_else(|| surroundings.source.job(), Ok)?;
    exported(options, surroundings, &id, None).await
}

async fn exported<S: Source>(
    options: &arguments::Export,
    surroundings: &Surroundings<S>,
    id: &JobId,
    step: Option<f64>,
) -> Result<(), Failure> {
    let archive = options.layout == Some(ExportLayout::Clustercockpit);
    let format = if archive { Format::Json } else { Format::of(&options.output)? };
    fits(format, options)?;
    let metrics = chosen(&options.metrics)?;
    let key = options.anonymize.as_deref().map(read_key).transpose()?;
    let is_table = matches!(format, Format::Csv | Format::Parquet);
    let has_parts = !is_table || matches!(options.by, ExportBy::Step | ExportBy::Task);
    let wanted = Wanted {
        id,
        run: options.run.map_or(WhichRun::Last, WhichRun::Number),
        bins: usize::MAX,
        step: options.step.map(f64::from).or(step),
        curves: &metrics,
        parts: if has_parts { Parts::Curves } else { Parts::None },
    };
    let mut report = surroundings.report(&wanted).await?;
    let incomplete = report.is_incomplete();
    if let Some(key) = key {
        report = anonymize::anonymize_report(report, &surroundings.thresholds, &key)
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    write(report, format, options)
        .map_err(|error| Failure::other(format!("{}: {error}", options.output.display())))?;
    if incomplete {
        return Err(Failure::new(
            Kind::Incomplete,
            "a part of the job was not seen: `jobledger report` says which",
        ));
    }
    Ok(())
}

/// Whether a format has the layout.
fn fits(format: Format, options: &arguments::Export) -> Result<(), Failure> {
    let fits = match options.layout {
        None | Some(ExportLayout::Clustercockpit) => true,
        Some(ExportLayout::Wide | ExportLayout::Long) => matches!(format, Format::Csv | Format::Parquet),
        Some(ExportLayout::Slurm) => format == Format::Hdf5,
        Some(ExportLayout::Supremm) => format == Format::Json,
    };
    let says = "--layout: wide and long are of .csv and .parquet, slurm is of .h5, supremm is of .json";
    if fits { Ok(()) } else { Err(Failure::usage(says)) }
}

fn read_key(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::usage(format!("--anonymize={}: {error}", path.display())))
}

/// The metrics that a pattern names, in the order of reports; all without one.
fn chosen(patterns: &[String]) -> Result<Vec<&'static Metric>, Failure> {
    let is_meant = |pattern: &String, metric: &Metric| {
        is_like(pattern, metric.key) || is_like(pattern, &table::name(metric))
    };
    for pattern in patterns {
        if !metric::ALL.iter().any(|metric| is_meant(pattern, metric)) {
            let near = nearest(&pattern.replace('*', ""));
            let says = if near.is_empty() {
                "a file without --metrics has all as columns".to_owned()
            } else {
                format!("is it {}?", near.join(" or "))
            };
            return Err(Failure::usage(format!("--metrics={pattern}: there is no such metric; {says}")));
        }
    }
    let wanted = |metric: &&&'static Metric| {
        patterns.is_empty() || patterns.iter().any(|pattern| is_meant(pattern, metric))
    };
    Ok(metric::ALL.iter().filter(wanted).copied().collect())
}

/// The columns whose names are most like this one, three at most.
fn nearest(name: &str) -> Vec<String> {
    let like = |metric: &&'static Metric| {
        let column = table::name(metric);
        let like = strsim::jaro_winkler(name, metric.key).max(strsim::jaro_winkler(name, &column));
        (like > LIKE).then_some((like, column))
    };
    let mut found: Vec<(f64, String)> = metric::ALL.iter().filter_map(like).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(3).map(|(_, column)| column).collect()
}

fn write(
    report: Report,
    format: Format,
    options: &arguments::Export,
) -> Result<(), Box<dyn std::error::Error>> {
    let path = options.output.as_path();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    match (options.layout, format) {
        (Some(ExportLayout::Clustercockpit), _) => {
            let sub_cluster = options.subcluster.clone().unwrap_or_default();
            let how =
                clustercockpit::Options { sub_cluster, exclusive: options.exclusive, force: options.force };
            clustercockpit::write(&report.job, &how, path).map_err(|error| {
                let says = match &error {
                    Error::Missing(names) if *names == ["cluster"] => ": --cluster names it",
                    Error::Missing(_) => {
                        ": --subcluster and --exclusive say what no node knows, --force writes the rest as 0 or empty"
                    }
                    _ => "",
                };
                format!("{error}{says}")
            })?;
        }
        (Some(ExportLayout::Supremm), _) => {
            let how = supremm::Options { resource_id: options.resource_id.unwrap_or(0), created: now };
            atomic::write(path, |to| supremm::write(&report.job, &how, to))?;
        }
        (_, Format::Json) => atomic::write(path, |to| json::write(&report, to))?,
        (layout, Format::Hdf5) => {
            let about = hdf5::About { source: None, generated: now };
            let layout = if layout == Some(ExportLayout::Slurm) {
                hdf5::Layout::Slurm
            } else {
                hdf5::Layout::Jobledger
            };
            atomic::write(path, |to| hdf5::write(report, &about, layout, to))?;
        }
        (layout, Format::Csv | Format::Parquet) => {
            let by = match options.by {
                ExportBy::Node => table::By::Node,
                ExportBy::Gpu => table::By::Gpu,
                ExportBy::Job => table::By::Job,
                ExportBy::Step => table::By::Step,
                ExportBy::Task => table::By::Task,
            };
            let layout =
                if layout == Some(ExportLayout::Long) { table::Layout::Long } else { table::Layout::Wide };
            let table = Table::new(&report.job, by).ok_or("nothing is known of the job over time")?;
            if table.blocks.is_empty() {
                return Err(nothing_of(options.by).into());
            }
            match format {
                Format::Csv => atomic::write(path, |to| csv::write(&table, layout, to))?,
                _ => atomic::write(path, |to| parquet::write(&report.job, &table, layout, to))?,
            }
        }
    }
    Ok(())
}

/// Why a table has no rows.
fn nothing_of(by: ExportBy) -> &'static str {
    match by {
        ExportBy::Step => {
            "nothing is known of the job's steps: the exporter publishes them with --jobs.steps"
        }
        ExportBy::Task => {
            "nothing is known of the job's tasks: the exporter publishes them with --jobs.tasks"
        }
        ExportBy::Gpu => "the job had no GPU",
        ExportBy::Node | ExportBy::Job => "nothing is known of the job's nodes",
    }
}

#[cfg(test)]
mod tests {
    use job_report::Job;

    use super::*;
    use crate::testing;

    #[test]
    fn patterns_choose_metrics() {
        let keys = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            chosen(&patterns).map(|metrics| metrics.iter().map(|metric| metric.key).collect::<Vec<_>>())
        };
        assert_eq!(keys(&["gpu_busy*", "cpus"]).unwrap(), ["cpus", "gpu_busy_seconds"]);
        assert_eq!(keys(&[]).unwrap().len(), metric::ALL.len());
        // docs/export.md has the names of columns.
        for metric in metric::ALL {
            assert_eq!(keys(&[&table::name(metric)]).unwrap(), [metric.key]);
        }
        assert_eq!(
            keys(&["energy_joules*", "cpu_seconds_per_second"]).unwrap(),
            ["cpu_seconds", "energy_joules"]
        );
        let says = |pattern: &str| keys(&["cpus", pattern]).unwrap_err().says;
        assert_eq!(
            says("foo"),
            "--metrics=foo: there is no such metric; a file without --metrics has all as columns"
        );
        assert!(says("cpu_secnds").contains("is it cpu_seconds_per_second or "), "{}", says("cpu_secnds"));
        assert!(says("gpu_buzy*").contains("is it gpu_busy_seconds_per_second"), "{}", says("gpu_buzy*"));
    }

    #[test]
    fn the_name_of_a_file_says_its_format() {
        assert_eq!(Format::of(Path::new("a.CSV")), Ok(Format::Csv));
        assert_eq!(Format::of(Path::new("a.b.h5")), Ok(Format::Hdf5));
        assert!(Format::of(Path::new("csv")).is_err());
    }

    #[test]
    fn an_anonymous_report_has_no_name() {
        let mut job = testing::job();
        job.identity.name = "ordinals".to_owned();
        let names: Vec<String> = {
            let Job { identity, nodes, .. } = &job;
            let gpus = nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| &gpu.uuid));
            let who = [&identity.user, &identity.uid, &identity.account, &identity.name];
            let all = who.into_iter().chain(nodes.iter().map(|node| &node.name)).chain(gpus);
            all.filter(|name| !name.is_empty()).cloned().collect()
        };
        let report = Report::new(job, &testing::THRESHOLDS, vec!["sacct: aturing may not ask".to_owned()]);
        let names_one = |text: &str| names.iter().any(|name| text.contains(name.as_str()));
        assert!(report.advice.iter().any(|advice| names_one(&format!("{advice:?}"))), "advice names nodes");
        let anonymous =
            anonymize::anonymize_report(report, &testing::THRESHOLDS, b"0123456789abcdef").unwrap();
        let text = format!("{anonymous:?}");
        let left: Vec<&String> = names.iter().filter(|name| text.contains(name.as_str())).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!anonymous.advice.is_empty());
    }
}
