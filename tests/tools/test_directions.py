"""Modules that use each other are found; the workspace has none."""

import pathlib
import tempfile
import unittest
from unittest import mock

import directions


def arrows(files):
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, text in files.items():
            path = root / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with mock.patch.object(directions, "ROOT", root):
            return set(directions.arrows(root / "src"))


class Arrows(unittest.TestCase):
    def test_every_form_of_a_path_is_found(self):
        files = {"lib.rs": "mod a; mod b; mod c; mod d;", "a.rs": "use crate::{b::X, c::{self, Y as Z}};\nfn f() { super::d::g() }",
                 "b.rs": "", "c.rs": "", "d.rs": "pub fn g() {}"}
        self.assertEqual(arrows(files), {((), "a", "b"), ((), "a", "c"), ((), "a", "d")})

    def test_tests_comments_and_texts_do_not_count(self):
        files = {"lib.rs": "", "a.rs": '// use crate::b::X;\nconst T: &str = "use crate::b::X;";\n#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}\n',
                 "a/tests.rs": "use crate::b::X;", "b.rs": ""}
        self.assertEqual(arrows(files), set())

    def test_siblings_are_compared_at_their_own_level(self):
        files = {"lib.rs": "", "a/mod.rs": "", "a/x.rs": "use super::y::Y;\nuse crate::b::B;", "a/y.rs": "", "b.rs": ""}
        self.assertEqual(arrows(files), {(("a",), "x", "y"), ((), "a", "b")})


class Cycles(unittest.TestCase):
    def test_one_cycle_is_reported_for_each_group(self):
        self.assertEqual(directions.cycles([("a", "b"), ("b", "c")]), [])
        self.assertEqual(directions.cycles([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")]), [["a", "b", "c"], ["e", "f"]])


if __name__ == "__main__":
    unittest.main()
