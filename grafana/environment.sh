#!/bin/sh
# Makes a Python environment with grafana/requirements.txt below $JOBLEDGER_CACHE, once, and prints its Python.
# Needs Python 3.11 or later with venv (Debian: python3-venv).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${JOBLEDGER_CACHE:-$HOME/.cache/jobledger}
digest=$(cat "$here/requirements.txt" "$here/environment.sh" | sha256sum | cut -c1-16)
target=$cache/grafana-python-$digest
if [ ! -x "$target/bin/python" ]; then
    mkdir -p "$cache"
    partial=$(mktemp -d "$cache/grafana-python.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    python3 -m venv "$partial"
    "$partial/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$here/requirements.txt" >&2
    # Whoever else made it meanwhile made the same.
    mv -T "$partial" "$target" 2>/dev/null || [ -x "$target/bin/python" ]
fi
echo "$target/bin/python"
