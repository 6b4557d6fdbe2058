"""Second attempts, with a real cargo and unittest and tests that fail a given number of times."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).with_name("attempts.py")
# The file NAME has the number of failures.
RUST = '''
#[cfg(test)]
fn fails(name: &str) {
    let path = std::path::Path::new(env!("COUNTS")).join(name);
    let Ok(left) = std::fs::read_to_string(&path) else { return };
    let left: u32 = left.parse().unwrap();
    if left > 0 {
        std::fs::write(&path, (left - 1).to_string()).unwrap();
        if name == "aborts" { std::process::abort() }
        panic!("{name} fails");
    }
}
'''
PYTHON = '''
import pathlib, unittest
def fails(name):
    path = pathlib.Path(__file__).with_name(name)
    left = int(path.read_text()) if path.exists() else 0
    if left:
        path.write_text(str(left - 1))
        raise AssertionError(name)
class A(unittest.TestCase):
    @classmethod
    def setUpClass(cls): fails("class")
    def test_one(self): fails("one")
    def test_two(self): fails("two")
    def test_parts(self):
        for part in "ab":
            with self.subTest(part): fails(f"part_{part}")
class B(unittest.TestCase):
    def test_three(self): fails("three")
    def test_four(self): fails("four")
    def test_skips(self):
        reason = pathlib.Path(__file__).with_name("reason")
        if reason.exists(): self.skipTest(reason.read_text())
    @unittest.expectedFailure
    def test_not_expected(self):
        if not pathlib.Path(__file__).with_name("unexpected").exists(): self.fail()
'''


def rust_tests(names):
    return "".join(f'#[test] fn {name}() {{ fails("{name}") }}\n' for name in names)


class Attempts(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def left(self, **counts):
        for name, count in counts.items():
            (self.directory / name).write_text(str(count))

    def run_it(self, *arguments, **environment):
        done = subprocess.run([sys.executable, PROGRAM, *arguments], cwd=self.directory, env=os.environ | environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        notes = re.findall(r"^note: (.+): passed at the second attempt$", done.stdout, re.M)
        return done.returncode == 0, notes, "==> once more" in done.stdout, done.stdout

    def test_a_wrong_call_is_refused(self):
        for arguments in [], ["python"], ["go"]:
            self.assertFalse(self.run_it(*arguments)[0])


class Python(Attempts):
    def setUp(self):
        super().setUp()
        (self.directory / "test_it.py").write_text(PYTHON)

    def expect(self, good, notes, again):
        found = self.run_it("python", str(self.directory))
        self.assertEqual(found[:3], (good, notes, again), found[3])

    def test_a_test_that_passes_runs_once(self):
        self.expect(True, [], False)

    def test_a_test_that_passes_at_the_second_attempt_is_named(self):
        self.left(one=1, part_b=1, three=1)
        self.expect(True, ["test_it.A.test_one", "test_it.A.test_parts", "test_it.B.test_three"], True)

    def test_a_class_whose_setup_fails_runs_again(self):
        self.left(**{"class": 1})
        self.expect(True, ["test_it.A"], True)

    def test_a_test_that_fails_twice_is_a_failure(self):
        self.left(one=2)
        self.expect(False, [], True)

    def test_many_failures_have_no_second_attempt(self):
        self.left(one=1, two=1, three=1, four=1)
        self.expect(False, [], False)

    def test_a_failed_import_has_no_second_attempt(self):
        (self.directory / "test_broken.py").write_text("import nothing_of_this_name")
        self.expect(False, [], False)

    def test_an_unexpected_success_has_no_second_attempt(self):
        self.left(unexpected=1)
        self.expect(False, [], False)

    def test_under_ci_a_skip_is_a_failure_unless_it_is_named(self):
        for reason, ci, good in [("psi: no PSI", "true", True), ("moon: not full", "true", False), ("psi", "true", False),
                                 ("moon: not full", "", True)]:
            with self.subTest(reason=reason, ci=ci):
                (self.directory / "reason").write_text(reason)
                found = self.run_it("python", str(self.directory), CI=ci)
                self.assertEqual(found[0], good, found[3])

    def test_a_pattern_chooses(self):
        (self.directory / "test_broken.py").write_text("import nothing_of_this_name")
        self.assertTrue(self.run_it("python", str(self.directory), "test_i*.py")[0])


class Rust(Attempts):
    def setUp(self):
        super().setUp()
        for path, text in {
            "Cargo.toml": '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n',
            "src/lib.rs": RUST + rust_tests(["one", "two", "aborts"]),
            "tests/other.rs": RUST + rust_tests(["one", "three", "four"]),
        }.items():
            (self.directory / path).parent.mkdir(exist_ok=True)
            (self.directory / path).write_text(text)

    def expect(self, good, notes, again):
        found = self.run_it("rust", "--offline", COUNTS=str(self.directory), CARGO_TARGET_DIR=str(self.directory / "target"))
        self.assertEqual(found[:3], (good, notes, again), found[3])

    def test_each_case(self):
        # One after the other, since each first call builds.
        for counts, expected in [
            ({}, (True, [], False)),
            ({"two": 1, "three": 1}, (True, ["three", "two"], True)),
            ({"three": 2}, (False, [], True)),
            # Twice, in both programs.
            ({"one": 2, "four": 1}, (True, ["four", "one"], True)),
            ({"two": 1, "three": 1, "four": 1, "one": 1}, (False, [], False)),
            # The other program's failure is listed, its own is not.
            ({"aborts": 1, "three": 1}, (False, [], False)),
        ]:
            with self.subTest(counts):
                self.left(**dict.fromkeys(["one", "two", "three", "four", "aborts"], 0) | counts)
                self.expect(*expected)

    def test_a_failed_build_has_no_second_attempt(self):
        (self.directory / "src/lib.rs").write_text("no Rust")
        self.expect(False, [], False)


if __name__ == "__main__":
    unittest.main()
