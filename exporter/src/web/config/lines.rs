//! On which line of a YAML file a key stands.
//!
//! The YAML parser gives no positions for values that it could read, and for a duplicate key the start of the
//! mapping. This index is only asked about files that the parser took, to point a person at a line: what it does
//! not see (flow style) falls back to the line of the nearest key above.

/// Every block-style key, with its path. List items have the path `#0`, `#1`, ... below their key.
#[derive(Debug, Default)]
pub(super) struct Lines {
    keys: Vec<(Vec<String>, usize)>,
}

impl Lines {
    pub(super) fn of(text: &str) -> Self {
        let mut lines = Lines::default();
        // The keys that the current line may be inside of, with their indentation.
        let mut open: Vec<(usize, String)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let content = line.trim_start_matches(' ');
            let indent = line.len() - content.len();
            if content == "-" || content.starts_with("- ") {
                // Items may stand in the same column as their key.
                open.retain(|(column, _)| *column <= indent);
                let parent: Vec<_> = open.iter().map(|(_, key)| key.clone()).collect();
                let is_item = |(path, _): &&(Vec<String>, usize)| {
                    path.len() == parent.len() + 1 && path.starts_with(&parent) && path.ends_with_item()
                };
                let nth = lines.keys.iter().filter(is_item).count();
                lines.keys.push(([parent, vec![format!("#{nth}")]].concat(), number + 1));
            } else if let Some(key) = key_of(content) {
                open.retain(|(column, _)| *column < indent);
                open.push((indent, key.to_owned()));
                lines.keys.push((open.iter().map(|(_, key)| key.clone()).collect(), number + 1));
            }
        }
        lines
    }

    /// The line of the key at this path, or of the nearest key above it that the index knows.
    pub(super) fn line(&self, path: &[&str]) -> Option<usize> {
        (1..=path.len()).rev().find_map(|depth| {
            let path = path.get(..depth)?;
            self.keys.iter().find(|(known, _)| known == path).map(|(_, line)| *line)
        })
    }

    /// The line on which a key of this name stands for the second time in one mapping.
    pub(super) fn repeated(&self, name: &str) -> Option<usize> {
        let named = |path: &Vec<String>| path.last().is_some_and(|last| last == name);
        self.keys.iter().enumerate().find_map(|(at, (path, line))| {
            let earlier = self.keys.get(..at)?;
            (named(path) && earlier.iter().any(|(known, _)| known == path)).then_some(*line)
        })
    }
}

trait EndsWithItem {
    fn ends_with_item(&self) -> bool;
}

impl EndsWithItem for Vec<String> {
    fn ends_with_item(&self) -> bool {
        self.last().is_some_and(|last| last.starts_with('#'))
    }
}

/// The key at the start of a line, without its quotes.
fn key_of(content: &str) -> Option<&str> {
    let (key, rest) = match content.chars().next()? {
        '#' => return None,
        quote @ ('"' | '\'') => {
            let (key, rest) = content.get(1..)?.split_once(quote)?;
            (key, rest.trim_start().strip_prefix(':')?)
        }
        _ => {
            let at = content.match_indices(':').map(|(at, _)| at).find(|at| {
                content.get(at + 1..).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
            })?;
            (content.get(..at)?.trim_end(), content.get(at + 1..)?)
        }
    };
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a: comment\n\
        tls:\n\
        \x20 cert: |\n\
        \x20   -----BEGIN CERTIFICATE-----\n\
        \x20   Proc-Type: 4\n\
        \x20 suites:\n\
        \x20 - one\n\
        \x20 - two\n\
        \x20 curves:\n\
        \x20   - X\n\
        \x20   -\n\
        \x20     Y\n\
        users:\n\
        \x20 \"a b\" : x\n\
        \x20 'c:d': y\n\
        \x20 e: {f: 1}\n\
        \x20 a: 1\n\
        \x20 a: 2\n";

    #[test]
    fn keys_and_items_are_found() {
        let lines = Lines::of(TEXT);
        for (path, line) in [
            (&["tls"][..], 2),
            (&["tls", "cert"], 3),
            (&["tls", "suites"], 6),
            (&["tls", "suites", "#1"], 8),
            (&["tls", "curves", "#0"], 10),
            (&["tls", "curves", "#1"], 11),
            (&["users"], 13),
            (&["users", "a b"], 14),
            (&["users", "c:d"], 15),
            (&["users", "e", "f"], 16),
            (&["users", "unseen"], 13),
        ] {
            assert_eq!(lines.line(path), Some(line), "{path:?}");
        }
        assert_eq!(lines.line(&["none"]), None);
        assert_eq!(lines.repeated("a"), Some(18));
        assert_eq!(lines.repeated("cert"), None);
    }

    #[test]
    fn text_that_is_no_yaml_is_taken() {
        for text in ["", ":", "::", "'", "\"a", "-", "- - a:", "a:b", "\t: x", "é: ü", "'a'b: c"] {
            Lines::of(text);
        }
    }
}
