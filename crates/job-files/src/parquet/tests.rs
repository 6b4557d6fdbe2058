use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;

use super::*;
use crate::sample;
use crate::table::By;

fn reader(job: &Job, by: By, layout: Layout) -> SerializedFileReader<File> {
    let mut file = tempfile::tempfile().unwrap();
    write(job, &Table::new(job, by).unwrap(), layout, &mut file).unwrap();
    SerializedFileReader::new(file).unwrap()
}

use std::fs::File;

fn rows(reader: &SerializedFileReader<File>) -> Vec<Vec<Field>> {
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect()).collect()
}

#[test]
fn wide_by_node_has_a_group_for_each_node_and_nulls_for_gaps() {
    let job = sample::job();
    let reader = reader(&job, By::Node, Layout::Wide);
    assert_eq!(reader.metadata().num_row_groups(), 2);
    let rows = rows(&reader);
    assert_eq!(rows.len(), 10);
    let at = |milliseconds| Field::TimestampMillis(milliseconds);
    assert_eq!(rows[0][..3], [at(1_700_000_060_000), Field::Str("b01".to_owned()), Field::Double(0.5)]);
    // time, node, cpu, user, system, peak, used, energy, busy.
    assert_eq!(rows[6][1], Field::Str(sample::NODE.to_owned()));
    assert_eq!(
        rows[6][5..],
        [Field::Null, Field::Null, Field::Null, Field::Double(0.25), Field::Double(0.75)]
    );
    assert_eq!(rows[9][..2], [at(1_700_000_270_000), Field::Str(sample::NODE.to_owned())]);
    assert_eq!(rows[9][6], Field::Double(1e9 / 3.0));
}

#[test]
fn by_gpu_the_gpus_of_a_node_are_a_group() {
    let job = sample::job();
    let reader = reader(&job, By::Gpu, Layout::Wide);
    let groups: Vec<_> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [10, 5]);
    let gpus: Vec<_> = rows(&reader).iter().map(|row| (row[2].to_string(), row[3].clone())).collect();
    assert_eq!(gpus[7], ("\"1\"".to_owned(), Field::Double(0.5)));
}

#[test]
fn long_has_the_rows_of_the_same_csv() {
    let job = sample::job();
    for by in [By::Node, By::Gpu, By::Job] {
        let table = Table::new(&job, by).unwrap();
        let mut csv = Vec::new();
        crate::csv::write(&table, Layout::Long, &mut csv).unwrap();
        let lines = ::csv::Reader::from_reader(csv.as_slice()).into_records().count();
        let rows = rows(&reader(&job, by, Layout::Long));
        assert_eq!(rows.len(), lines, "{by:?}");
        let first: Vec<_> = rows[0].iter().rev().take(3).map(Field::to_string).collect();
        let (name, unit) = (name(table.metrics[0]), unit(table.metrics[0]));
        assert_eq!(first[1..], [format!("\"{unit}\""), format!("\"{name}\"")]);
    }
}

#[test]
fn the_footer_says_what_the_job_is() {
    let job = sample::job();
    let reader = reader(&job, By::Node, Layout::Wide);
    let footer = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let get = |key: &str| footer.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
    assert_eq!(get("jobledger.schema"), Some("1"));
    assert_eq!((get("jobledger.job_id"), get("jobledger.user")), (Some("12345"), Some(sample::USER)));
    assert_eq!((get("jobledger.qos"), get("jobledger.name")), (None, Some(sample::NAME)));
    assert_eq!(get("jobledger.start_milliseconds"), Some("1700000000000"));
    assert_eq!(get("jobledger.step_seconds"), Some("60"));
    let units: BTreeMap<String, String> = serde_json::from_str(get("jobledger.units").unwrap()).unwrap();
    assert_eq!(units["energy_package_joules_per_second"], "joules_per_second");
    assert_eq!(units.len(), 8);
}

/// 64 nodes for a day, 40 metrics each minute. Prints what it takes: `cargo test --release -p job-files -- --ignored --nocapture`.
#[test]
#[ignore = "prints sizes and times, which no test asserts"]
fn a_large_job() {
    use job_report::{Curve, Curves, Node, metric};
    let mut curves = Curves::new(sample::START, sample::START + 86_400.0, 60.0);
    let of_nodes = || metric::ALL.iter().filter(|metric| metric.level == metric::Level::Node).take(40);
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    for node in 0..64 {
        for metric in of_nodes() {
            let values = (0..1440).map(|bin| (1e9 * noise()).round() / 60.0 + f64::from(bin)).collect();
            curves.curves.push(Curve { metric, node: Some(node), gpu: None, part: None, values });
        }
    }
    let mut job = sample::job();
    job.nodes = (0..64).map(|node| Node { name: format!("node{node:03}"), ..Node::default() }).collect();
    job.curves = Some(curves);
    let table = Table::new(&job, By::Node).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let measure = |name: &str, write: &dyn Fn(&mut std::io::BufWriter<File>) -> Result<(), Error>| {
        let start = std::time::Instant::now();
        let path = directory.path().join(name);
        crate::atomic::write(&path, write).unwrap();
        println!("{name}: {} bytes, {:?}", std::fs::metadata(&path).unwrap().len(), start.elapsed());
    };
    println!("{} values", 64 * 1440 * of_nodes().count());
    measure("wide.parquet", &|to| write(&job, &table, Layout::Wide, to));
    measure("long.parquet", &|to| write(&job, &table, Layout::Long, to));
    measure("wide.csv", &|to| crate::csv::write(&table, Layout::Wide, to));
    let thresholds = job_report::Thresholds::shipped().unwrap();
    let report = job_report::Report::new(job.clone(), &thresholds, Vec::new());
    measure("report.json", &|to| crate::json::write(&report, to));
}
