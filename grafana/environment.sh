#!/bin/sh
# Makes a Python environment with grafana/requirements.txt, or with those of the file that is named, below $JOBLEDGER_CACHE, once, and prints
# its Python: grafana/environment.sh [REQUIREMENTS]
# Needs Python 3.11 or later with venv (Debian: python3-venv).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
requirements=${1:-$here/requirements.txt}
cache=${JOBLEDGER_CACHE:-$HOME/.cache/jobledger}
digest=$(cat "$requirements" "$here/environment.sh" | sha256sum | cut -c1-16)
target=$cache/python-$digest
if [ ! -x "$target/bin/python" ]; then
    mkdir -p "$cache"
    partial=$(mktemp -d "$cache/python.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    python3 -m venv "$partial"
    "$partial/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$requirements" >&2
    # Whoever else made it meanwhile made the same.
    mv -T "$partial" "$target" 2>/dev/null || [ -x "$target/bin/python" ]
fi
echo "$target/bin/python"
