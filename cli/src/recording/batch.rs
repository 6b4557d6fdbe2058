//! The lines of an exporter's page that are of a job.

use std::collections::BTreeSet;
use std::fmt::Write;

use job_report::metric::{self, Level};

use super::line::{Line, escaped};
use crate::series::{END, GPU_INFO, NODE_GPU_INFO, OF_NODES, START};

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The job, as the label `jobid` has it.
    pub job: String,
    /// The node: the label `instance`.
    pub node: String,
    /// All series of the node, too.
    pub whole_node: bool,
}

/// Lines to be added to a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The lines.
    pub text: String,
    /// Samples of the job.
    pub of_job: usize,
    /// Whether the exporter says that the job ended.
    pub ended: bool,
}

impl Selection {
    /// The lines of a page that was read at a time, in seconds since the epoch.
    pub fn of(&self, page: &str, time: f64) -> Batch {
        let lines: Vec<(Line<'_>, bool)> = page
            .lines()
            .filter_map(Line::parse)
            .map(|line| (line, line.label("jobid").is_some_and(|id| id == self.job)))
            .collect();
        let gpus: BTreeSet<String> = lines
            .iter()
            .filter(|(line, own)| *own && line.name == GPU_INFO)
            .filter_map(|(line, _)| line.label("uuid").map(|uuid| uuid.into_owned()))
            .collect();
        let has_gpu = |line: &Line<'_>| line.label("uuid").is_some_and(|uuid| gpus.contains(uuid.as_ref()));
        let mut batch = Batch::default();
        let (mut start, mut end) = (None::<f64>, None::<f64>);
        for (line, own) in &lines {
            let of_others = !own && line.label("jobid").is_some();
            let of_node = OF_NODES.contains(&line.name)
                || line.name == NODE_GPU_INFO
                || line.name.starts_with("jobledger_gpu_") && has_gpu(line)
                || is_of_host(line)
                || self.whole_node;
            if of_others || !(*own || of_node) {
                continue;
            }
            self.write(line, time, &mut batch.text);
            batch.of_job += usize::from(*own);
            let latest = match line.name {
                START if *own => &mut start,
                END if *own => &mut end,
                _ => continue,
            };
            *latest = line.value.parse().ok().into_iter().chain(*latest).reduce(f64::max);
        }
        // The end of an earlier run is none.
        batch.ended = end.is_some() && end >= start;
        batch
    }

    fn write(&self, line: &Line<'_>, time: f64, to: &mut String) {
        let labels = line.labels.trim_end_matches(',');
        let separator = if labels.is_empty() { "" } else { "," };
        let instance = match line.label("instance") {
            None => format!("{separator}instance=\"{}\"", escaped(&self.node)),
            Some(_) => String::new(),
        };
        // A String takes all that is written.
        let _ = writeln!(to, "{}{{{labels}{instance}}} {} {time:.3}", line.name, line.value);
    }
}

/// Whether it is exported of the whole node.
fn is_of_host(line: &Line<'_>) -> bool {
    let is = |(name, value): &(&str, &str)| line.label(name).is_some_and(|label| label == *value);
    (metric::ALL.iter()).any(|metric| {
        metric.level == Level::Host && metric.series == line.name && metric.labels.iter().all(is)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP jobledger_job_info Who.
# TYPE jobledger_job_info gauge
jobledger_job_info{jobid="7",user="alice",name="a\"b"} 1
jobledger_job_info{jobid="8",user="bob"} 1
jobledger_job_start_time_seconds{jobid="7"} 100
jobledger_job_start_time_seconds{jobid="8"} 100
jobledger_job_end_time_seconds{jobid="8"} 160
jobledger_job_gpu_info{jobid="7",gpu="0",uuid="GPU-a",model="H100",} 1
jobledger_gpu_info{gpu="0",uuid="GPU-a"} 1
jobledger_gpu_info{gpu="1",uuid="GPU-b"} 1
jobledger_gpu_temperature_celsius{gpu="0",uuid="GPU-a"} 61
jobledger_gpu_temperature_celsius{gpu="1",uuid="GPU-b"} 62
jobledger_node_cpus 64
jobledger_node_load1 3.5
jobledger_node_cpu_seconds_total{mode="idle"} 9.5
jobledger_node_cpu_seconds_total{mode="user"} 7.5
"#;

    fn selection(job: &str, whole_node: bool) -> Selection {
        Selection { job: job.to_owned(), node: "n\"1".to_owned(), whole_node }
    }

    #[test]
    fn a_jobs_own_lines_its_gpus_and_what_its_node_is_are_kept() {
        let batch = selection("7", false).of(PAGE, 12.3456);
        let kept: Vec<&str> = batch.text.lines().collect();
        assert_eq!(
            kept,
            [
                r#"jobledger_job_info{jobid="7",user="alice",name="a\"b",instance="n\"1"} 1 12.346"#,
                r#"jobledger_job_start_time_seconds{jobid="7",instance="n\"1"} 100 12.346"#,
                r#"jobledger_job_gpu_info{jobid="7",gpu="0",uuid="GPU-a",model="H100",instance="n\"1"} 1 12.346"#,
                r#"jobledger_gpu_info{gpu="0",uuid="GPU-a",instance="n\"1"} 1 12.346"#,
                r#"jobledger_gpu_info{gpu="1",uuid="GPU-b",instance="n\"1"} 1 12.346"#,
                r#"jobledger_gpu_temperature_celsius{gpu="0",uuid="GPU-a",instance="n\"1"} 61 12.346"#,
                r#"jobledger_node_cpus{instance="n\"1"} 64 12.346"#,
                r#"jobledger_node_cpu_seconds_total{mode="idle",instance="n\"1"} 9.5 12.346"#,
            ]
        );
        assert_eq!((batch.of_job, batch.ended), (3, false));
        assert!(batch.text.lines().all(|line| Line::parse(line).is_some()));
    }

    #[test]
    fn of_the_whole_node_no_other_job_is_recorded() {
        let text = selection("7", true).of(PAGE, 1.0).text;
        assert!(text.contains("jobledger_node_load1{instance=") && !text.contains("bob"), "{text}");
        assert!(text.contains("uuid=\"GPU-b\",instance=\"n\\\"1\"} 62 "));
    }

    #[test]
    fn the_end_is_seen_but_not_that_of_an_earlier_run() {
        assert!(selection("8", false).of(PAGE, 1.0).ended);
        let again = PAGE.replace("{jobid=\"8\"} 100", "{jobid=\"8\"} 200");
        assert!(!selection("8", false).of(&again, 1.0).ended);
        assert_eq!(selection("9", false).of(PAGE, 1.0).of_job, 0);
    }
}
