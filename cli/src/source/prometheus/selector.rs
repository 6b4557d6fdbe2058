//! Pieces of PromQL.

use std::fmt::Write;

use job_report::Metric;

use crate::source::labels::{ALL_LABELS, KEPT_LABELS};

/// Which jobs are looked at: all of a server, or those of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The label that names a cluster.
    pub cluster_label: String,
    /// Its value, if one is chosen.
    pub cluster: Option<String>,
}

/// A matcher for a label, quoted.
pub(super) fn matcher(label: &str, operator: &str, value: &str) -> String {
    let mut quoted = String::new();
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    format!("{label}{operator}\"{quoted}\"")
}

/// A matcher for one of several values.
pub(super) fn any_of<'a>(label: &str, values: impl IntoIterator<Item = &'a str>) -> String {
    let mut alternatives = String::new();
    for value in values {
        if !alternatives.is_empty() {
            alternatives.push('|');
        }
        for c in value.chars() {
            // RE2 takes a backslash before any punctuation.
            if c.is_ascii_punctuation() && c != '_' && c != '-' && c != ':' {
                alternatives.push('\\');
            }
            alternatives.push(c);
        }
    }
    matcher(label, "=~", &alternatives)
}

/// A matcher for the series of metrics, and some more.
pub(super) fn named<'a>(metrics: impl IntoIterator<Item = &'a &'static Metric>, more: &[&'a str]) -> String {
    let mut names: Vec<&str> =
        metrics.into_iter().map(|metric| metric.series).chain(more.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    any_of("__name__", names)
}

impl Scope {
    /// A selector of these matchers within the scope.
    pub(super) fn selector(&self, matchers: &[&str]) -> String {
        let cluster = self.cluster.as_deref().map(|cluster| matcher(&self.cluster_label, "=", cluster));
        let mut selector = String::from("{");
        let mut separator = "";
        for each in matchers.iter().copied().chain(cluster.as_deref()) {
            // A String takes all that is written.
            let _ = write!(selector, "{separator}{each}");
            separator = ",";
        }
        selector.push('}');
        selector
    }

    /// The same, and series of no cluster: what rules record of the site may be of none.
    pub(super) fn or_none(&self, matchers: &[&str]) -> String {
        let cluster = self.cluster.as_deref().map(|cluster| any_of(&self.cluster_label, [cluster, ""]));
        let matchers: Vec<&str> = matchers.iter().copied().chain(cluster.as_deref()).collect();
        format!("{{{}}}", matchers.join(","))
    }

    /// The parts of each metric, added up, of a selector or a function that keeps names.
    pub(super) fn parts(&self, of: &str) -> String {
        let cluster = &self.cluster_label;
        format!("sum by ({KEPT_LABELS}, {cluster}) (max by ({ALL_LABELS}, {cluster}) ({of}))")
    }
}

/// A range of seconds, as PromQL writes it.
pub(super) fn range(seconds: f64) -> String {
    // Milliseconds are the least that Prometheus has; a range of 0 is none.
    format!("[{}ms]", (seconds * 1000.0).ceil().max(1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted() {
        assert_eq!(matcher("cluster", "=", "a\"}\\\n"), r#"cluster="a\"}\\\n""#);
        assert_eq!(any_of("instance", ["n1:9810", "a.b|c"]), r#"instance=~"n1:9810|a\\.b\\|c""#);
        let scope = Scope { cluster_label: "cluster".to_owned(), cluster: Some("c".to_owned()) };
        assert_eq!(scope.selector(&["jobid=\"7\""]), r#"{jobid="7",cluster="c"}"#);
        assert_eq!(scope.or_none(&["a=\"b\""]), r#"{a="b",cluster=~"c|"}"#);
        assert_eq!(Scope { cluster: None, ..scope }.or_none(&[]), "{}");
        assert_eq!(range(90.5), "[90500ms]");
    }
}
