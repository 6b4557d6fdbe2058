//! An independent, strict parser of what a scrape returns: OpenMetrics 1.0 and the Prometheus text format 0.0.4.
//!
//! Written from the two specifications and stricter than Prometheus: interleaved families, duplicate series and half of
//! a family's metadata after its samples are errors here, while `promtool check metrics` lets some of them pass.
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>,
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

mod sample;

use sample::parse_sample;

/// Which of the two formats a body is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
    /// `text/plain; version=0.0.4`
    Text,
}

impl Format {
    /// The format that a `Content-Type` header announces.
    #[must_use]
    pub fn of_content_type(header: &str) -> Option<Self> {
        let mut parts = header.split(';').map(str::trim);
        let media = parts.next()?;
        let version = parts.find_map(|p| p.strip_prefix("version="))?;
        match (media, version) {
            ("application/openmetrics-text", "1.0.0") => Some(Self::OpenMetrics),
            ("text/plain", "0.0.4") => Some(Self::Text),
            _ => None,
        }
    }
}

/// The type of a family. 0.0.4 has the first four and `untyped`, which is `Unknown` here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the specifications")]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Unknown,
    Info,
    StateSet,
    GaugeHistogram,
}

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The full name, with `_total`, `_bucket` and the like.
    pub name: String,
    /// In the order written, values unescaped.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
    /// The value exactly as written.
    pub text: String,
    /// The timestamp exactly as written.
    pub timestamp: Option<String>,
    /// Counted from 1.
    pub line: usize,
}

impl Sample {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// A family and its samples, in the order written.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// OpenMetrics: without suffix (`jobledger_job_cpu_seconds`). 0.0.4: as after `# TYPE` (`…_seconds_total`).
    pub name: String,
    /// `Unknown` where there is no TYPE line.
    pub kind: Kind,
    /// From `# UNIT`, which only OpenMetrics has.
    pub unit: Option<String>,
    /// From `# HELP`, unescaped.
    pub help: Option<String>,
    /// The samples.
    pub samples: Vec<Sample>,
    typed: bool,
}

/// A parsed body.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposition {
    /// In the order written.
    pub families: Vec<Family>,
}

impl Exposition {
    /// A family by the name in its metadata.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|f| f.name == name)
    }

    /// All samples, in the order written.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.families.iter().flat_map(|f| &f.samples)
    }

    /// The samples of one name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples().filter(move |s| s.name == name)
    }

    /// The value of the one series with this name and at least these labels.
    ///
    /// # Panics
    /// If several series match: the test meant one.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.named(name).filter(|s| labels.iter().all(|(n, v)| s.label(n) == Some(v)));
        let first = found.next()?;
        assert!(found.next().is_none(), "several series match {name}{labels:?}");
        Some(first.value)
    }
}

/// Why a body was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// Parses a whole body.
///
/// # Errors
/// The first line that breaks the format, or a rule that only shows at the end of a family.
pub fn parse(body: &[u8], format: Format) -> Result<Exposition, ParseError> {
    let text = std::str::from_utf8(body).map_err(|e| {
        let line =
            body.get(..e.valid_up_to()).unwrap_or_default().iter().filter(|b| **b == b'\n').count() + 1;
        ParseError { line, reason: "not UTF-8".to_owned() }
    })?;
    let mut parser = Parser { format, families: Vec::new(), names: HashSet::new(), series: HashMap::new() };
    let mut ended = false;
    let mut count = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        count = index + 1;
        let error = |reason: String| ParseError { line: index + 1, reason };
        if ended {
            return Err(error("text after # EOF".to_owned()));
        }
        let Some(line) = line.strip_suffix('\n') else {
            if format == Format::OpenMetrics && line == "# EOF" {
                ended = true;
                continue;
            }
            return Err(error("torn last line".to_owned()));
        };
        if format == Format::OpenMetrics && line == "# EOF" {
            ended = true;
            continue;
        }
        parser.line(line, index + 1).map_err(error)?;
    }
    if format == Format::OpenMetrics && !ended {
        return Err(ParseError { line: count + 1, reason: "no # EOF".to_owned() });
    }
    for family in &parser.families {
        family.check(format)?;
    }
    Ok(Exposition { families: parser.families })
}

struct Parser {
    format: Format,
    families: Vec<Family>,
    names: HashSet<String>,
    series: HashMap<String, usize>,
}

impl Parser {
    fn line(&mut self, line: &str, number: usize) -> Result<(), String> {
        let open_metrics = self.format == Format::OpenMetrics;
        if !open_metrics && line.trim_matches([' ', '\t']).is_empty() {
            return Ok(());
        }
        if let Some(comment) = line.strip_prefix('#') {
            return self.metadata(comment);
        }
        let sample = parse_sample(line, number, self.format)?;
        let identity = identity(&sample);
        if let Some(first) = self.series.insert(identity, number) {
            return Err(format!("the same series as in line {first}"));
        }
        let current = self.families.last().filter(|f| f.owns(&sample.name, self.format));
        if current.is_none() {
            let known = self.families.iter().find(|f| f.owns(&sample.name, self.format));
            if let Some(earlier) = known {
                return Err(format!("family {} is interleaved with others", earlier.name));
            }
            if let Some(empty) = self.families.last().filter(|f| f.samples.is_empty() && f.typed) {
                return Err(format!("{} is no sample of family {}", sample.name, empty.name));
            }
            self.open(sample.name.clone())?;
        }
        if let Some(family) = self.families.last_mut() {
            family.samples.push(sample);
        }
        Ok(())
    }

    fn open(&mut self, name: String) -> Result<(), String> {
        if !self.names.insert(name.clone()) {
            return Err(format!("family {name} comes twice"));
        }
        let family =
            Family { name, kind: Kind::Unknown, unit: None, help: None, samples: Vec::new(), typed: false };
        self.families.push(family);
        Ok(())
    }

    fn metadata(&mut self, comment: &str) -> Result<(), String> {
        let open_metrics = self.format == Format::OpenMetrics;
        let (keyword, name, rest) = if open_metrics {
            let mut words = comment.strip_prefix(' ').ok_or("a comment")?.splitn(3, ' ');
            (words.next().unwrap_or_default(), words.next(), words.next())
        } else {
            let blank = |c| c == ' ' || c == '\t';
            let (keyword, rest) = cut(comment.trim_start_matches(blank));
            let (name, rest) = cut(rest);
            (keyword, Some(name).filter(|n| !n.is_empty()), Some(rest))
        };
        let known = matches!(keyword, "TYPE" | "HELP") || (open_metrics && keyword == "UNIT");
        if !known {
            return if open_metrics { Err("neither TYPE, UNIT, HELP nor EOF".to_owned()) } else { Ok(()) };
        }
        let name = name.filter(|n| sample::is_metric_name(n)).ok_or("no metric name")?;
        let rest = rest.ok_or("nothing after the name")?;
        if self.families.last().is_none_or(|f| f.name != name) {
            self.open(name.to_owned())?;
        }
        let format = self.format;
        let family = self.families.last_mut().ok_or("no family")?;
        if !family.samples.is_empty() {
            return Err(format!("{keyword} after the samples of {name}"));
        }
        match keyword {
            "TYPE" if family.typed => return Err(format!("second TYPE of {name}")),
            "TYPE" => {
                family.kind = kind(rest.trim_end_matches([' ', '\t']), format).ok_or("unknown type")?;
                family.typed = true;
            }
            "UNIT" if family.unit.is_some() => return Err(format!("second UNIT of {name}")),
            "UNIT" => {
                if !rest.is_empty() && !name.ends_with(&format!("_{rest}")) {
                    return Err(format!("{name} does not end in its unit"));
                }
                family.unit = Some(rest.to_owned());
            }
            _ if family.help.is_some() => return Err(format!("second HELP of {name}")),
            _ => family.help = Some(sample::unescape_help(rest, format)?),
        }
        Ok(())
    }
}

/// The first word and what follows the blanks after it.
fn cut(text: &str) -> (&str, &str) {
    let blank = |c| c == ' ' || c == '\t';
    match text.split_once(blank) {
        Some((word, rest)) => (word, rest.trim_start_matches(blank)),
        None => (text, ""),
    }
}

fn kind(word: &str, format: Format) -> Option<Kind> {
    Some(match (word, format) {
        ("counter", _) => Kind::Counter,
        ("gauge", _) => Kind::Gauge,
        ("histogram", _) => Kind::Histogram,
        ("summary", _) => Kind::Summary,
        ("untyped", Format::Text) | ("unknown", Format::OpenMetrics) => Kind::Unknown,
        ("info", Format::OpenMetrics) => Kind::Info,
        ("stateset", Format::OpenMetrics) => Kind::StateSet,
        ("gaugehistogram", Format::OpenMetrics) => Kind::GaugeHistogram,
        _ => return None,
    })
}

/// What makes a series the same for Prometheus: order does not count, and an empty label is no label.
fn identity(sample: &Sample) -> String {
    let mut labels: Vec<_> = sample.labels.iter().filter(|(_, v)| !v.is_empty()).collect();
    labels.sort();
    format!("{}{labels:?}", sample.name)
}

impl Family {
    /// The suffixes that samples of this family have.
    fn suffixes(&self, format: Format) -> &'static [&'static str] {
        match (self.kind, format) {
            (Kind::Counter, Format::OpenMetrics) => &["_total", "_created"],
            (Kind::Histogram, Format::OpenMetrics) => &["_bucket", "_count", "_sum", "_created"],
            (Kind::Histogram, Format::Text) => &["_bucket", "_count", "_sum"],
            (Kind::Summary, Format::OpenMetrics) => &["", "_count", "_sum", "_created"],
            (Kind::Summary, Format::Text) => &["", "_count", "_sum"],
            (Kind::Info, _) => &["_info"],
            (Kind::GaugeHistogram, _) => &["_bucket", "_gcount", "_gsum"],
            _ => &[""],
        }
    }

    fn owns(&self, sample: &str, format: Format) -> bool {
        sample.strip_prefix(self.name.as_str()).is_some_and(|s| self.suffixes(format).contains(&s))
    }

    fn check(&self, format: Format) -> Result<(), ParseError> {
        let at = |s: &Sample, reason: &str| ParseError { line: s.line, reason: reason.to_owned() };
        for s in &self.samples {
            let negative = s.value < 0.0 || s.value.is_nan();
            match self.kind {
                Kind::Counter if negative => return Err(at(s, "a counter is negative or NaN")),
                Kind::Info if s.value != 1.0 => return Err(at(s, "an info is not 1")),
                Kind::StateSet if s.value != 0.0 && s.value != 1.0 => {
                    return Err(at(s, "a state is not 0 or 1"));
                }
                Kind::StateSet if s.label(&self.name).is_none() => {
                    return Err(at(s, "a state without its label"));
                }
                Kind::Histogram | Kind::GaugeHistogram
                    if s.name.ends_with("_bucket") != s.label("le").is_some() =>
                {
                    return Err(at(s, "le on what is no bucket, or a bucket without it"));
                }
                Kind::Summary if (s.name == self.name) != s.label("quantile").is_some() => {
                    return Err(at(s, "quantile on what is no quantile, or a quantile without it"));
                }
                _ => {}
            }
        }
        if matches!(self.kind, Kind::Info | Kind::StateSet)
            && self.unit.as_ref().is_some_and(|u| !u.is_empty())
        {
            let line = self.samples.first().map_or(0, |s| s.line);
            return Err(ParseError { line, reason: format!("{} has a unit", self.name) });
        }
        for points in self.metrics()?.values() {
            self.check_metric(points, format)?;
        }
        Ok(())
    }

    /// Samples by metric, that is by labels without `le` and `quantile`; each metric in one run.
    fn metrics(&self) -> Result<BTreeMap<String, Vec<&Sample>>, ParseError> {
        let mut metrics: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
        let mut last = String::new();
        for s in &self.samples {
            let own =
                |n: &str| n != "le" && n != "quantile" && (self.kind != Kind::StateSet || n != self.name);
            let mut labels: Vec<_> = s.labels.iter().filter(|(n, v)| own(n) && !v.is_empty()).collect();
            labels.sort();
            let key = format!("{labels:?}");
            if key != last && metrics.contains_key(&key) {
                return Err(ParseError {
                    line: s.line,
                    reason: "the samples of one metric are apart".to_owned(),
                });
            }
            metrics.entry(key.clone()).or_default().push(s);
            last = key;
        }
        Ok(metrics)
    }

    fn check_metric(&self, points: &[&Sample], format: Format) -> Result<(), ParseError> {
        let line = points.first().map_or(0, |s| s.line);
        let fail = |reason: &str| Err(ParseError { line, reason: reason.to_owned() });
        let with =
            |suffix: &str| points.iter().find(|s| s.name.strip_prefix(self.name.as_str()) == Some(suffix));
        match self.kind {
            Kind::Counter if format == Format::OpenMetrics && with("_total").is_none() => fail("no _total"),
            Kind::Histogram | Kind::GaugeHistogram => {
                let buckets: Vec<_> = points.iter().filter(|s| s.name.ends_with("_bucket")).collect();
                let bounds: Option<Vec<f64>> =
                    buckets.iter().map(|s| sample::number(s.label("le").unwrap_or_default())).collect();
                let Some(bounds) = bounds else { return fail("le is not a number") };
                let ascending = bounds.windows(2).all(|w| matches!(w, [a, b] if a < b));
                let cumulative = buckets.windows(2).all(|w| matches!(w, [a, b] if a.value <= b.value));
                if bounds.last() != Some(&f64::INFINITY) {
                    return fail("no bucket of +Inf");
                }
                if !ascending || !cumulative {
                    return fail("buckets do not grow");
                }
                let count = with("_count").or_else(|| with("_gcount"));
                if count.is_some_and(|c| Some(c.value) != buckets.last().map(|b| b.value)) {
                    return fail("count differs from the bucket of +Inf");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
