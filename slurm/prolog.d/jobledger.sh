#!/bin/sh
# Jobledger's part of slurmd's Prolog: writes what SLURM says of the job that starts here into
# /run/jobledger/jobs/<jobid> for the exporter (docs/metadata.md has the format, the settings and the trust).
#
# Used as Prolog= itself, in a Prolog=/etc/slurm/prolog.d/* glob, or as one line of a site's own prolog.
# It fails no job and holds none up: exit status 0 whatever happens, no output, some milliseconds, and three seconds
# at most where the controller is asked and does not answer (before 22.05 six, if scontrol hangs as well). The file is
# there before the controller is asked. A controller that does not answer is asked again while the job runs. A job that gets
# no file is in syslog; where that does not answer, it costs two seconds more.
#
# slurmd gives its prolog an environment of its own making, without PATH and without anything of the user's: that
# is what makes it worth believing. The job's name comes from the user and may be any bytes at all.

exec </dev/null >/dev/null 2>&1
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C # bytes, whatever their encoding
export PATH LC_ALL

newline='
'

is_number() {
    case ${1-} in
    '' | *[!0-9]* | ?????????????????????*) return 1 ;;
    esac
}

put_number() {
    if is_number "$2"; then printf '%s=%s\n' "$1" "$2"; fi
}

# For the admin: without its file a job is in no account's report.
complain() {
    timeout -k 1 1 logger -t jobledger -p daemon.warning "job ${SLURM_JOB_ID:-${SLURM_JOBID-}}: $*"
}

# One line, without control characters. 512 bytes are more than a label shows.
put_text() {
    text=$2
    case $text in
    '' | '(null)') return ;;
    *[[:cntrl:]]*) text=$(printf %s "$text" | tr -d '[:cntrl:]') ;;
    esac
    if [ -n "$text" ]; then printf '%s=%.512s\n' "$1" "$text"; fi
}

# Whole or not at all: a part of a list would pass for all of it. 8192 bytes name 200 parts of GPUs.
put_list() {
    if [ -n "$2" ] && [ ${#2} -le 8192 ]; then printf '%s=%s\n' "$1" "$2"; fi
}

# The first of these lists in which every GPU is named by its id: GPU-... (whole ones from 25.11 on), MIG-... (from 21.08
# on). Up to then, and where SLURM does not know the ids, it holds indices, which SLURM_JOB_GPUS has already.
gpu_ids() {
    IFS=,
    for list in "$@"; do
        case ,$list, in *[!0-9A-Za-z,/-]* | *,,*) continue ;; esac
        for each in $list; do
            case $each in GPU-?* | MIG-?*) ;; *) continue 2 ;; esac
        done
        printf %s "$list"
        return
    done
}

# The time limit in seconds, from what slurmctld expects as the end: without a limit that is 365 days after the start
# (job_end_time_reset in src/slurmctld/job_mgr.c). Ten digits do not overflow.
time_limit() {
    case ${SLURM_JOB_START_TIME-}:${SLURM_JOB_END_TIME-} in *[!0-9:]* | :* | *: | ???????????*:* | *:???????????*) return ;; esac
    limit_of_job=$((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME))
    case $limit_of_job in -* | 0 | 31536000) ;; *) printf %s "$limit_of_job" ;; esac
}

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

# Runs a command of SLURM's with its output in $answer: at most $limit seconds, one more to end it, and 4 MiB. A file and
# not a pipe, since a pipe is open for as long as any child of the command runs.
ask() {
    command -v timeout && command -v "$1" || return 1
    (
        # shellcheck disable=SC3045 # in every sh there is; without it an endless answer would leave a core
        ulimit -c 0
        ulimit -f 8192
        exec timeout -k 1 "$limit" "$@"
    ) >"$answer"
}

# Whether the controller may be asked: the prolog of a 1000-node job runs 1000 times at once.
may_ask() {
    case ${JOBLEDGER_ASK_CONTROLLER:-small} in
    always) return 0 ;;
    small) ;;
    *) return 1 ;;
    esac
    nodes=${SLURM_JOB_NUM_NODES-} # from 22.05 on
    if ! is_number "$nodes"; then
        ask scontrol show hostnames "${SLURM_NODELIST-}" || return 1 # asks nobody
        nodes=$(grep -c . <"$answer")
    fi
    is_number "$nodes" && [ "$nodes" -ge 1 ] && [ "$nodes" -le 8 ]
}

# What slurmd's environment lacks: array ids, name, and before 26.05 the QOS. squeue and not scontrol: its format puts
# the name, which may hold blanks, newlines and whole records, behind everything that is not the user's. The
# array's own id brings every element, so the line of this job is looked for; a name that holds a second such line
# makes it two, and then none is believed. Who the job belongs to never comes from here.
learn() {
    ask squeue --local --noheader --states=all --jobs="$id" --format='%A|%F|%K|%q|%j' || return
    line=$(sed -n "/^$id|/p" <"$answer")
    case $line in
    *"$newline"*) return ;;
    "$id|"*"|"*"|"*"|"*) ;;
    *) return ;;
    esac
    rest=${line#*"|"}
    array_job=${rest%%"|"*} rest=${rest#*"|"}
    array_task=${rest%%"|"*} rest=${rest#*"|"}
    qos=${qos:-${rest%%"|"*}}
    name=${rest#*"|"}
    is_number "$array_task" || array_job='' # the job's own id, where there is no array
}

# Asks again behind the prolog, which does not wait for it. A session of its own: slurmd kills its prolog's process group
# at the prolog's end, so the prolog ends when the other one has left it and closed the pipe.
ask_later() {
    if [ -n "$JOBLEDGER_ASK_AGAIN" ] && [ -f "$0" ] && command -v setsid; then
        { JOBLEDGER_LATER=$content setsid /bin/sh "$0" & } | read -r _
    fi
}

# What ask_later starts. The epilog moves the file when the job ends. An answer that comes after that is there for the
# exporter for a minute, since it still exports the job. A file that is not as the prolog left it is another prolog's: the
# job runs again, or another slurmd of this host has it, too.
later() {
    for pause in $JOBLEDGER_ASK_AGAIN; do
        sleep "$pause"
        is_as "$later" || [ ! -e "$dir/$id" ] || return
        learn || continue
        if is_as "$later"; then
            put_file
        elif [ ! -e "$dir/$id" ]; then
            put_file
            sleep 60
            if is_as "$content"; then rm -f "$dir/$id"; fi
        fi
        return
    done
}

# Whether the job's file holds this text.
is_as() {
    [ -f "$dir/$id" ] && [ "$(cat "$dir/$id")" = "$1" ]
}

main() {
    id=${SLURM_JOB_ID:-${SLURM_JOBID-}}
    is_number "$id" || return
    case $id in 0*) return ;; esac

    JOBLEDGER_DIR=/run/jobledger JOBLEDGER_ASK_CONTROLLER=small JOBLEDGER_ASK_AGAIN='5 15 45'
    settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
    trap 'complain "no metadata: $settings has an error"' EXIT
    # shellcheck source=/dev/null
    if [ -r "$settings" ]; then . "$settings"; fi
    trap - EXIT

    dir=$JOBLEDGER_DIR/jobs
    for each in "$JOBLEDGER_DIR" "$dir"; do
        # The prolog makes them. What it leaves behind must not make them again after an administrator removed them.
        [ -n "$later" ] || [ -e "$each" ] || [ -L "$each" ] || mkdir "$each"
        if ! is_ours "$each"; then
            [ -n "$later" ] || complain "no metadata: $each is missing, a link, or not root's alone"
            return
        fi
    done
    temporary=$dir/.$id.$$ limit=2
    # The epilog removes .$id.* of a prolog that was killed.
    if [ -n "$later" ]; then temporary=$dir/.later.$id.$$ limit=60; fi
    answer=$temporary.answer
    rm -f "$temporary" "$answer"

    # Names that a later SLURM may give its prolog are taken where they are given.
    name=${SLURM_JOB_NAME-} qos=${SLURM_JOB_QOS-}
    array_job=${SLURM_ARRAY_JOB_ID-} array_task=${SLURM_ARRAY_TASK_ID-}
    het_job=${SLURM_HET_JOB_ID-}
    case $het_job in 0) het_job='' ;; esac
    node_list=${SLURM_JOB_NODELIST:-${SLURM_NODELIST-}} # before 23.02 by its second name alone
    case $node_list in *[[:cntrl:]]*) node_list='' ;; esac
    # Of a job with shards these are the GPUs that it shares; slurmd's prolog does not get the number of its shards.
    gpus=${SLURM_JOB_GPUS-}
    case $gpus in *[!0-9,-]*) gpus='' ;; esac
    gpu_ids=$(gpu_ids "${CUDA_VISIBLE_DEVICES-}" "${ROCR_VISIBLE_DEVICES-}")

    if [ -n "$later" ]; then
        later
    else
        put_file
        if [ -z "$name" ] && may_ask; then
            if learn; then put_file; else ask_later; fi
        fi
    fi
    rm -f "$answer"
}

# The job's file, whole at any time.
put_file() {
    content=$(
        printf 'version=1\n'
        put_number job_id "$id"
        put_text sluid "${SLURM_JOB_SLUID-}"
        put_number uid "${SLURM_JOB_UID-}"
        put_text user "${SLURM_JOB_USER-}"
        put_text account "${SLURM_JOB_ACCOUNT-}"
        put_text partition "${SLURM_JOB_PARTITION-}"
        put_text qos "$qos"
        put_text name "$name"
        put_number array_job_id "$array_job"
        put_number array_task_id "$array_task"
        put_number het_job_id "$het_job"
        put_number start_time "${SLURM_JOB_START_TIME-}"
        put_number time_limit "$(time_limit)"
        put_number nodes "${SLURM_JOB_NUM_NODES-}"
        put_number restarts "${SLURM_JOB_RESTART_COUNT-}"
        put_list node_list "$node_list"
        put_list gpus "$gpus"
        put_list gpu_uuids "$gpu_ids"
        put_text node "${SLURMD_NODENAME-}"
    )
    # A directory of the file's name would take the file into itself instead of giving way to it.
    { printf '%s\n' "$content" >"$temporary" && [ ! -d "$dir/$id" ] && mv -f "$temporary" "$dir/$id"; } ||
        complain "no metadata: $dir/$id cannot be written"
    rm -f "$temporary"
}

# By ask_later alone: the file as the prolog left it.
later=${JOBLEDGER_LATER-}
unset JOBLEDGER_LATER
# A shell of its own: an error in the settings file ends that one and not this.
(main)
exit 0
