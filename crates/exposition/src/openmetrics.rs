//! OpenMetrics text of the sections of one scrape, through prometheus-client's collector interface.

use std::fmt::{Error, Write};
use std::sync::{Arc, LazyLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as ClientUnit};

use super::section::SampleRef;
use super::{Kind, Section, Unit, Value};

static SECONDS: ClientUnit = ClientUnit::Seconds;
static BYTES: ClientUnit = ClientUnit::Bytes;
static RATIO: LazyLock<ClientUnit> = LazyLock::new(|| ClientUnit::Other("ratio".to_owned()));
static WATTS: LazyLock<ClientUnit> = LazyLock::new(|| ClientUnit::Other("watts".to_owned()));
static HERTZ: LazyLock<ClientUnit> = LazyLock::new(|| ClientUnit::Other("hertz".to_owned()));

fn client_unit(unit: Unit) -> &'static ClientUnit {
    match unit {
        Unit::Seconds => &SECONDS,
        Unit::Bytes => &BYTES,
        Unit::Ratio => &RATIO,
        Unit::Hertz => &HERTZ,
        Unit::Joules => &ClientUnit::Joules,
        Unit::Watts => &WATTS,
        Unit::Celsius => &ClientUnit::Celsius,
    }
}

#[derive(Debug)]
struct Sections(Vec<Arc<Section>>);

struct Labels<'a>(&'a SampleRef<'a>);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), Error> {
        for label in self.0.labels() {
            label.encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

fn write_value(metric: &mut MetricEncoder<'_>, kind: Kind, value: Value) -> Result<(), Error> {
    match (kind, value) {
        (Kind::Counter, Value::Int(v)) => metric.encode_counter::<NoLabelSet, _, u64>(&v, None),
        (Kind::Counter, Value::Float(v)) => metric.encode_counter::<NoLabelSet, _, u64>(&v, None),
        (_, Value::Int(v)) => metric.encode_gauge(&v),
        (_, Value::Float(v)) => metric.encode_gauge(&v),
    }
}

impl Collector for Sections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (family, samples) in self.0.iter().flat_map(|section| section.families()) {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let unit = family.unit.map(client_unit);
            let mut metric = encoder.encode_descriptor(family.stem(), &family.help_text(), unit, kind)?;
            for sample in samples {
                let labels = Labels(&sample);
                if family.kind == Kind::Info {
                    metric.encode_info(&labels)?;
                } else if sample.labels().next().is_none() {
                    write_value(&mut metric, family.kind, sample.value())?;
                } else {
                    write_value(&mut metric.encode_family(&labels)?, family.kind, sample.value())?;
                }
            }
        }
        Ok(())
    }
}

/// Appends the whole exposition, with its `# EOF`, to `out`. Families of different sections are different:
/// the registry's tests hold that, and with it that no family is interleaved with another.
pub fn encode_openmetrics(sections: &[Arc<Section>], out: &mut impl Write) -> Result<(), Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Sections(sections.to_vec())));
    text::encode(out, &registry)
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
}
