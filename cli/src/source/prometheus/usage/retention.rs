//! Whether a server has all of the time that was asked for.

use std::collections::BTreeMap;

use jiff::{Span, SpanRelativeTo};
use prometheus_api::Range;

use super::{COUNTING, DAY, LOOKBACK, Prometheus};
use crate::{Failure, Kind};

/// A server that is asked for as much as it keeps may have deleted so much of it.
const MARGIN: f64 = 3600.0;
/// What Prometheus keeps if nothing is set (cmd/prometheus/main.go, `defaultRetentionDuration`).
const DEFAULT_DAYS: f64 = 15.0;
/// Times at which the oldest sample is looked for.
const LOOKS: f64 = 1000.0;

impl Prometheus {
    /// Fails where the server keeps less than was asked for.
    pub(super) async fn reaches_back(&self, since: f64, until: f64, now: f64) -> Result<(), Failure> {
        let asked = (now - since) / DAY;
        // A server that does not say it is asked for its samples.
        let flags = self.client.flags().await.unwrap_or_default();
        if let Some(days) = kept_days(&flags).filter(|days| asked > days + MARGIN / DAY) {
            let says =
                format!("the server keeps {} days, and --since is {} days ago", shown(days), shown(asked));
            return Err(Failure::new(Kind::NotFound, says));
        }
        // Size may be a limit, and a server may be younger than what it would keep.
        let any = format!("count({COUNTING}{}) or count(up)", self.scope.selector(&[]));
        if !self.client.query(&any, since).await?.is_empty() {
            return Ok(());
        }
        let around = Range { start: since - DAY, end: since + MARGIN, step: LOOKBACK };
        if !self.client.query_range(&any, around).await?.is_empty() {
            return Ok(());
        }
        let step = ((until - since) / LOOKS).max(60.0);
        let found = self.client.query_range(&any, Range { start: since, end: until, step }).await?;
        let first =
            found.iter().filter_map(|series| series.points.first()).map(|(at, _)| *at).reduce(f64::min);
        let says = match first {
            Some(first) => format!(
                "the oldest sample of the server is {} days old, and --since is {} days ago",
                shown((now - first) / DAY),
                shown(asked)
            ),
            None => "the server has no sample of an exporter in that time".to_owned(),
        };
        Err(Failure::new(Kind::NotFound, says))
    }
}

/// Days, cut: what is said can be asked for.
fn shown(days: f64) -> String {
    let cut = (days * 10.0).floor() / 10.0;
    if cut.fract() == 0.0 { format!("{cut:.0}") } else { format!("{cut:.1}") }
}

/// The days that a server keeps by its flags; `None` if it does not say, or if a size is the only limit.
fn kept_days(flags: &BTreeMap<String, String>) -> Option<f64> {
    let unset = |value: &&String| !["0", "0s", "0B", ""].contains(&value.as_str());
    let time = flags.get("storage.tsdb.retention.time")?;
    if let Some(time) = Some(time).filter(unset) {
        return days(time);
    }
    let has_size = flags.get("storage.tsdb.retention.size").filter(unset).is_some();
    (!has_size).then_some(DEFAULT_DAYS)
}

/// A duration as Prometheus writes it: `15d`, `1y`, `36h`, `1w3d`. A month is none.
fn days(text: &str) -> Option<f64> {
    let span: Span = text.parse().ok()?;
    let years = f64::from(span.get_years()) * 365.0;
    let rest = span.years(0).total((jiff::Unit::Second, SpanRelativeTo::days_are_24_hours())).ok()?;
    Some(years + rest / DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_how_long_it_keeps_samples() {
        let of = |time: &str, size: &str| {
            let flags = [("storage.tsdb.retention.time", time), ("storage.tsdb.retention.size", size)];
            kept_days(&flags.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        };
        assert_eq!(
            [of("30d", "0B"), of("1y", "0B"), of("36h", "0B"), of("2w", "5GB")],
            [30.0, 365.0, 1.5, 14.0].map(Some)
        );
        assert_eq!([of("0s", "0B"), of("0s", "500GB"), of("?", "0B")], [Some(15.0), None, None]);
        assert_eq!(kept_days(&BTreeMap::new()), None);
        assert_eq!([shown(30.0), shown(14.98), shown(1.5)], ["30", "14.9", "1.5"]);
    }
}
