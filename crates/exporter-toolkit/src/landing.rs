//! The page at `/`: the collectors and their state, for people.

use std::fmt::{self, Display, Write};

use crate::{CollectorStatus, Exporter, Link};

const STYLE: &str = "body{font-family:sans-serif;margin:2em;max-width:60em}\
    table{border-collapse:collapse}td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}\
    .bad{color:#a00}.off{color:#666}";

/// Renders the page. Reasons come from the system and may hold anything, so all text is escaped.
pub(crate) fn page(exporter: &dyn Exporter, telemetry_path: &str) -> String {
    let mut page = String::with_capacity(8 * 1024);
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, exporter, telemetry_path);
    page
}

fn write_page(page: &mut String, exporter: &dyn Exporter, telemetry_path: &str) -> fmt::Result {
    let about = exporter.about();
    let (name, metrics) = (Escaped(&about.name), Escaped(telemetry_path));
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title>\
         <style>{STYLE}</style></head>\n<body><h1>{name} {}</h1>\n<p>{} {}</p>\n",
        Escaped(&about.version),
        Escaped(&about.description),
        Escaped(&exporter.summary()),
    )?;
    if let Err(reason) = exporter.ready() {
        writeln!(page, "<p class=\"bad\">Not ready: {}</p>", Escaped(&reason))?;
    }
    write!(
        page,
        "<p><a href=\"{metrics}\">Metrics</a> · <a href=\"/-/healthy\">Healthy</a> · <a href=\"/-/ready\">Ready</a>"
    )?;
    for Link { address, text } in &about.links {
        write!(page, " · <a href=\"{}\">{}</a>", Escaped(address), Escaped(text))?;
    }
    page.write_str("</p>\n")?;
    let collectors = exporter.collectors();
    if !collectors.is_empty() {
        page.write_str("<table><tr><th>Collector</th><th>State</th><th>Measures</th></tr>\n")?;
        for collector in &collectors {
            write_row(page, collector, metrics)?;
        }
        page.write_str("</table>")?;
    }
    page.write_str("</body></html>\n")
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
        // What a machine does not have is no failure.
        Some(Err(reason)) if reason.starts_with("unsupported: ") => {
            write!(page, "<td class=\"off\">{}</td>", Escaped(reason))
        }
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
    use crate::{About, BoxFuture, Bytes, Exposition, Scrape, ScrapeError};

    struct Node(Vec<CollectorStatus>, Result<(), String>);

    impl Exporter for Node {
        fn about(&self) -> About {
            About {
                name: "Some <exporter>".to_owned(),
                version: "1.2".to_owned(),
                description: "Measures \"it\".".to_owned(),
                links: vec![Link { address: "/a?b&c".to_owned(), text: "More > less".to_owned() }],
            }
        }
        fn scrape(&self, _: Scrape) -> BoxFuture<Result<Exposition, ScrapeError>> {
            Box::pin(async { Ok(Bytes::new().into()) })
        }
        fn collectors(&self) -> Vec<CollectorStatus> {
            self.0.clone()
        }
        fn ready(&self) -> Result<(), String> {
            self.1.clone()
        }
        fn summary(&self) -> String {
            "3 < 4 targets.".to_owned()
        }
    }

    #[test]
    fn every_state_is_shown_and_escaped() {
        let status = |name, enabled, state| CollectorStatus { name, summary: "a & b", enabled, state };
        let collectors = vec![
            status("cpu", true, Some(Ok(()))),
            status("energy", true, Some(Err("denied: <script>\"'</script>".into()))),
            status("lustre", true, Some(Err("unsupported: needs Lustre".into()))),
            status("gpu", true, None),
            status("perf", false, None),
        ];
        let page = page(&Node(collectors, Err("no <jobs> yet".into())), "/a\"b");
        for wanted in [
            "<title>Some &lt;exporter&gt;</title>",
            "<h1>Some &lt;exporter&gt; 1.2</h1>",
            "<p>Measures &quot;it&quot;. 3 &lt; 4 targets.</p>",
            "Not ready: no &lt;jobs&gt; yet",
            "<a href=\"/a&quot;b\">Metrics</a>",
            " · <a href=\"/a?b&amp;c\">More &gt; less</a></p>",
            "<a href=\"/a&quot;b?collect[]=cpu\">cpu</a></td><td>ok</td><td>a &amp; b</td>",
            "<td class=\"bad\">denied: &lt;script&gt;&quot;&#39;&lt;/script&gt;</td>",
            "<td class=\"off\">unsupported: needs Lustre</td>",
            ">gpu</a></td><td class=\"off\">not run yet</td>",
            "<tr><td>perf</td><td class=\"off\">switched off</td>",
        ] {
            assert!(page.contains(wanted), "{wanted} is missing in {page}");
        }
        assert!(!page.contains("<script>"));
    }

    #[test]
    fn an_exporter_without_collectors_has_no_table() {
        let page = page(&Node(Vec::new(), Ok(())), "/metrics");
        assert!(!page.contains("<table>") && page.ends_with("</p>\n</body></html>\n"), "{page}");
    }
}
