#!/bin/sh
# Jobledger's part of slurmd's Epilog: adds to the file that prolog.d/jobledger.sh wrote for the job how the job ended, and
# moves it to <jobid>.ended (docs/metadata.md). Removes such files of jobs that ended some time ago. Same ways to use it,
# same promises: exit status 0, no output, no waiting.

exec </dev/null >/dev/null 2>&1
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

# A directory that nobody but its owner, whom we are, can put a file or a link into. The same in both snippets.
is_ours() {
    [ ! -L "$1" ] && [ -d "$1" ] || return 1
    # shellcheck disable=SC3067 # not in POSIX, but in every sh there is
    [ -O "$1" ] || return 1
    # shellcheck disable=SC2012 # the mode, not the name
    case $(ls -ld "$1") in
    d????w* | d???????w*) return 1 ;; # group or others may write
    esac
}

# A number of three digits at most: an exit code, a signal.
put_small() {
    case $2 in '' | *[!0-9]* | ????*) return ;; esac
    printf '%s=%s\n' "$1" "$2"
}

# From 22.05 on (src/plugins/prep/script/prep_script_slurmd.c), and not where slurmd ends a job that slurmctld does not know.
# 0:0 is also a job that SLURM ended, at its time limit or because somebody cancelled it.
# SLURM_JOB_DERIVED_EC is the highest of wait(2)'s statuses of the steps.
put_ending() {
    case ${SLURM_JOB_START_TIME-}:${SLURM_JOB_END_TIME-} in
    *[!0-9:]* | :* | *: | ???????????*:* | *:???????????*) ;;
    *) printf 'elapsed=%s\n' $((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME)) ;;
    esac
    put_small exit_code "${SLURM_JOB_EXIT_CODE2%%:*}"
    put_small signal "${SLURM_JOB_EXIT_CODE2#*:}"
    case ${SLURM_JOB_DERIVED_EC-} in '' | *[!0-9]* | ??????*) return ;; esac
    put_small derived_exit_code $((SLURM_JOB_DERIVED_EC / 256 % 256))
    put_small derived_signal $((SLURM_JOB_DERIVED_EC % 128))
}

main() {
    id=${SLURM_JOB_ID:-${SLURM_JOBID-}}
    case $id in '' | *[!0-9]* | 0* | ?????????????????????*) return ;; esac

    JOBLEDGER_DIR=/run/jobledger JOBLEDGER_KEEP_ENDED=10
    settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
    # shellcheck source=/dev/null
    if [ -r "$settings" ]; then . "$settings"; fi
    dir=$JOBLEDGER_DIR/jobs
    is_ours "$JOBLEDGER_DIR" && is_ours "$dir" || return

    file=$dir/$id node='' start_time='' restarts=''
    if [ -f "$file" ] && [ ! -L "$file" ]; then
        while IFS= read -r line; do
            case $line in
            node=*) node=${line#node=} ;;
            start_time=*) start_time=${line#start_time=} ;;
            restarts=*) restarts=${line#restarts=} ;;
            esac
        done <"$file"
    fi
    # Where several slurmd share this host, the file is that of the node whose prolog wrote last: one that ends
    # earlier leaves it to the other. One with a later start is of a later run of the job. An earlier start is of this one:
    # slurmctld moves it while nodes are powered up (job_config_fini in src/slurmctld/job_mgr.c).
    if [ "$node" = "${SLURMD_NODENAME:-$node}" ] || [ -z "$node" ] &&
        ! [ "${start_time:-0}" -gt "${SLURM_JOB_START_TIME:-${start_time:-0}}" ]; then
        # SLURM counts a requeue before the epilog runs, and does not say how that run ended.
        if [ -n "$restarts" ] && [ "$restarts" = "${SLURM_JOB_RESTART_COUNT-}" ] && [ -n "${SLURM_JOB_EXIT_CODE2-}" ]; then
            temporary=$dir/.$id.$$
            rm -f "$temporary"
            { cat "$file" && put_ending; } >"$temporary" && [ ! -d "$file.ended" ] && mv -f "$temporary" "$file.ended"
        fi
        rm -f "$file"
    fi
    # What a prolog left that was killed half-way.
    rm -f "$dir/.$id".*
    # The exporter has read those long ago. One that was not running has some minutes to come back.
    find "$dir" -maxdepth 1 -name '*.ended' -type f -mmin "+$JOBLEDGER_KEEP_ENDED" -exec rm -f {} +
}

(main)
exit 0
