//! `jobledger usage`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jiff::Timestamp;
use job_files::csv::guarded;
use job_report::show::digits;
use serde::Serialize;

use super::surroundings::{Surroundings, now, warn};
use crate::arguments::{self, UsageBy, UsageFormat};
use crate::formats::table::{self, Head, Row};
use crate::source::node_name;
use crate::source::prometheus::{Counter, Of, Usage, Used};
use crate::text::{harmless, wrapped};
use crate::{Failure, Kind, output};

const HOUR: f64 = 3600.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const KWH: f64 = 3.6e6;
const KG: f64 = 1000.0;

/// A column: its name in JSON and CSV, its head in a table, what it is of and in which unit, and whether only nodes have it.
struct Column {
    name: &'static str,
    head: &'static str,
    of: Number,
    unit: f64,
    of_nodes: bool,
}

/// Where a number comes from.
enum Number {
    Of(Counter),
    HeldWithoutEnergy,
    GpuHeldUnwatched,
}

const fn column(name: &'static str, head: &'static str, of: Number, unit: f64) -> Column {
    Column { name, head, of, unit, of_nodes: false }
}

const fn of_nodes(column: Column) -> Column {
    Column { of_nodes: true, ..column }
}

/// An empty head is of a column that a table does not have.
static COLUMNS: [Column; 15] = [
    column("job_ends", "job ends", Number::Of(Counter::JobsEnded), 1.0),
    column("cpu_hours_held", "cpu-h held", Number::Of(Counter::CpuHeld), HOUR),
    column("cpu_hours_used", "cpu-h used", Number::Of(Counter::CpuUsed), HOUR),
    of_nodes(column("cpu_hours_unattributed", "cpu-h unattr.", Number::Of(Counter::CpuUnattributed), HOUR)),
    column("gpu_hours_held", "gpu-h held", Number::Of(Counter::GpuHeld), HOUR),
    column("gpu_hours_busy", "gpu-h busy", Number::Of(Counter::GpuBusy), HOUR),
    column("gpu_hours_idle", "", Number::Of(Counter::GpuIdle), HOUR),
    of_nodes(column("gpu_hours_unattributed", "gpu-h unattr.", Number::Of(Counter::GpuUnattributed), HOUR)),
    column("gpu_hours_held_unwatched", "", Number::GpuHeldUnwatched, HOUR),
    column("memory_gib_hours_held", "gib-h held", Number::Of(Counter::MemoryHeld), HOUR * GIB),
    column("energy_kwh", "kwh", Number::Of(Counter::Energy), KWH),
    of_nodes(column("energy_kwh_unattributed", "kwh unattr.", Number::Of(Counter::EnergyUnattributed), KWH)),
    column("cpu_hours_held_without_energy", "cpu-h of no kwh", Number::HeldWithoutEnergy, HOUR),
    column("co2_kg", "co2 kg", Number::Of(Counter::Co2), KG),
    of_nodes(column("co2_kg_unattributed", "co2 unattr.", Number::Of(Counter::Co2Unattributed), KG)),
];

impl Column {
    fn value(&self, used: &Used) -> Option<f64> {
        let amount = match self.of {
            Number::Of(counter) => used.amounts.get(&counter).copied(),
            Number::HeldWithoutEnergy => Some(used.held_without_energy),
            Number::GpuHeldUnwatched => Some(used.gpu_held_unwatched),
        };
        amount.map(|amount| amount / self.unit)
    }
}

/// A row, or the total.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(flatten)]
    numbers: BTreeMap<&'static str, Option<f64>>,
}

#[derive(Debug, Serialize)]
struct Document {
    since: String,
    until: String,
    by: &'static str,
    rows: Vec<Line>,
    total: Line,
    notes: Vec<String>,
}

pub(super) async fn run(options: &arguments::Usage, surroundings: &Surroundings) -> Result<(), Failure> {
    let selection = surroundings.selection(&options.whose)?;
    let source = &surroundings.source;
    let (of, by) = match options.by {
        UsageBy::User => (Of::Label("user"), "user"),
        UsageBy::Account => (Of::Label("account"), "account"),
        UsageBy::Partition => (Of::Label("partition"), "partition"),
        UsageBy::Node => (Of::Node, "node"),
    };
    let now = now();
    let mut usage = source.usage(of, &selection, now).await?;
    if usage.rows.is_empty() {
        let says = usage
            .notes
            .iter()
            .fold(String::from("no owner held anything in that time"), |says, note| says + "; " + note);
        return Err(Failure::new(Kind::NotFound, says));
    }
    let rows = sorted(&mut usage, options.by);
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|column| !column.of_nodes || options.by == UsageBy::Node).collect();
    let total = total(rows.iter().map(|(_, used)| used));
    let bytes = match options.format {
        UsageFormat::Json => {
            let time = |at: f64| time(at, surroundings);
            let line = |(cluster, name): &(String, String), used: &Used| Line {
                name: Some(name.clone()),
                cluster: Some(cluster.clone()),
                numbers: numbers(&columns, used),
            };
            output::json(&Document {
                since: time(source.until - source.window),
                until: time(source.until.min(now)),
                by,
                rows: rows.iter().map(|(of, used)| line(of, used)).collect(),
                total: Line { name: None, cluster: None, numbers: numbers(&columns, &total) },
                notes: usage.notes,
            })?
        }
        UsageFormat::Csv => {
            usage.notes.iter().for_each(|note| warn(note));
            csv(by, &columns, &rows).into_bytes()
        }
        UsageFormat::Table => {
            text(by, &columns, &rows, &total, &usage.notes, surroundings.width).into_bytes()
        }
    };
    output::write(None, &bytes)
}

/// In the zone of times that are shown.
fn time(at: f64, surroundings: &Surroundings) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "a time of the command line")]
    let at = Timestamp::from_second(at.round() as i64).unwrap_or_default();
    at.to_zoned(surroundings.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

type Named = ((String, String), Used);

/// The most that was held comes first. Nodes have their names, whose ports are left out where that leaves them apart.
fn sorted(usage: &mut Usage, by: UsageBy) -> Vec<Named> {
    let rows = std::mem::take(&mut usage.rows);
    let mut times: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (cluster, name) in rows.keys() {
        *times.entry((cluster.clone(), node_name(name, ""))).or_default() += 1;
    }
    let named = |((cluster, name), used): Named| {
        let node = node_name(&name, "");
        let is_one = times.get(&(cluster.clone(), node.clone())) == Some(&1);
        let name = if by == UsageBy::Node && is_one { node } else { harmless(&name) };
        ((harmless(&cluster), name), used)
    };
    let mut rows: Vec<Named> = rows.into_iter().map(named).collect();
    let held = |used: &Used| used.amounts.get(&Counter::CpuHeld).copied().unwrap_or(0.0);
    rows.sort_by(|(_, a), (_, b)| held(b).total_cmp(&held(a)));
    rows
}

fn total<'a>(rows: impl Iterator<Item = &'a Used>) -> Used {
    rows.fold(Used::default(), |mut total, used| {
        for (counter, amount) in &used.amounts {
            *total.amounts.entry(*counter).or_default() += amount;
        }
        total.held_without_energy += used.held_without_energy;
        total.gpu_held_unwatched += used.gpu_held_unwatched;
        total
    })
}

fn numbers(columns: &[&Column], used: &Used) -> BTreeMap<&'static str, Option<f64>> {
    columns.iter().map(|column| (column.name, column.value(used))).collect()
}

fn csv(by: &str, columns: &[&Column], rows: &[Named]) -> String {
    let names = ["cluster", by].into_iter().chain(columns.iter().map(|column| column.name));
    let mut text = names.collect::<Vec<_>>().join(",") + "\r\n";
    let quoted = |text: &str| match guarded(text) {
        text if text.contains([',', '"', '\r', '\n']) => format!("\"{}\"", text.replace('"', "\"\"")),
        text => text.into_owned(),
    };
    for ((cluster, name), used) in rows {
        // A String takes all that is written.
        let _ = write!(text, "{},{}", quoted(cluster), quoted(name));
        for column in columns {
            let _ =
                write!(text, ",{}", column.value(used).map(|value| value.to_string()).unwrap_or_default());
        }
        text.push_str("\r\n");
    }
    text
}

fn text(
    by: &'static str,
    columns: &[&Column],
    rows: &[Named],
    total: &Used,
    notes: &[String],
    width: usize,
) -> String {
    // What nobody has is no column.
    let has = |column: &&&Column| {
        !column.head.is_empty()
            && column.value(total).is_some_and(|value| value > 0.0 || matches!(column.of, Number::Of(_)))
    };
    let columns: Vec<&&Column> = columns.iter().filter(has).collect();
    let clusters: BTreeSet<&str> = rows.iter().map(|((cluster, _), _)| cluster.as_str()).collect();
    let several = clusters.len() > 1;
    let mut heads = vec![Head { name: by, number: false }];
    heads.extend(several.then_some(Head { name: "cluster", number: false }));
    heads.extend(columns.iter().map(|column| Head { name: column.head, number: true }));
    let row = |name: &str, cluster: &str, used: &Used| -> Row {
        let words = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut row = vec![words(name)];
        row.extend(several.then(|| words(cluster)));
        row.extend(columns.iter().map(|column| column.value(used).map(digits)));
        row
    };
    let mut lines: Vec<Row> = rows.iter().map(|((cluster, name), used)| row(name, cluster, used)).collect();
    lines.push(row("total", "", total));
    let mut page = table::text(&heads, &lines);
    for note in notes {
        for (at, line) in wrapped(note, width.saturating_sub(2)).iter().enumerate() {
            // A String takes all that is written.
            let _ = writeln!(page, "{}{line}", if at == 0 { "- " } else { "  " });
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(held: f64, energy: Option<f64>) -> Used {
        let mut amounts = BTreeMap::from([(Counter::CpuHeld, held * HOUR)]);
        amounts.extend(energy.map(|kwh| (Counter::Energy, kwh * KWH)));
        Used {
            amounts,
            held_without_energy: if energy.is_none() { held * HOUR } else { 0.0 },
            gpu_held_unwatched: 0.0,
        }
    }

    fn rows(by: UsageBy, names: &[(&str, &str, Used)]) -> Vec<Named> {
        let rows = names
            .iter()
            .map(|(cluster, name, used)| (((*cluster).to_owned(), (*name).to_owned()), used.clone()));
        sorted(&mut Usage { rows: rows.collect(), notes: Vec::new() }, by)
    }

    fn columns() -> Vec<&'static Column> {
        COLUMNS.iter().filter(|column| !column.of_nodes).collect()
    }

    #[test]
    fn a_table_has_a_total_and_what_it_lacks() {
        let rows = rows(UsageBy::User, &[("", "alice", used(2.0, None)), ("", "", used(5.0, Some(1.5)))]);
        let total = total(rows.iter().map(|(_, used)| used));
        assert_eq!(
            text("user", &columns(), &rows, &total, &["one thing".to_owned()], 80),
            "USER   CPU-H HELD  KWH  CPU-H OF NO KWH\n\
             -               5  1.5                0\n\
             alice           2    -                2\n\
             total           7  1.5                2\n\
             - one thing\n"
        );
    }

    #[test]
    fn a_hostile_name_is_no_formula() {
        let rows = rows(UsageBy::User, &[("a,b", "=cmd|\"x\"", used(0.5, None))]);
        let csv = csv("user", &columns(), &rows);
        let lines: Vec<&str> = csv.split("\r\n").collect();
        assert!(lines[0].starts_with("cluster,user,job_ends,cpu_hours_held,"));
        assert!(lines[1].starts_with("\"a,b\",\"'=cmd|\"\"x\"\"\",,0.5,,"), "{csv}");
    }

    #[test]
    fn nodes_keep_their_port_where_it_is_all_that_differs() {
        let of = |names: [&str; 3]| {
            let names = names.map(|name| ("c", name, used(1.0, None)));
            rows(UsageBy::Node, &names).into_iter().map(|((_, name), _)| name).collect::<Vec<_>>()
        };
        assert_eq!(of(["n1:9810", "n2:9810", "n2:9811"]), ["n1", "n2:9810", "n2:9811"]);
    }
}
