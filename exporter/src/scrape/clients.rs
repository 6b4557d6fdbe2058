//! What the web server knows about its clients, for `jobledger_exporter_web_*`.

use exporter_toolkit::ServerStats;
use exposition::{Family, Section, SubjectId};

static CONNECTIONS: Family = Family::gauge("jobledger_exporter_web_connections")
    .labels(&["state"])
    .help("Open connections, by what they do");
static EVICTED: Family = Family::counter("jobledger_exporter_web_evicted_total")
    .labels(&["reason"])
    .help("Connections closed because others needed their place, by what they did");
static REJECTED: Family = Family::counter("jobledger_exporter_web_rejected_total").labels(&["reason"]).help(
    "Connections without a place, requests beyond rate_limit, wrong passwords, and requests that waited too \
     long for a login or a scrape",
);
static LOGINS: Family = Family::gauge("jobledger_exporter_web_logins_waiting")
    .help("Requests whose password waits for its check");
static SCRAPES: Family = Family::gauge("jobledger_exporter_web_scrapes_waiting")
    .help("Requests that wait because of --web.max-requests");
static UNREAD: Family = Family::gauge("jobledger_exporter_web_unread_bytes")
    .help("Bytes of answers that clients have not taken yet");

/// Rows of the catalogue.
pub(super) fn families() -> [&'static Family; 6] {
    [&CONNECTIONS, &EVICTED, &REJECTED, &LOGINS, &SCRAPES, &UNREAD]
}

/// Pushes the state of the web server, which counts since then, seconds since the epoch.
pub(super) fn emit(stats: &ServerStats, since: f64, out: &mut Section) {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    for (state, connections) in &stats.connections {
        out.push(&CONNECTIONS, SubjectId::NODE, &[("state", state)], count(*connections));
    }
    let since = out.node_since(Some(since));
    for (family, counts) in [(&EVICTED, &stats.evicted), (&REJECTED, &stats.rejected)] {
        for (reason, count) in counts {
            out.push(family, since, &[("reason", reason)], *count);
        }
    }
    out.push(&LOGINS, SubjectId::NODE, &[], count(stats.logins_waiting));
    out.push(&SCRAPES, SubjectId::NODE, &[], count(stats.scrapes_waiting));
    out.push(&UNREAD, SubjectId::NODE, &[], stats.unread_bytes);
}
