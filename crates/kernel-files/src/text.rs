//! Text of users on its way into a label.

/// Longest label value made of text that users control, in bytes, its mark included.
const CAP: usize = 256;
const MARK: char = '…';

/// Makes a label value of bytes that a user may have chosen (job name, comment, account): lossy UTF-8,
/// control characters replaced (a terminal may show it), cut at [`CAP`] bytes with a mark. Quotes, backslashes
/// and newlines are the encoder's to escape; the newline is a control character and does not get that far.
pub fn label_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().min(CAP));
    for c in String::from_utf8_lossy(bytes).chars() {
        let c = if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        if text.len() + c.len_utf8() > CAP {
            while text.len() + MARK.len_utf8() > CAP {
                text.pop();
            }
            text.push(MARK);
            break;
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_becomes_a_short_printable_line() {
        assert_eq!(label_text(b"a\"} 1\nfake 42\n#"), "a\"} 1\u{fffd}fake 42\u{fffd}#");
        assert_eq!(label_text(b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(label_text("\u{1b}[31mä".as_bytes()), "\u{fffd}[31mä");
        let long = label_text(&vec![b'x'; 65536]);
        assert!(long.len() <= 256 && long.ends_with('…'));
        let wide = label_text("ä".repeat(200).as_bytes());
        assert!(wide.len() <= 256 && wide.ends_with('…'));
        assert_eq!(label_text(&[b'y'; 256]).len(), 256);
    }
}
