#!/bin/bash
# Builds a release binary and prints its path: for an old glibc (EL 8), so that it runs on every distribution of docs/install.md.
#
#   packaging/binary.sh [--program jobledger] [amd64|arm64]      of jobledger-exporter if no program is named
#
# zig links it against the symbols of that glibc, and compiles C for the other architecture; the other one also needs Rust's own library for
# it (rustup target add). Same sources, same bytes: paths of the machine are not in it. Needs Debian's python3-venv, for zig.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC

GLIBC=2.28
ZIGBUILD="cargo-zigbuild==0.24.0 ziglang==0.15.2"

program=jobledger-exporter
if [ "${1:-}" = --program ]; then
    program=${2:?a program}
    shift 2
fi
host=$(rustc -vV | sed -n 's/^host: //p')
case ${1:-} in
'') target=$host ;;
amd64) target=x86_64-unknown-linux-gnu ;;
arm64) target=aarch64-unknown-linux-gnu ;;
*) echo "usage: $0 [--program NAME] [amd64|arm64]" >&2 && exit 64 ;;
esac
if [ "$target" != "$host" ] && [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "$0: Rust has no library for $target: rustup target add $target" >&2
    exit 1
fi
cache=${JOBLEDGER_CACHE:-$HOME/.cache/jobledger}/zigbuild
if [ "$(cat "$cache/installed" 2>/dev/null)" != "$ZIGBUILD" ]; then
    python3 -m venv --clear "$cache"
    # shellcheck disable=SC2086 # two words
    "$cache/bin/pip" install --quiet --disable-pip-version-check $ZIGBUILD
    echo "$ZIGBUILD" >"$cache/installed"
fi
home=${CARGO_HOME:-$HOME/.cargo}
PATH="$cache/bin:$PATH" RUSTFLAGS="--remap-path-prefix=$home=/cargo --remap-path-prefix=$PWD=/jobledger" \
    cargo zigbuild --release --locked --package "$program" --target "$target.$GLIBC" --target-dir target/zigbuild >&2
binary=$PWD/target/zigbuild/$target/release/$program
# A symbol of a later one would only be missed when it starts.
needed=$(readelf --version-info --wide "$binary" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
if [ "$(printf '%s\n' "$needed" "$GLIBC" | sort -V | tail -n 1)" != "$GLIBC" ]; then
    echo "$0: the binary needs glibc $needed, and $GLIBC is promised" >&2
    exit 1
fi
# It is copied to many login nodes. The exporter's limit is in tests/footprint.rs.
if [ "$program" = jobledger ] && [ "$(stat -c %s "$binary")" -gt $((16 << 20)) ]; then
    echo "$0: $binary has $(stat -c %s "$binary") bytes, and 16 MiB are promised" >&2
    exit 1
fi
echo "$binary"
