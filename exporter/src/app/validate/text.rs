//! The same for people.

use std::fmt::Write;
use std::path::Path;

use counter_validation::{Facts, Results, Row, Verdict};

pub(super) fn text(results: &Results, left: Option<&Path>) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut page, results, left);
    page
}

fn write_all(page: &mut String, results: &Results, left: Option<&Path>) -> std::fmt::Result {
    let Facts { microarchitecture, cpu_model, kernel, microcode, .. } = &results.node;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    writeln!(
        page,
        "{} ({}), microcode {}, Linux {kernel}",
        known(microarchitecture),
        known(cpu_model),
        known(microcode)
    )?;
    if let Some(counted_as) = &results.counted_as {
        let how = match (counted_as.mode.as_str(), &counted_as.why) {
            ("cgroup", _) => "by a cgroup of their own, as jobs are".to_owned(),
            (_, Some(why)) => format!("by CPU, whoever runs there, since {why}"),
            _ => "by CPU, whoever runs there".to_owned(),
        };
        writeln!(page, "Loops are counted {how}\n")?;
    }
    write_rows(page, &results.rows)?;
    if !results.absent.is_empty() {
        writeln!(page, "\nNot compared")?;
        let width = results.absent.iter().map(|missing| missing.what.len()).max().unwrap_or(0);
        for missing in &results.absent {
            writeln!(page, "  {:width$}  {}", missing.what, missing.why)?;
        }
    }
    if let Some(peaks) = &results.peaks {
        writeln!(page, "\nAll CPUs together did at most")?;
        if let Some(bytes) = peaks.memory_bytes_per_second {
            writeln!(page, "  {:>10}B/s from and to memory", number(bytes))?;
        }
        for peak in &peaks.flops {
            writeln!(page, "  {:>10}FLOP/s {}, {}", number(peak.per_second), peak.precision, peak.width)?;
        }
    }
    writeln!(page)?;
    match results.verdict {
        Some(Verdict::Pass | Verdict::Absent) => {
            writeln!(page, "All that was compared is within its limits")?
        }
        Some(verdict) => writeln!(page, "Verdict: {}", words(verdict))?,
        None => {}
    }
    if let Some(file) = left {
        writeln!(page, "The results are in {}, which the exporter reads at its start", file.display())?;
    }
    Ok(())
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Absent => "absent",
        Verdict::NeverRan => "never ran",
        Verdict::Off => "OFF",
    }
}

/// By quantity. What was to be nothing and is nothing has no row.
fn write_rows(page: &mut String, rows: &[Row]) -> std::fmt::Result {
    let (shown, nothing): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.known_most > 0.0 || row.verdict != Verdict::Pass);
    if shown.is_empty() {
        return Ok(());
    }
    let mut quantities: Vec<(&str, &str)> = Vec::new();
    for row in &shown {
        let quantity = (row.quantity.as_str(), row.counted_by.as_str());
        if !quantities.contains(&quantity) {
            quantities.push(quantity);
        }
    }
    let head =
        ["quantity", "by", "loop", "CPU", "known", "counted", "off by", "limit", "counted for", "verdict"];
    let mut table: Vec<[String; 10]> = vec![head.map(str::to_owned)];
    for (quantity, by) in quantities {
        let of_it = |row: &&&Row| row.quantity == quantity && row.counted_by == by;
        table.extend(shown.iter().filter(of_it).map(|row| cells(row)));
    }
    let width =
        |column: usize| table.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in &table {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(page, "{}", line.join("  ").trim_end())?;
    }
    if !nothing.is_empty() {
        writeln!(page, "{} more counts are 0, as they should be", nothing.len())?;
    }
    Ok(())
}

fn cells(row: &Row) -> [String; 10] {
    let percent = |part: f64| format!("{:+.2} %", part * 100.0);
    let none = || "-".to_owned();
    let known = if row.known_least < row.known_most {
        format!("{} to {}", number(row.known_least).trim_end(), number(row.known_most).trim_end())
    } else {
        number(row.known_least).trim_end().to_owned()
    };
    let verdict = words(row.verdict);
    [
        row.quantity.clone(),
        row.counted_by.replace('_', " "),
        row.kernel.clone(),
        row.cpu.to_string(),
        known,
        row.counted.map_or_else(none, |counted| number(counted).trim_end().to_owned()),
        row.off_by.map_or_else(none, percent),
        format!("{:.0} %", row.limit * 100.0),
        row.running.map_or_else(none, |running| format!("{:.0} %", running * 100.0)),
        row.why.as_ref().map_or_else(|| verdict.to_owned(), |why| format!("{verdict}: {why}")),
    ]
}

/// Five digits and a prefix of the SI: `1.2346 G`, `0 `.
fn number(value: f64) -> String {
    let prefixes = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match prefixes.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, prefix)) => format!("{:.4} {prefix}", value / size),
        None => format!("{value:.0} "),
    }
}

#[cfg(test)]
mod tests {
    use counter_validation::Peaks;
    use counter_validation::results::{CountedAs, FORMAT, FlopsPeak, Missing};

    use super::*;

    fn row(
        quantity: &str,
        known: (f64, f64),
        counted: Option<f64>,
        off_by: Option<f64>,
        verdict: Verdict,
    ) -> Row {
        Row {
            quantity: quantity.into(),
            counted_by: "cores".into(),
            kernel: "triad".into(),
            cpu: 7,
            known_least: known.0,
            known_most: known.1,
            counted,
            off_by,
            limit: 0.1,
            running: counted.map(|_| 0.25),
            verdict,
            why: (verdict == Verdict::NeverRan).then(|| "its group never had counters".into()),
        }
    }

    #[test]
    fn the_table_shows_what_is_known_what_was_counted_and_what_follows() {
        let peak = FlopsPeak { precision: "double".into(), width: "256".into(), per_second: 1.25e12 };
        let results = Results {
            format: FORMAT,
            exporter: "0".into(),
            date: "2026-11-27".into(),
            node: Facts {
                microarchitecture: Some("Zen 3".into()),
                kernel: "6.18".into(),
                ..Facts::default()
            },
            verdict: Some(Verdict::Off),
            counted_as: Some(CountedAs { mode: "cpus".into(), why: Some("there is no cgroup v2".into()) }),
            rows: vec![
                row("memory loads", (1.28e9, 1.92e9), Some(3.84e9), Some(1.5), Verdict::Off),
                row("flops double 256", (1e9, 1e9), None, None, Verdict::NeverRan),
                row("flops single any", (0.0, 0.0), Some(0.0), Some(0.0), Verdict::Pass),
                row("instructions", (5e8, 5e8), Some(501_250_000.0), Some(0.0025), Verdict::Pass),
            ],
            absent: vec![Missing { what: "resctrl".into(), why: "it is not mounted".into() }],
            peaks: Some(Peaks { memory_bytes_per_second: Some(2.5e11), flops: vec![peak] }),
        };
        let page = text(&results, Some(Path::new("/x/counters.json")));
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines,
            [
                "Zen 3 (unknown), microcode unknown, Linux 6.18",
                "Loops are counted by CPU, whoever runs there, since there is no cgroup v2",
                "",
                "quantity          by     loop   CPU  known                 counted     off by     limit  counted for  verdict",
                "memory loads      cores  triad  7    1.2800 G to 1.9200 G  3.8400 G    +150.00 %  10 %   25 %         OFF",
                "flops double 256  cores  triad  7    1.0000 G              -           -          10 %   -            never ran: its group never had counters",
                "instructions      cores  triad  7    500.0000 M            501.2500 M  +0.25 %    10 %   25 %         pass",
                "1 more counts are 0, as they should be",
                "",
                "Not compared",
                "  resctrl  it is not mounted",
                "",
                "All CPUs together did at most",
                "  250.0000 GB/s from and to memory",
                "    1.2500 TFLOP/s double, 256",
                "",
                "Verdict: OFF",
                "The results are in /x/counters.json, which the exporter reads at its start",
            ]
        );
    }
}
