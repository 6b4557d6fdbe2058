//! Committed expectations, compared byte for byte.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Set to `1`, the expectations are rewritten instead of compared; the diff is then the review.
pub const BLESS: &str = "JOBLEDGER_BLESS";

/// Compares text with the committed file, normalising nothing: what varies has no place in an expectation.
///
/// # Panics
/// With a unified diff where they differ, or with how to bless where there is no file.
pub fn assert_golden(expectation: &Path, actual: &str) {
    if std::env::var_os(BLESS).is_some_and(|v| v == "1") {
        if let Some(parent) = expectation.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        }
        fs::write(expectation, actual).unwrap_or_else(|e| panic!("{}: {e}", expectation.display()));
        return;
    }
    let expected = match fs::read_to_string(expectation) {
        Ok(text) => text,
        Err(e) => panic!("{}: {e}; {BLESS}=1 writes it", expectation.display()),
    };
    if expected != actual {
        let diff = unified_diff(&expected, actual);
        panic!("{} differs; {BLESS}=1 rewrites it\n{diff}", expectation.display());
    }
}

const CONTEXT: usize = 3;

/// Beyond this the table of the longest common subsequence would not fit a test's memory; one hunk replaces all then.
const TABLE_LIMIT: usize = 16_000_000;

#[derive(Clone, Copy, PartialEq)]
enum Edit {
    Keep,
    Delete,
    Insert,
}

/// The difference of two texts as `diff -u` writes it, without file names.
#[must_use]
pub fn unified_diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let edits = edit_script(&old, &new);
    let changed = |e: &Edit| *e != Edit::Keep;
    let mut out = String::new();
    let mut from = 0;
    while let Some(first) = edits.iter().skip(from).position(changed).map(|i| i + from) {
        // A hunk ends where more unchanged lines follow than the contexts of two hunks.
        let mut last = first;
        while let Some(next) = edits.iter().skip(last + 1).take(2 * CONTEXT + 1).position(changed) {
            last += 1 + next;
        }
        let (start, end) = (first.saturating_sub(CONTEXT), (last + CONTEXT + 1).min(edits.len()));
        write_hunk(&mut out, &edits, start..end, &old, &new);
        from = end;
    }
    out
}

fn write_hunk(out: &mut String, edits: &[Edit], range: std::ops::Range<usize>, old: &[&str], new: &[&str]) {
    let count = |edits: &[Edit], not: Edit| edits.iter().filter(|e| **e != not).count();
    let (before, hunk) = (edits.get(..range.start).unwrap_or_default(), edits.get(range).unwrap_or_default());
    let (mut o, mut n) = (count(before, Edit::Insert), count(before, Edit::Delete));
    let (olds, news) = (count(hunk, Edit::Insert), count(hunk, Edit::Delete));
    let start = |at: usize, lines: usize| if lines == 0 { at } else { at + 1 };
    let _ = writeln!(out, "@@ -{},{olds} +{},{news} @@", start(o, olds), start(n, news));
    for edit in hunk {
        let (sign, line) = match edit {
            Edit::Insert => ('+', new.get(n)),
            Edit::Delete => ('-', old.get(o)),
            Edit::Keep => (' ', old.get(o)),
        };
        o += usize::from(*edit != Edit::Insert);
        n += usize::from(*edit != Edit::Delete);
        let line = line.copied().unwrap_or_default();
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

fn edit_script(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let prefix = old.iter().zip(new).take_while(|(o, n)| o == n).count();
    let (old, new) = (old.get(prefix..).unwrap_or_default(), new.get(prefix..).unwrap_or_default());
    let suffix = old.iter().rev().zip(new.iter().rev()).take_while(|(o, n)| o == n).count();
    let (old, new) = (
        old.get(..old.len() - suffix).unwrap_or_default(),
        new.get(..new.len() - suffix).unwrap_or_default(),
    );
    let mut edits = vec![Edit::Keep; prefix];
    if old.len().saturating_mul(new.len()) > TABLE_LIMIT {
        edits.extend(std::iter::repeat_n(Edit::Delete, old.len()));
        edits.extend(std::iter::repeat_n(Edit::Insert, new.len()));
    } else {
        edits.extend(shortest_edits(old, new));
    }
    edits.extend(std::iter::repeat_n(Edit::Keep, suffix));
    edits
}

#[allow(clippy::indexing_slicing, reason = "the table has one row and column more than the texts have lines")]
fn shortest_edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for o in (0..old.len()).rev() {
        for n in (0..new.len()).rev() {
            common[o * width + n] = if old[o] == new[n] {
                common[(o + 1) * width + n + 1] + 1
            } else {
                common[(o + 1) * width + n].max(common[o * width + n + 1])
            };
        }
    }
    let (mut o, mut n, mut edits) = (0, 0, Vec::new());
    while o < old.len() || n < new.len() {
        let edit = if o < old.len() && n < new.len() && old[o] == new[n] {
            Edit::Keep
        } else if n == new.len()
            || (o < old.len() && common[(o + 1) * width + n] >= common[o * width + n + 1])
        {
            Edit::Delete
        } else {
            Edit::Insert
        };
        o += usize::from(edit != Edit::Insert);
        n += usize::from(edit != Edit::Delete);
        edits.push(edit);
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn equal_text_passes_and_different_text_panics_with_the_diff() {
        let scratch = Scratch::new("golden");
        let file = scratch.path().join("expected.txt");
        fs::write(&file, "a\nb\n").unwrap();
        assert_golden(&file, "a\nb\n");
        let panic = std::panic::catch_unwind(|| assert_golden(&file, "a\nc\n")).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.ends_with("@@ -1,2 +1,2 @@\n a\n-b\n+c\n"), "{message}");
    }

    #[test]
    fn nothing_is_normalised() {
        let scratch = Scratch::new("golden");
        let file = scratch.path().join("expected.txt");
        fs::write(&file, "a\n").unwrap();
        for other in ["a", "a\n\n", "a \n", "a\r\n", ""] {
            assert!(std::panic::catch_unwind(|| assert_golden(&file, other)).is_err(), "{other:?}");
        }
    }

    #[test]
    fn diffs_read_as_those_of_diff() {
        for (old, new, expected) in [
            ("", "a\n", "@@ -0,0 +1,1 @@\n+a\n"),
            ("a\n", "", "@@ -1,1 +0,0 @@\n-a\n"),
            ("a", "a\n", "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"),
            ("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nx\n", "@@ -2,4 +2,4 @@\n 2\n 3\n 4\n-5\n+x\n"),
            ("a\nb\nc\n", "b\nc\nd\n", "@@ -1,3 +1,3 @@\n-a\n b\n c\n+d\n"),
        ] {
            assert_eq!(unified_diff(old, new), expected, "{old:?} {new:?}");
        }
        assert_eq!(unified_diff("same\n", "same\n"), "");
    }

    #[test]
    fn distant_changes_are_separate_hunks() {
        let old: String = (0..30).map(|i| format!("{i}\n")).collect();
        let new = old.replace("\n5\n", "\nfive\n").replace("\n25\n", "\nxxv\n");
        let diff = unified_diff(&old, &new);
        assert_eq!(diff.matches("@@ -").count(), 2, "{diff}");
        assert!(diff.contains("@@ -3,7 +3,7 @@") && diff.contains("@@ -23,7 +23,7 @@"), "{diff}");
    }
}
