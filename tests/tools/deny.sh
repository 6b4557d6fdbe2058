#!/bin/sh
# Licences, sources and second versions of all crates in Cargo.lock, by deny.toml, and security advisories where their database is
# reachable: it comes from https://github.com/rustsec/advisory-db, which not every machine reaches. A clone that is there already is used.
# cargo-deny itself is built from crates.io below $JOBLEDGER_CACHE, once for each version, without optimisation: it runs for a second.
set -eu
cd "$(dirname "$0")/../.."
version=0.20.2
tools=${JOBLEDGER_CACHE:-$HOME/.cache/jobledger}/cargo-deny-$version
if [ ! -x "$tools/bin/cargo-deny" ]; then
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug --locked --quiet --root "$tools" --version "=$version" cargo-deny
fi
# Builds fetch the crates of this platform alone; those of the others are looked at, too.
cargo fetch --locked --quiet
deny() {
    # Offline: the index is not asked again.
    "$tools/bin/cargo-deny" --log-level error --locked "$@"
}
deny --offline check --hide-inclusion-graph bans licenses sources

clones=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if problem=$(GIT_TERMINAL_PROMPT=0 timeout 120 "$tools/bin/cargo-deny" --log-level error fetch db 2>&1); then
    deny --offline check --hide-inclusion-graph advisories
elif [ -n "$(find "$clones" -mindepth 2 -maxdepth 2 -name .git 2>/dev/null)" ]; then
    echo "the database of security advisories cannot be fetched: an older clone in $clones is asked" >&2
    deny --offline check --hide-inclusion-graph advisories
else
    # shellcheck disable=SC2016 # a name in the table, not a command
    if [ -n "${CI:-}" ] && ! grep -q '^| `advisories`' tests/skips.md; then
        echo "security advisories cannot be checked under CI: $problem" >&2
        exit 1
    fi
    echo "NOT CHECKED: security advisories. Their database, https://github.com/rustsec/advisory-db, cannot be reached" >&2
fi
