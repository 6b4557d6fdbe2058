#!/usr/bin/env python3
"""Runs tests, and the few that failed once more, alone: a machine that others keep busy can be late for what they wait for.

    attempts.py rust [ARGUMENTS of cargo test]
    attempts.py python DIRECTORY [PATTERN]

A test that passes only then is named at the end, and is to be mended: see CONTRIBUTING.md. What is wrong fails both times. When more
than a few fail, when something other than a test does (a build, an import, an abort), or when what was run again is not what failed,
there is no second attempt. Under CI (the variable CI is set) a test that is skipped for a reason that tests/skips.md does not name fails
the run, too.
"""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

# As many as one busy moment can make late.
FEW = 3
SKIPS = Path(__file__).parents[1] / "skips.md"
CARGO = os.environ.get("CARGO", "cargo")


def main(arguments):
    match arguments:
        case ["rust", *rest]:
            return rust(rest)
        case ["python", directory]:
            return python(directory, "test*.py")
        case ["python", directory, pattern]:
            return python(directory, pattern)
    print(__doc__, file=sys.stderr)
    return 64


def told(names):
    for name in names:
        print(f"note: {name}: passed at the second attempt", flush=True)
    return 0


def few(names):
    """Whether there is to be a second attempt, which is said."""
    if not 0 < len(names) <= FEW:
        return False
    print(f"\n==> once more, alone: {', '.join(names)}", flush=True)
    return True


def cargo(arguments, **environment):
    """Runs cargo test and shows what it prints; its exit status and that text."""
    command = [CARGO, "test", *arguments]
    shown = []
    with subprocess.Popen(command, env=os.environ | {"CARGO_TERM_COLOR": "never"} | environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            shown.append(line)
    return process.returncode, "".join(shown)


def failed_targets(text):
    """What cargo says to rerun: [["-p", "PACKAGE", "--test", "NAME"]]."""
    end = re.search(r"^error: \d+ targets? failed:\n((?:    `.*`\n)+)", text, re.M)
    return [line.strip().strip("`").split() for line in end[1].splitlines()] if end else []


def failed_tests(text):
    """The names in the lists that end the output of test programs."""
    lists = re.findall(r"^failures:\n((?:    .+\n)+)\ntest result: FAILED", text, re.M)
    return [line.strip() for names in lists for line in names.splitlines()]


def rust(arguments):
    status, text = cargo([*arguments, "--no-fail-fast"])
    targets, names = failed_targets(text), failed_tests(text)
    told_failed = sum(map(int, re.findall(r"^test result: FAILED\. \d+ passed; (\d+) failed", text, re.M)))
    every_target_told = len(targets) == len(re.findall(r"^test result: FAILED", text, re.M))
    if status == 0 or not every_target_told or told_failed != len(names) or not few(names := sorted(set(names))):
        return status
    passed = 0
    for target in targets:
        status, text = cargo([*arguments, *target, "--", "--exact", *names], RUST_TEST_THREADS="1")
        if status != 0:
            return status
        passed += sum(map(int, re.findall(r"^test result: ok\. (\d+) passed", text, re.M)))
    # A name that two programs have is run in both.
    return told(names) if passed >= len(names) else 1


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
    return told(names) if again.returncode == 0 and not skipped else 1


def may_skip(reason):
    """Whether a test may be skipped for it: its first word is what is missing, and under CI tests/skips.md has to name that."""
    name, colon, _ = reason.partition(":")
    return not os.environ.get("CI") or bool(colon) and name in re.findall(r"^\| `([^`]+)`", SKIPS.read_text(), re.M)


def name_of(test):
    """What unittest loads it by, of a test, a part of one (subTest), or the setUpClass of some; nothing of a failed import."""
    test = getattr(test, "test_case", test)
    if isinstance(test, unittest.loader._FailedTest):
        return None
    fixture = re.fullmatch(r"\w+ \((.+)\)", test.id())
    return fixture[1] if fixture else test.id()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
