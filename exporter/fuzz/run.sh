#!/usr/bin/env bash
# Runs every fuzz target (or those named) for so many seconds each, on stable Rust and without cargo-fuzz:
#   exporter/fuzz/run.sh SECONDS [TARGET...]
#   exporter/fuzz/run.sh build                  builds them only
# What the tests are built from is taken from their build, and this workspace's crates are built once more with coverage (instrument.sh).
# FUZZ_PROFILE=fuzz optimizes all of it: ten minutes more, for runs of hours.
# The seed is the same each time unless FUZZ_SEED says otherwise, so that a failure in CI is of the change at hand.
# Ends with 1 and the input when one of them crashes. Needs a C++ compiler for libFuzzer.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:?usage: run.sh SECONDS|build [TARGET...]}
shift
mapfile -t all < <(cd fuzz_targets && printf '%s\n' *.rs | sed -n '/^main\.rs$/!s/\.rs$//p')
targets=("${@:-${all[@]}}")
cache=${JOBLEDGER_FUZZ_CACHE:-$PWD/target/fuzz}
profile=${FUZZ_PROFILE:-dev}
build=$(cd ../.. && cargo metadata --locked --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

# The same features as those of the tests (Makefile, TESTED).
tested=(--workspace --locked --features jobledger/testing)
RUSTC_WORKSPACE_WRAPPER=$PWD/instrument.sh cargo build "${tested[@]}" --profile "$profile" --bin fuzz
cargo build --quiet "${tested[@]}" --bin unpack-machines
[ "$seconds" != build ] || exit 0
program=$build/${profile/#dev/debug}/fuzz

machines=$cache/machines
rm -rf "$machines"
"$build/debug/unpack-machines" "$machines"
./seeds.py "$machines" "$cache/corpus"

# Fuzzes one target; what it has to say comes at once, since others run beside it.
fuzz() {
    local name=$1 corpus=$cache/corpus/$1 seeds=() failed=0
    mkdir -p "$corpus" "$cache/crashes"
    [ -d "corpus/$name" ] && seeds=("corpus/$name")
    FUZZ_TARGET=$name "$program" -max_total_time="$seconds" -seed="${FUZZ_SEED:-1}" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$cache/crashes/$name-" "$corpus" "${seeds[@]}" \
        > "$cache/$name.log" 2>&1 || failed=1
    local text="== $name"
    if [ "$failed" = 1 ]; then
        text+=$'\n'$(tail -n 40 "$cache/$name.log")
        text+=$'\n'"reproduce: FUZZ_TARGET=$name $program $(sed -n 's/.*Test unit written to //p' "$cache/$name.log")"
    fi
    text+=$'\n'$(sed -n 's/^stat::number_of_executed_units: */executed /p; s/^stat::average_exec_per_sec: */per second /p' "$cache/$name.log")
    printf '%s\n' "$text"
    return "$failed"
}

failed=0
waiting=0
for name in "${targets[@]}"; do
    if [ "$waiting" -ge "$(nproc)" ]; then
        wait -n || failed=1
        waiting=$((waiting - 1))
    fi
    fuzz "$name" &
    waiting=$((waiting + 1))
done
for ((; waiting > 0; waiting--)); do
    wait -n || failed=1
done
exit "$failed"
