//! Files of a job with any names and values: what is read from them is what went in, and no name becomes something else.

use std::sync::LazyLock;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use job_files::table::{By, Layout, Table, name};
use job_files::{anonymize, clustercockpit, csv, json, parquet, supremm};
use job_report::{Curve, Curves, Gpu, Job, Node, Part, Report, Thresholds, metric};
use jobledger_exporter_fuzz::typed;
use serde_json::Value;

static THRESHOLDS: LazyLock<Thresholds> = LazyLock::new(|| Thresholds::shipped().expect("they are shipped"));

type Input = (String, String, Vec<(String, String, Vec<f64>)>, f64, bool);

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(user, cluster, nodes, start, force): Input| {
        let mut curves = Curves::new(start, start + 150.0, 60.0);
        let mut job = empty(user, cluster);
        for (at, (node, gpu, values)) in nodes.into_iter().take(8).enumerate() {
            let task = |task| Part { step: gpu.clone(), task, ..Part::default() };
            let parts = vec![task(None), task(Some(node.clone()))];
            let gpus = vec![Gpu { uuid: gpu, ..Gpu::default() }];
            job.nodes.push(Node { name: node, start, end: Some(start + 150.0), seen_until: start + 150.0, gpus, parts, ..Node::default() });
            let curve = |metric, gpu, part| Curve { metric, node: Some(at), gpu, part, values: values.clone() };
            curves.curves.push(curve(&metric::MEMORY_USED_BYTES, None, None));
            curves.curves.push(curve(&metric::GPU_BUSY_SECONDS, Some(0), None));
            curves.of_parts.push(curve(&metric::MEMORY_USED_BYTES, None, Some(0)));
            curves.of_parts.push(curve(&metric::CPU_SECONDS, None, Some(1)));
        }
        job.curves = Some(curves);
        for by in [By::Node, By::Gpu, By::Job, By::Step, By::Task] {
            let table = Table::new(&job, by).expect("there are curves");
            wide_csv(&table);
            for layout in [Layout::Wide, Layout::Long] {
                tables_agree(&job, &table, layout);
            }
        }
        documents(&job, force);
        anonymous(job);
    });
}

fn empty(user: String, cluster: String) -> Job {
    Job {
        id: 1,
        cluster: Some(cluster),
        identity: job_report::Identity { user: user.clone(), name: user, ..Default::default() },
        run: 1,
        runs: 1,
        ended: None,
        time_limit: None,
        nodes_allocated: None,
        queued_seconds: None,
        nodes: Vec::new(),
        curves: None,
        grams_per_joule: None,
        restarts: None,
        evidence: job_report::Evidence::default(),
    }
}

fn wide_csv(table: &Table<'_>) {
    let mut bytes = Vec::new();
    csv::write(table, Layout::Wide, &mut bytes).expect("a vector takes all");
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(bytes.as_slice());
    let mut records = reader.records().map(|record| record.expect("as many fields in each row"));
    let header = records.next().expect("a header");
    let keys = header.len() - table.metrics.len();
    assert!(header.iter().skip(keys).eq(table.metrics.iter().map(|metric| name(metric))));
    for block in &table.blocks {
        for row in block.rows.clone() {
            let record = records.next().expect("a row for each bin");
            for (text, found) in block.names().iter().copied().zip(record.iter().skip(1)) {
                assert!(!found.starts_with(['=', '+', '-', '@', '\t', '\r']), "{found:?} is a formula");
                assert!(found == text || found.strip_prefix('\'') == Some(text), "{found:?} of {text:?}");
            }
            for (column, found) in record.iter().skip(keys).enumerate() {
                assert_eq!(found.parse::<f64>().ok().map(f64::to_bits), block.value(column, row).map(f64::to_bits), "{found:?}");
            }
        }
    }
    assert!(records.next().is_none());
}

fn tables_agree(job: &Job, table: &Table<'_>, layout: Layout) {
    let (mut lines, mut file) = (Vec::new(), Vec::new());
    csv::write(table, layout, &mut lines).expect("a vector takes all");
    parquet::write(job, table, layout, &mut file).expect("a vector takes all");
    let lines = ::csv::Reader::from_reader(lines.as_slice()).into_records().count();
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).expect("a file");
    let rows = reader.get_row_iter(None).expect("rows");
    assert_eq!(rows.inspect(|row| assert!(row.is_ok())).count(), lines);
}

fn documents(job: &Job, force: bool) {
    let mut bytes = Vec::new();
    let report = Report::new(job.clone(), &THRESHOLDS, Vec::new());
    json::write(&report, &mut bytes).expect("a vector takes all");
    let document: Value = serde_json::from_slice(&bytes).expect("a document");
    assert_eq!(document["job"]["identity"]["user"], job.identity.user.as_str());
    for (series, curve) in document["curves"]["metrics"]["memory_used_bytes"]["series"].as_array().into_iter().flatten().zip(&job.nodes) {
        assert_eq!(series["node"], curve.name.as_str());
    }
    let options = clustercockpit::Options { force, ..clustercockpit::Options::default() };
    match clustercockpit::Record::new(job, &options) {
        Ok(record) => {
            assert!(force, "flops_any is not known");
            let (mut meta, mut data) = (Vec::new(), Vec::new());
            record.write_meta(&mut meta).expect("a vector takes all");
            record.write_data(&mut data).expect("a vector takes all");
            let meta: Value = serde_json::from_slice(&meta).expect("a document");
            assert_eq!(meta["user"], job.identity.user.as_str());
            serde_json::from_slice::<Value>(&data).expect("a document");
        }
        Err(error) => assert!(!force, "{error}"),
    }
    if let Ok(directory) = clustercockpit::directory(job) {
        assert_eq!(directory.components().count(), 4, "{directory:?}");
        assert!(directory.components().all(|part| matches!(part, std::path::Component::Normal(_))), "{directory:?}");
    }
    let mut bytes = Vec::new();
    if supremm::write(job, &supremm::Options::default(), &mut bytes).is_ok() {
        let document: Value = serde_json::from_slice(&bytes).expect("a document");
        assert_eq!(document["acct"]["host_list"].as_array().map(Vec::len), Some(job.nodes.len()));
    }
}

fn anonymous(mut job: Job) {
    let before = job.clone();
    anonymize::anonymize(&mut job, &[7; anonymize::KEY_BYTES]).expect("the key is long enough");
    for (one, other) in job.nodes.iter().zip(&before.nodes) {
        assert_eq!(one.name.is_empty(), other.name.is_empty());
        assert!(one.name.is_empty() || one.name.starts_with("node-") && one.name.len() == 21);
    }
    for (one, another) in before.nodes.iter().zip(before.nodes.iter().skip(1)) {
        let token = |of: &Node| before.nodes.iter().position(|node| node == of).and_then(|at| job.nodes.get(at)).map(|node| &node.name);
        assert_eq!(one.name == another.name, token(one) == token(another));
    }
}
