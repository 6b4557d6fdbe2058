use std::io::Read;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn parse(body: &str) -> Result<Answer<QueryResult>, String> {
    parse_answer(body.as_bytes(), 100).map_err(|error| error.to_string())
}

fn samples(result: &str) -> Vec<(String, f64, f64)> {
    let body = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#);
    let found = parse(&body).unwrap().data.unwrap().samples;
    found.iter().map(|sample| (sample.labels.to_string(), sample.time, sample.value)).collect()
}

#[test]
fn a_vector_and_a_scalar_are_samples() {
    assert_eq!(
        samples(
            r#"[{"metric":{"__name__":"up","job":"n"},"value":[1435781451.781,"1"]},{"metric":{},"value":[2,"-Inf"]}]"#
        ),
        [("up{job=\"n\"}".to_owned(), 1_435_781_451.781, 1.0), ("{}".to_owned(), 2.0, f64::NEG_INFINITY)]
    );
    assert_eq!(samples(r#"[1.5,"1.25e-7"]"#), [("{}".to_owned(), 1.5, 1.25e-7)]);
    assert_eq!(samples(r#"[-3,"+Inf"]"#), [("{}".to_owned(), -3.0, f64::INFINITY)]);
    assert!(samples(r#"[3,"NaN"]"#)[0].2.is_nan());
    assert!(samples("[]").is_empty());
}

#[test]
fn native_histograms_are_passed_over() {
    let histogram = r#"[1,{"count":"3","sum":"2","buckets":[[0,"1","2","3"]]}]"#;
    let value = r#"{"metric":{"a":"b"},"value":[1,"2"]}"#;
    assert_eq!(samples(&format!(r#"[{{"metric":{{}},"histogram":{histogram}}},{value}]"#)).len(), 1);
    let body = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"histograms":[{histogram}]}},
           {{"metric":{{}},"histograms":[{histogram}],"values":[[1,"2"]]}}]}}}}"#
    );
    let answer = parse(&body).unwrap();
    let result = answer.data.unwrap();
    assert_eq!((result.series.len(), result.series[0].points.clone()), (1, vec![(1.0, 2.0)]));
    assert_eq!((answer.series, answer.points), (2, 1));
}

#[test]
fn keys_come_in_any_order_and_others_do_not_matter() {
    let answer = parse(
        r#"{"isPartial":false,"infos":null,"warnings":["w"],"data":{"stats":{"a":[1]},"result":[1,"2"],"resultType":"scalar"},
           "trace":{},"infos":["i"],"status":"success"}"#,
    );
    let answer = answer.unwrap();
    assert_eq!((answer.success, answer.error), (true, None));
    assert_eq!((answer.warnings, answer.infos), (vec!["w".to_owned()], vec!["i".to_owned()]));
    assert_eq!(answer.data.unwrap().samples[0].value, 2.0);
    let partial = r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#;
    assert_eq!(parse(partial).unwrap().warnings, ["the answer is partial"]);
    let error = parse(r#"{"status":"error","errorType":"bad_data","error":"e","data":null}"#).unwrap();
    assert_eq!((error.success, error.error.as_deref(), error.data), (false, Some("e"), None));
}

#[test]
fn what_is_no_answer_is_refused() {
    for bad in [
        "",
        "{}",
        "[]",
        "<html>",
        r#"{"status":"ok"}"#,
        r#"{"status":"success","data":[]}"#,
        r#"{"status":"success","data":{}}"#,
        r#"{"status":"success","data":{"result":{}}}"#,
        r#"{"status":"success","data":{"result":["1"]}}"#,
        r#"{"status":"success","data":{"result":[1,"one"]}}"#,
        r#"{"status":"success","data":{"result":[null]}}"#,
        r#"{"status":"success","data":{"result":[{"metric":{},"value":[1,2]}]}}"#,
        r#"{"status":"success","data":{"result":[{"metric":{},"value":[1]}]}}"#,
        r#"{"status":"success","data":{"result":[{"metric":{},"value":[1,"2",3]}]}}"#,
        r#"{"status":"success","data":{"result":[{"metric":{"a":1},"value":[1,"2"]}]}}"#,
        r#"{"status":"success","data":{"result":[]}} x"#,
        r#"{"status":"success","data":{"result":[]}"#,
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    let deep = format!(r#"{{"status":"success","other":{}"#, "[".repeat(1_000_000));
    assert!(parse(&deep).is_err());
    let many =
        format!(r#"{{"status":"success","data":{{"result":[{}1]}}}}"#, r#"{"metric":{}},"#.repeat(101));
    assert_eq!(parse(&many).unwrap_err(), "more than 100 series");
}

#[test]
fn label_sets_are_read() {
    let body = r#"{"status":"success","data":[{"__name__":"a","b":"c"},{"__name__":"a"}]}"#;
    let answer = parse_answer::<LabelSets>(body.as_bytes(), 2).unwrap();
    let shown: Vec<_> = answer.data.unwrap().0.iter().map(ToString::to_string).collect();
    assert_eq!((shown, answer.series), (vec!["a{b=\"c\"}".to_owned(), "a{}".to_owned()], 2));
    let more = parse_answer::<LabelSets>(body.as_bytes(), 1);
    assert!(matches!(more, Err(NotAnAnswer::TooManySeries(1))));
}

/// Gives the bytes in pieces of these sizes, again and again.
struct Pieces<'a> {
    left: &'a [u8],
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let size = self.sizes.next().unwrap().min(into.len()).min(self.left.len());
        into[..size].copy_from_slice(&self.left[..size]);
        self.left = &self.left[size..];
        Ok(size)
    }
}

proptest! {
    #[test]
    fn an_answer_is_read_as_it_was_written_however_it_comes(
        series in vec(
            (vec(("[a-c_]{1,3}", "\\PC{0,5}"), 0..4), vec((-10_000_000_000_i64..10_000_000_000_000, any::<f64>()), 1..8)),
            0..5,
        ),
        sizes in vec(1..40_usize, 1..6),
    ) {
        let mut wanted = Vec::new();
        let mut parts = Vec::new();
        for (labels, points) in series {
            let labels: Labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let metric: serde_json::Map<_, _> =
                labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            let values: Vec<_> = points
                .iter()
                .map(|(time, value)| format!("[{},\"{value:?}\"]", crate::range::seconds(*time)))
                .collect();
            parts.push(format!(r#"{{"metric":{},"values":[{}]}}"#, serde_json::Value::from(metric), values.join(",")));
            let time = |time: i64| crate::range::seconds(time).parse::<f64>().unwrap();
            wanted.push((labels, points.iter().map(|(at, value)| (time(*at), value.to_bits())).collect::<Vec<_>>()));
        }
        let body = format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#, parts.join(", "));
        let pieces = Pieces { left: body.as_bytes(), sizes: sizes.into_iter().cycle() };
        let answer = parse_answer::<QueryResult>(pieces, 100).unwrap();
        let found: Vec<_> = answer
            .data
            .unwrap()
            .series
            .into_iter()
            .map(|series| {
                let points = series.points.iter().map(|(time, value)| (*time, value.to_bits()));
                (series.labels, points.collect::<Vec<_>>())
            })
            .collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn any_bytes_in_pieces_give_the_same_as_at_once(
        bytes in "\\{\"status\":\"(success|error)\",\"data\":[\\[\\]{}\":,a-z0-9\\\\]{0,40}\\}?",
        sizes in vec(1..9_usize, 1..4),
    ) {
        let pieces = Pieces { left: bytes.as_bytes(), sizes: sizes.into_iter().cycle() };
        let (whole, parts) = (parse(&bytes), parse_answer::<QueryResult>(pieces, 100));
        prop_assert_eq!(whole, parts.map_err(|error| error.to_string()));
    }
}
