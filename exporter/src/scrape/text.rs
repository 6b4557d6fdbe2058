//! OpenMetrics 1.0 rewritten as Prometheus text 0.0.4, for clients that do not accept OpenMetrics.
//!
//! Samples are the same in both, label escapes included; what differs is the lines that describe a family:
//! OpenMetrics names a counter without the `_total` of its samples and an info without its `_info`, 0.0.4
//! knows neither `info`, `unknown`, `# UNIT` nor `# EOF`, and exemplars, `_created` and timestamps in
//! seconds are OpenMetrics' own (<https://prometheus.io/docs/specs/om/open_metrics_spec/>,
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>).

/// Rewrites one OpenMetrics exposition as text 0.0.4, in one pass and in the same order.
///
/// Lines end at `\n` and nowhere else: both formats escape a newline inside a label value, and allow any other
/// character there, so that `\r` or U+2028 in a job's name is not an end of line.
pub fn openmetrics_to_text(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let mut family = Family::default();
    for line in openmetrics.split_terminator('\n') {
        match Line::of(line) {
            Line::Help(name, text) => {
                family.enter(name, &mut out);
                family.help = Some(text);
            }
            Line::Type(name, kind) => {
                family.enter(name, &mut out);
                family.kind = Some(kind);
            }
            Line::Unit(name) => family.enter(name, &mut out),
            Line::Eof => break,
            Line::Other => {}
            Line::Sample => {
                family.describe(&mut out);
                family.push_sample(line, &mut out);
            }
        }
    }
    family.describe(&mut out);
    out
}

enum Line<'a> {
    Help(&'a str, &'a str),
    Type(&'a str, &'a str),
    Unit(&'a str),
    Eof,
    Sample,
    /// Neither format gives it a meaning.
    Other,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        let Some(comment) = line.strip_prefix("# ") else {
            return if line.is_empty() || line.starts_with('#') { Line::Other } else { Line::Sample };
        };
        let (keyword, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match keyword {
            "HELP" => Line::Help(name, text),
            "TYPE" => Line::Type(name, text),
            "UNIT" => Line::Unit(name),
            "EOF" => Line::Eof,
            _ => Line::Other,
        }
    }
}

/// The family being read. HELP comes before TYPE, but only TYPE says under which name 0.0.4 wants the HELP, so
/// both are held back until the first sample (or the next family).
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: Option<&'a str>,
    kind: Option<&'a str>,
    /// Whether a sample `<name>_created` is OpenMetrics' own.
    has_created: bool,
}

impl<'a> Family<'a> {
    fn enter(&mut self, name: &'a str, out: &mut String) {
        if self.name != name {
            self.describe(out);
            self.name = name;
            self.has_created = false;
        }
    }

    /// Writes the lines held back.
    fn describe(&mut self, out: &mut String) {
        let kind = self.kind.take();
        let (suffix, kind_in_text) = match kind {
            Some("counter") => ("_total", Some("counter")),
            Some("info") => ("_info", Some("gauge")),
            Some("stateset") => ("", Some("gauge")),
            Some("gauge" | "histogram" | "summary") => ("", kind),
            // A gaugehistogram's buckets may go down, which a 0.0.4 histogram's may not.
            Some(_) => ("", Some("untyped")),
            None => ("", None),
        };
        self.has_created |= matches!(kind, Some("counter" | "histogram" | "summary"));
        if let Some(help) = self.help.take() {
            out.extend(["# HELP ", self.name, suffix, " "]);
            push_help(help, out);
            out.push('\n');
        }
        if let Some(kind) = kind_in_text {
            out.extend(["# TYPE ", self.name, suffix, " ", kind, "\n"]);
        }
    }

    fn push_sample(&self, line: &str, out: &mut String) {
        let (series, rest) = line.split_at(end_of_series(line));
        if self.has_created && is_created(series, self.name) {
            return;
        }
        out.push_str(series);
        // An exemplar is ` # {labels} value`; a value and a timestamp hold no `#`.
        let mut words = rest.split('#').next().unwrap_or(rest).split_ascii_whitespace();
        out.extend([" ", words.next().unwrap_or_default()]);
        if let Some(seconds) = words.next().and_then(|word| word.parse::<f64>().ok()) {
            out.push_str(&format!(" {:.0}", seconds * 1000.0));
        }
        out.push('\n');
    }
}

/// Where the name and labels of a sample end: behind the brace that closes the labels, else before the value.
fn end_of_series(line: &str) -> usize {
    let (mut quoted, mut escaped, mut braced) = (false, false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => braced = true,
            b'}' if !quoted => return at + 1,
            b' ' if !quoted && !braced => return at,
            _ => {}
        }
    }
    line.len()
}

/// Whether the series is `<family>_created`, which 0.0.4 would take for a metric of its own.
fn is_created(series: &str, family: &str) -> bool {
    series
        .strip_prefix(family)
        .and_then(|rest| rest.strip_prefix("_created"))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
}

/// HELP in 0.0.4 knows the escapes `\\` and `\n` only, and Go's parser refuses any other: `\"` loses its
/// backslash, and a backslash that escapes nothing is escaped itself.
fn push_help(help: &str, out: &mut String) {
    let mut rest = help;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let mut behind = after.chars();
        match behind.next() {
            Some('"') => out.push('"'),
            Some(known @ ('\\' | 'n')) => out.extend(['\\', known]),
            other => {
                out.push_str("\\\\");
                out.extend(other);
            }
        }
        rest = behind.as_str();
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family as Metrics;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::{Registry, Unit};
    use proptest::prelude::*;

    #[test]
    fn a_counter_is_described_under_the_name_of_its_samples() {
        let om = "# HELP x_seconds Time.\n# TYPE x_seconds counter\n# UNIT x_seconds seconds\n\
                  x_seconds_total{a=\"b\"} 1\nx_seconds_created{a=\"b\"} 2.5\n# EOF\n";
        let text =
            "# HELP x_seconds_total Time.\n# TYPE x_seconds_total counter\nx_seconds_total{a=\"b\"} 1\n";
        assert_eq!(openmetrics_to_text(om), text);
    }

    #[test]
    fn kinds_that_the_text_format_lacks_become_their_nearest() {
        for (om, text, suffix) in [
            ("info", "gauge", "_info"),
            ("stateset", "gauge", ""),
            ("unknown", "untyped", ""),
            ("gaugehistogram", "untyped", ""),
            ("gauge", "gauge", ""),
            ("histogram", "histogram", ""),
            ("summary", "summary", ""),
        ] {
            let given = format!("# TYPE x {om}\n# HELP x About.\nx{suffix} 1\n# EOF\n");
            let wanted = format!("# HELP x{suffix} About.\n# TYPE x{suffix} {text}\nx{suffix} 1\n");
            assert_eq!(openmetrics_to_text(&given), wanted);
        }
    }

    #[test]
    fn a_family_without_samples_is_still_described() {
        let om = "# HELP a A.\n# TYPE a counter\n# HELP b B.\n# TYPE b gauge\nb 1\n# EOF\n";
        let text = "# HELP a_total A.\n# TYPE a_total counter\n# HELP b B.\n# TYPE b gauge\nb 1\n";
        assert_eq!(openmetrics_to_text(om), text);
    }

    #[test]
    fn exemplars_go_and_timestamps_become_milliseconds() {
        let om = "# TYPE x counter\nx_total{a=\"} # {\"} 1 1700000000.25 # {id=\"#\"} 1 2\n\
                  x_total 2 # {id=\"a\"} 3\n# EOF\n";
        let text = "# TYPE x_total counter\nx_total{a=\"} # {\"} 1 1700000000250\nx_total 2\n";
        assert_eq!(openmetrics_to_text(om), text);
    }

    #[test]
    fn help_keeps_only_the_escapes_that_0_0_4_knows() {
        let om = "# HELP x say \\\"hi\\\" \\\\ \\n \\d \\\n# TYPE x gauge\nx 1\n# EOF\n";
        assert_eq!(openmetrics_to_text(om), "# HELP x say \"hi\" \\\\ \\n \\\\d \\\\\n# TYPE x gauge\nx 1\n");
    }

    #[test]
    fn a_gauge_named_created_stays() {
        let om = "# TYPE x gauge\nx_created 1\n# TYPE y counter\ny_total 1\ny_created_jobs 3\n# EOF\n";
        assert!(openmetrics_to_text(om).contains("x_created 1\n"));
        assert!(openmetrics_to_text(om).contains("y_created_jobs 3\n"));
    }

    #[test]
    fn comments_and_empty_lines_are_dropped() {
        assert_eq!(openmetrics_to_text("#x\n# note\n\nx 1\n# EOF\nx 2\n"), "x 1\n");
    }

    #[test]
    fn other_line_breaks_in_a_label_value_are_no_line_breaks() {
        let om = "# TYPE x gauge\nx{a=\"1\r2\u{2028}3\u{85}4\"} 1\n# EOF\n";
        assert_eq!(openmetrics_to_text(om), om.strip_suffix("# EOF\n").unwrap());
    }

    /// One sample line read back by other means than the adapter's: name, label values, value.
    fn parse_sample(line: &str) -> (String, Vec<String>, String) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let Some((name, labels)) = series.split_once('{') else {
            return (series.into(), vec![], value.into());
        };
        let mut values = vec![];
        let mut chars = labels.strip_suffix('}').unwrap().chars();
        while chars.by_ref().any(|c| c == '"') {
            let mut text = String::new();
            loop {
                match chars.next().unwrap() {
                    '"' => break,
                    '\\' => text.push(match chars.next().unwrap() {
                        'n' => '\n',
                        c => c,
                    }),
                    c => text.push(c),
                }
            }
            values.push(text);
        }
        (name.into(), values, value.into())
    }

    proptest! {
        /// Whatever users name their jobs, the text holds the samples that were put in, and no other.
        #[test]
        fn hostile_labels_survive(values in proptest::collection::btree_set(
            prop_oneof![any::<String>(), "[\"\\\\{}#, \n\r=a]{0,12}", Just("# EOF\n".to_owned())], 1..8))
        {
            let mut registry = Registry::default();
            let counters = Metrics::<Vec<(String, String)>, Counter>::default();
            let gauges = Metrics::<Vec<(String, String)>, Gauge>::default();
            registry.register_with_unit("spent", "With \"quotes\" and \\ in it", Unit::Seconds, counters.clone());
            registry.register("now", "Now", gauges.clone());
            registry.register("about", "About", Info::new(vec![("v", values.first().unwrap().clone())]));
            for value in &values {
                counters.get_or_create(&vec![("a".into(), value.clone()), ("b".into(), "}".into())]).inc();
                gauges.get_or_create(&vec![("a".into(), value.clone())]).set(7);
            }
            let mut om = String::new();
            encode(&mut om, &registry).unwrap();

            let text = openmetrics_to_text(&om);
            let (described, samples): (Vec<_>, Vec<_>) =
                text.split_terminator('\n').partition(|line| line.starts_with("# "));
            prop_assert_eq!(described, vec![
                "# HELP spent_seconds_total With \"quotes\" and \\\\ in it.", "# TYPE spent_seconds_total counter",
                "# HELP now Now.", "# TYPE now gauge", "# HELP about_info About.", "# TYPE about_info gauge",
            ]);
            let mut found: Vec<_> = samples.into_iter().map(parse_sample).collect();
            let mut wanted = vec![("about_info".to_owned(), vec![values.first().unwrap().clone()], "1".to_owned())];
            for value in &values {
                wanted.push(("spent_seconds_total".into(), vec![value.clone(), "}".into()], "1".into()));
                wanted.push(("now".into(), vec![value.clone()], "7".into()));
            }
            found.sort();
            wanted.sort();
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn anything_at_all_is_taken_without_a_panic(given in any::<String>()) {
            openmetrics_to_text(&given);
        }
    }
}
