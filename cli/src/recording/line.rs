//! A line with a sample, in Prometheus' text format 0.0.4 and in OpenMetrics: `name{label="value"} value time`.

use std::borrow::Cow;

/// A sample as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The metric.
    pub name: &'a str,
    /// What is between the braces.
    pub labels: &'a str,
    /// The value, a float.
    pub value: &'a str,
    /// Seconds since the epoch in OpenMetrics.
    pub time: Option<&'a str>,
}

impl<'a> Line<'a> {
    /// `None` for comments and for what is no sample.
    pub fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at_checked(end)?;
        if !is_name(name, ":") {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            None => ("", rest),
            Some(inner) => {
                let rest = after_labels(inner)?;
                (inner.get(..inner.len() - rest.len() - 1)?, rest)
            }
        };
        let mut fields = rest.strip_prefix(' ')?.split(' ');
        let (value, time) = (fields.next()?, fields.next());
        let is_number = |text: &str| text.parse::<f64>().is_ok();
        let is_sample = is_number(value) && time.is_none_or(is_number) && fields.next().is_none();
        is_sample.then_some(Self { name, labels, value, time })
    }

    /// Names and values of its labels.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, value, after) = label(rest)?;
            rest = after.strip_prefix(',').unwrap_or(after);
            Some((name, unescaped(value)))
        })
    }

    /// The value of a label; an empty one is none.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels().find(|(label, value)| *label == name && !value.is_empty()).map(|(_, value)| value)
    }
}

/// A label's name, its value as it is written, and what follows.
fn label(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once("=\"")?;
    if !is_name(name, "") {
        return None;
    }
    let mut escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some((name, rest.get(..end)?, rest.get(end + 1..)?))
}

/// What follows the closing brace. A comma may be before it.
fn after_labels(mut text: &str) -> Option<&str> {
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (_, _, rest) = label(text)?;
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

fn is_name(text: &str, more: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || more.contains(c);
    text.starts_with(|c: char| of_name(c) && !c.is_ascii_digit()) && text.chars().all(of_name)
}

fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let (mut plain, mut chars) = (String::with_capacity(value.len()), value.chars());
    while let Some(c) = chars.next() {
        plain.extend(match c {
            '\\' => chars.next().map(|c| if c == 'n' { '\n' } else { c }),
            c => Some(c),
        });
    }
    Cow::Owned(plain)
}

/// A label's value as it is written.
pub fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_are_read_and_other_lines_are_none() {
        let line = Line::parse(r#"jobledger_a:b{x="1}, \"y\\\n",z="",} 2.5 17.25"#).unwrap();
        assert_eq!((line.name, line.value, line.time), ("jobledger_a:b", "2.5", Some("17.25")));
        let labels: Vec<(&str, String)> =
            line.labels().map(|(name, value)| (name, value.into_owned())).collect();
        assert_eq!(labels, [("x", "1}, \"y\\\n".to_owned()), ("z", String::new())]);
        assert_eq!((line.label("z"), line.label("x").as_deref()), (None, Some("1}, \"y\\\n")));
        let line = Line::parse("up 1").unwrap();
        assert_eq!((line.name, line.labels, line.value, line.time), ("up", "", "1", None));
        assert!(Line::parse("a{} +Inf").is_some() && Line::parse("a NaN 1").is_some());
        for none in [
            "",
            "# EOF",
            "# HELP a b",
            "a",
            "a ",
            "a b",
            "1a 2",
            "{} 1",
            "a{x=1} 2",
            "a{x=\"1\" 2",
            "a{x=\"1\"y=\"2\"} 3",
            "a{x=\"1\\\"} 2",
            "a{1x=\"\"} 2",
            "a{x=\"1\"}2",
            "a 1 2 3",
            "a 1 # {} 1",
            "a{é=\"1\"} 2",
            "a\u{e9} 1",
        ] {
            assert_eq!(Line::parse(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_is_escaped_is_read_again(value in "\\PC*", other in "[\"\\\\\n{}, =]*") {
            let text = format!("a{{x=\"{}\",y=\"{}\"}} 1", escaped(&value), escaped(&other));
            let line = Line::parse(&text).unwrap();
            let labels: Vec<String> = line.labels().map(|(_, value)| value.into_owned()).collect();
            prop_assert_eq!(labels, [value, other]);
        }

        #[test]
        fn no_text_is_too_odd(text in "\\PC*") {
            if let Some(line) = Line::parse(&text) {
                prop_assert!(line.labels().count() <= text.len());
            }
        }
    }
}
