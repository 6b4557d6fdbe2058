#!/bin/sh
# rustc for the crates of this workspace (RUSTC_WORKSPACE_WRAPPER of run.sh): with coverage, as cargo-fuzz sets it on nightly; these spellings
# work on stable too. A program that is run by the build, or loaded by the compiler, could not be linked with it.
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "*) exec "$@" ;;
*" --crate-name "*) ;;
*) exec "$@" ;;
esac
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
