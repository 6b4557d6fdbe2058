//! Forms, as requests have them (WHATWG URL, `application/x-www-form-urlencoded`).

use std::fmt::Write;

/// The body of a form.
pub(crate) fn encode<'a>(form: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in form {
        let separator = if out.is_empty() { "" } else { "&" };
        let _ = write!(out, "{separator}{}={}", percent(name), percent(value));
    }
    out
}

/// One text with everything encoded that might mean something.
pub(crate) fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_letters_and_digits_is_encoded() {
        let form = encode([("query", "sum(a{b=\"ä\"}[5m]) + 1"), ("match[]", "a&b")]);
        assert_eq!(form, "query=sum%28a%7Bb%3D%22%C3%A4%22%7D%5B5m%5D%29%20%2B%201&match%5B%5D=a%26b");
    }
}
