//! OpenMetrics text of the sections of one scrape
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::fmt::{Error, Write};
use std::sync::Arc;

use super::lines::{Numbers, Subjects, escape};
use super::{Kind, Section, Value};

/// Whether the line `_created` of a counter is written, which says since when it counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Created {
    /// No. A Prometheus that does not know them stores each of these lines as a series of its own.
    #[default]
    LeftOut,
    /// Yes, where it is known.
    Written,
}

/// Appends the whole exposition, with its `# EOF` and without `_created`, to `out`. Families of different sections are
/// different: the registry's tests hold that, and with it that no family is interleaved with another.
pub fn encode_openmetrics(sections: &[Arc<Section>], out: &mut impl Write) -> Result<(), Error> {
    encode_openmetrics_with(sections, Created::LeftOut, out)
}

/// The same, with `_created` lines on request.
pub fn encode_openmetrics_with(
    sections: &[Arc<Section>],
    created: Created,
    out: &mut impl Write,
) -> Result<(), Error> {
    let (mut numbers, mut subjects) = (Numbers::default(), Subjects::default());
    for section in sections {
        subjects.take(section, &mut numbers)?;
        for (family, samples) in section.families() {
            let name = family.base_name();
            let (kind, suffix) = match family.kind {
                Kind::Counter => ("counter", "_total"),
                Kind::Gauge => ("gauge", ""),
                Kind::Info => ("info", "_info"),
            };
            write!(out, "# HELP {name} ")?;
            escape(&family.help_text(), true, out)?;
            write!(out, "\n# TYPE {name} {kind}\n")?;
            if let Some(unit) = family.unit {
                writeln!(out, "# UNIT {name} {}", unit.as_str())?;
            }
            for sample in samples {
                subjects.write_series((name, suffix), &sample, out)?;
                let value = if family.kind == Kind::Info { Value::Int(1) } else { sample.value() };
                numbers.write(value, out)?;
                out.write_str("\n")?;
                let began = subjects.began(&sample);
                if created == Created::Written && family.kind == Kind::Counter && !began.is_empty() {
                    subjects.write_series((name, "_created"), &sample, out)?;
                    out.write_str(began)?;
                    out.write_str("\n")?;
                }
            }
        }
    }
    out.write_str("# EOF\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Level, PerCgroup, SubjectId};

    static CPU: PerCgroup = Family::counter("jobledger_job_cpu_seconds_total")
        .labels(&["mode"])
        .help("CPU time")
        .per_cgroup("jobledger_step_cpu_seconds_total", "jobledger_task_cpu_seconds_total");
    static LOAD: Family = Family::gauge("jobledger_node_load1").help("Load");
    static INFO: Family = Family::info("jobledger_job_info").labels(&["name"]).help("Identity");

    /// Of every unit that hardware measures, whatever the source.
    #[test]
    fn what_no_hardware_can_have_is_left_out_and_counted() {
        static TEMPERATURE: Family = Family::gauge("jobledger_gpu_temperature_celsius").help("Of a GPU");
        static POWER: Family = Family::gauge("jobledger_node_power_watts").help("Of the node");
        static CLOCK: Family = Family::gauge("jobledger_gpu_clock_hertz").help("Of a GPU");
        static BUSY: Family = Family::counter("jobledger_gpu_busy_seconds_total").help("Of a GPU");
        let mut section = Section::default();
        for wrong in [-273.0, -273.15, 255.0, 65_535.0, 4_294_967.295] {
            section.push(&TEMPERATURE, SubjectId::NODE, &[], wrong);
        }
        section.push(&TEMPERATURE, SubjectId::NODE, &[], 65_535);
        for wrong in [-1.0, 65_535.0, 4_294_967.295] {
            section.push(&POWER, SubjectId::NODE, &[], wrong);
        }
        section.push(&CLOCK, SubjectId::NODE, &[], 4_294_967_295_000_000);
        assert_eq!((section.bad_values(), section.len()), (10, 0));
        for right in [-5.0, 0.0, 41.0, 115.0] {
            section.push(&TEMPERATURE, SubjectId::NODE, &[], right);
        }
        section.push(&POWER, SubjectId::NODE, &[], 14_300);
        section.push(&CLOCK, SubjectId::NODE, &[], 2_619_000_000_u64);
        section.push(&BUSY, SubjectId::NODE, &[], 1e13);
        assert_eq!((section.bad_values(), section.len()), (10, 7));
    }

    #[test]
    fn families_come_with_metadata_and_escaped_labels() {
        let mut section = Section::default();
        let job = section.subject([("jobid", "7")]);
        section.push(&CPU.job, job, &[("mode", "user")], 1.5);
        section.push(&INFO, job, &[("name", "a\"b\\c\nd")], 1);
        section.push(&CPU.job, job, &[("mode", "system")], 2);
        section.push(&LOAD, SubjectId::NODE, &[], 0.25);
        section.push(&LOAD, SubjectId::NODE, &[], f64::NAN);
        assert_eq!(section.bad_values(), 1);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        assert_eq!(
            text,
            "# HELP jobledger_job_cpu_seconds CPU time\n\
             # TYPE jobledger_job_cpu_seconds counter\n\
             # UNIT jobledger_job_cpu_seconds seconds\n\
             jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"} 1.5\n\
             jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"system\"} 2\n\
             # HELP jobledger_job Identity\n\
             # TYPE jobledger_job info\n\
             jobledger_job_info{jobid=\"7\",name=\"a\\\"b\\\\c\\nd\"} 1\n\
             # HELP jobledger_node_load1 Load\n\
             # TYPE jobledger_node_load1 gauge\n\
             jobledger_node_load1 0.25\n\
             # EOF\n"
        );
    }

    #[test]
    fn a_cleared_section_is_reused_and_empty_families_are_not_written() {
        let mut section = Section::default();
        section.push(&LOAD, SubjectId::NODE, &[], 1.0);
        section.clear();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        assert_eq!(text, "# EOF\n");
    }

    #[test]
    fn too_many_series_drop_the_finest_level_first_and_then_the_last_jobs() {
        let mut section = Section::default();
        for id in ["1", "2", "3", "4"] {
            let job = section.subject([("jobid", id)]);
            section.push(&CPU.job, job, &[("mode", "user")], 1);
            section.push(&CPU.task, job, &[("mode", "user")], 1);
        }
        section.push(&LOAD, SubjectId::NODE, &[], 1);
        assert_eq!(section.drop_level(Level::Task), 4);
        assert_eq!(section.truncate_jobs(3).samples, 2);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        assert!(
            text.contains("jobid=\"2\"") && !text.contains("jobid=\"3\"") && text.contains("node_load1 1")
        );
    }

    #[test]
    fn a_counter_says_since_when_it_counts_if_that_is_known_and_wanted() {
        let mut section = Section::default();
        let job = section.subject_since([("jobid", "7")], Some(1_700_000_000.25));
        section.push(&CPU.job, job, &[("mode", "user")], Value::micro(1_500_000));
        section.push(&INFO, job, &[("name", "a")], 1);
        let unknown = section.subject([("jobid", "8")]);
        section.push(&CPU.job, unknown, &[("mode", "user")], 2);
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let node = section.node_since(Some(nonsense));
            section.push(&CPU.job, node, &[("mode", &nonsense.to_string())], 2);
        }
        let sections = [Arc::new(section)];
        let (mut without, mut with) = (String::new(), String::new());
        encode_openmetrics(&sections, &mut without).unwrap();
        encode_openmetrics_with(&sections, Created::Written, &mut with).unwrap();
        let line = "jobledger_job_cpu_seconds_created{jobid=\"7\",mode=\"user\"} 1700000000.25\n";
        assert_eq!(with.replace(line, ""), without, "one line more");
        assert!(
            with.contains(&format!(
                "jobledger_job_cpu_seconds_total{{jobid=\"7\",mode=\"user\"}} 1.5\n{line}"
            )),
            "behind the counter: {with}"
        );
    }

    #[test]
    fn a_quote_in_help_is_escaped() {
        static QUOTED: Family = Family::gauge("jobledger_node_now").help("Say \"hi\" \\ \n");
        let mut section = Section::default();
        section.push(&QUOTED, SubjectId::NODE, &[], 1);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        assert!(text.starts_with("# HELP jobledger_node_now Say \\\"hi\\\" \\\\ \\n\n"), "{text}");
    }
}
