//! A real Prometheus is asked.

use std::time::Duration;

use jobledger_testkit::servers::Prometheus;
use prometheus_api::{Client, Error, Kind, Options, Range};

const RULES: &str = "groups:\n- name: g\n  rules:\n  - {record: 'a:b:sum', expr: 'vector(1)'}\n  - {alert: A, expr: 'vector(0) > 1'}\n";

fn config(address: &str) -> String {
    format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n\
         scrape_configs:\n- job_name: self\n  static_configs: [{{targets: ['{address}']}}]\n"
    )
}

#[tokio::test]
async fn a_real_prometheus_answers_everything() {
    let server = Prometheus::start(&config("localhost:1"), &[("rules.yml", RULES)]);
    let found = server.wait_for("count_over_time(a:b:sum[5m]) >= 3", |found| !found.is_empty());
    assert_eq!(found.len(), 1);
    let options = Options { url: format!("http://{}/", server.address()), ..Options::default() };
    let client = Client::new(&options).unwrap();
    let now = client.query("time()", 1e9).await.unwrap();
    assert_eq!((now.len(), now[0].value, now[0].time), (1, 1e9, 1e9));
    assert!(now[0].labels.iter().next().is_none());
    let odd = client.query("vector(NaN) or on() vector(1)", 5.0).await.unwrap();
    assert!(odd[0].value.is_nan());
    assert_eq!(client.query("vector(1) / 0", 5.0).await.unwrap()[0].value, f64::INFINITY);

    let whole = Range { start: 1e9, end: 1e9 + 99.9, step: 0.7 };
    let expr = "vector(time()) * 3 or label_replace(vector(time()), 'a', 'b\"ä', '', '') > 1000000050";
    let one = client.query_range(expr, whole).await.unwrap();
    assert_eq!((one.len(), one[0].points.len()), (2, 143));
    let parted = Client::new(&Options { max_points: 7, ..options.clone() }).unwrap();
    assert_eq!(parted.query_range(expr, whole).await.unwrap(), one);
    assert_eq!(parted.log().len(), 21);
    let series = &client.log()[3];
    assert_eq!((series.expr.as_str(), series.series), (expr, 2));
    assert_eq!(series.points, one.iter().map(|series| series.points.len()).sum::<usize>());

    let now = client.query("timestamp(a:b:sum)", server.query("time()")[0].value).await.unwrap()[0].value;
    let raw = client.query_samples("a:b:sum", 3600.0, now).await.unwrap();
    assert_eq!(raw.len(), 1);
    assert!(raw[0].points.len() >= 3 && raw[0].points.iter().all(|(_, value)| *value == 1.0));
    let last = raw[0].points.last().unwrap().0;
    let only_last = client.query_samples("a:b:sum", 0.001, last).await.unwrap();
    assert_eq!(only_last[0].points, [(last, 1.0)]);
    // Of just the beginning, whatever the version: the sample before the one of the end is exactly a second older.
    let second = client.query_samples("a:b:sum", 1.0, last).await.unwrap();
    assert_eq!(second[0].points, [(last, 1.0)]);

    let sets = client.series(&["a:b:sum".to_owned()], now - 60.0, now).await.unwrap();
    assert_eq!((sets.len(), sets[0].name()), (1, Some("a:b:sum")));
    assert!(client.build_info().await.unwrap().version.unwrap().contains('.'));
    assert!(client.flags().await.unwrap().contains_key("storage.tsdb.retention.time"));
    assert_eq!(client.recording_rules().await.unwrap().into_iter().collect::<Vec<_>>(), ["a:b:sum"]);

    let error = client.query("sum(", 1.0).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { status: 400, says, .. } if says.contains("parse error")),
        "{error}"
    );
    let many = Client::new(&Options { max_points: 20_000, ..options.clone() }).unwrap();
    let error =
        many.query_range("vector(1)", Range { start: 0.0, end: 12_000.0, step: 1.0 }).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    let error = client.query("a:b:sum[1m]", now).await.unwrap_err();
    assert_eq!(error.to_string(), "the query gives series, not single values");
    let few = Client::new(&Options { max_series: 1, ..options.clone() }).unwrap();
    let error = few.query("vector(1) or label_replace(vector(1), 'a', 'b', '', '')", 1.0).await.unwrap_err();
    assert_eq!(error, Error::TooManySeries(1));
    let wrong = Client::new(&Options { url: format!("{}nowhere", options.url), ..options.clone() }).unwrap();
    let error = wrong.query("1", 1.0).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    let late = Client::new(&Options { timeout: Duration::from_millis(1), ..options }).unwrap();
    let error = late.query("count_over_time(vector(1)[100d:1s])", 1e9).await.unwrap_err();
    assert_eq!(
        error.kind(),
        if matches!(error, Error::Timeout { .. }) { Kind::Network } else { Kind::Limit }
    );
}
