//! `collect[]` and `exclude[]`: the collectors that a client asks for.

use std::borrow::Cow;

use crate::{CollectorStatus, Selection};

/// More than any exporter has collectors.
const MAX_PARAMETERS: usize = 100;
const MAX_QUERY_BYTES: usize = 8 * 1024;
/// How much of an unknown name is repeated to the client.
const SHOWN_CHARS: usize = 64;

/// Reads the query of a scrape. `Err` is a reason in plain text for the client.
///
/// As in node_exporter, the two parameters exclude each other. Other parameters are ignored: sites add them for
/// their own routing.
pub(crate) fn selection(query: Option<&str>, collectors: &[CollectorStatus]) -> Result<Selection, String> {
    let query = query.unwrap_or_default();
    if query.len() > MAX_QUERY_BYTES {
        return Err(format!("the query is longer than {MAX_QUERY_BYTES} bytes"));
    }
    let mut chosen = Selection::default();
    for (nth, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        if nth >= MAX_PARAMETERS {
            return Err(format!("more than {MAX_PARAMETERS} parameters"));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match &*decode(key)? {
            "collect[]" => chosen.collect.insert(known(&decode(value)?, collectors)?),
            "exclude[]" => chosen.exclude.insert(known(&decode(value)?, collectors)?),
            _ => continue,
        };
    }
    if !chosen.collect.is_empty() && !chosen.exclude.is_empty() {
        return Err("collect[] and exclude[] cannot be combined".to_owned());
    }
    Ok(chosen)
}

fn known(name: &str, collectors: &[CollectorStatus]) -> Result<&'static str, String> {
    let fault = match collectors.iter().find(|collector| collector.name == name) {
        Some(collector) if collector.enabled => return Ok(collector.name),
        Some(_) => "disabled",
        None => "unknown",
    };
    let shown: String = name.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    let enabled = collectors.iter().filter(|collector| collector.enabled).map(|collector| collector.name);
    let enabled: Vec<_> = enabled.collect();
    Err(format!("{fault} collector \"{shown}\"; enabled are: {}", enabled.join(", ")))
}

/// Undoes percent-encoding and `+` as HTML forms write them.
fn decode(text: &str) -> Result<Cow<'_, str>, String> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (hex(rest.next()), hex(rest.next())) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err("the query is not percent-encoded correctly".to_owned()),
            },
            plain => plain,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| "the query is not UTF-8".to_owned())
}

fn hex(digit: Option<u8>) -> Option<u8> {
    char::from(digit?).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collectors() -> Vec<CollectorStatus> {
        [("cpu", true), ("energy", true), ("gpu", false)]
            .map(|(name, enabled)| CollectorStatus { name, summary: "", enabled, state: None })
            .to_vec()
    }

    fn ask(query: &str) -> Result<Selection, String> {
        selection(Some(query), &collectors())
    }

    #[test]
    fn names_are_read_in_every_spelling_that_clients_use() {
        for query in [
            "collect[]=cpu&collect[]=energy",
            "collect%5B%5D=energy&collect%5b%5d=cpu&collect[]=cpu",
            "&collect[]=%63pu&&other=1&collect[]=energy&name",
        ] {
            let chosen = ask(query).unwrap();
            assert_eq!(chosen.collect.into_iter().collect::<Vec<_>>(), ["cpu", "energy"], "{query}");
            assert!(chosen.exclude.is_empty());
        }
        assert!(ask("exclude[]=cpu").unwrap().exclude.contains("cpu"));
        assert_eq!(selection(None, &collectors()), Ok(Selection::default()));
        assert_eq!(ask(""), Ok(Selection::default()));
        assert_eq!(ask("collect=cpu&unrelated=%zz"), Ok(Selection::default()));
    }

    #[test]
    fn what_cannot_be_collected_is_named() {
        for (query, wanted) in [
            ("collect[]=gpu", "disabled collector \"gpu\"; enabled are: cpu, energy"),
            ("exclude[]=gpu", "disabled collector \"gpu\"; enabled are: cpu, energy"),
            ("collect[]=", "unknown collector \"\"; enabled are: cpu, energy"),
            ("collect[]", "unknown collector \"\"; enabled are: cpu, energy"),
            ("collect[]=CPU", "unknown collector \"CPU\"; enabled are: cpu, energy"),
            ("collect[]=a%0Ab%22%1b+c", "unknown collector \"a\\nb\\\"\\u{1b} c\"; enabled are: cpu, energy"),
            ("collect[]=cpu&exclude[]=energy", "collect[] and exclude[] cannot be combined"),
            ("collect[]=%zz", "the query is not percent-encoded correctly"),
            ("collect[]=%4", "the query is not percent-encoded correctly"),
            ("collect[]=%ff", "the query is not UTF-8"),
        ] {
            assert_eq!(ask(query).unwrap_err(), wanted, "{query}");
        }
    }

    #[test]
    fn hundreds_of_parameters_and_long_queries_are_refused() {
        assert!(ask(&"collect[]=cpu&".repeat(100)).is_ok());
        assert_eq!(ask(&"collect[]=cpu&".repeat(101)).unwrap_err(), "more than 100 parameters");
        assert_eq!(ask(&"a".repeat(8193)).unwrap_err(), "the query is longer than 8192 bytes");
        let shown = ask(&format!("collect[]={}", "x".repeat(8000))).unwrap_err();
        assert!(shown.len() < 200, "{shown}");
    }
}
