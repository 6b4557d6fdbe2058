#!/usr/bin/env python3
"""Runs the rules' unit tests (rules/tests) with tools that Debian 12 lacks: Prometheus 3's promtool, and VictoriaMetrics' vmalert-tool.

Both are Debian sid's, which move, so this is not in CI: `make rules-elsewhere`. The tests are the same but for their form:
numbers may differ in the last digits, and vmalert-tool calls some of it by other names.

"""

import argparse
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e")]

from testbed import cache, debian, prometheus  # noqa: E402

# Timeout of one file, seconds.
LIMIT = 600
# Numbers that differ by less, relatively, are equal.
EQUAL = 1e-9
VALUE = re.compile(r"(?<=\} )[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")


def victoria():
    """vmalert-tool of Debian sid."""
    def unpack(into):
        debian.download("victoria-metrics", "sid", into)

    return cache.built("victoria-metrics-sid", cache.key("sid"), unpack) / "usr/bin/vmalert-tool"


def for_vmalert(text):
    """A test for vmalert-tool. Its rules see what others of their group recorded at the evaluation before. An instant query does not
    find that if it is five minutes old."""
    text = re.sub(r"^evaluation_interval: 5m$", "evaluation_interval: 1m", text, flags=re.MULTILINE)
    return text.replace("promql_expr_test:", "metricsql_expr_test:")


def more_than_rounding(output):
    """The differences of a tool's output, without those in the last digits of numbers."""
    # The last line continues with vmalert-tool's log.
    output = re.sub(r"\]\d{4}/\d\d/\d\d [\d:]+ unittest failed$", "", output.rstrip())
    pairs = re.findall(r"^\s+exp: ?(.*)\n\s+got: ?(.*)$", output, re.MULTILINE)
    found = [pair for pair in pairs if VALUE.sub("", pair[0]).strip() != VALUE.sub("", pair[1]).strip()
            or not all(math.isclose(float(one), float(other), rel_tol=EQUAL)
                       for one, other in zip(VALUE.findall(pair[0]), VALUE.findall(pair[1])))]
    # Differences of alerts and errors of files have other forms.
    others = len(re.findall(r"\bexp:", output)) != len(pairs) or not pairs
    return [*(f"exp {one}\ngot {other}" for one, other in found), *(["\n".join(output.splitlines()[:40])] if others else [])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=["promtool", "vmalert-tool"])
    parser.add_argument("--binary", type=pathlib.Path, help="another one than Debian sid's")
    parser.add_argument("--files", nargs="+", default=[], help="names of files in rules/tests (default: all)")
    options = parser.parse_args()
    if options.tool == "promtool":
        adapt, command = str, [str(options.binary or prometheus.programs("3")[1]), "test", "rules"]
    else:
        adapt, command = for_vmalert, [str(options.binary or victoria()), "unittest", "--disableAlertgroupLabel", "--files"]
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        rules = pathlib.Path(directory) / "rules"
        shutil.copytree(ROOT / "rules", rules)
        paths = sorted((rules / "tests").glob("*/*.yaml"))
        if unknown := set(options.files) - {path.name for path in paths}:
            parser.error(f"no such file in rules/tests/*: {', '.join(sorted(unknown))}")
        for path in [path for path in paths if not options.files or path.name in options.files]:
            path.write_text(adapt(path.read_text()))
            done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=LIMIT, check=False)
            output = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "\tinfo\t" not in line)
            wrong = more_than_rounding(output) if done.returncode else []
            print("FAIL" if wrong else "ok  ", path.name, *wrong, sep="\n" if wrong else " ", flush=True)
            failed += [path.name] if wrong else []
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
