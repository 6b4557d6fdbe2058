//! One line of an exposition.

use super::{Format, Sample};

/// `[a-zA-Z_:][a-zA-Z0-9_:]*`
pub(super) fn is_metric_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b':')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

fn is_label_name(name: &str) -> bool {
    is_metric_name(name) && !name.contains(':')
}

/// A number as both formats write it; what only Go's parser takes (hex, underscores) is no number here.
pub(super) fn number(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    if lower == "inf" || lower == "infinity" {
        return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let plain = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if plain { text.parse().ok() } else { None }
}

/// HELP text. OpenMetrics escapes quotes too, 0.0.4 leaves them.
pub(super) fn unescape_help(text: &str, format: Format) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, format) {
            ('"', Format::OpenMetrics) => return Err("a quote in HELP that is not escaped".to_owned()),
            ('\\', _) => out.push(match (chars.next(), format) {
                (Some('n'), _) => '\n',
                (Some('\\'), _) => '\\',
                (Some('"'), Format::OpenMetrics) => '"',
                _ => return Err("bad escape".to_owned()),
            }),
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Reads a line from left to right.
struct Cursor<'a> {
    rest: &'a str,
    lenient: bool,
}

impl<'a> Cursor<'a> {
    /// Takes the character if it comes next, and nothing if not.
    fn take(&mut self, c: char) -> bool {
        let rest = if self.lenient { self.rest.trim_start_matches([' ', '\t']) } else { self.rest };
        let taken = rest.strip_prefix(c);
        self.rest = taken.unwrap_or(self.rest);
        taken.is_some()
    }

    /// 0.0.4 allows blanks between tokens, OpenMetrics does not.
    fn blanks(&mut self) {
        if self.lenient {
            self.rest = self.rest.trim_start_matches([' ', '\t']);
        }
    }

    fn until(&mut self, stop: impl Fn(char) -> bool) -> &'a str {
        let at = self.rest.find(stop).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(at);
        self.rest = rest;
        word
    }

    fn separator(&mut self) -> Result<(), String> {
        let rest =
            self.rest.strip_prefix(' ').or_else(|| self.rest.strip_prefix('\t').filter(|_| self.lenient));
        self.rest = rest.ok_or("no blank where one belongs")?;
        self.blanks();
        Ok(())
    }

    fn labels(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut labels: Vec<(String, String)> = Vec::new();
        loop {
            self.blanks();
            let may_end = labels.is_empty() || self.lenient;
            if may_end && self.take('}') {
                return Ok(labels);
            }
            let name = self.until(|c| matches!(c, '=' | ' ' | '\t' | '}' | ',' | '"'));
            if !is_label_name(name) {
                return Err("bad label name".to_owned());
            }
            if labels.iter().any(|(n, _)| n == name) {
                return Err(format!("label {name} comes twice"));
            }
            if !self.take('=') || !self.take('"') {
                return Err("bad label".to_owned());
            }
            labels.push((name.to_owned(), self.quoted()?));
            if self.take(',') {
                continue;
            }
            return if self.take('}') { Ok(labels) } else { Err("label set not closed".to_owned()) };
        }
    }

    fn quoted(&mut self) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next().ok_or("label value not closed")? {
                '"' => {
                    self.rest = chars.as_str();
                    return Ok(out);
                }
                '\\' => out.push(match chars.next() {
                    Some('n') => '\n',
                    Some('\\') => '\\',
                    Some('"') => '"',
                    _ => return Err("bad escape".to_owned()),
                }),
                c => out.push(c),
            }
        }
    }
}

pub(super) fn parse_sample(line: &str, number_of_line: usize, format: Format) -> Result<Sample, String> {
    let lenient = format == Format::Text;
    let line = if lenient { line.trim_matches([' ', '\t']) } else { line };
    let mut cursor = Cursor { rest: line, lenient };
    let name = cursor.until(|c| matches!(c, '{' | ' ' | '\t'));
    if !is_metric_name(name) {
        return Err("bad metric name".to_owned());
    }
    let labels = if cursor.take('{') { cursor.labels()? } else { Vec::new() };
    cursor.separator()?;
    let text = cursor.until(|c| c == ' ' || c == '\t');
    let value = number(text).ok_or("bad value")?;
    let mut timestamp = None;
    if !cursor.rest.is_empty() && !cursor.rest.starts_with(" # ") {
        cursor.separator()?;
        let stamp = cursor.until(|c| c == ' ' || c == '\t');
        let valid =
            if lenient { stamp.parse::<i64>().is_ok() } else { number(stamp).is_some_and(f64::is_finite) };
        if !valid {
            return Err("bad timestamp".to_owned());
        }
        timestamp = Some(stamp.to_owned());
    }
    if let Some(exemplar) = cursor.rest.strip_prefix(" # ").filter(|_| !lenient) {
        check_exemplar(exemplar, name)?;
    } else if !cursor.rest.is_empty() {
        return Err("text after the value".to_owned());
    }
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
        text: text.to_owned(),
        timestamp,
        line: number_of_line,
    })
}

fn check_exemplar(text: &str, sample: &str) -> Result<(), String> {
    if !sample.ends_with("_total") && !sample.ends_with("_bucket") {
        return Err("an exemplar on neither a counter nor a bucket".to_owned());
    }
    let mut cursor = Cursor { rest: text, lenient: false };
    if !cursor.take('{') {
        return Err("bad exemplar".to_owned());
    }
    let labels = cursor.labels()?;
    if labels.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum::<usize>() > 128 {
        return Err("an exemplar of more than 128 characters".to_owned());
    }
    cursor.separator()?;
    let mut words = cursor.rest.split(' ');
    let numbers = words.by_ref().take(2).all(|w| number(w).is_some());
    if numbers && words.next().is_none() { Ok(()) } else { Err("bad exemplar".to_owned()) }
}
