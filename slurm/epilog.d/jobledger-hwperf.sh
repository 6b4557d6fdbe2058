#!/bin/sh
# Jobledger's part of slurmd's Epilog for profiling jobs: puts back what prolog.d/jobledger-hwperf.sh handed over to
# this job (docs/profilers.md). Same ways to use it, same promises: exit status 0, no output, no waiting.

exec </dev/null >/dev/null 2>&1
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C # bytes, whatever their encoding
export PATH LC_ALL

# --- the same in prolog.d/jobledger-hwperf.sh ---
is_number() {
    case ${1-} in
    '' | *[!0-9]* | ???????????*) return 1 ;;
    esac
}

# A value of perf_event_paranoid: -1 to 4 mean something.
is_level() {
    case ${1-} in
    -1 | [0-9]) ;;
    *) return 1 ;;
    esac
}

# For the admin; a job is never failed and a node never drained for it.
complain() {
    timeout -k 1 1 logger -t jobledger-hwperf -p daemon.warning "job ${SLURM_JOB_ID-}: $*"
}

# A directory into which nobody but its owner, whom we are, can put a file or a link. The last link on the way may be
# followed: /var/run is one.
is_ours() {
    [ -d "$1/." ] || return 1
    # shellcheck disable=SC3067 # not in POSIX, but in every sh there is
    [ -O "$1/." ] || return 1
    # shellcheck disable=SC2012 # the mode, not the name
    case $(ls -ld "$1/.") in
    d????w* | d???????w*) return 1 ;; # group or others may write
    esac
}

is_plain() {
    [ -f "$1" ] && [ ! -L "$1" ]
}

# Whether the job asked for the counters: the feature is a word of its constraint, as in hwperf, hwperf&big, [a|hwperf*2].
asks() (
    set -f
    IFS='&|,*[]():" '
    for word in ${SLURM_JOB_CONSTRAINTS-}; do
        if [ "$word" = "$JOBLEDGER_HWPERF_FEATURE" ]; then exit 0; fi
    done
    exit 1
)

settle() {
    JOBLEDGER_DIR=/run/jobledger JOBLEDGER_HWPERF_FEATURE=hwperf JOBLEDGER_MONITOR=root
    JOBLEDGER_LIKWID_LOCK=/var/run/likwid.lock
    JOBLEDGER_PARANOID_FILE=/proc/sys/kernel/perf_event_paranoid
    settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
    # shellcheck source=/dev/null
    if [ -r "$settings" ]; then . "$settings"; fi

    id=${SLURM_JOB_ID:-${SLURM_JOBID-}}
    is_number "$id" || return
    lock=$JOBLEDGER_LIKWID_LOCK
    if ! is_ours "${lock%/*}"; then
        complain "${lock%/*} is not root's alone: the lock is left as it is"
        return 1
    fi
    [ -e "$JOBLEDGER_DIR" ] || [ -L "$JOBLEDGER_DIR" ] || mkdir "$JOBLEDGER_DIR"
    [ ! -L "$JOBLEDGER_DIR" ] && is_ours "$JOBLEDGER_DIR" || return

    # What was handed over, to whom, and what has to be put back.
    state=$JOBLEDGER_DIR/hwperf
    of_job='' of_node='' before='' lowered=''
    if is_plain "$state"; then
        while IFS='=' read -r key value; do
            case $key in
            job) of_job=$value ;;
            node) of_node=$value ;;
            before) before=$value ;;
            lowered) lowered=$value ;;
            esac
        done <"$state"
    fi
}

# The lock to who monitors (to root where there is no such user, which bars everybody else), and paranoid as it was, unless
# somebody else has set it meanwhile.
give_back() {
    if is_plain "$lock"; then
        chown -h "$JOBLEDGER_MONITOR" "$lock" || chown -h 0 "$lock" || complain "the lock stays as it is"
        chmod 0644 "$lock"
    fi
    if is_level "$before" && [ "$(cat "$JOBLEDGER_PARANOID_FILE")" = "$lowered" ]; then
        echo "$before" >"$JOBLEDGER_PARANOID_FILE" || complain "perf_event_paranoid stays $lowered"
    fi
    rm -f "$state"
}
# --- until here ---

main() {
    settle || return
    if [ -n "$of_job" ]; then
        # What another job has is its own epilog's affair, or the next prolog's.
        [ "$of_job" = "$id" ] && [ "$of_node" = "${SLURMD_NODENAME-}" ] || return
    else
        asks || return
    fi
    give_back
}

(main)
exit 0
