//! The same for people.

use std::fmt::Write;

use super::{CoreReport, EventReport, Published, Report};

pub(super) fn text(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write_report(&mut page, report);
    page
}

fn on(state: bool) -> &'static str {
    if state { "on" } else { "off" }
}

fn write_report(page: &mut String, report: &Report) -> std::fmt::Result {
    let name = report.microarchitecture.as_deref().unwrap_or("a CPU that the catalogue does not have");
    writeln!(page, "{name}, SMT {}, NMI watchdog {}", on(report.smt), on(report.nmi_watchdog))?;
    let other = if report.plan == "full" { "essential" } else { "full" };
    writeln!(page, "The {} plan; --plan={other} shows the other", report.plan)?;
    match report.flops {
        Some("speculative") => {
            writeln!(
                page,
                "FLOPs are counted of speculatively executed operations: too many rather than too few"
            )?;
        }
        Some(_) => writeln!(page, "FLOPs are counted of retired instructions")?,
        None if !report.cores.is_empty() => writeln!(page, "FLOPs are not counted")?,
        None => {}
    }
    if !report.cores.is_empty() {
        let peak = &report.peak;
        write!(page, "Not believed: more than {} instructions", peak.instructions_per_cycle)?;
        if let Some(flops) = peak.flops_per_cycle {
            write!(page, " or {flops} FLOPs")?;
        }
        writeln!(page, " per cycle")?;
    }
    writeln!(page, "{} descriptors for each CPU of a job", report.descriptors_per_cpu)?;
    if let Some(advice) = &report.advice_on_turns {
        writeln!(page, "{advice}")?;
    }
    if report.assumed {
        writeln!(page, "Types of PMUs are the usual ones; a machine of this kind says its own")?;
    }
    for core in &report.cores {
        write_core(page, core)?;
    }
    if !report.software.is_empty() {
        writeln!(page, "\nCounted by the kernel, always")?;
        write_groups(page, &[("software", &report.software)])?;
    }
    if !report.absent.is_empty() {
        writeln!(page, "Not counted")?;
        let width = report.absent.iter().map(|absent| absent.what.len()).max().unwrap_or(0);
        for absent in &report.absent {
            writeln!(page, "  {:width$}  {}", absent.what, absent.why)?;
        }
    }
    let notes = |core: &CoreReport| core.notes.clone();
    let mut unique_notes: Vec<String> = Vec::new();
    for note in report.cores.iter().flat_map(notes) {
        if !unique_notes.contains(&note) {
            unique_notes.push(note);
        }
    }
    if !report.cores.is_empty() {
        unique_notes.push(
            "No count of these events has been compared with known work on this hardware by the authors yet; --validate does it here"
                .to_owned(),
        );
        writeln!(page, "\nNotes")?;
    }
    unique_notes.iter().try_for_each(|note| writeln!(page, "  {note}"))
}

fn write_core(page: &mut String, core: &CoreReport) -> std::fmt::Result {
    write!(page, "\nPMU {}", core.pmu)?;
    if let Some(cpus) = &core.cpus {
        write!(page, " (CPUs {cpus})")?;
    }
    let plural = if core.general_counters == 1 { "" } else { "s" };
    write!(page, ": {} general-purpose counter{plural}", core.general_counters)?;
    if !core.fixed_counters.is_empty() {
        write!(page, "; {} on their own", core.fixed_counters.join(", "))?;
    }
    let turns = match (core.groups.len(), core.takes_turns) {
        (1, _) => "one group, counted all the time".to_owned(),
        (groups, true) => format!("{groups} groups, which take turns"),
        (groups, false) => format!("{groups} groups, all counted all the time"),
    };
    writeln!(page, "; {turns}")?;
    if !core.verified {
        writeln!(page, "Its codes stand on one source that is not the vendor's, or on memory")?;
    }
    let groups: Vec<_> =
        core.groups.iter().map(|group| (group.name.as_str(), group.events.as_slice())).collect();
    write_groups(page, &groups)?;
    let unique_notes = |event: &&EventReport| event.note.is_some() || !event.verified;
    for event in core.groups.iter().flat_map(|group| &group.events).filter(unique_notes) {
        let note = event.note.as_deref().unwrap_or("its code is not the vendor's word");
        writeln!(page, "  {}: {note}", event.name)?;
    }
    if !core.sources.is_empty() {
        writeln!(page, "  codes from: {}", core.sources.join("; "))?;
    }
    Ok(())
}

/// Groups below each other, in the same columns.
fn write_groups(page: &mut String, groups: &[(&str, &[EventReport])]) -> std::fmt::Result {
    let head = |group: &str| {
        [&format!("group {group}"), "published as", "type", "config", "config1", "counters"]
            .map(str::to_owned)
    };
    let tables: Vec<Vec<[String; 6]>> = groups
        .iter()
        .map(|(name, events)| std::iter::once(head(name)).chain(events.iter().map(cells)).collect())
        .collect();
    let cell_width =
        |column: usize| tables.iter().flatten().filter_map(|row| row.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..6).map(|column| cell_width(column).unwrap_or(0)).collect();
    for table in &tables {
        for row in table {
            let line: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(page, "  {}", line.join("  ").trim_end())?;
        }
        writeln!(page)?;
    }
    Ok(())
}

fn cells(event: &EventReport) -> [String; 6] {
    let counters = event.counters.clone().unwrap_or_default();
    [
        event.name.clone(),
        format!("{}{}", words(&event.published), if event.minus { ", taken off" } else { "" }),
        event.r#type.to_string(),
        format!("{:#x}", event.config),
        if event.config1 == 0 { String::new() } else { format!("{:#x}", event.config1) },
        if event.pair { format!("{counters}, two of them") } else { counters },
    ]
}

fn words(published: &Published) -> String {
    let Published { what, precision, width, level, direction, each, part } = published;
    let mut words = (*what).to_owned();
    for word in [precision, width, level, direction, part].into_iter().flatten() {
        words.push(' ');
        words.push_str(word);
    }
    if matches!(*what, "FLOPs" | "cache traffic" | "memory loads") {
        let _ = write!(words, " x{each}");
    }
    words
}
