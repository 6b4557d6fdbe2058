#!/bin/sh
# Stores what a job used in SLURM's AdminComment, as jobstats does, for jobstats itself, Job Defense Shield, reportseff and Open OnDemand
# (docs/mail.md): EpilogSlurmctld=/usr/share/jobledger/slurmctld/jobledger-admincomment.sh
#
# The job is completing for slurmctld until this ends. So it works in the background, for some minutes at most; its errors are in syslog.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
# shellcheck source=/dev/null
if [ -r "$settings" ]; then . "$settings"; fi

# slurmctld kills the process group of a script that has ended (src/common/run_command.c): this waits until the other is in its own.
if [ "${1-}" != --store ]; then
    # shellcheck disable=SC2016 # it is the inner shell's
    setsid --fork sh -c 'exec >/dev/null; "$0" --store 2>&1 | logger -t jobledger-admincomment' "$0" </dev/null 2>/dev/null | read -r _
    exit 0
fi

job=${SLURM_JOB_ID-} task=${SLURM_ARRAY_TASK_ID-}
case $job in
'' | *[!0-9]*)
    echo "SLURM_JOB_ID is no number"
    exit 1
    ;;
esac
# Before 23.02 sacctmgr stores the field in lower case (SLURM's release notes), and nothing could read it.
version=$(sacctmgr --version)
case $version in
*" "2[0-2].*) # "slurm", or the package of Debian, "slurm-wlm"
    echo "AdminComment needs SLURM 23.02, this is $version"
    exit 1
    ;;
esac
# SLURM gives the array's number to its last element, too. Alone that number is the whole array.
if [ "${SLURM_ARRAY_JOB_ID-}" = "$job" ]; then
    case $task in '' | *[!0-9]*) ;; *) job=${job}_$task ;; esac
fi
# A report of a part of the job is stored, too. Its status is 4.
blob=$(jobledger report --format=jobstats-blob --wait=180 "$job")
case $blob in
JS1:Short | JS1:None | JS1:H4s*) ;;
*)
    echo "job $job: nothing to store"
    exit 1
    ;;
esac
set -- jobid="$job"
if [ -n "${SLURM_CLUSTER_NAME-}" ]; then set -- "$@" cluster="$SLURM_CLUSTER_NAME"; fi
exec sacctmgr --quiet --immediate update job where "$@" set AdminComment="$blob"
