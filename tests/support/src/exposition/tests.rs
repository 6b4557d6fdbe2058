use super::*;

fn om(text: &str) -> Result<Exposition, ParseError> {
    parse(text.as_bytes(), Format::OpenMetrics)
}

fn txt(text: &str) -> Result<Exposition, ParseError> {
    parse(text.as_bytes(), Format::Text)
}

#[test]
fn a_good_openmetrics_body_is_read_whole() {
    let body = "# TYPE jobledger_job_cpu_seconds counter\n\
                # UNIT jobledger_job_cpu_seconds seconds\n\
                # HELP jobledger_job_cpu_seconds CPU time of a \\\"job\\\".\\nSecond \\\\ line.\n\
                jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"} 1.50\n\
                jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"system\"} 1e3\n\
                # TYPE jobledger_job info\n\
                jobledger_job_info{jobid=\"7\",name=\"a\\\\b\\\"c\\nd{},= é\"} 1\n\
                # TYPE up gauge\n\
                up NaN\n\
                # EOF\n";
    let parsed = om(body).unwrap();
    let cpu = &parsed.families[0];
    assert_eq!((cpu.name.as_str(), cpu.kind), ("jobledger_job_cpu_seconds", Kind::Counter));
    assert_eq!(cpu.unit.as_deref(), Some("seconds"));
    assert_eq!(cpu.help.as_deref(), Some("CPU time of a \"job\".\nSecond \\ line."));
    assert_eq!(cpu.samples[0].labels, [("jobid".into(), "7".into()), ("mode".into(), "user".into())]);
    assert_eq!((cpu.samples[0].value, cpu.samples[0].text.as_str(), cpu.samples[0].line), (1.5, "1.50", 4));
    assert_eq!(parsed.value("jobledger_job_cpu_seconds_total", &[("mode", "system")]), Some(1000.0));
    let info = parsed.named("jobledger_job_info").next().unwrap();
    assert_eq!(info.label("name"), Some("a\\b\"c\nd{},= é"));
    assert!(parsed.family("up").unwrap().samples[0].value.is_nan());
    assert_eq!(parsed.samples().count(), 4);
    assert_eq!(parsed.value("absent", &[]), None);
}

#[test]
fn a_good_text_body_is_read_whole() {
    let body = "# a comment\n\n# HELP x_total Help with \"quotes\", \\\\ and \\n.\n#\tTYPE  x_total \t counter \n\
                x_total{ a = \"1\" , } 5 1700000000000\n  x_total\t{a=\"2\"}\t6 \ny 3\n# TYPE h histogram\n\
                h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n# EOF\n";
    let parsed = txt(body).unwrap();
    let x = parsed.family("x_total").unwrap();
    assert_eq!((x.kind, x.help.as_deref()), (Kind::Counter, Some("Help with \"quotes\", \\ and \n.")));
    assert_eq!(x.samples[0].timestamp.as_deref(), Some("1700000000000"));
    assert_eq!(parsed.value("x_total", &[("a", "2")]), Some(6.0));
    assert_eq!(parsed.family("y").unwrap().kind, Kind::Unknown);
    assert_eq!(parsed.family("h").unwrap().samples.len(), 4);
}

#[test]
fn an_empty_body_is_what_each_format_says() {
    assert!(om("# EOF\n").unwrap().families.is_empty());
    assert!(om("# EOF").unwrap().families.is_empty());
    assert!(txt("").unwrap().families.is_empty());
    assert_eq!(om("").unwrap_err().reason, "no # EOF");
}

#[test]
fn openmetrics_refuses() {
    for (body, line, reason) in [
        ("a 1\n", 2, "no # EOF"),
        ("a 1\n# EOF\nb 2\n", 3, "text after # EOF"),
        ("a 1\n# EOF\n\n", 3, "text after # EOF"),
        ("\n# EOF\n", 1, "bad metric name"),
        ("# comment\n# EOF\n", 1, "neither TYPE, UNIT, HELP nor EOF"),
        ("#TYPE a gauge\n# EOF\n", 1, "a comment"),
        ("# TYPE a untyped\n# EOF\n", 1, "unknown type"),
        ("# TYPE a gauge\n# TYPE a gauge\n# EOF\n", 2, "second TYPE of a"),
        ("# HELP a x\n# HELP a x\n# EOF\n", 2, "second HELP of a"),
        ("# UNIT a_s s\n# UNIT a_s s\n# EOF\n", 2, "second UNIT of a_s"),
        ("# UNIT a seconds\n# EOF\n", 1, "a does not end in its unit"),
        ("# HELP a a \"quote\"\n# EOF\n", 1, "a quote in HELP that is not escaped"),
        ("# HELP a \\t\n# EOF\n", 1, "bad escape"),
        ("# TYPE a gauge\na 1\n# HELP a late\n# EOF\n", 3, "HELP after the samples of a"),
        ("a 1\n# TYPE a gauge\n# EOF\n", 2, "TYPE after the samples of a"),
        ("a 1\nb 1\n# TYPE a gauge\n# EOF\n", 3, "family a comes twice"),
        ("# TYPE a gauge\n# TYPE b gauge\na 1\n# EOF\n", 3, "family a is interleaved with others"),
        ("a{x=\"1\"} 1\nb 1\na{x=\"2\"} 1\n# EOF\n", 3, "family a is interleaved with others"),
        ("a 1\na 2\n# EOF\n", 2, "the same series as in line 1"),
        ("a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1\n# EOF\n", 2, "the same series as in line 1"),
        ("a 1\na{x=\"\"} 1\n# EOF\n", 2, "the same series as in line 1"),
        ("a{x=\"1\",x=\"2\"} 1\n# EOF\n", 1, "label x comes twice"),
        ("# TYPE a counter\na 1\n# EOF\n", 2, "a is no sample of family a"),
        ("# TYPE a counter\na_created 1\n# EOF\n", 2, "no _total"),
        ("# TYPE a counter\na_total -1\n# EOF\n", 2, "a counter is negative or NaN"),
        ("# TYPE a counter\na_total NaN\n# EOF\n", 2, "a counter is negative or NaN"),
        ("# TYPE a info\na_info 2\n# EOF\n", 2, "an info is not 1"),
        ("# TYPE a stateset\na{a=\"x\"} 2\n# EOF\n", 2, "a state is not 0 or 1"),
        ("# TYPE a stateset\na 1\n# EOF\n", 2, "a state without its label"),
        ("# TYPE a_s info\n# UNIT a_s s\na_s_info 1\n# EOF\n", 3, "a_s has a unit"),
        ("# TYPE h histogram\nh_bucket{le=\"1\"} 1\n# EOF\n", 2, "no bucket of +Inf"),
        ("# TYPE h histogram\nh_bucket{le=\"x\"} 1\n# EOF\n", 2, "le is not a number"),
        ("# TYPE h histogram\nh_bucket 1\n# EOF\n", 2, "le on what is no bucket, or a bucket without it"),
        (
            "# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\n# EOF\n",
            2,
            "buckets do not grow",
        ),
        (
            "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_count 3\n# EOF\n",
            2,
            "count differs from the bucket of +Inf",
        ),
        (
            "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_bucket{j=\"1\",le=\"+Inf\"} 2\nh_count 2\n# EOF\n",
            4,
            "the samples of one metric are apart",
        ),
        ("# TYPE s summary\ns 2\n# EOF\n", 2, "quantile on what is no quantile, or a quantile without it"),
        ("1a 1\n# EOF\n", 1, "bad metric name"),
        ("a-b 1\n# EOF\n", 1, "bad metric name"),
        ("é 1\n# EOF\n", 1, "bad metric name"),
        (" a 1\n# EOF\n", 1, "bad metric name"),
        ("a{1x=\"1\"} 1\n# EOF\n", 1, "bad label name"),
        ("a{x:y=\"1\"} 1\n# EOF\n", 1, "bad label name"),
        ("a{x=\"1\",} 1\n# EOF\n", 1, "bad label name"),
        ("a{ x=\"1\"} 1\n# EOF\n", 1, "bad label name"),
        ("a{x=1} 1\n# EOF\n", 1, "bad label"),
        ("a{x=\"1} 1\n# EOF\n", 1, "label value not closed"),
        ("a{x=\"1\n# EOF\n", 1, "label value not closed"),
        ("a{x=\"1\"y=\"2\"} 1\n# EOF\n", 1, "label set not closed"),
        ("a{x=\"\\t\"} 1\n# EOF\n", 1, "bad escape"),
        ("a{x=\"1\"}1\n# EOF\n", 1, "no blank where one belongs"),
        ("a  1\n# EOF\n", 1, "bad value"),
        ("a\n# EOF\n", 1, "no blank where one belongs"),
        ("a 0x10\n# EOF\n", 1, "bad value"),
        ("a 1_000\n# EOF\n", 1, "bad value"),
        ("a one\n# EOF\n", 1, "bad value"),
        ("a 1 \n# EOF\n", 1, "bad timestamp"),
        ("a 1 x\n# EOF\n", 1, "bad timestamp"),
        ("a 1 2 3\n# EOF\n", 1, "text after the value"),
        ("a 1\r\n# EOF\n", 1, "bad value"),
        ("a 1 # {x=\"1\"} 1\n# EOF\n", 1, "an exemplar on neither a counter nor a bucket"),
        ("# TYPE a counter\na_total 1 # x\n# EOF\n", 2, "bad exemplar"),
        ("# TYPE a counter\na_total 1 # {x=\"1\"} y\n# EOF\n", 2, "bad exemplar"),
    ] {
        let error = om(body).expect_err(body);
        assert_eq!((error.line, error.reason.as_str()), (line, reason), "{body:?}");
    }
}

#[test]
fn text_refuses() {
    for (body, line, reason) in [
        ("a 1", 1, "torn last line"),
        ("# TYPE a unknown\n", 1, "unknown type"),
        ("# TYPE a info\n", 1, "unknown type"),
        ("# TYPE a gauge\n# TYPE a gauge\n", 2, "second TYPE of a"),
        ("a 1\n# TYPE a gauge\n", 2, "TYPE after the samples of a"),
        (
            "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na{x=\"1\"} 2\n",
            5,
            "family a is interleaved with others",
        ),
        ("# TYPE a gauge\na 1\nb 1\n# TYPE a gauge\n", 4, "family a comes twice"),
        ("a{x=\"1\"} 1\na{x=\"1\"} 2\n", 2, "the same series as in line 1"),
        ("# HELP a \\\"\n", 1, "bad escape"),
        ("a{x=\"\\x\"} 1\n", 1, "bad escape"),
        ("a 1 1.5\n", 1, "bad timestamp"),
        ("a 1 2 3\n", 1, "text after the value"),
        ("a 1 # {x=\"1\"} 1\n", 1, "text after the value"),
        ("# TYPE a counter\na_total 1\n", 2, "a_total is no sample of family a"),
        ("a{x=\"1\"\n", 1, "label set not closed"),
        ("a{x=\"1\", ,} 1\n", 1, "bad label name"),
        ("a b\n", 1, "bad value"),
        ("garbage\n", 1, "no blank where one belongs"),
        ("# TYPE c counter\nc -1\n", 2, "a counter is negative or NaN"),
    ] {
        let error = txt(body).expect_err(body);
        assert_eq!((error.line, error.reason.as_str()), (line, reason), "{body:?}");
    }
}

#[test]
fn what_is_not_utf8_is_refused_with_its_line() {
    for format in [Format::OpenMetrics, Format::Text] {
        let error = parse(b"a 1\nb{x=\"\xff\"} 1\n# EOF\n", format).unwrap_err();
        assert_eq!((error.line, error.reason.as_str()), (2, "not UTF-8"));
    }
}

#[test]
fn a_label_crafted_as_a_series_remains_a_label() {
    let body = "# TYPE a gauge\na{x=\"a\\\"} 1\\nfake_metric 42\\n#\"} 1\n# EOF\n";
    let parsed = om(body).unwrap();
    assert_eq!(parsed.samples().count(), 1);
    assert_eq!(parsed.samples().next().unwrap().label("x"), Some("a\"} 1\nfake_metric 42\n#"));
}

#[test]
fn numbers_are_those_of_the_specification() {
    for (text, value) in [
        ("1", 1.0),
        ("-0.5", -0.5),
        ("+1.", 1.0),
        (".5", 0.5),
        ("1e+09", 1e9),
        ("1E-3", 1e-3),
        ("+Inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("infinity", f64::INFINITY),
    ] {
        assert_eq!(sample::number(text), Some(value), "{text}");
    }
    assert!(sample::number("NaN").is_some_and(f64::is_nan));
    for text in ["", "+", ".", "e5", "1e", "0x1", "1_0", "--1", "+NaN", "1.2.3", "١"] {
        assert_eq!(sample::number(text), None, "{text}");
    }
}

#[test]
fn exemplars_and_timestamps_are_accepted_where_they_may_be() {
    let body =
        "# TYPE a counter\na_total{x=\"1\"} 3 1.5 # {trace=\"t\"} 1 2.5\na_created{x=\"1\"} 1\n# EOF\n";
    assert_eq!(om(body).unwrap().families[0].samples[0].timestamp.as_deref(), Some("1.5"));
}

#[test]
fn formats_are_known_by_their_content_type() {
    for (header, format) in [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", Some(Format::OpenMetrics)),
        ("text/plain; version=0.0.4; charset=utf-8", Some(Format::Text)),
        ("text/plain; charset=utf-8", None),
        ("application/openmetrics-text; version=0.0.1", None),
    ] {
        assert_eq!(Format::of_content_type(header), format, "{header}");
    }
}
