use super::*;
use crate::sample;
use crate::table::By;

fn text(by: By, layout: Layout) -> String {
    let job = sample::job();
    let mut bytes = Vec::new();
    write(&Table::new(&job, by).unwrap(), layout, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn wide_by_job_is_this_file() {
    let expected = "time,cpu_seconds_per_second,cpu_user_seconds_per_second,cpu_system_seconds_per_second,memory_peak_bytes,memory_used_bytes,energy_package_joules_per_second,gpu_busy_seconds_per_second,gpu_idle_seconds_per_second\r\n\
        2023-11-14T22:14:20.000Z,1.5,1.2000000000000002,0.30000000000000004,4000000000,5000000000,100,1.25,1.75\r\n";
    let text = text(By::Job, Layout::Wide);
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(text.matches("\r\n").count(), 6);
}

#[test]
fn hostile_names_are_fields_and_no_formulas() {
    let text = text(By::Node, Layout::Wide);
    // Quotes are doubled, and the break is in quotes.
    let name = "\"'-b\"\"02\"\",\r\n../\u{202e}ä\"";
    let gap = format!("\r\n2023-11-14T22:15:20.000Z,{name},1,0.8,0.2,,,,0.25,0.75\r\n");
    assert!(text.contains(&gap), "{text}");
    for (name, safe) in [
        ("=1", "'=1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@a", "'@a"),
        ("\ta", "'\ta"),
        ("\ra", "'\ra"),
        ("a=1", "a=1"),
        ("", ""),
        ("b01", "b01"),
    ] {
        assert_eq!(guarded(name), safe);
    }
}

#[test]
fn long_has_a_row_for_each_value_and_gap_of_what_there_is() {
    let text = text(By::Gpu, Layout::Long);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,node,gpu,metric,unit,value"));
    assert_eq!(
        lines.next(),
        Some("2023-11-14T22:14:20.000Z,b01,0,gpu_busy_seconds_per_second,seconds_per_second,1")
    );
    // The name of the second node has a break.
    assert_eq!(lines.count(), 29 + 10);
    let text = super::tests::text(By::Node, Layout::Long);
    assert!(!text.contains("ä\",energy_package_joules_per_second"), "the second node has none: {text}");
    assert!(text.contains("ä\",memory_used_bytes,bytes,\r\n"), "{text}");
    assert!(text.contains("ä\",memory_used_bytes,bytes,333333333.3333333\r\n"), "{text}");
}

#[test]
fn rows_of_tasks_name_their_step() {
    let job = sample::with_steps();
    let mut bytes = Vec::new();
    write(&Table::new(&job, By::Task).unwrap(), Layout::Wide, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let begin = "time,node,step,task,cpu_seconds_per_second,memory_used_bytes\r\n\
        2023-11-14T22:15:20.000Z,b01,0,0,0.16666666666666666,\r\n";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(text.matches("\r\n").count(), 1 + 3 * 3 + 3, "a name has a break");
}

#[test]
fn numbers_are_read_back_as_they_were() {
    let mut out = Out { csv: ::csv::Writer::from_writer(Vec::new()) };
    let numbers = [0.0, 0.1, 1e22, 1e-300, f64::MAX, f64::MIN_POSITIVE, -2.5, 1.0 / 3.0];
    for number in numbers {
        out.number(Some(number)).unwrap();
    }
    out.end().unwrap();
    let text = String::from_utf8(out.csv.into_inner().unwrap()).unwrap();
    let read: Vec<f64> = text.trim().split(',').map(|field| field.parse().unwrap()).collect();
    assert_eq!(read, numbers);
    assert!(text.starts_with("0,0.1,"), "{text}");
}
