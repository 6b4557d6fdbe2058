#!/usr/bin/env bash
# Runs every fuzz target (or those named) for so many seconds each, on stable Rust and without cargo-fuzz:
#   exporter/fuzz/run.sh SECONDS [TARGET...]
#   exporter/fuzz/run.sh build                  builds them only
# The seed is the same each time unless FUZZ_SEED says otherwise, so that a failure in CI is of the change at hand.
# Ends with 1 and the input when one of them crashes. Needs a C++ compiler for libFuzzer.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:?usage: run.sh SECONDS|build [TARGET...]}
shift
mapfile -t all < <(cd fuzz_targets && printf '%s\n' *.rs | sed -n '/^main\.rs$/!s/\.rs$//p')
targets=("${@:-${all[@]}}")
cache=${JOBLEDGER_FUZZ_CACHE:-$PWD/target/fuzz}
# What cargo-fuzz sets on nightly; these spellings work on stable too.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
 -Cllvm-args=-sanitizer-coverage-trace-compares"

# With a target named, build scripts are built without these flags, which they could not be linked with.
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="${flags//$'\n'/}" cargo build --release --locked --target "$target" --target-dir "$cache/build" --bins
[ "$seconds" != build ] || exit 0
program=$cache/build/$target/release/fuzz

# Seeds: the files of the fixture machines, sorted by name into the targets that read such files.
machines=$cache/machines
rm -rf "$machines"
cargo run --quiet --manifest-path ../../Cargo.toml --package jobledger-testkit --bin unpack-machines -- "$machines"
seed() {
    local target=$1 hash file
    shift
    mkdir -p "$cache/corpus/$target"
    # Thousands of files, few of them different.
    find "$machines" -type f "$@" -size -16k -print0 | xargs -0 -r sha1sum | sort -u -k1,1 |
        while read -r hash file; do cp "$file" "$cache/corpus/$target/seed-${hash:0:16}"; done
}
seed keyed \( -name '*.stat' -o -name '*.events' -o -name io.stat -o -name status \)
seed numbers \( -name '*.effective' -o -name '*.max' -o -name '*.pressure' -o -name '*_in_bytes' \)
seed cgroup_files \( -name '*.stat' -o -name memory.events -o -name memory.oom_control -o -name cgroup.procs \)
seed proc_files -path '*/proc/[0-9]*'
seed node_files -path '*/proc/*' -not -path '*/proc/[0-9]*'
seed interconnect \( -path '*/ports/*' -o -path '*/telemetry/*' \)
seed gpu_files \( -name gpu_metrics -o -path '*/fdinfo/*' -o -name properties -o -name '*_err_count' -o -name 'temp*_input' -o -name '*_link_speed' \)
seed file_systems \( -name diskstats -o -name mountstats -o -name mountinfo -o -path '*/lustre/*/stats' \)
seed pmu_sysfs \( -path '*/format/*' -o -path '*/events/*' \)
seed slurm_names -name cmdline
seed slurm_texts \( -path '*/run/*' -o -name environ \)

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
