#!/bin/sh
# Jobledger's part of slurmd's Prolog for profiling jobs: who asked for the constraint hwperf gets LIKWID's lock, and with it
# the hardware's counters, which the exporter then releases, and a lower perf_event_paranoid. At every other job's start what
# was handed over is put back, should an epilog never have run (docs/profilers.md).
#
# Used like prolog.d/jobledger.sh, beside it. It fails no job and drains no node: exit status 0 whatever happens, no
# output; what goes wrong is in syslog. It waits, two seconds at most, only at the start of a job that profiles.

exec </dev/null >/dev/null 2>&1
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C # bytes, whatever their encoding
export PATH LC_ALL

# --- the same in epilog.d/jobledger-hwperf.sh ---
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

# That the job has its nodes for itself is the job_submit plugin's to see to. Where SLURM shows it (from 23.02 on) it
# is looked at again: NO is --exclusive (src/common/slurm_protocol_defs.c, job_share_string).
is_exclusive() {
    case ${SLURM_JOB_OVERSUBSCRIBE-NO} in NO) ;; *) return 1 ;; esac
}

# When `counters status` says that they are yielded, no counter is open any more.
wait_for_exporter() {
    exporter=${JOBLEDGER_EXPORTER:-jobledger-exporter} socket=${JOBLEDGER_ORDERS:-/run/jobledger/control.sock}
    if [ ! -S "$socket" ] || ! command -v "$exporter"; then return; fi
    # shellcheck disable=SC2016 # the inner shell's
    timeout -k 1 2 sh -c '
        while :; do
            case $("$1" counters status --control.socket="$2") in yielded*) exit 0 ;; esac
            sleep 0.1
        done' sh "$exporter" "$socket" || complain "the exporter did not yield the counters"
}

hand_over() {
    uid=${SLURM_JOB_UID-}
    is_number "$uid" || return
    current=$(cat "$JOBLEDGER_PARANOID_FILE") wanted=${JOBLEDGER_HWPERF_PARANOID:-0} before='' lowered=''
    if is_level "$current" && is_level "$wanted" && [ "$current" -gt "$wanted" ]; then
        before=$current lowered=$wanted
    fi
    # What is to be put back is written down before anything is changed.
    temporary=$state.$$
    rm -f "$temporary"
    if [ -d "$state" ] || ! printf 'job=%s\nnode=%s\nbefore=%s\nlowered=%s\n' \
        "$id" "${SLURMD_NODENAME-}" "$before" "$lowered" >"$temporary" || ! mv -f "$temporary" "$state"; then
        rm -f "$temporary"
        complain "nothing was handed over: $state cannot be written"
        return
    fi
    # O_EXCL: never through a link, never another's.
    [ -e "$lock" ] || [ -L "$lock" ] || (
        set -C
        : >"$lock"
    )
    if ! is_plain "$lock" || ! chown -h "$uid" "$lock"; then
        complain "nothing was handed over: the lock is no file or cannot be given away"
        give_back
        return
    fi
    wait_for_exporter
    if [ -n "$lowered" ]; then
        echo "$lowered" >"$JOBLEDGER_PARANOID_FILE" || complain "perf_event_paranoid stays $current"
    fi
}

main() {
    settle || return
    if [ -n "$of_node" ] && [ "$of_node" != "${SLURMD_NODENAME-}" ]; then
        # Another slurmd of this host handed it over: its epilog or its next prolog puts it back.
        if asks; then complain "nothing was handed over: job $of_job of $of_node has the counters"; fi
        return
    fi
    give_back
    asks || return
    if is_exclusive; then
        # What was put back is as it was before.
        hand_over
    else
        complain "nothing was handed over: the job shares its node"
    fi
}

# A shell of its own: an error in the settings file ends that one and not this.
(main)
exit 0
