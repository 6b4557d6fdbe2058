//! Text of others, such as the name of a job: its user chooses it.

use unicode_width::UnicodeWidthChar;

/// The most columns that a foreign text has.
const MOST: usize = 64;

/// A text that does nothing to a terminal or a reader: control characters are replaced, and so are those that change the direction of writing
/// (Unicode, UAX #9) or are invisible. It is cut at 64 columns.
pub(crate) fn harmless(text: &str) -> String {
    cut(&harmless_line(text), MOST)
}

/// The same without a cut, for a line of others that has to be whole.
pub(crate) fn harmless_line(text: &str) -> String {
    text.chars().map(|c| if is_harmful(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// At most so many columns; what is cut ends with `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut result, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        result.push(c);
    }
    result.push('…');
    result
}

/// The columns of a terminal that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The text, and spaces up to so many columns.
pub(crate) fn left(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let spaces = columns.saturating_sub(width(&text));
    format!("{text}{:spaces$}", "")
}

/// Spaces, and the text.
pub(crate) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let spaces = columns.saturating_sub(width(&text));
    format!("{:spaces$}{text}", "")
}

/// Lines of at most so many columns, broken at spaces; a word that is longer is broken, too.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(pieces(word, columns)),
        }
    }
    lines
}

/// A word in pieces of at most so many columns.
fn pieces(word: &str, columns: usize) -> Vec<String> {
    let (mut pieces, mut used) = (vec![String::new()], 0);
    for c in word.chars() {
        used += c.width().unwrap_or(0);
        if used > columns.max(2) {
            used = c.width().unwrap_or(0);
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

/// Whether a text is of a pattern, in which `*` stands for any text.
pub(crate) fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match text.split_once(part) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("cpu_*", "cpu_seconds"),
            ("*", ""),
            ("*_bytes", "a_bytes"),
            ("a*b*c", "abbc"),
            ("a*b*b", "abb"),
            ("a**a", "aa"),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("cpu", "cpus"), ("a*b*c", "acb"), ("a*a", "a"), ("", "a"), ("a*b*b", "ab")] {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
        // Many stars cost no more than a few.
        assert!(!is_like(&"*a".repeat(40), &"a".repeat(39)));
    }

    #[test]
    fn names_do_nothing_to_a_terminal() {
        assert_eq!(
            harmless("a\x1b[31mb\r\n\u{202e}c\u{7f}"),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}\u{fffd}c\u{fffd}"
        );
        assert_eq!(harmless("größe 計算"), "größe 計算");
        assert_eq!(width(&harmless(&"計".repeat(100))), 63);
    }

    #[test]
    fn no_line_is_longer() {
        assert_eq!(wrapped("a bc  def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("a abcdefghij b", 4), ["a", "abcd", "efgh", "ij b"]);
        assert_eq!(wrapped("計算機", 5), ["計算", "機"]);
        assert!(wrapped(" ", 4).is_empty());
    }

    #[test]
    fn columns_are_counted_not_characters() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(left("計", 4), "計  ");
        assert_eq!(right("計算機", 5), "計算…");
        assert_eq!(right("7", 3), "  7");
    }
}
