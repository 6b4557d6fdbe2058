//! Text of users on its way into a label.

use kernel_files::label_text;
use proptest::prelude::*;

proptest! {
    #[test]
    fn text_of_users_becomes_a_short_line_without_control_characters(bytes in any::<Vec<u8>>(), times in 0..40_usize) {
        let text = label_text(&bytes.repeat(times));
        prop_assert!(text.len() <= 256);
        prop_assert!(!text.chars().any(char::is_control));
        prop_assert_eq!(label_text(text.as_bytes()), text.clone(), "clean text is not changed");
        let whole = String::from_utf8_lossy(&bytes.repeat(times)).replace(char::is_control, "\u{fffd}");
        if whole.len() <= 256 {
            prop_assert_eq!(text, whole);
        } else {
            let kept = text.strip_suffix('…').unwrap();
            prop_assert!(whole.starts_with(kept) && text.len() > 256 - 8);
        }
    }
}
