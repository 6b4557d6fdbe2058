//! Text of others in a drawing: what may stand there, how wide it is, and how it is written in XML.

/// Advance widths of DejaVu Sans from U+0020 to U+007E, in 2048ths of the font size (table hmtx of DejaVuSans.ttf 2.37).
#[rustfmt::skip]
const ASCII: [u16; 95] = [
    651, 821, 942, 1716, 1303, 1946, 1597, 563, 799, 799, 1024, 1716, 651, 739, 651, 690, 1303, 1303, 1303, 1303,
    1303, 1303, 1303, 1303, 1303, 1303, 690, 690, 1716, 1716, 1716, 1087, 2048, 1401, 1405, 1430, 1577, 1294, 1178,
    1587, 1540, 604, 604, 1343, 1141, 1767, 1532, 1612, 1235, 1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251,
    1403, 799, 690, 799, 1716, 1024, 1024, 1255, 1300, 1126, 1300, 1260, 721, 1300, 1298, 569, 569, 1186, 569, 1995,
    1298, 1253, 1300, 1300, 842, 1067, 803, 1298, 1212, 1675, 1212, 1212, 1075, 1303, 690, 1303, 1716,
];
/// The same from U+00A0 to U+00FF.
#[rustfmt::skip]
const LATIN: [u16; 96] = [
    651, 821, 1303, 1303, 1303, 1303, 690, 1024, 1024, 2048, 965, 1253, 1716, 739, 2048, 1024, 1024, 1716, 821, 821,
    1024, 1303, 1303, 651, 1024, 821, 965, 1253, 1985, 1985, 1985, 1087, 1401, 1401, 1401, 1401, 1401, 1401, 1995, 1430,
    1294, 1294, 1294, 1294, 604, 604, 604, 604, 1587, 1532, 1612, 1612, 1612, 1612, 1612, 1716, 1612, 1499, 1499, 1499,
    1499, 1251, 1239, 1290, 1255, 1255, 1255, 1255, 1255, 1255, 2011, 1126, 1260, 1260, 1260, 1260, 569, 569, 569, 569,
    1253, 1298, 1253, 1253, 1253, 1253, 1253, 1716, 1253, 1298, 1298, 1298, 1298, 1212, 1300, 1212,
];
/// Any other character, as wide as nearly all of them are at most.
const OTHER: u16 = 2253;

/// Longer text is cut before anything else is done with it.
const LONGEST: usize = 1000;

/// The width of a text in DejaVu Sans of this size. Other fonts without serifs are narrower.
pub fn text_width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(|c| f64::from(advance(c))).sum();
    units / 2048.0 * size
}

fn advance(c: char) -> u16 {
    let in_table = |table: &[u16], first: u32| {
        let at = usize::try_from(u32::from(c).checked_sub(first)?).ok()?;
        table.get(at).copied()
    };
    in_table(&ASCII, 0x20).or_else(|| in_table(&LATIN, 0xa0)).unwrap_or(OTHER)
}

/// What a reader may see of a text. Controls and what XML has no place for (XML 1.0, production 2) are U+FFFD. What is
/// invisible goes, above all marks of direction: they would put the rest of the line in another order (UAX 9).
pub(crate) fn clean(text: &str) -> String {
    let seen = text.chars().filter(|c| !is_invisible(*c)).take(LONGEST);
    seen.map(|c| if c.is_control() || u32::from(c) & 0xfffe == 0xfffe { '\u{fffd}' } else { c }).collect()
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A clean text that is at most so wide, its end replaced by an ellipsis where it has to be.
pub(crate) fn fitted(text: &str, size: f64, room: f64) -> String {
    let clean = clean(text);
    if text_width(&clean, size) <= room {
        return clean;
    }
    let ellipsis = '…';
    let mut left = room - f64::from(advance(ellipsis)) / 2048.0 * size;
    if left < 0.0 {
        return String::new();
    }
    let mut cut: String = clean
        .chars()
        .take_while(|c| {
            left -= f64::from(advance(*c)) / 2048.0 * size;
            left >= 0.0
        })
        .collect();
    cut.truncate(cut.trim_end().len());
    cut.push(ellipsis);
    cut
}

/// Appends a clean text as XML, fit for an attribute and for content.
pub(crate) fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_the_font() {
        // "128 GiB": 3 digits, a space, G, i, B.
        assert_eq!(text_width("128 GiB", 2048.0), 3.0 * 1303.0 + 651.0 + 1587.0 + 569.0 + 1405.0);
        assert_eq!(text_width("é", 2048.0), 1260.0);
        assert_eq!(text_width("~ÿ", 2048.0), 1716.0 + 1212.0);
        assert_eq!(text_width("界", 2048.0), 2253.0);
    }

    #[test]
    fn nothing_invisible_and_no_control_is_left() {
        assert_eq!(clean("a\u{202e}b\u{200f}\u{2066}c\u{feff}\u{e0041}"), "abc");
        assert_eq!(clean("a\u{0}b\nc\u{9b}d\u{fffe}\u{1ffff}"), "a�b�c�d��");
        assert_eq!(clean(&"x".repeat(5000)).len(), 1000);
    }

    #[test]
    fn markup_is_text() {
        let mut out = String::new();
        escape(&mut out, "</svg>&\"'");
        assert_eq!(out, "&lt;/svg&gt;&amp;&quot;&#39;");
    }

    #[test]
    fn a_long_text_ends_in_an_ellipsis_and_fits() {
        assert_eq!(fitted("short", 10.0, 100.0), "short");
        let cut = fitted("a name that is much too long", 10.0, 80.0);
        assert_eq!(cut, "a name that i…");
        assert!(text_width(&cut, 10.0) <= 80.0);
        assert_eq!(fitted("no room", 10.0, 5.0), "");
    }
}
