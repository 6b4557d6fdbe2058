"""What is counted, that counts may only fall, and how sentences are measured."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import words


def lines(reader, text):
    return [(line, said.strip()) for line, said in reader(text)]


class Readers(unittest.TestCase):
    def test_of_rust_comments_and_strings_are_read_and_code_is_not(self):
        text = """/// Told once.\nfn told(fate: &'static str) -> char {\n    let quote = '"'; // lives\n    warn!("a \\"tale\\" of {fate}");\n    r#"raw "told" text"#;\n}\n"""
        self.assertEqual(lines(words.of_rust, text), [(1, "/// Told once."), (3, "// lives"), (4, 'a \\"tale\\" of {fate}'), (5, 'raw "told" text')])

    def test_of_python_comments_and_strings_are_read_and_code_is_not(self):
        text = '"""Page."""\ntold = 1  # why\nprint(f"a {told} b")\n'
        self.assertEqual(sorted(lines(words.of_python, text)), [(1, "Page."), (2, "# why"), (3, "a"), (3, "b")])

    def test_of_pages_code_is_not_read(self):
        text = "# Head\n```sh\ntold\n```\n<!-- told\n-->\nsays `told` here\n"
        self.assertEqual([row for row in lines(words.of_page, text) if row[1]], [(1, "# Head"), (7, "says x here")])

    def test_of_c_and_its_like_and_of_shell_comments_are_read(self):
        self.assertEqual(lines(words.READERS[".ts"], 'a("http://x"); // one\n/* two\n3 */'), [(1, "// one"), (2, "/* two\n3 */")])
        self.assertEqual(lines(words.READERS[".sh"], "echo ${a#b} # one\n# two\n"), [(1, "# one"), (2, "# two")])


class Counts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.counts = self.root / "words.txt"

    def page(self, text):
        (self.root / "page.md").write_text(text)

    def test_a_use_more_is_wrong_and_the_counts_never_rise(self):
        self.page("It tells of two lives. It told.\n")
        self.assertEqual(words.check(self.root, self.counts, update=True), [])
        self.assertEqual(words.allowed(self.counts), {"tell": 2, "life": 1})
        self.page("It tells. It told. Tell!\n")
        for update in (False, True):
            (wrong,) = words.check(self.root, self.counts, update)
            self.assertIn("'tell' is used 3 times, 2 are allowed", wrong)
        self.assertEqual(words.allowed(self.counts), {"tell": 2})
        self.page("A life.\n")
        self.assertIn("'life' is used 1 times, 0 are allowed", words.check(self.root, self.counts)[0])

    def test_what_is_not_private_is_not_counted(self):
        self.page("The lifetime of a runbook, booked.yaml, a storyteller, and `told`.\n")
        self.assertEqual(list(words.places(self.root)), [])

    def test_each_place_is_shown_with_its_line(self):
        (self.root / "a.rs").write_text("fn a() {}\n/* one\n   told */\n")
        (self.root / "target").mkdir()
        (self.root / "target/b.rs").write_text("// told\n")
        self.assertEqual(list(words.places(self.root)), [(Path("a.rs"), 3, "tell", "told */")])


class Sentences(unittest.TestCase):
    def test_lists_are_sentences_and_tables_headings_and_code_are_none(self):
        page = "# Head\n\nOne two. Three\nfour five.\n\n- six (seven.) Eight\n- nine\n\n| a | b |\n\n```sh\nx y z\n```\n![one](a.png)\n"
        self.assertEqual(words.sentences(page), ["One two.", "Three four five.", "six (seven.", "Eight", "nine", "one"])
        self.assertEqual(words.mean_words("One two. Three four five six."), 3.0)

    def test_an_unknown_word_is_an_error(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(words.main(["--show", "no such word"]), 64)
        self.assertIn("words.py --show WORD", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
