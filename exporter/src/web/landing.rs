//! The page at `/`: what this exporter can and cannot tell about its node, for a person.

use std::fmt::{self, Display, Write};

use crate::scrape::{CollectorStatus, Exporter};

const STYLE: &str = "body{font-family:sans-serif;margin:2em;max-width:60em}\
    table{border-collapse:collapse}td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}\
    .bad{color:#a00}.off{color:#666}";

/// Renders the page. Reasons come from the system and may hold anything, so all text is escaped.
pub(super) fn page(exporter: &dyn Exporter, telemetry_path: &str) -> String {
    let mut page = String::with_capacity(8 * 1024);
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, exporter, telemetry_path);
    page
}

fn write_page(page: &mut String, exporter: &dyn Exporter, telemetry_path: &str) -> fmt::Result {
    let metrics = Escaped(telemetry_path);
    let jobs = exporter.running_jobs();
    let collectors = exporter.collectors();
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Jobledger</title>\
         <style>{STYLE}</style></head>\n<body><h1>Jobledger exporter {}</h1>\n\
         <p>What this node spends, booked to the SLURM job that spent it. {jobs} {} running.</p>\n",
        env!("CARGO_PKG_VERSION"),
        if jobs == 1 { "job is" } else { "jobs are" },
    )?;
    if let Err(reason) = exporter.ready() {
        writeln!(page, "<p class=\"bad\">Not ready: {}</p>", Escaped(&reason))?;
    }
    write!(
        page,
        "<p><a href=\"{metrics}\">Metrics</a> · <a href=\"/-/healthy\">Healthy</a> · <a href=\"/-/ready\">Ready</a></p>\n\
         <table><tr><th>Collector</th><th>State</th><th>Measures</th></tr>\n"
    )?;
    for collector in &collectors {
        write_row(page, collector, metrics)?;
    }
    page.write_str("</table></body></html>\n")
}

fn write_row(page: &mut String, collector: &CollectorStatus, metrics: Escaped<'_>) -> fmt::Result {
    let name = Escaped(collector.name);
    if collector.enabled {
        write!(page, "<tr><td><a href=\"{metrics}?collect[]={name}\">{name}</a></td>")?;
    } else {
        write!(page, "<tr><td>{name}</td>")?;
    }
    match &collector.state {
        _ if !collector.enabled => page.write_str("<td class=\"off\">switched off</td>"),
        None => page.write_str("<td class=\"off\">not run yet</td>"),
        Some(Ok(())) => page.write_str("<td>ok</td>"),
        Some(Err(reason)) => write!(page, "<td class=\"bad\">{}</td>", Escaped(reason)),
    }?;
    writeln!(page, "<td>{}</td></tr>", Escaped(collector.summary))
}

/// Text that is safe between tags and inside double quotes.
#[derive(Clone, Copy)]
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;"),
                '<' => f.write_str("&lt;"),
                '>' => f.write_str("&gt;"),
                '"' => f.write_str("&quot;"),
                '\'' => f.write_str("&#39;"),
                other => f.write_char(other),
            }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrape::{BoxFuture, ScrapeError, Selection};
    use crate::web::Format;
    use hyper::body::Bytes;
    use std::time::Instant;

    struct Node(usize, Result<(), String>);

    impl Exporter for Node {
        fn collectors(&self) -> Vec<CollectorStatus> {
            let status = |name, enabled, state| CollectorStatus { name, summary: "a & b", enabled, state };
            vec![
                status("cpu", true, Some(Ok(()))),
                status("energy", true, Some(Err("denied: <script>\"'</script>".into()))),
                status("gpu", true, None),
                status("perf", false, None),
            ]
        }
        fn scrape(&self, _: Selection, _: Format, _: Instant) -> BoxFuture<Result<Bytes, ScrapeError>> {
            Box::pin(async { Err(ScrapeError::TimedOut) })
        }
        fn ready(&self) -> Result<(), String> {
            self.1.clone()
        }
        fn running_jobs(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn every_state_is_shown_and_escaped() {
        let page = page(&Node(2, Err("no <jobs> yet".into())), "/a\"b");
        for wanted in [
            "2 jobs are running",
            "Not ready: no &lt;jobs&gt; yet",
            "<a href=\"/a&quot;b\">Metrics</a>",
            "<a href=\"/a&quot;b?collect[]=cpu\">cpu</a></td><td>ok</td><td>a &amp; b</td>",
            "denied: &lt;script&gt;&quot;&#39;&lt;/script&gt;</td>",
            ">gpu</a></td><td class=\"off\">not run yet</td>",
            "<tr><td>perf</td><td class=\"off\">switched off</td>",
        ] {
            assert!(page.contains(wanted), "{wanted} is missing in {page}");
        }
        assert!(!page.contains("<script>"));
        assert!(super::page(&Node(1, Ok(())), "/metrics").contains("1 job is running"));
    }
}
