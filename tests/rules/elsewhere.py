#!/usr/bin/env python3
"""Runs the rules' unit tests (rules/tests) by what Debian 12 does not have: Prometheus 3's promtool, and VictoriaMetrics' vmalert-tool.

Both are Debian sid's, which move, so this is not in CI: `make rules-elsewhere`. The tests are the same but for their form:
floating-point numbers may differ in the last digits, and vmalert-tool calls some of it by other names.

"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e")]

from testbed import cache, debian, prometheus  # noqa: E402

LIMIT = 600


def victoria():
    """vmalert-tool of Debian sid."""
    def unpack(into):
        debian.download("victoria-metrics", "sid", into)

    return cache.built("victoria-metrics-sid", cache.key("sid"), unpack) / "usr/bin/vmalert-tool"


def for_promtool(text):
    return text + "\nfuzzy_compare: true\n"


def for_vmalert(text):
    return text.replace("promql_expr_test:", "metricsql_expr_test:")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=["promtool", "vmalert-tool"])
    parser.add_argument("--binary", type=pathlib.Path, help="another one than Debian sid's")
    parser.add_argument("files", nargs="*", help="names of files in rules/tests (default: all)")
    options = parser.parse_args()
    if options.tool == "promtool":
        adapt, command = for_promtool, [str(options.binary or prometheus.programs("3")[1]), "test", "rules"]
    else:
        adapt, command = for_vmalert, [str(options.binary or victoria()), "unittest", "--disableAlertgroupLabel", "--files"]
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        rules = pathlib.Path(directory) / "rules"
        shutil.copytree(ROOT / "rules", rules)
        for path in sorted((rules / "tests").glob("*/*.yaml")):
            if options.files and path.name not in options.files:
                continue
            path.write_text(adapt(path.read_text()))
            done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=LIMIT, check=False)
            print("ok  " if done.returncode == 0 else "FAIL", path.name, flush=True)
            if done.returncode:
                failed.append(path.name)
                print(*(line for line in (done.stdout + done.stderr).splitlines() if "\tinfo\t" not in line), sep="\n")
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
