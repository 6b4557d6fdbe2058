#!/usr/bin/env python3
"""Runs tests, and runs a few failed ones a second time, alone: a busy machine can be too slow for them.

    attempts.py rust [ARGUMENTS of cargo test]
    attempts.py python DIRECTORY [PATTERN]

A test that passes only then is named at the end and needs a repair (CONTRIBUTING.md). A real failure fails both times. There is no
second attempt if more than a few tests fail, if something else fails (a build, an import, an abort), or if the failed tests cannot be
identified. Under CI (the variable CI is set) a test that is skipped for a reason that tests/skips.md does not name fails
the run, too.
"""

import os
import re
import resource
import subprocess
import sys
import time
import unittest
from pathlib import Path

# At most so many failed tests get a second attempt.
FEW = 3
SKIPS = Path(__file__).parents[1] / "skips.md"
CARGO = os.environ.get("CARGO", "cargo")


def main(arguments):
    begun = time.monotonic()
    status = run(arguments)
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"attempts: {' '.join(arguments)} took {time.monotonic() - begun:.0f} s and {used:.0f} s of CPU time", flush=True)
    return status


def run(arguments):
    match arguments:
        case ["rust", *rest]:
            return rust(rest)
        case ["python", directory]:
            return python(directory, "test*.py")
        case ["python", directory, pattern]:
            return python(directory, pattern)
    print(__doc__, file=sys.stderr)
    return 64


def report(names):
    for name in names:
        print(f"note: {name}: passed at the second attempt", flush=True)
    return 0


def few(names):
    """Whether there is a second attempt, with a message."""
    if not 0 < len(names) <= FEW:
        return False
    print(f"\n==> once more, alone: {', '.join(names)}", flush=True)
    return True


def cargo(arguments, **environment):
    """Runs cargo test and prints its output; returns (exit status, output)."""
    command = [CARGO, "test", *arguments]
    lines = []
    with subprocess.Popen(command, env=os.environ | {"CARGO_TERM_COLOR": "never"} | environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def failed_targets(text):
    """The targets that cargo lists as failed: [["-p", "PACKAGE", "--test", "NAME"]]."""
    end = re.search(r"^error: \d+ targets? failed:\n((?:    `.*`\n)+)", text, re.M)
    return [line.strip().strip("`").split() for line in end[1].splitlines()] if end else []


def failed_tests(text):
    """The names of failed tests at the end of test programs' outputs."""
    lists = re.findall(r"^failures:\n((?:    .+\n)+)\ntest result: FAILED", text, re.M)
    return [line.strip() for names in lists for line in names.splitlines()]


def rust(arguments):
    status, text = cargo([*arguments, "--no-fail-fast"])
    targets, names = failed_targets(text), failed_tests(text)
    count = sum(map(int, re.findall(r"^test result: FAILED\. \d+ passed; (\d+) failed", text, re.M)))
    all_targets_listed = len(targets) == len(re.findall(r"^test result: FAILED", text, re.M))
    if status == 0 or not all_targets_listed or count != len(names) or not few(names := sorted(set(names))):
        return status
    passed = 0
    for target in targets:
        status, text = cargo([*arguments, *target, "--", "--exact", *names], RUST_TEST_THREADS="1")
        if status != 0:
            return status
        passed += sum(map(int, re.findall(r"^test result: ok\. (\d+) passed", text, re.M)))
    # A name in two programs is run in both.
    return report(names) if passed >= len(names) else 1


def python(directory, pattern):
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.discover(directory, pattern))
    skipped = sorted({reason for _, reason in result.skipped if not may_skip(reason)})
    for reason in skipped:
        print(f"skipped under CI, and tests/skips.md does not name it: {reason}", flush=True)
    if result.wasSuccessful():
        return 1 if skipped else 0
    names = sorted({name_of(test) for test, _ in result.failures + result.errors})
    if result.unexpectedSuccesses or None in names or not few(names):
        return 1
    again = subprocess.run([sys.executable, "-m", "unittest", *names],
                           env=os.environ | {"PYTHONPATH": os.path.abspath(directory)})
    return report(names) if again.returncode == 0 and not skipped else 1


def may_skip(reason):
    """Whether a test may be skipped for this reason: under CI tests/skips.md has to name its first word."""
    name, colon, _ = reason.partition(":")
    return not os.environ.get("CI") or bool(colon) and name in re.findall(r"^\| `([^`]+)`", SKIPS.read_text(), re.M)


def name_of(test):
    """The name by which unittest loads a test, a subTest, or the class of a failed setUpClass; None for a failed import."""
    test = getattr(test, "test_case", test)
    if isinstance(test, unittest.loader._FailedTest):
        return None
    fixture = re.fullmatch(r"\w+ \((.+)\)", test.id())
    return fixture[1] if fixture else test.id()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
