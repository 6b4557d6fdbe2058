//! Prometheus text 0.0.4 of the sections of one scrape
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Samples are the same as in OpenMetrics. What differs is the lines that describe a family: they have the name of the
//! samples, `_total` and `_info` included, there is no `info` type, and neither `# UNIT` nor `# EOF`.

use std::fmt::{Error, Write};
use std::sync::Arc;

use super::lines::{Numbers, Subjects, escape};
use super::{Kind, Section, Value};

/// Appends the whole exposition to `out`. Families of different sections are different, as in OpenMetrics.
pub fn encode_text(sections: &[Arc<Section>], out: &mut impl Write) -> Result<(), Error> {
    let (mut numbers, mut subjects) = (Numbers::default(), Subjects::default());
    for section in sections {
        subjects.take(section, &mut numbers)?;
        for (family, samples) in section.families() {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge | Kind::Info => "gauge",
            };
            write!(out, "# HELP {} ", family.name)?;
            // Go's parser refuses `\"` in HELP.
            escape(&family.help_text(), false, out)?;
            write!(out, "\n# TYPE {} {kind}\n", family.name)?;
            for sample in samples {
                subjects.write_series((family.name, ""), &sample, out)?;
                let value = if family.kind == Kind::Info { Value::Int(1) } else { sample.value() };
                numbers.write(value, out)?;
                out.write_str("\n")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, SubjectId};

    static SPENT: Family = Family::counter("jobledger_job_spent_seconds_total").labels(&["own"]).help("Time");
    static INFO: Family = Family::info("jobledger_job_info").labels(&["name"]).help("Say \"hi\" \\ \n");
    static LOAD: Family = Family::gauge("jobledger_node_load1").help("Load");

    fn encode(section: Section) -> String {
        let mut text = String::new();
        encode_text(&[Arc::new(section)], &mut text).unwrap();
        text
    }

    #[test]
    fn families_have_the_name_of_their_samples_and_only_kinds_that_the_format_knows() {
        let mut section = Section::default();
        let job = section.subject([("jobid", "7")]);
        section.push(&SPENT, job, &[("own", "b")], 2);
        section.push(&SPENT, job, &[], 0.5);
        section.push(&INFO, job, &[("name", "a")], 1);
        section.push(&LOAD, SubjectId::NODE, &[], 1e300);
        section.push(&LOAD, SubjectId::NODE, &[], 2.0);
        assert_eq!(
            encode(section),
            "# HELP jobledger_job_spent_seconds_total Time\n\
             # TYPE jobledger_job_spent_seconds_total counter\n\
             jobledger_job_spent_seconds_total{jobid=\"7\",own=\"b\"} 2\n\
             jobledger_job_spent_seconds_total{jobid=\"7\"} 0.5\n\
             # HELP jobledger_job_info Say \"hi\" \\\\ \\n\n\
             # TYPE jobledger_job_info gauge\n\
             jobledger_job_info{jobid=\"7\",name=\"a\"} 1\n\
             # HELP jobledger_node_load1 Load\n\
             # TYPE jobledger_node_load1 gauge\n\
             jobledger_node_load1 1e+300\n\
             jobledger_node_load1 2.0\n"
        );
    }

    #[test]
    fn a_label_value_remains_in_its_line_and_nothing_else_is_escaped() {
        let mut section = Section::default();
        section.push(&LOAD, SubjectId::NODE, &[("a", "x\"} 1\ny\\n"), ("b", "\r\u{2028}ä\u{85}#")], 1);
        assert!(
            encode(section).ends_with("{a=\"x\\\"} 1\\ny\\\\n\",b=\"\r\u{2028}ä\u{85}#\"} 1\n"),
            "`\\r` and U+2028 end no line"
        );
    }

    #[test]
    fn what_has_no_sample_is_not_described() {
        let mut section = Section::default();
        section.expect([&LOAD, &INFO]);
        assert_eq!(encode(section), "");
    }
}
